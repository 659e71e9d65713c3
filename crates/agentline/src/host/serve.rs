//! Reads requests from a host line by line and handles them. Every request gets a response, and every invalid line an
//! error.

use super::{
    messages::{
        Caller, Cancel, Cancelled, DaemonInfo, Initialize, Initialized, PROTOCOL, Party, PoolSettings,
        Prewarm, RpcError, SessionClose,
    },
    params::{read, request_id, set, write},
    peer::HostPeer,
    registered_run::{RegisteredRun, RunRegistry},
};
use crate::admission::AdmissionControl;
use crate::host::{open_conversations::Conversations, work_guard::WorkGuard};
use crate::{
    agentline::Agentline,
    api::retry,
    fs::bounded_lines::{BoundedLine, BoundedLines},
    pool::{Pool, PoolOptions},
};
use agentline_core::{
    Problem, Signal,
    config::{KeyStyle, keys_for_flags},
    rpc::{self, InvalidMessage, JsonRpcError, RpcMessage},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::{Map, Value, json, value::RawValue};
use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The default number of retries of a refused run.
const RETRIES: u32 = 3;
/// The default limit for the total wait between the attempts of a run.
const RETRY_WAIT: Duration = retry::MAX_WAIT;
/// How long the host may take to read the remaining output after agentline was asked to stop.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of a line in bytes. Lines may contain attachments.
const LONGEST_LINE: usize = 256 << 20;

/// The methods that a host may call.
const METHODS: &[&str] = &[
    "initialize",
    "run",
    "validate",
    "cancel",
    "session/open",
    "session/prompt",
    "session/close",
    "agents",
    "detect",
    "extract",
    "capabilities",
    #[cfg(feature = "sessions")]
    "sessions/list",
    #[cfg(feature = "sessions")]
    "sessions/load",
    #[cfg(feature = "sessions")]
    "sessions/parse",
    #[cfg(feature = "sessions")]
    "sessions/search",
    "pool/status",
    "pool/configure",
    "pool/prewarm",
    "cache/stats",
    "cache/clear",
    "shutdown",
];
/// The methods that a client of a daemon's socket may call in addition.
const SOCKET_METHODS: &[&str] = &["pool/stop"];
/// The methods that agentline calls on a host.
const CALLBACKS: &[&str] = &["permission/ask", "tool/call", "check"];

/// The options for serving a host.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HostOptions {
    /// The options of the pool. The host may override them in `initialize`.
    pub pool: PoolOptions,
    /// Whether active runs are finished rather than cancelled when the host closes its side.
    pub drain: bool,
}

/// A process that serves many hosts on a socket.
pub(super) trait Daemon: Send + Sync {
    /// Returns the library as this caller would configure it.
    fn agentline(&self, caller: Caller) -> Result<Agentline, RpcError>;

    /// Describes the process.
    fn info(&self) -> DaemonInfo;

    /// Counts a unit of work until the guard is dropped. The process does not exit while there is work.
    fn begin_work(&self) -> WorkGuard;

    /// Ends all runs, all agents and then the process. Completes when the agents have exited.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// The state of one host and its runs.
pub(super) struct Host {
    agentline: Mutex<Agentline>,
    /// The process, if the host is connected to its socket. Its pool is shared by all connections.
    daemon: Option<Arc<dyn Daemon>>,
    pub(super) peer: HostPeer,
    pool: Mutex<(Pool, PoolOptions)>,
    pub(super) admission: Arc<AdmissionControl>,
    pub(super) conversations: Conversations,
    settings: Mutex<Settings>,
    runs: Arc<RunRegistry>,
    ending: CancellationToken,
    /// Cancelled when all remaining work should stop.
    over: CancellationToken,
}

/// Returns the spelling of keys in the language of a client, or `None` for a client that translates hints itself.
fn key_style(client: Option<&Party>) -> Option<KeyStyle> {
    match client.map(|client| client.name.as_str()) {
        Some("agentline-node") => Some(KeyStyle::Camel),
        Some("agentline-promptfoo") => None,
        _ => Some(KeyStyle::Snake),
    }
}

#[derive(Debug, Default)]
struct Settings {
    defaults: Map<String, Value>,
    retries: Option<u32>,
    retry_wait: Option<u64>,
    /// The spelling of keys in the host's language. `None` if the host is a command line, which has flags.
    key_style: Option<KeyStyle>,
}

/// Serves one host until it closes its side, sends `shutdown`, or `stop` completes.
///
/// Active runs are then cancelled (or finished, see [`HostOptions::drain`]), and none of their processes remain when
/// this function returns.
///
/// # Errors
/// Fails if writing to the host fails. A read error counts as the end of the input.
pub async fn serve(
    agentline: Agentline,
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin + Send + 'static,
    options: HostOptions,
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let pool = Pool::new(agentline.clone(), options.pool.clone());
    let backend = Backend { agentline, pool, daemon: None };
    serve_connection(backend, read, write, options, stop).await
}

/// The library and the pool that the runs of a connection use.
pub(super) struct Backend {
    pub(super) agentline: Agentline,
    pub(super) pool: Pool,
    /// The owner of the pool, if the pool is shared by several connections.
    pub(super) daemon: Option<Arc<dyn Daemon>>,
}

/// Serves one connection like [`serve`]. A shared pool stays open.
pub(super) async fn serve_connection(
    Backend { agentline, pool, daemon }: Backend,
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin + Send + 'static,
    options: HostOptions,
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let peer = HostPeer::default();
    let slots = options.pool.max_processes.saturating_mul(options.pool.concurrent_sessions);
    let last_signal = if daemon.is_some() { Signal::Terminate } else { Signal::Interrupt };
    let host = Arc::new(Host {
        pool: Mutex::new((pool, options.pool.clone())),
        agentline: Mutex::new(agentline),
        daemon,
        admission: AdmissionControl::new(slots),
        conversations: Conversations::default(),
        settings: Mutex::default(),
        runs: Arc::default(),
        ending: CancellationToken::new(),
        over: CancellationToken::new(),
        peer: peer.clone(),
    });
    let (broken, mut is_broken) = mpsc::channel::<()>(1);
    let outbox = Arc::clone(&peer.outbox);
    let mut writer = tokio::spawn(async move {
        let done = outbox.write(write).await;
        drop(broken);
        done
    });
    let work = TaskTracker::new();
    let mut lines = BoundedLines::new(read, LONGEST_LINE);
    let mut stop = std::pin::pin!(stop);
    let (mut finish, mut stopped) = (false, false);
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Ok(Some(BoundedLine::Whole(line))) => host.take(&line, &work),
                Ok(Some(BoundedLine::TooLong(line))) => {
                    let message = format!("the line is longer than {} MB", LONGEST_LINE >> 20);
                    host.refuse(request_id(&line), &RpcError::new(RpcError::PARSE, message));
                }
                Ok(None) | Err(_) => {
                    finish = options.drain;
                    break;
                }
            },
            () = host.ending.cancelled() => break,
            () = &mut stop => {
                stopped = true;
                break;
            }
            // The host no longer reads the output.
            _ = is_broken.recv() => break,
        }
    }
    host.peer.fail_pending();
    work.close();
    if finish {
        tokio::select! {
            () = work.wait() => {}
            () = &mut stop => stopped = true,
            _ = is_broken.recv() => {}
        }
    }
    host.over.cancel();
    host.peer.outbox.lift_limit();
    for stop in host.runs.runs().values() {
        stop.cancel(last_signal);
    }
    work.wait().await;
    host.conversations.close_all().await;
    if host.daemon.is_none() {
        host.pool().close().await;
    }
    host.peer.outbox.close();
    let flush_timeout = async {
        if !stopped {
            stop.await;
        }
        tokio::time::sleep(FLUSH_TIMEOUT).await;
    };
    tokio::select! {
        done = &mut writer => done.unwrap_or(Ok(())),
        // After `stop`, do not wait for a host that no longer reads.
        () = flush_timeout => {
            writer.abort();
            Ok(())
        }
    }
}

impl Host {
    pub(super) fn defaults(&self) -> Map<String, Value> {
        self.settings().defaults.clone()
    }

    pub(super) fn retries(&self) -> u32 {
        self.settings().retries.unwrap_or(RETRIES)
    }

    /// Returns the limit for the total wait between the attempts of a run.
    pub(super) fn retry_wait(&self) -> Duration {
        self.settings().retry_wait.map_or(RETRY_WAIT, Duration::from_secs)
    }

    /// Returns a hint in the language of the host.
    pub(super) fn hint(&self, hint: &str) -> String {
        match self.settings().key_style {
            Some(style) => keys_for_flags(hint, style),
            None => hint.to_owned(),
        }
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the library, as the caller has configured it.
    pub(super) fn agentline(&self) -> Agentline {
        self.agentline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts work of a daemon, so that it does not exit meanwhile.
    pub(super) fn begin_work(&self) -> Option<WorkGuard> {
        self.daemon.as_ref().map(|daemon| daemon.begin_work())
    }

    /// Refuses a key that only a client of a daemon's socket may use.
    pub(super) fn only_on_socket(&self, key: &str) -> Result<(), RpcError> {
        if self.daemon.is_some() {
            return Ok(());
        }
        let problem = Problem::new(key, "accepted only on the socket of `agentline pool start`");
        Err(RpcError::usage(&[problem.hint("omit it")]))
    }

    /// Handles one line.
    fn take(self: &Arc<Self>, line: &[u8], work: &TaskTracker) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let invalid = |error: &dyn std::fmt::Display| {
            self.refuse(request_id(line), &RpcError::new(RpcError::PARSE, format!("invalid JSON: {error}")));
        };
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => return invalid(&error),
        };
        match rpc::parse(text) {
            Ok(RpcMessage::Request { id, method, params }) => match serde_json::from_str(params.get()) {
                Ok(params) => self.take_call(Some(id.to_owned()), &method, params, work),
                Err(error) => invalid(&error),
            },
            Ok(RpcMessage::Notification { method, params }) => match serde_json::from_str(params.get()) {
                Ok(params) => self.take_call(None, &method, params, work),
                Err(error) => invalid(&error),
            },
            Ok(RpcMessage::Response { id, result: Ok(result) }) => match serde_json::from_str(result.get()) {
                Ok(result) => self.take_response(id, Ok(result)),
                Err(error) => invalid(&error),
            },
            Ok(RpcMessage::Response { id, result: Err(error) }) => self.take_response(id, Err(error)),
            Err(InvalidMessage::Json(error)) => invalid(&error),
            Err(InvalidMessage::NotAnObject) => match serde_json::from_str::<Value>(text) {
                Ok(_) => {
                    let error = RpcError::new(RpcError::INVALID, "a message must be a JSON object");
                    self.refuse(RawValue::NULL.to_owned(), &error);
                }
                // The codec does not look into values that it does not need.
                Err(error) => invalid(&error),
            },
            Err(InvalidMessage::Incomplete { id }) => {
                let message = "a message must have a `method`, a `result` or an `error`";
                self.refuse(
                    id.unwrap_or(RawValue::NULL).to_owned(),
                    &RpcError::new(RpcError::INVALID, message),
                );
            }
            // It cannot be the response to a request.
            Err(InvalidMessage::ResponseWithoutId) => {}
        }
    }

    /// Handles a request or a notification.
    fn take_call(
        self: &Arc<Self>,
        id: Option<Box<RawValue>>,
        method: &str,
        params: Value,
        work: &TaskTracker,
    ) {
        let (host, method) = (Arc::clone(self), method.to_owned());
        // These are handled immediately, because later requests may depend on them.
        if method == "initialize" || method == "pool/configure" || method == "cancel" {
            let answer = host.respond_now(&method, params);
            return host.answer(id, answer);
        }
        // Register a run before the next line is read, so that a later request can cancel it.
        let noted = matches!(&*method, "run" | "session/open" | "session/prompt").then(|| {
            self.runs.register(params.get("run").and_then(Value::as_str), id.as_deref(), self.begin_work())
        });
        work.spawn(async move {
            let answer = match noted.transpose() {
                // Report a panic as an error; otherwise the host would wait forever.
                Ok(run) => {
                    let called = AssertUnwindSafe(host.call(&method, params, run)).catch_unwind().await;
                    let fault =
                        |_| RpcError::new(RpcError::INTERNAL, format!("internal error: `{method}` panicked"));
                    called.map_err(fault).and_then(|answer| answer)
                }
                Err(error) => Err(error),
            };
            host.answer(id, answer);
            if method == "shutdown" {
                host.ending.cancel();
            }
        });
    }

    /// Handles a response from the host.
    fn take_response(&self, id: &RawValue, result: Result<Value, JsonRpcError<'_>>) {
        let answer = result.map_err(|error| {
            let named = Some(error.message.into_owned()).filter(|message| !message.is_empty());
            RpcError::new(error.code, named.unwrap_or_else(|| "the host returned an error".into()))
        });
        // A response without a pending request came too late and is ignored.
        let _ = self.peer.answered(id, answer);
    }

    fn answer(&self, id: Option<Box<RawValue>>, answer: Result<Box<RawValue>, RpcError>) {
        // A notification gets no response.
        let Some(id) = id else { return };
        match answer {
            Ok(result) => self.peer.outbox.send_line(rpc::response(&id, &result)),
            Err(error) => self.refuse(id, &error),
        }
    }

    fn refuse(&self, id: Box<RawValue>, error: &RpcError) {
        let error = error.clone().with_hints(|hint| self.hint(hint));
        self.peer.outbox.send_line(rpc::error_response(&id, &error));
    }

    /// Handles the methods that complete immediately.
    fn respond_now(&self, method: &str, params: Value) -> Result<Box<RawValue>, RpcError> {
        match method {
            "initialize" => {
                let params: Initialize = read(params)?;
                self.configure(&params.pool)?;
                if let Some(caller) = params.caller {
                    self.set_caller(caller)?;
                }
                if let Some(most) = params.max_concurrent {
                    self.admission.set_limit(most);
                }
                *self.settings() = Settings {
                    defaults: params.defaults,
                    retries: params.max_retries,
                    retry_wait: params.max_retry_wait_s,
                    key_style: key_style(params.client.as_ref()).filter(|_| self.daemon.is_none()),
                };
                self.check_defaults()?;
                let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
                write(&Initialized {
                    protocol: PROTOCOL,
                    server: Party::new("agentline", env!("CARGO_PKG_VERSION")),
                    methods: names(&self.methods()),
                    callbacks: names(CALLBACKS),
                    agents: self
                        .agentline()
                        .registry()
                        .all()
                        .iter()
                        .map(|agent| agent.info().id.to_owned())
                        .collect(),
                })
            }
            "pool/configure" => {
                self.configure(&read(params)?)?;
                write(&json!({}))
            }
            _ => {
                let params: Cancel = read(params)?;
                let signal = params.signal.map_or(Signal::Interrupt, Signal::from);
                let found =
                    self.runs.runs().get(params.run.as_str()).map(|stop| stop.cancel(signal)).is_some();
                write(&Cancelled { found })
            }
        }
    }

    /// Returns the pool for new runs.
    pub(super) fn pool(&self) -> Pool {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn methods(&self) -> Vec<&'static str> {
        let of_socket = if self.daemon.is_some() { SOCKET_METHODS } else { &[] };
        [METHODS, of_socket].concat()
    }

    /// Uses the environment of this caller for later runs of this connection.
    fn set_caller(&self, caller: Caller) -> Result<(), RpcError> {
        self.only_on_socket("caller")?;
        if let Some(daemon) = &self.daemon {
            let agentline = daemon.agentline(caller)?;
            *self.agentline.lock().unwrap_or_else(PoisonError::into_inner) = agentline;
        }
        Ok(())
    }

    /// Replaces the pool if its settings change. The old pool ends its agents when their runs are finished.
    fn configure(&self, params: &PoolSettings) -> Result<(), RpcError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = pool.1.clone();
        let slots = options.max_processes.saturating_mul(options.concurrent_sessions);
        set(&mut options.max_processes, params.max_processes.map(|n| n.max(1)));
        set(&mut options.concurrent_sessions, params.lanes.map(|n| n.max(1)));
        set(&mut options.max_queue, params.max_queue);
        set(&mut options.max_sessions, params.max_sessions.map(|n| n.max(1)));
        set(&mut options.max_memory, params.max_memory_mb.map(|mb| mb.saturating_mul(1 << 20)));
        set(&mut options.max_age, params.max_age_s.map(Duration::from_secs));
        set(&mut options.idle_timeout, params.idle_s.map(Duration::from_secs));
        if options == pool.1 {
            return Ok(());
        }
        if self.daemon.is_some() {
            let problem = Problem::new("pool", "the pool is shared, so a connection cannot configure it");
            return Err(RpcError::usage(&[problem.hint("use the flags of `agentline pool start`")]));
        }
        let now = options.max_processes.saturating_mul(options.concurrent_sessions);
        *pool = (Pool::new(self.agentline(), options.clone()), options);
        drop(pool);
        if now != slots {
            self.admission.set_limit(now);
        }
        Ok(())
    }

    async fn call(
        self: &Arc<Self>,
        method: &str,
        params: Value,
        run: Option<RegisteredRun>,
    ) -> Result<Box<RawValue>, RpcError> {
        match (method, run) {
            ("run", Some(run)) => return self.run(&run.name, read(params)?, &run.stop).await,
            ("session/open", Some(run)) => {
                return write(&self.open(&run.name, read(params)?, &run.stop).await?);
            }
            ("session/prompt", Some(run)) => return self.prompt(&run.name, read(params)?, &run.stop).await,
            _ => {}
        }
        match method {
            "session/close" => {
                let params: SessionClose = read(params)?;
                self.close(&params.session).await?;
                write(&json!({}))
            }
            "validate" => write(&json!({"warnings": self.validate(read(params)?)?})),
            "agents" => write(&self.agents()),
            "detect" => write(&self.detect(read(params)?).await?),
            "extract" => write(&Self::extract(&read(params)?)),
            "capabilities" => write(&self.until_disconnect(self.capabilities(read(params)?)).await?),
            #[cfg(feature = "sessions")]
            "sessions/list" => write(&self.list(read(params)?).await?),
            #[cfg(feature = "sessions")]
            "sessions/load" => write(&self.load(read(params)?).await?),
            #[cfg(feature = "sessions")]
            "sessions/parse" => write(&self.parse(read(params)?)?),
            #[cfg(feature = "sessions")]
            "sessions/search" => write(&self.search(read(params)?).await?),
            "pool/status" => {
                let (active, waiting, allowed) = self.admission.counts();
                let runs = json!({"active": active, "waiting": waiting, "allowed": allowed});
                let mut status = json!({"pool": self.pool().status(), "runs": runs});
                if let Some(daemon) = &self.daemon {
                    status["daemon"] = json!(daemon.info());
                }
                write(&status)
            }
            "pool/prewarm" => {
                let params: Prewarm = read(params)?;
                let (agentline, request, _) = match params.request {
                    Some(request) => self.complete_request(request)?,
                    None => {
                        let mut keys = params.keys;
                        keys.entry("prompt").or_insert_with(|| "ready".into());
                        self.resolve_keys(keys)?
                    }
                };
                let pool = self.pool();
                let ready = pool.prewarm_by(&agentline, request, params.runs.max(1));
                let ready = self.until_disconnect(ready).await?;
                write(&json!({"ready": ready}))
            }
            "cache/stats" => write(&self.cache_stats(read(params)?).await?),
            "cache/clear" => write(&self.cache_clear(read(params)?).await?),
            "shutdown" => write(&json!({})),
            "pool/stop" if self.daemon.is_some() => {
                if let Some(daemon) = &self.daemon {
                    daemon.stop().await;
                }
                write(&json!({}))
            }
            _ => {
                let known = self.methods().join(", ");
                let message = format!("unknown method `{method}`; known methods: {known}");
                Err(RpcError::new(RpcError::METHOD, message))
            }
        }
    }

    /// When the host disconnects, cancels work that starts an agent but is not a run.
    async fn until_disconnect<T, E: Into<RpcError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RpcError> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            () = self.over.cancelled() => Err(RpcError::new(RpcError::CANCELLED, "the host is shutting down")),
        }
    }
}
