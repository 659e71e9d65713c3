//! The client of the daemon: connects to it and runs prompts on it like local runs.

use crate::host::{
    daemon::{DaemonStatus, VERSION},
    messages::{Caller, Cancel, DaemonInfo, Initialize, Party, Prewarm, RunLaunched, RunParams},
};
use crate::{
    agentline::Agentline,
    api::retry,
    detect::HostEnv,
    error::Error,
    fs::bounded_lines::BoundedLines,
    pool::PoolStatus,
    resolve::{not_ready_in_time, preparation_time, stopped_before},
    run::{
        Launched, Run,
        channel::{ForwardedRun, RunItem, Wakeup, channel, forward},
    },
};
use agentline_core::{
    Event, Failure, FailureKind, Outcome, PriceTable, Problem, Problems, Record, RunInfo, RunRequest, Signal,
    Started, Verdict,
    rpc::{self, JsonRpcError, RpcMessage},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use std::{fmt, path::PathBuf, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::Instant,
};

/// How long to wait for the daemon's reply to a connection or status request.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum length of a line in bytes. Events contain lines of agents, which may be long.
const LONGEST_LINE: usize = 512 << 20;
/// How long the daemon may take to end a run that timed out or was cancelled.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(60);
/// The maximum time limit of a run, so that computing its deadline cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    lines: BoundedLines<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// The id of the last request.
    last_id: u64,
}

/// The reason why no daemon is available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoDaemon {
    /// No daemon listens on this socket.
    NotRunning(PathBuf),
    /// The daemon on this socket belongs to another user.
    NotOurs(PathBuf),
    /// The daemon on this socket does not respond.
    Silent(PathBuf),
    /// The daemon has this other version.
    OtherVersion(String),
}

impl fmt::Display for NoDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(socket) => write!(f, "no pool is running ({})", socket.display()),
            Self::NotOurs(socket) => write!(f, "the pool at {} belongs to another user", socket.display()),
            Self::Silent(socket) => write!(f, "the pool at {} does not respond", socket.display()),
            Self::OtherVersion(version) => {
                write!(
                    f,
                    "the pool has version {version}, but this is {VERSION}; stop it with `agentline pool stop`"
                )
            }
        }
    }
}

impl std::error::Error for NoDaemon {}

impl Client {
    /// Connects to the user's daemon.
    ///
    /// # Errors
    /// Fails if no daemon of the same version is available.
    pub async fn connect(host_env: &HostEnv) -> Result<Self, NoDaemon> {
        let (client, version) = Self::handshake(host_env).await?;
        if version == VERSION { Ok(client) } else { Err(NoDaemon::OtherVersion(version)) }
    }

    /// Connects to the user's daemon and returns its version, which may differ.
    async fn handshake(host_env: &HostEnv) -> Result<(Self, String), NoDaemon> {
        let socket = super::socket(host_env);
        let Ok(stream) = UnixStream::connect(&socket).await else { return Err(NoDaemon::NotRunning(socket)) };
        // Requests contain the caller's environment and with it API keys.
        if !super::is_ours(&stream) {
            return Err(NoDaemon::NotOurs(socket));
        }
        let (read, write) = stream.into_split();
        let mut client = Self { lines: BoundedLines::new(read, LONGEST_LINE), write, last_id: 0 };
        let hello = Initialize { client: Some(Party::new("agentline", VERSION)), ..Initialize::default() };
        match tokio::time::timeout(REPLY_TIMEOUT, client.call::<Greeted>("initialize", &hello)).await {
            Ok(Some(Greeted { server })) => Ok((client, server.version)),
            _ => Err(NoDaemon::Silent(socket)),
        }
    }

    /// Returns the status of the daemon.
    ///
    /// # Errors
    /// Fails if no daemon is available or it does not respond.
    pub async fn status(host_env: &HostEnv) -> Result<DaemonStatus, NoDaemon> {
        let mut client = Self::connect(host_env).await?;
        match tokio::time::timeout(REPLY_TIMEOUT, client.call("pool/status", &json!({}))).await {
            Ok(Some(StatusResponse { pool, daemon })) => Ok(DaemonStatus::new(daemon, pool)),
            _ => Err(NoDaemon::Silent(super::socket(host_env))),
        }
    }

    /// Stops the daemon, whatever its version, and waits until it and its agents have exited. Returns whether one was
    /// running.
    pub async fn stop(host_env: &HostEnv) -> bool {
        let Ok((mut client, _)) = Self::handshake(host_env).await else { return false };
        let id = client.next_id();
        if client.send(&rpc::request(id, "pool/stop", &json!({}))).await.is_err() {
            return false;
        }
        // The daemon closes the connection when it exits.
        while client.next_line().await.is_some() {}
        true
    }

    /// Runs a prompt on the daemon for the caller that `agentline` describes. Requests that a warm agent cannot serve
    /// run in this process.
    ///
    /// # Errors
    /// Fails like [`Agentline::run`], and if the connection is lost before the run has started.
    pub async fn run(self, agentline: &Agentline, mut request: RunRequest) -> Result<Run, Error> {
        if crate::pool::warm(agentline, &request).is_none() {
            return agentline.run(request).await;
        }
        let notices = std::mem::take(&mut request.notices);
        Ok(self.run_on_daemon(agentline, request).await?.with_notices(notices))
    }

    /// Prepares a warm agent for runs like this one, and returns how many runs it is ready for: none if no warm agent can
    /// serve the request.
    ///
    /// # Errors
    /// Fails if the daemon refuses the request or the connection is lost.
    pub async fn prewarm(mut self, agentline: &Agentline, request: &RunRequest) -> Result<usize, Error> {
        #[derive(Deserialize)]
        struct Ready {
            ready: usize,
        }
        let unwritable = |error| Error::io("use", "the pool")(std::io::Error::from(error));
        let lost = || Error::io("reach", "the pool")(std::io::ErrorKind::ConnectionAborted.into());
        let hello =
            Initialize { caller: Some(caller(agentline).map_err(unwritable)?), ..Initialize::default() };
        let params = Prewarm {
            runs: 1,
            request: Some(serde_json::to_value(request).map_err(unwritable)?),
            ..Prewarm::default()
        };
        let (greeting, id) = (self.next_id(), self.next_id());
        let lines = rpc::request(greeting, "initialize", &hello) + &rpc::request(id, "pool/prewarm", &params);
        self.send(&lines).await.map_err(|_| lost())?;
        loop {
            let line = self.next_line().await.ok_or_else(lost)?;
            match rpc::read(&line) {
                Some(RpcMessage::Response { result: Err(error), .. }) => return Err(refused(&error)),
                Some(RpcMessage::Response { id: of, result: Ok(result) }) if is_id(of, id) => {
                    let Ready { ready } = serde_json::from_str(result.get()).map_err(|_| lost())?;
                    return Ok(ready);
                }
                _ => {}
            }
        }
    }

    async fn run_on_daemon(mut self, agentline: &Agentline, request: RunRequest) -> Result<Run, Error> {
        let inner = agentline.inner();
        let mut info = RunInfo::of_request(&request);
        info.cwd = request.working_dir.as_ref().unwrap_or(&inner.host_env.cwd).to_string_lossy().into_owned();
        let unwritable = |error| Error::io("use", "the pool")(std::io::Error::from(error));
        let hello =
            Initialize { caller: Some(caller(agentline).map_err(unwritable)?), ..Initialize::default() };
        // Exactly what a run in this process would report.
        let params = RunParams {
            request: Some(serde_json::to_value(&request).map_err(unwritable)?),
            merge_events: Some(false),
            report_launch: true,
            max_retries: Some(0),
            ..RunParams::default()
        };
        let attempts = retry::max_attempts(&request);
        let waits = if attempts > 1 { retry::MAX_WAIT } else { Duration::ZERO };
        let time = preparation_time(&request).saturating_mul(attempts).saturating_add(waits).min(MAX_TIMEOUT);
        let lost = || Error::io("reach", "the pool")(std::io::ErrorKind::ConnectionAborted.into());
        let (greeting, id) = (self.next_id(), self.next_id());
        let lines = rpc::request(greeting, "initialize", &hello) + &rpc::request(id, "run", &params);
        self.send(&lines).await.map_err(|_| lost())?;
        let end = Instant::now() + time + SHUTDOWN_GRACE;
        let (run_id, launched) = loop {
            let line = match tokio::time::timeout_at(end, self.next_line()).await {
                Ok(line) => line.ok_or_else(lost)?,
                Err(_) => return Ok(Run::over(not_ready_in_time(&request))),
            };
            match rpc::read(&line) {
                Some(RpcMessage::Notification { method, params }) if method == "run/launched" => {
                    let RunLaunched { run_id, command, withheld, .. } =
                        serde_json::from_str(params.get()).map_err(|_| lost())?;
                    break (run_id, Launched { command, withheld });
                }
                Some(RpcMessage::Response { result: Err(error), .. }) => return Err(refused(&error)),
                // A run that could not start has only an outcome.
                Some(RpcMessage::Response { id: of, result: Ok(result) }) if is_id(of, id) => {
                    return outcome(result).map(Run::over).ok_or_else(lost);
                }
                _ => {}
            }
        };
        let (sender, receiver) = channel(Wakeup::default());
        info.run_id.clone_from(&run_id);
        let mut run = RemoteRun { client: self, id, info, session: None, stopped: None, end, is_lost: false };
        tokio::spawn(async move {
            // The run always has an outcome.
            if let Some(outcome) = forward(&mut run, &sender).await {
                sender.finish(*outcome);
            }
        });
        Ok(Run::new(run_id, receiver, launched))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends a request and returns its result; `None` if the daemon refuses it or does not respond.
    async fn call<T: DeserializeOwned>(&mut self, method: &str, params: &impl Serialize) -> Option<T> {
        let id = self.next_id();
        self.send(&rpc::request(id, method, params)).await.ok()?;
        loop {
            let line = self.next_line().await?;
            // Only a daemon of this protocol responds with messages.
            if let RpcMessage::Response { id: of, result } = rpc::read(&line)?
                && is_id(of, id)
            {
                return serde_json::from_str(result.ok()?.get()).ok();
            }
        }
    }

    async fn next_line(&mut self) -> Option<String> {
        String::from_utf8(self.lines.next().await.ok()??.whole()?).ok()
    }

    async fn send(&mut self, lines: &str) -> std::io::Result<()> {
        self.write.write_all(lines.as_bytes()).await
    }
}

/// The part of the response to `initialize` that every version has.
#[derive(Deserialize)]
struct Greeted {
    server: Party,
}

/// The response to `pool/status`.
#[derive(Deserialize)]
struct StatusResponse {
    pool: PoolStatus,
    daemon: DaemonInfo,
}

/// A run of this process on the daemon.
struct RemoteRun {
    client: Client,
    /// The id of the request, which is also the name of the run.
    id: u64,
    info: RunInfo,
    session: Option<String>,
    stopped: Option<Signal>,
    /// When the daemon must have ended the run.
    end: Instant,
    is_lost: bool,
}

impl ForwardedRun for RemoteRun {
    // The time limit applies only while this is polled: not while the local reader is slow.
    async fn next(&mut self) -> RunItem {
        while !self.is_lost {
            let line = match tokio::time::timeout_at(self.end, self.client.next_line()).await {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(_) => {
                    let outcome = silent_pool(&self.info, self.session.take(), self.stopped);
                    return RunItem::Over(Some(Box::new(outcome)));
                }
            };
            if let Some(item) = self.take(&line) {
                return item;
            }
        }
        let failure = Failure::new(FailureKind::Crashed, "lost the connection to the pool during the run")
            .hint("retry; check the pool with `agentline pool status`");
        let mut outcome = Outcome::not_started(&self.info, Verdict::Failed, failure);
        outcome.session_id = self.session.take();
        RunItem::Over(Some(Box::new(outcome)))
    }

    async fn cancel(&mut self, signal: Signal) {
        self.stopped = Some(signal);
        self.end = self.end.min(Instant::now() + SHUTDOWN_GRACE);
        let mut cancel = Cancel::default();
        (cancel.run, cancel.signal) = (self.id.to_string(), Some(signal.number()));
        self.is_lost = self.client.send(&rpc::notification("cancel", &cancel)).await.is_err();
    }

    fn pass(&mut self, batch: Vec<Record>) -> Vec<Record> {
        batch
    }
}

impl RemoteRun {
    /// Handles a message from the daemon.
    fn take(&mut self, line: &str) -> Option<RunItem> {
        #[derive(Deserialize)]
        struct EventParams<'a> {
            #[serde(borrow)]
            event: &'a RawValue,
        }
        match rpc::read(line)? {
            RpcMessage::Notification { method, params } if method == "run/event" => {
                let params: EventParams<'_> = serde_json::from_str(params.get()).ok()?;
                let record = Record::from_line(params.event.get())?;
                if let Event::Started(started) = &record.event {
                    self.session.clone_from(&started.session_id);
                    self.info = run_info(started);
                }
                Some(RunItem::Batch(vec![record]))
            }
            RpcMessage::Response { id, result } if is_id(id, self.id) => {
                self.is_lost = true;
                Some(RunItem::Over(Some(Box::new(outcome(result.ok()?)?))))
            }
            _ => None,
        }
    }
}

/// Describes the caller to the daemon.
fn caller(agentline: &Agentline) -> Result<Caller, serde_json::Error> {
    let inner = agentline.inner();
    let host_env = inner.host_env.clone();
    let mut caller = Caller::default();
    (caller.env, caller.home, caller.cwd) = (host_env.env, host_env.home, host_env.cwd);
    (caller.project, caller.cache) = (host_env.project, host_env.cache);
    caller.programs = inner.programs.iter().map(|(agent, path)| (agent.to_string(), path.clone())).collect();
    if let Value::Object(agents) = serde_json::to_value(inner.registry.settings())? {
        caller.agents = agents;
    }
    if *inner.prices != PriceTable::built_in() {
        caller.prices = serde_json::to_value(&*inner.prices)?;
    }
    caller.isolation = serde_json::to_value(inner.isolation)?;
    Ok(caller)
}

fn is_id(id: &RawValue, number: u64) -> bool {
    id.get().parse() == Ok(number)
}

/// Reads the outcome of a run.
fn outcome(result: &RawValue) -> Option<Outcome> {
    serde_json::from_str(result.get()).ok()
}

/// Returns the error of a run that the daemon refused.
fn refused(error: &JsonRpcError<'_>) -> Error {
    #[derive(Deserialize)]
    struct Data {
        problems: Vec<Problem>,
    }
    match error.data.and_then(|data| serde_json::from_str(data.get()).ok()) {
        Some(Data { problems }) => Problems(problems).into(),
        None => Error::io("use", "the pool")(std::io::Error::other(error.message.clone().into_owned())),
    }
}

/// Returns the outcome of a run that the daemon did not end in time.
fn silent_pool(info: &RunInfo, session: Option<String>, stopped: Option<Signal>) -> Outcome {
    let hint = "stop the pool with `agentline pool stop`; the next run starts its own agent";
    let mut outcome = match stopped {
        Some(signal) => stopped_before(info, signal),
        None => {
            let failure =
                Failure::new(FailureKind::TimeoutRun, "the pool did not end the run within its timeout")
                    .hint(hint);
            Outcome::not_started(info, Verdict::TimedOut, failure)
        }
    };
    outcome.session_id = session;
    outcome
}

/// Returns the run information that the `started` event reports.
fn run_info(started: &Started) -> RunInfo {
    let started = started.clone();
    let mut info = RunInfo::default();
    (info.run_id, info.agent, info.cwd) = (started.run_id, started.agent, started.cwd);
    (info.agent_version, info.surface) = (started.agent_version, started.surface);
    (info.model, info.name) = (started.model, started.name);
    info
}
