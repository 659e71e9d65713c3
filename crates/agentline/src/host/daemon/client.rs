//! The client of the daemon: connects to it and runs prompts on it like local runs.

use crate::host::daemon::messages::{DaemonRun, DaemonStatus, FromDaemon, ToDaemon, VERSION};
use crate::{
    agentline::Agentline,
    detect::HostEnv,
    error::Error,
    fs::bounded_lines::BoundedLines,
    resolve::{not_ready_in_time, preparation_time, stopped_before},
    run::{
        Run,
        channel::{RunSender, Wakeup, channel},
    },
};
use agentline_core::{
    Event, Failure, FailureKind, Outcome, PriceTable, Problems, Record, RunInfo, RunRequest, Signal, Started,
    Verdict,
};
use std::{fmt, path::PathBuf, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::Instant,
};

/// How long to wait for a reply of the daemon to a connection or status request.
const GREETING: Duration = Duration::from_secs(2);

/// The maximum length of a line in bytes. Events contain lines of agents, which may be long.
const LONGEST_LINE: usize = 512 << 20;
/// How long the daemon may take to end a run that timed out or was cancelled.
const GRACE: Duration = Duration::from_secs(60);
/// The maximum time limit of a run, so that computing its deadline cannot overflow.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    lines: BoundedLines<OwnedReadHalf>,
    write: OwnedWriteHalf,
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

impl Client {
    /// Connects to the user's daemon.
    ///
    /// # Errors
    /// Fails if no daemon of the same version is available.
    pub async fn connect(host_env: &HostEnv) -> Result<Self, NoDaemon> {
        let (client, version) = Self::greet(host_env).await?;
        if version == VERSION { Ok(client) } else { Err(NoDaemon::OtherVersion(version)) }
    }

    /// Connects to the user's daemon and returns its version, which may differ.
    async fn greet(host_env: &HostEnv) -> Result<(Self, String), NoDaemon> {
        let socket = super::socket(host_env);
        let silent = || NoDaemon::Silent(socket.clone());
        let Ok(stream) = UnixStream::connect(&socket).await else { return Err(NoDaemon::NotRunning(socket)) };
        // The request contains the caller's environment and with it API keys.
        if !super::is_ours(&stream) {
            return Err(NoDaemon::NotOurs(socket));
        }
        let (read, write) = stream.into_split();
        let mut client = Self { lines: BoundedLines::new(read, LONGEST_LINE), write };
        match tokio::time::timeout(GREETING, client.hear()).await {
            Ok(Some(FromDaemon::Hello { version, .. })) => Ok((client, version)),
            _ => Err(silent()),
        }
    }

    /// Returns the status of the daemon.
    ///
    /// # Errors
    /// Fails if no daemon is available or it does not respond.
    pub async fn status(host_env: &HostEnv) -> Result<DaemonStatus, NoDaemon> {
        let mut client = Self::connect(host_env).await?;
        let silent = || NoDaemon::Silent(super::socket(host_env));
        client.say(&ToDaemon::Status).await.map_err(|_| silent())?;
        match tokio::time::timeout(GREETING, client.hear()).await {
            Ok(Some(FromDaemon::Status(status))) => Ok(*status),
            _ => Err(silent()),
        }
    }

    /// Stops the daemon, whatever its version, and waits until it and its agents have exited. Returns whether one was
    /// running.
    pub async fn stop(host_env: &HostEnv) -> bool {
        let Ok((mut client, _)) = Self::greet(host_env).await else { return false };
        if client.say(&ToDaemon::Stop).await.is_err() {
            return false;
        }
        // The daemon closes the connection when it exits.
        while client.hear().await.is_some() {}
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
        Ok(self.run_there(agentline, request).await?.with_notices(notices))
    }

    async fn run_there(mut self, agentline: &Agentline, request: RunRequest) -> Result<Run, Error> {
        let inner = agentline.inner();
        let mut info = RunInfo::default();
        info.agent.clone_from(&request.agent);
        info.model.clone_from(&request.model);
        info.name.clone_from(&request.name);
        info.cwd = request.working_dir.as_ref().unwrap_or(&inner.host_env.cwd).to_string_lossy().into_owned();
        let host_env = inner.host_env.clone();
        let order = DaemonRun {
            env: host_env.env,
            home: host_env.home,
            cwd: host_env.cwd,
            project: host_env.project,
            cache: host_env.cache,
            programs: inner.programs.clone(),
            agents: inner.registry.settings(),
            prices: (*inner.prices != PriceTable::built_in()).then(|| PriceTable::clone(&inner.prices)),
            isolation: inner.isolation,
            request,
        };
        let asked = order.request.clone();
        let time = preparation_time(&asked).min(LONGEST);
        let lost = || Error::io("reach", "the pool")(std::io::ErrorKind::ConnectionAborted.into());
        self.say(&ToDaemon::Run(Box::new(order))).await.map_err(|_| lost())?;
        let end = Instant::now() + time + GRACE;
        let line = match tokio::time::timeout_at(end, self.next_line()).await {
            Ok(line) => line.ok_or_else(lost)?,
            Err(_) => return Ok(Run::over(not_ready_in_time(&asked))),
        };
        let (run_id, launched) = match serde_json::from_str(&line) {
            Ok(FromDaemon::Begun { run_id, launched }) => (run_id, launched),
            Ok(FromDaemon::Usage(problems)) => return Err(Problems(problems).into()),
            Ok(FromDaemon::Failed(why)) => {
                return Err(Error::io("use", "the pool")(std::io::Error::other(why)));
            }
            // A run that could not start sends only its outcome.
            _ => match Record::from_line(&line).map(|record| record.event) {
                Some(Event::Outcome { outcome }) => return Ok(Run::over(*outcome)),
                _ => return Err(lost()),
            },
        };
        let wakeup = Wakeup::default();
        let (sender, held) = channel(Wakeup::clone(&wakeup));
        info.run_id.clone_from(&run_id);
        tokio::spawn(self.hand_on(sender, wakeup, info, end));
        Ok(Run::new(run_id, held, launched))
    }

    /// Forwards events to the run until its outcome, and cancellations to the daemon.
    async fn hand_on(mut self, channel: RunSender, wakeup: Wakeup, mut info: RunInfo, mut end: Instant) {
        let mut session = None;
        let mut stopped = None;
        loop {
            let line = tokio::select! {
                line = self.next_line(), if !channel.is_full() => line,
                () = wakeup.notified() => {
                    if let Some(signal) = channel.stop() {
                        stopped = Some(signal);
                        end = end.min(Instant::now() + GRACE);
                        if self.say(&ToDaemon::Cancel(signal)).await.is_err() {
                            break;
                        }
                    }
                    continue;
                }
                // While the local reader is slow, the daemon's time limit does not apply.
                () = tokio::time::sleep_until(end), if !channel.is_full() => {
                    return channel.finish(silent_pool(&info, session, stopped));
                }
            };
            let Some(line) = line else { break };
            match Record::from_line(&line) {
                Some(Record { event: Event::Outcome { outcome }, .. }) => return channel.finish(*outcome),
                Some(record) => {
                    if let Event::Started(started) = &record.event {
                        session.clone_from(&started.session_id);
                        info = who_is(started);
                    }
                    channel.send(vec![record]);
                }
                None => {}
            }
        }
        let failure = Failure::new(FailureKind::Crashed, "lost the connection to the pool during the run")
            .hint("retry; check the pool with `agentline pool status`");
        let mut outcome = Outcome::not_begun(&info, Verdict::Failed, failure);
        outcome.session_id = session;
        channel.finish(outcome);
    }

    async fn next_line(&mut self) -> Option<String> {
        String::from_utf8(self.lines.next().await.ok()??.whole()?).ok()
    }

    async fn say(&mut self, message: &ToDaemon) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.write.write_all(&line).await
    }

    async fn hear(&mut self) -> Option<FromDaemon> {
        serde_json::from_str(&self.next_line().await?).ok()
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
            Outcome::not_begun(info, Verdict::TimedOut, failure)
        }
    };
    outcome.session_id = session;
    outcome
}

/// Returns the run information that the `started` event reports.
fn who_is(started: &Started) -> RunInfo {
    let started = started.clone();
    let mut info = RunInfo::default();
    (info.run_id, info.agent, info.cwd) = (started.run_id, started.agent, started.cwd);
    (info.agent_version, info.surface) = (started.agent_version, started.surface);
    (info.model, info.name) = (started.model, started.name);
    info
}
