//! Why a run failed, in stable words. Each agent's folder has the table that leads from its texts and codes to these.

use serde::{Deserialize, Serialize};

/// The stable word for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The agent ended without its final word.
    NoResult,
    /// The agent was killed or fell over.
    Crashed,
    /// The model's service failed.
    ApiError,
    /// The model's service could not be reached.
    Network,
    /// The agent's own settings are broken.
    Settings,
    /// The agent refused its input.
    Input,
    /// The agent's sandbox failed.
    Sandbox,
    /// An MCP server failed.
    Mcp,
    /// A tool failed in a way that ended the run.
    Tool,
    /// The prompt does not fit into the model's window.
    ContextOverflow,
    /// The agent noticed that it repeats itself.
    Loop,
    /// The model does not exist.
    UnknownModel,
    /// The rules could not be given to the agent.
    Policy,
    /// The session to go on with is not there.
    SessionNotFound,
    /// The model answered nothing.
    Empty,
    /// The answer was blocked, or broken off by the model's service.
    Blocked,
    /// The agent's own turn limit.
    AgentTurns,
    /// Our limits.
    MaxTurns,
    /// Our limits.
    MaxToolCalls,
    /// Our limits.
    MaxTokens,
    /// Our limits.
    MaxOutputTokens,
    /// Our limits.
    MaxCost,
    /// The agent was sent on as often as it may be.
    MaxRounds,
    /// The folder is not trusted.
    Untrusted,
    /// Quota or load.
    RateLimited,
    /// No sign-in, or one that was refused.
    NotAuthenticated,
    /// The program is not here.
    NotInstalled,
    /// It could not be started.
    Spawn,
    /// Our clocks.
    TimeoutIdle,
    /// Our clocks.
    TimeoutRun,
    /// Our clocks.
    TimeoutStartup,
    /// The caller stopped it.
    Cancelled,
    /// The value does not fit the schema.
    InvalidOutput,
}

/// In which part of a run something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Before the model was asked.
    Request,
    /// While or after it answered.
    Response,
    /// In a tool.
    Tool,
    /// A limit or a deadline.
    Budget,
}

/// One row a kind: its word's phase, whether trying again can help, and how telling it is beside another.
const TABLE: &[(Kind, Phase, bool, u8)] = &[
    (Kind::NoResult, Phase::Response, true, 0),
    (Kind::Crashed, Phase::Response, true, 1),
    (Kind::ApiError, Phase::Response, true, 2),
    (Kind::Network, Phase::Response, true, 3),
    (Kind::Settings, Phase::Request, false, 6),
    (Kind::Input, Phase::Request, false, 4),
    (Kind::Spawn, Phase::Request, false, 6),
    (Kind::NotInstalled, Phase::Request, false, 6),
    (Kind::Sandbox, Phase::Request, false, 6),
    (Kind::Mcp, Phase::Tool, false, 4),
    (Kind::Tool, Phase::Tool, false, 4),
    (Kind::Policy, Phase::Request, false, 7),
    (Kind::SessionNotFound, Phase::Request, false, 7),
    (Kind::ContextOverflow, Phase::Request, false, 7),
    (Kind::Loop, Phase::Response, false, 5),
    (Kind::UnknownModel, Phase::Request, false, 6),
    (Kind::Empty, Phase::Response, true, 5),
    (Kind::Blocked, Phase::Response, false, 6),
    (Kind::AgentTurns, Phase::Budget, false, 8),
    (Kind::MaxTurns, Phase::Budget, false, 8),
    (Kind::MaxToolCalls, Phase::Budget, false, 8),
    (Kind::MaxTokens, Phase::Budget, false, 8),
    (Kind::MaxOutputTokens, Phase::Budget, false, 8),
    (Kind::MaxCost, Phase::Budget, false, 8),
    (Kind::MaxRounds, Phase::Budget, false, 8),
    (Kind::RateLimited, Phase::Response, true, 9),
    (Kind::Untrusted, Phase::Request, false, 10),
    (Kind::NotAuthenticated, Phase::Request, false, 11),
    (Kind::TimeoutIdle, Phase::Response, true, 4),
    (Kind::TimeoutRun, Phase::Budget, true, 4),
    (Kind::TimeoutStartup, Phase::Request, true, 4),
    (Kind::Cancelled, Phase::Request, false, 12),
    (Kind::InvalidOutput, Phase::Response, true, 4),
];

impl Kind {
    fn row(self) -> (Phase, bool, u8) {
        TABLE.iter().find(|r| r.0 == self).map_or((Phase::Response, false, 0), |r| (r.1, r.2, r.3))
    }

    /// In which part of a run it happens.
    #[must_use]
    pub fn phase(self) -> Phase {
        self.row().0
    }

    /// Whether trying the same again can help.
    #[must_use]
    pub fn retryable(self) -> bool {
        self.row().1
    }

    /// How much this says beside another failure of the same run: the higher one is told.
    #[must_use]
    pub fn weight(self) -> u8 {
        self.row().2
    }
}

/// A classified failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The stable word.
    pub kind: Kind,
    /// The HTTP status behind it.
    pub status: Option<u16>,
    /// What the agent said.
    pub message: String,
    /// What to type next.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure with what was said.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, status: None, message: message.into(), hint: None }
    }

    /// What an HTTP status means, whoever sent it.
    #[must_use]
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            401 | 403 => Kind::NotAuthenticated,
            404 => Kind::UnknownModel,
            429 | 503 | 529 => Kind::RateLimited,
            _ => Kind::ApiError,
        };
        Self { status: Some(status), ..Self::new(kind, message) }
    }

    /// A file that safety rests on was changed while the agent ran; `change` says which one, and how.
    #[must_use]
    pub fn tampered(change: &str) -> Self {
        Self::new(Kind::Settings, format!("the agent's settings changed while it ran: {change}"))
            .hint("find out which tool call did that: rules may not have been in force since")
    }

    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The more telling of two; the first where they tell as much.
    #[must_use]
    pub fn or_more_telling(self, other: Self) -> Self {
        if other.kind.weight() > self.kind.weight() { other } else { self }
    }
}
