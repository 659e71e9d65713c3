//! The event loop of a process: passes every input to the connection and carries out what the connection returns.

use crate::{
    integrity::Integrity,
    link::Bell,
    litter::Litter,
    live::{Live, LiveState},
    prepare,
    process::{Happening, Process, Signal, Std, Sweeper},
    seat::{Boarding, Gone, Seat, Tell, gone_by, lost_answer, refuse},
    tape_file::TapeFile,
    temp_dir::ProcessTemp,
    told::{into_core, line, stream},
    watchdog::LoopWatch,
    workspace::Before,
};
use agentline_core::{
    Answer, Ask, AskId, Connection, Disk, Event, Failure, Input, LineSplitter, Millis, Notice, Outcome,
    Output, RunId, Rung, Side, Stream, Veil, Want, What,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::{AbortHandle, Id, JoinError, JoinSet},
};

/// How long to wait before checking again whether a slow consumer has made room.
const SLOW_CONSUMER: Duration = Duration::from_millis(50);
/// How many events of one run may be pending before its slow consumer blocks the other runs of the process.
const MOST_PENDING: usize = 50_000;
/// How often session files are read. The tokens of a turn are in the file about 60 ms after the turn; a run that ends
/// sooner reads it once, when it settles.
const PACE: Duration = Duration::from_millis(100);

/// The time limit for the cleanup after a process.
const CLEARING: Duration = Duration::from_secs(30);

/// How long after closing its stdout an agent may take to exit before it counts as silent.
const MUTE: Duration = Duration::from_millis(300);

/// A line of the host's own tools, with its run.
type SideLine = (RunId, String);

/// The state of the loop.
struct Drive {
    connection: Connection,
    process: Process,
    watch: LoopWatch,
    /// Ends the processes that a run left behind, if the agent's process outlives its runs.
    sweeper: Option<Sweeper>,
    integrity: Arc<Integrity>,
    secrets: Vec<String>,
    /// The secrets that are currently redacted.
    hidden: BTreeSet<String>,
    tape: Option<TapeFile>,
    begun: Instant,
    bell: Bell,
    seats: BTreeMap<RunId, Seat>,
    /// Finished runs whose outcome is reported when the process has exited.
    held: Vec<(Seat, Box<Outcome>)>,
    last_run: u32,
    /// Outputs of the connection that are still to be carried out.
    wanted: Vec<Output>,
    outputs: Vec<Output>,
    asks: Asks,
    sides: (UnboundedSender<SideLine>, UnboundedReceiver<SideLine>),
    state: watch::Sender<LiveState>,
    gone: Gone,
    next_look: Instant,
    /// Sessions that may turn out to be unused.
    litter: Vec<Litter>,
    temp: ProcessTemp,
}

/// Requests of the agent that are being answered.
#[derive(Default)]
struct Asks {
    tasks: JoinSet<(Vec<Notice>, Answer)>,
    open: HashMap<Id, Open>,
}

struct Open {
    run: RunId,
    ask: AskId,
    /// The answer if the task panics or is cancelled.
    otherwise: Answer,
    task: AbortHandle,
}

/// Drives a process to its end.
pub(crate) async fn drive(live: Live) {
    let Live {
        process,
        connection,
        secrets,
        tape,
        max_line,
        begun,
        private,
        integrity,
        copy_back,
        mut boarding,
        bell,
        state,
        gone,
        lives_on,
        litter,
        temp,
    } = live;
    let sweeper = lives_on.then(|| process.sweeper());
    let mut drive = Drive {
        connection,
        watch: LoopWatch::new(process.killer()),
        process,
        sweeper,
        integrity,
        hidden: secrets.iter().cloned().collect(),
        secrets,
        tape,
        begun,
        bell,
        seats: BTreeMap::new(),
        held: Vec::new(),
        last_run: 0,
        wanted: Vec::new(),
        outputs: Vec::new(),
        asks: Asks::default(),
        sides: unbounded_channel(),
        state,
        gone: Gone::clone(&gone),
        next_look: begun,
        litter: litter.into_iter().collect(),
        temp,
    };
    let mut splitters = [LineSplitter::new(max_line), LineSplitter::new(max_line)];
    let mut bytes = Vec::new();
    let (mut exited, mut open) = (false, true);
    let mut mute: Option<Instant> = None;

    drive.feed(What::Up);
    drive.act();
    // The starter of a process always submits a run. Take it first, even if the agent exits immediately.
    match boarding.recv().await {
        Some(first) => drive.board(first),
        None => {
            open = false;
            drive.feed(What::Retire);
        }
    }
    drive.act();

    while !(drive.connection.gone() && drive.seats.is_empty()) {
        let blocked = drive.is_blocked();
        drive.watch.turned(drive.next_wake());
        let bell = drive.bell.clone();
        tokio::select! {
            biased;
            () = bell.notified() => drive.look_at_links(),
            answered = drive.asks.tasks.join_next_with_id(), if !drive.asks.tasks.is_empty() => {
                if let Some(answered) = answered {
                    drive.answered(answered);
                }
            }
            next = boarding.recv(), if open => match next {
                Some(next) => drive.board(next),
                None => {
                    open = false;
                    drive.feed(What::Retire);
                }
            },
            Some((run, line)) = drive.sides.1.recv(), if !blocked => drive.tool_line(run, line),
            () = tokio::time::sleep_until(drive.next_look.into()), if !blocked && drive.follows() => drive.look_at_files(),
            happening = drive.process.next(&mut bytes), if !blocked && !exited => match happening {
                // End of stdout: usually the agent is about to exit.
                Happening::Bytes(Std::Out) if bytes.is_empty() => mute = Some(Instant::now() + MUTE),
                Happening::Bytes(from) => {
                    drive.lines(&mut splitters[usize::from(from == Std::Err)], from, &bytes);
                    bytes.clear();
                }
                Happening::Exit(exit) => {
                    exited = true;
                    for (splitter, from) in splitters.iter_mut().zip([Std::Out, Std::Err]) {
                        drive.last_line(splitter, from);
                    }
                    let exit = into_core(exit);
                    let _ = gone.set(drive.connection.broken().unwrap_or_else(|| gone_by(exit)));
                    drive.feed(What::Exit(exit));
                }
            },
            () = tokio::time::sleep_until(mute.unwrap_or(drive.begun).into()), if mute.is_some() && !exited => {
                mute = None;
                drive.feed(What::Mute);
            }
            () = until(drive.begun, drive.connection.deadline(), blocked) => {
                // While a consumer is slow, unread output counts as activity of the agent.
                if blocked && drive.process.unread() {
                    drive.feed(What::Pulse { stream: Stream::Stdout });
                } else {
                    drive.feed(What::Tick);
                }
            }
        }
        drive.act();
        drive.tell_state();
    }
    drive.state.send_modify(|state| state.closed = true);
    drive.watch.turned(Some(Instant::now() + CLEARING));
    // Refuse runs that were submitted too late.
    boarding.close();
    while let Ok(late) = boarding.try_recv() {
        refuse(late, gone.get());
    }
    let Drive { process, tape, held, litter, temp, watch: _watch, mut connection, .. } = drive;
    // End the process tree before the cleanup and before the outcomes are reported.
    drop(process);
    let taped = tape.is_none_or(|mut t| t.finish(&connection.take_learned_secrets()));
    prepare::bring_back(&copy_back);
    for (seat, _) in &held {
        clear_away(seat);
    }
    litter.iter().for_each(Litter::clear_away);
    temp.clear_away();
    drop(private);
    for (mut seat, mut outcome) in held {
        close_sides(&mut seat).await;
        if !taped {
            outcome.warnings.push(Notice::new("tape", "the tape could not be written to its end"));
        }
        seat.link.finish(*outcome);
    }
}

/// Removes files of the run that would harm the user's sessions.
fn clear_away(seat: &Seat) {
    for file in seat.follower.leftovers() {
        // The file may be gone already.
        let _ = std::fs::remove_file(file);
    }
}

/// Stops the servers of the run.
async fn close_sides(seat: &mut Seat) {
    seat.keep.clear();
    if let Some(sides) = seat.closing.take() {
        sides.close().await;
    }
}

impl Drive {
    fn now(&self) -> Millis {
        Millis::try_from(self.begun.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    fn feed(&mut self, what: What<'_>) {
        let at = self.now();
        self.take(&Input { at, what });
    }

    /// Writes an input to the tape, then passes it to the connection.
    fn take(&mut self, input: &Input<'_>) {
        if let Some(tape) = &mut self.tape {
            tape.input(input);
        }
        self.connection.take(input, &mut self.outputs);
        for output in self.outputs.drain(..) {
            match output {
                Output::Event(run, record) => {
                    if let Some(seat) = self.seats.get_mut(&run) {
                        if matches!(record.event, Event::Started(_)) {
                            // Processes that exist before the prompt belong to the agent, not to this run.
                            seat.census = self.sweeper.as_ref().map(Sweeper::census);
                            seat.started = true;
                            self.integrity.settle();
                        }
                        seat.pending.push(record);
                    }
                }
                other => self.wanted.push(other),
            }
        }
    }

    /// Adds a run to the process.
    fn board(&mut self, boarding: Boarding) {
        if !self.connection.vacant() {
            let why = self.connection.broken();
            return refuse(boarding, why.as_ref().or(self.gone.get()));
        }
        if let Some(change) = self.integrity.change() {
            refuse(boarding, Some(self.gone.get_or_init(|| Failure::tampered(&change))));
            return self.feed(What::Retire);
        }
        let Boarding { order, mut seat } = boarding;
        self.last_run += 1;
        let run = RunId(self.last_run);
        if let Some(mut lines) = seat.sides.take() {
            let sides = self.sides.0.clone();
            tokio::spawn(async move {
                while let Some(line) = lines.recv().await {
                    if sides.send((run, line)).is_err() {
                        return;
                    }
                }
            });
        }
        if !order.hosted.is_empty() {
            let (sides, time) = (self.sides.0.clone(), Duration::from_millis(order.clocks.startup));
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let line =
                    serde_json::json!({"unlisted": format!("the agent did not list them within {time:?}")});
                let _ = sides.send((run, line.to_string()));
            });
        }
        if let Want::Open(session) = &order.session {
            // Content that the session had before does not belong to this run.
            seat.follower.remember(session);
        }
        let notices = std::mem::take(&mut seat.notices);
        let clocks = &order.clocks;
        let time = clocks.deadline.unwrap_or(clocks.run).min(clocks.run.saturating_sub(clocks.spent));
        self.watch.add(&order.who, later(Instant::now(), time), seat.link.finisher());
        self.seats.insert(run, seat);
        self.hide();
        if let Some(tape) = &mut self.tape {
            // The tokens of a run's servers are created after the tape.
            tape.hide(Veil::new(
                self.secrets.iter().chain(self.seats.values().flat_map(|seat| &seat.secrets)),
            ));
        }
        self.feed(What::Prompt { run, order: Box::new(order) });
        for notice in notices {
            self.feed(What::Notice { run, notice });
        }
        // A cancellation that arrived before the run was added has already used up its wake-up.
        self.look_at_links();
    }

    /// Updates the set of redacted secrets.
    fn hide(&mut self) {
        let all = self.secrets.iter().chain(self.seats.values().flat_map(|seat| &seat.secrets));
        let all: BTreeSet<String> = all.cloned().collect();
        if all != self.hidden {
            self.connection.set_veil(Veil::new(&all));
            self.hidden = all;
        }
    }

    fn tell_state(&self) {
        let (seats, served, closed) = (self.seats.len(), self.last_run, !self.connection.vacant());
        let opening = self.seats.values().filter(|seat| !seat.started).count();
        self.state.send_if_modified(|state| {
            let next = (seats, opening, served, closed);
            let before = (state.seats, state.opening, state.served, state.closed);
            (state.seats, state.opening, state.served, state.closed) = next;
            before != next
        });
    }

    /// Returns when the next timer of the connection expires.
    fn next_wake(&self) -> Option<Instant> {
        self.connection.deadline().map(|ms| later(self.begun, ms))
    }

    /// Returns whether a slow consumer prevents reading more of the agent's output.
    fn is_blocked(&self) -> bool {
        let alone = self.seats.len() == 1;
        self.seats
            .values()
            .any(|seat| !seat.pending.is_empty() && (alone || seat.pending.len() > MOST_PENDING))
    }

    /// Cancels the runs whose handle requests it. `hand_out` serves the consumers that made room.
    fn look_at_links(&mut self) {
        let stops: Vec<(RunId, i32)> =
            self.seats.iter().filter_map(|(run, seat)| Some((*run, seat.link.stop()?))).collect();
        for (run, signal) in stops {
            self.feed(What::Cancel { run, signal });
        }
    }

    fn hand_out(&mut self) {
        for seat in self.seats.values_mut() {
            if !seat.pending.is_empty() && !seat.link.is_full() {
                seat.link.send(std::mem::take(&mut seat.pending));
            }
        }
    }

    /// Splits bytes of one stream into lines and passes them to the connection.
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

    /// Handles a line of agentline's tools and relays. On surfaces other than ACP, only server errors are reported, as
    /// warnings.
    fn tool_line(&mut self, run: RunId, line: String) {
        if self.sweeper.is_some() {
            return self.side_line(run, Side::ToolHost, line);
        }
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let (Some(server), Some(error)) = (told["server"].as_str(), told["error"].as_str()) {
            let message = format!("the MCP server `{server}` does not work: {error}");
            self.feed(What::Notice { run, notice: Notice::new("mcp_server", message) });
        }
    }

    fn side_line(&mut self, run: RunId, side: Side, text: String) {
        self.feed(What::Line { stream: Stream::Side(run, side), text: Cow::Owned(text) });
    }

    fn follows(&self) -> bool {
        self.seats.values().any(|seat| seat.follower.is_on())
    }

    fn look_at_files(&mut self) {
        self.next_look = Instant::now() + PACE;
        let mut found = Vec::new();
        for (run, seat) in &mut self.seats {
            found.extend(seat.follower.look_now().into_iter().map(|line| (*run, line)));
        }
        for (run, line) in found {
            self.side_line(run, Side::SessionFile, line);
        }
    }

    /// Carries out the outputs of the connection and hands out pending events.
    fn act(&mut self) {
        while !self.wanted.is_empty() {
            for output in std::mem::take(&mut self.wanted) {
                self.do_one(output);
            }
        }
        self.hand_out();
    }

    fn do_one(&mut self, output: Output) {
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
            Output::Follow(run, Side::SessionFile, session) => {
                if !self.follows() {
                    // The file contains nothing of the run yet.
                    self.next_look = Instant::now() + PACE;
                }
                if let Some(seat) = self.seats.get_mut(&run) {
                    seat.follower.start(&session);
                }
            }
            Output::Ask(run, ask, Ask::Settle { reported }) => self.settle(run, ask, reported),
            Output::Ask(run, ask, question) => {
                let Some(seat) = self.seats.get(&run) else { return };
                let otherwise = lost_answer(&question);
                let task = self.asks.tasks.spawn((seat.answers)(question));
                self.asks.open.insert(task.id(), Open { run, ask, otherwise, task });
            }
            Output::Withdraw(ask) => {
                for open in self.asks.open.values().filter(|open| open.ask == ask) {
                    open.task.abort();
                }
            }
            Output::Ready => self.state.send_modify(|state| state.ready = true),
            Output::Done(run, outcome) => self.done(run, outcome),
            _ => {}
        }
    }

    /// Reads the session file to its end, then compares the workspace.
    fn settle(&mut self, run: RunId, ask: AskId, reported: Vec<String>) {
        let Some(seat) = self.seats.get_mut(&run) else { return };
        let before = seat.before.take();
        // With several runs on the process, a stray process cannot be attributed; such runs start none.
        let alone = self.seats.len() == 1;
        let Some(seat) = self.seats.get_mut(&run) else { return };
        let strays = self.sweeper.clone().zip(seat.census.take()).filter(|_| alone);
        for line in seat.follower.drain() {
            self.side_line(run, Side::SessionFile, line);
        }
        // Checking here that there is nothing to do is cheaper than a blocking task. Processes that the run left behind
        // may still be writing.
        if reported.is_empty()
            && strays.as_ref().is_none_or(|(sweeper, census)| sweeper.is_clean(census))
            && before.as_ref().is_none_or(Before::is_small_and_unchanged)
        {
            let mut disk = before.map_or_else(Disk::default, Before::unchanged);
            disk.tampered = self.integrity.change();
            return self.feed(What::Answer { ask, answer: Answer::Settled(disk) });
        }
        let integrity = Arc::clone(&self.integrity);
        let look = move || {
            if let Some((sweeper, census)) = strays {
                sweeper.sweep(&census);
            }
            let mut disk = before.map_or_else(Disk::default, |before| before.compare(&reported));
            disk.tampered = integrity.change();
            (Vec::new(), Answer::Settled(disk))
        };
        let task = self.asks.tasks.spawn_blocking(look);
        let otherwise = lost_answer(&Ask::Settle { reported: Vec::new() });
        self.asks.open.insert(task.id(), Open { run, ask, otherwise, task });
    }

    fn answered(&mut self, answered: Result<(Id, (Vec<Notice>, Answer)), JoinError>) {
        let (id, answer) = match answered {
            Ok((id, answer)) => (id, Some(answer)),
            Err(lost) => (lost.id(), None),
        };
        let Some(open) = self.asks.open.remove(&id) else { return };
        let (notices, answer) = answer.unwrap_or_else(|| (Vec::new(), open.otherwise));
        for notice in notices {
            self.feed(What::Notice { run: open.run, notice });
        }
        self.feed(What::Answer { ask: open.ask, answer });
    }

    /// Finishes a run: hands out its last events and reports its outcome.
    fn done(&mut self, run: RunId, mut outcome: Box<Outcome>) {
        let Some(mut seat) = self.seats.remove(&run) else { return };
        self.temp.explain_full(&mut outcome);
        self.state.send_modify(|state| state.spent.add(&outcome));
        // The last events are sent even if the consumer has no room.
        if !seat.pending.is_empty() {
            seat.link.send(std::mem::take(&mut seat.pending));
        }
        self.hide();
        if let Some(session) = outcome.session_id.as_deref().filter(|_| seat.only_opens) {
            self.litter.push(seat.follower.litter(session));
        }
        match seat.tell {
            Tell::WhenGone => self.held.push((seat, outcome)),
            Tell::AtOnce => {
                seat.keep.clear();
                clear_away(&seat);
                if seat.closing.is_none() {
                    return seat.link.finish(*outcome);
                }
                tokio::spawn(async move {
                    close_sides(&mut seat).await;
                    seat.link.finish(*outcome);
                });
            }
        }
    }
}

/// Returns the time `ms` after `moment`, or in a hundred years on overflow.
fn later(moment: Instant, ms: Millis) -> Instant {
    let time = Duration::from_millis(ms);
    moment.checked_add(time).unwrap_or_else(|| moment + Duration::from_secs(100 * 366 * 86_400))
}

/// Waits for the next deadline, or briefly if a consumer is slow.
async fn until(begun: Instant, deadline: Option<Millis>, blocked: bool) {
    let deadline = deadline.map(|ms| later(begun, ms));
    let soon = blocked.then(|| Instant::now() + SLOW_CONSUMER);
    match deadline.into_iter().chain(soon).min() {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
