//! Answers of a model in terms that every agent shares. [`ScriptedAgent`](crate::agents::ScriptedAgent) renders them
//! for the API and the tools of one agent.

use serde_json::Value;

use crate::scripted::ModelTokens;

/// One answer of a model.
///
/// ```
/// use agentline_mock::answer::{Action, Answer};
///
/// let answer = Answer::thought("I will write it.").and_text("Writing.").and_use(Action::write("/tmp/a.txt", "a\n"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub(crate) parts: Vec<AnswerPart>,
    pub(crate) tokens: ModelTokens,
    pub(crate) cut: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) delay_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnswerPart {
    Text(String),
    Thought(String),
    Use(Action),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error(ServiceError),
    Drop,
    DropMidway,
    Hang,
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
        Self::fault(Fault::Error(error))
    }

    /// Closes the connection without an answer.
    #[must_use]
    pub fn drop_connection() -> Self {
        Self::fault(Fault::Drop)
    }

    /// Never answers.
    #[must_use]
    pub fn hang() -> Self {
        Self::fault(Fault::Hang)
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(AnswerPart::Text(text.into()));
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_use(mut self, action: Action) -> Self {
        self.parts.push(AnswerPart::Use(action));
        self
    }

    /// Sets the reported token counts.
    #[must_use]
    pub fn tokens(mut self, tokens: ModelTokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Reports that the answer was truncated at its maximum length.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    /// Waits before the answer starts.
    #[must_use]
    pub fn delay(mut self, millis: u64) -> Self {
        self.delay_ms = millis;
        self
    }

    /// Closes the connection after the first piece of text.
    #[must_use]
    pub fn drop_midway(mut self) -> Self {
        self.fault = Some(Fault::DropMidway);
        self
    }

    fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::of([]) }
    }

    fn of(parts: impl IntoIterator<Item = AnswerPart>) -> Self {
        let parts = parts.into_iter().collect();
        Self { parts, tokens: ModelTokens::default(), cut: false, fault: None, delay_ms: 0 }
    }
}
