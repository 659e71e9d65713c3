//! Writes a session of another agent as one of Gemini CLI: a header, then one record for each message.

use super::{store, tools::TOOLS, user};
use crate::{
    Entry, EntryPart, Media, Millis, NewSession, NewSessionStorage, Role, SavedDiff, SavedSession, SavedTool,
    ToolStatus, TransplantContext, time,
    transplant::{TransplantSource, TransplantedTool},
};
use serde_json::{Value, json};

/// Returns the new session.
pub(super) fn write(session: &SavedSession, context: &TransplantContext<'_>) -> NewSession {
    let id = context.uuid(0);
    let home = user::cli_home(context.env, context.home);
    let (chats, marker) = store::chats_or_new(&home, context.project, context.fs);
    let pattern = store::spot(chats, &id);
    let file = pattern.folder.join(store::file_name(&pattern, context.now));
    // The CLI deletes sessions that were not updated for a month.
    let now = time::rfc3339_of(context.now);
    let mut header = json!({
        "sessionId": id, "projectHash": context.project_sha256, "startTime": now, "lastUpdated": now, "kind": "main",
        "directories": [context.project.to_string_lossy()],
    });
    if let Some(title) = &session.info.title {
        header["summary"] = title.clone().into();
    }
    let mut lines = vec![header];
    for (number, entry) in (1..).zip(&TransplantSource::of(session, context.now).entries) {
        let mut record = message(entry, context.now);
        record["id"] = context.uuid(number).into();
        lines.push(record);
    }
    let mut new = NewSession::lines(id, file, lines);
    if let NewSessionStorage::Lines { markers, .. } = &mut new.storage {
        markers.extend(marker);
    }
    new
}

fn message(entry: &Entry, now: Millis) -> Value {
    let timestamp = time::rfc3339_of(entry.timestamp.unwrap_or(now));
    match entry.role {
        Role::User => json!({"timestamp": timestamp, "type": "user", "content": pieces(entry)}),
        Role::Assistant => answer(entry, timestamp),
        _ => json!({"timestamp": timestamp, "type": "info", "content": entry.text()}),
    }
}

fn answer(entry: &Entry, timestamp: String) -> Value {
    let thoughts = entry.parts.iter().filter_map(|part| match part {
        EntryPart::Thinking { text, .. } => {
            Some(json!({"subject": "", "description": text, "timestamp": timestamp}))
        }
        _ => None,
    });
    let calls: Vec<Value> = entry.tools().map(|tool| call(tool, &timestamp)).collect();
    let mut record = json!({
        "timestamp": timestamp, "type": "gemini", "content": pieces(entry),
        "thoughts": thoughts.collect::<Value>(),
    });
    if let Some(model) = &entry.model {
        record["model"] = model.clone().into();
    }
    if !calls.is_empty() {
        record["toolCalls"] = calls.into();
    }
    record
}

/// Returns the text, files and calls of a message in their order. Calls are listed only if something follows them:
/// otherwise the CLI adds them itself.
fn pieces(entry: &Entry) -> Value {
    let is_call = |part: &EntryPart| matches!(part, EntryPart::Tool(_));
    let spoken: Vec<&EntryPart> =
        entry.parts.iter().filter(|part| !matches!(part, EntryPart::Thinking { .. })).collect();
    let first_call = spoken.iter().position(|part| is_call(part)).unwrap_or(spoken.len());
    let calls_are_last = spoken[first_call..].iter().all(|part| is_call(part));
    let pieces = spoken.into_iter().filter_map(|part| match part {
        EntryPart::Text { text } => Some(json!({"text": text})),
        EntryPart::Media(file) => Some(media(file)),
        EntryPart::Tool(tool) if !calls_are_last => {
            let call = TransplantedTool::of(&tool.call, &TOOLS);
            Some(json!({"functionCall": {"id": tool.call.id, "name": call.name, "args": call.input}}))
        }
        EntryPart::Tool(_) | EntryPart::Thinking { .. } => None,
    });
    pieces.collect()
}

fn call(tool: &SavedTool, timestamp: &str) -> Value {
    let native = TransplantedTool::of(&tool.call, &TOOLS);
    let mut call = json!({
        "id": tool.call.id, "name": native.name, "args": native.input, "timestamp": timestamp,
    });
    let Some(result) = &tool.result else { return call };
    let (status, key) = match result.status {
        ToolStatus::Ok => ("success", "output"),
        ToolStatus::Cancelled => ("cancelled", "error"),
        _ => ("error", "error"),
    };
    let mut response = json!({"id": tool.call.id, "name": native.name, "response": {key: result.content}});
    if !result.media.is_empty() {
        response["parts"] = result.media.iter().map(media).collect();
    }
    call["status"] = status.into();
    call["result"] = json!([{"functionResponse": response}]);
    if let Some(at) = result.timestamp {
        call["timestamp"] = time::rfc3339_of(at).into();
    }
    if let Some(diff) = &tool.diff {
        call["resultDisplay"] = displayed(diff);
    }
    call
}

/// Returns a change in the form in which the CLI displays it.
fn displayed(diff: &SavedDiff) -> Value {
    let name = diff.path.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut display = json!({"fileName": name, "filePath": diff.path});
    if let Some(unified) = &diff.unified {
        display["fileDiff"] = unified.clone().into();
    }
    if let Some(new) = &diff.new {
        display["newContent"] = new.clone().into();
        display["originalContent"] = json!(diff.old);
        display["isNewFile"] = diff.old.is_none().into();
    }
    display
}

fn media(file: &Media) -> Value {
    match (&file.data, &file.uri) {
        (Some(data), _) => json!({"inlineData": {"mimeType": file.mime_type, "data": data}}),
        (None, uri) => json!({"fileData": {"mimeType": file.mime_type, "fileUri": uri}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory_fs::MemoryFs, transplant::tests::in_context};
    use std::path::{Path, PathBuf};

    fn storage(fs: &MemoryFs) -> (PathBuf, Vec<(PathBuf, String)>) {
        let new = in_context(fs, |context| write(&SavedSession::default(), context));
        let NewSessionStorage::Lines { file, markers } = new.storage else { panic!("a file") };
        (file, markers)
    }

    #[test]
    fn session_of_a_known_project_is_written_next_to_the_others() {
        let fs = MemoryFs::default().plain("/h/.gemini/tmp/app-1/.project_root", "/srv/app");
        let (file, markers) = storage(&fs);
        assert_eq!(file, Path::new("/h/.gemini/tmp/app-1/chats/session-2026-11-15T04-31-30313233.jsonl"));
        assert!(markers.is_empty());
    }

    #[test]
    fn new_project_gets_a_directory_that_names_it() {
        let fs = MemoryFs::default().plain("/h/.gemini/tmp/app/.project_root", "/other/app");
        let (file, markers) = storage(&fs);
        assert!(file.starts_with("/h/.gemini/tmp/app-1/chats"), "{}", file.display());
        assert_eq!(markers, [("/h/.gemini/tmp/app-1/.project_root".into(), "/srv/app".into())]);
        let (file, _) = storage(&MemoryFs::default());
        assert!(file.starts_with("/h/.gemini/tmp/app/chats"), "{}", file.display());
    }
}
