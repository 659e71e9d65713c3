//! What all clients of a server share: the settings, the slots, and the runs that may have inner callers.

use crate::{
    budget::NestedBudget,
    client::McpClient,
    options::AgentToolOptions,
    question::QuestionBoard,
    request::{CheckedStart, build, configured, is_offered},
    run_table::{AgentRun, RunResources},
    scope::CallerScope,
    tools::{self, StartRunArgs},
};
use agentline::{Agentline, McpServer, Problem, Problems, RunOptions};
use agentline_core::agents::split_version;
use agentline_fs::disk_fs::canonicalize;
use rmcp::model::Tool;
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// The variable with the socket of the outermost server.
pub const PARENT_VARIABLE: &str = "AGENTLINE_PARENT_SOCKET";
/// The variable with the token of the run that an inner server belongs to.
pub(crate) const TOKEN_VARIABLE: &str = "AGENTLINE_PARENT_TOKEN";
/// The variable with the depth of the agent, for its information only.
const DEPTH_VARIABLE: &str = "AGENTLINE_PARENT_DEPTH";
/// The variable with the budget of the agent at its start, for its information only.
const BUDGET_VARIABLE: &str = "AGENTLINE_PARENT_BUDGET";

/// The name of the inner server in the settings of an agent.
const INNER_NAME: &str = "agentline";
/// The rule that allows its tools.
const INNER_RULE: &str = "mcp__agentline";

/// How long reading the settings of a workspace may take.
const SETTINGS_TIME: Duration = Duration::from_secs(20);

/// What all clients of a server share.
pub(crate) struct ServerState {
    pub(crate) agentline: Agentline,
    pub(crate) options: AgentToolOptions,
    pub(crate) tools: Vec<Tool>,
    /// The agents that may be started.
    pub(crate) agents: Vec<String>,
    /// The scope of clients that are not agents of this server.
    pub(crate) scope: CallerScope,
    /// The socket for inner servers, once it is open.
    pub(crate) socket: OnceLock<PathBuf>,
    slots: Arc<Semaphore>,
    /// The runs in progress by their tokens.
    parents: Mutex<HashMap<String, Weak<AgentRun>>>,
}

impl ServerState {
    /// Checks the options and the settings of the first root.
    pub(crate) fn new(agentline: Agentline, mut options: AgentToolOptions) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        if options.roots.is_empty() {
            options.roots.push(agentline.host_env().cwd.clone());
        }
        let mut roots = Vec::new();
        for root in &options.roots {
            let path = agentline.host_env().cwd.join(root);
            match canonicalize(&path) {
                Ok(found) if found.is_dir() => roots.push(found),
                Ok(_) => problems.push(no_root(&path, "is not a directory")),
                Err(error) => problems.push(no_root(&path, &format!("cannot be opened: {error}"))),
            }
        }
        if options.max_cost_usd.is_some_and(|most| !most.is_finite() || most <= 0.0) {
            problems.push(
                Problem::new("max_cost", "must be an amount in US dollars above 0")
                    .hint("leave it out for no limit"),
            );
        }
        let mut agents = Vec::new();
        let first = roots.first().unwrap_or(&agentline.host_env().cwd);
        match configured(&agentline, &options, first) {
            Ok((configured, request)) => {
                problems.extend(unknown_agents(&configured, &options));
                problems.extend(default_agent(&configured, &options, &request.agent));
                let all =
                    || configured.registry().all().iter().map(|agent| agent.info().id.to_owned()).collect();
                agents = options.agents.clone().unwrap_or_else(all);
            }
            Err(others) => problems.extend(others.0),
        }
        Problems(problems).into_result()?;
        Ok(Self {
            slots: Arc::new(Semaphore::new(options.max_runs.clamp(1, Semaphore::MAX_PERMITS))),
            agents,
            tools: tools::all(options.max_wait.as_secs()),
            scope: CallerScope::of_client(roots, NestedBudget::new(options.max_cost_usd)),
            agentline,
            options,
            socket: OnceLock::new(),
            parents: Mutex::default(),
        })
    }

    /// Starts a run for a client. It has a slot and a part of the budget, or it is refused.
    ///
    /// # Errors
    /// Returns why the run is refused.
    pub(crate) async fn start(
        self: &Arc<Self>,
        client: &McpClient,
        args: StartRunArgs,
        can_ask: bool,
    ) -> Result<Arc<AgentRun>, String> {
        let depth = client.scope.depth + 1;
        if depth > self.options.max_depth {
            return Err(format!(
                "this agent was started by another one, and this server allows a depth of {} (--max-depth)",
                self.options.max_depth
            ));
        }
        let most = self.options.max_runs;
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            format!(
                "{most} agents are already at work, the most that this server allows; wait for one of them"
            )
        })?;
        let max_cost = args.max_cost;
        let mut start = self.check(client.scope.clone(), args).await?;
        let reserved = client.scope.budget.reserve(max_cost, start.request.limits.max_cost)?;
        start.request.limits.max_cost = reserved.amount();

        let is_outermost = client.scope.depth == 0;
        let own_board = (can_ask && is_outermost).then(|| QuestionBoard::new(self.options.ask_timeout));
        // An agent must not decide what its user would have been asked.
        let board = own_board.clone().or_else(|| client.scope.board.clone());
        let part = reserved.part().clone();
        let scope = client.scope.of_run(&start.request, &start.workspace, part, board.clone());
        let token = new_token();
        self.offer_inner_server(&mut start, &scope, &token);
        let options = match &board {
            Some(board) => RunOptions::new().permission_handler(board.handler()),
            None => RunOptions::new(),
        };
        let run = Arc::new(AgentRun::new(client.next_id(), &start, scope, own_board));
        if !client.add(Arc::clone(&run)) {
            reserved.settle(Some(0.0));
            return Err("the client has disconnected".into());
        }
        self.parents().insert(token.clone(), Arc::downgrade(&run));
        let (state, driven) = (Arc::clone(self), Arc::clone(&run));
        tokio::spawn(async move {
            let resources = RunResources { reserved, slot };
            let driving = tokio::spawn(Arc::clone(&driven).drive(start, options, resources));
            if driving.await.is_err() {
                driven.fail("internal error: the run panicked");
            }
            state.parents().remove(&token);
        });
        Ok(run)
    }

    /// Returns the run in progress with this token.
    pub(crate) fn parent(&self, token: &str) -> Option<Arc<AgentRun>> {
        self.parents().get(token).and_then(Weak::upgrade)
    }

    async fn check(&self, scope: CallerScope, args: StartRunArgs) -> Result<CheckedStart, String> {
        let (agentline, options) = (self.agentline.clone(), self.options.clone());
        let built = spawn_blocking(move || build(&agentline, &options, &scope, &args));
        match timeout(SETTINGS_TIME, built).await {
            Ok(Ok(built)) => built.map_err(|problems| problems.to_string()),
            Ok(Err(_)) => Err("internal error: the settings could not be read".into()),
            Err(_) => Err(format!("the settings of the workspace took more than {SETTINGS_TIME:?} to read")),
        }
    }

    /// Gives the agent its place in the tree, and the tools of this server if it may start others.
    fn offer_inner_server(&self, start: &mut CheckedStart, scope: &CallerScope, token: &str) {
        let Some(socket) = self.socket.get() else { return };
        let mut env: BTreeMap<String, String> = [
            (PARENT_VARIABLE, socket.to_string_lossy().into_owned()),
            (TOKEN_VARIABLE, token.to_owned()),
            (DEPTH_VARIABLE, scope.depth.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(rest) = scope.budget.remaining() {
            env.insert(BUDGET_VARIABLE.to_owned(), format!("{rest:.4}"));
        }
        let request = &mut start.request;
        // Also in the environment of the agent, for a server in its own settings.
        request.env.extend(env.clone());
        let Some((command, args)) = self.options.inner_command.split_first() else { return };
        if scope.depth >= self.options.max_depth || request.mcp_servers.contains_key(INNER_NAME) {
            return;
        }
        let server = McpServer::Command { command: command.clone(), args: args.to_vec(), env };
        request.mcp_servers.insert(INNER_NAME.to_owned(), server);
        // The operator of this server has allowed it with the depth.
        *request = std::mem::take(request).allow(INNER_RULE);
    }

    fn parents(&self) -> MutexGuard<'_, HashMap<String, Weak<AgentRun>>> {
        self.parents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a random token.
pub(crate) fn new_token() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

fn no_root(path: &std::path::Path, what: &str) -> Problem {
    Problem::new("root", format!("`{}` {what}", path.display())).hint("name a directory that exists")
}

/// Returns a problem for each agent that is not known, or that has a version: calls name agents only.
fn unknown_agents(agentline: &Agentline, options: &AgentToolOptions) -> Vec<Problem> {
    let named = options.agents.iter().flatten();
    let find = |name: &String| match split_version(name) {
        (agent, Some(_)) => {
            let problem = Problem::new("agents", format!("`{name}` has a version"));
            Some(problem.hint(format!("name the agent alone: `{agent}`")))
        }
        (agent, None) => agentline.registry().find(agent).err(),
    };
    named
        .filter_map(find)
        .map(|mut problem| {
            problem.key = "agents".into();
            problem
        })
        .collect()
}

/// Returns a problem of the agent that the options choose for calls without one.
fn default_agent(agentline: &Agentline, options: &AgentToolOptions, agent: &str) -> Option<Problem> {
    if !options.settings.contains_key("agent") {
        return None;
    }
    if let Err(problem) = agentline.registry().find(split_version(agent).0) {
        return Some(problem);
    }
    let message = format!("`{agent}` is not one of the agents that may be started");
    let hint = "add it to them, or choose one of them";
    (!is_offered(agentline, options, agent)).then(|| Problem::new("agent", message).hint(hint))
}
