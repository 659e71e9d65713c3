//! Tool results: Codex stores the output for the model in one record and the status in another.

use crate::agents::codex::sessions::{
    patch,
    records::{CodexContent, CodexFileChange, CodexOutput},
};
use crate::{
    Media, SavedDiff, SavedResult, ToolStatus,
    wire::{Entries, List, Str},
};
use serde_json::value::RawValue;

/// Texts at the beginning of an output that report a denial.
const REFUSED: &[&str] = &[
    "rejected by user",
    "patch rejected",
    "Rejected(",
    "reject command",
    "unsupported call",
    "unsupported custom tool call",
];

/// Prefixes of an output that report an interruption.
const STOPPED: &[&str] = &["aborted", "interrupted"];

/// Texts at the beginning of an output that report a failure.
const FAILED: &[&str] = &["exec_command failed", "verification failed", "failed to parse function arguments"];

/// Prefixes of header lines before an output, such as its exit code.
const HEADERS: &[&str] = &[
    "Chunk ID: ",
    "Wall time: ",
    "Exit code: ",
    "Process exited with code ",
    "Process running with session ID ",
    "Original token count: ",
    "Total output lines: ",
];

/// Reads the output of a tool.
pub(super) fn result(output: Option<&RawValue>) -> SavedResult {
    let raw = output.map_or("null", RawValue::get);
    let mut result = SavedResult::new(ToolStatus::Ok, "");
    match raw.bytes().next() {
        Some(b'[') => {
            let pieces = serde_json::from_str::<List<CodexContent<'_>>>(raw).unwrap_or_default().0;
            let (texts, images): (Vec<_>, Vec<_>) =
                pieces.into_iter().partition(|piece| piece.image.is_empty());
            result.media = images.into_iter().map(|piece| image(&piece.image)).collect();
            let texts: Vec<&str> = texts.iter().map(|piece| &*piece.text).collect();
            read_text(&mut result, &texts.join("\n"));
        }
        Some(b'{') => read_object(&mut result, raw),
        _ => {
            let text = serde_json::from_str::<Str<'_>>(raw).unwrap_or_default();
            if text.starts_with("{\"output\"") {
                read_object(&mut result, &text)
            } else {
                read_text(&mut result, &text)
            }
        }
    }
    result
}

fn read_object(result: &mut SavedResult, raw: &str) {
    let Ok(output) = serde_json::from_str::<CodexOutput<'_>>(raw) else { return read_text(result, raw) };
    match output.output.or(output.content) {
        Some(text) => read_text(result, &text),
        None => result.raw = RawValue::from_string(raw.to_owned()).ok(),
    }
    let failed = output.metadata.exit_code.is_some_and(|code| &*code != "0");
    if result.status == ToolStatus::Ok && (failed || output.success.is_some_and(|success| !success.0)) {
        result.status = ToolStatus::Error;
    }
}

/// Reads a text that may begin with header lines.
fn read_text(result: &mut SavedResult, text: &str) {
    let mut exit_code = None;
    let mut rest = text;
    while let Some(line) =
        rest.lines().next().filter(|line| HEADERS.iter().any(|prefix| line.starts_with(prefix)))
    {
        let code =
            line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("Process exited with code "));
        exit_code = code.or(exit_code);
        rest = rest[line.len()..].trim_start_matches(['\r', '\n']);
    }
    let headed = rest.len() < text.len();
    rest = rest.strip_prefix("Output:\n").filter(|_| headed).unwrap_or(rest);
    rest.clone_into(&mut result.content);
    // A command may print anything. Only outputs without an exit code, which are written by Codex itself, can report a
    // denial.
    let head: String = rest.chars().take(200).collect();
    let contains_any = |table: &[&str]| table.iter().any(|phrase| head.contains(phrase));
    result.status = match exit_code {
        Some(code) if code.trim() != "0" => ToolStatus::Error,
        None if STOPPED.iter().any(|prefix| head.starts_with(prefix)) => ToolStatus::Cancelled,
        None if contains_any(REFUSED) => ToolStatus::Denied,
        None if contains_any(FAILED) => ToolStatus::Error,
        _ => ToolStatus::Ok,
    };
}

/// Returns the status of a failed call from its separate status record, or `None` if it did not fail.
pub(super) fn status(word: &str, exit_code: Option<&str>, success: Option<bool>) -> Option<ToolStatus> {
    match word {
        "declined" | "denied" => Some(ToolStatus::Denied),
        "interrupted" | "cancelled" | "aborted" => Some(ToolStatus::Cancelled),
        "failed" => Some(ToolStatus::Error),
        _ if exit_code.is_some_and(|code| code != "0") || success == Some(false) => Some(ToolStatus::Error),
        _ => None,
    }
}

/// Returns the file changes from the separate status record.
pub(super) fn diff(changes: Entries<'_, CodexFileChange<'_>>) -> Option<SavedDiff> {
    let diffs = changes.0.into_iter().map(|(path, change)| {
        let mut diff = SavedDiff { path: path.own(), ..SavedDiff::default() };
        let content = change.content.map(Str::own);
        match &*change.kind {
            "delete" => (diff.old, diff.new) = (content, Some(String::new())),
            _ => (diff.new, diff.unified) = (content, change.unified.map(Str::own)),
        }
        diff
    });
    let mut diffs: Vec<_> = diffs.collect();
    // The changes are unordered.
    diffs.sort_by(|a, b| a.path.cmp(&b.path));
    patch::together(diffs)
}

/// Reads an image by its URL, which may be a data URL.
pub(super) fn image(url: &str) -> Media {
    let within = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match within {
        Some((kind, data)) => Media::new(kind, Some(data.to_owned()), None),
        None => Media::new("image/*", None, Some(url.to_owned())),
    }
}
