//! A call of a tool as Gemini's session files keep it, and what became of it.

use super::refusal;
use crate::{
    ToolStatus,
    wire::{List, Str, wire},
};
use serde_json::value::RawValue;

wire! { pub(super) struct Call<'a> {
    id: Str<'a> = "id", name: Str<'a> = "name", args: Option<&'a RawValue> = "args", status: Str<'a> = "status",
    timestamp: Str<'a> = "timestamp", display: Option<&'a RawValue> = "resultDisplay", result: Option<&'a RawValue> = "result",
} }
wire! { pub(super) struct Response<'a> { response: Option<FunctionResponse<'a>> = "functionResponse" } }
wire! { pub(super) struct FunctionResponse<'a> {
    id: Str<'a> = "id", name: Str<'a> = "name", response: Option<&'a RawValue> = "response", parts: Option<&'a RawValue> = "parts",
} }
wire! { pub(super) struct Body<'a> { output: Option<&'a RawValue> = "output", error: Option<&'a RawValue> = "error" } }

impl Call<'_> {
    /// What is displayed, where that is text.
    pub(super) fn displayed(&self) -> Option<Str<'_>> {
        self.display.filter(|d| d.get().starts_with('"')).and_then(|d| serde_json::from_str(d.get()).ok())
    }
}

impl<'a> FunctionResponse<'a> {
    pub(super) fn body(&self) -> Body<'a> {
        self.response.and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default()
    }
}

/// The responses in a list of parts, or in one part alone.
pub(super) fn responses(parts: &RawValue) -> Vec<FunctionResponse<'_>> {
    let list = match parts.get().as_bytes().first() {
        Some(b'[') => serde_json::from_str::<List<Response<'_>>>(parts.get()).unwrap_or_default().0,
        Some(b'{') => serde_json::from_str::<Response<'_>>(parts.get()).into_iter().collect(),
        _ => Vec::new(),
    };
    list.into_iter().filter_map(|part| part.response).collect()
}

/// The text of a value; `None` for what is no text.
pub(super) fn text(value: &RawValue) -> Option<String> {
    value.get().starts_with('"').then(|| serde_json::from_str::<Str<'_>>(value.get()).ok().map(Str::own))?
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
