//! Reads lines of the session file that Gemini CLI writes while it works: tokens, text and tool results.

use super::{
    call::{self, Call},
    parts::{self, Counts, PartList, Thought},
    shell_output, tools,
};
use crate::{
    CountScope, Diff, Event, RunId, Sink, TokenCount, ToolFact, ToolResult, ToolStatus, UsageSource,
    acp::profile::UnreportedCall,
    wire::{List, Num, Str, Tolerant as _, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

wire! { struct Rec<'a> {
    id: Str<'a> = "id", kind: Str<'a> = "type", content: Option<&'a RawValue> = "content", model: Option<Str<'a>> = "model",
    tokens: Option<Counts<'a>> = "tokens", calls: List<Call<'a>> = "toolCalls", thoughts: List<Thought<'a>> = "thoughts",
} }
wire! { struct Display<'a> { stat: DiffStat<'a> = "diffStat" } }
wire! { struct DiffStat<'a> { added: Num = "model_added_lines", removed: Num = "model_removed_lines" } }
wire! { struct Text<'a> { text: Str<'a> = "text" } }

/// The parts of a session file that are reported, depending on the surface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionFileDetail {
    /// The surface reports events; the file adds tokens and corrections.
    Corrections,
    /// The surface reports nothing until the end; all events are read from the file.
    Everything,
}

/// Reads the lines of one session.
#[derive(Debug)]
pub(super) struct SessionFileReader {
    significant_bytes: SessionFileDetail,
    reported: BTreeSet<String>,
    /// The calls whose diffs were reported.
    diffs_of: BTreeSet<String>,
    /// Whether any line of the file was read.
    pub(super) was_read: bool,
    /// The last text that was reported as an event.
    pub(super) last_text: String,
}

impl SessionFileReader {
    pub(super) fn new(significant_bytes: SessionFileDetail) -> Self {
        Self {
            significant_bytes,
            reported: BTreeSet::new(),
            diffs_of: BTreeSet::new(),
            was_read: false,
            last_text: String::new(),
        }
    }

    /// Returns whether any event was reported from the file.
    pub(super) fn has_reported(&self) -> bool {
        !self.reported.is_empty()
    }

    /// Processes one line. Unreadable lines are ignored, because the file is another program's and may be truncated.
    pub(super) fn line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        self.was_read = true;
        // Most lines only update a timestamp. The relevant records contain their kind.
        if !text.contains("\"gemini\"") {
            return;
        }
        let Ok(record) = serde_json::from_str::<Rec<'_>>(text) else { return };
        if &*record.kind != "gemini" {
            return;
        }
        if let Some(model) = &record.model {
            sink.model(run, &**model);
        }
        if let Some(t) = &record.tokens {
            let mut count = TokenCount::new(
                UsageSource::SessionFile,
                CountScope::Call(record.id.to_string()),
                t.tokens(),
            );
            count.model = record.model.as_ref().map(|m| m.to_string());
            sink.count(run, count);
        }
        let written = record.content.map(text_of).unwrap_or_default();
        if self.significant_bytes == SessionFileDetail::Everything {
            self.report(run, &record, &written, sink);
        }
        if !written.trim().is_empty() {
            sink.turn_text(run, written);
        }
        for call in &record.calls.0 {
            // The record is rewritten with every call.
            let is_new = call.display.is_some() && self.diffs_of.insert(call.id.to_string());
            if let Some(fact) = tool_fact(call, is_new) {
                sink.tool_fact(run, fact);
            }
        }
    }

    /// Reports a record as events, each part once even if the record is rewritten.
    fn report(&mut self, run: RunId, record: &Rec<'_>, written: &str, sink: &mut Sink) {
        if !record.thoughts.0.is_empty() && self.reported.insert(format!("thoughts {}", &*record.id)) {
            for thought in &record.thoughts.0 {
                sink.event(run, Event::Thinking { text: thought.text() });
            }
        }
        if !written.trim().is_empty() && self.reported.insert(format!("text {}", &*record.id)) {
            self.last_text = written.to_owned();
            sink.event(run, Event::Text { text: written.to_owned() });
        }
        // The calls of one answer belong to one turn, so all of them start before the first ends.
        let fresh: Vec<&Call<'_>> = record
            .calls
            .0
            .iter()
            .filter(|call| self.reported.insert(format!("call {}", &*call.id)))
            .collect();
        for call in &fresh {
            let tool = tools::TOOLS.tool_use(call.id.to_string(), &call.name, call.args);
            sink.event(run, tool);
        }
        for call in fresh {
            sink.event(run, result_of(call));
        }
    }
}

/// Returns the calls in this record that failed because the tool does not exist. No other record contains them.
pub(super) fn unknown_tool_calls(text: &str) -> Vec<UnreportedCall> {
    if !text.contains(NO_SUCH_TOOL) {
        return Vec::new();
    }
    let record = serde_json::from_str::<Rec<'_>>(text).unwrap_or_default();
    let content = record.content.filter(|_| &*record.kind == "user");
    let content =
        content.and_then(|c| serde_json::from_str::<PartList<'_>>(c.get()).ok()).unwrap_or_default();
    content
        .responses()
        .filter_map(|answer| {
            let message = answer.error().and_then(parts::text)?;
            let message = Some(message).filter(|e| e.trim_end().ends_with(NO_SUCH_TOOL))?;
            Some(UnreportedCall { id: answer.id.to_string(), name: answer.name.to_string(), message })
        })
        .collect()
}

/// The end of the message to the model about an unknown tool.
const NO_SUCH_TOOL: &str = "not found in registry.";

/// Returns the text of `content`, which is a string or a list of parts.
fn text_of(content: &RawValue) -> String {
    if content.get().starts_with('[') {
        let parts = serde_json::from_str::<List<Text<'_>>>(content.get()).unwrap_or_default();
        return parts.0.iter().map(|p| &*p.text).collect();
    }
    serde_json::from_str::<Str<'_>>(content.get()).map(Str::own).unwrap_or_default()
}

fn result_of(call: &Call<'_>) -> ToolResult {
    let (output, error) = first_response(call);
    let displayed = call.displayed();
    let (status, reason) =
        call::ending(&call.name, &call.status, displayed.as_deref(), output.as_deref(), error.as_deref());
    let shell = output.as_deref().and_then(|text| shell_output::read(&call.name, text, displayed.as_deref()));
    let failed = status == ToolStatus::Ok && shell.as_ref().is_some_and(|shell| shell.failed);
    let content = error.or(shell.map(|shell| shell.text)).or(output);
    let mut result = match reason {
        Some(reason) => ToolResult::refused(&*call.id, reason, content),
        None if failed => ToolResult::new(&*call.id, ToolStatus::Error, content),
        None => ToolResult::new(&*call.id, status, content),
    };
    result.diffs.extend(diff(call));
    result
}

/// Returns the output and the error of the first response, if they are text.
fn first_response(call: &Call<'_>) -> (Option<String>, Option<String>) {
    let first = call.result.as_ref().and_then(|content| content.responses().next());
    let text = |value: Option<&RawValue>| value.and_then(parts::text);
    first.map(|response| (text(response.output()), text(response.error()))).unwrap_or_default()
}

/// Returns the change to a file with its old and new text.
fn diff(call: &Call<'_>) -> Option<Diff> {
    let shown = super::sessions::result::diff(call)?;
    Some(Diff { path: shown.path, old: shown.old, new: shown.new? })
}

fn tool_fact(call: &Call<'_>, with_diff: bool) -> Option<ToolFact> {
    let display = call.display.map(RawValue::get).unwrap_or_default();
    let stat = serde_json::from_str::<Display<'_>>(display).map(|d| d.stat).unwrap_or_default();
    let cancelled =
        call::was_cancelled(&call.status, call.displayed().as_deref(), first_response(call).1.as_deref());
    (cancelled || stat.is_object()).then(|| ToolFact {
        cancelled,
        added: stat.added.0,
        removed: stat.removed.0,
        diffs: if with_diff { diff(call).into_iter().collect() } else { Vec::new() },
        ..ToolFact::new(&*call.id)
    })
}
