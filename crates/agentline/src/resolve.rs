//! Resolves a request: checks it, finds the agent and the workspace, builds the launch, and divides it by lifetime.

pub mod attachments;
pub(crate) mod integrity;
pub(crate) mod materialize;
pub(crate) mod spec;

use crate::fs::disk_fs::canonicalize;
use crate::{
    agentline::Inner,
    detect::{Detection, HostEnv, detect, detect_elsewhere},
    error::Error,
    fs::{
        caching_fs::CachingFs,
        disk_fs::DiskFs,
        private_dir::{PRIVATE, PrivateDir, WORKSPACE, new_path},
    },
    install::is_version,
    process::SpawnError,
    resolve::spec::{Placeholders, ProcessSpec, ResolvedRun, divide},
};
use agentline_core::{
    Agent, AgentInfo, Failure, FailureKind, LaunchContext, McpServer, Outcome, Plan, Problem, Problems,
    Program, RunInfo, RunRequest, Secrets, Signal, Surface, Trust, Verdict, agents::split_version,
    error_chain,
};
#[cfg(feature = "sessions")]
use agentline_sessions::{SessionFilter, SessionStore};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A placeholder for the private directory in the keys of the pool and the cache.
const NO_DIRECTORY: &str = "/agentline-private";

/// A placeholder for the session id in these keys.
const NO_SESSION: &str = "00000000-0000-4000-8000-000000000000";

/// Whether this build can read the sessions of an agent that stores them in a database.
const READS_DATABASES: bool = cfg!(feature = "sessions");

/// A checked request with its agent.
#[derive(Clone)]
pub(crate) struct PlannedRun {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) plan: Plan,
}

/// A checked request with its agent, program and workspace.
pub(crate) struct CheckedRun {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) plan: Plan,
    /// The program, the workspace and the caller; without a private directory.
    pub(crate) context: LaunchContext,
    pub(crate) info: RunInfo,
    /// The workspace, if it is a temporary one that is created for the run and removed with it.
    pub(crate) temporary: Option<Arc<PrivateDir>>,
}

/// Returns a problem for each limit on tokens, if the database in which the agent stores them cannot be read. Over ACP, such
/// an agent does not report all of them.
fn uncounted(plan: &Plan, agent: &dyn Agent) -> Vec<Problem> {
    if READS_DATABASES || plan.surface != Surface::Acp || agent.sessions().database().is_none() {
        return Vec::new();
    }
    let limits = &plan.request.limits;
    let tokens = [("max_tokens", limits.max_tokens), ("max_output_tokens", limits.max_output_tokens)];
    let set = tokens.into_iter().filter(|(_, most)| most.is_some());
    let message = "cannot be enforced over ACP: this build of agentline cannot read the agent's database";
    let hint = "use another surface, or enable the Cargo feature `sessions` of the crate `agentline`";
    set.map(|(key, _)| Problem::new(key, message).hint(hint)).collect()
}

/// Returns the outcome of a run that was cancelled before its agent started.
pub(crate) fn stopped_before(info: &RunInfo, signal: Signal) -> Outcome {
    let message = format!("cancelled by the caller ({}) before the run started", signal.name());
    Outcome::not_started(info, Verdict::Cancelled, Failure::new(FailureKind::Cancelled, message))
}

/// The reason why a run could not be prepared.
#[derive(Debug)]
pub(crate) enum StartFailure {
    /// The request is valid, and this is the outcome of its run.
    Over(Box<Outcome>),
    /// The request is invalid, or the machine failed.
    Error(Error),
}

impl StartFailure {
    fn over(info: &RunInfo, verdict: Verdict, failure: Failure) -> Self {
        Self::Over(Box::new(Outcome::not_started(info, verdict, failure)))
    }
}

impl<E: Into<Error>> From<E> for StartFailure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Inner {
    pub(crate) fn detect(&self, agent: &dyn Agent) -> Detection {
        let mut host_env = self.host_env.clone();
        host_env.configured = self.programs.get(agent.info().id).cloned();
        detect(agent, &host_env)
    }

    /// Returns where the program of a surface is, or the program of a run without a surface; from a cache if possible.
    /// `name` is the name of the agent in the request, which may have a version.
    fn detect_cached(&self, agent: &dyn Agent, name: &str, surface: Option<Surface>) -> Arc<Detection> {
        let configured = self.programs.get(agent.info().id);
        let detect = |host_env: &HostEnv| self.memory.finds.detect(host_env, configured, agent, surface);
        match split_version(name) {
            (_, None) => detect(&self.host_env),
            (_, Some(version)) => {
                detect(&HostEnv { version: Some(version.to_owned()), ..self.host_env.clone() })
            }
        }
    }

    /// Returns the surface for conversations and warm processes, if the agent has one. `name` is the name of the agent in
    /// the request.
    pub(crate) fn live_surface(&self, agent: &dyn Agent, name: &str) -> Option<Surface> {
        let info = agent.info();
        let mut live = info.surfaces.iter().copied().filter(|surface| agent.is_live(*surface));
        if info.adapter.is_none() {
            return live.next();
        }
        let program = info.for_surface(self.detect_cached(agent, name, None).surface).program;
        let fallback = live.clone().next();
        live.find(|surface| info.for_surface(*surface).program == program).or(fallback)
    }

    /// Returns the surface of an agent with two programs if the program of its best surface for the request is missing.
    fn fallback_surface(&self, agent: &dyn Agent, request: &RunRequest) -> Option<Surface> {
        let info = agent.info();
        info.adapter?;
        let program = info.for_surface(agent.choose(request).ok()?).program;
        let used = self.detect_cached(agent, &request.agent, None);
        (used.program.is_some() && info.for_surface(used.surface).program != program).then_some(used.surface)
    }

    /// Checks a request for its agent, and chooses the surface. Reads nothing but the location of the agent's programs.
    pub(crate) fn plan(&self, mut request: RunRequest) -> Result<PlannedRun, Problems> {
        let named = |problem| Problems(request.as_written(vec![problem]));
        let agent = self.registry.find(&request.agent).map_err(named)?;
        if let (_, Some(version)) = split_version(&request.agent) {
            check_version(&agent.info(), version).map_err(named)?;
        }
        if request.surface.is_none() {
            request.surface = self.fallback_surface(&*agent, &request);
        }
        if request.diffs && cfg!(not(feature = "diffs")) {
            let problem = Problem::new("diffs", "this build of agentline cannot compare texts");
            return Err(problem.hint("enable the Cargo feature `diffs` of the crate `agentline`").into());
        }
        let unpriced = self.unpriced(&request, &*agent);
        let plan = Plan::of(request, &*agent);
        let uncounted = plan.as_ref().map(|plan| uncounted(plan, &*agent)).unwrap_or_default();
        match (plan, unpriced) {
            (Ok(plan), None) if uncounted.is_empty() => Ok(PlannedRun { agent, plan }),
            (Ok(plan), unpriced) => {
                Err(Problems(plan.request.as_written(uncounted.into_iter().chain(unpriced).collect())))
            }
            (Err(mut problems), unpriced) => {
                problems.0.extend(unpriced);
                Err(problems)
            }
        }
    }

    /// Returns a problem if the cost of a run is limited and cannot be known: the agent reports none, and its model has no
    /// price.
    fn unpriced(&self, request: &RunRequest, agent: &dyn Agent) -> Option<Problem> {
        request.limits.max_cost.filter(|_| agent.needs_prices())?;
        // The agent's name for automatic selection is not a model.
        let mut models =
            request.model.iter().chain(&request.fallback_models).filter(|model| *model != "auto");
        let model = models.find(|model| self.prices.of(model).is_none())?;
        let message = format!("cannot be enforced: no price is known for the model `{model}`");
        let hint = format!("set its price in `[prices.models.\"{model}\"]`, or use `max_tokens`");
        Some(Problem::new("max_cost", message).hint(hint))
    }

    /// Finds the program and the workspace of a planned run. Blocks.
    pub(crate) fn check(&self, planned: PlannedRun) -> Result<CheckedRun, StartFailure> {
        let PlannedRun { agent, mut plan } = planned;
        let temporary = self.temporary_workspace(&plan.request)?;
        let cwd = temporary.as_ref().map(|dir| dir.path()).or(plan.request.working_dir.as_deref());
        let cwd = self.workspace(cwd)?;
        if plan.request.resume.as_deref() == Some("latest") && !agent.resolves_latest() {
            plan.request.resume = Some(self.latest_session(&agent, &cwd)?);
        }
        let mut detection = self.detect_cached(&*agent, &plan.request.agent, Some(plan.surface));
        if plan.request.trust != Trust::Full
            && let Some(refused) = detection.in_workspace(&cwd, &self.host_env.home)
        {
            // A program inside the workspace is used only with full trust.
            detection = Arc::new(detect_elsewhere(&*agent, plan.surface, self.host_env.clone(), refused));
        }
        let mut info = self.info(&*agent, &plan, &cwd);
        info.agent_version = detection.version.map(|v| v.to_string());
        if let Some(late) = past_deadline(&plan.request) {
            return Err(StartFailure::over(&info, Verdict::TimedOut, late));
        }
        let Some(program) = detection.program.clone() else {
            let failure = not_installed(&agent.info().for_surface(plan.surface), &detection.problems);
            return Err(StartFailure::over(&info, Verdict::NotInstalled, failure));
        };
        let context = self.context(program, cwd);
        if let Some(refused) = agent.refuses_workspace(&plan, &context, &DiskFs) {
            return Err(StartFailure::over(&info, Verdict::Failed, refused));
        }
        crate::trace::resolved(&info);
        Ok(CheckedRun { agent, plan, context, info, temporary })
    }

    /// Returns the id of the agent's last session in a workspace.
    #[cfg(feature = "sessions")]
    fn latest_session(&self, agent: &Arc<dyn Agent>, cwd: &Path) -> Result<String, Error> {
        let (env, home) = (self.host_env.env.clone(), self.host_env.home.clone());
        let store = SessionStore::new([Arc::clone(agent)], env, home).index(&self.host_env.cache);
        let filter = SessionFilter::new().agent(agent.info().id);
        Ok(store.find_of("latest", cwd, &filter)?.info.id)
    }

    /// Refuses to look for the agent's last session in a workspace.
    #[cfg(not(feature = "sessions"))]
    fn latest_session(&self, _agent: &Arc<dyn Agent>, _cwd: &Path) -> Result<String, Error> {
        let problem = Problem::new("resume", "this build of agentline cannot find the last session");
        let hint =
            "pass the id of the session, or enable the Cargo feature `sessions` of the crate `agentline`";
        Err(Problems::from(problem.hint(hint)).into())
    }

    /// Returns the outcome of a valid request whose run could not be prepared on this machine.
    pub(crate) fn not_prepared(&self, info: &RunInfo, error: &Error) -> Outcome {
        let (temp_dir, home) = (self.temp_dir(), &self.host_env.home);
        let in_home =
            matches!(error, Error::Io { path, .. } if path.starts_with(home) && !path.starts_with(&temp_dir));
        let (name, dir) = if in_home { ("HOME", home) } else { ("TMPDIR", &temp_dir) };
        let remedy = if dir.is_dir() { "free space in" } else { "create" };
        let hint = format!("{remedy} `{}`, or set {name} to a writable directory", dir.display());
        Outcome::not_started(
            info,
            Verdict::Failed,
            Failure::new(FailureKind::Spawn, error_chain(error)).hint(hint),
        )
    }

    /// Builds the launch and divides it into its parts. The agent finds `relayed` in its settings in place of the
    /// servers of the request. Writes nothing.
    pub(crate) fn launch(
        &self,
        mut checked: CheckedRun,
        relayed: Option<&BTreeMap<String, McpServer>>,
    ) -> Result<(ProcessSpec, ResolvedRun), Problems> {
        let private = new_path(&self.temp_dir(), PRIVATE);
        let context = &mut checked.context;
        (context.private, context.session_id) = (private.clone(), uuid::Uuid::new_v4().to_string());
        let context = &checked.context;
        let mut placeholders = Placeholders::new(&private, &context.session_id);
        let fs = CachingFs::default();
        let as_written = |problems| Problems(checked.plan.request.as_written(problems));
        let mut launch = match relayed {
            None => checked.agent.launch(&checked.plan, context, &fs).map_err(as_written)?,
            Some(servers) => {
                placeholders.add_servers(servers.values());
                let mut plan = checked.plan.clone();
                plan.request.mcp_servers.clone_from(servers);
                checked.agent.launch(&plan, context, &fs).map_err(as_written)?
            }
        };
        if relayed.is_some() {
            // The agent does not receive the secrets of relayed servers, but their output may contain them.
            let mut secrets = Secrets::default();
            secrets.add_servers(checked.plan.request.mcp_servers.values());
            launch.secrets.extend(secrets.into_vec());
        }
        Ok(divide(launch, private, placeholders, checked, Arc::clone(&self.prices)))
    }

    /// Builds the process part again, for another process that serves the run.
    pub(crate) fn launch_again(&self, run: &ResolvedRun) -> Result<ProcessSpec, Problems> {
        let checked = CheckedRun {
            agent: Arc::clone(&run.agent),
            plan: run.plan.clone(),
            context: self.context(run.program.clone(), run.session.cwd.clone()),
            info: run.turn.info.clone(),
            temporary: None,
        };
        self.launch(checked, None).map(|(process, _)| process)
    }

    fn context(&self, program: Program, cwd: PathBuf) -> LaunchContext {
        let home = self.host_env.home.clone();
        let mut context = LaunchContext::new(program, cwd, home, PathBuf::new());
        context.env.clone_from(&self.host_env.env);
        context
    }

    /// Creates a temporary workspace if the request asks for one and names no directory.
    fn temporary_workspace(&self, request: &RunRequest) -> Result<Option<Arc<PrivateDir>>, Error> {
        if !request.temporary_workspace || request.working_dir.is_some() {
            return Ok(None);
        }
        let parent = self.temp_dir();
        let dir = PrivateDir::create(&parent, WORKSPACE);
        Ok(Some(Arc::new(dir.map_err(Error::io("create a workspace in", parent))?)))
    }

    /// Returns the absolute path of the workspace, with symbolic links resolved.
    fn workspace(&self, requested: Option<&Path>) -> Result<PathBuf, Error> {
        let dir = requested.map_or_else(|| self.host_env.cwd.clone(), |dir| self.host_env.cwd.join(dir));
        let real = canonicalize(&dir).ok().filter(|d| d.is_dir());
        real.ok_or_else(|| {
            let problem = Problem::new("working_dir", format!("`{}` is not a directory", dir.display()));
            Error::Usage(Problems::from(problem.hint("pass an existing directory with `--cwd`")))
        })
    }

    /// Returns the directory in which active runs announce themselves to each other.
    pub(crate) fn active_runs(&self) -> PathBuf {
        self.host_env.cache.join("runs")
    }

    pub(crate) fn temp_dir(&self) -> PathBuf {
        self.host_env.env.get("TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
    }

    fn info(&self, agent: &dyn Agent, plan: &Plan, cwd: &Path) -> RunInfo {
        let mut info = RunInfo::of_request(&plan.request);
        info.run_id = uuid::Uuid::new_v4().to_string();
        info.agent = agent.info().id.into();
        info.surface = Some(plan.surface);
        info.cwd = cwd.to_string_lossy().into_owned();
        info.sign_in_hint = Some(agent.info().sign_in_hint.to_owned());
        info
    }
}

/// Checks the version that a request names.
fn check_version(info: &AgentInfo<'_>, version: &str) -> Result<(), Problem> {
    if info.package.is_empty() {
        let message = format!("`{}` has no versions: agentline does not know its package", info.id);
        return Err(Problem::new("agent", message).hint("remove the version, or set `package` in its table"));
    }
    if !is_version(version) {
        let message = format!("`{version}` is not a complete version");
        return Err(Problem::new("agent", message).hint("run `agentline install --list` to see the versions"));
    }
    Ok(())
}

/// Returns the time left until `when`.
pub(crate) fn time_until(when: SystemTime) -> Duration {
    when.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Returns how long a run may take from now on.
pub(crate) fn time_of(request: &RunRequest) -> Duration {
    request.deadline.map_or(request.timeout, |when| request.timeout.min(time_until(when)))
}

/// Returns how long preparation may take. An expired deadline is detected and reported during preparation.
pub(crate) fn preparation_time(request: &RunRequest) -> Duration {
    time_of(request).max(Duration::from_secs(1))
}

/// Returns the outcome of a run that timed out before its agent started.
pub(crate) fn not_ready_in_time(request: &RunRequest) -> Outcome {
    let mut info = RunInfo::of_request(request);
    info.run_id = uuid::Uuid::new_v4().to_string();
    let message = "timed out while preparing the run: a file or the workspace could not be read in time";
    let failure = Failure::new(FailureKind::TimeoutRun, message)
        .hint("raise `--timeout`, and check that named pipes have a writer and that the disk responds");
    Outcome::not_started(&info, Verdict::TimedOut, failure)
}

/// Returns a failure if the deadline has already passed.
fn past_deadline(request: &RunRequest) -> Option<Failure> {
    request.deadline.filter(|when| *when <= SystemTime::now()).map(|_| {
        Failure::new(FailureKind::TimeoutRun, "the deadline passed before the run started")
            .hint("set `deadline` to a future time")
    })
}

fn not_installed(info: &AgentInfo<'_>, problems: &[Problem]) -> Failure {
    let message =
        problems.first().map_or_else(|| format!("{} was not found", info.title), |p| p.message.clone());
    let hint = problems.first().and_then(|p| p.hint.clone());
    let hint = hint.unwrap_or_else(|| format!("run `npm install -g {}`", info.package));
    Failure::new(FailureKind::NotInstalled, message).hint(hint)
}

pub(crate) fn not_started(info: &RunInfo, agent: &dyn Agent, error: &SpawnError) -> Outcome {
    let missing = matches!(error, SpawnError::NotFound { .. });
    let (kind, verdict) = if missing {
        (FailureKind::NotInstalled, Verdict::NotInstalled)
    } else {
        (FailureKind::Spawn, Verdict::Failed)
    };
    let hint = match error {
        SpawnError::TooBig => {
            "pass shorter values with `--env`, or fewer variables with `--pass-env`".to_owned()
        }
        SpawnError::NoNamespace { .. } => "set `isolation` to `auto` or `none`".to_owned(),
        _ => format!("run `agentline doctor` to see which {} is used", agent.info().title),
    };
    let failure = Failure::new(kind, error_chain(error)).hint(hint);
    Outcome::not_started(info, verdict, failure)
}
