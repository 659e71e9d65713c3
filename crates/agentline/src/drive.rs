//! The loop: one task a process. It hands everything that happens to the connection and does what the connection says.

use crate::{
    follow::Follower,
    prepare,
    process::{self, Happening, Process, Signal, Std},
    tape_file::TapeFile,
    workspace::Before,
};
use agentline_core::{
    Answer, Ask, AskId, Connection, Disk, Exit, Input, LineSplitter, Millis, Notice, Order, Outcome, Output,
    Piece, Record, RunId, Rung, Side, Stream, What,
};
use std::{
    borrow::Cow,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{Receiver, Sender},
    task::JoinHandle,
};

/// The only run of a process that takes one prompt.
const RUN: RunId = RunId(1);
/// What a run is stopped by when nobody holds it any more.
const SIGTERM: i32 = 15;
/// How long to wait before looking again whether a slow consumer made room.
const SLOW_CONSUMER: Duration = Duration::from_millis(50);

/// Everything that one run needs, made ready before the agent starts.
pub(crate) struct Job {
    pub(crate) order: Order,
    pub(crate) notices: Vec<Notice>,
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    pub(crate) follower: Follower,
    pub(crate) tape: Option<TapeFile>,
    pub(crate) before: Option<Before>,
    pub(crate) max_line: usize,
    pub(crate) begun: Instant,
    /// Events leave in batches: one for all that was read at once.
    pub(crate) events: Sender<Vec<Record>>,
    pub(crate) cancels: Receiver<i32>,
    /// Lives as long as the run; removed with it.
    pub(crate) private: Option<tempfile::TempDir>,
    /// What may have to go back to the user from the private folder.
    pub(crate) copy_back: Vec<(PathBuf, PathBuf)>,
}

/// The state of the loop.
struct Drive {
    connection: Connection,
    process: Process,
    follower: Follower,
    tape: Option<TapeFile>,
    before: Option<Before>,
    begun: Instant,
    /// Events that wait for room.
    pending: Vec<Record>,
    /// What else the connection wants done.
    wanted: Vec<Output>,
    outputs: Vec<Output>,
    settling: Option<(AskId, JoinHandle<Disk>)>,
    outcome: Option<Box<Outcome>>,
}

/// Drives one run to its end.
pub(crate) async fn drive(job: Job) -> Outcome {
    let Job {
        order,
        notices,
        process,
        connection,
        follower,
        tape,
        before,
        max_line,
        begun,
        events,
        mut cancels,
        private,
        copy_back,
    } = job;
    let who = order.who.clone();
    let mut drive = Drive {
        connection,
        process,
        follower,
        tape,
        before,
        begun,
        pending: Vec::new(),
        wanted: Vec::new(),
        outputs: Vec::new(),
        settling: None,
        outcome: None,
    };
    let mut splitters = [LineSplitter::new(max_line), LineSplitter::new(max_line)];
    let mut bytes = Vec::new();
    let (mut exited, mut listened_to) = (false, true);

    drive.feed(What::Up);
    drive.feed(What::Prompt { run: RUN, order: Box::new(order) });
    for notice in notices {
        drive.feed(What::Notice { run: RUN, notice });
    }
    drive.act();

    while !(drive.outcome.is_some() && drive.pending.is_empty()) {
        let blocked = !drive.pending.is_empty();
        tokio::select! {
            biased;
            signal = cancels.recv(), if listened_to => match signal {
                Some(signal) => drive.feed(What::Cancel { run: RUN, signal }),
                // Whoever held the run has let go of it: nobody wants it any more.
                None => {
                    listened_to = false;
                    drive.feed(What::Cancel { run: RUN, signal: SIGTERM });
                }
            },
            permit = events.reserve(), if blocked => {
                let batch = std::mem::take(&mut drive.pending);
                if let Ok(permit) = permit {
                    permit.send(batch);
                }
            }
            lines = drive.follower.next(), if !blocked && drive.follower.is_on() => drive.side_lines(lines),
            disk = settled(&mut drive.settling) => drive.settled(disk),
            happening = drive.process.next(&mut bytes), if !blocked && !exited => match happening {
                Happening::Bytes(from) => {
                    drive.lines(&mut splitters[usize::from(from == Std::Err)], from, &bytes);
                    bytes.clear();
                }
                Happening::Exit(exit) => {
                    exited = true;
                    for (splitter, from) in splitters.iter_mut().zip([Std::Out, Std::Err]) {
                        drive.last_line(splitter, from);
                    }
                    drive.feed(What::Exit(into_core(exit)));
                }
            },
            () = until(drive.begun, drive.connection.deadline(), blocked) => {
                // A consumer that does not read is no silence of the agent.
                if blocked && drive.process.unread() {
                    drive.feed(What::Pulse { stream: Stream::Stdout });
                } else {
                    drive.feed(What::Tick);
                }
            }
        }
        drive.act();
    }
    let Drive { process, tape, follower, outcome, .. } = drive;
    // The tree dies before anything else is cleared away.
    drop(process);
    let mut outcome = outcome.map_or_else(|| lost(&who), |o| *o);
    if tape.is_some_and(|mut t| !t.finish()) {
        outcome.warnings.push(Notice::new("tape", "the tape could not be written to its end"));
    }
    prepare::bring_back(&copy_back);
    clear_away(&follower, private);
    outcome
}

/// Removes what the run left behind: its private folder, and files that would harm the user's sessions.
fn clear_away(follower: &Follower, private: Option<tempfile::TempDir>) {
    for file in follower.leftovers() {
        // It may be gone already; nothing depends on it.
        let _ = std::fs::remove_file(file);
    }
    drop(private);
}

impl Drive {
    fn now(&self) -> Millis {
        Millis::try_from(self.begun.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    fn feed(&mut self, what: What<'_>) {
        let at = self.now();
        self.take(&Input { at, what });
    }

    /// First the tape, then the machine.
    fn take(&mut self, input: &Input<'_>) {
        if let Some(tape) = &mut self.tape {
            tape.input(input);
        }
        self.connection.take(input, &mut self.outputs);
        for output in self.outputs.drain(..) {
            match output {
                Output::Event(_, record) => self.pending.push(record),
                Output::Done(_, outcome) => self.outcome = Some(outcome),
                other => self.wanted.push(other),
            }
        }
    }

    /// Takes bytes of one stream, a line at a time.
    fn lines(&mut self, splitter: &mut LineSplitter, from: Std, bytes: &[u8]) {
        let at = self.now();
        let stream = stream(from);
        let before = splitter.partial();
        let mut whole = false;
        splitter.push(bytes, |piece| {
            whole = true;
            self.take(&Input { at, what: line(stream, piece) });
        });
        if !whole && splitter.partial() > before {
            self.feed(What::Pulse { stream });
        }
    }

    fn last_line(&mut self, splitter: &mut LineSplitter, from: Std) {
        let at = self.now();
        splitter.finish(|piece| self.take(&Input { at, what: line(stream(from), piece) }));
    }

    fn side_lines(&mut self, lines: Vec<String>) {
        for text in lines {
            self.feed(What::Line { stream: Stream::Side(RUN, Side::SessionFile), text: Cow::Owned(text) });
        }
    }

    /// Does what the connection wants done.
    fn act(&mut self) {
        for output in std::mem::take(&mut self.wanted) {
            match output {
                Output::Frame(frame) => {
                    let at = self.now();
                    if let Some(tape) = &mut self.tape {
                        tape.frame(at, &frame);
                    }
                    self.process.write(frame.into_bytes());
                }
                Output::Close(rung) => match rung {
                    Rung::CloseStdin => self.process.close_stdin(),
                    Rung::Interrupt => self.process.signal(Signal::Interrupt),
                    Rung::Terminate => self.process.signal(Signal::Terminate),
                    _ => self.process.signal(Signal::KillTree),
                },
                Output::Follow(_, Side::SessionFile, session) => self.follower.start(&session),
                Output::Ask(_, ask, Ask::Settle { reported }) => self.settle(ask, reported),
                // No surface of ours asks anything else yet: refused, so that nobody waits.
                Output::Ask(_, ask, _) => {
                    self.feed(What::Answer {
                        ask,
                        answer: Answer::Ruled(agentline_core::Ruling::deny(
                            "agentline",
                            "nobody is there to be asked",
                        )),
                    });
                }
                _ => {}
            }
        }
        if !self.wanted.is_empty() {
            self.act();
        }
    }

    /// Reads the session file to its end, then looks at the disk.
    fn settle(&mut self, ask: AskId, reported: Vec<String>) {
        let lines = self.follower.drain();
        self.side_lines(lines);
        let before = self.before.take();
        let look =
            tokio::task::spawn_blocking(move || before.map_or_else(Disk::default, |b| b.compare(&reported)));
        self.settling = Some((ask, look));
    }

    fn settled(&mut self, disk: Disk) {
        if let Some((ask, _)) = self.settling.take() {
            self.feed(What::Answer { ask, answer: Answer::Settled(disk) });
        }
    }
}

/// Waits for the look at the disk, if there is one.
async fn settled(settling: &mut Option<(AskId, JoinHandle<Disk>)>) -> Disk {
    match settling {
        Some((_, look)) => look.await.unwrap_or_else(|_| {
            let mut disk = Disk::default();
            disk.unknown = true;
            disk
        }),
        None => std::future::pending().await,
    }
}

/// Waits for the next deadline; for a slow consumer, not longer than a moment.
async fn until(begun: Instant, deadline: Option<Millis>, blocked: bool) {
    let deadline = deadline.map(|ms| begun + Duration::from_millis(ms));
    let soon = blocked.then(|| Instant::now() + SLOW_CONSUMER);
    match deadline.into_iter().chain(soon).min() {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

fn line<'a>(stream: Stream, piece: Piece<'a>) -> What<'a> {
    match piece {
        Piece::TooLong { text, length } => What::TooLong { stream, text, length },
        Piece::Line(text) => What::Line { stream, text },
        _ => What::Pulse { stream },
    }
}

fn stream(from: Std) -> Stream {
    match from {
        Std::Out => Stream::Stdout,
        Std::Err => Stream::Stderr,
    }
}

fn into_core(exit: process::Exit) -> Exit {
    match exit {
        process::Exit::Code(code) => Exit::Code(code),
        process::Exit::Signal(signal) => Exit::Signal(signal),
        process::Exit::Lost => Exit::Lost,
    }
}

/// The connection ended without an outcome, which its invariants rule out.
fn lost(who: &agentline_core::Who) -> Outcome {
    let failure =
        agentline_core::Failure::new(agentline_core::Kind::Crashed, "the run ended without an outcome");
    Outcome::not_begun(who, agentline_core::Verdict::Failed, failure)
}
