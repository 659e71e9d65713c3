//! What a run in progress is doing, in a few words.

use agentline::{Event, Record};
use schemars::JsonSchema;
use serde::Serialize;

/// The maximum length of the name of a tool in a progress message, in characters.
const LONGEST_NAME: usize = 80;

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ProgressSummary {
    /// The number of events so far.
    pub(crate) events: u64,
    /// The number of tool calls so far.
    pub(crate) tool_calls: u32,
    /// The tokens so far, if the agent reports them while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_tokens: Option<u64>,
    /// What the agent does now.
    pub(crate) activity: String,
}

impl ProgressSummary {
    /// Creates the progress of a run that has not started.
    pub(crate) fn new() -> Self {
        Self { activity: "starting".into(), ..Self::default() }
    }

    /// Takes an event into account. Returns whether the activity changed.
    pub(crate) fn take(&mut self, record: &Record) -> bool {
        self.events += 1;
        let activity = match &record.event {
            Event::Started(_) => "waiting for the model".to_owned(),
            Event::Text { .. } => "writing".to_owned(),
            Event::Thinking { .. } => "thinking".to_owned(),
            Event::ToolUse(tool) => {
                self.tool_calls += 1;
                format!("using {}", tool.name.chars().take(LONGEST_NAME).collect::<String>())
            }
            Event::ToolResult(_) => "waiting for the model".to_owned(),
            Event::Retry { attempt, .. } => format!("retrying (attempt {attempt})"),
            Event::Usage(usage) => {
                self.total_tokens = usage.tokens.total;
                return false;
            }
            _ => return false,
        };
        let changed = activity != self.activity;
        self.activity = activity;
        changed
    }

    /// Returns one line for the user.
    pub(crate) fn line(&self) -> String {
        let tokens = self.total_tokens.map(|tokens| format!(", {tokens} tokens")).unwrap_or_default();
        match self.tool_calls {
            0 => format!("{}{tokens}", self.activity),
            1 => format!("{} (1 tool call{tokens})", self.activity),
            calls => format!("{} ({calls} tool calls{tokens})", self.activity),
        }
    }
}
