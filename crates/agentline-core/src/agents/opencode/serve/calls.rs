//! The tool calls of a run: announced once with their arguments, and closed once.

use super::super::session_message::{self, PartWire};
use crate::{
    Diff, Event, RunId, Sink, ToolFact, ToolKind, ToolLocation, ToolResult, ToolStatus, ToolUse,
    acp::added_text,
    wire::{Flag, List, Str, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

wire! { struct Extra<'a> { tool: Str<'a> = "tool", state: ExtraState<'a> = "state" } }
wire! { struct ExtraState<'a> {
    title: Str<'a> = "title", input: EditInput<'a> = "input", metadata: ExtraMetadata<'a> = "metadata",
} }
wire! { struct ExtraMetadata<'a> {
    output: Str<'a> = "output", exists: Option<Flag> = "exists", files: List<ChangedFile<'a>> = "files",
} }
wire! { struct ChangedFile<'a> { path: Str<'a> = "filePath" } }
wire! { struct EditInput<'a> {
    path: Str<'a> = "filePath", content: Option<Str<'a>> = "content", old: Option<Str<'a>> = "oldString",
    new: Option<Str<'a>> = "newString",
} }

/// The calls of one run, by the ids of their parts. The ids of calls are the model's and may repeat.
#[derive(Debug, Default)]
pub(super) struct ServeCalls {
    calls: BTreeMap<String, ServeCall>,
}

/// One call.
#[derive(Debug, Default)]
struct ServeCall {
    /// The call as it was announced.
    announced: Option<ToolUse>,
    is_closed: bool,
    message: String,
    /// The output that was reported while the tool ran.
    output: String,
    /// Why the host refused the call.
    refused: Option<String>,
}

impl ServeCalls {
    /// Applies an update. `parent` is the call that started the sub-agent which makes this one. Returns the announced
    /// call if its arguments are complete.
    pub(super) fn update(
        &mut self,
        run: RunId,
        raw: &RawValue,
        message: &str,
        parent: Option<&str>,
        is_stopping: bool,
        sink: &mut Sink,
    ) -> Option<&ToolUse> {
        let part = serde_json::from_str::<PartWire<'_>>(raw.get()).unwrap_or_default();
        let extra = serde_json::from_str::<Extra<'_>>(raw.get()).unwrap_or_default();
        let (id, status) = (part.id.to_string(), part.state.status.to_string());
        let call = self.calls.entry(id).or_default();
        message.clone_into(&mut call.message);
        if call.is_closed || status == "pending" {
            return None;
        }
        let saved = session_message::tool(part);
        if call.announced.is_none() {
            let mut tool = saved.call;
            tool.parent_tool_use_id = parent.map(str::to_owned);
            tool.title = Some(extra.state.title.to_string()).filter(|title| !title.is_empty());
            tool.locations = tool.path.iter().map(|path| ToolLocation::new(path, None)).collect();
            tool.diffs = proposed(&extra.state.input);
            sink.event(run, tool.clone());
            call.announced = Some(tool);
        }
        let tool = call.announced.as_ref()?;
        let Some(result) = saved.result else {
            let added = added_text(&call.output, &extra.state.metadata.output);
            if !added.is_empty() {
                sink.event(run, Event::ToolOutput { tool_use_id: tool.id.clone(), text: added.to_owned() });
                call.output = extra.state.metadata.output.to_string();
            }
            return call.announced.as_ref();
        };
        call.is_closed = true;
        call.output = String::new();
        let refused = call.refused.take();
        let status = match (result.status, &refused) {
            (ToolStatus::Error | ToolStatus::Denied, None) if is_stopping => ToolStatus::Cancelled,
            (ToolStatus::Error | ToolStatus::Cancelled, Some(_)) => ToolStatus::Denied,
            (status, _) => status,
        };
        let content = Some(result.content);
        let mut ended = if status == ToolStatus::Denied {
            // A call that OpenCode refused by itself was not offered, or is against its rules.
            let offered = &*extra.tool != "invalid";
            let reason = refused.unwrap_or_else(|| if offered { "rule" } else { "not_offered" }.to_owned());
            ToolResult::refused(tool.id.clone(), reason, content)
        } else {
            ToolResult::new(tool.id.clone(), status, content)
        };
        let last = Some(extra.state.title.own()).filter(|title| !title.is_empty());
        ended.title = last.filter(|title| Some(title) != tool.title.as_ref());
        ended.raw_output = result.raw;
        if status == ToolStatus::Ok {
            ended.diffs = made(&extra.state.input, extra.state.metadata.exists);
        }
        let paths: Vec<String> =
            extra.state.metadata.files.0.into_iter().map(|file| file.path.own()).collect();
        if matches!(tool.kind, ToolKind::Write | ToolKind::Edit) && !paths.is_empty() {
            sink.tool_fact(run, ToolFact { paths, ..ToolFact::new(tool.id.clone()) });
        }
        sink.event(run, ended);
        call.announced.as_ref()
    }

    /// Returns the announced call with this id in this message.
    pub(super) fn announced(&self, message: &str, id: &str) -> Option<&ToolUse> {
        let calls = self.calls.values().filter(|call| call.message == message && !call.is_closed);
        calls.filter_map(|call| call.announced.as_ref()).find(|tool| tool.id == id)
    }

    /// Marks a call as refused by the host.
    pub(super) fn refuse(&mut self, message: &str, id: &str, reason: String) {
        let is_it = |call: &&mut ServeCall| {
            call.message == message && call.announced.as_ref().is_some_and(|tool| tool.id == id)
        };
        if let Some(call) = self.calls.values_mut().find(is_it) {
            call.refused = Some(reason);
        }
    }
}

/// Returns the change that a call proposes, as far as its arguments show it.
fn proposed(input: &EditInput<'_>) -> Vec<Diff> {
    let path = input.path.to_string();
    match (&input.old, &input.new, &input.content) {
        (Some(old), Some(new), _) => {
            vec![Diff {
                path,
                old: Some(old.to_string()).filter(|old| !old.is_empty()),
                new: new.to_string(),
            }]
        }
        // Whether the file exists is not known yet.
        (_, _, Some(_)) | (_, _, None) => Vec::new(),
    }
}

/// Returns the change that a call made. The previous content of a file that was overwritten is not reported.
fn made(input: &EditInput<'_>, exists: Option<Flag>) -> Vec<Diff> {
    match &input.content {
        Some(content) if exists == Some(Flag(false)) => {
            vec![Diff { path: input.path.to_string(), old: None, new: content.to_string() }]
        }
        Some(_) => Vec::new(),
        None => proposed(input),
    }
}
