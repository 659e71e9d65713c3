//! The state of one run: its facts, timeouts, limits, changed files and usage.

mod timeouts;

use crate::{
    Charge, CostSource, Denial, DiskReport, Event, FailureKind, Limit, Millis, Notice, OUTCOME_SCHEMA,
    Origin, Outcome, RunError, RunFacts, RunId, StopReason, ToolFact, ToolStatus, ToolUse, TurnSpec,
    UsageTracker, Verdict, change_tracker::ChangeTracker, redact::StreamRedactor, verdict,
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

/// The time, origin and line number of an input.
pub(crate) type Arrival = (Millis, Origin, Option<u64>);

/// An output that is held until it is known whether the text before it starts a secret.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// A piece of text or thought, with its redacted form once that is known.
    Piece { is_thought: bool, arrival: Arrival, shown: Option<String> },
    /// An event that does not end the text.
    Event(Box<Event>, Arrival),
}

/// The names of an open tool call, for later events about it.
#[derive(Debug)]
struct OpenTool {
    name: String,
    native: String,
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
    /// The cost that the agent reported.
    charged: Option<f64>,
    text: String,
    /// The text of the last turn as the agent recorded it.
    recorded: Option<String>,
    tool_calls: u32,
    turns: u32,
    turn_is_over: bool,
    turn_has_text: bool,
    started: bool,
    seq: u32,
    first: Option<Millis>,
    unreadable: u32,
    last_unreadable: Option<(Origin, Option<u64>)>,
    warnings: Vec<Notice>,
    stderr: String,
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
        Self {
            id,
            stage: RunStage::Starting,
            // Such a run only opens a session, so it needs no answer.
            facts: RunFacts { answer: spec.only_open, ..RunFacts::default() },
            spec,
            usage,
            changes: ChangeTracker::default(),
            text_redactor: StreamRedactor::default(),
            thought_redactor: StreamRedactor::default(),
            waiting: VecDeque::new(),
            buffered_since: None,
            recorded_text: StreamRedactor::default(),
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
            charged: None,
            text: String::new(),
            recorded: None,
            tool_calls: 0,
            turns: 0,
            turn_is_over: true,
            turn_has_text: false,
            started: false,
            seq: 0,
            first: None,
            unreadable: 0,
            last_unreadable: None,
            warnings: Vec::new(),
            stderr: String::new(),
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

    /// Returns the text, so far, of the last turn that has text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn is_open(&self, tool: &str) -> bool {
        self.open.contains_key(tool)
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
            Event::ToolResult { tool_use_id, status, reason, content, .. } => {
                self.progress("tool_result", at);
                self.turn_is_over = true;
                self.changes.result(tool_use_id, *status);
                let tool = self.open.remove(tool_use_id);
                if *status == ToolStatus::Denied {
                    let reason = reason.clone().or_else(|| content.clone()).unwrap_or_default();
                    self.deny(tool_use_id, tool, reason);
                }
            }
            Event::Permission { tool_use_id, tool: name, decision, reason, rule, .. } => {
                self.progress("permission", at);
                if *decision == "deny" {
                    let tool = self
                        .open
                        .get(tool_use_id)
                        .map(|t| OpenTool { name: t.name.clone(), native: t.native.clone() })
                        .or_else(|| Some(OpenTool { name: name.clone(), native: String::new() }));
                    let reason = reason.clone().unwrap_or_default();
                    let reason =
                        rule.as_ref().map_or_else(|| reason.clone(), |rule| format!("{reason}: {rule}"));
                    self.deny(tool_use_id, tool, reason);
                }
            }
            Event::Warning { code, message } => {
                if self.warnings.len() < MOST_WARNINGS {
                    self.warnings.push(Notice::new(code.clone(), message.clone()));
                }
            }
            Event::Unreadable { .. } | Event::Usage(_) | Event::FileChange { .. } | Event::Outcome { .. } => {
            }
            Event::Started(_) => {
                self.started = true;
                self.progress("started", at);
            }
            Event::Content { .. } => {
                self.begin_turn();
                self.progress("content", at);
                self.facts.answer = true;
            }
            Event::Agent { .. }
            | Event::Plan { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. } => self.progress("agent", at),
        }
        (self.seq, since)
    }

    /// Counts an unreadable line, once even if it is reported in several pieces.
    pub(crate) fn note_unreadable(&mut self, from: Origin, line: Option<u64>) {
        if line.is_none() || self.last_unreadable.replace((from, line)) != Some((from, line)) {
            self.unreadable += 1;
        }
    }

    fn note_text(&mut self, text: &str, at: Millis) {
        self.begin_turn();
        self.progress("text", at);
        if !std::mem::replace(&mut self.turn_has_text, true) {
            self.text.clear();
        }
        self.facts.answer |= !text.trim().is_empty();
        self.text.push_str(text);
    }

    fn note_tool(&mut self, tool: &ToolUse, at: Millis) {
        self.begin_turn();
        self.progress("tool_use", at);
        self.last.tool.clone_from(&tool.native_name);
        self.tool_calls += 1;
        let open = OpenTool { name: tool.name.clone(), native: tool.native_name.clone() };
        self.open.insert(tool.id.clone(), open);
        self.changes.used(tool);
    }

    /// Records progress: the idle timeout restarts, and a pending retry has succeeded.
    fn progress(&mut self, kind: &'static str, at: Millis) {
        self.touched = at;
        self.last.kind = kind;
        self.last.at = at;
        if self.retry_since.take().is_some() {
            self.facts.retrying = None;
        }
    }

    pub(crate) fn begin_turn(&mut self) {
        if std::mem::take(&mut self.turn_is_over) {
            self.turns += 1;
            self.turn_has_text = false;
        }
    }

    fn deny(&mut self, id: &str, tool: Option<OpenTool>, reason: String) {
        if self.denied.iter().any(|d| d.tool_use_id == id) {
            return;
        }
        let (tool, native_tool) = tool.map(|t| (t.name, t.native)).unwrap_or_default();
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

    /// Records the agent's own text of a turn. The last text that is not blank counts.
    pub(crate) fn record_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.recorded = Some(text.to_owned());
        }
    }

    /// Raises the counts to those of the agent, if it counted more turns or tool calls.
    pub(crate) fn tally(&mut self, turns: u32, tool_calls: u32) {
        self.turns = self.turns.max(turns);
        self.tool_calls = self.tool_calls.max(tool_calls);
    }

    pub(crate) fn keep_stderr(&mut self, text: &str) {
        let mut from = text.len().saturating_sub(STDERR_TAIL / 2);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        self.stderr.push_str(&text[from..]);
        self.stderr.push('\n');
        if self.stderr.len() > STDERR_TAIL {
            let mut cut = self.stderr.len() - STDERR_TAIL;
            while !self.stderr.is_char_boundary(cut) {
                cut += 1;
            }
            self.stderr.drain(..cut);
        }
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
        if let Some(most) = limits.max_turns.filter(|m| self.turns > *m) {
            return stop(Limit::Turns, "turn", self.turns.to_string(), most.to_string());
        }
        if let Some(most) = limits.max_tool_calls.filter(|m| self.tool_calls > *m) {
            return stop(Limit::ToolCalls, "tool call", self.tool_calls.to_string(), most.to_string());
        }
        if limits.max_tokens.is_none() && limits.max_output_tokens.is_none() && limits.max_cost.is_none() {
            return None;
        }
        let tokens = self.usage.live();
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

    fn cost(&self) -> Option<f64> {
        self.bill().map(|(charge, _)| charge.usd)
    }

    /// Returns the cost and its source.
    ///
    /// The user's own prices take precedence. Next is the cost that the agent reports, which includes its helper models
    /// and contract terms, and then the price table. An agent that reports a cost of zero does not override the table.
    fn bill(&self) -> Option<(Charge, CostSource)> {
        let prices = &self.spec.prices;
        let model = self.model.as_ref().or(self.spec.info.model.as_ref());
        let listed = self.usage.charge(prices, model.map(String::as_str));
        let listed = listed.map(|charge| (charge, CostSource::Prices));
        let mut models: Vec<String> = self.usage.by_model().into_keys().collect();
        if models.is_empty() {
            models.extend(model.cloned());
        }
        let yours = !models.is_empty() && models.iter().all(|model| prices.is_yours(model));
        match self.charged {
            Some(usd) if listed.is_none() || (usd > 0.0 && !yours) => {
                Some((Charge::of(usd), CostSource::Agent))
            }
            _ => listed,
        }
    }

    /// Returns warnings about usage and cost, once all numbers are available.
    pub(crate) fn doubts(&self) -> Vec<Notice> {
        let found = self.usage.disagreements();
        let mut doubts = Vec::new();
        if !found.is_empty() {
            doubts.push(Notice::new("usage_disagrees", found.join("; ")));
        }
        if self.bill().is_some_and(|(charge, _)| charge.estimated) {
            let text =
                "`cost_usd` is an estimate: long prompts cost more, and the length of each prompt is unknown";
            doubts.push(Notice::new("cost_estimated", text));
        }
        doubts
    }

    /// Builds the outcome of the run. Called once.
    pub(crate) fn outcome(&mut self, at: Millis) -> Outcome {
        if self.facts.stop.is_none() {
            // A limit that the last turn exceeds takes effect after it.
            self.facts.stop = self.over_limit();
        }
        let holds_no_value = self.spec.extract_json && self.value.is_none() && !self.find_value();
        if holds_no_value && self.facts.answer {
            self.facts.fits_schema = Some(false);
        }
        let (verdict, mut failure) = verdict(&self.facts);
        if let Some(failure) =
            failure.as_mut().filter(|f| holds_no_value && f.kind == FailureKind::InvalidOutput)
        {
            failure.message = "the answer contains no JSON value".into();
            failure.hint = Some("check `text`, and ask for JSON only".into());
        }
        if let (Some(failure), Some(most)) = (&mut failure, self.spec.limits.max_turns)
            && failure.kind == crate::FailureKind::AgentTurns
            && self.turns >= most
        {
            // The agent received our limit and enforced it.
            *failure = crate::Failure::new(
                crate::FailureKind::MaxTurns,
                format!("turn limit of {most} reached: the agent stopped after turn {}", self.turns),
            );
        }
        let tail = self.stderr.trim_end().to_owned();
        let info = &self.spec.info;
        let error =
            failure.filter(|_| !matches!(verdict, Verdict::Done | Verdict::DoneWithDenials)).map(|mut f| {
                f.hint = f.hint.or_else(|| crate::hint::hint(f.kind, info.sign_in_hint.as_deref()));
                // The missing result may have been in an unreadable line.
                if self.unreadable > 0 && matches!(f.kind, FailureKind::Empty | FailureKind::NoResult) {
                    f.message.push_str(&format!("; unreadable lines: {}", self.unreadable));
                }
                RunError::new(f, tail.clone())
            });
        Outcome {
            schema: OUTCOME_SCHEMA,
            run_id: info.run_id.clone(),
            agent: info.agent.clone(),
            agent_version: info.agent_version.clone(),
            surface: info.surface,
            model: self.model.clone().or_else(|| info.model.clone()),
            session_id: self.session.clone(),
            cwd: info.cwd.clone(),
            name: info.name.clone(),
            verdict,
            error,
            text: std::mem::take(&mut self.text),
            output: self.value.take(),
            files: self.changes.rows(&info.cwd, self.disk.as_ref()),
            denied: std::mem::take(&mut self.denied),
            usage: self.usage.usage(),
            cost_usd: self.cost(),
            cost_source: self.bill().map(|(_, source)| source),
            turns: self.turns,
            tool_calls: self.tool_calls,
            stop_reason: self.facts.end.as_ref().and_then(|e| e.stop.clone()),
            duration_ms: at.saturating_sub(self.started_at),
            first_event_ms: self.first,
            warnings: std::mem::take(&mut self.warnings),
            unreadable_lines: self.unreadable,
            agent_exit_code: self.facts.exit,
            stderr_tail: tail,
            tape: info.tape.clone(),
            cache: None,
        }
    }

    /// Extracts the JSON value from the answer. Returns whether there is one.
    fn find_value(&mut self) -> bool {
        self.value = crate::extract_json_text(&self.text).and_then(|text| serde_json::from_str(text).ok());
        self.value.is_some()
    }

    /// Replaces the text with the agent's record of the turn if the agent repeated text or sent none.
    ///
    /// Returns whether text was repeated.
    pub(crate) fn correct_text(&mut self) -> bool {
        let Some(recorded) = self.recorded.take() else { return false };
        // The record may lack whitespace at its ends, which does not count as repetition.
        let (sent, record) = (self.text.trim(), recorded.trim());
        let repeated = sent.len() > record.len() && sent.ends_with(record);
        if self.text.trim().is_empty() || repeated {
            self.facts.answer = true;
            self.text = recorded;
        }
        repeated
    }
}
