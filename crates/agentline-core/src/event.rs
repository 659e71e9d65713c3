//! The events of a run. This file also documents `--output events`.

mod permission_event;
mod started;
mod tool_result;
mod tool_use;

pub use permission_event::PermissionEvent;
pub use started::{EVENTS_SCHEMA, ModelInfo, Started};
pub use tool_result::ToolResult;
pub use tool_use::{ToolLocation, ToolUse};

use crate::sample;
use crate::{ChangeSource, FileChangeKind, Millis, Outcome, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An event with its position in the run, as printed by `--output events`, one per line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The number of the event in the run, from 1.
    pub seq: u32,
    /// Milliseconds since the start of the run.
    pub at_ms: Millis,
    /// The origin of the event.
    pub from: Origin,
    /// The line number in that stream, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The event itself.
    #[serde(flatten)]
    pub event: Event,
}

impl Record {
    /// Creates a record of an event.
    #[must_use]
    pub fn new(seq: u32, at_ms: Millis, from: Origin, line: Option<u64>, event: Event) -> Self {
        Self { seq, at_ms, from, line, event }
    }

    /// Creates the first record of a run that ended before its agent started.
    #[must_use]
    pub fn first(outcome: &Outcome) -> Self {
        Self::new(1, 0, Origin::Agentline, None, Event::from(Started::of(outcome)))
    }

    /// Creates the final record, with the outcome, after the event with this number and time.
    #[must_use]
    pub fn last((seq, at_ms): (u32, Millis), outcome: Outcome) -> Self {
        let at_ms = at_ms.max(outcome.duration_ms);
        Self::new(seq + 1, at_ms, Origin::Agentline, None, Event::Outcome { outcome: Box::new(outcome) })
    }
}

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// A line of the agent's standard output.
    Stdout,
    /// A line of the agent's standard error.
    Stderr,
    /// A line of the session file that the agent wrote.
    SessionFile,
    /// The state of the disk.
    Disk,
    /// agentline itself.
    Agentline,
}

/// One event of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The run has started; always the first event. If the agent fails before it starts, only what agentline knows is set.
    Started(Started),
    /// A piece of the answer, as it is generated.
    Text {
        /// The piece.
        text: String,
    },
    /// A piece of reasoning.
    Thinking {
        /// The piece.
        text: String,
    },
    /// The model requests a tool. The call may still be refused.
    ToolUse(ToolUse),
    /// A piece of the output of a running tool, where the agent sends it. The result has the complete output.
    ToolOutput {
        /// The id of the call.
        tool_use_id: String,
        /// The piece.
        text: String,
    },
    /// A tool call ended. Each `tool_use` has exactly one result.
    ToolResult(ToolResult),
    /// A file changed, according to the disk; emitted at the end of the run.
    FileChange {
        /// The path; relative to the workspace if inside it.
        path: String,
        /// The kind of the change.
        change: FileChangeKind,
        /// The source of the change.
        source: ChangeSource,
        /// The id of the tool call that reported the change.
        tool_use_id: Option<String>,
        /// Whether the disk confirms the change.
        verified: bool,
        /// The change as a unified diff, if diffs were requested and the old content is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    /// A permission request and its decision.
    Permission(PermissionEvent),
    /// A part of the answer that is not text, such as an image, as the agent sent it.
    Content {
        /// The block.
        block: Box<RawValue>,
    },
    /// The agent's complete current plan.
    Plan {
        /// The entries, as the agent sent them.
        entries: Box<RawValue>,
    },
    /// The commands that the agent offers.
    Commands {
        /// The commands, as the agent sent them.
        commands: Box<RawValue>,
    },
    /// The session changed to this mode.
    Mode {
        /// The agent's own id for the mode.
        mode: String,
    },
    /// The options of the session changed.
    ConfigOption {
        /// The options, as the agent sent them.
        options: Box<RawValue>,
    },
    /// The agent reported information about the session, such as its title.
    SessionInfo {
        /// The information, as the agent sent it.
        info: Box<RawValue>,
    },
    /// The token counts so far.
    Usage(Usage),
    /// An attempt failed, and the run is tried again. The events of the next attempt follow.
    Retry {
        /// The number of the next attempt, starting at 2.
        attempt: u32,
        /// The wait before it in milliseconds.
        wait_ms: Millis,
        /// Why the last attempt failed.
        reason: String,
        /// The model of the next attempt, if it is another one.
        model: Option<String>,
    },
    /// A warning for the caller.
    Warning {
        /// A stable code.
        code: String,
        /// The message.
        message: String,
    },
    /// A line that could not be parsed; the run continues.
    Unreadable {
        /// The start of the line.
        sample: String,
        /// The length of the line in bytes.
        length: u64,
    },
    /// A message from the agent that no other event covers, passed on unchanged.
    Agent {
        /// The original message.
        raw: Box<RawValue>,
    },
    /// The result of the run; always the last event.
    Outcome {
        /// The complete outcome. It is several times as large as any other event, hence the box.
        outcome: Box<Outcome>,
    },
}

// A run moves each event several times, so a large variant slows down all of them.
const _: () = assert!(size_of::<Event>() <= 288);

/// Makes events of the types that describe them.
macro_rules! from_types {
    ($($variant:ident($type:ty),)*) => {$(
        impl From<$type> for Event {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from_types! {
    Started(Started),
    ToolUse(ToolUse),
    ToolResult(ToolResult),
    Permission(PermissionEvent),
    Usage(Usage),
}

/// Defines the words of `type` in one place, so that the list of types is complete: the match is exhaustive.
macro_rules! types {
    ($($pattern:pat => $word:literal,)*) => {
        impl Event {
            /// The values of `type` in the JSON of all events.
            pub const TYPES: &[&str] = &[$($word),*];

            /// Returns the value of `type` in the event's JSON.
            #[must_use]
            pub fn type_word(&self) -> &'static str {
                match self {
                    $($pattern => $word,)*
                }
            }
        }
    };
}

types! {
    Event::Started(_) => "started",
    Event::Text { .. } => "text",
    Event::Thinking { .. } => "thinking",
    Event::ToolUse(_) => "tool_use",
    Event::ToolOutput { .. } => "tool_output",
    Event::ToolResult(_) => "tool_result",
    Event::FileChange { .. } => "file_change",
    Event::Permission(_) => "permission",
    Event::Content { .. } => "content",
    Event::Plan { .. } => "plan",
    Event::Commands { .. } => "commands",
    Event::Mode { .. } => "mode",
    Event::ConfigOption { .. } => "config_option",
    Event::SessionInfo { .. } => "session_info",
    Event::Usage(_) => "usage",
    Event::Retry { .. } => "retry",
    Event::Warning { .. } => "warning",
    Event::Unreadable { .. } => "unreadable",
    Event::Agent { .. } => "agent",
    Event::Outcome { .. } => "outcome",
}

impl Event {
    /// Returns whether a run cannot be retried after this event: the agent has worked, or the run is over.
    #[must_use]
    pub fn rules_out_retry(&self) -> bool {
        match self {
            Self::Started(_)
            | Self::Commands { .. }
            | Self::Mode { .. }
            | Self::ConfigOption { .. }
            | Self::SessionInfo { .. }
            | Self::Warning { .. }
            | Self::Unreadable { .. }
            | Self::Agent { .. } => false,
            // The fill of the context is also reported for a session without a prompt.
            Self::Usage(usage) => usage.tokens != crate::Tokens::default(),
            Self::Text { .. }
            | Self::Thinking { .. }
            | Self::ToolUse(_)
            | Self::ToolOutput { .. }
            | Self::ToolResult(_)
            | Self::FileChange { .. }
            | Self::Permission(_)
            | Self::Content { .. }
            | Self::Plan { .. }
            | Self::Retry { .. }
            | Self::Outcome { .. } => true,
        }
    }

    /// Returns whether this event is held back until the run has started, so that `started` is the first event.
    pub(crate) fn may_precede_start(&self) -> bool {
        matches!(self, Self::Warning { .. } | Self::Unreadable { .. } | Self::Agent { .. })
    }

    /// Creates a warning.
    #[must_use]
    pub fn warning(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Warning { code: code.into(), message: message.into() }
    }

    /// Creates an event from an agent's message; text that is not JSON becomes a JSON string.
    #[must_use]
    pub fn agent(raw: &str) -> Self {
        let raw = serde_json::from_str::<Box<RawValue>>(raw)
            .or_else(|_| serde_json::value::to_raw_value(raw))
            .unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self::Agent { raw }
    }

    /// Creates an event for a line that could not be parsed.
    #[must_use]
    pub fn unreadable(text: &str, length: u64) -> Self {
        Self::Unreadable { sample: sample(text), length }
    }
}
