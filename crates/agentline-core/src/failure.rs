//! Failures of a run as stable kinds. Each agent's directory has a table that maps its texts and codes to these.

use serde::{Deserialize, Serialize};

/// The stable kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The agent exited without a result.
    NoResult,
    /// The agent crashed or was killed.
    Crashed,
    /// The model's service failed.
    ApiError,
    /// The model's service could not be reached.
    Network,
    /// The agent's own settings are invalid.
    Settings,
    /// The agent rejected its input.
    Input,
    /// The agent's sandbox failed.
    Sandbox,
    /// An MCP server failed.
    Mcp,
    /// A tool error ended the run.
    Tool,
    /// The prompt exceeds the context window of the model.
    ContextOverflow,
    /// The agent detected that it repeats itself.
    Loop,
    /// The model does not exist.
    UnknownModel,
    /// The permission rules could not be passed to the agent.
    Policy,
    /// The session to resume does not exist.
    SessionNotFound,
    /// The model returned no answer.
    Empty,
    /// The model's service blocked or truncated the answer.
    Blocked,
    /// The agent reached its own turn limit.
    AgentTurns,
    /// The run exceeded `max_turns`.
    MaxTurns,
    /// The run exceeded `max_tool_calls`.
    MaxToolCalls,
    /// The run exceeded `max_tokens`.
    MaxTokens,
    /// The run exceeded `max_output_tokens`.
    MaxOutputTokens,
    /// The run exceeded `max_cost`.
    MaxCost,
    /// The agent was re-prompted `max_rounds` times without success.
    MaxRounds,
    /// The workspace is not trusted.
    Untrusted,
    /// A quota is exhausted, or the service is overloaded.
    RateLimited,
    /// Credentials are missing or were rejected.
    NotAuthenticated,
    /// The agent's program was not found.
    NotInstalled,
    /// The agent's program could not be started.
    Spawn,
    /// The agent showed no activity within the idle timeout.
    TimeoutIdle,
    /// The run exceeded its timeout.
    TimeoutRun,
    /// The agent did not answer within the startup timeout.
    TimeoutStartup,
    /// The caller cancelled the run.
    Cancelled,
    /// The value does not match the schema.
    InvalidOutput,
    /// A run of an experiment was interrupted, and its effects forbid that it is executed again.
    Interrupted,
}

/// The part of a run in which a failure occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Before the model was called.
    Request,
    /// While or after the model answered.
    Response,
    /// In a tool.
    Tool,
    /// A limit or a timeout.
    Budget,
}

/// For each kind: its phase, whether a retry can help, and its weight compared with other failures of the run.
const TABLE: &[(FailureKind, Phase, bool, u8)] = &[
    (FailureKind::NoResult, Phase::Response, true, 0),
    (FailureKind::Crashed, Phase::Response, true, 1),
    (FailureKind::ApiError, Phase::Response, true, 2),
    (FailureKind::Network, Phase::Response, true, 3),
    (FailureKind::Settings, Phase::Request, false, 6),
    (FailureKind::Input, Phase::Request, false, 4),
    (FailureKind::Spawn, Phase::Request, false, 6),
    (FailureKind::NotInstalled, Phase::Request, false, 6),
    (FailureKind::Sandbox, Phase::Request, false, 6),
    (FailureKind::Mcp, Phase::Tool, false, 4),
    (FailureKind::Tool, Phase::Tool, false, 4),
    (FailureKind::Policy, Phase::Request, false, 7),
    (FailureKind::SessionNotFound, Phase::Request, false, 7),
    (FailureKind::ContextOverflow, Phase::Request, false, 7),
    (FailureKind::Loop, Phase::Response, false, 5),
    (FailureKind::UnknownModel, Phase::Request, false, 6),
    (FailureKind::Empty, Phase::Response, true, 5),
    (FailureKind::Blocked, Phase::Response, false, 6),
    (FailureKind::AgentTurns, Phase::Budget, false, 8),
    (FailureKind::MaxTurns, Phase::Budget, false, 8),
    (FailureKind::MaxToolCalls, Phase::Budget, false, 8),
    (FailureKind::MaxTokens, Phase::Budget, false, 8),
    (FailureKind::MaxOutputTokens, Phase::Budget, false, 8),
    (FailureKind::MaxCost, Phase::Budget, false, 8),
    (FailureKind::MaxRounds, Phase::Budget, false, 8),
    (FailureKind::RateLimited, Phase::Response, true, 9),
    (FailureKind::Untrusted, Phase::Request, false, 10),
    (FailureKind::NotAuthenticated, Phase::Request, false, 11),
    (FailureKind::TimeoutIdle, Phase::Response, true, 4),
    (FailureKind::TimeoutRun, Phase::Budget, true, 4),
    (FailureKind::TimeoutStartup, Phase::Request, true, 4),
    (FailureKind::Cancelled, Phase::Request, false, 12),
    (FailureKind::InvalidOutput, Phase::Response, true, 4),
    (FailureKind::Interrupted, Phase::Response, false, 0),
];

impl FailureKind {
    fn row(self) -> (Phase, bool, u8) {
        TABLE.iter().find(|r| r.0 == self).map_or((Phase::Response, false, 0), |r| (r.1, r.2, r.3))
    }

    /// Returns the part of a run in which the failure occurs.
    #[must_use]
    pub fn phase(self) -> Phase {
        self.row().0
    }

    /// Returns whether an unchanged retry can help.
    #[must_use]
    pub fn retryable(self) -> bool {
        self.row().1
    }

    /// Returns the weight compared with other failures of the run: the failure with the highest weight is reported.
    #[must_use]
    pub fn weight(self) -> u8 {
        self.row().2
    }
}

/// A classified failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The stable kind.
    pub kind: FailureKind,
    /// The HTTP status, if there is one.
    pub status: Option<u16>,
    /// The agent's message.
    pub message: String,
    /// A hint on what to do next.
    pub hint: Option<String>,
    /// The agent's own name for its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// The exit code that the failure was inferred from. The message is then only the general meaning of that code.
    #[serde(skip)]
    pub(crate) exit_code: Option<i32>,
    /// Whether the message does not say why, so that the agent's last output belongs to it.
    #[serde(skip)]
    pub(crate) is_unexplained: bool,
}

impl Failure {
    /// Creates a failure with a message.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            message: message.into(),
            hint: None,
            agent_type: None,
            exit_code: None,
            is_unexplained: false,
        }
    }

    /// Creates a failure from an exit code and its general meaning. The agent's own message is added if there is one.
    #[must_use]
    pub fn of_exit(kind: FailureKind, meaning: impl Into<String>, code: i32) -> Self {
        Self { exit_code: Some(code), ..Self::new(kind, meaning) }
    }

    /// Sets the agent's own name for its error. An empty name counts as none.
    #[must_use]
    pub fn agent_type(mut self, name: impl Into<String>) -> Self {
        self.agent_type = Some(name.into()).filter(|name| !name.is_empty());
        self
    }

    /// Creates a failure from an HTTP status.
    #[must_use]
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            401 | 403 => FailureKind::NotAuthenticated,
            404 => FailureKind::UnknownModel,
            429 | 503 | 529 => FailureKind::RateLimited,
            _ => FailureKind::ApiError,
        };
        Self { status: Some(status), ..Self::new(kind, message) }
    }

    /// Creates a failure for a protected file that changed while the agent ran; `change` says which file and how.
    #[must_use]
    pub fn tampered(change: &str) -> Self {
        Self::new(FailureKind::Settings, format!("the agent's settings changed while it ran: {change}"))
            .hint("find the tool call that changed them: rules may not have been enforced since then")
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the failure with the higher weight, or `self` if both are equal.
    #[must_use]
    pub fn or_more_specific(self, other: Self) -> Self {
        if other.kind.weight() > self.kind.weight() { other } else { self }
    }

    /// Combines the meaning of an exit code with the failure that the agent reported, if it did.
    pub(crate) fn explained_by(self, reported: Option<Self>) -> Self {
        let code = self.exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
        match reported {
            None => Self { message: self.message + &code, is_unexplained: true, ..self },
            Some(reported) if reported.kind.weight() >= self.kind.weight() => reported,
            Some(reported) => Self {
                message: format!("{}: {}{code}", self.message, reported.message),
                status: reported.status.or(self.status),
                hint: self.hint.or(reported.hint),
                agent_type: reported.agent_type,
                exit_code: None,
                ..self
            },
        }
    }

    /// Marks a failure whose message does not say why.
    #[must_use]
    pub(crate) fn unexplained(mut self) -> Self {
        self.is_unexplained = true;
        self
    }
}
