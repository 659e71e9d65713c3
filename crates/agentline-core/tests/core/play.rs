//! Feeds scripts and captures to a connection, answers its requests, and collects its outputs.

use agentline_core::{
    Connection, ConnectionOutput, Dialogue, DiskReport, Event, ExitReason, HostRequest, HostRequestId,
    HostResponse, Input, InputKind, LineSplitter, Millis, Outcome, Record, Redactor, RunId, ShutdownStep,
    SideChannel, SplitItem, Stream, Surface, Timeouts, TurnSpec,
    agents::{self},
    tape_line,
};
use std::{borrow::Cow, collections::BTreeMap};

/// The run of every test that needs only one.
pub(crate) const RUN: RunId = RunId(1);

/// Returns an order like those of the shell.
pub(crate) fn spec() -> TurnSpec {
    let mut spec = TurnSpec::default();
    spec.prompt = "Do it".into();
    spec.collect_changes = true;
    spec.follow = true;
    spec.info.run_id = "run-1".into();
    spec.info.agent = "gemini".into();
    spec.info.cwd = "/ws".into();
    spec
}

/// Returns the dialogue for one surface of Gemini CLI.
pub(crate) fn dialogue(surface: Surface) -> Box<dyn Dialogue> {
    agents::find("gemini")
        .expect("the agent is listed")
        .dialogue(&agentline_core::DialogueConfig::new(surface, None))
}

/// A connection, the current time, and all outputs so far.
pub(crate) struct Player {
    pub(crate) conn: Connection,
    pub(crate) now: Millis,
    pub(crate) out: Vec<ConnectionOutput>,
    /// The workspace changes reported when a run settles. `None` leaves the request unanswered.
    pub(crate) disk: Option<DiskReport>,
    /// All inputs as lines of a tape, if the test needs them.
    pub(crate) tape: Option<Vec<String>>,
    /// Lines of the session file that are read only when a run settles.
    pub(crate) late_lines: Vec<String>,
}

impl Player {
    pub(crate) fn new(surface: Surface) -> Self {
        Self::with(Connection::new(dialogue(surface), Timeouts::default()))
    }

    pub(crate) fn redacted(surface: Surface, secrets: &[&str]) -> Self {
        Self::with(
            Connection::new(dialogue(surface), Timeouts::default()).with_redactor(Redactor::new(secrets)),
        )
    }

    pub(crate) fn with(conn: Connection) -> Self {
        let mut player = Self {
            conn,
            now: 0,
            out: Vec::new(),
            disk: Some(DiskReport::default()),
            tape: None,
            late_lines: Vec::new(),
        };
        player.take(InputKind::Started);
        player
    }

    /// Passes one input to the connection, checks that the deadline is in the future, and answers the request to
    /// settle.
    pub(crate) fn take(&mut self, kind: InputKind<'_>) {
        let from = self.out.len();
        let input = Input { at: self.now, kind };
        self.tape.iter_mut().for_each(|tape| tape.push(tape_line(&input)));
        self.conn.take(&input, &mut self.out);
        if let Some(deadline) = self.conn.deadline() {
            assert!(deadline > self.now, "at {} the deadline is {deadline}: the shell would spin", self.now);
        }
        let asked: Vec<(RunId, HostRequestId)> = self.out[from..]
            .iter()
            .filter_map(|o| match o {
                ConnectionOutput::Ask(run, id, HostRequest::CollectChanges { .. }) => Some((*run, *id)),
                _ => None,
            })
            .collect();
        for (run, ask) in asked {
            let Some(disk) = self.disk.clone() else { continue };
            for line in std::mem::take(&mut self.late_lines) {
                self.line(Stream::Side(run, SideChannel::SessionFile), &line);
            }
            self.take(InputKind::Answer { ask, answer: HostResponse::ChangesCollected(disk) });
        }
    }

    pub(crate) fn prompt(&mut self, spec: TurnSpec) {
        self.prompt_as(RUN, spec);
    }

    pub(crate) fn prompt_as(&mut self, run: RunId, spec: TurnSpec) {
        self.take(InputKind::Prompt { run, spec: Box::new(spec) });
    }

    pub(crate) fn line(&mut self, stream: Stream, text: &str) {
        self.take(InputKind::Line { stream, text: Cow::Borrowed(text) });
    }

    pub(crate) fn stdout(&mut self, text: &str) {
        self.line(Stream::Stdout, text);
    }

    pub(crate) fn stderr(&mut self, text: &str) {
        self.line(Stream::Stderr, text);
    }

    pub(crate) fn side(&mut self, text: &str) {
        self.line(Stream::Side(RUN, SideChannel::SessionFile), text);
    }

    pub(crate) fn exit(&mut self, exit: ExitReason) {
        self.take(InputKind::Exit(exit));
    }

    /// Advances the time, stopping at every deadline as the shell would.
    pub(crate) fn wait(&mut self, time: Millis) {
        let until = self.now + time;
        while let Some(deadline) = self.conn.deadline().filter(|d| *d <= until) {
            self.now = deadline;
            self.take(InputKind::Tick);
        }
        self.now = until;
    }

    /// Advances the time until no deadline remains, and returns the number of steps.
    pub(crate) fn ticks_to_the_end(&mut self) -> usize {
        let mut steps = 0;
        while let Some(deadline) = self.conn.deadline() {
            steps += 1;
            assert!(steps < 50, "timeouts alone do not end the run: {:?}", self.conn);
            self.now = deadline;
            self.take(InputKind::Tick);
        }
        steps
    }

    pub(crate) fn rungs(&self) -> Vec<ShutdownStep> {
        self.out
            .iter()
            .filter_map(|o| {
                if let ConnectionOutput::Close(shutdown_step) = o { Some(*shutdown_step) } else { None }
            })
            .collect()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.out
            .iter()
            .filter_map(|o| if let ConnectionOutput::Event(_, record) = o { Some(record) } else { None })
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.records().map(|r| &r.event)
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.events()
            .filter_map(|e| if let Event::Text { text } = e { Some(&**text) } else { None })
            .collect()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.events()
            .filter_map(|e| if let Event::Warning { code, .. } = e { Some(&**code) } else { None })
            .collect()
    }

    /// Returns the only outcome of the only run.
    pub(crate) fn outcome(&self) -> &Outcome {
        self.outcome_of(RUN)
    }

    pub(crate) fn outcome_of(&self, run: RunId) -> &Outcome {
        let mut all = self.out.iter().filter_map(|o| match o {
            ConnectionOutput::Done(id, outcome) if *id == run => Some(outcome),
            _ => None,
        });
        let outcome = all.next().unwrap_or_else(|| panic!("{run:?} is not over: {:?}", self.conn));
        assert!(all.next().is_none(), "two outcomes");
        outcome
    }

    pub(crate) fn is_over(&self) -> bool {
        self.out.iter().any(|o| matches!(o, ConnectionOutput::Done(..)))
    }

    /// Checks the invariants that hold for the outputs of any connection.
    pub(crate) fn check(&self) {
        check_outputs(&self.out);
    }
}

/// Checks the invariants of outputs: `started` first, one `Done` per run and nothing after it, consecutive numbers, tools
/// in pairs,
/// every request sent once and withdrawn at most once, and shutdown steps in order, each once.
pub(crate) fn check_outputs(out: &[ConnectionOutput]) {
    let mut seq: BTreeMap<RunId, u32> = BTreeMap::new();
    let mut done: Vec<RunId> = Vec::new();
    let mut tools: BTreeMap<(RunId, String), i32> = BTreeMap::new();
    let mut requests: BTreeMap<HostRequestId, bool> = BTreeMap::new();
    let mut last_rung = None;
    for output in out {
        match output {
            ConnectionOutput::Event(run, record) => {
                assert!(!done.contains(run), "an event after the outcome: {record:?}");
                let next = seq.entry(*run).or_default();
                *next += 1;
                assert_eq!(record.seq, *next, "{record:?}");
                let is_start = matches!(record.event, Event::Started(_));
                assert_eq!(is_start, record.seq == 1, "`started` is the first event: {record:?}");
                match &record.event {
                    Event::ToolUse(tool) => {
                        let open = tools.entry((*run, tool.id.clone())).or_default();
                        *open += 1;
                        assert_eq!(*open, 1, "a second tool_use before the result: {record:?}");
                    }
                    Event::ToolResult(result) => {
                        let open = tools.entry((*run, result.tool_use_id.clone())).or_default();
                        *open -= 1;
                        assert_eq!(*open, 0, "a result without its tool_use: {record:?}");
                    }
                    _ => {}
                }
            }
            ConnectionOutput::Done(run, outcome) => {
                assert!(!done.contains(run), "a second outcome: {outcome:?}");
                assert!(seq.contains_key(run), "an outcome without `started`: {outcome:?}");
                done.push(*run);
                assert!(
                    tools.iter().all(|((of, _), open)| of != run || *open == 0),
                    "a tool_use without a result: {tools:?}"
                );
            }
            ConnectionOutput::Ask(run, id, ask) => {
                assert!(!done.contains(run), "a request after the outcome");
                // A review is requested again after each answer.
                let again = matches!(ask, HostRequest::Validate { .. });
                assert!(requests.insert(*id, true).is_none() || again, "{id:?} was already requested");
            }
            ConnectionOutput::Withdraw(id) => {
                assert_eq!(requests.insert(*id, false), Some(true), "{id:?} is not pending");
            }
            ConnectionOutput::Close(shutdown_step) => {
                assert!(last_rung < Some(*shutdown_step), "{shutdown_step:?} after {last_rung:?}");
                last_rung = Some(*shutdown_step);
            }
            ConnectionOutput::Frame(_) | ConnectionOutput::Follow(..) | ConnectionOutput::Ready => {}
            other => panic!("unexpected output: {other:?}"),
        }
    }
}

/// Feeds bytes of stdout through a splitter, cut at these positions.
pub(crate) fn feed(player: &mut Player, bytes: &[u8], cuts: &[usize]) {
    let mut splitter = LineSplitter::new(256 << 20);
    let mut from = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        splitter.push(&bytes[from..cut], |piece| hand(player, piece));
        from = cut;
    }
    splitter.finish(|piece| hand(player, piece));
}

fn hand(player: &mut Player, piece: SplitItem<'_>) {
    match piece {
        SplitItem::Line(text) => player.take(InputKind::Line { stream: Stream::Stdout, text }),
        SplitItem::TooLong { text, length } => {
            player.take(InputKind::TooLong { stream: Stream::Stdout, text, length })
        }
        other => panic!("unexpected part: {other:?}"),
    }
}

/// A deterministic pseudo-random number generator.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `most`, or 0 if `most` is 0.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if most == 0 { 0 } else { (self.0 >> 11) as usize % most }
    }
}
