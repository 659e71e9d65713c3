//! Writes a session of another agent as a rollout of Codex: the items of the model's input and output, with the events
//! that Codex displays.

use super::{store, tools::TOOLS};
use crate::{
    Entry, EntryPart, Media, Millis, NewSession, Role, SavedResult, SavedSession, SavedTool, ToolStatus,
    ToolUse, TransplantContext, time,
    transplant::{TransplantSource, TransplantedTool},
};
use serde_json::{Value, json};

/// Returns the new session.
pub(super) fn write(session: &SavedSession, context: &TransplantContext<'_>) -> NewSession {
    let id = context.timed_uuid(context.now);
    let now = time::rfc3339_of(context.now);
    let (day, clock) = (&now[..10], now[11..19].replace(':', "-"));
    let file = store::home(context.env, context.home)
        .join("sessions")
        .join(day.replace('-', "/"))
        .join(format!("rollout-{day}T{clock}-{id}.jsonl"));
    let mut writer = Writer { lines: Vec::new() };
    let meta = json!({
        "id": id, "timestamp": now, "cwd": context.project.to_string_lossy(), "originator": "agentline",
        "cli_version": super::INFO.pinned, "source": "cli",
    });
    writer.line("session_meta", context.now, meta);
    if let Some(title) = &session.info.title {
        writer.event(
            context.now,
            json!({"type": "thread_name_updated", "thread_id": id, "thread_name": title}),
        );
    }
    for entry in TransplantSource::of(session, context.now).entries {
        writer.entry(&entry, entry.timestamp.unwrap_or(context.now));
    }
    NewSession::lines(id, file, writer.lines)
}

struct Writer {
    lines: Vec<Value>,
}

impl Writer {
    fn line(&mut self, kind: &str, at: Millis, payload: Value) {
        self.lines.push(json!({"timestamp": time::rfc3339_of(at), "type": kind, "payload": payload}));
    }

    fn item(&mut self, at: Millis, payload: Value) {
        self.line("response_item", at, payload);
    }

    fn event(&mut self, at: Millis, payload: Value) {
        self.line("event_msg", at, payload);
    }

    fn entry(&mut self, entry: &Entry, at: Millis) {
        match entry.role {
            Role::User => {
                let content = prompt(entry);
                if content.is_empty() {
                    return;
                }
                self.item(at, json!({"type": "message", "role": "user", "content": content}));
                self.event(at, json!({"type": "user_message", "message": entry.text(), "images": []}));
            }
            Role::Assistant => self.answer(entry, at),
            _ => self.event(at, json!({"type": "error", "message": entry.text()})),
        }
    }

    /// Writes the text and calls of an answer, then the results. Reasoning is left out: the service accepts only
    /// reasoning that it has encrypted itself.
    fn answer(&mut self, entry: &Entry, at: Millis) {
        for part in &entry.parts {
            match part {
                EntryPart::Text { text } => {
                    let content = json!([{"type": "output_text", "text": text}]);
                    self.item(at, json!({"type": "message", "role": "assistant", "content": content}));
                    self.event(at, json!({"type": "agent_message", "message": text}));
                }
                EntryPart::Tool(tool) => self.item(at, call(&tool.call)),
                EntryPart::Thinking { .. } | EntryPart::Media(_) => {}
            }
        }
        for tool in entry.tools() {
            self.result(tool, at);
        }
        let ends_turn = entry.tools().next().is_none();
        if ends_turn {
            self.event(
                at,
                json!({"type": "task_complete", "turn_id": "", "last_agent_message": entry.text()}),
            );
        }
    }

    fn result(&mut self, tool: &SavedTool, at: Millis) {
        let Some(result) = &tool.result else { return };
        let at = result.timestamp.unwrap_or(at).max(at);
        let word = match result.status {
            ToolStatus::Denied => Some("declined"),
            ToolStatus::Cancelled => Some("interrupted"),
            _ => None,
        };
        if let Some(word) = word {
            self.event(at, json!({"type": "exec_command_end", "call_id": tool.call.id, "status": word}));
        }
        let kind =
            if patch(&tool.call).is_some() { "custom_tool_call_output" } else { "function_call_output" };
        self.item(at, json!({"type": kind, "call_id": tool.call.id, "output": output(result)}));
    }
}

fn prompt(entry: &Entry) -> Vec<Value> {
    let pieces = entry.parts.iter().filter_map(|part| match part {
        EntryPart::Text { text } => Some(json!({"type": "input_text", "text": text})),
        EntryPart::Media(file) => image(file),
        EntryPart::Thinking { .. } | EntryPart::Tool(_) => None,
    });
    pieces.collect()
}

/// Returns an image, or `None` for another file, which Codex cannot pass on.
fn image(file: &Media) -> Option<Value> {
    let url = match (&file.data, &file.uri) {
        (Some(data), _) => format!("data:{};base64,{data}", file.mime_type),
        (None, Some(uri)) if uri.starts_with("https://") => uri.clone(),
        _ => return None,
    };
    file.mime_type.starts_with("image/").then(|| json!({"type": "input_image", "image_url": url}))
}

/// Returns a call: files are changed by patches, and everything else is a function with arguments.
fn call(call: &ToolUse) -> Value {
    if let Some(patch) = patch(call) {
        return json!({
            "type": "custom_tool_call", "status": "completed", "call_id": call.id, "name": "apply_patch", "input": patch,
        });
    }
    let mut native = TransplantedTool::of(call, &TOOLS);
    if native.name == "exec_command"
        && let Some(arguments) = native.input.as_object_mut()
        && let Some(description) = arguments.remove("description")
    {
        arguments.insert("justification".into(), description);
    }
    json!({"type": "function_call", "name": native.name, "arguments": native.input.to_string(), "call_id": call.id})
}

/// Returns the patch that writes or edits a file, if the arguments can be read back from it.
fn patch(call: &ToolUse) -> Option<String> {
    let input: Value = serde_json::from_str(call.input.as_deref()?.get()).ok()?;
    let input = input.as_object()?;
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let path = text("file_path").filter(|path| path.trim() == *path && !path.contains('\n'))?;
    let lines =
        |sign: &str, text: &str| -> String { text.split('\n').flat_map(|line| [sign, line, "\n"]).collect() };
    let body = match &*call.name {
        "Write" if input.len() == 2 => {
            let content = text("content")?.strip_suffix('\n')?;
            format!("*** Add File: {path}\n{}", lines("+", content))
        }
        "Edit" => {
            let extra = |(name, value): (&String, &Value)| {
                !matches!(&**name, "file_path" | "old_string" | "new_string") && *value != false
            };
            if input.iter().any(extra) {
                return None;
            }
            let (old, new) = (text("old_string")?, text("new_string")?);
            format!("*** Update File: {path}\n@@\n{}{}", lines("-", old), lines("+", new))
        }
        _ => return None,
    };
    (!body.contains('\r')).then(|| format!("*** Begin Patch\n{body}*** End Patch"))
}

/// Returns the output of a tool with the header that Codex writes before it, which has the exit code.
fn output(result: &SavedResult) -> Value {
    let code = u8::from(result.status == ToolStatus::Error);
    let text = format!("Exit code: {code}\nWall time: 0 seconds\nOutput:\n{}", result.content);
    let images: Vec<Value> = result.media.iter().filter_map(image).collect();
    if images.is_empty() {
        return text.into();
    }
    std::iter::once(json!({"type": "input_text", "text": text})).chain(images).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolKind, memory_fs::MemoryFs, transplant::tests::in_context};
    use serde_json::value::to_raw_value;
    use std::path::Path;

    fn patch_of(name: &str, input: Value) -> Option<String> {
        let mut call = ToolUse::new("c", name, "native", ToolKind::Edit);
        call.input = to_raw_value(&input).ok();
        patch(&call)
    }

    #[test]
    fn file_is_named_by_time_and_id() {
        let new = in_context(&MemoryFs::default(), |context| write(&SavedSession::default(), context));
        let crate::NewSessionStorage::Lines { file, .. } = new.storage else { panic!("a file") };
        let name = format!("rollout-2026-11-15T04-31-09-{}.jsonl", new.id);
        assert_eq!(file, Path::new("/h/.codex/sessions/2026/11/15").join(name));
    }

    #[test]
    fn writes_and_edits_are_patches_if_they_can_be_read_back() {
        let add = patch_of("Write", json!({"file_path": "a.txt", "content": "x\ny\n"}));
        assert_eq!(add.as_deref(), Some("*** Begin Patch\n*** Add File: a.txt\n+x\n+y\n*** End Patch"));
        let edit = json!({"file_path": "a", "old_string": "x", "new_string": "y\nz", "replace_all": false});
        let edit = patch_of("Edit", edit);
        assert_eq!(
            edit.as_deref(),
            Some("*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n+z\n*** End Patch")
        );
        for (name, input) in [
            ("Write", json!({"file_path": "a", "content": "no line end"})),
            ("Write", json!({"file_path": "a", "content": "\r\n"})),
            ("Edit", json!({"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": true})),
            ("Edit", json!({"file_path": " a", "old_string": "x", "new_string": "y"})),
            ("Read", json!({"file_path": "a"})),
        ] {
            assert_eq!(patch_of(name, input.clone()), None, "{name} {input}");
        }
    }
}
