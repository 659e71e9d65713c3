//! A call of a tool as Gemini's session files keep it, and what became of it.

use super::{
    parts::{self, Content},
    refusal,
};
use crate::{
    ToolStatus,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

wire! { pub(super) struct Call<'a> {
    id: Str<'a> = "id", name: Str<'a> = "name", args: Option<&'a RawValue> = "args", status: Str<'a> = "status",
    timestamp: Str<'a> = "timestamp", display: Option<&'a RawValue> = "resultDisplay", result: Option<Content<'a>> = "result",
} }

impl Call<'_> {
    /// What is displayed, where that is text.
    pub(super) fn displayed(&self) -> Option<String> {
        self.display.and_then(parts::text)
    }
}

/// How a call ended, and by what it was refused if it was.
///
/// `said` is what the agent calls it: `success`, `error`, `cancelled`, or nothing where only the response is left.
pub(super) fn ending(
    tool: &str,
    said: &str,
    displayed: Option<&str>,
    output: Option<&str>,
    error: Option<&str>,
) -> (ToolStatus, Option<String>) {
    if was_cancelled(said, displayed, error) {
        return (ToolStatus::Cancelled, None);
    }
    let failed = error.is_some() || !matches!(said, "success" | "");
    let reason = if failed {
        refusal::of_message(tool, error.unwrap_or_default())
    } else {
        refusal::of_success(tool, output.unwrap_or_default())
    };
    let status = match (&reason, failed) {
        (Some(_), _) => ToolStatus::Denied,
        (None, true) => ToolStatus::Error,
        (None, false) => ToolStatus::Ok,
    };
    (status, reason)
}

/// A stopped call is seldom called so: a shell that was stopped is a success that only displays it.
pub(super) fn was_cancelled(said: &str, displayed: Option<&str>, error: Option<&str>) -> bool {
    said == "cancelled"
        || displayed.is_some_and(|d| d.trim() == "Command cancelled by user.")
        || error.is_some_and(|e| {
            e.starts_with("[Operation Cancelled]") || e.trim_end().ends_with("was canceled by the user.")
        })
}
