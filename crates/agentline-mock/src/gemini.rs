//! A scripted Gemini API on loopback, for the real Gemini CLI to talk to.
//!
//! The agent needs three things: the variables of [`ScriptedModel::env`], and in its `settings.json` the value of
//! [`SETTINGS`], because Gemini CLI refuses a base address of one's own while no way to log in is selected.
//!
//! Served are `POST /v1beta/models/{model}:streamGenerateContent`, `:generateContent` and `:countTokens`; anything
//! else is a 404. Requests that the agent makes for itself (the router of the model `auto`, summaries, checks) do
//! not use up steps: see [`Purpose`]. They are told apart by what they ask for: helper requests use
//! `:generateContent` without functions or ask for JSON, turns use `:streamGenerateContent`.

mod bytes;
mod demo;
mod request;
mod script;
mod step;
mod utility;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Connection, Incoming};
use wire::After;

pub use demo::demo_script;
pub use request::{Purpose, Request};
pub use script::Script;
pub use step::{Part, Step, Tokens};

/// The `settings.json` with which Gemini CLI accepts a model at an address of one's own.
pub const SETTINGS: &str = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;

/// The key that [`ScriptedModel::env`] gives the agent. It is no key of anything.
pub const FAKE_KEY: &str = "fake-key-for-the-scripted-model";

/// A loopback address where nothing listens: a connection to it is refused.
pub fn refused_url() -> io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// A model that answers by script. It serves from [`ScriptedModel::start`] until it is dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

type Respond = Box<dyn Fn(&Request) -> Step + Send + Sync>;

struct Shared {
    respond: Respond,
    started: Instant,
    requests: Mutex<Vec<Request>>,
    /// The open connections, and whether the model is being stopped.
    open: Mutex<Open>,
    stopping: Condvar,
}

#[derive(Default)]
struct Open {
    stopped: bool,
    next_id: u64,
    connections: HashMap<u64, (TcpStream, Option<JoinHandle<()>>)>,
}

impl ScriptedModel {
    /// Plays one script. Several agents may talk to the model at once; they then share its steps.
    pub fn start(script: Script) -> io::Result<Self> {
        let asked = Mutex::new(0_usize);
        Self::by_prompt(move |_| {
            let mut asked = lock(&asked);
            *asked += 1;
            script.at(*asked - 1)
        })
    }

    /// Answers each request to the main model by what it says, for agents with different scripts at the same time.
    ///
    /// ```no_run
    /// use agentline_mock::gemini::{Script, ScriptedModel, Step};
    ///
    /// let model = ScriptedModel::by_prompt(|request| {
    ///     let asks_for_red = request.user_texts().iter().any(|text| text.contains("red"));
    ///     let script = Script::new([Step::text(if asks_for_red { "red" } else { "blue" })]);
    ///     script.at(request.turn())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn by_prompt(respond: impl Fn(&Request) -> Step + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            started: Instant::now(),
            requests: Mutex::default(),
            open: Mutex::default(),
            stopping: Condvar::new(),
        });
        let acceptor = thread::Builder::new().name("scripted-model".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        })?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// The base address, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment that makes Gemini CLI use this model. It also needs [`SETTINGS`].
    pub fn env(&self) -> Vec<(String, String)> {
        vec![
            ("GOOGLE_GEMINI_BASE_URL".to_owned(), self.url()),
            ("GEMINI_API_KEY".to_owned(), FAKE_KEY.to_owned()),
        ]
    }

    /// Every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// The requests that used up a step.
    pub fn requests_to_main(&self) -> Vec<Request> {
        let requests = lock(&self.shared.requests);
        requests.iter().filter(|request| request.purpose == Purpose::Main).cloned().collect()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        lock(&self.shared.open).stopped = true;
        self.shared.stopping.notify_all();
        // The acceptor sees that it is over when one more client comes.
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(acceptor)) = (woken, self.acceptor.take()) {
            let _ = acceptor.join();
        }
        let connections = std::mem::take(&mut lock(&self.shared.open).connections);
        for (stream, _) in connections.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in connections.into_values().filter_map(|(_, thread)| thread) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("address", &self.address).finish_non_exhaustive()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut open = lock(&shared.open);
        if open.stopped {
            return;
        }
        let Ok(stream) = stream else { continue };
        let (Ok(kept), Ok(connection)) = (stream.try_clone(), Connection::new(stream)) else { continue };
        open.next_id += 1;
        let id = open.next_id;
        open.connections.insert(id, (kept, None));
        let spawned = thread::Builder::new().name(format!("scripted-model-{id}")).spawn({
            let shared = Arc::clone(shared);
            move || {
                // A responder that panics must not leave its client waiting for ever.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| serve(connection, &shared)));
                // A thread that is being joined finds no entry any more, and needs none.
                lock(&shared.open).connections.remove(&id);
            }
        });
        match (spawned, open.connections.get_mut(&id)) {
            (Ok(thread), Some((_, slot))) => *slot = Some(thread),
            _ => drop(open.connections.remove(&id)),
        }
    }
}

/// Serves the requests of one connection until either side has enough.
fn serve(mut connection: Connection, shared: &Shared) {
    while let Ok(Some(incoming)) = connection.next_request() {
        let wants_close = incoming.wants_close();
        match answer(incoming, &mut connection, shared) {
            Ok(After::Open) if !wants_close => {}
            _ => break,
        }
    }
    connection.drop_now();
}

fn answer(incoming: Incoming, connection: &mut Connection, shared: &Shared) -> io::Result<After> {
    let (request, streams) = read(incoming, shared.started);
    lock(&shared.requests).push(request.clone());
    match request.purpose {
        Purpose::Main => {
            let step = (shared.respond)(&request);
            wire::send(&step, &request.model, streams, connection, &|millis| shared.wait(millis))
        }
        Purpose::Router | Purpose::Utility if streams => {
            let step = Step::text(utility::answer(&request.body));
            wire::send(&step, &request.model, streams, connection, &|millis| shared.wait(millis))
        }
        Purpose::Router | Purpose::Utility => {
            wire::send_json(&wire::plain_answer(&request.model, utility::answer(&request.body)), connection)
        }
        // About four bytes make a token; nobody can tell better without the model.
        Purpose::Count => {
            let tokens = request.body["contents"].to_string().len() / 4;
            wire::send_json(&json!({"totalTokens": tokens}), connection)
        }
        Purpose::Unknown => {
            let step = Step::api_error(404, "NOT_FOUND", "the scripted model has no such path", Value::Null);
            wire::send(&step, "", false, connection, &|millis| shared.wait(millis))
        }
    }
}

/// Where the models are: of the Gemini API, and of Vertex AI with a key.
const MODELS: &[&str] = &["/v1beta/models/", "/v1beta1/publishers/google/models/"];

/// Takes a request apart, and says whether its answer is an event stream.
fn read(incoming: Incoming, started: Instant) -> (Request, bool) {
    let body: Value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
    let path = incoming.target.split('?').next().unwrap_or_default();
    let (model, verb) = MODELS
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix)?.rsplit_once(':'))
        .filter(|_| incoming.method == "POST")
        .unwrap_or_default();
    let purpose = match verb {
        "streamGenerateContent" => utility::purpose(true, &body),
        "generateContent" => utility::purpose(false, &body),
        "countTokens" => Purpose::Count,
        _ => Purpose::Unknown,
    };
    let request = Request {
        model: model.to_owned(),
        headers: incoming.headers,
        body,
        at_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        purpose,
        path: incoming.target.clone(),
    };
    (request, verb == "streamGenerateContent")
}

impl Shared {
    /// Sleeps, unless the model is stopped meanwhile; then the answer is `false`.
    fn wait(&self, millis: u64) -> bool {
        let timeout = Duration::from_millis(millis);
        let waited = self.stopping.wait_timeout_while(lock(&self.open), timeout, |open| !open.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

/// A test that panicked elsewhere must not hide what was recorded.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
