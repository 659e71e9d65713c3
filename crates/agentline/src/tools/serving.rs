//! What one run offers to its agent, and the handle that keeps it on offer.

use super::{
    ToolHost,
    desk::Desk,
    http::{Door, Room},
    relay::{Ground, Relay},
    server::Server,
    side::Side,
    tool::Tool,
};
use crate::{
    error::Error,
    process::{Isolation, Supervisor},
};
use agentline_core::{McpServer, Problems};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fmt,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU32},
    time::Duration,
};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// At most so many side lines are handed out at once.
const BATCH: usize = 256;

type Validate = dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

/// How long a foreign server may take to start when nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one run offers besides the tools of its host.
#[must_use]
pub struct Offer {
    structured: Option<Structured>,
    servers: BTreeMap<String, McpServer>,
    added: &'static [&'static str],
    ground: Ground,
}

impl Offer {
    /// Nothing besides the host's tools.
    pub fn new() -> Self {
        let ground = Ground {
            cwd: ".".into(),
            env: BTreeMap::new(),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            patience: PATIENCE,
        };
        Self { structured: None, servers: BTreeMap::new(), added: &[], ground }
    }

    /// A tool by which the agent hands in its answer as a value.
    pub fn structured(mut self, structured: Structured) -> Self {
        self.structured = Some(structured);
        self
    }

    /// A foreign MCP server. We start it or connect to it, and the agent reaches it through us; a server on `https://` is
    /// left to the agent itself.
    pub fn server(mut self, name: impl Into<String>, server: McpServer) -> Self {
        self.servers.insert(name.into(), server);
        self
    }

    /// Arguments that the agent adds to every call for itself (see `Agent::added_arguments`): a tool that does not know
    /// them does not get them.
    pub const fn added_arguments(mut self, names: &'static [&'static str]) -> Self {
        self.added = names;
        self
    }

    /// Where the programs of foreign servers work; without it, where this program does.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.ground.cwd = cwd.into();
        self
    }

    /// The environment of the programs of foreign servers, to which each server's own variables are added. Without it they
    /// have no `PATH` either.
    pub fn env(mut self, env: BTreeMap<OsString, OsString>) -> Self {
        self.ground.env = env;
        self
    }

    /// Who clears up the programs of foreign servers after the sudden death of this one.
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        self.ground.supervisor = supervisor;
        self
    }

    /// Sets whether the programs of foreign servers get a pid namespace; [`Isolation::Auto`] by default.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.ground.isolation = isolation;
        self
    }

    /// How long a foreign server may take to start, and to list what it has: ten seconds when nothing is said. After that
    /// it counts as dead, and the agent is told that it has no tools.
    pub const fn startup_timeout(mut self, patience: Duration) -> Self {
        self.ground.patience = patience;
        self
    }
}

/// The environment is not shown: it holds secrets.
impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("structured", &self.structured)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl Default for Offer {
    fn default() -> Self {
        Self::new()
    }
}

/// A tool by which the agent hands in its answer as a value. A later good value replaces an earlier one.
pub struct Structured {
    name: String,
    description: String,
    schema: Value,
    validate: Arc<Validate>,
}

impl Structured {
    /// A tool `structured_output` that takes values of this schema, which must be of type `object`. What `validate` finds
    /// wrong goes back to the model.
    pub fn new<F, Fut>(schema: Value, validate: F) -> Self
    where
        F: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name: "structured_output".into(),
            description: "Hands in the final answer. Call it once, when the work is done; call it again only to correct \
                          the answer."
                .into(),
            schema,
            validate: Arc::new(move |value| Box::pin(validate(value))),
        }
    }

    /// Another name than `structured_output`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Another description, which the model reads.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    fn into_tool(self, slot: Arc<Mutex<Option<Value>>>, side: Side) -> Tool {
        let validate = self.validate;
        Tool::new(self.name, self.description, self.schema, move |value: Value, _call| {
            let (validate, slot, side) = (Arc::clone(&validate), Arc::clone(&slot), side.clone());
            async move {
                validate(value.clone()).await?;
                side.tell(&json!({ "value": value }));
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                Ok("the answer was taken")
            }
        })
    }
}

impl fmt::Debug for Structured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Structured")
            .field("name", &self.name)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// What a run has on offer, as long as this lives.
///
/// Dropping it stops the calls that are under way and takes the run's servers away.
pub struct Serving {
    run: String,
    door: Arc<Door>,
    token: String,
    servers: BTreeMap<String, McpServer>,
    lines: UnboundedReceiver<String>,
    /// Keeps the channel of the lines open, so that whoever waits for the next one waits.
    _side: Side,
    value: Arc<Mutex<Option<Value>>>,
    closed: CancellationToken,
    own: Option<Arc<Desk>>,
    foreign: Vec<Arc<Relay>>,
    /// One for each foreign server.
    tasks: Vec<JoinHandle<()>>,
}

/// The token is not shown.
impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("run", &self.run)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// Offers a host's tools and what else the run has.
pub(super) fn serve(host: &ToolHost, offer: Offer) -> Result<Serving, Error> {
    let (side, lines) = Side::new();
    let value = Arc::<Mutex<Option<Value>>>::default();
    let mut tools = host.tools.clone();
    if let Some(structured) = offer.structured {
        tools.push(Arc::new(structured.into_tool(Arc::clone(&value), side.clone())));
    }
    let mut problems = host.problems(&tools);
    if !tools.is_empty() {
        problems.extend(host.mistaken(offer.servers.keys()));
    }
    Problems(problems).into_result()?;
    let door = Door::open().map_err(Error::io("listen on", "127.0.0.1"))?;
    let (run, token) = (Uuid::new_v4().simple().to_string(), random_token());
    let closed = CancellationToken::new();
    let mut servers = BTreeMap::new();
    let mut own = None;
    if !tools.is_empty() {
        servers.insert(host.name.clone(), reached_at(door.url(&run), &token));
        own = Some(Arc::new(Desk::new(host.name.clone(), tools, offer.added, side.clone(), closed.clone())));
    }
    let mut foreign = HashMap::new();
    let mut tasks = Vec::new();
    for (name, server) in offer.servers {
        if let Some(why) = unrelayed(&server) {
            side.tell(&json!({"server": name, "unrelayed": why}));
            servers.insert(name, server);
            continue;
        }
        let place = in_a_path(&name);
        servers.insert(name.clone(), reached_at(door.url(&format!("{run}/{place}")), &token));
        let (relay, task) = Relay::start(name, &server, &offer.ground, side.clone(), closed.clone());
        foreign.insert(place, relay);
        tasks.push(task);
    }
    let relays = foreign.values().cloned().collect();
    let room = Room {
        token: token.clone(),
        side: side.clone(),
        own: own.clone().map(Server::new),
        foreign,
        refused: AtomicU32::new(0),
    };
    door.enter(&run, room);
    Ok(Serving { run, door, token, servers, lines, _side: side, value, closed, own, foreign: relays, tasks })
}

impl Serving {
    /// The servers that the agent is to be told of, by name, with all that it needs to reach them.
    #[must_use]
    pub const fn servers(&self) -> &BTreeMap<String, McpServer> {
        &self.servers
    }

    /// The token that the agent sends with each request: a secret of this run.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Waits for the next side lines; what they say stands in the [module](super). May be dropped and called again without
    /// losing anything.
    pub async fn next(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.lines.recv_many(&mut lines, BATCH).await;
        lines
    }

    /// The side lines that nobody has taken yet.
    pub fn drain(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).collect()
    }

    /// The last good value that the tool of [`Structured`] got.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops all calls that are under way, of our own tools and of foreign ones. Agents may give calls up without a word:
    /// Gemini CLI 0.61.0 does when its turn is cancelled.
    pub fn cancel_calls(&self) {
        self.own.iter().for_each(|desk| desk.under_way.cancel_all());
        self.foreign.iter().for_each(|relay| relay.under_way.cancel_all());
    }

    /// Takes everything away, as a drop does, and waits until the programs of foreign servers have ended: a moment, in
    /// which they may do so by themselves.
    pub async fn close(mut self) {
        self.end();
        for task in std::mem::take(&mut self.tasks) {
            // One that panicked has ended as well.
            let _ = task.await;
        }
    }

    fn end(&self) {
        self.door.leave(&self.run);
        self.closed.cancel();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why the agent has to talk to a server without us.
fn unrelayed(server: &McpServer) -> Option<&'static str> {
    match server {
        McpServer::Url { url, .. } if !starts_with_http(url) => Some("only `http://` addresses are relayed"),
        _ => None,
    }
}

fn starts_with_http(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http"))
}

/// A name as one part of a path.
fn in_a_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// 244 random bits.
fn random_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn reached_at(url: String, token: &str) -> McpServer {
    McpServer::Url { url, headers: [("Authorization".to_owned(), format!("Bearer {token}"))].into() }
}
