//! The server side of the daemon: one connection per run.

use crate::host::daemon::messages::{DaemonRun, DaemonStatus, FromDaemon, ToDaemon, VERSION};
use crate::{
    agentline::Agentline,
    detect::HostEnv,
    error::Error,
    fs::{
        bounded_lines::{BoundedLine, BoundedLines},
        private_dir,
    },
    pool::{Pool, PoolOptions},
    process::Supervisor,
    run::options::RunOptions,
};
use agentline_core::{Event, PriceTable, Signal, agents::AgentRegistry};
use std::{
    fs::{self, File, Permissions},
    future::Future,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
};

/// The maximum length of a request line in bytes.
const LONGEST_LINE: usize = 128 << 20;
/// How often the daemon checks whether it is idle.
const PACE: Duration = Duration::from_millis(500);

/// The options of a daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DaemonOptions {
    /// The options of the pool.
    pub pool: PoolOptions,
    /// The daemon exits after this long without work.
    pub idle_exit: Duration,
    /// The supervisor that cleans up if the daemon is killed.
    pub supervisor: Supervisor,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            idle_exit: Duration::from_secs(900),
            supervisor: Supervisor::default(),
        }
    }
}

/// Serves runs until a client stops the daemon, it has been idle for long enough, or `stop` completes.
///
/// # Errors
/// Fails if the socket cannot be created or another daemon uses it.
pub async fn serve(
    host_env: &HostEnv,
    options: DaemonOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let socket = super::socket(host_env);
    let lock = lock_socket(&socket)?;
    let listener = UnixListener::bind(&socket).map_err(Error::io("listen on", &socket))?;
    fs::set_permissions(&socket, Permissions::from_mode(0o600))
        .map_err(Error::io("set the permissions of", &socket))?;
    let daemon = Arc::new(Daemon {
        pool: Pool::new(Agentline::new(host_env.clone()), options.pool.clone()),
        socket: socket.clone(),
        begun: Instant::now(),
        options,
        told_to_stop: Notify::new(),
        work: watch::Sender::new(Work { runs: 0, last: Instant::now(), stopping: false }),
    });
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // The directory is closed to other users. Connections of other users are dropped all the same.
                Ok((stream, _)) if super::is_ours(&stream) => {
                    tokio::spawn(Arc::clone(&daemon).serve(stream));
                }
                Ok(_) => {}
                // Too many files are open. Retry after some connections have closed.
                Err(_) => tokio::time::sleep(PACE).await,
            },
            () = daemon.told_to_stop.notified() => break,
            () = &mut stop => break,
            () = tokio::time::sleep(PACE) => {
                let work = *daemon.work.borrow();
                if work.runs == 0 && work.last.elapsed() >= daemon.options.idle_exit {
                    break;
                }
            }
        }
    }
    // Without the socket no client can connect. Then cancel the runs, wait for their outcomes, and close the pool.
    let _ = fs::remove_file(&socket);
    daemon.work.send_modify(|work| work.stopping = true);
    // The sender lives as long as the daemon, so the wait ends with the last run.
    let _ = daemon.work.subscribe().wait_for(|work| work.runs == 0).await;
    daemon.pool.close().await;
    drop(lock);
    Ok(())
}

/// Ensures that this is the only daemon. The lock is held until the file is closed, even if the process is killed.
fn lock_socket(socket: &Path) -> Result<File, Error> {
    let folder = socket.parent().unwrap_or(Path::new("."));
    private_dir::create_dir_all(folder).map_err(Error::io("create the directory", folder))?;
    let found = fs::symlink_metadata(folder).map_err(Error::io("inspect", folder))?;
    if !found.is_dir() || Some(found.uid()) != super::own_uid() {
        let not_ours =
            std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it is not a directory that you own");
        return Err(Error::io("use", folder)(not_ours));
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))
        .map_err(Error::io("set the permissions of", folder))?;
    let path = socket.with_extension("lock");
    let lock = private_dir::create_file(&path).map_err(Error::io("create", &path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let taken = std::io::Error::new(std::io::ErrorKind::AddrInUse, "a pool is already running");
            return Err(Error::io("lock", socket)(taken));
        }
        Err(fs::TryLockError::Error(error)) => return Err(Error::io("lock", socket)(error)),
    }
    // Remove the socket of a daemon that was killed.
    let _ = fs::remove_file(socket);
    Ok(lock)
}

/// The current load of the daemon.
#[derive(Clone, Copy, Debug)]
struct Work {
    runs: usize,
    /// When the last run started or ended.
    last: Instant,
    /// Whether all runs are to be cancelled.
    stopping: bool,
}

/// Counts one run of a client while it exists.
struct AtWork<'a>(&'a watch::Sender<Work>);

impl<'a> AtWork<'a> {
    fn begin(work: &'a watch::Sender<Work>) -> Self {
        work.send_modify(|work| (work.runs, work.last) = (work.runs + 1, Instant::now()));
        Self(work)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|work| (work.runs, work.last) = (work.runs - 1, Instant::now()));
    }
}

struct Daemon {
    pool: Pool,
    socket: PathBuf,
    begun: Instant,
    options: DaemonOptions,
    told_to_stop: Notify,
    work: watch::Sender<Work>,
}

impl Daemon {
    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut lines = BoundedLines::new(read, LONGEST_LINE);
        let hello = FromDaemon::Hello { version: VERSION.into(), pid: std::process::id() };
        if say(&mut write, &hello).await.is_err() {
            return;
        }
        // Ends when the client disconnects or a write to it fails.
        while let Ok(Some(line)) = lines.next().await {
            let BoundedLine::Whole(line) = line else {
                let why = format!("the request is longer than {} MB", LONGEST_LINE >> 20);
                let _ = say(&mut write, &FromDaemon::Failed(why)).await;
                return;
            };
            let done = match serde_json::from_slice(&line) {
                Ok(ToDaemon::Run(order)) => return self.run(*order, lines, write).await,
                Ok(ToDaemon::Status) => say(&mut write, &FromDaemon::Status(Box::new(self.status()))).await,
                Ok(ToDaemon::Stop) => {
                    let done = say(&mut write, &FromDaemon::Stopping).await;
                    self.told_to_stop.notify_one();
                    done
                }
                Ok(ToDaemon::Cancel(_)) => Ok(()),
                Err(error) => say(&mut write, &FromDaemon::Failed(format!("invalid request: {error}"))).await,
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn status(&self) -> DaemonStatus {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        DaemonStatus {
            version: VERSION.into(),
            pid: std::process::id(),
            socket: self.socket.clone(),
            age_ms: ms(self.begun.elapsed()),
            idle_exit_ms: ms(self.options.idle_exit),
            pool: self.pool.status(),
        }
    }

    async fn run(&self, order: DaemonRun, mut lines: BoundedLines<OwnedReadHalf>, mut write: OwnedWriteHalf) {
        let _at_work = AtWork::begin(&self.work);
        let mut agentline = Agentline::new(order.host_env())
            .supervisor(self.options.supervisor.clone())
            .isolation(order.isolation)
            .agents(AgentRegistry::of(&order.agents))
            .prices(order.prices.unwrap_or_else(PriceTable::built_in));
        for (agent, program) in order.programs {
            agentline = agentline.program(agent, program);
        }
        let mut run = match self.pool.run_as(&agentline, order.request, RunOptions::default()).await {
            Ok(run) => run,
            Err(error) => {
                let told = match error {
                    Error::Usage(problems) => FromDaemon::Usage(problems.0),
                    other => FromDaemon::Failed(other.to_string()),
                };
                let _ = say(&mut write, &told).await;
                return;
            }
        };
        if let Some(launched) = run.launched() {
            let begun = FromDaemon::Begun { run_id: run.id().to_owned(), launched: launched.clone() };
            if say(&mut write, &begun).await.is_err() {
                return;
            }
        }
        let canceller = run.canceller();
        let mut listens = true;
        let mut work = self.work.subscribe();
        let mut goes_on = true;
        loop {
            tokio::select! {
                () = async { drop(work.wait_for(|work| work.stopping).await) }, if goes_on => {
                    goes_on = false;
                    canceller.cancel_with(Signal::Terminate);
                }
                record = run.next() => {
                    let Some(record) = record else { return };
                    let over = matches!(record.event, Event::Outcome { .. });
                    let mut line = serde_json::to_vec(&record).unwrap_or_default();
                    line.push(b'\n');
                    // The client has disconnected; dropping the run cancels it.
                    if write.write_all(&line).await.is_err() || over {
                        return;
                    }
                }
                line = lines.next(), if listens => match line {
                    Ok(Some(line)) => {
                        let line = line.whole().unwrap_or_default();
                        if let Ok(ToDaemon::Cancel(signal)) = serde_json::from_slice(&line) {
                            canceller.cancel_with(signal);
                        }
                    }
                    // The client has disconnected, so its run is cancelled.
                    Ok(None) | Err(_) => {
                        listens = false;
                        canceller.cancel_with(Signal::Terminate);
                    }
                }
            }
        }
    }
}

async fn say(write: &mut OwnedWriteHalf, message: &FromDaemon) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    write.write_all(&line).await
}
