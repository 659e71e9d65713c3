//! The tools and servers that one run offers to its agent, and the handle that keeps them available.

use super::{
    ToolHost,
    http::{Listener, Route},
    relay::{Relay, RelayContext},
    server::McpToolServer,
    tool::Tool,
};
use crate::tools::{registry::ToolRegistry, side_sender::SideSender};
use crate::{
    error::Error,
    process::{Isolation, KillDeadline, Supervisor},
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

/// The maximum number of side lines returned at once.
const BATCH: usize = 256;

type Validate = dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

/// The default startup timeout of a relayed server.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The offer of one run, in addition to the tools of its host.
#[must_use]
pub struct ToolOffer {
    structured: Option<AnswerTool>,
    servers: BTreeMap<String, McpServer>,
    added: &'static [&'static str],
    context: RelayContext,
}

impl ToolOffer {
    /// Creates an empty offer.
    pub fn new() -> Self {
        let context = RelayContext {
            cwd: ".".into(),
            env: BTreeMap::new(),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            kill_deadline: None,
            patience: STARTUP_TIMEOUT,
        };
        Self { structured: None, servers: BTreeMap::new(), added: &[], context }
    }

    /// Adds a tool with which the agent submits its answer as a value.
    pub fn structured(mut self, structured: AnswerTool) -> Self {
        self.structured = Some(structured);
        self
    }

    /// Adds another MCP server, which is started or connected to and relayed to the agent.
    ///
    /// The agent connects to servers on `https://` directly.
    pub fn server(mut self, name: impl Into<String>, server: McpServer) -> Self {
        self.servers.insert(name.into(), server);
        self
    }

    /// Sets the arguments that the agent adds to every call for its own use (see `AgentDescription::added_arguments`).
    ///
    /// They are removed from calls to tools that do not declare them.
    pub const fn added_arguments(mut self, names: &'static [&'static str]) -> Self {
        self.added = names;
        self
    }

    /// Sets the working directory of relayed servers. The default is that of this process.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.context.cwd = cwd.into();
        self
    }

    /// Sets the environment of relayed servers, to which each server's own variables are added.
    ///
    /// The default is empty, without a `PATH`.
    pub fn env(mut self, env: BTreeMap<OsString, OsString>) -> Self {
        self.context.env = env;
        self
    }

    /// Sets the supervisor that ends relayed servers if this process is killed.
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        self.context.supervisor = supervisor;
        self
    }

    /// Sets whether relayed servers get a pid namespace. The default is [`Isolation::Auto`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.context.isolation = isolation;
        self
    }

    /// Sets the deadline at which the supervisors of relayed servers kill them.
    pub fn kill_deadline(mut self, deadline: Option<KillDeadline>) -> Self {
        self.context.kill_deadline = deadline;
        self
    }

    /// Sets the maximum time for a relayed server to start, and to list its tools. The default is ten seconds.
    ///
    /// After that, the agent sees a server without tools.
    pub const fn startup_timeout(mut self, patience: Duration) -> Self {
        self.context.patience = patience;
        self
    }
}

/// Omits the environment, which contains secrets.
impl fmt::Debug for ToolOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOffer")
            .field("structured", &self.structured)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl Default for ToolOffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A tool with which the agent submits its answer as a value. A later valid value replaces an earlier one.
pub struct AnswerTool {
    name: String,
    description: String,
    schema: Value,
    validate: Arc<Validate>,
}

impl AnswerTool {
    /// Creates a tool `structured_output` for values of this schema, which must be of type `object`.
    ///
    /// Errors of `validate` are returned to the model.
    pub fn new<F, Fut>(schema: Value, validate: F) -> Self
    where
        F: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name: "structured_output".into(),
            description: "Submits the final answer. Call it once, when the work is done; call it again only to correct \
                          the answer."
                .into(),
            schema,
            validate: Arc::new(move |value| Box::pin(validate(value))),
        }
    }

    /// Sets a name other than `structured_output`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets another description, which the model reads.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    fn into_tool(self, slot: Arc<Mutex<Option<Value>>>, side: SideSender) -> Tool {
        let validate = self.validate;
        Tool::new(self.name, self.description, self.schema, move |value: Value, _call| {
            let (validate, slot, side) = (Arc::clone(&validate), Arc::clone(&slot), side.clone());
            async move {
                validate(value.clone()).await?;
                side.send_line(&json!({ "value": value }));
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                Ok("the answer was accepted")
            }
        })
    }
}

impl fmt::Debug for AnswerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerTool")
            .field("name", &self.name)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// The servers that a run offers, for as long as this value exists.
///
/// Dropping it stops calls in progress and removes the run's servers.
pub struct RunningTools {
    run: String,
    listener: Arc<Listener>,
    token: String,
    servers: BTreeMap<String, McpServer>,
    lines: UnboundedReceiver<String>,
    /// Keeps the channel open, so that `next` waits while there are no lines.
    _side: SideSender,
    value: Arc<Mutex<Option<Value>>>,
    closed: CancellationToken,
    own: Option<Arc<ToolRegistry>>,
    foreign: Vec<Arc<Relay>>,
    /// One task for each relayed server.
    tasks: Vec<JoinHandle<()>>,
}

/// Omits the token.
impl fmt::Debug for RunningTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTools")
            .field("run", &self.run)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// Serves a host's tools and the run's offer.
pub(super) fn serve(host: &ToolHost, offer: ToolOffer) -> Result<RunningTools, Error> {
    let (side, lines) = SideSender::new();
    let value = Arc::<Mutex<Option<Value>>>::default();
    let mut tools = host.tools.clone();
    if let Some(structured) = offer.structured {
        tools.push(Arc::new(structured.into_tool(Arc::clone(&value), side.clone())));
    }
    let mut problems = host.problems(&tools);
    if !tools.is_empty() {
        problems.extend(host.ambiguous_servers(offer.servers.keys()));
    }
    Problems(problems).into_result()?;
    let listener = Listener::open().map_err(Error::io("listen on", "127.0.0.1"))?;
    let (run, token) = (Uuid::new_v4().simple().to_string(), random_token());
    let closed = CancellationToken::new();
    let mut servers = BTreeMap::new();
    let mut own = None;
    if !tools.is_empty() {
        servers.insert(host.name.clone(), reached_at(listener.url(&run), &token));
        own = Some(Arc::new(ToolRegistry::new(
            host.name.clone(),
            tools,
            offer.added,
            side.clone(),
            closed.clone(),
        )));
    }
    let mut foreign = HashMap::new();
    let mut tasks = Vec::new();
    for (name, server) in offer.servers {
        if let Some(reason) = unrelayed(&server) {
            side.send_line(&json!({"server": name, "unrelayed": reason}));
            servers.insert(name, server);
            continue;
        }
        let segment = in_a_path(&name);
        servers.insert(name.clone(), reached_at(listener.url(&format!("{run}/{segment}")), &token));
        let (relay, task) = Relay::start(name, &server, &offer.context, side.clone(), closed.clone());
        foreign.insert(segment, relay);
        tasks.push(task);
    }
    let relays = foreign.values().cloned().collect();
    let route = Route {
        token: token.clone(),
        side: side.clone(),
        own: own.clone().map(McpToolServer::new),
        foreign,
        refused: AtomicU32::new(0),
    };
    listener.enter(&run, route);
    Ok(RunningTools {
        run,
        listener,
        token,
        servers,
        lines,
        _side: side,
        value,
        closed,
        own,
        foreign: relays,
        tasks,
    })
}

impl RunningTools {
    /// Returns the servers to configure in the agent, by name, with everything needed to reach them.
    #[must_use]
    pub const fn servers(&self) -> &BTreeMap<String, McpServer> {
        &self.servers
    }

    /// Returns the token that the agent sends with each request, a secret of this run.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Waits for the next side lines, which the [module](super) describes.
    ///
    /// Cancel safe: no line is lost if the future is dropped.
    pub async fn next(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.lines.recv_many(&mut lines, BATCH).await;
        lines
    }

    /// Returns the side lines that are already available.
    pub fn drain(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).collect()
    }

    /// Returns the last valid value that the tool of [`AnswerTool`] received.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops all calls in progress, of the host's tools and of relayed servers.
    ///
    /// Agents may abandon calls without a notification, as Gemini CLI 0.61.0 does when its turn is cancelled.
    pub fn cancel_calls(&self) {
        self.own.iter().for_each(|registry| registry.in_flight.cancel_all());
        self.foreign.iter().for_each(|relay| relay.in_flight.cancel_all());
    }

    /// Removes the run's servers, as a drop does, and waits briefly until the programs of relayed servers have exited.
    pub async fn close(mut self) {
        self.end();
        for task in std::mem::take(&mut self.tasks) {
            // A task that panicked has ended as well.
            let _ = task.await;
        }
    }

    fn end(&self) {
        self.listener.leave(&self.run);
        self.closed.cancel();
    }
}

impl Drop for RunningTools {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the reason why a server is not relayed.
fn unrelayed(server: &McpServer) -> Option<&'static str> {
    match server {
        McpServer::Url { url, .. } if !starts_with_http(url) => Some("only `http://` URLs are relayed"),
        _ => None,
    }
}

fn starts_with_http(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http"))
}

/// Percent-encodes a name as one segment of a path.
fn in_a_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Returns a token with 244 random bits.
fn random_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn reached_at(url: String, token: &str) -> McpServer {
    McpServer::Url { url, headers: [("Authorization".to_owned(), format!("Bearer {token}"))].into() }
}
