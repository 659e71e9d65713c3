//! Writes a session of another agent in the form of `opencode export`, which `opencode import` reads.

use super::{INFO, tools::TOOLS, workspace};
use crate::{
    Entry, EntryPart, Media, Millis, NewSession, NewSessionStorage, Problem, RawJson, Role, SavedDiff,
    SavedSession, SavedTool, ToolStatus, TransplantContext,
    transplant::{TransplantSource, TransplantedTool},
};
use serde_json::{Value, json};

/// The service and the model of a session whose source names none.
const UNKNOWN: &str = "unknown";

/// Variables for the import, which must not depend on the project's own settings.
const IMPORT_ENV: &[(&str, &str)] =
    &[("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_PROJECT_CONFIG", "1")];

/// Returns the new session.
///
/// # Errors
/// Refuses a project with plugins, because OpenCode would run them during the import.
pub(super) fn write(session: &SavedSession, context: &TransplantContext<'_>) -> Result<NewSession, Problem> {
    if let Some(plugin) = workspace::plugin_source(context.project, context.home, context.fs) {
        let message = format!("the import would run plugins of the project: {}", plugin.display());
        let hint = "move the plugins away, or choose another directory with `--cwd DIR`";
        return Err(Problem::new("--to", message).hint(hint));
    }
    let conversation = TransplantSource::of(session, context.now);
    let mut writer = Writer {
        context,
        session: id(context, "ses_", 0, context.now),
        model: session_model(session, context),
        parent: String::new(),
        numbers: 0,
        last: 0,
        messages: Vec::new(),
    };
    for entry in &conversation.entries {
        writer.entry(entry);
    }
    let title =
        session.info.title.clone().or_else(|| {
            conversation.first_prompt().map(|prompt| prompt.chars().take(80).collect::<String>())
        });
    let started = session.info.started.unwrap_or(context.now).min(context.now);
    let (provider, model) = &writer.model;
    let export = json!({
        "info": {
            "id": writer.session, "slug": format!("agentline-{}", &context.uuid(0)[..8]), "projectID": "global",
            "directory": context.project.to_string_lossy(),
            "title": title.unwrap_or_else(|| "Transplanted session".to_owned()),
            "agent": "build", "model": {"id": model, "providerID": provider},
            "version": INFO.pinned,
            "time": {"created": started, "updated": context.now},
        },
        "messages": writer.messages,
    });
    let env = IMPORT_ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(NewSession {
        id: writer.session,
        records: vec![RawJson::new(export.to_string())],
        storage: NewSessionStorage::Import { args: vec!["import".to_owned()], env },
    })
}

/// Returns the service and the model that continue the session: those of the caller, else those of the source.
fn session_model(session: &SavedSession, context: &TransplantContext<'_>) -> (String, String) {
    let source = context.provider.unwrap_or(UNKNOWN);
    let (provider, model) = match context.model {
        Some(model) => model.split_once('/').unwrap_or((source, model)),
        None => (source, session.info.model.as_deref().unwrap_or(UNKNOWN)),
    };
    (provider.to_owned(), model.to_owned())
}

/// Returns an id as OpenCode makes it: a prefix, the time in an ascending form, and random characters. Numbers keep
/// ids of the same time apart, and in order.
fn id(context: &TransplantContext<'_>, prefix: &str, number: u32, at: Millis) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let time = at.wrapping_mul(0x1000).wrapping_add(u64::from(number)) & 0xffff_ffff_ffff;
    // Sessions have descending ids, so that the newest comes first.
    let time = if prefix == "ses_" { !time & 0xffff_ffff_ffff } else { time };
    let bytes = context.id_bytes(number);
    let random = bytes[2..].iter().map(|byte| char::from(DIGITS[usize::from(*byte) % DIGITS.len()]));
    format!("{prefix}{time:012x}{}", random.collect::<String>())
}

struct Writer<'a> {
    context: &'a TransplantContext<'a>,
    session: String,
    /// The service and the model.
    model: (String, String),
    /// The id of the last prompt.
    parent: String,
    numbers: u32,
    /// The time of the last id. OpenCode sorts messages by their times and ids.
    last: Millis,
    messages: Vec<Value>,
}

impl Writer<'_> {
    fn next_id(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        id(self.context, prefix, self.numbers, self.last)
    }

    fn entry(&mut self, entry: &Entry) {
        // Every message gets a millisecond of its own, so that its id sorts after all ids of the previous one.
        self.last = entry.timestamp.unwrap_or(self.context.now).max(self.last + 1);
        let is_answer = match entry.role {
            Role::User => false,
            Role::Assistant => true,
            // There is no place for messages from the agent itself.
            _ => return,
        };
        let message = self.next_id("msg_");
        let mut parts: Vec<Value> = entry.parts.iter().filter_map(|part| self.part(part)).collect();
        for part in &mut parts {
            part["id"] = self.next_id("prt_").into();
            part["sessionID"] = self.session.clone().into();
            part["messageID"] = message.clone().into();
        }
        if parts.is_empty() {
            return;
        }
        let (provider, model) = &self.model;
        let mut info = if is_answer {
            let has_calls = entry.tools().next().is_some();
            let folder = self.context.project.to_string_lossy();
            json!({
                "role": "assistant", "parentID": self.parent, "mode": "build", "agent": "build",
                "path": {"cwd": folder, "root": folder},
                // The usage belongs to the session that the answer is from.
                "cost": 0, "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
                "providerID": provider, "modelID": entry.model.as_deref().unwrap_or(model),
                "time": {"created": self.last, "completed": self.last},
                "finish": if has_calls { "tool-calls" } else { "stop" },
            })
        } else {
            self.parent.clone_from(&message);
            json!({
                "role": "user", "agent": "build", "model": {"providerID": provider, "modelID": model},
                "time": {"created": self.last},
            })
        };
        info["id"] = message.into();
        info["sessionID"] = self.session.clone().into();
        self.messages.push(json!({"info": info, "parts": parts}));
    }

    fn part(&self, part: &EntryPart) -> Option<Value> {
        let time = json!({"start": self.last, "end": self.last});
        Some(match part {
            EntryPart::Text { text } => json!({"type": "text", "text": text}),
            EntryPart::Thinking { text, .. } => json!({"type": "reasoning", "text": text, "time": time}),
            EntryPart::Media(file) => media(file)?,
            EntryPart::Tool(tool) => self.tool(tool),
        })
    }

    fn tool(&self, tool: &SavedTool) -> Value {
        let call = TransplantedTool::of(&tool.call, &TOOLS);
        let mut state = json!({"input": call.input, "metadata": {}});
        if let Some(result) = &tool.result {
            let end = result.timestamp.unwrap_or(self.last).max(self.last);
            state["time"] = json!({"start": self.last, "end": end});
            if result.status == ToolStatus::Ok {
                state["status"] = "completed".into();
                state["output"] = result.content.clone().into();
                state["title"] = call.name.clone().into();
                let files: Vec<Value> = result.media.iter().filter_map(media).collect();
                if !files.is_empty() {
                    state["attachments"] = files
                        .into_iter()
                        .enumerate()
                        .map(|(at, file)| self.attached(tool, at, file))
                        .collect();
                }
            } else {
                state["status"] = "error".into();
                state["error"] = result.content.clone().into();
            }
            if result.status == ToolStatus::Cancelled {
                state["metadata"]["interrupted"] = true.into();
            }
        }
        if let Some(diff) = &tool.diff {
            add_diff(&mut state["metadata"], diff);
        }
        json!({"type": "tool", "tool": call.name, "callID": tool.call.id, "state": state})
    }

    /// Completes a file in a result, which is a part of its own.
    fn attached(&self, tool: &SavedTool, at: usize, mut file: Value) -> Value {
        file["id"] = format!("prt_{}_{at}", tool.call.id).into();
        file["sessionID"] = self.session.clone().into();
        file["messageID"] = self.parent.clone().into();
        file
    }
}

fn add_diff(metadata: &mut Value, diff: &SavedDiff) {
    if let Some(unified) = &diff.unified {
        metadata["diff"] = unified.clone().into();
    }
    let mut file = json!({"file": diff.path, "additions": 0, "deletions": 0});
    for (name, text) in [("before", &diff.old), ("after", &diff.new)] {
        if let Some(text) = text {
            file[name] = text.clone().into();
        }
    }
    metadata["filediff"] = file;
}

fn media(file: &Media) -> Option<Value> {
    let url = match (&file.data, &file.uri) {
        (Some(data), _) => format!("data:{};base64,{data}", file.mime_type),
        (None, uri) => uri.clone()?,
    };
    Some(json!({"type": "file", "mime": file.mime_type, "url": url}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory_fs::MemoryFs, transplant::tests::in_context};

    #[test]
    fn ids_of_messages_ascend_and_those_of_sessions_descend() {
        in_context(&MemoryFs::default(), |context| {
            let message = |number, at| id(context, "msg_", number, at);
            assert!(message(1, 5) < message(2, 5) && message(9, 5) < message(3, 6));
            assert!(id(context, "ses_", 0, 5) > id(context, "ses_", 0, 6));
            // The form of an id that OpenCode made at 1794717189163.
            assert!(message(1, 1_794_717_189_163).starts_with("msg_1dd7b042b001"));
            assert_eq!(message(1, 5).len(), "msg_1dd7b042b001LgpZ35NJsQ5tX5".len());
        });
    }

    #[test]
    fn model_is_that_of_the_caller_or_of_the_source() {
        let mut session = SavedSession::default();
        session.info.model = Some("m1".into());
        in_context(&MemoryFs::default(), |context| {
            let mut context = *context;
            let model = |context: &TransplantContext<'_>| session_model(&session, context);
            assert_eq!(model(&context), ("unknown".into(), "m1".into()));
            context.provider = Some("p1");
            assert_eq!(model(&context), ("p1".into(), "m1".into()));
            context.model = Some("p2/m2/x");
            assert_eq!(model(&context), ("p2".into(), "m2/x".into()));
        });
    }
}
