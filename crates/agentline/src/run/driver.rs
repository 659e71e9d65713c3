//! The event loop of a process: passes every input to the connection and carries out its outputs.

mod changes;
mod routed;

use crate::{
    process::{Process, ProcessEvent, ProcessSignal, StdStream, Sweeper, temp_dir::ProcessTemp},
    resolve::{integrity::Integrity, materialize},
    run::{
        abandoned_session::AbandonedSession,
        active_run::{
            ActiveRun, CompletionTiming, Submission, UnavailableReason, exit_failure, lost_answer, refuse,
            remove_leftovers,
        },
        channel::Wakeup,
        client_port::{ClientPort, next_message},
        conversion::{into_core, line, stream},
        spawned_process::{ProcessLoad, SpawnedProcess},
        tape_file::TapeFile,
        watchdog::LoopWatch,
    },
};
use agentline_core::{
    Connection, ConnectionOutput, Failure, HostRequest, HostRequestId, HostResponse, Input, InputKind,
    LineSplitter, Millis, Notice, Outcome, Redactor, RunId, SessionTarget, ShutdownStep, SideChannel, Signal,
    Stream,
};
use routed::RoutedOutputs;
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
const MAX_PENDING: usize = 50_000;
/// The largest number of events for which memory is reserved in advance.
const MAX_RESERVED: usize = 1024;
/// How often session files are read. The tokens of a turn are in the file about 60 ms after the turn.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time limit for the cleanup after a process has exited.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after closing its stdout an agent may take to exit before it counts as silent.
const EXIT_GRACE: Duration = Duration::from_millis(300);
/// A line from the host's own tools, with its run.
type SideLine = (RunId, String);

/// The state of the loop.
struct Driver {
    connection: Connection,
    process: Process,
    /// The client of the agent, if it has one.
    client: Option<ClientPort>,
    watch: LoopWatch,
    /// Ends the processes that a run left behind, if the agent's process outlives its runs.
    sweeper: Option<Sweeper>,
    integrity: Arc<Integrity>,
    secrets: Vec<String>,
    /// The secrets that are currently redacted.
    hidden: BTreeSet<String>,
    tape: Option<TapeFile>,
    started_at: Instant,
    wakeup: Wakeup,
    active_runs: BTreeMap<RunId, ActiveRun>,
    /// Finished runs whose outcome is reported when the process has exited.
    finished_runs: Vec<(ActiveRun, Box<Outcome>)>,
    last_run: u32,
    /// Outputs of the connection that are still to be carried out.
    pending_outputs: Vec<ConnectionOutput>,
    requests: OpenRequests,
    tool_lines: (UnboundedSender<SideLine>, UnboundedReceiver<SideLine>),
    state: watch::Sender<ProcessLoad>,
    unavailable: UnavailableReason,
    next_look: Instant,
    /// Sessions that may turn out to be unused.
    abandoned: Vec<AbandonedSession>,
    temp: ProcessTemp,
}

/// Requests from the agent that are being answered.
#[derive(Default)]
struct OpenRequests {
    tasks: JoinSet<(Vec<Notice>, HostResponse)>,
    open: HashMap<Id, Open>,
}

struct Open {
    run: RunId,
    ask: HostRequestId,
    /// The answer if the task panics or is cancelled.
    otherwise: HostResponse,
    task: AbortHandle,
}

/// Drives a process to its end.
pub(crate) async fn driver(live: SpawnedProcess) {
    let SpawnedProcess {
        process,
        mut client,
        connection,
        secrets,
        tape,
        max_line,
        started_at,
        private,
        integrity,
        copy_back,
        mut submissions,
        wakeup,
        state,
        unavailable,
        lives_on,
        abandoned,
        temp,
    } = live;
    let mut from_client = client.as_mut().and_then(|client| client.from_client.take());
    // A client expects that what a prompt has started, such as a server, lives as long as the agent.
    let sweeper = (lives_on && client.is_none()).then(|| process.sweeper());
    let mut driver = Driver {
        connection,
        watch: LoopWatch::new(process.killer()),
        process,
        client,
        sweeper,
        integrity,
        hidden: secrets.iter().cloned().collect(),
        secrets,
        tape,
        started_at,
        wakeup,
        active_runs: BTreeMap::new(),
        finished_runs: Vec::new(),
        last_run: 0,
        pending_outputs: Vec::new(),
        requests: OpenRequests::default(),
        tool_lines: unbounded_channel(),
        state,
        unavailable: UnavailableReason::clone(&unavailable),
        next_look: started_at,
        abandoned: abandoned.into_iter().collect(),
        temp,
    };
    let mut splitters = [LineSplitter::new(max_line), LineSplitter::new(max_line)];
    let mut messages = LineSplitter::new(max_line);
    let serves_http = driver.process.serves_http();
    let mut bytes = Vec::new();
    let (mut exited, mut open) = (false, true);
    let mut mute: Option<Instant> = None;

    driver.feed(InputKind::Started);
    driver.apply_outputs();
    // The starter of a process submits a run, unless there is a client. Take it first, even if the agent exits immediately.
    if driver.client.is_none() {
        match submissions.recv().await {
            Some(first) => driver.add_run(first),
            None => {
                open = false;
                driver.feed(InputKind::Retire);
            }
        }
        driver.apply_outputs();
    }

    while !(driver.connection.is_finished() && driver.active_runs.is_empty()) {
        let (blocked, is_full) = (driver.is_blocked(), driver.client.is_some() && driver.process.is_full());
        driver.watch.progressed(driver.next_wake());
        let wakeup = driver.wakeup.clone();
        tokio::select! {
            biased;
            // A message that cancels a prompt precedes the cancellation of its run.
            message = next_message(&mut from_client), if !is_full => {
                driver.feed(InputKind::ClientMessage { text: message.into() });
            }
            () = wakeup.notified() => driver.cancel_requested_runs(),
            answered = driver.requests.tasks.join_next_with_id(), if !driver.requests.tasks.is_empty() => {
                if let Some(answered) = answered {
                    driver.answered(answered);
                }
            }
            next = submissions.recv(), if open => match next {
                Some(next) => driver.add_run(next),
                None => {
                    open = false;
                    driver.feed(InputKind::Retire);
                }
            },
            Some((run, line)) = driver.tool_lines.1.recv(), if !blocked => driver.tool_line(run, line),
            () = tokio::time::sleep_until(driver.next_look.into()), if !blocked && driver.follows() => driver.poll_session_files(),
            event = driver.process.next(&mut bytes), if !blocked && !exited => match event {
                // End of stdout: usually the agent is about to exit.
                ProcessEvent::Bytes(StdStream::Out) if bytes.is_empty() => mute = Some(Instant::now() + EXIT_GRACE),
                ProcessEvent::Bytes(from) => {
                    let splitter = &mut splitters[usize::from(from == StdStream::Err)];
                    driver.lines(splitter, stream(from, serves_http), &bytes);
                    bytes.clear();
                }
                ProcessEvent::Message => {
                    driver.lines(&mut messages, Stream::Stdout, &bytes);
                    bytes.clear();
                }
                ProcessEvent::Exit(exit) => {
                    exited = true;
                    for (splitter, from) in splitters.iter_mut().zip([StdStream::Out, StdStream::Err]) {
                        driver.last_line(splitter, stream(from, serves_http));
                    }
                    let exit = into_core(exit);
                    let _ = unavailable.set(driver.connection.broken().unwrap_or_else(|| exit_failure(exit)));
                    driver.feed(InputKind::Exit(exit));
                }
            },
            () = tokio::time::sleep_until(mute.unwrap_or(driver.started_at).into()), if mute.is_some() && !exited => {
                mute = None;
                driver.feed(InputKind::StdoutClosed);
            }
            // The agent may have read something.
            () = tokio::time::sleep(SLOW_CONSUMER), if is_full => {}
            () = until(driver.started_at, driver.connection.deadline(), blocked) => {
                // While a consumer is slow, unread output counts as activity of the agent.
                if blocked && driver.process.unread() {
                    driver.feed(InputKind::Activity { stream: Stream::Stdout });
                } else {
                    driver.feed(InputKind::Tick);
                }
            }
        }
        driver.apply_outputs();
        driver.publish_state();
    }
    driver.state.send_modify(|state| state.closed = true);
    driver.watch.progressed(Some(Instant::now() + CLEANUP_TIMEOUT));
    // Refuse runs that were submitted too late.
    submissions.close();
    while let Ok(late) = submissions.try_recv() {
        refuse(late, unavailable.get());
    }
    let Driver { process, tape, finished_runs, abandoned, temp, watch: _watch, mut connection, .. } = driver;
    // End the process tree before the cleanup and before the outcomes are reported.
    drop(process);
    let taped = tape.is_none_or(|mut t| t.finish(&connection.take_learned_secrets()));
    materialize::copy_back_files(&copy_back);
    for (active_run, _) in &finished_runs {
        remove_leftovers(active_run);
    }
    abandoned.iter().for_each(AbandonedSession::remove_leftovers);
    temp.remove_leftovers();
    drop(private);
    for (mut active_run, mut outcome) in finished_runs {
        close_tool_server(&mut active_run).await;
        if !taped {
            outcome
                .warnings
                .push(Notice::new("tape", "the tape is incomplete, because it could not be written"));
        }
        active_run.channel.finish(*outcome);
    }
}

/// Stops the servers of the run.
async fn close_tool_server(active_run: &mut ActiveRun) {
    active_run.keep.clear();
    if let Some(tool_server) = active_run.exclusive_tool_server.take() {
        tool_server.close().await;
    }
}

impl Driver {
    fn now(&self) -> Millis {
        Millis::try_from(self.started_at.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    fn feed(&mut self, kind: InputKind<'_>) {
        let at = self.now();
        self.take(&Input { at, kind });
    }

    /// Writes an input to the tape, then passes it to the connection.
    fn take(&mut self, input: &Input<'_>) {
        if let Some(tape) = &mut self.tape {
            tape.input(input);
        }
        let mut outputs = RoutedOutputs {
            active_runs: &mut self.active_runs,
            sweeper: self.sweeper.as_ref(),
            integrity: &self.integrity,
            pending: &mut self.pending_outputs,
        };
        self.connection.take(input, &mut outputs);
    }

    /// Adds a run to the process.
    fn add_run(&mut self, submission: Submission) {
        if !self.connection.vacant() {
            let failure = self.connection.broken();
            return refuse(submission, failure.as_ref().or(self.unavailable.get()));
        }
        if let Some(change) = self.integrity.change() {
            refuse(submission, Some(self.unavailable.get_or_init(|| Failure::tampered(&change))));
            return self.feed(InputKind::Retire);
        }
        let Submission { spec, mut active_run } = submission;
        self.last_run += 1;
        let run = RunId(self.last_run);
        if let Some(mut lines) = active_run.tool_lines.take() {
            let tool_lines = self.tool_lines.0.clone();
            tokio::spawn(async move {
                while let Some(line) = lines.recv().await {
                    if tool_lines.send((run, line)).is_err() {
                        return;
                    }
                }
            });
        }
        if !spec.hosted.is_empty() {
            let (tool_lines, time) =
                (self.tool_lines.0.clone(), Duration::from_millis(spec.timeouts.startup));
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let line =
                    serde_json::json!({"unlisted": format!("the agent did not list them within {time:?}")});
                let _ = tool_lines.send((run, line.to_string()));
            });
        }
        if let SessionTarget::Open(session) = &spec.session {
            // Content that the session had before does not belong to this run.
            active_run.follower.remember(session);
        }
        let notices = std::mem::take(&mut active_run.notices);
        let timeouts = &spec.timeouts;
        let time = timeouts.deadline.unwrap_or(timeouts.run).min(timeouts.run.saturating_sub(timeouts.spent));
        self.watch.add(&spec.info, later(Instant::now(), time), active_run.channel.finisher());
        self.active_runs.insert(run, active_run);
        self.update_redactor();
        if let Some(tape) = &mut self.tape {
            // The tokens of a run's servers are created after the tape.
            tape.set_redactor(Redactor::new(
                self.secrets
                    .iter()
                    .chain(self.active_runs.values().flat_map(|active_run| &active_run.secrets)),
            ));
        }
        self.feed(InputKind::Prompt { run, spec: Box::new(spec) });
        for notice in notices {
            self.feed(InputKind::Notice { run, notice });
        }
        // A cancellation that arrived before the run was added has already used up its wake-up.
        self.cancel_requested_runs();
    }

    /// Updates the set of redacted secrets.
    fn update_redactor(&mut self) {
        let all =
            self.secrets.iter().chain(self.active_runs.values().flat_map(|active_run| &active_run.secrets));
        let all: BTreeSet<String> = all.cloned().collect();
        if all != self.hidden {
            self.connection.set_redactor(Redactor::new(&all));
            self.hidden = all;
        }
    }

    fn publish_state(&self) {
        let (active_runs, served, closed) =
            (self.active_runs.len(), self.last_run, !self.connection.is_open());
        self.state.send_if_modified(|state| {
            let next = (active_runs, served, closed);
            let before = (state.active_runs, state.served, state.closed);
            (state.active_runs, state.served, state.closed) = next;
            before != next
        });
    }

    /// Returns when the next timer of the connection expires.
    fn next_wake(&self) -> Option<Instant> {
        self.connection.deadline().map(|ms| later(self.started_at, ms))
    }

    /// Returns whether a slow consumer prevents reading more of the agent's output.
    fn is_blocked(&self) -> bool {
        if self.client.as_ref().is_some_and(ClientPort::is_full) {
            return true;
        }
        let alone = self.active_runs.len() == 1;
        self.active_runs.values().any(|active_run| {
            !active_run.pending.is_empty() && (alone || active_run.pending.len() > MAX_PENDING)
        })
    }

    /// Cancels the runs whose handle requests it. `deliver_events` serves the consumers that made room.
    fn cancel_requested_runs(&mut self) {
        let stops: Vec<(RunId, Signal)> = self
            .active_runs
            .iter()
            .filter_map(|(run, active_run)| Some((*run, active_run.channel.stop()?)))
            .collect();
        for (run, signal) in stops {
            self.feed(InputKind::Cancel { run, signal });
        }
    }

    fn deliver_events(&mut self) {
        for active_run in self.active_runs.values_mut() {
            if !active_run.pending.is_empty() && !active_run.channel.is_full() {
                // A list of the same size spares its growth, which would move the events again.
                let next = Vec::with_capacity(active_run.pending.len().min(MAX_RESERVED));
                active_run.channel.send(std::mem::replace(&mut active_run.pending, next));
            }
        }
    }

    /// Splits bytes of one stream into lines and passes them to the connection.
    fn lines(&mut self, splitter: &mut LineSplitter, stream: Stream, bytes: &[u8]) {
        let at = self.now();
        let before = splitter.partial();
        let mut whole = false;
        splitter.push(bytes, |piece| {
            whole = true;
            self.take(&Input { at, kind: line(stream, piece) });
        });
        if !whole && splitter.partial() > before {
            self.feed(InputKind::Activity { stream });
        }
    }

    fn last_line(&mut self, splitter: &mut LineSplitter, stream: Stream) {
        let at = self.now();
        splitter.finish(|piece| self.take(&Input { at, kind: line(stream, piece) }));
    }

    /// Handles a line of agentline's tools and relays. On surfaces other than ACP, only server errors are reported, as
    /// warnings.
    fn tool_line(&mut self, run: RunId, line: String) {
        let report: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if self.sweeper.is_some() {
            self.side_line(run, SideChannel::ToolHost, line);
            if let (Some(tool), Some(reason)) = (report["stop"].as_str(), report["reason"].as_str()) {
                let message = format!("the tool `{tool}` ended the run: {reason}");
                self.feed(InputKind::Notice { run, notice: Notice::new("stopped_by_tool", message) });
                self.feed(InputKind::Cancel { run, signal: Signal::Interrupt });
            }
            return;
        }
        if let (Some(server), Some(error)) = (report["server"].as_str(), report["error"].as_str()) {
            let message = format!("MCP server `{server}` failed: {error}");
            self.feed(InputKind::Notice { run, notice: Notice::new("mcp_server", message) });
        }
    }

    fn side_line(&mut self, run: RunId, side: SideChannel, text: String) {
        self.feed(InputKind::Line { stream: Stream::Side(run, side), text: Cow::Owned(text) });
    }

    fn follows(&self) -> bool {
        self.active_runs.values().any(|active_run| active_run.follower.is_on())
    }

    fn poll_session_files(&mut self) {
        self.next_look = Instant::now() + FILE_POLL_INTERVAL;
        let mut found = Vec::new();
        for (run, active_run) in &mut self.active_runs {
            found.extend(active_run.follower.read_new().into_iter().map(|line| (*run, line)));
        }
        for (run, line) in found {
            self.side_line(run, SideChannel::SessionFile, line);
        }
    }

    /// Carries out the outputs of the connection and delivers pending events.
    fn apply_outputs(&mut self) {
        while !self.pending_outputs.is_empty() {
            for output in std::mem::take(&mut self.pending_outputs) {
                self.apply_output(output);
            }
        }
        self.deliver_events();
    }

    fn apply_output(&mut self, output: ConnectionOutput) {
        match output {
            ConnectionOutput::Frame(frame) => {
                let at = self.now();
                if let Some(tape) = &mut self.tape {
                    tape.frame(at, &frame);
                }
                self.process.write(frame.into_bytes());
            }
            ConnectionOutput::ClientMessage(message) => {
                let at = self.now();
                if let Some(tape) = &mut self.tape {
                    tape.client_message(at, &message);
                }
                if let Some(client) = &self.client {
                    client.send(message);
                }
            }
            ConnectionOutput::Close(shutdown_step) => match shutdown_step {
                ShutdownStep::CloseStdin => self.process.close_stdin(),
                ShutdownStep::Interrupt => self.process.signal(ProcessSignal::Interrupt),
                ShutdownStep::Terminate => self.process.signal(ProcessSignal::Terminate),
                _ => self.process.signal(ProcessSignal::KillTree),
            },
            ConnectionOutput::Follow(run, SideChannel::SessionFile, session) => {
                if !self.follows() {
                    // The file has no records of the run yet.
                    self.next_look = Instant::now() + FILE_POLL_INTERVAL;
                }
                if let Some(active_run) = self.active_runs.get_mut(&run) {
                    active_run.follower.start(&session);
                }
            }
            ConnectionOutput::Ask(run, ask, HostRequest::CollectChanges { reported, edits }) => {
                self.collect_changes(run, ask, reported, edits)
            }
            ConnectionOutput::Ask(run, ask, question) => {
                let Some(active_run) = self.active_runs.get(&run) else { return };
                let otherwise = lost_answer(&question);
                let redactor = self.connection.redactor().clone();
                let task = self.requests.tasks.spawn((active_run.answers)(question, redactor));
                self.requests.open.insert(task.id(), Open { run, ask, otherwise, task });
            }
            ConnectionOutput::Withdraw(ask) => {
                for open in self.requests.open.values().filter(|open| open.ask == ask) {
                    open.task.abort();
                }
            }
            ConnectionOutput::Ready => self.state.send_modify(|state| state.ready = true),
            ConnectionOutput::Done(run, outcome) => self.done(run, outcome),
            _ => {}
        }
    }

    fn answered(&mut self, answered: Result<(Id, (Vec<Notice>, HostResponse)), JoinError>) {
        let (id, answer) = match answered {
            Ok((id, answer)) => (id, Some(answer)),
            Err(lost) => (lost.id(), None),
        };
        let Some(open) = self.requests.open.remove(&id) else { return };
        let (notices, answer) = answer.unwrap_or_else(|| (Vec::new(), open.otherwise));
        for notice in notices {
            self.feed(InputKind::Notice { run: open.run, notice });
        }
        self.feed(InputKind::Answer { ask: open.ask, answer });
    }

    /// Finishes a run: delivers its last events and reports its outcome.
    fn done(&mut self, run: RunId, mut outcome: Box<Outcome>) {
        let Some(mut active_run) = self.active_runs.remove(&run) else { return };
        self.temp.explain_full(&mut outcome);
        active_run.span.ended(&outcome);
        self.state.send_modify(|state| state.spent.add(&outcome));
        // The last events are sent even if the consumer has no room.
        if !active_run.pending.is_empty() {
            active_run.channel.send(std::mem::take(&mut active_run.pending));
        }
        self.update_redactor();
        if let Some(session) = outcome.session_id.as_deref().filter(|_| active_run.only_opens) {
            self.abandoned.push(active_run.follower.abandoned(session));
        }
        match active_run.completion {
            CompletionTiming::AfterExit => self.finished_runs.push((active_run, outcome)),
            CompletionTiming::AtOnce => {
                active_run.keep.clear();
                remove_leftovers(&active_run);
                if active_run.exclusive_tool_server.is_none() {
                    return active_run.channel.finish(*outcome);
                }
                tokio::spawn(async move {
                    close_tool_server(&mut active_run).await;
                    active_run.channel.finish(*outcome);
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
async fn until(started_at: Instant, deadline: Option<Millis>, blocked: bool) {
    let deadline = deadline.map(|ms| later(started_at, ms));
    let soon = blocked.then(|| Instant::now() + SLOW_CONSUMER);
    match deadline.into_iter().chain(soon).min() {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
