//! Writes a session of another agent as one of Claude Code: a line for each block, linked by the ids of their
//! predecessors.

use super::{store, tools::TOOLS};
use crate::{
    Entry, EntryPart, Media, Millis, NewSession, Problem, Role, SavedDiff, SavedSession, SavedTool,
    ToolStatus, TransplantContext, time,
    transplant::{TransplantSource, TransplantedTool},
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The maximum length of a project's directory name. Claude Code appends a hash of its own to longer ones.
const LONGEST_FOLDER: usize = 200;

/// The media types that the API accepts as images. Other types are sent as documents.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The media types that the API accepts as documents.
const DOCUMENTS: &[&str] = &["application/pdf", "text/plain"];

/// Returns the new session.
pub(super) fn write(session: &SavedSession, context: &TransplantContext<'_>) -> Result<NewSession, Problem> {
    let id = context.uuid(0);
    let folder = project_folder(context.project)?;
    let file =
        store::home(context.env, context.home).join("projects").join(folder).join(format!("{id}.jsonl"));
    let mut writer = Writer { context, id: &id, lines: Vec::new(), parent: None, numbers: 0 };
    if let Some(title) = &session.info.title {
        writer.lines.push(json!({"type": "ai-title", "aiTitle": title, "sessionId": id}));
    }
    for entry in TransplantSource::of(session, context.now).entries {
        writer.entry(&entry);
    }
    Ok(NewSession::lines(id.clone(), file, writer.lines))
}

/// Returns the name of a project's directory.
fn project_folder(project: &Path) -> Result<PathBuf, Problem> {
    let name = store::project_dir(project);
    if name.encode_utf16().count() > LONGEST_FOLDER {
        let message = format!("the path of the project is too long for Claude Code: {}", project.display());
        return Err(Problem::new("session", message).hint("move the project to a shorter path"));
    }
    Ok(name.into())
}

struct Writer<'a> {
    context: &'a TransplantContext<'a>,
    id: &'a str,
    lines: Vec<Value>,
    /// The id of the previous line of the conversation.
    parent: Option<String>,
    numbers: u32,
}

impl Writer<'_> {
    fn entry(&mut self, entry: &Entry) {
        let at = entry.timestamp.unwrap_or(self.context.now);
        match entry.role {
            Role::User => {
                let content = prompt(entry);
                let body = json!({"type": "user", "message": {"role": "user", "content": content}});
                if content != json!([]) {
                    self.line(at, body);
                }
            }
            Role::Assistant => self.answer(entry, at),
            _ => {
                let body = json!({"type": "system", "subtype": "informational", "content": entry.text(), "level": "info"});
                self.line(at, body);
            }
        }
    }

    /// Writes one line for each block, then one for each result. Reasoning is left out: the API accepts only reasoning
    /// with its own signature.
    fn answer(&mut self, entry: &Entry, at: Millis) {
        self.numbers += 1;
        let api_id = format!("msg_{}", self.context.uuid(self.numbers).replace('-', ""));
        let is_last = entry.tools().next().is_none();
        let stop = entry.stop_reason.as_deref().unwrap_or(if is_last { "end_turn" } else { "tool_use" });
        for part in &entry.parts {
            let block = match part {
                EntryPart::Text { text } => json!({"type": "text", "text": text}),
                EntryPart::Tool(tool) => {
                    let call = TransplantedTool::of(&tool.call, &TOOLS);
                    json!({"type": "tool_use", "id": tool.call.id, "name": call.name, "input": call.input})
                }
                EntryPart::Thinking { .. } | EntryPart::Media(_) => continue,
            };
            // Zero tokens: the usage belongs to the session that the answer is from.
            let message = json!({
                "id": api_id, "type": "message", "role": "assistant",
                "model": entry.model.as_deref().unwrap_or("unknown"),
                "content": [block], "stop_reason": stop, "stop_sequence": null,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            });
            self.line(at, json!({"type": "assistant", "message": message}));
        }
        entry.tools().for_each(|tool| self.result(tool, at));
    }

    fn result(&mut self, tool: &SavedTool, at: Millis) {
        let Some(result) = &tool.result else { return };
        let mut block = json!({"type": "tool_result", "tool_use_id": tool.call.id});
        let files: Vec<Value> = result.media.iter().filter_map(media).collect();
        block["content"] = if files.is_empty() {
            result.content.clone().into()
        } else {
            let text =
                Some(json!({"type": "text", "text": result.content})).filter(|_| !result.content.is_empty());
            text.into_iter().chain(files).collect()
        };
        if result.status.is_error() {
            block["is_error"] = true.into();
        }
        let mut body = json!({"type": "user", "message": {"role": "user", "content": [block]}});
        match result.status {
            ToolStatus::Denied => {
                body["toolDenialKind"] = "user-rejected".into();
                body["permissionDecision"] = json!({"decision": "reject", "source": "config"});
            }
            ToolStatus::Cancelled => body["toolDenialKind"] = "user-rejected".into(),
            _ => {}
        }
        if let Some(diff) = tool.diff.as_ref().and_then(structured) {
            body["toolUseResult"] = diff;
        }
        self.line(result.timestamp.unwrap_or(at).max(at), body);
    }

    /// Adds a line of the conversation with the fields that all lines have.
    fn line(&mut self, at: Millis, body: Value) {
        self.numbers += 1;
        let uuid = self.context.uuid(self.numbers);
        let mut line = Map::new();
        line.insert("parentUuid".into(), json!(self.parent));
        line.insert("isSidechain".into(), false.into());
        if let Value::Object(body) = body {
            line.extend(body);
        }
        line.insert("uuid".into(), uuid.clone().into());
        line.insert("timestamp".into(), time::rfc3339_of(at).into());
        line.insert("userType".into(), "external".into());
        line.insert("cwd".into(), self.context.project.to_string_lossy().into());
        line.insert("sessionId".into(), self.id.into());
        self.lines.push(Value::Object(line));
        self.parent = Some(uuid);
    }
}

/// Returns the content of a prompt: a plain text, or blocks if it has files.
fn prompt(entry: &Entry) -> Value {
    if let [EntryPart::Text { text }] = &*entry.parts {
        return text.clone().into();
    }
    let blocks = entry.parts.iter().filter_map(|part| match part {
        EntryPart::Text { text } => Some(json!({"type": "text", "text": text})),
        EntryPart::Media(file) => media(file),
        EntryPart::Thinking { .. } | EntryPart::Tool(_) => None,
    });
    blocks.collect()
}

/// Returns an image or a document, or `None` if the API does not accept it.
fn media(file: &Media) -> Option<Value> {
    let kind = if IMAGES.contains(&&*file.mime_type) || file.mime_type == "image/*" {
        "image"
    } else if DOCUMENTS.contains(&&*file.mime_type) {
        "document"
    } else {
        return None;
    };
    let source = match (&file.data, &file.uri) {
        (Some(data), _) if file.mime_type != "image/*" => {
            json!({"type": "base64", "media_type": file.mime_type, "data": data})
        }
        (None, Some(uri)) if uri.starts_with("https://") => {
            json!({"type": "url", "url": uri, "media_type": file.mime_type})
        }
        _ => return None,
    };
    Some(json!({"type": kind, "source": source}))
}

/// Returns a change in the form in which Claude Code displays it.
fn structured(diff: &SavedDiff) -> Option<Value> {
    if let Some(unified) = &diff.unified {
        let hunks = hunks(unified);
        return (!hunks.is_empty()).then(|| json!({"filePath": diff.path, "structuredPatch": hunks}));
    }
    let new = diff.new.as_ref()?;
    Some(json!({"filePath": diff.path, "content": new, "originalFile": diff.old, "structuredPatch": []}))
}

/// Parses the hunks of a unified diff. Lines before the first hunk are headers.
fn hunks(unified: &str) -> Vec<Value> {
    let mut hunks: Vec<Value> = Vec::new();
    for line in unified.lines() {
        if let Some(span) = line.strip_prefix("@@ -") {
            let span = span.split(" @@").next().unwrap_or(span);
            let Some((old, new)) = span.split_once(" +") else { continue };
            let pair = |text: &str| {
                let (start, lines) = text.split_once(',').unwrap_or((text, "1"));
                (start.parse::<u64>().unwrap_or(0), lines.parse::<u64>().unwrap_or(0))
            };
            let ((old_start, old_lines), (new_start, new_lines)) = (pair(old), pair(new));
            hunks.push(json!({
                "oldStart": old_start, "oldLines": old_lines, "newStart": new_start, "newLines": new_lines, "lines": [],
            }));
        } else if let Some(lines) = hunks.last_mut().and_then(|hunk| hunk["lines"].as_array_mut()) {
            lines.push(line.into());
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory_fs::MemoryFs, transplant::tests::in_context};

    #[test]
    fn project_directory_is_named_as_claude_code_names_it() {
        assert_eq!(project_folder(Path::new("/srv/my_app.v2")).unwrap(), PathBuf::from("-srv-my-app-v2"));
        assert_eq!(project_folder(Path::new("/größe")).unwrap(), PathBuf::from("-gr--e"));
        let problem = project_folder(&Path::new("/").join("x".repeat(200))).unwrap_err();
        assert!(problem.message.contains("too long"), "{problem}");
    }

    #[test]
    fn file_is_below_the_projects_directory() {
        in_context(&MemoryFs::default(), |context| {
            let new = write(&SavedSession::default(), context).unwrap();
            let crate::NewSessionStorage::Lines { file, markers } = new.storage else { panic!("a file") };
            assert_eq!(file, Path::new("/h/.claude/projects/-srv-app").join(format!("{}.jsonl", new.id)));
            assert!(markers.is_empty() && new.records.is_empty());
        });
    }

    #[test]
    fn hunks_are_parsed_from_a_unified_diff() {
        let parsed = hunks("--- a\n+++ b\n@@ -1,2 +1 @@\n x\n-y\n@@ -9 +8,2 @@ fn f()\n+z\n");
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0]["oldLines"], 2);
        assert_eq!(parsed[0]["lines"], json!([" x", "-y"]));
        assert_eq!((&parsed[1]["newStart"], &parsed[1]["newLines"]), (&json!(8), &json!(2)));
    }
}
