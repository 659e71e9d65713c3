//! Prepares a resolved run: carries out the launch, and builds the process to start and everything the run needs.

use crate::{
    agentline::Inner,
    error::Error,
    fs::private_dir::{self, PRIVATE, PrivateDir},
    process::{Process, Spawn, SpawnError, StdoutMode, temp_dir::ProcessTemp},
    resolve::{
        NO_SESSION, ResolvedRun, StartFailure, integrity::Integrity, materialize, time_of, time_until,
    },
    run::{
        abandoned_session::AbandonedSession,
        active_run::{ActiveRun, CompletionTiming, Submission},
        channel::{RunSender, Wakeup},
        live_process::SpawnedProcess,
        options::RunOptions,
        services::{RunServices, ServedTools, ToolServer},
        session_follower::{AgentHome, Follower},
        tape_file::TapeFile,
    },
    workspace::WorkspaceBefore,
};
use agentline_core::{
    Agent, Connection, Failure, FailureKind, Launch, NewFile, Notice, Outcome, Problem, Problems, PromptText,
    Redactor, RunRequest, SessionTarget, TAPE_SCHEMA, TapeHeader, Timeouts, TurnSpec, Verdict,
};
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// How long an unused live agent may take for each step of its shutdown, in milliseconds.
const SHUTDOWN_STEP: u64 = 2_000;

/// A process that is ready to start.
pub(crate) struct PreparedProcess {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) launch: Launch,
    pub(crate) private: PrivateDir,
    /// The initial state of the files that the agent's safety depends on.
    pub(crate) integrity: Integrity,
    /// A workspace that is removed with the process.
    pub(crate) workspace: Option<Arc<PrivateDir>>,
    pub(crate) tape: Option<TapeFile>,
    pub(crate) max_line: usize,
}

/// A run that is ready to be submitted to a process.
pub(crate) struct PreparedRun {
    pub(crate) spec: TurnSpec,
    notices: Vec<Notice>,
    follower: Follower,
    before: Option<WorkspaceBefore>,
    pub(crate) services: RunServices,
    /// A workspace that is removed with the run.
    pub(crate) workspace: Option<Arc<PrivateDir>>,
    /// Secrets to redact in addition to those of the process.
    pub(crate) secrets: Vec<String>,
}

impl PreparedRun {
    /// Sets the prompt text, for a launch that does not contain it. What was added to the prompt of the launch, such as
    /// the instruction to return a value, stays.
    pub(crate) fn say(&mut self, launch: &Launch, words: &PromptText) {
        let added = self.spec.prompt.strip_prefix(&*launch.stdin).unwrap_or_default();
        self.spec.prompt = format!("{}{added}", words.text);
        self.notices.splice(0..0, words.warnings.iter().cloned());
    }

    /// Turns the run into a submission for a process.
    pub(crate) fn board(self, channel: RunSender, completion: CompletionTiming) -> Submission {
        let mut keep: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        keep.extend(self.workspace.map(|dir| Box::new(dir) as _));
        let tool_server = self.services.tool_server.as_ref();
        keep.extend(tool_server.map(|tool_server| Box::new(tool_server.calls()) as _));
        let active_run = ActiveRun {
            channel,
            notices: self.notices,
            follower: self.follower,
            before: self.before,
            answers: self.services.answers,
            tool_server: tool_server.map(ToolServer::listen),
            exclusive_tool_server: self.services.tool_server.clone().filter(|_| self.services.serves_alone),
            secrets: tool_server
                .map(|tool_server| tool_server.secret().to_owned())
                .into_iter()
                .chain(self.secrets)
                .collect(),
            completion,
            keep,
            processes: None,
            started: false,
            only_opens: self.spec.only_open,
            pending: Vec::new(),
        };
        Submission { spec: self.spec, active_run }
    }
}

pub(crate) struct Ready {
    pub(crate) start: PreparedProcess,
    pub(crate) prepared_run: PreparedRun,
}

impl Ready {
    /// Returns how long to wait before the stored session can be opened safely, or an outcome if time is too short.
    pub(crate) fn must_wait(&mut self) -> Result<Duration, Box<Outcome>> {
        let Some(when) = self.start.launch.not_before else { return Ok(Duration::ZERO) };
        let wait = time_until(Duration::from_millis(when).as_secs_f64());
        let timeouts = &self.prepared_run.spec.timeouts;
        let left = Duration::from_millis(timeouts.deadline.unwrap_or(timeouts.run).min(timeouts.run));
        if wait > left {
            let message = format!("the session cannot be opened safely for another {} s", wait.as_secs() + 1);
            let failure = Failure::new(FailureKind::TimeoutRun, message)
                .hint("raise `--timeout`, retry later, or use `--surface stream-json`");
            return Err(Box::new(Outcome::not_begun(
                &self.prepared_run.spec.info,
                Verdict::TimedOut,
                failure,
            )));
        }
        if !wait.is_zero() {
            let message = format!(
                "waited {} s before opening the session, because the agent damages a session that is too recent",
                wait.as_secs() + 1
            );
            self.prepared_run.notices.push(Notice::new("waited_for_session", message));
        }
        Ok(wait)
    }
}

fn timeouts(request: &RunRequest, launch: &Launch) -> Timeouts {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
    let mut timeouts = Timeouts::default();
    timeouts.startup = ms(request.startup_timeout);
    timeouts.idle = ms(request.idle_timeout);
    timeouts.idle_tool = ms(request.tool_timeout);
    timeouts.run = ms(request.timeout);
    timeouts.patience = ms(request.retry_patience);
    timeouts.quiet = launch.quiet;
    timeouts.deadline = request.deadline.map(|when| ms(time_until(when)));
    timeouts
}

impl Inner {
    /// Checks the request, finds the agent and prepares the process and the run. Blocks.
    pub(crate) fn make_ready(
        &self,
        request: RunRequest,
        options: &RunOptions,
    ) -> Result<Box<Ready>, StartFailure> {
        let mut resolved = self.ask(request)?;
        let options = &self.with_schema(&mut resolved, options)?;
        // An ACP session receives its servers when it is opened; other runs find them in the agent's settings.
        let mut served = None;
        if !resolved.plan.surface.is_live() {
            served = self.serve(&resolved, options, &resolved.plan.request.mcp_servers)?;
        }
        let mut secrets = Vec::new();
        if let Some(serving) = &served {
            // The agent does not receive the secrets of relayed servers, but their output may contain them.
            secrets = self.launch(&resolved, &self.temp_dir(), NO_SESSION)?.secrets;
            resolved.plan.request.mcp_servers = serving.servers().clone();
        }
        let ready = self.start(&resolved, secrets).and_then(|start| {
            if resolved.plan.surface.is_live() {
                served = self.serve(&resolved, options, &start.launch.servers)?;
            }
            let home = AgentHome::new(start.launch.agent_home.clone());
            let prepared_run =
                self.prepared_run(&resolved, &start.launch, &home, options, ServedTools::Now(served))?;
            Ok(Box::new(Ready { start, prepared_run }))
        });
        ready.map_err(|error| match error {
            Error::Usage(_) => StartFailure::Error(error),
            error => StartFailure::Over(Box::new(self.not_prepared(&resolved.info, &error))),
        })
    }

    /// Prepares a run for a process that is already running with this agent home. Blocks.
    pub(crate) fn prepare_run(
        &self,
        request: RunRequest,
        agent_home: &Arc<AgentHome>,
        options: &RunOptions,
        tool_server: Option<ToolServer>,
    ) -> Result<Box<PreparedRun>, StartFailure> {
        let mut resolved = self.ask(request)?;
        // If the session was opened with the tool that submits a value, the agent uses it. Otherwise it answers with text.
        let served = ServedTools::Already { tool_server, hands_in: options.schema.is_some() };
        let options = self.with_schema(&mut resolved, options)?;
        let launch = self.launch(&resolved, &agent_home.path, NO_SESSION)?;
        Ok(Box::new(self.prepared_run(&resolved, &launch, agent_home, &options, served)?))
    }

    /// Prepares a process that also redacts these secrets. Blocks.
    fn start(&self, resolved: &ResolvedRun, secrets: Vec<String>) -> Result<PreparedProcess, Error> {
        let temp_dir = self.temp_dir();
        let private = PrivateDir::create(&temp_dir, PRIVATE)
            .map_err(Error::io("create a private directory in", &temp_dir))?;
        let mut launch = self.launch(resolved, private.path(), &uuid::Uuid::new_v4().to_string())?;
        launch.secrets.extend(secrets);
        let tape = self.tape(resolved, &launch)?;
        materialize::create_files(&launch)?;
        let integrity = Integrity::of(&launch).map_err(Error::io("inspect", private.path()))?;
        let max_line = resolved.plan.request.max_line_bytes;
        Ok(PreparedProcess {
            agent: Arc::clone(&resolved.agent),
            launch,
            private,
            integrity,
            workspace: None,
            tape,
            max_line,
        })
    }

    /// Prepares a process that outlives the workspaces of its runs. Blocks.
    pub(crate) fn start_shared(&self, resolved: &ResolvedRun) -> Result<PreparedProcess, Error> {
        let mut start = self.start(resolved, Vec::new())?;
        // The agent scans its sessions as it starts, before the first run is prepared.
        AgentHome::new(start.launch.agent_home.clone()).clean_sessions(&*resolved.agent, &resolved.cwd);
        let host_env = resolved.cwd.to_string_lossy();
        let names_it = |file: &NewFile| String::from_utf8_lossy(&file.content).contains(&*host_env);
        if start.launch.files.iter().any(names_it) {
            // The agent's rules contain the path of the workspace, and the agent compares them with its own working
            // directory. So it must be started in the workspace.
            return Ok(start);
        }
        // An agent cannot start programs once its own working directory is removed. It also stores data for every
        // directory that it was ever started in, so this is always the same one.
        let cwd = self.host_env.cache.join("pool");
        private_dir::create_dir_all(&cwd).map_err(Error::io("create the directory", &cwd))?;
        start.launch.cwd = cwd.canonicalize().map_err(Error::io("resolve the directory", &cwd))?;
        Ok(start)
    }

    /// Prepares a run for a process with this agent home. Blocks.
    pub(crate) fn prepared_run(
        &self,
        resolved: &ResolvedRun,
        launch: &Launch,
        agent_home: &Arc<AgentHome>,
        options: &RunOptions,
        served: ServedTools,
    ) -> Result<PreparedRun, Error> {
        agent_home.clean_sessions(&*resolved.agent, &resolved.cwd);
        let mut follower = Follower::new(&resolved.agent, agent_home, &resolved.cwd);
        if let Some(session) = resolved.plan.request.resume.as_ref().and(launch.session_id.as_deref()) {
            follower.remember(session);
        }
        let snapshots = &self.memory.snapshots;
        // The scan leaves most of the time to the agent.
        let scan = time_of(&resolved.plan.request) / 4;
        let before = WorkspaceBefore::look(
            snapshots,
            &resolved.cwd,
            &self.active_runs(),
            &self.temp_dir(),
            &launch.folders,
            scan,
        );
        let mut spec = self.spec(resolved, launch);
        if let ServedTools::Now(Some(serving)) = &served
            && resolved.plan.surface.is_live()
        {
            spec.servers.clone_from(serving.servers());
        }
        let services = self.services(resolved, options, served, &mut spec)?;
        let workspace = resolved.temporary.clone();
        Ok(PreparedRun {
            spec,
            notices: launch.warnings.clone(),
            follower,
            before: Some(before),
            services,
            workspace,
            secrets: Vec::new(),
        })
    }

    /// Prepares the opening of a session that has no run yet. Blocks.
    pub(crate) fn opening_run(
        &self,
        resolved: &ResolvedRun,
        launch: &Launch,
        agent_home: &Arc<AgentHome>,
    ) -> PreparedRun {
        let mut spec = self.spec(resolved, launch);
        spec.only_open = true;
        spec.settle = false;
        PreparedRun {
            spec,
            notices: Vec::new(),
            follower: Follower::new(&resolved.agent, agent_home, &resolved.cwd),
            before: None,
            services: RunServices::none(),
            workspace: None,
            secrets: Vec::new(),
        }
    }

    /// Starts the process.
    pub(crate) fn spawn_process(
        &self,
        start: PreparedProcess,
        mark: &str,
        submission: UnboundedReceiver<Submission>,
        wakeup: Wakeup,
        begun: Instant,
    ) -> Result<SpawnedProcess, SpawnError> {
        let PreparedProcess { agent, launch, private, integrity, workspace, tape, max_line } = start;
        let made = workspace.iter().map(|made| made.path()).chain([private.path()]);
        let process = Process::spawn(self.spawn(&launch, mark).removing_on_host_death(made))?;
        let mut timeouts = Timeouts::default();
        timeouts.shutdown_step = SHUTDOWN_STEP;
        let connection = Connection::new(agent.dialogue(&launch.dialogue), timeouts)
            .with_redactor(Redactor::new(&launch.secrets));
        let temp = ProcessTemp::new(self.temp_dir(), &*agent, &launch);
        let abandoned = launch.abandoned.map(|session| AbandonedSession {
            agent,
            home: launch.agent_home,
            cwd: launch.cwd,
            session,
        });
        Ok(SpawnedProcess {
            process,
            temp,
            abandoned,
            connection,
            secrets: launch.secrets,
            tape,
            max_line,
            begun,
            private: (private, workspace),
            integrity: Arc::new(integrity),
            copy_back: launch.copy_back,
            submission,
            wakeup,
            state: tokio::sync::watch::Sender::default(),
            gone: crate::run::active_run::ProcessGone::default(),
            lives_on: launch.dialogue.surface.is_live(),
        })
    }

    fn spec(&self, resolved: &ResolvedRun, launch: &Launch) -> TurnSpec {
        let request = &resolved.plan.request;
        let mut spec = TurnSpec::default();
        spec.prompt.clone_from(&launch.stdin);
        spec.session = match (&launch.session_id, &request.resume) {
            (Some(id), Some(_)) => SessionTarget::Load(id.clone()),
            (Some(id), None) => SessionTarget::Named(id.clone()),
            (None, _) => SessionTarget::New,
        };
        spec.info = resolved.info.clone();
        spec.timeouts = timeouts(request, launch);
        spec.limits = request.limits;
        spec.extract_json = request.extract_json;
        spec.settle = true;
        spec.follow = true;
        spec.prices = Arc::clone(&self.prices);
        spec.proof.clone_from(&launch.proof);
        spec.must_ignore.clone_from(&launch.must_ignore);
        spec.mode.clone_from(&launch.mode);
        spec.model.clone_from(&launch.model);
        spec.servers.clone_from(&launch.servers);
        spec.meta.clone_from(&launch.meta);
        spec.session_cwd.clone_from(&launch.session_cwd);
        spec
    }

    fn tape(&self, resolved: &ResolvedRun, launch: &Launch) -> Result<Option<TapeFile>, Error> {
        let Some(path) = &resolved.plan.request.record else { return Ok(None) };
        let path = self.host_env.cwd.join(path);
        let mut header = TapeHeader::default();
        header.schema = TAPE_SCHEMA.to_owned();
        header.agentline = env!("CARGO_PKG_VERSION").to_owned();
        header.agent = resolved.agent.info().id.to_owned();
        header.agent_version = resolved.program.version;
        header.surface = Some(resolved.plan.surface);
        header.dialogue = Some(launch.dialogue.clone());
        header.command = std::iter::once(launch.program.to_string_lossy().into_owned())
            .chain(launch.arguments().cloned())
            .collect();
        header.cwd = launch.cwd.to_string_lossy().into_owned();
        header.variables = launch.env.keys().cloned().collect();
        header.recorded_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let tape = TapeFile::create(&path, &header, Redactor::new(&launch.secrets)).map_err(|why| {
            let problem = Problem::new("record", format!("cannot write `{}`: {why}", path.display()));
            Problems::from(problem.hint("choose a path in a writable directory"))
        })?;
        Ok(Some(tape))
    }

    fn spawn(&self, launch: &Launch, mark: &str) -> Spawn {
        let mut spawn = Spawn::new(&launch.program, &launch.cwd, mark);
        if launch.dialogue.surface.is_live() {
            // A live agent responds before it exits, so a pipe loses no output, and it wakes the reader sooner than a
            // file.
            spawn.stdout = StdoutMode::Pipe;
        }
        spawn.args = launch.arguments().map(Into::into).collect();
        spawn.env = launch.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        (spawn.supervisor, spawn.isolation) = (self.supervisor.clone(), self.isolation);
        spawn
    }
}
