//! One live agent process as a state machine, and the runs on it.
//!
//! Everything that happens comes in through [`Connection::take`]; everything that is to be done goes out of it. There
//! is no clock in here: after every input the deadlines are compared with the time that was handed in, so that a flood
//! of lines cannot hide a clock that ran out.

mod ending;
mod telling;

use crate::{
    Answer, Ask, AskId, Clock, Clocks, Dialogue, Event, Exit, Failure, Input, Line, Millis, Order, Origin,
    Output, Room, Ruling, RunId, Rung, Say, Span, Stream, Tokens, Veil, Want, What,
    dialogue::Said,
    run::{Run, Stage},
};
use std::collections::{BTreeMap, HashMap};

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Starting(Millis),
    Ready,
    /// On this rung of the ladder, until then.
    Closing(Rung, Millis),
    Gone,
}

/// Which line is being handled.
#[derive(Clone, Copy, Debug)]
struct Here {
    at: Millis,
    from: Origin,
    line: Option<u64>,
}

/// The last question of a run; those of the dialogue count from 1.
const SETTLE_ASK: u32 = 255;
/// Whether an answer is what was wanted.
const REVIEW_ASK: u32 = 254;

/// One live agent process and the runs on it.
pub struct Connection {
    talk: Box<dyn Dialogue>,
    say: Say,
    runs: BTreeMap<RunId, Run>,
    asks: HashMap<AskId, (RunId, Ask)>,
    /// What each session had used, for agents that count from the beginning of a session.
    totals: HashMap<String, Tokens>,
    life: Life,
    clocks: Clocks,
    veil: Veil,
    /// Keys that were recognised by their shape only when several events were joined.
    learned: Vec<String>,
    now: Millis,
    retiring: bool,
    stdin_open: bool,
    served: u32,
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
    /// A connection whose process is about to start.
    #[must_use]
    pub fn new(talk: Box<dyn Dialogue>, clocks: Clocks) -> Self {
        Self {
            talk,
            say: Say::default(),
            runs: BTreeMap::new(),
            asks: HashMap::new(),
            totals: HashMap::new(),
            life: Life::Starting(0),
            clocks,
            veil: Veil::default(),
            learned: Vec::new(),
            now: 0,
            retiring: false,
            stdin_open: true,
            served: 0,
            stdout_lines: 0,
            stderr_lines: 0,
            side_lines: HashMap::new(),
        }
    }

    /// Hides these secrets in everything that leaves.
    #[must_use]
    pub fn with_veil(mut self, veil: Veil) -> Self {
        self.veil = veil;
        self
    }

    /// Hides other secrets from now on.
    pub fn set_veil(&mut self, veil: Veil) {
        self.veil = veil;
    }

    /// Takes the keys that came in several pieces and were recognised by their shape only when these were joined. A tape
    /// holds the pieces.
    pub fn take_learned_secrets(&mut self) -> Vec<String> {
        std::mem::take(&mut self.learned)
    }

    /// Whether another run may start here.
    #[must_use]
    pub fn vacant(&self) -> bool {
        let open = !self.retiring && matches!(self.life, Life::Starting(_) | Life::Ready);
        open && match self.talk.room() {
            Room::Once => self.served == 0,
            Room::Turns => self.runs.is_empty(),
            Room::Sessions => true,
        }
    }

    /// Whether nothing more can happen.
    #[must_use]
    pub fn gone(&self) -> bool {
        self.life == Life::Gone && self.runs.is_empty()
    }

    /// Why this agent cannot be talked with by anybody, once it has said so.
    #[must_use]
    pub fn broken(&self) -> Option<Failure> {
        self.talk.broken()
    }

    /// When to send [`What::Tick`], if nothing else comes first.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        let mine = match self.life {
            // A run has its own start-up clock; this one is for a process that waits for its first.
            Life::Starting(since) if self.runs.is_empty() => Some(since + self.clocks.startup),
            Life::Closing(_, until) => Some(until),
            _ => None,
        };
        let held = self.runs.values().filter_map(Run::held_deadline);
        self.runs.values().filter_map(|r| self.run_deadline(r)).map(|d| d.0).chain(held).chain(mine).min()
    }

    fn run_deadline(&self, run: &Run) -> Option<(Millis, Clock)> {
        let up = matches!(self.life, Life::Starting(_) | Life::Ready);
        match (run.stage, self.talk.room()) {
            // The exit of a one-run process is part of its answer: wait a little for it, then help.
            (Stage::Ended(since), Room::Once) if self.life != Life::Gone => {
                up.then_some((since + run.order.clocks.linger, Clock::Linger))
            }
            (Stage::Stopping(_), Room::Once) if matches!(self.life, Life::Closing(..)) => None,
            _ => run.deadline(),
        }
    }

    /// Takes one thing that happened and says everything that follows from it.
    pub fn take(&mut self, input: &Input<'_>, out: &mut Vec<Output>) {
        let at = self.now.max(input.at);
        self.now = at;
        let mut here = Here { at, from: Origin::Agentline, line: None };
        match &input.what {
            What::Up => {
                self.life = Life::Starting(at);
                self.talk.up(&mut self.say);
            }
            What::Line { stream, text } => {
                here = self.number(*stream, at);
                self.talk.line(Line { no: here.line.unwrap_or(0), stream: *stream, text }, &mut self.say);
                if self.say.runs.is_empty() {
                    self.touch(*stream, at);
                }
            }
            What::TooLong { stream, text, length } => {
                here = self.number(*stream, at);
                let event = Event::unreadable(text, *length);
                match stream {
                    Stream::Side(run, _) => self.say.event(*run, event),
                    _ => self.say.event_all(event),
                }
            }
            What::Pulse { stream } => self.touch(*stream, at),
            What::Prompt { run, order } => self.begin(*run, order, at),
            What::Answer { ask, answer } => self.answer(*ask, answer, here, out),
            What::Cancel { run, signal } => self.cancel(*run, *signal, here, out),
            What::Notice { run, notice } => {
                self.say.event(*run, Event::warning(notice.code.clone(), notice.message.clone()));
            }
            What::Mute => self.mute(at, out),
            What::Retire => self.retiring = true,
            What::Tick => {}
            What::Exit(exit) => self.exited(*exit),
        }
        self.route(here, out);
        self.show_after_silence(at, out);
        self.watch(here, out);
        self.reap(here, out);
        // A process that nobody needs any more is closed now: after the last run no clock would bring us back here.
        self.leave_when_empty(at, out);
    }

    fn number(&mut self, stream: Stream, at: Millis) -> Here {
        let (from, count) = match stream {
            Stream::Stdout => (Origin::Stdout, &mut self.stdout_lines),
            Stream::Stderr => (Origin::Stderr, &mut self.stderr_lines),
            Stream::Side(run, crate::Side::ToolHost) => {
                (Origin::Agentline, self.side_lines.entry(run).or_default())
            }
            Stream::Side(run, _) => (Origin::SessionFile, self.side_lines.entry(run).or_default()),
        };
        *count += 1;
        Here { at, from, line: Some(*count) }
    }

    /// Something came that said nothing: it still shows that the agent lives. Lines on stderr do not.
    fn touch(&mut self, stream: Stream, at: Millis) {
        match stream {
            Stream::Stdout => self.runs.values_mut().for_each(|r| r.touch(at)),
            Stream::Side(run, _) => self.runs.get_mut(&run).into_iter().for_each(|r| r.touch(at)),
            Stream::Stderr => {}
        }
    }

    fn begin(&mut self, id: RunId, order: &Order, at: Millis) {
        self.served += 1;
        let mut run = Run::new(id, order.clone(), at);
        if let Want::Open(session) | Want::Load(session) = &order.session
            && let Some(total) = self.totals.get(session)
        {
            run.book.start_from(*total);
        }
        self.runs.insert(id, run);
        self.talk.prompt(id, order, &mut self.say);
    }

    fn exited(&mut self, exit: Exit) {
        if std::mem::replace(&mut self.life, Life::Gone) == Life::Gone {
            return;
        }
        for run in self.runs.values_mut() {
            match exit {
                Exit::Code(code) => run.seen.exit = Some(code),
                Exit::Signal(signal) => run.seen.signal = Some(signal),
                Exit::Lost => run.seen.is_lost = true,
            }
        }
        self.talk.exit(exit, &mut self.say);
    }

    fn answer(&mut self, ask: AskId, answer: &Answer, here: Here, out: &mut Vec<Output>) {
        // An answer to a question that is void is no error: the run ended first.
        let Some((id, question)) = self.asks.remove(&ask) else { return };
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.answered(ask, here.at);
        match question.clone() {
            Ask::Settle { .. } => {
                if let Answer::Settled(disk) = answer {
                    run.seen.tampered.clone_from(&disk.tampered);
                    run.disk = Some(disk.clone());
                }
                run.stage = Stage::Over;
                self.talk.settled(id, &mut self.say);
            }
            Ask::Permission(asked) => {
                let ruling = match answer {
                    Answer::Ruled(ruling) => ruling.clone(),
                    _ => Ruling::deny("agentline", "not_a_ruling"),
                };
                let event = Event::Permission {
                    tool_use_id: asked.tool_use_id,
                    tool: asked.tool,
                    request: asked.input,
                    decision: if ruling.allow { "allow" } else { "deny" },
                    by: ruling.by.clone(),
                    reason: ruling.reason.clone(),
                    rule: ruling.rule.clone(),
                };
                self.emit(id, event, here, out);
                self.talk.answer(ask, &Answer::Ruled(ruling), &mut self.say);
            }
            Ask::Review { .. } => self.reviewed(id, answer, here),
            Ask::ReadFile { path, .. } | Ask::WriteFile { path, .. } => {
                let Answer::Ruled(ruling) = answer else {
                    return self.talk.answer(ask, answer, &mut self.say);
                };
                // A file that was refused is a denial as any other.
                let tool = if matches!(&question, Ask::WriteFile { .. }) { "Write" } else { "Read" };
                let reason = ruling.reason.clone().unwrap_or_default();
                let error = Answer::Error(format!("{reason}: {path}"));
                let event = Event::Permission {
                    tool_use_id: format!("file-{}", ask.0),
                    tool: tool.into(),
                    request: serde_json::value::to_raw_value(&serde_json::json!({ "file_path": path })).ok(),
                    decision: "deny",
                    by: ruling.by.clone(),
                    reason: ruling.reason.clone(),
                    rule: ruling.rule.clone(),
                };
                self.emit(id, event, here, out);
                self.talk.answer(ask, &error, &mut self.say);
            }
        }
    }

    /// Moves what the dialogue said to the runs and out.
    fn route(&mut self, here: Here, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.say.ready) && matches!(self.life, Life::Starting(_)) {
            self.life = Life::Ready;
            out.push(Output::Ready);
        }
        let mut said = std::mem::take(&mut self.say.runs);
        for (to, what) in said.drain(..) {
            match to {
                Some(run) => self.tell(run, what, here, out),
                None => {
                    for run in self.runs.keys().copied().collect::<Vec<_>>() {
                        if let Some(copy) = what.for_another() {
                            self.tell(run, copy, here, out);
                        }
                    }
                }
            }
        }
        // The buffer is kept: a million lines shall not mean a million allocations.
        if self.say.runs.is_empty() {
            self.say.runs = said;
        }
        out.extend(self.say.frames.drain(..).map(Output::Frame));
        if std::mem::take(&mut self.say.shut) && std::mem::take(&mut self.stdin_open) {
            out.push(Output::Close(Rung::CloseStdin));
        }
    }

    fn tell(&mut self, id: RunId, what: Said, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match what {
            Said::Event(event) => self.event(id, event, here, out),
            Said::Value(value) => {
                run.seen.answer = true;
                run.value = Some(value);
            }
            Said::Count(count) => {
                run.touch(here.at);
                let whole = count.span == Span::Session;
                let before = run.book.total();
                run.book.take(count);
                if whole && let (Some(session), Some(total)) = (&run.session, run.book.session_total()) {
                    self.totals.insert(session.clone(), total);
                }
                if run.book.total() != before {
                    let usage = Box::new(run.book.usage());
                    self.emit(id, Event::Usage(usage), here, out);
                }
            }
            Said::Hint(failure) => run.hint(failure),
            Said::Retry(failure) => run.retry(failure, here.at),
            Said::End(end) => {
                // A success can be taken back, a failure cannot.
                if run.seen.end.as_ref().is_none_or(|before| before.ok && !end.ok) {
                    run.seen.end = Some(end);
                    // What is said after a stop matters only to those who go on in the session.
                    run.hurried |= run.seen.stop.is_some() && (self.retiring || run.order.ends_session);
                    if matches!(run.stage, Stage::Starting | Stage::Going | Stage::Stopping(_)) {
                        run.stage = Stage::Ended(here.at);
                    }
                }
            }
            Said::Abort(failure) => {
                // It counts also where the agent was faster: what it did is not what was ordered.
                let live = run.is_live();
                if !matches!(run.stage, Stage::Settling(_) | Stage::Over) {
                    run.seen.end = Some(crate::End::failed(Some(failure)));
                }
                if live {
                    self.halt(id, here, out);
                }
            }
            // Nobody shall be asked for a run that is being stopped or is over; the agent still wants an answer.
            Said::Ask(ask, _) if !run.is_live() => {
                let no = Answer::Ruled(Ruling::deny("agentline", "the run is over"));
                self.talk.answer(ask, &no, &mut self.say);
            }
            Said::Ask(ask, question) => {
                run.touch(here.at);
                run.asked(ask, here.at);
                self.asks.insert(ask, (id, question.clone()));
                out.push(Output::Ask(id, ask, question));
            }
            Said::Withdraw(ask) => {
                if self.asks.remove(&ask).is_some() {
                    run.answered(ask, here.at);
                    out.push(Output::Withdraw(ask));
                }
            }
            Said::Follow(side, name) => {
                if run.order.follow {
                    out.push(Output::Follow(id, side, name));
                }
            }
            // Only the end of stderr is kept: a secret must be hidden before a cut can halve it.
            Said::Stderr(text) => run.keep_stderr(&self.veil.text(&text)),
            Said::TurnText(text) => {
                let patterns = self.veil.patterns();
                let mut shown = run.recorded_text.push(patterns, text).concat();
                shown.extend(run.recorded_text.finish(patterns));
                run.record_text(&shown);
            }
            Said::ToolFact(fact) => run.learn(&fact),
            Said::Cost(usd) => run.charge(usd, here.at),
            Said::Model(model) => run.set_model(model),
            Said::Silent => run.silent = true,
            Said::Alive => run.touch(here.at),
            Said::Tally { turns, tool_calls } => run.tally(turns, tool_calls),
        }
    }
}

impl Said {
    /// The same for another run; what belongs to one run only is not told to others.
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
