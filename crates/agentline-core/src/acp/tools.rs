//! The tool calls of a run: collected from partial updates, announced once and closed once.

use super::{
    blocks,
    profile::{AcpProfile, ToolEnd, UnreportedCall},
    tool_call::AcpToolCall,
};
use crate::{
    Event, RunId, Sink, ToolFact, ToolKind, ToolLocation, ToolResult, ToolStatus,
    wire::{List, Num, Str, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

wire! {
    /// A `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request.
    pub(crate) struct ToolWire<'a> {
        id: Str<'a> = "toolCallId", status: Option<Str<'a>> = "status", title: Option<Str<'a>> = "title",
        kind: Option<Str<'a>> = "kind", name: Option<Str<'a>> = "name", raw_input: Option<&'a RawValue> = "rawInput",
        raw_output: Option<&'a RawValue> = "rawOutput", content: Option<&'a RawValue> = "content",
        locations: Option<List<Location<'a>>> = "locations", meta: Option<&'a RawValue> = "_meta",
    }
}
wire! { pub(crate) struct Location<'a> { path: Str<'a> = "path", line: Num = "line" } }

impl AcpToolCall {
    /// Closes the call and drops its data.
    fn shut(&mut self) {
        let id = std::mem::take(&mut self.id);
        *self = Self { id, announced: true, closed: true, ..Self::default() };
    }

    /// Applies an update. Returns the output that it adds if the tool is running.
    fn take(&mut self, wire: ToolWire<'_>, is_running: bool, profile: &dyn AcpProfile) -> Option<String> {
        let mut added = None;
        if let Some(title) = wire.title.map(Str::own).filter(|title| !title.is_empty()) {
            if self.first_title.is_empty() {
                self.first_title.clone_from(&title);
            }
            self.title = title;
        }
        if let Some(kind) = wire.kind {
            self.kind = kind.own();
        }
        if let Some(name) = wire.name.map(Str::own).filter(|name| !name.is_empty()) {
            self.name = Some(name);
        }
        if let Some(raw) = wire.raw_input {
            self.raw_input = Some(raw.to_owned());
        }
        if let Some(raw) = wire.raw_output {
            self.raw_output = Some(raw.to_owned());
        }
        if let Some(content) = wire.content {
            let content = blocks::tool_content(content);
            let before = std::mem::replace(&mut self.text, content.text);
            // The first text may describe the call. Output replaces it.
            if is_running && (self.is_live || self.text != before) {
                let shown = if self.is_live { &*before } else { "" };
                added = Some(added_text(shown, &self.text).to_owned());
                self.is_live = true;
            }
            if !content.diffs.is_empty() {
                self.diffs = content.diffs;
            }
        }
        if let Some(locations) = wire.locations.filter(|l| !l.0.is_empty()) {
            self.locations =
                locations.0.into_iter().map(|l| ToolLocation::new(l.path.own(), l.line.0)).collect();
        }
        if let Some(meta) = wire.meta {
            if let Some(more) = profile.streamed(meta) {
                self.streamed.push_str(&more);
                added = Some(more);
            }
            self.meta = Some(meta.to_owned());
        }
        if let Some(status) = wire.status {
            self.pending = &*status == "pending";
            self.is_over = is_over(&status);
        }
        added.filter(|text| !text.is_empty())
    }
}

/// Returns what a longer output adds to an earlier one. An agent that limits the output it sends drops its start.
pub(crate) fn added_text<'a>(before: &str, now: &'a str) -> &'a str {
    /// How much of the end of the earlier output is searched for.
    const OVERLAP: usize = 200;
    if let Some(added) = now.strip_prefix(before) {
        return added;
    }
    let mut from = before.len().saturating_sub(OVERLAP);
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let end = &before[from..];
    now.rfind(end).map_or(now, |at| &now[at + end.len()..])
}

/// The calls of one run.
#[derive(Debug, Default)]
pub(crate) struct AcpToolCalls {
    calls: BTreeMap<String, AcpToolCall>,
    /// The number of calls without an id.
    nameless: u32,
    /// Whether the run is being cancelled, so that failed calls count as cancelled.
    pub(crate) stopping: bool,
    /// The number of calls that the host refused.
    refusals: u32,
}

impl AcpToolCalls {
    /// Applies an update to a call. Returns `false` if it refers to a call that is already closed.
    pub(crate) fn update(
        &mut self,
        run: RunId,
        begins: bool,
        wire: ToolWire<'_>,
        profile: &dyn AcpProfile,
        sink: &mut Sink,
    ) -> bool {
        let status = wire.status.as_ref().map(|s| s.to_string()).unwrap_or_default();
        let over = is_over(&status);
        let id = self.id_of(&wire, begins);
        if self.calls.get(&id).is_some_and(|call| call.closed) {
            // A new call may reuse the id of a closed one. Any other update to a closed call is late.
            if !begins {
                return false;
            }
            self.calls.remove(&id);
        }
        let call =
            self.calls.entry(id.clone()).or_insert_with(|| AcpToolCall { id, ..AcpToolCall::default() });
        let is_running = !begins && status == "in_progress";
        let output = call.take(wire, is_running, profile).filter(|_| !over);
        if over || !call.pending || profile.input_is_whole(call) {
            announce(run, call, profile, sink);
        }
        claim(run, call, sink);
        if let Some(text) = output.filter(|_| call.announced) {
            sink.event(run, Event::ToolOutput { tool_use_id: call.id.clone(), text });
        }
        if over {
            close(run, call, &status, self.stopping, profile, sink);
        }
        true
    }

    /// Applies a permission request for a call, and announces the call if that has not happened yet.
    pub(crate) fn permission_requested(
        &mut self,
        run: RunId,
        wire: ToolWire<'_>,
        profile: &dyn AcpProfile,
        sink: &mut Sink,
    ) -> &AcpToolCall {
        let id = self.id_of(&wire, false);
        let call = self.calls.entry(id.clone()).or_default();
        if call.closed {
            *call = AcpToolCall::default();
        }
        call.id = id;
        // The arguments in the request may differ from the announced ones. The announced ones are kept.
        let announced_input = call.raw_input.take().filter(|_| call.announced);
        let _ = call.take(wire, false, profile);
        announce(run, call, profile, sink);
        if announced_input.is_some() {
            call.raw_input = announced_input;
        }
        call
    }

    /// Marks a call as refused by the host. `at_once` closes it immediately, for agents that send no further update.
    pub(crate) fn refused(&mut self, run: RunId, id: &str, reason: String, at_once: bool, sink: &mut Sink) {
        self.refusals += 1;
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.closed) else { return };
        if at_once {
            call.shut();
            sink.event(run, ToolResult::refused(id, reason, None));
        } else {
            call.refused = Some(reason);
        }
    }

    /// Marks a call as allowed by the host, and closes it if it is only a question.
    pub(crate) fn allowed(&mut self, run: RunId, id: &str, profile: &dyn AcpProfile, sink: &mut Sink) {
        if let Some(call) = self.calls.get_mut(id).filter(|call| !call.closed)
            && profile.is_only_a_question(call)
        {
            call.shut();
            sink.event(run, ToolResult::new(id, ToolStatus::Ok, None));
        }
    }

    /// Returns the number of calls that the host refused.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// Ends the turn: announces calls that are still unannounced and closes refused ones that are still open.
    pub(crate) fn turn_over(&mut self, run: RunId, profile: &dyn AcpProfile, sink: &mut Sink) {
        for call in self.calls.values_mut().filter(|call| !call.closed) {
            announce(run, call, profile, sink);
            if let Some(reason) = call.refused.take() {
                call.shut();
                sink.event(run, ToolResult::refused(call.id.clone(), reason, None));
            }
        }
    }

    /// Returns whether there were calls and all of them have ended.
    pub(crate) fn are_over(&self) -> bool {
        !self.calls.is_empty() && self.calls.values().all(|call| call.closed)
    }

    /// Returns the ids of the open calls.
    pub(crate) fn open(&self) -> Vec<String> {
        self.calls.values().filter(|call| !call.closed).map(|call| call.id.clone()).collect()
    }

    /// Reports a call that is known only from the agent's session file, because the agent rejected it silently.
    pub(crate) fn unreported(
        &mut self,
        run: RunId,
        call: UnreportedCall,
        profile: &dyn AcpProfile,
        sink: &mut Sink,
    ) {
        let UnreportedCall { id, name, message } = call;
        if id.is_empty() || self.calls.contains_key(&id) {
            return;
        }
        let call = AcpToolCall { id: id.clone(), name: Some(name), text: message, ..AcpToolCall::default() };
        let call = self.calls.entry(id).or_insert(call);
        announce(run, call, profile, sink);
        close(run, call, "failed", self.stopping, profile, sink);
    }

    /// Returns the number of calls that were announced.
    pub(crate) fn count(&self) -> usize {
        self.calls.values().filter(|call| call.announced).count()
    }

    /// Returns the id of the call that an update refers to. If the agent sends no id, the generated one is `_tc_N`. A
    /// later update without an id refers to the last open call of this kind, preferably one with the same title.
    fn id_of(&mut self, wire: &ToolWire<'_>, begins: bool) -> String {
        if !wire.id.is_empty() {
            return wire.id.to_string();
        }
        let title = wire.title.as_deref().unwrap_or_default();
        let open = |n: &u32| self.calls.get(&synthetic(*n)).filter(|call| !call.closed);
        let mut numbers = (1..=self.nameless).rev().filter(|n| open(n).is_some());
        let same_title = numbers.clone().find(|n| open(n).is_some_and(|call| call.title == title));
        match (begins, same_title.or_else(|| numbers.next())) {
            (false, Some(n)) => synthetic(n),
            _ => {
                self.nameless += 1;
                synthetic(self.nameless)
            }
        }
    }
}

/// Returns whether a call with this status has ended.
fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "failed")
}

fn synthetic(n: u32) -> String {
    format!("_tc_{n}")
}

fn announce(run: RunId, call: &mut AcpToolCall, profile: &dyn AcpProfile, sink: &mut Sink) {
    if std::mem::replace(&mut call.announced, true) {
        return;
    }
    let mut tool = profile.tool(call);
    tool.title = Some(call.title.clone()).filter(|title| !title.is_empty());
    tool.locations.clone_from(&call.locations);
    tool.diffs.clone_from(&call.diffs);
    call.announced_as = (call.title.clone(), call.locations.clone());
    call.writes = matches!(tool.kind, ToolKind::Write | ToolKind::Edit);
    call.claimed = tool.path.iter().cloned().collect();
    sink.event(run, tool);
    claim(run, call, sink);
}

/// Reports files that a call changes and that were not reported yet.
fn claim(run: RunId, call: &mut AcpToolCall, sink: &mut Sink) {
    let diffs = call.diffs.iter().map(|diff| &diff.path);
    let news: Vec<String> =
        diffs.filter(|path| !path.is_empty() && !call.claimed.contains(path)).cloned().collect();
    if call.writes && !news.is_empty() {
        call.claimed.extend(news.iter().cloned());
        sink.tool_fact(run, ToolFact { paths: news, ..ToolFact::new(call.id.clone()) });
    }
}

fn close(
    run: RunId,
    call: &mut AcpToolCall,
    status: &str,
    stopping: bool,
    profile: &dyn AcpProfile,
    sink: &mut Sink,
) {
    let output = profile.output(call);
    let failed = status == "failed";
    let ended = profile.ended(call, failed, output.as_deref().unwrap_or_default());
    let (id, refused) = (call.id.clone(), call.refused.take());
    let mut result = match (refused, ended) {
        (None, ToolEnd::Failed | ToolEnd::Denied(_)) if stopping => {
            ToolResult::new(id, ToolStatus::Cancelled, output)
        }
        (Some(reason), ToolEnd::Failed | ToolEnd::Cancelled) => ToolResult::refused(id, reason, output),
        (_, ToolEnd::Ok) => ToolResult::new(id, ToolStatus::Ok, output),
        (_, ToolEnd::Failed) => ToolResult::new(id, ToolStatus::Error, output),
        (_, ToolEnd::Cancelled) => ToolResult::new(id, ToolStatus::Cancelled, output),
        (refusal, ToolEnd::Denied(reason)) => ToolResult::refused(id, refusal.unwrap_or(reason), output),
    };
    let (announced_title, announced_locations) = &call.announced_as;
    result.title = Some(std::mem::take(&mut call.title)).filter(|title| title != announced_title);
    if call.locations != *announced_locations {
        result.locations = std::mem::take(&mut call.locations);
    }
    result.raw_output = call.raw_output.take().filter(|raw| !is_text(raw, result.content.as_deref()));
    result.diffs = std::mem::take(&mut call.diffs);
    call.shut();
    sink.event(run, result);
}

/// Returns whether a raw output is only this text.
fn is_text(raw: &RawValue, text: Option<&str>) -> bool {
    let raw = raw.get();
    raw.starts_with('"') && serde_json::from_str::<Str<'_>>(raw).is_ok_and(|raw| Some(&*raw) == text)
}
