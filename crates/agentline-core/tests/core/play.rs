//! Plays scripts and captures through a connection, answers what it asks, and collects what it says.

use agentline_core::{
    Answer, Ask, AskId, Clocks, Connection, Dialogue, Disk, Event, Exit, Input, LineSplitter, Millis, Order,
    Outcome, Output, Piece, Record, RunId, Rung, Side, Stream, Surface, Veil, What,
    agents::{self},
    tape_line,
};
use std::{borrow::Cow, collections::BTreeMap};

/// The run of every test that needs only one.
pub(crate) const RUN: RunId = RunId(1);

/// An order as the shell would give it.
pub(crate) fn order() -> Order {
    let mut order = Order::default();
    order.prompt = "Do it".into();
    order.settle = true;
    order.follow = true;
    order.who.run_id = "run-1".into();
    order.who.agent = "gemini".into();
    order.who.cwd = "/ws".into();
    order
}

/// The translator of one surface of the first agent.
pub(crate) fn dialogue(surface: Surface) -> Box<dyn Dialogue> {
    agents::find("gemini").expect("it is listed").dialogue(&agentline_core::Talk::new(surface, None))
}

/// A connection, the time, and everything that came out of it.
pub(crate) struct Player {
    pub(crate) conn: Connection,
    pub(crate) now: Millis,
    pub(crate) out: Vec<Output>,
    /// What the disk shows when a run settles; `None` leaves the question open.
    pub(crate) disk: Option<Disk>,
    /// Everything that was handed in, as lines of a tape, where that is wanted.
    pub(crate) tape: Option<Vec<String>>,
    /// Session-file lines that are still to be read when a run settles.
    pub(crate) late_lines: Vec<String>,
}

impl Player {
    pub(crate) fn new(surface: Surface) -> Self {
        Self::with(Connection::new(dialogue(surface), Clocks::default()))
    }

    pub(crate) fn veiled(surface: Surface, secrets: &[&str]) -> Self {
        Self::with(Connection::new(dialogue(surface), Clocks::default()).with_veil(Veil::new(secrets)))
    }

    pub(crate) fn with(conn: Connection) -> Self {
        let mut player = Self {
            conn,
            now: 0,
            out: Vec::new(),
            disk: Some(Disk::default()),
            tape: None,
            late_lines: Vec::new(),
        };
        player.take(What::Up);
        player
    }

    /// Hands in one thing, checks that the deadline is not in the past, and answers the question to settle.
    pub(crate) fn take(&mut self, what: What<'_>) {
        let from = self.out.len();
        let input = Input { at: self.now, what };
        self.tape.iter_mut().for_each(|tape| tape.push(tape_line(&input)));
        self.conn.take(&input, &mut self.out);
        if let Some(deadline) = self.conn.deadline() {
            assert!(deadline > self.now, "at {} the deadline is {deadline}: the shell would spin", self.now);
        }
        let asked: Vec<(RunId, AskId)> = self.out[from..]
            .iter()
            .filter_map(|o| match o {
                Output::Ask(run, id, Ask::Settle { .. }) => Some((*run, *id)),
                _ => None,
            })
            .collect();
        for (run, ask) in asked {
            let Some(disk) = self.disk.clone() else { continue };
            for line in std::mem::take(&mut self.late_lines) {
                self.line(Stream::Side(run, Side::SessionFile), &line);
            }
            self.take(What::Answer { ask, answer: Answer::Settled(disk) });
        }
    }

    pub(crate) fn prompt(&mut self, order: Order) {
        self.prompt_as(RUN, order);
    }

    pub(crate) fn prompt_as(&mut self, run: RunId, order: Order) {
        self.take(What::Prompt { run, order: Box::new(order) });
    }

    pub(crate) fn line(&mut self, stream: Stream, text: &str) {
        self.take(What::Line { stream, text: Cow::Borrowed(text) });
    }

    pub(crate) fn stdout(&mut self, text: &str) {
        self.line(Stream::Stdout, text);
    }

    pub(crate) fn stderr(&mut self, text: &str) {
        self.line(Stream::Stderr, text);
    }

    pub(crate) fn side(&mut self, text: &str) {
        self.line(Stream::Side(RUN, Side::SessionFile), text);
    }

    pub(crate) fn exit(&mut self, exit: Exit) {
        self.take(What::Exit(exit));
    }

    /// Lets this much time pass, stopping at every deadline on the way as the shell would.
    pub(crate) fn wait(&mut self, time: Millis) {
        let until = self.now + time;
        while let Some(deadline) = self.conn.deadline().filter(|d| *d <= until) {
            self.now = deadline;
            self.take(What::Tick);
        }
        self.now = until;
    }

    /// Only time passes, until nothing can happen any more.
    pub(crate) fn ticks_to_the_end(&mut self) -> usize {
        let mut steps = 0;
        while let Some(deadline) = self.conn.deadline() {
            steps += 1;
            assert!(steps < 50, "time alone does not end it: {:?}", self.conn);
            self.now = deadline;
            self.take(What::Tick);
        }
        steps
    }

    pub(crate) fn rungs(&self) -> Vec<Rung> {
        self.out.iter().filter_map(|o| if let Output::Close(rung) = o { Some(*rung) } else { None }).collect()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.out.iter().filter_map(|o| if let Output::Event(_, record) = o { Some(record) } else { None })
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

    /// The one outcome of the one run.
    pub(crate) fn outcome(&self) -> &Outcome {
        self.outcome_of(RUN)
    }

    pub(crate) fn outcome_of(&self, run: RunId) -> &Outcome {
        let mut all = self.out.iter().filter_map(|o| match o {
            Output::Done(id, outcome) if *id == run => Some(outcome),
            _ => None,
        });
        let outcome = all.next().unwrap_or_else(|| panic!("{run:?} is not over: {:?}", self.conn));
        assert!(all.next().is_none(), "two outcomes");
        outcome
    }

    pub(crate) fn is_over(&self) -> bool {
        self.out.iter().any(|o| matches!(o, Output::Done(..)))
    }

    /// What must hold for the outputs of any connection whatever came in.
    pub(crate) fn check(&self) {
        check_outputs(&self.out);
    }
}

/// Invariants of design: one `Done` a run and nothing after it, numbers without gaps, tools in pairs, every question
/// asked once and withdrawn at most once, rungs in order and each once.
pub(crate) fn check_outputs(out: &[Output]) {
    let mut seq: BTreeMap<RunId, u32> = BTreeMap::new();
    let mut done: Vec<RunId> = Vec::new();
    let mut tools: BTreeMap<(RunId, String), i32> = BTreeMap::new();
    let mut asks: BTreeMap<AskId, bool> = BTreeMap::new();
    let mut last_rung = None;
    for output in out {
        match output {
            Output::Event(run, record) => {
                assert!(!done.contains(run), "an event after the outcome: {record:?}");
                let next = seq.entry(*run).or_default();
                *next += 1;
                assert_eq!(record.seq, *next, "{record:?}");
                match &record.event {
                    Event::ToolUse(tool) => {
                        let open = tools.entry((*run, tool.id.clone())).or_default();
                        *open += 1;
                        assert_eq!(*open, 1, "a second tool_use before the result: {record:?}");
                    }
                    Event::ToolResult { tool_use_id, .. } => {
                        let open = tools.entry((*run, tool_use_id.clone())).or_default();
                        *open -= 1;
                        assert_eq!(*open, 0, "a result without its tool_use: {record:?}");
                    }
                    _ => {}
                }
            }
            Output::Done(run, outcome) => {
                assert!(!done.contains(run), "a second outcome: {outcome:?}");
                done.push(*run);
                assert!(
                    tools.iter().all(|((of, _), open)| of != run || *open == 0),
                    "a tool_use without a result: {tools:?}"
                );
            }
            Output::Ask(run, id, ask) => {
                assert!(!done.contains(run), "a question after the outcome");
                // Whether an answer will do is asked again after each.
                let again = matches!(ask, Ask::Review { .. });
                assert!(asks.insert(*id, true).is_none() || again, "{id:?} was asked before");
            }
            Output::Withdraw(id) => {
                assert_eq!(asks.insert(*id, false), Some(true), "{id:?} is not open");
            }
            Output::Close(rung) => {
                assert!(last_rung < Some(*rung), "{rung:?} after {last_rung:?}");
                last_rung = Some(*rung);
            }
            Output::Frame(_) | Output::Follow(..) | Output::Ready => {}
            other => panic!("an output that these checks do not know: {other:?}"),
        }
    }
}

/// Feeds bytes of stdout through a splitter, cut at these places.
pub(crate) fn feed(player: &mut Player, bytes: &[u8], cuts: &[usize]) {
    let mut splitter = LineSplitter::new(256 << 20);
    let mut from = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        splitter.push(&bytes[from..cut], |piece| hand(player, piece));
        from = cut;
    }
    splitter.finish(|piece| hand(player, piece));
}

fn hand(player: &mut Player, piece: Piece<'_>) {
    match piece {
        Piece::Line(text) => player.take(What::Line { stream: Stream::Stdout, text }),
        Piece::TooLong { text, length } => {
            player.take(What::TooLong { stream: Stream::Stdout, text, length })
        }
        other => panic!("a piece that the tests do not know: {other:?}"),
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `most`; 0 where there is none.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if most == 0 { 0 } else { (self.0 >> 11) as usize % most }
    }
}
