//! The handle that a program holds: it knows the caller's machine and starts runs.

use crate::{
    detect::{Detection, Here, detect},
    drive::{Job, drive},
    error::Error,
    follow::Follower,
    look::DiskLook,
    prepare,
    process::{Process, Spawn, SpawnError, Supervisor},
    run::{Launched, Run},
    tape_file::TapeFile,
    workspace::Before,
};
use agentline_core::{
    Agent, Clocks, Connection, Failure, Ground, Kind, Launch, Order, Outcome, Plan, PriceTable, Problem,
    Problems, Program, RunRequest, TAPE_SCHEMA, TapeHeader, Veil, Verdict, Want, Who, agents,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How many batches of events may wait for a slow consumer; the rest waits in the agent's output file.
const BATCHES: usize = 4;

/// Starts runs of agents on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agentline {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    here: Here,
    programs: BTreeMap<String, PathBuf>,
    prices: PriceTable,
    supervisor: Supervisor,
}

impl Agentline {
    /// For the user who runs this program: its environment, home and current directory.
    ///
    /// # Errors
    /// There is no home, or the current directory cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect();
        let home = env.get("HOME").or_else(|| env.get("USERPROFILE")).filter(|h| !h.is_empty()).cloned();
        let home = home.ok_or_else(|| {
            let problem =
                Problem::new("HOME", "is not set, so it is not known whose sign-in and settings to use");
            Error::Usage(Problems::from(problem.hint("set HOME to a folder that you may write to")))
        })?;
        let cwd = std::env::current_dir().map_err(Error::io("read", "the current directory"))?;
        Ok(Self::new(Here::new(env, home, cwd)))
    }

    /// For a caller whose environment, home and folders are told, not read.
    #[must_use]
    pub fn new(here: Here) -> Self {
        let inner = Inner {
            here,
            programs: BTreeMap::new(),
            prices: PriceTable::built_in(),
            supervisor: Supervisor::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Uses this program for an agent instead of searching.
    #[must_use]
    pub fn program(mut self, agent: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.inner).programs.insert(agent.into(), path.into());
        self
    }

    /// Prices runs by this table.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        Arc::make_mut(&mut self.inner).prices = prices;
        self
    }

    /// Who clears up when this program is killed suddenly.
    #[must_use]
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        Arc::make_mut(&mut self.inner).supervisor = supervisor;
        self
    }

    /// Whose machine this is.
    #[must_use]
    pub fn here(&self) -> &Here {
        &self.inner.here
    }

    /// Looks for an agent's program. Blocks for a few milliseconds.
    #[must_use]
    pub fn detect(&self, agent: &dyn Agent) -> Detection {
        self.inner.detect(agent)
    }

    /// Starts a run.
    ///
    /// Everything that goes wrong once the request is found good is told by the run's outcome.
    ///
    /// # Errors
    /// What was asked for is wrong, or the run could not be prepared. Nothing was started.
    pub async fn run(&self, request: RunRequest) -> Result<Run, Error> {
        let begun = Instant::now();
        let inner = Arc::clone(&self.inner);
        let prepared = tokio::task::spawn_blocking(move || inner.prepare(request)).await;
        let prepared = match prepared {
            Ok(prepared) => prepared?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let ready = match prepared {
            Prepared::Ready(ready) => *ready,
            Prepared::NotBegun(outcome) => return Ok(Run::over(*outcome)),
        };
        let who = ready.order.who.clone();
        let process = match Process::spawn(self.inner.spawn(&ready.launch, &who)) {
            Ok(process) => process,
            Err(error) => return Ok(Run::over(not_started(&who, ready.agent, &error))),
        };
        let launched = launched(&ready.launch, &ready.veil);
        let (events, receiver) = tokio::sync::mpsc::channel(BATCHES);
        let (cancels, cancelled) = tokio::sync::mpsc::channel(4);
        let dialogue = ready.agent.dialogue(&ready.launch.talk);
        let job = Job {
            connection: Connection::new(dialogue, ready.order.clocks).with_veil(ready.veil),
            notices: ready.launch.warnings,
            order: ready.order,
            process,
            follower: ready.follower,
            tape: ready.tape,
            before: Some(ready.before),
            max_line: ready.max_line,
            begun,
            events,
            cancels: cancelled,
            private: Some(ready.private),
            copy_back: ready.launch.copy_back,
        };
        Ok(Run::new(who.run_id, receiver, cancels, tokio::spawn(drive(job)), launched))
    }
}

/// What is ready before an agent starts.
enum Prepared {
    Ready(Box<Ready>),
    NotBegun(Box<Outcome>),
}

struct Ready {
    agent: &'static dyn Agent,
    launch: Launch,
    order: Order,
    veil: Veil,
    follower: Follower,
    tape: Option<TapeFile>,
    before: Before,
    max_line: usize,
    private: tempfile::TempDir,
}

impl Inner {
    fn detect(&self, agent: &dyn Agent) -> Detection {
        let mut here = self.here.clone();
        here.configured = self.programs.get(agent.card().id).cloned();
        detect(agent, &here)
    }

    /// Checks the request, finds the agent and makes everything ready. Blocks.
    fn prepare(&self, request: RunRequest) -> Result<Prepared, Error> {
        let agent = agents::find(&request.agent).map_err(Problems::from)?;
        let plan = Plan::of(request, agent)?;
        let cwd = self.workspace(plan.request.working_dir.as_deref())?;
        let detection = self.detect(agent);
        let mut who = self.who(agent, &plan, &cwd);
        who.agent_version = detection.version.map(|v| v.to_string());
        let Some(program) = detection.program else {
            let failure = not_installed(agent, &detection.problems);
            return Ok(Prepared::NotBegun(Box::new(Outcome::not_begun(
                &who,
                Verdict::NotInstalled,
                failure,
            ))));
        };
        match self.make_ready(agent, &plan, program, cwd, who.clone()) {
            Ok(ready) => Ok(Prepared::Ready(Box::new(ready))),
            Err(Error::Usage(problems)) => Err(Error::Usage(problems)),
            Err(error) => Ok(Prepared::NotBegun(Box::new(self.not_prepared(&who, &error)))),
        }
    }

    /// The request was good, but the machine did not let us prepare the run: that is an outcome, as any other failure.
    fn not_prepared(&self, who: &Who, error: &Error) -> Outcome {
        let (temp_dir, home) = (self.temp_dir(), &self.here.home);
        let in_home =
            matches!(error, Error::Io { path, .. } if path.starts_with(home) && !path.starts_with(&temp_dir));
        let (name, folder) = if in_home { ("HOME", home) } else { ("TMPDIR", &temp_dir) };
        let hint =
            format!("make room in `{}`, or set {name} to a folder that you may write to", folder.display());
        Outcome::not_begun(who, Verdict::Failed, Failure::new(Kind::Spawn, error.to_string()).hint(hint))
    }

    fn make_ready(
        &self,
        agent: &'static dyn Agent,
        plan: &Plan,
        program: Program,
        cwd: PathBuf,
        who: Who,
    ) -> Result<Ready, Error> {
        let version = program.version;
        let private = prepare::private_folder(&self.temp_dir())?;
        let mut ground = Ground::new(program, cwd.clone(), self.here.home.clone(), private.path().to_owned());
        ground.env.clone_from(&self.here.env);
        ground.session_id = uuid::Uuid::new_v4().to_string();
        let launch = agent.launch(plan, &ground, &DiskLook).map_err(Problems::from)?;
        let veil = Veil::new(&launch.secrets);
        let tape = self.tape(plan, agent, version, &launch, &veil)?;
        prepare::carry_out(&launch)?;
        let mut follower = Follower::new(agent, &launch.agent_home, &cwd);
        if let Some(session) = plan.request.resume.as_ref().and(launch.session_id.as_deref()) {
            follower.remember(session);
        }
        let order = self.order(plan, &launch, who);
        let before = Before::look(&cwd, &self.here.cache.join("runs"), &self.temp_dir(), &launch.folders);
        Ok(Ready {
            agent,
            launch,
            order,
            veil,
            follower,
            tape,
            before,
            max_line: plan.request.max_line_bytes,
            private,
        })
    }

    /// The workspace, absolute, with links resolved.
    fn workspace(&self, wanted: Option<&Path>) -> Result<PathBuf, Error> {
        let dir = wanted.map_or_else(|| self.here.cwd.clone(), |dir| self.here.cwd.join(dir));
        let real = dir.canonicalize().ok().filter(|d| d.is_dir());
        real.ok_or_else(|| {
            let problem = Problem::new("working_dir", format!("`{}` is not a folder", dir.display()));
            Error::Usage(Problems::from(problem.hint("pass an existing folder with `--cwd`")))
        })
    }

    fn temp_dir(&self) -> PathBuf {
        self.here.env.get("TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
    }

    fn who(&self, agent: &dyn Agent, plan: &Plan, cwd: &Path) -> Who {
        let mut who = Who::default();
        who.run_id = uuid::Uuid::new_v4().to_string();
        who.agent = agent.card().id.to_owned();
        who.surface = Some(plan.surface);
        who.model.clone_from(&plan.request.model);
        who.cwd = cwd.to_string_lossy().into_owned();
        who.name.clone_from(&plan.request.name);
        who.sign_in_hint = Some(agent.card().sign_in_hint.to_owned());
        who.tape = plan.request.record.as_ref().map(|p| p.to_string_lossy().into_owned());
        who
    }

    fn order(&self, plan: &Plan, launch: &Launch, who: Who) -> Order {
        let request = &plan.request;
        let mut order = Order::default();
        order.prompt.clone_from(&launch.stdin);
        order.session = match (&launch.session_id, &request.resume) {
            (Some(id), Some(_)) => Want::Load(id.clone()),
            (Some(id), None) => Want::Named(id.clone()),
            (None, _) => Want::New,
        };
        order.who = who;
        order.clocks = clocks(request);
        order.limits = request.limits;
        order.settle = true;
        order.follow = true;
        order.prices = self.prices.clone();
        order.proof.clone_from(&launch.proof);
        order
    }

    fn tape(
        &self,
        plan: &Plan,
        agent: &dyn Agent,
        version: Option<agentline_core::Version>,
        launch: &Launch,
        veil: &Veil,
    ) -> Result<Option<TapeFile>, Error> {
        let Some(path) = &plan.request.record else { return Ok(None) };
        let path = self.here.cwd.join(path);
        let mut header = TapeHeader::default();
        header.schema = TAPE_SCHEMA.to_owned();
        header.agentline = env!("CARGO_PKG_VERSION").to_owned();
        header.agent = agent.card().id.to_owned();
        header.agent_version = version;
        header.surface = Some(plan.surface);
        header.talk = Some(launch.talk.clone());
        header.command = std::iter::once(launch.program.to_string_lossy().into_owned())
            .chain(launch.args.iter().cloned())
            .collect();
        header.cwd = launch.cwd.to_string_lossy().into_owned();
        header.variables = launch.env.keys().cloned().collect();
        header.recorded_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let tape = TapeFile::create(&path, &header, veil.clone()).map_err(|why| {
            let problem = Problem::new("record", format!("`{}` cannot be written: {why}", path.display()));
            Problems::from(problem.hint("name a file in a folder that is there and that you may write to"))
        })?;
        Ok(Some(tape))
    }

    fn spawn(&self, launch: &Launch, who: &Who) -> Spawn {
        let mut spawn = Spawn::new(&launch.program, &launch.cwd, &who.run_id);
        spawn.args = launch.args.iter().map(Into::into).collect();
        spawn.env = launch.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        spawn.supervisor = self.supervisor.clone();
        spawn
    }
}

fn launched(launch: &Launch, veil: &Veil) -> Launched {
    let command =
        std::iter::once(launch.program.to_string_lossy().into_owned()).chain(launch.args.iter().cloned());
    let command = command.map(|word| veil.text(&word).into_owned()).collect();
    Launched { command, withheld: launch.withheld.clone() }
}

fn clocks(request: &RunRequest) -> Clocks {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
    let mut clocks = Clocks::default();
    clocks.startup = ms(request.startup_timeout);
    clocks.idle = ms(request.idle_timeout);
    clocks.idle_tool = ms(request.tool_timeout);
    clocks.run = ms(request.timeout);
    clocks.patience = ms(request.retry_patience);
    clocks
}

fn not_installed(agent: &dyn Agent, problems: &[Problem]) -> Failure {
    let card = agent.card();
    let message =
        problems.first().map_or_else(|| format!("{} was not found", card.title), |p| p.message.clone());
    let hint = problems.first().and_then(|p| p.hint.clone());
    let hint = hint.unwrap_or_else(|| format!("type `npm install -g {}`", card.package));
    Failure::new(Kind::NotInstalled, message).hint(hint)
}

fn not_started(who: &Who, agent: &dyn Agent, error: &SpawnError) -> Outcome {
    let missing = matches!(error, SpawnError::NotFound { .. });
    let (kind, verdict) =
        if missing { (Kind::NotInstalled, Verdict::NotInstalled) } else { (Kind::Spawn, Verdict::Failed) };
    let hint = match error {
        SpawnError::TooBig => {
            "pass shorter values with `--env`, and fewer variables with `--pass-env`".to_owned()
        }
        _ => format!("`agentline doctor` says which {} is found, and where", agent.card().title),
    };
    let failure = Failure::new(kind, error.to_string()).hint(hint);
    Outcome::not_begun(who, verdict, failure)
}
