//! The state of one run: its facts, timeouts, limits, changed files and usage.

mod answer;
mod ending;
mod timeouts;

use crate::{
    Denial, DiskReport, Event, Limit, Millis, Notice, Origin, PermissionEvent, RunFacts, RunId, StopReason,
    ToolFact, ToolStatus, ToolUse, TurnSpec, UsageTracker, change_tracker::ChangeTracker,
    redact::StreamRedactor,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The stage of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RunStage {
    /// The agent has sent nothing yet.
    Starting,
    /// The agent has started.
    Running,
    /// The agent was asked to stop and has until this time.
    Stopping(Millis),
    /// The agent reported the end of its turn at this time.
    Ended(Millis),
    /// The host validates the answer.
    Validating,
    /// The inspection of the workspace began at this time.
    CollectingChanges(Millis),
    /// The run is over.
    Over,
}

/// The maximum number of warnings in an outcome. All of them are also events.
const MOST_WARNINGS: usize = 100;
/// The number of bytes of stderr that an outcome keeps.
const STDERR_TAIL: usize = 8192;
/// The number of bytes of unreadable standard output that an outcome keeps.
const STDOUT_TAIL: usize = 2048;

/// The number of unreadable lines that their warning quotes, and of characters of each.
const SAMPLES: usize = 3;
const SAMPLE_LENGTH: usize = 50;

/// The time, origin and line number of an input.
pub(crate) type Arrival = (Millis, Origin, Option<u64>);

/// The number of events that wait for the start of their run. With more, the run starts without the agent's report.
const MAX_EARLY_EVENTS: usize = 100;

/// An output that is held until it is known whether the text before it starts a secret.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// A piece of text or thought, with its redacted form once that is known.
    Piece { is_thought: bool, arrival: Arrival, shown: Option<String> },
    /// An event that does not end the text.
    Event(Box<Event>, Arrival),
}

/// An open tool call: its names, for later events about it, and its output while it runs.
#[derive(Debug, Default)]
struct OpenTool {
    name: String,
    native: String,
    output: StreamRedactor,
}

#[derive(Debug)]
pub(crate) struct RunState {
    pub(crate) id: RunId,
    pub(crate) spec: TurnSpec,
    pub(crate) stage: RunStage,
    pub(crate) facts: RunFacts,
    pub(crate) usage: UsageTracker,
    pub(crate) changes: ChangeTracker,
    pub(crate) text_redactor: StreamRedactor,
    pub(crate) thought_redactor: StreamRedactor,
    /// Held outputs and everything after them, in the order in which they are emitted.
    pub(crate) waiting: VecDeque<Waiting>,
    /// When the last held piece of text arrived. `None` if no text is held, or once the part of it that cannot belong to
    /// a secret has been shown.
    pub(crate) buffered_since: Option<Millis>,
    /// Redacts the texts of all turns as the agent recorded them.
    pub(crate) recorded_text: StreamRedactor,
    /// Events that arrived before the start of the run.
    pub(crate) early: Vec<(Event, Arrival)>,
    pub(crate) requests: BTreeSet<crate::HostRequestId>,
    pub(crate) session: Option<String>,
    pub(crate) disk: Option<DiskReport>,
    pub(crate) value: Option<Box<serde_json::value::RawValue>>,
    /// Whether the agent reports nothing before its end.
    pub(crate) silent: bool,
    /// Whether the run ends without waiting for further output after its answer.
    pub(crate) skip_quiet_period: bool,
    /// Whether the caller cancelled the run while the workspace was inspected.
    pub(crate) cancelled_while_collecting: bool,
    started_at: Millis,
    touched: Millis,
    /// The time spent waiting for the host, which does not count towards the agent's timeouts.
    waited: Millis,
    asked_at: Option<Millis>,
    retry_since: Option<Millis>,
    open: BTreeMap<String, OpenTool>,
    denied: Vec<Denial>,
    model: Option<String>,
    /// The usage that was last shown as an event.
    pub(crate) shown_usage: Option<crate::Usage>,
    /// Whether a count arrived that is not shown yet.
    pub(crate) has_new_count: bool,
    /// The cost that the agent reported.
    charged: Option<f64>,
    /// The cost that the agent's session file has.
    pub(crate) recorded_cost: f64,
    text: String,
    /// The text of the last turn as the agent recorded it.
    recorded: Option<String>,
    tool_calls: u32,
    /// The answers of the model that are certain: each begins with text or reasoning, or with a call on a surface that
    /// reports all calls of an answer before their results.
    turns: u32,
    /// Calls after a result that may be a new answer, or the next call of the same one.
    possible_turns: u32,
    /// Whether the session file, which records each answer, is being followed.
    follows_session: bool,
    /// Whether the agent may carry out the calls of one answer one after the other, as live agents do.
    pub(crate) calls_interleave: bool,
    turn_is_over: bool,
    turn_has_text: bool,
    /// Whether the agent is about to send another request.
    expects_request: bool,
    started: bool,
    seq: u32,
    first: Option<Millis>,
    unreadable: u32,
    /// The beginnings of the first unreadable lines.
    unreadable_samples: Vec<String>,
    last_unreadable: Option<(Origin, Option<u64>)>,
    warnings: Vec<Notice>,
    stderr: String,
    /// The last lines of standard output that could not be read.
    stdout: String,
    last: LastActivity,
}

/// The last activity, for the message of an expired timeout.
#[derive(Debug, Default)]
struct LastActivity {
    kind: &'static str,
    tool: String,
    at: Millis,
}

impl RunState {
    pub(crate) fn new(id: RunId, spec: TurnSpec, at: Millis) -> Self {
        let mut usage = UsageTracker::default();
        usage.start_from(spec.before);
        let changes = ChangeTracker::new(spec.diffs);
        Self {
            id,
            stage: RunStage::Starting,
            // Such a run only opens a session, so it needs no answer.
            facts: RunFacts { answer: spec.only_open, ..RunFacts::default() },
            spec,
            usage,
            changes,
            text_redactor: StreamRedactor::default(),
            thought_redactor: StreamRedactor::default(),
            waiting: VecDeque::new(),
            buffered_since: None,
            recorded_text: StreamRedactor::default(),
            early: Vec::new(),
            requests: BTreeSet::new(),
            session: None,
            disk: None,
            value: None,
            silent: false,
            skip_quiet_period: false,
            cancelled_while_collecting: false,
            started_at: at,
            touched: at,
            waited: 0,
            asked_at: None,
            retry_since: None,
            open: BTreeMap::new(),
            denied: Vec::new(),
            model: None,
            shown_usage: None,
            has_new_count: false,
            charged: None,
            recorded_cost: 0.0,
            text: String::new(),
            recorded: None,
            tool_calls: 0,
            turns: 0,
            possible_turns: 0,
            follows_session: false,
            calls_interleave: false,
            turn_is_over: true,
            turn_has_text: false,
            expects_request: false,
            started: false,
            seq: 0,
            first: None,
            unreadable: 0,
            unreadable_samples: Vec::new(),
            last_unreadable: None,
            warnings: Vec::new(),
            stderr: String::new(),
            stdout: String::new(),
            last: LastActivity::default(),
        }
    }

    pub(crate) fn touch(&mut self, at: Millis) {
        self.touched = at;
    }

    /// Returns whether the agent is working and was not asked to stop.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.stage, RunStage::Starting | RunStage::Running)
    }

    /// Returns whether the run ends with the process of the agent.
    pub(crate) fn needs_process(&self) -> bool {
        !matches!(self.stage, RunStage::CollectingChanges(_) | RunStage::Over)
    }

    /// Returns whether the agent ended its turn successfully and the host has yet to validate the answer.
    pub(crate) fn needs_validation(&self) -> bool {
        self.spec.validate && self.facts.stop.is_none() && self.facts.end.as_ref().is_some_and(|end| end.ok)
    }

    /// Continues the run after the host re-prompts the agent.
    pub(crate) fn resume(&mut self, at: Millis) {
        self.facts.end = None;
        self.turn_is_over = true;
        self.value = None;
        self.stage = RunStage::Running;
        self.touched = at;
    }

    /// Ends the run with an answer that the host accepts.
    pub(crate) fn accept(&mut self, value: Option<&str>, at: Millis) {
        self.spec.validate = false;
        // The agent was silent long enough before its answer was validated.
        self.skip_quiet_period = true;
        self.stage = RunStage::Ended(at);
        if let Some(value) = value.and_then(|v| serde_json::value::RawValue::from_string(v.to_owned()).ok()) {
            self.value = Some(value);
            self.facts.answer = true;
            self.facts.fits_schema = Some(true);
        }
    }

    /// Ends the run with an answer that the host rejects.
    pub(crate) fn reject(&mut self, failure: crate::Failure, at: Millis) {
        self.spec.validate = false;
        self.stage = RunStage::Ended(at);
        self.facts.end = Some(crate::TurnEnd::failed(Some(failure)));
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn is_open(&self, tool: &str) -> bool {
        self.open.contains_key(tool)
    }

    /// Records that the run has started without a report of the agent, and returns the number and time of the event.
    pub(crate) fn start(&mut self, at: Millis) -> (u32, Millis) {
        self.started = true;
        self.seq += 1;
        (self.seq, at.saturating_sub(self.started_at))
    }

    /// Returns whether another event may be kept until the run has started.
    pub(crate) fn may_hold_back(&self) -> bool {
        self.early.len() < MAX_EARLY_EVENTS
    }

    /// Keeps an event until the run has started.
    pub(crate) fn hold_back(&mut self, event: Event, arrival: Arrival) {
        match event {
            Event::Agent { .. } => {
                self.touched = arrival.0;
                if self.stage == RunStage::Starting {
                    self.stage = RunStage::Running;
                }
            }
            Event::Unreadable { .. } if arrival.1 != Origin::Stderr => self.touched = arrival.0,
            _ => {}
        }
        self.early.push((event, arrival));
    }

    /// Returns the redactor for the output of an open call.
    pub(crate) fn output_redactor(&mut self, tool: &str) -> Option<&mut StreamRedactor> {
        Some(&mut self.open.get_mut(tool)?.output)
    }

    pub(crate) fn open_tools(&self) -> Vec<String> {
        self.open.keys().cloned().collect()
    }

    /// Records one event and returns its number and time.
    pub(crate) fn note(&mut self, event: &Event, at: Millis) -> (u32, Millis) {
        self.seq += 1;
        let since = at.saturating_sub(self.started_at);
        if !matches!(event, Event::Warning { .. } | Event::Unreadable { .. } | Event::FileChange { .. }) {
            self.first.get_or_insert(since);
            self.facts.has_output = true;
            if self.stage == RunStage::Starting {
                self.stage = RunStage::Running;
            }
        }
        match event {
            Event::Text { text } => self.note_text(text, at),
            Event::Thinking { .. } => {
                self.begin_turn();
                self.progress("thinking", at);
            }
            Event::ToolUse(tool) => self.note_tool(tool, at),
            Event::ToolOutput { .. } => self.progress("tool_output", at),
            Event::ToolResult(result) => {
                self.progress("tool_result", at);
                self.turn_is_over = true;
                let id = &result.tool_use_id;
                self.changes.result(id, result.status, &result.diffs);
                let tool = self.open.remove(id).map(|tool| (tool.name, tool.native));
                let tool = tool.unwrap_or_default();
                if result.status == ToolStatus::Denied {
                    let reason = result.reason.clone().or_else(|| result.content.clone()).unwrap_or_default();
                    self.deny(id, tool, reason);
                }
            }
            Event::Permission(permission) => {
                self.progress("permission", at);
                if permission.decision == "deny" {
                    let PermissionEvent { tool_use_id, tool: name, reason, rule, .. } = permission;
                    let tool = self.open.get(tool_use_id).map(|t| (t.name.clone(), t.native.clone()));
                    let tool = tool.unwrap_or_else(|| (name.clone(), String::new()));
                    let reason = reason.clone().unwrap_or_default();
                    let reason =
                        rule.as_ref().map_or_else(|| reason.clone(), |rule| format!("{reason}: {rule}"));
                    self.deny(tool_use_id, tool, reason);
                }
            }
            Event::Warning { code, message } => {
                // Whether a run is retried depends on this one.
                if self.warnings.len() < MOST_WARNINGS || code == "workspace_not_compared" {
                    self.warnings.push(Notice::new(code.clone(), message.clone()));
                }
            }
            Event::Unreadable { .. }
            | Event::Usage(_)
            | Event::FileChange { .. }
            | Event::Retry { .. }
            | Event::Outcome { .. } => {}
            Event::Started(_) => {
                self.started = true;
                self.progress("started", at);
            }
            Event::Content { .. } => {
                self.begin_turn();
                self.progress("content", at);
                self.facts.answer = true;
            }
            Event::Plan { .. } => self.progress("agent", at),
            // These say nothing about the model, so a request that the service refused has not succeeded.
            Event::Agent { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. } => self.activity("agent", at),
        }
        (self.seq, since)
    }

    /// Counts an unreadable line, once even if it is reported in several pieces, and keeps its text.
    pub(crate) fn note_unreadable(&mut self, text: &str, from: Origin, line: Option<u64>) {
        if from == Origin::Stdout {
            keep_tail(&mut self.stdout, text, STDOUT_TAIL);
        }
        if self.unreadable_samples.len() < SAMPLES {
            self.unreadable_samples.push(text.chars().take(SAMPLE_LENGTH).collect());
        }
        if line.is_none() || self.last_unreadable.replace((from, line)) != Some((from, line)) {
            self.unreadable += 1;
        }
    }

    fn note_tool(&mut self, tool: &ToolUse, at: Millis) {
        if self.calls_interleave && self.turns > 0 && self.turn_is_over {
            // While a call is open, the model has not seen all results, so this call belongs to the same answer.
            if self.open.is_empty() {
                self.turn_is_over = false;
                self.turn_has_text = false;
                self.expects_request = false;
                self.possible_turns += 1;
            }
        } else {
            self.begin_turn();
        }
        self.progress("tool_use", at);
        self.last.tool.clone_from(&tool.native_name);
        self.tool_calls += 1;
        let (name, native) = (tool.name.clone(), tool.native_name.clone());
        let open = OpenTool { name, native, output: StreamRedactor::default() };
        self.open.insert(tool.id.clone(), open);
        self.changes.used(tool);
    }

    pub(crate) fn begin_turn(&mut self) {
        if std::mem::take(&mut self.turn_is_over) {
            self.turns += 1;
            self.turn_has_text = false;
            self.expects_request = false;
        }
    }

    /// Records that the agent is about to send another request, unless the run has its value.
    pub(crate) fn expect_request(&mut self) {
        self.expects_request = self.value.is_none();
    }

    /// Records that the lines of the session file, with the tokens of each answer, will arrive.
    pub(crate) fn follow_session(&mut self) {
        self.follows_session = true;
    }

    /// Returns the number of turns: one for each answer of the model. The agent's record of its answers decides where
    /// events leave it open.
    fn turns(&self) -> u32 {
        match self.usage.answers() {
            Some(recorded) => self.turns.max(recorded),
            None => self.turns.saturating_add(self.possible_turns),
        }
    }

    /// Returns the number of turns that count towards the limit. While a record of the answers is expected, only certain
    /// turns count, so that parallel calls never stop a run.
    fn limited_turns(&self) -> u32 {
        if self.follows_session && self.usage.answers().is_none() { self.turns } else { self.turns() }
    }

    fn deny(&mut self, id: &str, (tool, native_tool): (String, String), reason: String) {
        if self.denied.iter().any(|d| d.tool_use_id == id) {
            return;
        }
        // A dialogue reports the rule behind a denial as `reason: rule`.
        let (reason, rule) = match reason.split_once(": ") {
            Some((reason, rule)) if !reason.contains(' ') => (reason.to_owned(), Some(rule.to_owned())),
            _ => (reason, None),
        };
        self.denied.push(Denial { tool, native_tool, tool_use_id: id.to_owned(), reason, rule });
        self.facts.denied = u32::try_from(self.denied.len()).unwrap_or(u32::MAX);
    }

    /// Records that the agent retries a failed request.
    pub(crate) fn retry(&mut self, failure: crate::Failure, at: Millis) {
        self.retry_since.get_or_insert(at);
        self.facts.retrying = Some(failure);
    }

    pub(crate) fn hint(&mut self, failure: crate::Failure) {
        if failure.exit_code.is_some() {
            self.facts.by_exit = Some(failure);
            return;
        }
        self.facts.hint = Some(match self.facts.hint.take() {
            Some(hint) => hint.or_more_specific(failure),
            None => failure,
        });
    }

    pub(crate) fn add_fact(&mut self, fact: &ToolFact) {
        self.changes.add_fact(fact);
    }

    /// Adds a cost that the agent reported. Invalid amounts are ignored.
    pub(crate) fn charge(&mut self, usd: f64, at: Millis) {
        self.touch(at);
        if usd.is_finite() && usd >= 0.0 {
            self.charged = Some(self.charged.unwrap_or(0.0) + usd);
        }
    }

    pub(crate) fn set_model(&mut self, model: String) {
        self.model = Some(model);
    }

    /// Raises the counts to those of the agent, if it counted more turns or tool calls.
    pub(crate) fn tally(&mut self, turns: u32, tool_calls: u32) {
        self.turns = self.turns.max(turns);
        self.tool_calls = self.tool_calls.max(tool_calls);
    }

    pub(crate) fn keep_stderr(&mut self, text: &str) {
        keep_tail(&mut self.stderr, text, STDERR_TAIL);
    }

    pub(crate) fn add_request(&mut self, id: crate::HostRequestId, at: Millis) {
        self.requests.insert(id);
        self.asked_at.get_or_insert(at);
    }

    /// Removes and returns the open requests, which no longer need an answer.
    pub(crate) fn take_open_requests(&mut self) -> BTreeSet<crate::HostRequestId> {
        self.asked_at = None;
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn answered(&mut self, id: crate::HostRequestId, at: Millis) {
        self.requests.remove(&id);
        if self.requests.is_empty()
            && let Some(since) = self.asked_at.take()
        {
            self.waited += at.saturating_sub(since);
            self.touched = at;
        }
    }

    /// Returns the limit that is exceeded, with the allowed and the used amount.
    pub(crate) fn over_limit(&self) -> Option<StopReason> {
        let limits = &self.spec.limits;
        let stop = |limit, kind: &str, used: String, most: String| {
            Some(StopReason::Limit(limit, format!("{kind} limit of {most} reached: {used} used")))
        };
        let turns = self.limited_turns();
        let is_over = |most: &u32| turns > *most || (self.expects_request && turns >= *most);
        if let Some(most) = limits.max_turns.filter(is_over) {
            return stop(Limit::Turns, "turn", turns.to_string(), most.to_string());
        }
        if let Some(most) = limits.max_tool_calls.filter(|m| self.tool_calls > *m) {
            return stop(Limit::ToolCalls, "tool call", self.tool_calls.to_string(), most.to_string());
        }
        if limits.max_tokens.is_none() && limits.max_output_tokens.is_none() && limits.max_cost.is_none() {
            return None;
        }
        let tokens = self.usage.total();
        if let Some(most) = limits.max_tokens.filter(|m| tokens.sum() > *m) {
            return stop(Limit::Tokens, "token", tokens.sum().to_string(), most.to_string());
        }
        if let Some(most) = limits.max_output_tokens.filter(|m| tokens.produced() >= *m) {
            return stop(
                Limit::OutputTokens,
                "output token",
                tokens.produced().to_string(),
                most.to_string(),
            );
        }
        let cost = self.cost()?;
        let most = limits.max_cost.filter(|m| cost > *m)?;
        stop(Limit::Cost, "cost", format!("${cost:.4}"), format!("${most:.4}"))
    }
}

/// Appends a line to a text and keeps only its last bytes.
fn keep_tail(tail: &mut String, line: &str, most: usize) {
    let mut from = line.len().saturating_sub(most / 2);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    tail.push_str(&line[from..]);
    tail.push('\n');
    if tail.len() > most {
        let mut cut = tail.len() - most;
        while !tail.is_char_boundary(cut) {
            cut += 1;
        }
        tail.drain(..cut);
    }
}
