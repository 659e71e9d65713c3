//! What came of a tool: Claude Code tells it in a record of the user's, and beside it what only its own window shows.

use super::records::{Block, Content, Hunk, Outcome, Source};
use crate::{
    Media, SavedDiff, SavedResult, ToolStatus,
    wire::{Num, Str},
};
use serde_json::value::RawValue;

/// How a result begins that tells of a stop.
const STOPPED: &[&str] = &["[Request interrupted by user", "Interrupted by user"];

/// What a result says that tells of a refusal.
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

/// What stands beside the results in a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside<'a> {
    /// What the tool itself told.
    pub(super) outcome: Option<&'a Outcome<'a>>,
    /// The call was not let go on.
    pub(super) denied: bool,
    /// Somebody, or a rule, decided about it.
    pub(super) decided: bool,
}

/// Reads the result in a block, and what stands beside it in the record.
pub(super) fn result(block: &Block<'_>, beside: Beside<'_>) -> SavedResult {
    let mut result = SavedResult::new(ToolStatus::Ok, "");
    let raw = block.content.map_or("null", RawValue::get);
    match serde_json::from_str(raw).unwrap_or_default() {
        Content::None => {}
        Content::Text(text) => result.content = text.own(),
        Content::Blocks(blocks) => {
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
    result.status = status(block.is_error.0, &result.content, beside);
    result
}

fn block_raw(raw: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(raw.to_owned()).ok()
}

fn status(is_error: bool, content: &str, beside: Beside<'_>) -> ToolStatus {
    let head: String = content.chars().take(400).collect();
    match is_error {
        _ if STOPPED.iter().any(|words| head.starts_with(words)) => ToolStatus::Cancelled,
        _ if beside.outcome.is_some_and(|outcome| outcome.interrupted.0) => ToolStatus::Cancelled,
        // A stop is told in the words of a refusal, but nobody decided about the call.
        _ if beside.denied && !beside.decided => ToolStatus::Cancelled,
        _ if beside.denied => ToolStatus::Denied,
        true if REFUSED.iter().any(|words| head.contains(words)) => ToolStatus::Denied,
        true => ToolStatus::Error,
        false => ToolStatus::Ok,
    }
}

/// An image or a document, wherever its content is.
pub(super) fn media(kind: &str, source: Source<'_>) -> Option<Media> {
    let told = source.media_type.own();
    let mime_type = match (&*told, kind) {
        ("", "image") => "image/*".to_owned(),
        ("", _) => "application/octet-stream".to_owned(),
        _ => told,
    };
    let file = Media::new(mime_type, source.data.map(Str::own), source.url.map(Str::own));
    (file.data.is_some() || file.uri.is_some()).then_some(file)
}

/// The change of a file, as the record tells it beside the result.
pub(super) fn diff(outcome: Outcome<'_>) -> Option<SavedDiff> {
    let text = |raw: Option<&RawValue>| serde_json::from_str::<Str<'_>>(raw?.get()).ok().map(Str::own);
    if !outcome.notebook.is_empty() {
        let (old, new) = (text(outcome.notebook_old), text(outcome.notebook_new));
        return Some(SavedDiff { path: outcome.notebook.own(), old, new, unified: None });
    }
    let path = Some(outcome.path.own()).filter(|path| !path.is_empty())?;
    let hunks = outcome.patch.0;
    if !hunks.is_empty() {
        // The whole file is there as well, once more for each edit; the change is what people want to see.
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
