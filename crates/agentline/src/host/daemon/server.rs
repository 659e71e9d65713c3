//! The server side of the daemon: serves the host protocol on a socket, with one pool for all connections.

use crate::host::{
    daemon::VERSION,
    messages::{Caller, DaemonInfo, RpcError},
    params::invalid_value,
    serve::{Backend, Daemon, HostOptions, serve_connection},
    work_guard::WorkGuard,
};
use crate::{
    agentline::Agentline,
    detect::HostEnv,
    error::Error,
    fs::private_dir,
    pool::{Pool, PoolOptions},
    process::Supervisor,
};
use agentline_core::{PriceTable, agents::AgentRegistry, config::AgentSettings};
use agentline_fs::file_lock::FileLock;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, Permissions, TryLockError},
    future::Future,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How often the daemon checks whether it is idle.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

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

/// The connections of clients that wait for the end of the daemon. Dropping them reports it; a program that is about to
/// exit leaks them, so that the clients also wait for the exit of the process.
#[derive(Debug)]
#[must_use]
pub struct LastConnections(#[expect(dead_code, reason = "closed on drop")] Vec<OwnedFd>);

/// Serves runs until a client stops the daemon, it has been idle for long enough, or `stop` completes.
///
/// # Errors
/// Fails if the socket cannot be created or another daemon uses it.
pub async fn serve(
    host_env: &HostEnv,
    options: DaemonOptions,
    stop: impl Future<Output = ()>,
) -> Result<LastConnections, Error> {
    let socket = super::socket(host_env);
    let lock = lock_socket(&socket)?;
    let listener = UnixListener::bind(&socket).map_err(Error::io("listen on", &socket))?;
    fs::set_permissions(&socket, Permissions::from_mode(0o600))
        .map_err(Error::io("set the permissions of", &socket))?;
    let agentline = Agentline::new(host_env.clone()).supervisor(options.supervisor.clone());
    let daemon = Arc::new(PoolDaemon {
        pool: Pool::new(agentline.clone(), options.pool.clone()),
        agentline,
        socket: socket.clone(),
        started_at: Instant::now(),
        options,
        stopping: CancellationToken::new(),
        closed: CancellationToken::new(),
        work: Arc::new(watch::Sender::new(Work { runs: 0, last: Instant::now() })),
        last_streams: Mutex::default(),
    });
    let connections = TaskTracker::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // The directory is closed to other users. Connections of other users are dropped all the same.
                Ok((stream, _)) if super::is_ours(&stream) => {
                    connections.spawn(Arc::clone(&daemon).serve(stream));
                }
                Ok(_) => {}
                // Too many files are open. Retry after some connections have closed.
                Err(_) => tokio::time::sleep(IDLE_CHECK_INTERVAL).await,
            },
            () = daemon.stopping.cancelled() => break,
            () = &mut stop => break,
            () = tokio::time::sleep(IDLE_CHECK_INTERVAL) => {
                let work = *daemon.work.borrow();
                if work.runs == 0 && work.last.elapsed() >= daemon.options.idle_exit {
                    break;
                }
            }
        }
    }
    // Without the socket no client can connect. Then cancel the runs, wait for their outcomes, and close the pool.
    let _ = fs::remove_file(&socket);
    daemon.stopping.cancel();
    // The sender lives as long as the daemon, so the wait ends with the last run.
    let _ = daemon.work.subscribe().wait_for(|work| work.runs == 0).await;
    daemon.pool.close().await;
    daemon.closed.cancel();
    connections.close();
    connections.wait().await;
    drop(lock);
    Ok(LastConnections(std::mem::take(
        &mut daemon.last_streams.lock().unwrap_or_else(PoisonError::into_inner),
    )))
}

/// Ensures that this is the only daemon. The lock also ends if the process is killed.
fn lock_socket(socket: &Path) -> Result<FileLock, Error> {
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
    let file = private_dir::create_file(&path).map_err(Error::io("create", &path))?;
    let lock = FileLock::try_new(file).map_err(|error| {
        Error::io("lock", socket)(match error {
            TryLockError::WouldBlock => {
                std::io::Error::new(std::io::ErrorKind::AddrInUse, "a pool is already running")
            }
            TryLockError::Error(error) => error,
        })
    })?;
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
}

/// Counts one run of a client while it exists.
struct AtWork(Arc<watch::Sender<Work>>);

impl AtWork {
    fn begin(work: &Arc<watch::Sender<Work>>) -> Self {
        work.send_modify(|work| (work.runs, work.last) = (work.runs + 1, Instant::now()));
        Self(Arc::clone(work))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.send_modify(|work| (work.runs, work.last) = (work.runs - 1, Instant::now()));
    }
}

/// The pool and what controls its process.
struct PoolDaemon {
    agentline: Agentline,
    pool: Pool,
    socket: PathBuf,
    started_at: Instant,
    options: DaemonOptions,
    /// Cancelled when all runs must be cancelled.
    stopping: CancellationToken,
    /// Cancelled when all agents have exited.
    closed: CancellationToken,
    work: Arc<watch::Sender<Work>>,
    /// The sockets of the last connections, for [`LastConnections`].
    last_streams: Mutex<Vec<OwnedFd>>,
}

impl PoolDaemon {
    /// Serves one connection with the host protocol.
    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let last_stream = stream.as_fd().try_clone_to_owned();
        let mut options = HostOptions::default();
        options.pool = self.options.pool.clone();
        let daemon: Arc<dyn Daemon> = Arc::clone(&self) as _;
        let backend =
            Backend { agentline: self.agentline.clone(), pool: self.pool.clone(), daemon: Some(daemon) };
        // Unlike the halves of `into_split`, these do not shut the socket down.
        let (read, write) = tokio::io::split(stream);
        // A client that has disconnected does not affect the others.
        let _ = serve_connection(backend, read, write, options, self.stopping.cancelled()).await;
        if let Ok(last_stream) = last_stream
            && self.stopping.is_cancelled()
        {
            self.last_streams.lock().unwrap_or_else(PoisonError::into_inner).push(last_stream);
        }
    }
}

impl Daemon for PoolDaemon {
    fn agentline(&self, caller: Caller) -> Result<Agentline, RpcError> {
        let Caller { env, home, cwd, project, cache, programs, agents, prices, isolation } = caller;
        let mut host_env = HostEnv::new(env, home, cwd);
        (host_env.project, host_env.cache) = (project, cache);
        let agents: BTreeMap<String, AgentSettings> = of_caller("agents", agents.into())?.unwrap_or_default();
        let mut agentline = Agentline::new(host_env)
            .supervisor(self.options.supervisor.clone())
            .isolation(of_caller("isolation", isolation)?.unwrap_or_default())
            .agents(AgentRegistry::of(&agents))
            .prices(of_caller("prices", prices)?.unwrap_or_else(PriceTable::built_in));
        for (agent, program) in programs {
            agentline = agentline.program(agent, program);
        }
        Ok(agentline)
    }

    fn info(&self) -> DaemonInfo {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        DaemonInfo {
            version: VERSION.into(),
            pid: std::process::id(),
            socket: self.socket.clone(),
            age_ms: ms(self.started_at.elapsed()),
            idle_exit_ms: ms(self.options.idle_exit),
        }
    }

    fn begin_work(&self) -> WorkGuard {
        Box::new(AtWork::begin(&self.work))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.stopping.cancel();
        Box::pin(self.closed.cancelled())
    }
}

/// Reads a part of the description of a caller; `None` if it is null.
fn of_caller<T: DeserializeOwned>(key: &str, value: Value) -> Result<Option<T>, RpcError> {
    serde_json::from_value(value)
        .map_err(|error| RpcError::usage(&[invalid_value(format!("caller.{key}"), &error)]))
}
