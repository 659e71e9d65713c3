//! Reads the requests of a host line by line and handles them. Every request gets a response, and every invalid line an
//! error.

use super::{
    messages::{
        Cancel, Cancelled, Initialize, Initialized, PROTOCOL, Party, PoolSettings, Prewarm, RpcError,
        SessionClose,
    },
    peer::HostPeer,
};
use crate::host::{admission::AdmissionControl, conversations::Conversations};
use crate::{
    agentline::Agentline,
    fs::bounded_lines::{BoundedLine, BoundedLines},
    pool::{Pool, PoolOptions},
};
use agentline_core::Problem;
use futures_util::FutureExt as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
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
const RETRY_WAIT: Duration = Duration::from_secs(300);
/// How long the host may take to read the remaining output after agentline was told to stop.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The maximum length of a line in bytes. Lines may contain attachments.
const LONGEST_LINE: usize = 256 << 20;

/// The methods that a host may call.
const METHODS: &[&str] = &[
    "initialize",
    "run",
    "cancel",
    "session/open",
    "session/prompt",
    "session/close",
    "agents",
    "detect",
    "capabilities",
    #[cfg(feature = "sessions")]
    "sessions/list",
    #[cfg(feature = "sessions")]
    "sessions/load",
    #[cfg(feature = "sessions")]
    "sessions/search",
    "pool/status",
    "pool/configure",
    "pool/prewarm",
    "cache/stats",
    "cache/clear",
    "shutdown",
];
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

/// The state of one host and its runs.
pub(super) struct Host {
    pub(super) agentline: Agentline,
    pub(super) peer: HostPeer,
    pool: Mutex<(Pool, PoolOptions)>,
    pub(super) admission: Arc<AdmissionControl>,
    pub(super) conversations: Conversations,
    settings: Mutex<Settings>,
    runs: Mutex<HashMap<Arc<str>, CancellationToken>>,
    ending: CancellationToken,
    /// Cancelled when all remaining work should stop.
    over: CancellationToken,
}

#[derive(Debug, Default)]
struct Settings {
    defaults: Map<String, Value>,
    retries: Option<u32>,
    retry_wait: Option<u64>,
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
    let peer = HostPeer::default();
    let places = options.pool.max_processes.saturating_mul(options.pool.concurrent_sessions);
    let host = Arc::new(Host {
        pool: Mutex::new((Pool::new(agentline.clone(), options.pool.clone()), options.pool.clone())),
        agentline,
        admission: AdmissionControl::new(places),
        conversations: Conversations::default(),
        settings: Mutex::default(),
        runs: Mutex::default(),
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
                Ok(Some(BoundedLine::Whole(line))) => host.take(line, &work),
                Ok(Some(BoundedLine::TooLong(line))) => {
                    let message = format!("the line is longer than {} MB", LONGEST_LINE >> 20);
                    host.refuse(&asker(&line), RpcError::new(RpcError::PARSE, message));
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
    host.peer.gone();
    work.close();
    if finish {
        tokio::select! {
            () = work.wait() => {}
            () = &mut stop => stopped = true,
            _ = is_broken.recv() => {}
        }
    }
    host.over.cancel();
    for stop in host.runs().values() {
        stop.cancel();
    }
    work.wait().await;
    host.conversations.close_all().await;
    host.pool().close().await;
    host.peer.outbox.close();
    let given_up = async {
        if !stopped {
            stop.await;
        }
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        done = &mut writer => done.unwrap_or(Ok(())),
        // After `stop`, do not wait for a host that no longer reads.
        () = given_up => {
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

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<Arc<str>, CancellationToken>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles one line.
    fn take(self: &Arc<Self>, line: Vec<u8>, work: &TaskTracker) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let message = match serde_json::from_slice::<Value>(&line) {
            Ok(Value::Object(message)) => message,
            Ok(_) => {
                return self.refuse(
                    &Value::Null,
                    RpcError::new(RpcError::INVALID, "a message must be a JSON object"),
                );
            }
            Err(why) => {
                let error = RpcError::new(RpcError::PARSE, format!("invalid JSON: {why}"));
                return self.refuse(&asker(&line), error);
            }
        };
        let id = message.get("id").cloned();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return self.take_answer(id, message);
        };
        let params = message.get("params").cloned().unwrap_or(Value::Null);
        let (host, method) = (Arc::clone(self), method.to_owned());
        // These are handled at once, because later requests may depend on them.
        if method == "initialize" || method == "pool/configure" || method == "cancel" {
            let answer = host.settle_now(&method, params);
            return host.answer(id.as_ref(), answer);
        }
        // Register a run before the next line is read, so that a later request can cancel it.
        let noted = matches!(&*method, "run" | "session/open" | "session/prompt")
            .then(|| self.begin(params.get("run").and_then(Value::as_str), id.as_ref()));
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
            host.answer(id.as_ref(), answer);
            if method == "shutdown" {
                host.ending.cancel();
            }
        });
    }

    /// Handles a message without a method: a response to a request, or an invalid message.
    fn take_answer(&self, id: Option<Value>, mut message: Map<String, Value>) {
        // Some hosts send both fields, one of them null.
        let error = message.remove("error").filter(|error| !error.is_null());
        let answer = match (error, message.remove("result")) {
            (Some(error), _) => {
                let message = error["message"].as_str().unwrap_or("the host returned an error").to_owned();
                Err(RpcError::new(error["code"].as_i64().unwrap_or(RpcError::INTERNAL), message))
            }
            (None, Some(result)) => Ok(result),
            (None, None) => {
                let error = RpcError::new(
                    RpcError::INVALID,
                    "a message must have a `method`, a `result` or an `error`",
                );
                return self.refuse(&id.unwrap_or_default(), error);
            }
        };
        // A response without a pending request came too late and is ignored.
        let _ = id.is_some_and(|id| self.peer.answered(&id, answer));
    }

    fn answer(&self, id: Option<&Value>, answer: Result<Value, RpcError>) {
        // A notification gets no response.
        let Some(id) = id else { return };
        match answer {
            Ok(result) => self.peer.outbox.say(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Err(error) => self.refuse(id, error),
        }
    }

    fn refuse(&self, id: &Value, error: RpcError) {
        self.peer.outbox.say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    /// Handles the methods that take no time.
    fn settle_now(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "initialize" => {
                let asked: Initialize = read(params)?;
                self.configure(&asked.pool);
                if let Some(most) = asked.max_concurrent {
                    self.admission.set_most(most);
                }
                *self.settings() = Settings {
                    defaults: asked.defaults,
                    retries: asked.max_retries,
                    retry_wait: asked.max_retry_wait_s,
                };
                let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
                write(&Initialized {
                    protocol: PROTOCOL,
                    server: Party::new("agentline", env!("CARGO_PKG_VERSION")),
                    methods: words(METHODS),
                    callbacks: words(CALLBACKS),
                    agents: self
                        .agentline
                        .registry()
                        .all()
                        .iter()
                        .map(|agent| agent.info().id.to_owned())
                        .collect(),
                })
            }
            "pool/configure" => {
                self.configure(&read(params)?);
                Ok(json!({}))
            }
            _ => {
                let asked: Cancel = read(params)?;
                let found = self.runs().get(asked.run.as_str()).map(CancellationToken::cancel).is_some();
                write(&Cancelled { found })
            }
        }
    }

    /// Returns the pool for new runs.
    pub(super) fn pool(&self) -> Pool {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Replaces the pool if its settings change. The old pool ends its agents when their runs are finished.
    fn configure(&self, asked: &PoolSettings) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = pool.1.clone();
        let places = options.max_processes.saturating_mul(options.concurrent_sessions);
        set(&mut options.max_processes, asked.max_processes.map(|n| n.max(1)));
        set(&mut options.concurrent_sessions, asked.lanes.map(|n| n.max(1)));
        set(&mut options.max_queue, asked.max_queue);
        set(&mut options.max_sessions, asked.max_sessions.map(|n| n.max(1)));
        set(&mut options.max_memory, asked.max_memory_mb.map(|mb| mb.saturating_mul(1 << 20)));
        set(&mut options.max_age, asked.max_age_s.map(Duration::from_secs));
        set(&mut options.idle_timeout, asked.idle_s.map(Duration::from_secs));
        if options == pool.1 {
            return;
        }
        let now = options.max_processes.saturating_mul(options.concurrent_sessions);
        *pool = (Pool::new(self.agentline.clone(), options.clone()), options);
        drop(pool);
        if now != places {
            self.admission.set_most(now);
        }
    }

    async fn call(&self, method: &str, params: Value, run: Option<Noted>) -> Result<Value, RpcError> {
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
                Ok(json!({}))
            }
            "agents" => Ok(self.agents()),
            "detect" => write(&self.detect(read(params)?).await?),
            "capabilities" => write(&self.unless_over(self.capabilities(read(params)?)).await??),
            #[cfg(feature = "sessions")]
            "sessions/list" => self.list(read(params)?).await,
            #[cfg(feature = "sessions")]
            "sessions/load" => self.load(read(params)?).await,
            #[cfg(feature = "sessions")]
            "sessions/search" => self.search(read(params)?).await,
            "pool/status" => {
                let (active, waiting, allowed) = self.admission.standing();
                let runs = json!({"active": active, "waiting": waiting, "allowed": allowed});
                Ok(json!({"pool": self.pool().status(), "runs": runs}))
            }
            "pool/prewarm" => {
                let params: Prewarm = read(params)?;
                let mut keys = params.keys;
                keys.entry("prompt").or_insert_with(|| "ready".into());
                let (agentline, request, _) = self.settle(keys)?;
                let pool = self.pool();
                let ready = pool.prewarm_by(&agentline, request, params.runs.max(1));
                let ready = self.unless_over(ready).await??;
                Ok(json!({"ready": ready}))
            }
            "cache/stats" => write(&self.cache_stats(read(params)?).await?),
            "cache/clear" => write(&self.cache_clear(read(params)?).await?),
            "shutdown" => Ok(json!({})),
            _ => {
                let message = format!("unknown method `{method}`; known methods: {}", METHODS.join(", "));
                Err(RpcError::new(RpcError::METHOD, message))
            }
        }
    }

    /// Cancels work that starts an agent but is not a run when the host disconnects.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Result<T, RpcError> {
        tokio::select! {
            done = work => Ok(done),
            () = self.over.cancelled() => Err(RpcError::new(RpcError::CANCELLED, "the host is shutting down")),
        }
    }

    /// Registers a run under the host's name for it.
    fn begin(self: &Arc<Self>, name: Option<&str>, id: Option<&Value>) -> Result<Noted, RpcError> {
        let name: Arc<str> = match (name, id) {
            (Some(name), _) => name.into(),
            (None, Some(Value::String(id))) => id.as_str().into(),
            (None, Some(id)) => id.to_string().into(),
            (None, None) => uuid::Uuid::new_v4().to_string().into(),
        };
        let mut runs = self.runs();
        if runs.contains_key(&name) {
            let problem = Problem::new("run", format!("a run named `{name}` is already in progress"));
            return Err(RpcError::usage(&[problem.hint("give each run a unique name, or omit `run`")]));
        }
        let stop = CancellationToken::new();
        runs.insert(Arc::clone(&name), stop.clone());
        Ok(Noted { host: Arc::clone(self), name, stop })
    }
}

/// A registered run. Dropping it removes the registration.
struct Noted {
    host: Arc<Host>,
    name: Arc<str>,
    stop: CancellationToken,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.host.runs().remove(&self.name);
    }
}

/// Returns the id of a request whose line cannot be parsed completely, for example because of invalid UTF-8.
fn asker(line: &[u8]) -> Value {
    #[derive(serde::Deserialize)]
    struct Asked {
        id: Value,
        #[serde(rename = "method")]
        _method: IgnoredAny,
    }
    serde_json::from_slice::<Asked>(line).map_or(Value::Null, |asked| asked.id)
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn read<T: DeserializeOwned + Default>(params: Value) -> Result<T, RpcError> {
    if params.is_null() {
        return Ok(T::default());
    }
    T::deserialize(&params).map_err(|why| RpcError::usage(&misfits::<T>(&params, &why)))
}

/// Returns a problem for each key that does not match.
fn misfits<T: DeserializeOwned>(params: &Value, why: &serde_json::Error) -> Vec<Problem> {
    let alone = |(key, value): (&String, &Value)| {
        let why = T::deserialize(&json!({ key: value })).err()?.to_string();
        // The missing field belongs to another key, which is left out here.
        let is_of_another = why.starts_with("missing field");
        (!is_of_another).then(|| Problem::new(key.clone(), format!("invalid value: {why}")))
    };
    let keys: Vec<Problem> = params.as_object().into_iter().flatten().filter_map(alone).collect();
    if keys.is_empty() { vec![Problem::new("params", format!("invalid parameters: {why}"))] } else { keys }
}

fn write(value: &impl serde::Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(value).map_err(|why| RpcError::new(RpcError::INTERNAL, why.to_string()))
}
