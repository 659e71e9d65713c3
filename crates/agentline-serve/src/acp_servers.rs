//! The ACP servers behind `/acp`: one for each token and agent, because all clients of one can load its kept sessions.

use crate::{
    http_error::ApiError, options::ServeLimits, roots::Roots, start::StartRules, token_use::TokenSlot,
    tokens::AccessToken,
};
use agentline::{Agentline, Problem, Problems, RunRequest, config::Settings};
use agentline_acp::{AcpServer, Workspace};
use agentline_core::{Layer, agents::split_version};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// How long connections may take to end when the server stops.
const STOP_TIME: Duration = Duration::from_secs(30);

/// How many agents and versions of agents one token may use since the start of the server.
const AGENTS: usize = 64;

/// The ACP servers.
#[derive(Debug)]
pub(crate) struct AcpServers {
    agentline: Agentline,
    roots: Roots,
    keep: Duration,
    servers: Mutex<HashMap<(String, String), AcpServer>>,
    slots: Arc<Semaphore>,
    stopping: CancellationToken,
    connections: TaskTracker,
}

/// An agent that a client may connect to.
#[derive(Debug)]
pub(crate) struct ServedAcpAgent {
    pub(crate) server: AcpServer,
    /// The id of the agent, with its version if the client named one.
    pub(crate) id: String,
    /// Where the agent starts before the client has named a directory.
    pub(crate) directory: PathBuf,
}

/// A slot among the connections. The end of the server waits for it.
#[derive(Debug)]
pub(crate) struct AcpSlot {
    _slot: OwnedSemaphorePermit,
    _token_slot: TokenSlot,
    _tracked: TaskTrackerToken,
    pub(crate) stopping: CancellationToken,
}

impl AcpServers {
    pub(crate) fn new(agentline: Agentline, roots: Roots, limits: &ServeLimits) -> Self {
        Self {
            agentline,
            roots,
            keep: limits.acp_session_time,
            servers: Mutex::default(),
            slots: Arc::new(Semaphore::new(limits.acp_connections)),
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        }
    }

    /// Returns the agent that a client names, or the default one. Blocks: it reads settings.
    pub(crate) fn find(
        &self,
        token: &Arc<AccessToken>,
        agent: Option<&str>,
    ) -> Result<ServedAcpAgent, ApiError> {
        let directory = self.roots.resolve("cwd", ".")?;
        let settings = AcpSettings {
            agentline: self.agentline.clone(),
            roots: self.roots.clone(),
            token: Arc::clone(token),
        };
        let (agentline, request) = settings.read(agent, &directory)?;
        let found = agentline.registry().find(&request.agent).map_err(|p| ApiError::problems(&[p]))?;
        // A version belongs to the name.
        let id = match split_version(&request.agent) {
            (_, Some(version)) => format!("{}@{version}", found.info().id),
            _ => found.info().id.to_owned(),
        };
        let key = (token.name.clone(), id.clone());
        if let Some(server) = self.known(&key) {
            return Ok(ServedAcpAgent { server, id, directory });
        }
        let named = id.clone();
        let configure = move |directory: &Path| settings.workspace(&named, directory);
        let server = AcpServer::new(configure).keeping_sessions(self.keep);
        server.check(&directory).map_err(|problems| ApiError::problems(&problems.0))?;
        let mut servers = self.servers();
        if servers.keys().filter(|(name, _)| *name == token.name).count() >= AGENTS {
            return Err(ApiError::rate_limited(
                "too many agents, or versions of them, are known for this token",
            ));
        }
        // Another connection may have been faster.
        let server = servers.entry(key).or_insert(server).clone();
        Ok(ServedAcpAgent { server, id, directory })
    }

    /// Takes a slot for a connection.
    pub(crate) fn slot(&self, token: &AccessToken) -> Result<AcpSlot, ApiError> {
        if self.stopping.is_cancelled() {
            return Err(ApiError::unavailable());
        }
        let full = || ApiError::rate_limited("too many ACP connections are open");
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| full())?;
        // An agent that waits for a client does not count here, because this client may continue its session.
        let token_slot = token.in_use.take(token.policy.max_concurrent, || 0).ok_or_else(full)?;
        let (tracked, stopping) = (self.connections.token(), self.stopping.clone());
        Ok(AcpSlot { _slot: slot, _token_slot: token_slot, _tracked: tracked, stopping })
    }

    /// Returns how many agents of a token wait for a client.
    pub(crate) fn kept_agents(&self, token: &str) -> usize {
        self.of_token(token).iter().map(|server| server.kept_sessions().len()).sum()
    }

    /// Returns whether no more agents of a token are in use than allowed, with those that wait for a client.
    pub(crate) fn has_slot(&self, token: &AccessToken) -> bool {
        token.in_use.is_within(token.policy.max_concurrent, || self.kept_agents(&token.name))
    }

    /// Returns whether an agent waits for a client with this session.
    pub(crate) fn is_kept(&self, token: &AccessToken, agent: &str, session: Option<&str>) -> bool {
        let key = (token.name.clone(), agent.to_owned());
        let kept = self.known(&key).map(|server| server.kept_sessions()).unwrap_or_default();
        kept.iter().flatten().any(|kept| Some(kept.as_str()) == session)
    }

    fn of_token(&self, token: &str) -> Vec<AcpServer> {
        let servers = self.servers();
        servers.iter().filter(|((name, _), _)| name == token).map(|(_, server)| server.clone()).collect()
    }

    fn known(&self, key: &(String, String)) -> Option<AcpServer> {
        self.servers().get(key).cloned()
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<(String, String), AcpServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all connections and all agents.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        self.connections.close();
        // A connection that does not end in time is left to the end of the process.
        let _ = tokio::time::timeout(STOP_TIME, self.connections.wait()).await;
        let servers = std::mem::take(&mut *self.servers());
        for server in servers.values() {
            server.close_kept_sessions().await;
        }
    }
}

/// The settings for the sessions of a token.
struct AcpSettings {
    agentline: Agentline,
    roots: Roots,
    token: Arc<AccessToken>,
}

impl AcpSettings {
    /// Returns the settings for a directory, by the same rules as for a run.
    fn read(&self, agent: Option<&str>, directory: &Path) -> Result<(Agentline, RunRequest), ApiError> {
        let rules =
            StartRules { roots: &self.roots, policy: &self.token.policy, agents: self.agentline.registry() };
        let mut body = Map::new();
        body.insert("working_dir".to_owned(), directory.to_string_lossy().into());
        if let Some(agent) = agent {
            body.insert("agent".to_owned(), agent.into());
        }
        let keys = rules.read(Value::Object(body))?.params.keys;
        let host_env = self.agentline.host_env();
        let variables = host_env.env.iter().map(|(name, value)| (name.into(), value.into()));
        let layer = Layer::flags(keys).base(host_env.cwd.clone());
        let settings = Settings::find(&host_env.cwd, None, Some(&host_env.home), variables, vec![layer]);
        let config = settings.build().map_err(|problems| ApiError::problems(&problems.0))?;
        Ok(self.agentline.clone().with_config(&config))
    }

    fn workspace(&self, agent: &str, directory: &Path) -> Result<Workspace, Problems> {
        let read = self.read(Some(agent), directory);
        let (agentline, request) = read.map_err(|error| Problem::new("cwd", error.message()))?;
        Ok(Workspace::new(agentline, request))
    }
}
