//! Tool calls in Gemini CLI's session files, and their results.

use super::{
    parts::{self, PartList},
    refusal,
};
use crate::{
    ToolStatus,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

wire! { pub(super) struct Call<'a> {
    id: Str<'a> = "id", name: Str<'a> = "name", args: Option<&'a RawValue> = "args", status: Str<'a> = "status",
    timestamp: Str<'a> = "timestamp", display: Option<&'a RawValue> = "resultDisplay", result: Option<PartList<'a>> = "result",
} }

impl Call<'_> {
    /// Returns the displayed result, if it is text.
    pub(super) fn displayed(&self) -> Option<String> {
        self.display.and_then(parts::text)
    }
}

/// Returns how a call ended, and the reason if it was denied.
///
/// `status` is the status in the file: `success`, `error`, `cancelled`, or empty if only the response is left.
pub(super) fn ending(
    tool: &str,
    status: &str,
    displayed: Option<&str>,
    output: Option<&str>,
    error: Option<&str>,
) -> (ToolStatus, Option<String>) {
    if was_cancelled(status, displayed, error) {
        return (ToolStatus::Cancelled, None);
    }
    let failed = error.is_some() || !matches!(status, "success" | "");
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

/// Returns whether a call was cancelled. Its status rarely shows this: a cancelled shell command is stored as
/// a success, and only its display shows the cancellation.
pub(super) fn was_cancelled(status: &str, displayed: Option<&str>, error: Option<&str>) -> bool {
    status == "cancelled"
        || displayed.is_some_and(|d| d.trim() == "Command cancelled by user.")
        || error.is_some_and(|e| {
            e.starts_with("[Operation Cancelled]") || e.trim_end().ends_with("was canceled by the user.")
        })
}
