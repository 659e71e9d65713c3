//! Tool results: Claude Code stores the result in a user record, with a structured result for its own UI next to it.

use crate::agents::claude::sessions::records::{
    ClaudeBlock, ClaudeContent, ClaudeSource, ClaudeToolResult, Hunk,
};
use crate::{
    Media, SavedDiff, SavedResult, ToolStatus,
    wire::{Num, Str},
};
use serde_json::value::RawValue;

/// Prefixes of a result that reports an interruption.
const STOPPED: &[&str] = &["[Request interrupted by user", "Interrupted by user"];

/// Texts in a result that reports a denial.
const REFUSED: &[&str] = &[
    "The user doesn't want to proceed with this tool use.",
    "The user doesn't want to take this action right now.",
    "User rejected tool use",
    "Claude requested permissions to",
    "Permission to use ",
    "This command requires approval",
    "No such tool available",
    "has been denied",
    "was blocked. For security",
    "denied by the Claude Code auto mode classifier",
];

/// Fields of a record that describe its tool results.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::agents::claude) struct ResultContext<'a> {
    /// The structured result.
    pub(in crate::agents::claude) outcome: Option<&'a ClaudeToolResult<'a>>,
    /// Whether the call was denied.
    pub(in crate::agents::claude) denied: bool,
    /// Whether a user or a rule decided on the call.
    pub(in crate::agents::claude) decided: bool,
}

/// Reads the result in a block, using the other fields of its record.
pub(in crate::agents::claude) fn result(block: &ClaudeBlock<'_>, context: ResultContext<'_>) -> SavedResult {
    let mut result = SavedResult::new(ToolStatus::Ok, "");
    let raw = block.content.map_or("null", RawValue::get);
    match serde_json::from_str(raw).unwrap_or_default() {
        ClaudeContent::None => {}
        ClaudeContent::Text(text) => result.content = text.own(),
        ClaudeContent::Blocks(blocks) => {
            let mut texts = Vec::new();
            for block in blocks {
                match &*block.kind {
                    "text" => texts.push(block.text.own()),
                    kind @ ("image" | "document") => result.media.extend(media(kind, block.source)),
                    _ => result.raw = block_raw(raw),
                }
            }
            result.content = texts.join("\n");
        }
    }
    result.status = status(block.is_error.0, &result.content, context);
    result
}

fn block_raw(raw: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(raw.to_owned()).ok()
}

fn status(is_error: bool, content: &str, context: ResultContext<'_>) -> ToolStatus {
    let head: String = content.chars().take(400).collect();
    match is_error {
        _ if STOPPED.iter().any(|prefix| head.starts_with(prefix)) => ToolStatus::Cancelled,
        _ if context.outcome.is_some_and(|outcome| outcome.interrupted.0) => ToolStatus::Cancelled,
        // An interruption is stored as a denial without a decision.
        _ if context.denied && !context.decided => ToolStatus::Cancelled,
        _ if context.denied => ToolStatus::Denied,
        true if REFUSED.iter().any(|phrase| head.contains(phrase)) => ToolStatus::Denied,
        true => ToolStatus::Error,
        false => ToolStatus::Ok,
    }
}

/// Converts an image or a document, inline or by URL.
pub(super) fn media(kind: &str, source: ClaudeSource<'_>) -> Option<Media> {
    let media_type = source.media_type.own();
    let mime_type = match (&*media_type, kind) {
        ("", "image") => "image/*".to_owned(),
        ("", _) => "application/octet-stream".to_owned(),
        _ => media_type,
    };
    let file = Media::new(mime_type, source.data.map(Str::own), source.url.map(Str::own));
    (file.data.is_some() || file.uri.is_some()).then_some(file)
}

/// Returns the file change that the structured result describes.
pub(super) fn diff(outcome: ClaudeToolResult<'_>) -> Option<SavedDiff> {
    let text = |raw: Option<&RawValue>| serde_json::from_str::<Str<'_>>(raw?.get()).ok().map(Str::own);
    if !outcome.notebook.is_empty() {
        let (old, new) = (text(outcome.notebook_old), text(outcome.notebook_new));
        return Some(SavedDiff { path: outcome.notebook.own(), old, new, unified: None });
    }
    let path = Some(outcome.path.own()).filter(|path| !path.is_empty())?;
    let hunks = outcome.patch.0;
    if !hunks.is_empty() {
        // The record also has the whole file, once for each edit, but only the change is of interest.
        let unified = hunks.iter().map(hunk).collect();
        return Some(SavedDiff { path, unified: Some(unified), ..SavedDiff::default() });
    }
    let new = outcome.content.map(Str::own)?;
    Some(SavedDiff { path, old: text(outcome.original), new: Some(new), unified: None })
}

fn hunk(hunk: &Hunk<'_>) -> String {
    let n = |n: Num| n.0.unwrap_or(0);
    let (old, new) = ((n(hunk.old_start), n(hunk.old_lines)), (n(hunk.new_start), n(hunk.new_lines)));
    let mut text = format!("@@ -{},{} +{},{} @@\n", old.0, old.1, new.0, new.1);
    for line in &hunk.lines.0 {
        text.push_str(line);
        text.push('\n');
    }
    text
}
