//! Answers of a model in terms that every agent shares. [`ScriptedAgent`](crate::agents::ScriptedAgent) renders them
//! for the API and the tools of one agent.

use serde_json::Value;

use crate::step::{ModelFault, ScriptedAnswer};

/// One answer of a model.
///
/// ```
/// use agentline_mock::answer::{Action, Answer};
///
/// let answer = Answer::thought("I will write it.").and_text("Writing.").and_use(Action::write("/tmp/a.txt", "a\n"));
/// ```
pub type Answer = ScriptedAnswer<AnswerPart, ServiceError>;

/// A part of an [`Answer`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AnswerPart {
    /// A text.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// The use of a tool.
    Use(Action),
    /// A structured value.
    Value(Value),
}

/// What the model does with a tool of the agent. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Writes a new file.
    Write {
        /// The file.
        path: String,
        /// Its content.
        content: String,
    },
    /// Replaces a text in a file.
    Edit {
        /// The file.
        path: String,
        /// The old text, one line.
        old: String,
        /// The new text, one line.
        new: String,
    },
    /// Reads a file.
    Read {
        /// The file.
        path: String,
    },
    /// Runs a command in a shell.
    Shell {
        /// The command.
        command: String,
    },
    /// Calls a tool of an MCP server, or a function of the calling program.
    Mcp {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        args: Value,
    },
}

impl Action {
    /// Writes a new file.
    pub fn write(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Write { path: path.into(), content: content.into() }
    }

    /// Replaces a line of a file.
    pub fn edit(path: impl Into<String>, old: impl Into<String>, new: impl Into<String>) -> Self {
        Self::Edit { path: path.into(), old: old.into(), new: new.into() }
    }

    /// Reads a file.
    pub fn read(path: impl Into<String>) -> Self {
        Self::Read { path: path.into() }
    }

    /// Runs a command.
    pub fn shell(command: impl Into<String>) -> Self {
        Self::Shell { command: command.into() }
    }

    /// Calls a tool of an MCP server.
    pub fn mcp(server: impl Into<String>, tool: impl Into<String>, args: Value) -> Self {
        Self::Mcp { server: server.into(), tool: tool.into(), args }
    }
}

/// An error of the model's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceError {
    /// 401: the key is wrong.
    Unauthorized,
    /// 429: too many requests.
    RateLimited,
    /// 500: the service failed.
    Internal,
    /// 529: the service is overloaded.
    Overloaded,
    /// 400: the prompt exceeds the context window.
    TooLong,
    /// 404: the model does not exist.
    UnknownModel,
}

impl ServiceError {
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::Overloaded => 529,
            Self::TooLong => 400,
            Self::UnknownModel => 404,
        }
    }
}

impl Answer {
    /// Answers with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of([]).and_text(text)
    }

    /// Answers with a structured value: with the agent's tool for that, if it offers one, or else as text.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::of([AnswerPart::Value(value)])
    }

    /// Answers with reasoning.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::of([AnswerPart::Thought(text.into())])
    }

    /// Answers with a tool call.
    #[must_use]
    pub fn using(action: Action) -> Self {
        Self::of([]).and_use(action)
    }

    /// Answers with nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::of([])
    }

    /// Answers with an error.
    #[must_use]
    pub fn error(error: ServiceError) -> Self {
        Self::fault(ModelFault::Error(error))
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.and(AnswerPart::Text(text.into()))
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_use(self, action: Action) -> Self {
        self.and(AnswerPart::Use(action))
    }
}
