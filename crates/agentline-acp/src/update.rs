//! Events of a run as updates of ACP.

use agentline::{
    Event, ToolKind, ToolResult, ToolStatus, ToolUse,
    events::{Diff, ToolLocation},
};
use serde_json::{Value, json, value::RawValue};
use std::collections::HashMap;

/// Turns the events of one prompt into updates.
#[derive(Debug, Default)]
pub(crate) struct UpdateWriter {
    /// The output of running tools so far, because an update replaces the content of a call.
    outputs: HashMap<String, String>,
}

impl UpdateWriter {
    /// Returns the update for an event, if there is one.
    pub(crate) fn update(&mut self, event: &Event) -> Option<Value> {
        Some(match event {
            Event::Text { text } => chunk("agent_message_chunk", text),
            Event::Thinking { text } => chunk("agent_thought_chunk", text),
            Event::Content { block } => json!({"sessionUpdate": "agent_message_chunk", "content": block}),
            Event::ToolUse(tool) => tool_call(tool),
            Event::ToolOutput { tool_use_id, text } => self.tool_output(tool_use_id, text),
            Event::ToolResult(result) => self.tool_result(result),
            Event::Plan { entries } => json!({"sessionUpdate": "plan", "entries": plan_entries(entries)}),
            Event::Commands { commands } => {
                json!({"sessionUpdate": "available_commands_update", "availableCommands": commands})
            }
            Event::Usage(usage) => {
                let context = usage.context?;
                let size = context.size?;
                json!({"sessionUpdate": "usage_update", "used": context.used, "size": size})
            }
            _ => return None,
        })
    }

    fn tool_output(&mut self, id: &str, text: &str) -> Value {
        let output = self.outputs.entry(id.to_owned()).or_default();
        output.push_str(text);
        json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress",
            "content": [text_content(output)],
        })
    }

    fn tool_result(&mut self, result: &ToolResult) -> Value {
        let shown = self.outputs.remove(&result.tool_use_id);
        let status = if result.status == ToolStatus::Ok { "completed" } else { "failed" };
        let mut update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": result.tool_use_id, "status": status,
        });
        let text = result.content.clone().or(shown).or_else(|| result.reason.clone());
        let mut content = diffs(&result.diffs);
        content.extend(text.filter(|text| !text.is_empty()).map(|text| text_content(&text)));
        if !content.is_empty() {
            update["content"] = content.into();
        }
        if let Some(title) = &result.title {
            update["title"] = title.clone().into();
        }
        if let Some(raw) = &result.raw_output {
            update["rawOutput"] = parsed(raw);
        }
        update
    }
}

/// Returns the update for a piece of text.
pub(crate) fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

fn tool_call(tool: &ToolUse) -> Value {
    let mut call = json!({
        "sessionUpdate": "tool_call", "toolCallId": tool.id, "title": title(tool), "kind": kind_name(tool.kind),
        "status": "in_progress",
    });
    if let Some(input) = tool.raw_input.as_ref().or(tool.input.as_ref()) {
        call["rawInput"] = parsed(input);
    }
    let path = tool.path.iter().map(|path| json!({"path": path}));
    let locations: Vec<Value> = if tool.locations.is_empty() {
        path.collect()
    } else {
        tool.locations.iter().map(location).collect()
    };
    if !locations.is_empty() {
        call["locations"] = locations.into();
    }
    if !tool.diffs.is_empty() {
        call["content"] = diffs(&tool.diffs).into();
    }
    call
}

/// Returns the tool call of a permission request, with the change that it would make.
pub(crate) fn permission_call(request: &agentline::PermissionRequest) -> Value {
    let tool = if request.native_tool.is_empty() { &request.tool } else { &request.native_tool };
    let target = request.command.as_ref().or(request.paths.first());
    let title = match target {
        _ if !request.title.is_empty() => request.title.clone(),
        Some(target) => format!("{tool}: {target}"),
        None => tool.clone(),
    };
    let mut call = json!({
        "toolCallId": request.tool_use_id, "title": title, "kind": kind_name(request.kind), "status": "pending",
    });
    if let Some(input) = &request.input {
        call["rawInput"] = parsed(input);
    }
    if !request.paths.is_empty() {
        call["locations"] = request.paths.iter().map(|path| json!({"path": path})).collect();
    }
    if !request.diffs.is_empty() {
        call["content"] = diffs(&request.diffs).into();
    }
    call
}

fn title(tool: &ToolUse) -> String {
    let input = tool.input.as_ref().map(|input| parsed(input)).unwrap_or_default();
    let target = tool.path.as_deref().or_else(|| input["command"].as_str());
    match (&tool.title, target) {
        (Some(title), _) => title.clone(),
        (None, Some(target)) => format!("{}: {target}", tool.native_name),
        (None, None) => tool.native_name.clone(),
    }
}

fn kind_name(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Write | ToolKind::Edit => "edit",
        ToolKind::Shell => "execute",
        ToolKind::Read => "read",
        ToolKind::Search => "search",
        ToolKind::Web => "fetch",
        ToolKind::Agent => "think",
        _ => "other",
    }
}

fn text_content(text: &str) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": text}})
}

fn diffs(diffs: &[Diff]) -> Vec<Value> {
    let diff =
        |diff: &Diff| json!({"type": "diff", "path": diff.path, "oldText": diff.old, "newText": diff.new});
    diffs.iter().map(diff).collect()
}

fn location(location: &ToolLocation) -> Value {
    match location.line {
        Some(line) => json!({"path": location.path, "line": line}),
        None => json!({"path": location.path}),
    }
}

fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Returns the entries of a plan with the names of ACP. Agents name the text and the states in several ways.
fn plan_entries(entries: &RawValue) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(entries.get()).unwrap_or_default();
    all.iter().map(plan_entry).collect()
}

fn plan_entry(entry: &Value) -> Value {
    let text = ["content", "step", "text"].iter().find_map(|key| entry[*key].as_str()).unwrap_or_default();
    let status = match entry["status"].as_str().unwrap_or_default() {
        "in_progress" | "inProgress" => "in_progress",
        "completed" | "cancelled" => "completed",
        _ => "pending",
    };
    let priority = entry["priority"].as_str().filter(|known| ["high", "low"].contains(known));
    json!({"content": text, "status": status, "priority": priority.unwrap_or("medium")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_tool_is_repeated_because_updates_replace_content() {
        let mut writer = UpdateWriter::default();
        let output = |text: &str| Event::ToolOutput { tool_use_id: "a".into(), text: text.into() };
        writer.update(&output("one")).unwrap();
        let second = writer.update(&output("two")).unwrap();
        assert_eq!(second["content"][0]["content"]["text"], "onetwo");
        let result = Event::ToolResult(ToolResult::new("a", ToolStatus::Error, None));
        let last = writer.update(&result).unwrap();
        assert_eq!(
            (&last["status"], &last["content"][0]["content"]["text"]),
            (&json!("failed"), &json!("onetwo"))
        );
    }

    #[test]
    fn plans_of_all_agents_have_the_names_of_the_protocol() {
        let raw = RawValue::from_string(
            r#"[{"step":"a","status":"inProgress"},{"content":"b","priority":"high"}]"#.into(),
        );
        let plan = UpdateWriter::default().update(&Event::Plan { entries: raw.unwrap() }).unwrap();
        assert_eq!(
            plan["entries"][0],
            json!({"content": "a", "status": "in_progress", "priority": "medium"})
        );
        assert_eq!(plan["entries"][1], json!({"content": "b", "status": "pending", "priority": "high"}));
    }
}
