//! One agent process as a state machine, and the runs on it.
//!
//! All inputs enter through [`Connection::take`], which returns all resulting outputs. There is no clock: after every
//! input, the deadlines are compared with the time passed in, so a flood of lines cannot hide an expired timeout.

mod emit;
mod ending;

use crate::{
    Concurrency, ConnectionOutput, CountScope, Dialogue, Event, ExitReason, Failure, HostRequest,
    HostRequestId, HostResponse, Input, InputKind, InputLine, Millis, Origin, Outputs, PermissionDecision,
    PermissionEvent, Redactor, RunId, SessionTarget, ShutdownStep, SideChannel, Sink, Stream, Timeout,
    Timeouts, Tokens, TurnSpec,
    dialogue::SinkItem,
    run::{RunStage, RunState},
};
use std::collections::{BTreeMap, HashMap};

/// The number of lines of stderr from the start of a process that every run on it gets.
const STARTUP_LINES: usize = 20;

/// The state of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ProcessState {
    Starting(Millis),
    Ready,
    /// At this step of the shutdown ladder, until the given time.
    Closing(ShutdownStep, Millis),
    Exited,
}

/// The time and origin of the input being handled.
#[derive(Clone, Copy, Debug)]
struct CurrentLine {
    at: Millis,
    from: Origin,
    line: Option<u64>,
}

/// The id of the final request of a run; the ids of the dialogue's requests count from 1.
const COLLECT_REQUEST: u32 = 255;
/// The id of the request to validate an answer.
const VALIDATE_REQUEST: u32 = 254;

/// One agent process and the runs on it.
pub struct Connection {
    dialogue: Box<dyn Dialogue>,
    sink: Sink,
    runs: BTreeMap<RunId, RunState>,
    requests: HashMap<HostRequestId, (RunId, HostRequest)>,
    /// The tokens used by each session, for agents that report session totals.
    totals: HashMap<String, Tokens>,
    life: ProcessState,
    timeouts: Timeouts,
    redactor: Redactor,
    /// Keys that matched a secret pattern only after several events were joined.
    learned: Vec<String>,
    now: Millis,
    retiring: bool,
    stdin_open: bool,
    served: u32,
    /// The lines of stderr before the first run, such as warnings about settings.
    startup_stderr: Vec<String>,
    stdout_lines: u64,
    stderr_lines: u64,
    side_lines: HashMap<RunId, u64>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("life", &self.life)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection whose process is about to start.
    #[must_use]
    pub fn new(dialogue: Box<dyn Dialogue>, timeouts: Timeouts) -> Self {
        Self {
            dialogue,
            sink: Sink::default(),
            runs: BTreeMap::new(),
            requests: HashMap::new(),
            totals: HashMap::new(),
            life: ProcessState::Starting(0),
            timeouts,
            redactor: Redactor::default(),
            learned: Vec::new(),
            now: 0,
            retiring: false,
            stdin_open: true,
            served: 0,
            startup_stderr: Vec::new(),
            stdout_lines: 0,
            stderr_lines: 0,
            side_lines: HashMap::new(),
        }
    }

    /// Sets the secrets to redact in all outputs.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Returns the redactor of the secrets that no output has.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Replaces the secrets to redact from now on.
    pub fn set_redactor(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Takes the keys that arrived in several pieces and were recognized only after joining them. A tape contains the
    /// pieces, so its writer must redact them too.
    pub fn take_learned_secrets(&mut self) -> Vec<String> {
        std::mem::take(&mut self.learned)
    }

    /// Returns whether another run may start on this connection now.
    #[must_use]
    pub fn vacant(&self) -> bool {
        self.is_open() && (self.dialogue.room() != Concurrency::Turns || self.runs.is_empty())
    }

    /// Returns whether another run may start on this connection, now or after the current one.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_alive = matches!(self.life, ProcessState::Starting(_) | ProcessState::Ready);
        is_alive && !self.retiring && (self.dialogue.room() != Concurrency::Once || self.served == 0)
    }

    /// Returns whether the process has exited and all runs are finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.life == ProcessState::Exited && self.runs.is_empty()
    }

    /// Returns why no run can use this agent, if it has reported such a failure.
    #[must_use]
    pub fn broken(&self) -> Option<Failure> {
        self.dialogue.broken()
    }

    /// Returns when to send [`InputKind::Tick`] if no other input arrives first.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        let mine = match self.life {
            // A run has its own startup timeout; this one is for a process that has no run yet.
            ProcessState::Starting(since) if self.runs.is_empty() => Some(since + self.timeouts.startup),
            ProcessState::Closing(_, until) => Some(until),
            _ => None,
        };
        let buffered = self.runs.values().filter_map(RunState::buffer_deadline);
        self.runs.values().filter_map(|r| self.run_deadline(r)).map(|d| d.0).chain(buffered).chain(mine).min()
    }

    fn run_deadline(&self, run: &RunState) -> Option<(Millis, Timeout)> {
        let started = matches!(self.life, ProcessState::Starting(_) | ProcessState::Ready);
        match (run.stage, self.dialogue.room()) {
            // The exit status of a one-run process is part of its result: wait briefly for it, then close the process.
            (RunStage::Ended(since), Concurrency::Once) if self.life != ProcessState::Exited => {
                started.then_some((since + run.spec.timeouts.linger, Timeout::Linger))
            }
            (RunStage::Stopping(_), Concurrency::Once) if matches!(self.life, ProcessState::Closing(..)) => {
                None
            }
            _ => run.deadline(),
        }
    }

    /// Handles one input and appends all resulting outputs.
    pub fn take(&mut self, input: &Input<'_>, out: &mut dyn Outputs) {
        let at = self.now.max(input.at);
        self.now = at;
        let mut current = CurrentLine { at, from: Origin::Agentline, line: None };
        match &input.kind {
            InputKind::Started => {
                self.life = ProcessState::Starting(at);
                self.dialogue.started(&mut self.sink);
            }
            InputKind::Line { stream, text } => {
                current = self.number(*stream, at);
                self.dialogue
                    .line(InputLine { no: current.line.unwrap_or(0), stream: *stream, text }, &mut self.sink);
                let is_idle = std::mem::take(&mut self.sink.is_idle_line);
                if self.sink.items.is_empty() && !is_idle {
                    self.touch(*stream, at);
                }
            }
            InputKind::TooLong { stream, text, length } => {
                current = self.number(*stream, at);
                let event = Event::unreadable(text, *length);
                match stream {
                    Stream::Side(run, _) => self.sink.event(*run, event),
                    _ => self.sink.event_all(event),
                }
            }
            InputKind::Activity { stream } => self.touch(*stream, at),
            InputKind::Prompt { run, spec } => self.begin(*run, spec, at),
            InputKind::Answer { ask, answer } => self.answer(*ask, answer, current, out),
            InputKind::Cancel { run, signal } => self.cancel(*run, *signal, current, out),
            InputKind::Notice { run, notice } => {
                self.sink.event(*run, Event::warning(notice.code.clone(), notice.message.clone()));
            }
            InputKind::ClientMessage { text } => self.dialogue.client_message(text, &mut self.sink),
            InputKind::StdoutClosed => self.stdout_closed(at, out),
            InputKind::Retire => self.retiring = true,
            InputKind::Tick => {}
            InputKind::Exit(exit) => self.exited(*exit),
        }
        self.route(current, out);
        self.show_after_silence(at, out);
        self.watch(current, out);
        self.reap(current, out);
        // Close an unused process now: after the last run, no deadline would trigger another call.
        self.leave_when_empty(at, out);
    }

    fn number(&mut self, stream: Stream, at: Millis) -> CurrentLine {
        let (from, count) = match stream {
            Stream::Stdout => (Origin::Stdout, &mut self.stdout_lines),
            Stream::Stderr => (Origin::Stderr, &mut self.stderr_lines),
            Stream::Side(run, crate::SideChannel::ToolHost) => {
                (Origin::Agentline, self.side_lines.entry(run).or_default())
            }
            Stream::Side(run, _) => (Origin::SessionFile, self.side_lines.entry(run).or_default()),
        };
        *count += 1;
        CurrentLine { at, from, line: Some(*count) }
    }

    /// Records activity for input without content. Lines on stderr do not count as activity.
    fn touch(&mut self, stream: Stream, at: Millis) {
        match stream {
            Stream::Stdout => self.runs.values_mut().for_each(|r| r.touch(at)),
            Stream::Side(run, _) => self.runs.get_mut(&run).into_iter().for_each(|r| r.touch(at)),
            Stream::Stderr => {}
        }
    }

    fn begin(&mut self, id: RunId, spec: &TurnSpec, at: Millis) {
        self.served += 1;
        let mut run = RunState::new(id, spec.clone(), at);
        run.calls_interleave = self.dialogue.room() != Concurrency::Once;
        self.startup_stderr.iter().for_each(|line| run.keep_stderr(line));
        if let SessionTarget::Open(session) | SessionTarget::Load(session) = &spec.session
            && let Some(total) = self.totals.get(session)
        {
            run.usage.start_from(*total);
        }
        self.runs.insert(id, run);
        self.dialogue.prompt(id, spec, &mut self.sink);
    }

    fn exited(&mut self, exit: ExitReason) {
        if std::mem::replace(&mut self.life, ProcessState::Exited) == ProcessState::Exited {
            return;
        }
        for run in self.runs.values_mut() {
            match exit {
                ExitReason::Code(code) => run.facts.exit = Some(code),
                ExitReason::Signal(signal) => run.facts.signal = Some(signal),
                ExitReason::Lost => run.facts.is_lost = true,
            }
        }
        self.dialogue.exit(exit, &mut self.sink);
    }

    fn answer(
        &mut self,
        ask: HostRequestId,
        answer: &HostResponse,
        current: CurrentLine,
        out: &mut dyn Outputs,
    ) {
        if *answer == HostResponse::AskClient {
            // The request stays open until the client has answered it.
            if self.requests.contains_key(&ask) {
                self.dialogue.ask_client(ask, &mut self.sink);
            }
            return;
        }
        // A response to an obsolete request is not an error: the run ended first.
        let Some((id, question)) = self.requests.remove(&ask) else { return };
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.answered(ask, current.at);
        match question.clone() {
            HostRequest::CollectChanges { .. } => {
                if let HostResponse::ChangesCollected(disk) = answer {
                    run.facts.tampered.clone_from(&disk.tampered);
                    run.disk = Some(disk.clone());
                }
                run.stage = RunStage::Over;
                self.dialogue.finish(id, &mut self.sink);
            }
            HostRequest::Permission(request) => {
                let ruling = match answer {
                    HostResponse::PermissionDecided(ruling) => ruling.clone(),
                    _ => PermissionDecision::deny("agentline", "not_a_ruling"),
                };
                let event = PermissionEvent {
                    tool_use_id: request.tool_use_id,
                    tool: request.tool,
                    request: request.input,
                    decision: if ruling.allow { "allow" } else { "deny" },
                    by: ruling.by.clone(),
                    reason: ruling.reason.clone(),
                    rule: ruling.rule.clone(),
                };
                self.emit(id, event.into(), current, out);
                self.dialogue.answer(ask, &HostResponse::PermissionDecided(ruling), &mut self.sink);
            }
            HostRequest::Validate { .. } => self.validated(id, answer, current),
            HostRequest::ReadFile { path, .. } | HostRequest::WriteFile { path, .. } => {
                let HostResponse::PermissionDecided(ruling) = answer else {
                    return self.dialogue.answer(ask, answer, &mut self.sink);
                };
                // A refused file access is reported as a denial like any other.
                let tool = if matches!(&question, HostRequest::WriteFile { .. }) { "Write" } else { "Read" };
                let reason = ruling.reason.clone().unwrap_or_default();
                let error = HostResponse::Error(format!("{reason}: {path}"));
                let event = PermissionEvent {
                    tool_use_id: format!("file-{}", ask.0),
                    tool: tool.into(),
                    request: serde_json::value::to_raw_value(&serde_json::json!({ "file_path": path })).ok(),
                    decision: "deny",
                    by: ruling.by.clone(),
                    reason: ruling.reason.clone(),
                    rule: ruling.rule.clone(),
                };
                self.emit(id, event.into(), current, out);
                self.dialogue.answer(ask, &error, &mut self.sink);
            }
        }
    }

    /// Routes the reports of the dialogue to the runs and the outputs.
    fn route(&mut self, current: CurrentLine, out: &mut dyn Outputs) {
        if std::mem::take(&mut self.sink.ready) && matches!(self.life, ProcessState::Starting(_)) {
            self.life = ProcessState::Ready;
            out.push(ConnectionOutput::Ready);
        }
        let mut items = std::mem::take(&mut self.sink.items);
        for (to, item) in items.drain(..) {
            match to {
                Some(run) => self.handle_item(run, item, current, out),
                None => {
                    if let SinkItem::Stderr(text) = &item
                        && self.served == 0
                        && self.startup_stderr.len() < STARTUP_LINES
                    {
                        self.startup_stderr.push(self.redactor.text(text).into_owned());
                    }
                    for run in self.runs.keys().copied().collect::<Vec<_>>() {
                        if let Some(copy) = item.for_another() {
                            self.handle_item(run, copy, current, out);
                        }
                    }
                }
            }
        }
        let counted = self.runs.values().filter(|run| run.has_new_count).map(|run| run.id);
        for run in counted.collect::<Vec<_>>() {
            self.show_usage(run, current, out);
        }
        // Reuse the buffer to avoid an allocation per line.
        if self.sink.items.is_empty() {
            self.sink.items = items;
        }
        for frame in self.sink.frames.drain(..) {
            out.push(ConnectionOutput::Frame(frame));
        }
        for message in self.sink.client_messages.drain(..) {
            out.push(ConnectionOutput::ClientMessage(message));
        }
        if std::mem::take(&mut self.sink.shut) && std::mem::take(&mut self.stdin_open) {
            out.push(ConnectionOutput::Close(ShutdownStep::CloseStdin));
        }
    }

    /// Emits the usage of a run if counts arrived that change it. The counts of one line give one event.
    fn show_usage(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if !std::mem::take(&mut run.has_new_count) {
            return;
        }
        let usage = run.usage.publish();
        if run.shown_usage.as_ref() != Some(&usage) && usage != crate::Usage::default() {
            run.shown_usage = Some(usage.clone());
            self.emit(id, Event::from(usage), current, out);
        }
    }

    fn handle_item(&mut self, id: RunId, item: SinkItem, current: CurrentLine, out: &mut dyn Outputs) {
        if !matches!(item, SinkItem::Count(_)) {
            self.show_usage(id, current, out);
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        match item {
            SinkItem::Text(text) => self.take_piece(id, false, text, current, out),
            SinkItem::Thinking(text) => self.take_piece(id, true, text, current, out),
            SinkItem::Event(event) => self.event(id, *event, current, out),
            SinkItem::Value(value) => {
                run.facts.answer = true;
                run.value = Some(value);
            }
            SinkItem::Count(count) => {
                run.touch(current.at);
                let whole = count.span == CountScope::Session;
                run.usage.take(*count);
                run.has_new_count = true;
                if whole && let (Some(session), Some(total)) = (&run.session, run.usage.session_total()) {
                    self.totals.insert(session.clone(), total);
                }
            }
            SinkItem::Context(context) => {
                run.touch(current.at);
                run.has_new_count |= run.usage.set_context(context);
            }
            SinkItem::Hint(failure) => run.hint(failure),
            SinkItem::Retry(failure) => run.retry(failure, current.at),
            SinkItem::End(end) => {
                // A success can be revoked, a failure cannot.
                if run.facts.end.as_ref().is_none_or(|before| before.ok && !end.ok) {
                    run.facts.end = Some(*end);
                    // Output after a stop matters only if the session is used again.
                    run.skip_quiet_period |=
                        run.facts.stop.is_some() && (self.retiring || run.spec.ends_session);
                    if matches!(run.stage, RunStage::Starting | RunStage::Running | RunStage::Stopping(_)) {
                        run.stage = RunStage::Ended(current.at);
                    }
                }
            }
            SinkItem::Abort(failure) => {
                // This also applies to a turn that has already ended, because the agent broke a guarantee of the run.
                let live = run.is_live();
                if !matches!(run.stage, RunStage::CollectingChanges(_) | RunStage::Over) {
                    run.facts.end = Some(crate::TurnEnd::failed(Some(failure)));
                }
                if live {
                    self.halt(id, current, out);
                }
            }
            // A run that is stopping or finished asks the host nothing, but the agent still needs an answer.
            SinkItem::Ask(ask, _) if !run.is_live() => {
                let no =
                    HostResponse::PermissionDecided(PermissionDecision::deny("agentline", "the run is over"));
                self.dialogue.answer(ask, &no, &mut self.sink);
            }
            SinkItem::Ask(ask, question) => {
                run.touch(current.at);
                run.add_request(ask, current.at);
                self.requests.insert(ask, (id, question.clone()));
                out.push(ConnectionOutput::Ask(id, ask, question));
            }
            SinkItem::Withdraw(ask) => {
                if self.requests.remove(&ask).is_some() {
                    run.answered(ask, current.at);
                    out.push(ConnectionOutput::Withdraw(ask));
                }
            }
            SinkItem::ClientAnswered(ask, answer) => self.answer(ask, &answer, current, out),
            SinkItem::Follow(side, name) => {
                if run.spec.follow {
                    if side == SideChannel::SessionFile && self.dialogue.records_answers() {
                        run.follow_session();
                    }
                    out.push(ConnectionOutput::Follow(id, side, name));
                }
            }
            // Only the tail of stderr is kept, so redact first: truncation could split a secret.
            SinkItem::Stderr(text) => run.keep_stderr(&self.redactor.text(&text)),
            SinkItem::TurnText(text) => {
                let patterns = self.redactor.patterns();
                let mut shown = run.recorded_text.push(patterns, text).concat();
                shown.extend(run.recorded_text.finish(patterns));
                run.record_text(&shown);
            }
            SinkItem::ToolFact(fact) => run.add_fact(&fact),
            SinkItem::Cost(usd) => run.charge(usd, current.at),
            SinkItem::RecordedCost(usd) => run.recorded_cost += usd,
            SinkItem::Model(model) => run.set_model(model),
            SinkItem::Silent => run.silent = true,
            SinkItem::Alive => run.touch(current.at),
            SinkItem::Tally { turns, tool_calls } => run.tally(turns, tool_calls),
            SinkItem::NextRequest => run.expect_request(),
            SinkItem::Recorded(failure) => run.facts.recorded = failure.map(|failure| *failure),
        }
    }
}

impl SinkItem {
    /// Copies an item for another run; returns `None` for items that belong to a single run.
    fn for_another(&self) -> Option<Self> {
        Some(match self {
            Self::Event(event) => Self::Event(event.clone()),
            Self::Hint(failure) => Self::Hint(failure.clone()),
            Self::Retry(failure) => Self::Retry(failure.clone()),
            Self::Abort(failure) => Self::Abort(failure.clone()),
            Self::Stderr(text) => Self::Stderr(text.clone()),
            _ => return None,
        })
    }
}
