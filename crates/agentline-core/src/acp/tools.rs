//! The tool calls of a run: gathered from the pieces in which they are told, begun once and closed once.

use super::{
    blocks,
    manners::{Ended, Manners, Unheard},
};
use crate::{
    Diff, Event, RunId, Say, ToolFact, ToolKind, ToolStatus,
    wire::{List, Str, wire},
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
wire! { pub(crate) struct Location<'a> { path: Str<'a> = "path" } }

/// All that is known of a call so far.
#[derive(Debug, Default)]
pub(crate) struct ToolCall {
    /// The agent's id of it, or ours where it has none.
    pub(crate) id: String,
    /// The agent's own name of the tool, where it says it.
    pub(crate) name: Option<String>,
    /// The title that it had first.
    pub(crate) first_title: String,
    /// The title that it has now.
    pub(crate) title: String,
    /// The protocol's kind of tool.
    pub(crate) kind: String,
    /// Its arguments.
    pub(crate) raw_input: Option<Box<RawValue>>,
    /// What it gave back, as the agent has it.
    pub(crate) raw_output: Option<Box<RawValue>>,
    /// What the agent adds to the protocol.
    pub(crate) meta: Option<Box<RawValue>>,
    /// The texts of its content.
    pub(crate) text: String,
    /// Output that came while it ran.
    pub(crate) streamed: String,
    /// The changes that it shows.
    pub(crate) diffs: Vec<Diff>,
    /// The files that it is about.
    pub(crate) locations: Vec<String>,
    /// It waits to begin.
    pending: bool,
    told: bool,
    closed: bool,
    /// It changes files, of which these have been told.
    writes: bool,
    claimed: Vec<String>,
    /// Why the host refused it.
    refused: Option<String>,
}

impl ToolCall {
    /// The file that it is about, as far as is known.
    pub(crate) fn first_path(&self) -> Option<String> {
        self.paths().into_iter().next()
    }

    /// The files that it is about: those whose change it shows, then those that it names.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for path in self.diffs.iter().map(|diff| &diff.path).chain(&self.locations) {
            if !path.is_empty() && !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        paths
    }

    /// It is over; what it was about is not needed any more.
    fn shut(&mut self) {
        let id = std::mem::take(&mut self.id);
        *self = Self { id, told: true, closed: true, ..Self::default() };
    }

    fn take(&mut self, wire: ToolWire<'_>, manners: &dyn Manners) {
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
            self.text = content.text;
            if !content.diffs.is_empty() {
                self.diffs = content.diffs;
            }
        }
        if let Some(locations) = wire.locations.filter(|l| !l.0.is_empty()) {
            self.locations = locations.0.into_iter().map(|l| l.path.own()).collect();
        }
        if let Some(meta) = wire.meta {
            if let Some(more) = manners.streamed(meta) {
                self.streamed.push_str(&more);
            }
            self.meta = Some(meta.to_owned());
        }
        if let Some(status) = wire.status {
            self.pending = &*status == "pending";
        }
    }
}

/// The calls of one run.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    calls: BTreeMap<String, ToolCall>,
    /// How many calls had no id.
    nameless: u32,
    /// The run is being stopped: what ends now ends because of that.
    pub(crate) stopping: bool,
    any_refused: bool,
}

impl Tools {
    /// Something is said about a call. Says whether it was news.
    pub(crate) fn update(
        &mut self,
        run: RunId,
        begins: bool,
        wire: ToolWire<'_>,
        manners: &dyn Manners,
        say: &mut Say,
    ) -> bool {
        let status = wire.status.as_ref().map(|s| s.to_string()).unwrap_or_default();
        let over = matches!(&*status, "completed" | "failed");
        let id = self.id_of(&wire, begins);
        if self.calls.get(&id).is_some_and(|call| call.closed) {
            // A second call may bear the id of a first one that is over; anything else about that one comes too late.
            if !begins {
                return false;
            }
            self.calls.remove(&id);
        }
        let call = self.calls.entry(id.clone()).or_insert_with(|| ToolCall { id, ..ToolCall::default() });
        call.take(wire, manners);
        if over || !call.pending || manners.input_is_whole(call) {
            announce(run, call, manners, say);
        }
        claim(run, call, say);
        if over {
            close(run, call, &status, self.stopping, manners, say);
        }
        true
    }

    /// The agent asks whether a call may run: it is told now at the latest.
    pub(crate) fn asked(
        &mut self,
        run: RunId,
        wire: ToolWire<'_>,
        manners: &dyn Manners,
        say: &mut Say,
    ) -> &ToolCall {
        let id = self.id_of(&wire, false);
        let call = self.calls.entry(id.clone()).or_default();
        if call.closed {
            *call = ToolCall::default();
        }
        call.id = id;
        // What is asked may have other arguments than what was announced; those that were announced stay.
        let told_input = call.raw_input.take().filter(|_| call.told);
        call.take(wire, manners);
        announce(run, call, manners, say);
        if told_input.is_some() {
            call.raw_input = told_input;
        }
        call
    }

    /// The host refused a call; `at_once` closes it where the agent says nothing more about it.
    pub(crate) fn refused(&mut self, run: RunId, id: &str, why: String, at_once: bool, say: &mut Say) {
        self.any_refused = true;
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.closed) else { return };
        if at_once {
            call.shut();
            say.event(run, Event::refused(id, why, None));
        } else {
            call.refused = Some(why);
        }
    }

    /// The host allowed a call. One that was only a question is over with that.
    pub(crate) fn allowed(&mut self, run: RunId, id: &str, manners: &dyn Manners, say: &mut Say) {
        if let Some(call) = self.calls.get_mut(id).filter(|call| !call.closed)
            && manners.is_only_a_question(call)
        {
            call.shut();
            say.event(run, Event::tool_result(id, ToolStatus::Ok, None));
        }
    }

    /// Whether the host refused any call.
    pub(crate) fn any_refused(&self) -> bool {
        self.any_refused
    }

    /// The turn is over: calls that were only hinted at are told, and refused ones that nobody closed are closed.
    pub(crate) fn turn_over(&mut self, run: RunId, manners: &dyn Manners, say: &mut Say) {
        for call in self.calls.values_mut().filter(|call| !call.closed) {
            announce(run, call, manners, say);
            if let Some(why) = call.refused.take() {
                call.shut();
                say.event(run, Event::refused(call.id.clone(), why, None));
            }
        }
    }

    /// The calls that are not over.
    pub(crate) fn open(&self) -> Vec<String> {
        self.calls.values().filter(|call| !call.closed).map(|call| call.id.clone()).collect()
    }

    /// A call that only the agent's own records tell of: it was turned away before anything was said about it.
    pub(crate) fn unheard(&mut self, run: RunId, call: Unheard, manners: &dyn Manners, say: &mut Say) {
        let Unheard { id, name, message } = call;
        if id.is_empty() || self.calls.contains_key(&id) {
            return;
        }
        let call = ToolCall { id: id.clone(), name: Some(name), text: message, ..ToolCall::default() };
        let call = self.calls.entry(id).or_insert(call);
        announce(run, call, manners, say);
        close(run, call, "failed", self.stopping, manners, say);
    }

    /// Whether any call was told.
    pub(crate) fn any(&self) -> bool {
        self.calls.values().any(|call| call.told)
    }

    /// The id of the call that is meant. Where the agent gives none, ours is `_tc_N`, and what follows without an id
    /// means the last of these that is open, first of all one with the same title.
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

fn synthetic(n: u32) -> String {
    format!("_tc_{n}")
}

fn announce(run: RunId, call: &mut ToolCall, manners: &dyn Manners, say: &mut Say) {
    if std::mem::replace(&mut call.told, true) {
        return;
    }
    let tool = manners.tool(call);
    call.writes = matches!(tool.kind, ToolKind::Write | ToolKind::Edit);
    call.claimed = tool.path.iter().cloned().collect();
    say.event(run, Event::ToolUse(Box::new(tool)));
    claim(run, call, say);
}

/// Tells of the files that a call changes and that were not told with it.
fn claim(run: RunId, call: &mut ToolCall, say: &mut Say) {
    let diffs = call.diffs.iter().map(|diff| &diff.path);
    let news: Vec<String> =
        diffs.filter(|path| !path.is_empty() && !call.claimed.contains(path)).cloned().collect();
    if call.writes && !news.is_empty() {
        call.claimed.extend(news.iter().cloned());
        say.tool_fact(run, ToolFact { paths: news, ..ToolFact::new(call.id.clone()) });
    }
}

fn close(
    run: RunId,
    call: &mut ToolCall,
    status: &str,
    stopping: bool,
    manners: &dyn Manners,
    say: &mut Say,
) {
    let output = manners.output(call);
    let failed = status == "failed";
    let ended = manners.ended(call, failed, output.as_deref().unwrap_or_default());
    let (id, refused) = (call.id.clone(), call.refused.take());
    call.shut();
    say.event(
        run,
        match (refused, ended) {
            (None, Ended::Failed | Ended::Denied(_)) if stopping => {
                Event::tool_result(id, ToolStatus::Cancelled, output)
            }
            (Some(why), Ended::Failed | Ended::Cancelled) => Event::refused(id, why, output),
            (_, Ended::Ok) => Event::tool_result(id, ToolStatus::Ok, output),
            (_, Ended::Failed) => Event::tool_result(id, ToolStatus::Error, output),
            (_, Ended::Cancelled) => Event::tool_result(id, ToolStatus::Cancelled, output),
            (why, Ended::Denied(reason)) => Event::refused(id, why.unwrap_or(reason), output),
        },
    );
}
