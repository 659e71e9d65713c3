//! Prepares a resolved run: creates the files of its process, and builds everything that the run needs.

use crate::fs::disk_fs::canonicalize;
use crate::{
    agentline::Inner,
    error::Error,
    fs::private_dir::{self, PrivateDir},
    process::{
        HttpService, Isolation, Process, Spawn, SpawnError, StdoutMode, mounts, temp_dir::ProcessTemp,
    },
    resolve::{
        StartFailure,
        integrity::Integrity,
        materialize,
        spec::{ProcessSpec, ResolvedRun},
        time_of, time_until,
    },
    run::{
        abandoned_session::AbandonedSession,
        active_run::{ActiveRun, CompletionTiming, Submission},
        channel::{RunSender, Wakeup},
        options::RunOptions,
        resolved::ResolvedStart,
        services::{RunServices, ServedTools},
        session_follower::{AgentHome, Follower},
        spawned_process::SpawnedProcess,
        tape_file::TapeFile,
        tool_server::ToolServer,
    },
    workspace::{WorkspaceBefore, snapshot::ActiveRuns},
};
use agentline_core::{
    Agent, Connection, Failure, FailureKind, Millis, NewFile, Notice, Outcome, Problem, Problems, Redactor,
    SessionTarget, TAPE_SCHEMA, TapeHeader, Timeouts, TurnSpec, Verdict,
};
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

/// How long an unused live agent may take for each step of its shutdown, in milliseconds.
const SHUTDOWN_STEP: u64 = 2_000;

/// A process that is ready to start.
pub(crate) struct PreparedProcess {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) process: ProcessSpec,
    pub(crate) private: PrivateDir,
    /// The initial state of the files that the agent's safety depends on.
    pub(crate) integrity: Integrity,
    /// A workspace that is removed with the process.
    pub(crate) workspace: Option<Arc<PrivateDir>>,
    pub(crate) tape: Option<TapeFile>,
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
    /// Turns the run into a submission for a process.
    pub(crate) fn into_submission(self, channel: RunSender, completion: CompletionTiming) -> Submission {
        let mut keep: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        keep.extend(self.workspace.map(|dir| Box::new(dir) as _));
        let tool_server = self.services.tool_server.as_ref();
        keep.extend(tool_server.map(|tool_server| Box::new(tool_server.calls()) as _));
        let active_run = ActiveRun {
            channel,
            span: crate::trace::TurnSpan::new(&self.spec.info),
            notices: self.notices,
            follower: self.follower,
            before: self.before,
            answers: self.services.answers,
            tool_lines: tool_server.map(ToolServer::listen),
            exclusive_tool_server: self.services.tool_server.clone().filter(|_| self.services.serves_alone),
            secrets: tool_server
                .map(|tool_server| tool_server.secret().to_owned())
                .into_iter()
                .chain(self.secrets)
                .collect(),
            completion,
            keep,
            processes: None,
            only_opens: self.spec.only_open,
            pending: Vec::new(),
        };
        Submission { spec: self.spec, active_run }
    }
}

/// A process and its first run, ready to start.
pub(crate) struct PreparedStart {
    pub(crate) process: PreparedProcess,
    pub(crate) prepared_run: PreparedRun,
    not_before: Option<Millis>,
}

impl PreparedStart {
    /// Returns how long to wait before the stored session can be opened safely, or an outcome if time is too short.
    pub(crate) fn wait_before_start(&mut self) -> Result<Duration, Box<Outcome>> {
        let Some(when) = self.not_before else { return Ok(Duration::ZERO) };
        let wait = time_until(UNIX_EPOCH + Duration::from_millis(when));
        let timeouts = &self.prepared_run.spec.timeouts;
        let left = Duration::from_millis(timeouts.deadline.unwrap_or(timeouts.run).min(timeouts.run));
        if wait > left {
            let message = format!("the session cannot be opened safely for another {} s", wait.as_secs() + 1);
            let failure = Failure::new(FailureKind::TimeoutRun, message)
                .hint("raise `--timeout`, retry later, or use `--surface stream-json`");
            return Err(Box::new(Outcome::not_started(
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

impl Inner {
    /// Prepares the process and the run. Blocks.
    pub(crate) fn prepare(&self, resolved: ResolvedStart) -> Result<Box<PreparedStart>, StartFailure> {
        let ResolvedStart { process, run, options, mut served } = resolved;
        let ready = self.prepare_process(Arc::clone(&run.agent), process).and_then(|start| {
            if run.plan.is_live {
                served = self.serve(&*run.agent, &run.session.cwd, &options, &run.session.servers)?;
            }
            let home = AgentHome::new(&start.process);
            let prepared_run =
                self.prepared_run(&run, &home, &options, ServedTools::Now(served), &ActiveRuns::default())?;
            Ok(Box::new(PreparedStart { process: start, prepared_run, not_before: run.session.not_before }))
        });
        ready.map_err(|error| match error {
            Error::Usage(_) => StartFailure::Error(error),
            error => StartFailure::Over(Box::new(self.not_prepared(&run.turn.info, &error))),
        })
    }

    /// Prepares a process: creates its private directory with all files. Blocks.
    pub(crate) fn prepare_process(
        &self,
        agent: Arc<dyn Agent>,
        mut process: ProcessSpec,
    ) -> Result<PreparedProcess, Error> {
        let temp_dir = self.temp_dir();
        if let Some(api) = &process.api {
            let password = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
            process.env.insert(api.password_variable.clone(), password.clone());
            process.secrets.push(password);
        }
        let private = PrivateDir::create_at(process.private.clone())
            .map_err(Error::io("create a private directory in", &temp_dir))?;
        let tape = self.tape(&*agent, &process)?;
        materialize::create_files(&process)?;
        let integrity = Integrity::of(&process).map_err(Error::io("inspect", private.path()))?;
        Ok(PreparedProcess { agent, process, private, integrity, workspace: None, tape })
    }

    /// Prepares a process that outlives the workspaces of its runs. Blocks.
    pub(crate) fn prepare_shared_process(
        &self,
        run: &ResolvedRun,
        process: ProcessSpec,
    ) -> Result<PreparedProcess, Error> {
        let mut start = self.prepare_process(Arc::clone(&run.agent), process)?;
        // The agent scans its sessions as it starts, before the first run is prepared.
        AgentHome::new(&start.process).clean_sessions(&*run.agent, &run.session.cwd);
        let workspace = run.session.cwd.to_string_lossy();
        let names_it = |file: &NewFile| String::from_utf8_lossy(&file.content).contains(&*workspace);
        // The only session of a process is in its working directory. Or the agent's rules contain the path of the workspace,
        // and the agent compares them with its working directory. Or the process sees one workspace only.
        let has_one_session = run.agent.sessions_per_process(run.plan.surface).is_some();
        let is_enclosed = mounts::enclosure(&run.session.cwd).is_some();
        if has_one_session || is_enclosed || start.process.files.iter().any(names_it) {
            return Ok(start);
        }
        // An agent cannot start programs once its own working directory is removed. It also stores data for every
        // directory that it was ever started in, so this is always the same one.
        let cwd = self.host_env.cache.join("pool");
        private_dir::create_dir_all(&cwd).map_err(Error::io("create the directory", &cwd))?;
        start.process.cwd = canonicalize(&cwd).map_err(Error::io("resolve the directory", &cwd))?;
        Ok(start)
    }

    /// Prepares a run for a process with this agent home. Blocks.
    pub(crate) fn prepared_run(
        &self,
        resolved: &ResolvedRun,
        agent_home: &Arc<AgentHome>,
        options: &RunOptions,
        served: ServedTools,
        active_runs: &ActiveRuns,
    ) -> Result<PreparedRun, Error> {
        let session = &resolved.session;
        agent_home.clean_sessions(&*resolved.agent, &session.cwd);
        let mut follower = Follower::new(&resolved.agent, agent_home, &session.cwd);
        if let SessionTarget::Load(id) = &session.target {
            follower.remember(id);
        }
        let snapshots = &self.memory.snapshots;
        // The scan leaves most of the time to the agent.
        let scan = time_of(&resolved.plan.request) / 4;
        let before = WorkspaceBefore::take(
            snapshots,
            active_runs,
            &session.cwd,
            &self.active_runs(),
            &self.temp_dir(),
            &session.stores,
            scan,
        )
        .with_diffs(resolved.plan.request.diffs);
        let mut spec = resolved.turn_spec();
        if let ServedTools::Now(Some(serving)) = &served
            && resolved.plan.is_live
        {
            spec.servers.clone_from(serving.servers());
        }
        let services = self.services(resolved, options, served, &mut spec)?;
        Ok(PreparedRun {
            spec,
            notices: resolved.notices.clone(),
            follower,
            before: Some(before),
            services,
            workspace: session.temporary.clone(),
            secrets: Vec::new(),
        })
    }

    /// Prepares the opening of a session that has no run yet. Blocks.
    pub(crate) fn opening_run(&self, resolved: &ResolvedRun, agent_home: &Arc<AgentHome>) -> PreparedRun {
        let mut spec = resolved.turn_spec();
        spec.only_open = true;
        spec.collect_changes = false;
        PreparedRun {
            spec,
            notices: Vec::new(),
            follower: Follower::new(&resolved.agent, agent_home, &resolved.session.cwd),
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
        submissions: UnboundedReceiver<Submission>,
        wakeup: Wakeup,
        started_at: Instant,
    ) -> Result<SpawnedProcess, SpawnError> {
        let PreparedProcess { agent, process: spec, private, integrity, workspace, tape } = start;
        let temporary = workspace.iter().map(|temporary| temporary.path()).chain([private.path()]);
        let process = Process::spawn(self.spawn(&spec, mark).removing_on_host_death(temporary))?;
        let mut timeouts = Timeouts::default();
        timeouts.shutdown_step = SHUTDOWN_STEP;
        let connection = Connection::new(agent.dialogue(&spec.dialogue), timeouts)
            .with_redactor(Redactor::new(&spec.secrets));
        let temp = ProcessTemp::new(self.temp_dir(), &*agent, &spec.env);
        let abandoned = spec.abandoned.map(|session| AbandonedSession {
            agent,
            home: spec.agent_home,
            cwd: spec.cwd,
            session,
        });
        Ok(SpawnedProcess {
            process,
            temp,
            abandoned,
            client: None,
            connection,
            secrets: spec.secrets,
            tape,
            max_line: spec.max_line,
            started_at,
            private: (private, workspace),
            integrity: Arc::new(integrity),
            copy_back: spec.copy_back,
            submissions,
            wakeup,
            state: tokio::sync::watch::Sender::default(),
            unavailable: crate::run::active_run::UnavailableReason::default(),
            lives_on: spec.is_live,
        })
    }

    fn tape(&self, agent: &dyn Agent, process: &ProcessSpec) -> Result<Option<TapeFile>, Error> {
        let Some(path) = &process.record else { return Ok(None) };
        let path = self.host_env.cwd.join(path);
        let mut header = TapeHeader::default();
        header.schema = TAPE_SCHEMA.to_owned();
        header.agentline = env!("CARGO_PKG_VERSION").to_owned();
        header.agent = agent.info().id.into();
        header.agent_version = process.version;
        header.surface = Some(process.dialogue.surface);
        header.dialogue = Some(process.dialogue.clone());
        header.command = process.command().collect();
        header.cwd = process.cwd.to_string_lossy().into_owned();
        header.variables = process.env.keys().cloned().collect();
        header.recorded_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let tape = TapeFile::create(&path, &header, Redactor::new(&process.secrets)).map_err(|error| {
            let problem = Problem::new("record", format!("cannot write `{}`: {error}", path.display()));
            Problems::from(problem.hint("choose a path in a writable directory"))
        })?;
        Ok(Some(tape))
    }

    fn spawn(&self, process: &ProcessSpec, mark: &str) -> Spawn {
        let mut spawn = Spawn::new(&process.program, &process.cwd, mark);
        if process.is_live {
            // A live agent responds before it exits, so a pipe loses no output, and it wakes the reader sooner than a
            // file.
            spawn.stdout = StdoutMode::Pipe;
        }
        spawn.args = process.arguments().map(Into::into).collect();
        spawn.env = process.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        (spawn.supervisor, spawn.isolation) = (self.supervisor.clone(), self.isolation);
        spawn.kill_deadline.clone_from(&self.kill_deadline);
        spawn.enclosure = mounts::enclosure(&process.cwd);
        if spawn.enclosure.is_some() {
            spawn.isolation = Isolation::Namespace;
        }
        spawn.http = process.api.as_ref().map(|api| {
            let password = process.env.get(&api.password_variable).cloned().unwrap_or_default();
            HttpService::new(&*api.announcement, &*api.events, &*api.user, password)
        });
        spawn
    }
}
