//! Events of a run as updates of ACP.

use agentline::{
    Event, ToolKind, ToolResult, ToolStatus, ToolUse,
    events::{Diff, ToolLocation},
};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How often the output of a running tool is sent at most. Longer outputs are sent less often.
const OUTPUT_PAUSE: Duration = Duration::from_millis(100);
/// How many bytes of the output of a running tool are shown: the last ones.
const LONGEST_OUTPUT: usize = 64 << 10;
/// For how many bytes of output the pause is as long as [`OUTPUT_PAUSE`].
const SHORT_OUTPUT: usize = 8 << 10;

/// Turns the events of one prompt into updates.
#[derive(Debug, Default)]
pub(crate) struct UpdateWriter {
    /// The outputs of running tools, because an update replaces the content of a call.
    outputs: HashMap<String, RunningOutput>,
}

/// The output of a running tool.
#[derive(Debug, Default)]
struct RunningOutput {
    text: String,
    is_cut: bool,
    /// When the part that has not been sent can be sent.
    due: Option<Instant>,
    sent_at: Option<Instant>,
}

impl RunningOutput {
    /// Adds to the output. Returns whether it can be sent at once.
    fn push(&mut self, text: &str, now: Instant) -> bool {
        self.text.push_str(text);
        if self.text.len() > 2 * LONGEST_OUTPUT {
            let mut start = self.text.len() - LONGEST_OUTPUT;
            while !self.text.is_char_boundary(start) {
                start += 1;
            }
            self.text.drain(..start);
            self.is_cut = true;
        }
        let steps = u32::try_from(self.text.len() / SHORT_OUTPUT).unwrap_or(u32::MAX);
        let due = self.sent_at.map_or(now, |sent| sent + OUTPUT_PAUSE * (1 + steps));
        self.due = Some(due);
        due <= now
    }

    fn shown(&self) -> String {
        let mark = if self.is_cut { "[…]\n" } else { "" };
        format!("{mark}{}", self.text)
    }

    fn update(&mut self, id: &str, now: Instant) -> Value {
        (self.due, self.sent_at) = (None, Some(now));
        json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress",
            "content": [text_content(&self.shown())],
        })
    }
}

impl UpdateWriter {
    /// Returns the update for an event, if there is one.
    pub(crate) fn update(&mut self, event: &Event) -> Option<Value> {
        Some(match event {
            Event::Text { text } => chunk("agent_message_chunk", text),
            Event::Thinking { text } => chunk("agent_thought_chunk", text),
            Event::Content { block } => json!({"sessionUpdate": "agent_message_chunk", "content": block}),
            Event::ToolUse(tool) => tool_call(tool),
            Event::ToolOutput { tool_use_id, text } => {
                return self.tool_output(tool_use_id, text, Instant::now());
            }
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

    fn tool_output(&mut self, id: &str, text: &str, now: Instant) -> Option<Value> {
        let output = self.outputs.entry(id.to_owned()).or_default();
        output.push(text, now).then(|| output.update(id, now))
    }

    /// Returns when [`due`](Self::due) has an update.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.outputs.values().filter_map(|output| output.due).min()
    }

    /// Returns the update of a running tool whose output is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Value> {
        let (id, output) =
            self.outputs.iter_mut().find(|(_, output)| output.due.is_some_and(|due| due <= now))?;
        Some(output.update(id, now))
    }

    fn tool_result(&mut self, result: &ToolResult) -> Value {
        let shown = self.outputs.remove(&result.tool_use_id).map(|output| output.shown());
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
        let now = Instant::now();
        writer.tool_output("a", "one", now).unwrap();
        assert_eq!(writer.tool_output("a", "two", now), None);
        let due = writer.deadline().unwrap();
        assert_eq!(writer.due(now), None);
        let second = writer.due(due).unwrap();
        assert_eq!(second["content"][0]["content"]["text"], "onetwo");
        assert_eq!(writer.deadline(), None);
        let result = Event::ToolResult(ToolResult::new("a", ToolStatus::Error, None));
        let last = writer.update(&result).unwrap();
        assert_eq!(
            (&last["status"], &last["content"][0]["content"]["text"]),
            (&json!("failed"), &json!("onetwo"))
        );
    }

    #[test]
    fn a_long_output_is_sent_about_as_fast_as_it_is_written() {
        let (mut writer, mut now, mut sent, mut written) = (UpdateWriter::default(), Instant::now(), 0, 0);
        let line = format!("{}é\n", "x".repeat(100));
        for _ in 0..100_000 {
            now += Duration::from_millis(1);
            written += line.len();
            let updates = [writer.due(now), writer.tool_output("a", &line, now)];
            sent += updates.iter().flatten().map(|update| update.to_string().len()).sum::<usize>();
        }
        assert!(sent < 2 * written, "{sent} bytes for {written}");
        let result = Event::ToolResult(ToolResult::new("a", ToolStatus::Ok, None));
        let last = writer.update(&result).unwrap();
        let text = last["content"][0]["content"]["text"].as_str().unwrap();
        assert!(text.starts_with("[…]\n") && text.len() < 3 * LONGEST_OUTPUT, "{}", text.len());
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
