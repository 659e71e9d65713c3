//! Kills agentline, its supervisor, or several of them during runs, and counts the surviving processes.
//!
//! Every run uses a fake agent whose command starts one process of each [`LeftoverKind`]. Each has a unique word on its
//! command line, so that it is found in any environment, session and pid namespace. All of them end by themselves after
//! two minutes.

use crate::{FakeStage, HostProgram, running_with, survivors, unique_tag};
use agentline::supervisor::Isolation;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How long started processes may take to become ready.
const START: Duration = Duration::from_secs(60);

/// How long processes may take to exit before they count as survivors.
const DEATH: Duration = Duration::from_secs(8);

/// The programs that a kill needs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The command-line tool.
    pub agentline: PathBuf,
    /// The fake agent that replaces Gemini CLI.
    pub fake_gemini: PathBuf,
    /// The fake ACP agent.
    pub fake_acp: PathBuf,
}

/// The processes that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The process that runs the agent: `agentline run`, the daemon, or the host.
    Agentline,
    /// Its supervisor.
    Supervisor,
    /// Both at the same time.
    Both,
    /// The process that runs the agent, after its supervisor was stopped.
    WithStoppedSupervisor,
    /// Both, and the init below the supervisor.
    All,
}

/// The surface or process that the agent runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillSurface {
    /// A cold run on `json`.
    Json,
    /// A cold run on `stream-json`.
    StreamJson,
    /// A cold run on `acp`.
    Acp,
    /// A run in the pool daemon.
    Warm,
    /// A run in `agentline host`.
    Host,
}

/// The stage of a run at which the kill happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillMoment {
    /// While the agent starts.
    Start,
    /// While the agent has the prompt and has started nothing yet.
    Prompt,
    /// While a command runs.
    Tool,
    /// When all kinds of processes exist.
    Daemons,
    /// While the run is being cancelled.
    Closing,
}

/// A kind of process that an agent leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftoverKind {
    /// The agent, its supervisor, or its init.
    Agent,
    /// The command that the agent waits for.
    Command,
    /// A child in its own session.
    OwnSession,
    /// A daemon: it has left its parent and its session.
    Daemon,
    /// A daemon that has also cleared its environment.
    EmptyEnvironment,
    /// A shell in the background, with its child.
    BackgroundShell,
    /// The run's private directory.
    Directory,
}

const VICTIMS: [Victim; 5] =
    [Victim::Agentline, Victim::Supervisor, Victim::Both, Victim::WithStoppedSupervisor, Victim::All];
const SURFACES: [KillSurface; 5] =
    [KillSurface::Json, KillSurface::StreamJson, KillSurface::Acp, KillSurface::Warm, KillSurface::Host];
const MOMENTS: [KillMoment; 5] =
    [KillMoment::Start, KillMoment::Prompt, KillMoment::Tool, KillMoment::Daemons, KillMoment::Closing];
const STARTED: [LeftoverKind; 5] = [
    LeftoverKind::Command,
    LeftoverKind::OwnSession,
    LeftoverKind::Daemon,
    LeftoverKind::EmptyEnvironment,
    LeftoverKind::BackgroundShell,
];

/// One kill.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    /// The processes that are killed.
    pub victim: Victim,
    /// When they are killed.
    pub moment: KillMoment,
    /// The surface or process that the agent runs on.
    pub surface: KillSurface,
    /// Whether the agent is in a pid namespace.
    pub isolation: Isolation,
    /// Varies the exact time.
    pub jitter: u32,
}

/// Returns this many kills, spread over all combinations.
#[must_use]
pub fn plan(count: usize, isolation: &[Isolation]) -> Vec<Kill> {
    (0..count)
        .map(|n| {
            // Orthogonal, so that 25 kills have every pair of victim, surface and moment.
            let (victim, surface) = (VICTIMS[(n + n / 5) % 5], SURFACES[n % 5]);
            let moment = MOMENTS[(n + 2 * (n / 5) + n / 25) % 5];
            let isolation = isolation[n % isolation.len()];
            let jitter = u32::try_from(n).unwrap_or(0).wrapping_mul(2_654_435_761) >> 8;
            Kill { victim, moment, surface, isolation, jitter }
        })
        .collect()
}

/// The results of the kills.
#[derive(Debug, Default)]
pub struct Tally {
    cells: BTreeMap<(&'static str, Victim, KillMoment), Cell>,
}

#[derive(Debug, Default)]
struct Cell {
    kills: usize,
    runs_with_survivors: usize,
    kinds: BTreeMap<LeftoverKind, usize>,
    slowest: Duration,
}

impl Tally {
    fn add(&mut self, kill: Kill, survivors: &[LeftoverKind], took: Duration) {
        let cell = self.cells.entry((kill.isolation.name(), kill.victim, kill.moment)).or_default();
        cell.kills += 1;
        cell.runs_with_survivors += usize::from(!survivors.is_empty());
        survivors.iter().for_each(|kind| *cell.kinds.entry(*kind).or_default() += 1);
        cell.slowest = cell.slowest.max(took);
    }

    /// Counts the survivors of these victims.
    #[must_use]
    pub fn survivors(&self, isolation: Isolation, of: &[Victim]) -> usize {
        let selected = self
            .cells
            .iter()
            .filter(|((name, victim, _), _)| *name == isolation.name() && of.contains(victim));
        selected.map(|(_, cell)| cell.kinds.values().sum::<usize>()).sum()
    }

    /// Counts the kills.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.cells.values().map(|cell| cell.kills).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "isolation | victim | stage | kills | kills with survivors | survivors | slowest end")?;
        writeln!(f, "---|---|---|---|---|---|---")?;
        for ((isolation, victim, moment), cell) in &self.cells {
            let mut kinds = String::new();
            for (kind, count) in &cell.kinds {
                write!(kinds, "{count} {kind:?} ")?;
            }
            let kinds = if kinds.is_empty() { "0" } else { kinds.trim_end() };
            writeln!(
                f,
                "{isolation} | {victim:?} | {moment:?} | {} | {} | {kinds} | {} ms",
                cell.kills,
                cell.runs_with_survivors,
                cell.slowest.as_millis()
            )?;
        }
        write!(f, "{} kills", self.kills())
    }
}

/// Carries out kills on several threads, and reports each.
///
/// # Panics
/// Panics if a process does not start.
pub fn carry_out(kills: &[Kill], programs: &Programs, threads: usize, each: impl Fn(usize) + Sync) -> Tally {
    let tally = Mutex::new(Tally::default());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(kill) = kills.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (survivors, took) = Scene::new(*kill, programs).carry_out();
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.add(*kill, &survivors, took);
                    each(tally.kills());
                }
            });
        }
    });
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One run that will be killed.
struct Scene {
    kill: Kill,
    programs: Programs,
    stage: Arc<FakeStage>,
    /// The end of a unique duration for `sleep`; the kind precedes it.
    tag: String,
}

/// The program that runs the agent.
enum Host {
    /// `agentline run` itself.
    Cold(Child),
    /// In a daemon, with this process id.
    Warm(Child, u32),
    /// A host program of the test.
    Program(Box<HostProgram>),
}

impl Host {
    fn pid(&self) -> u32 {
        match self {
            Self::Cold(child) => child.id(),
            Self::Warm(_, daemon) => *daemon,
            Self::Program(program) => program.child.id(),
        }
    }

    /// Returns the process that is asked to cancel the run.
    fn caller(&self) -> u32 {
        match self {
            Self::Warm(client, _) => client.id(),
            other => other.pid(),
        }
    }
}

#[expect(clippy::unwrap_used, reason = "test helpers may panic")]
impl Scene {
    fn new(kill: Kill, programs: &Programs) -> Self {
        let tag = unique_tag();
        let program = match kill.surface {
            KillSurface::Json | KillSurface::StreamJson => &programs.fake_gemini,
            _ => &programs.fake_acp,
        };
        let stage = Arc::new(FakeStage::new(program));
        Self { kill, programs: programs.clone(), stage, tag }
    }

    /// Returns a duration of two minutes that is unique to this kind.
    fn time(&self, kind: usize) -> String {
        format!("120.{kind}{}", self.tag)
    }

    /// Returns a command that starts one process of each kind and then waits.
    fn command(&self) -> String {
        if self.kill.moment == KillMoment::Prompt {
            return String::new();
        }
        let [session, daemon, empty, shell] = [1, 2, 3, 4].map(|kind| self.time(kind));
        format!(
            "setsid sleep {session} & (setsid sleep {daemon} &) ; (env -i setsid sleep {empty} &) ; \
             sh -c 'sleep {shell}; :' & "
        )
    }

    fn carry_out(&self) -> (Vec<LeftoverKind>, Duration) {
        let mut host = self.start();
        self.wait_for_moment(&host);
        let victims = self.victims(&host);
        if self.kill.victim == Victim::WithStoppedSupervisor
            && let Some(supervisor) = child_named(host.pid(), "agentline-super")
        {
            drop(Command::new("kill").args(["-STOP", &supervisor.to_string()]).output());
        }
        let signal = |pid: u32| drop(Command::new("kill").args(["-9", &pid.to_string()]).output());
        if let [one] = victims[..] {
            signal(one);
        } else {
            // All at once, by one process.
            let pids: Vec<String> = victims.iter().map(u32::to_string).collect();
            drop(Command::new("kill").arg("-9").args(&pids).output());
        }
        let killed = Instant::now();
        let left = self.await_death(&host);
        let took = killed.elapsed();
        let directories = self.await_removal(took);
        match &mut host {
            Host::Cold(child) | Host::Warm(child, _) => {
                signal(child.id());
                let _ = child.wait();
            }
            Host::Program(program) => drop(program.child.kill()),
        }
        if let Host::Warm(_, daemon) = host {
            signal(daemon);
        }
        // They belong to this test: no other process has the tag or the mark.
        let marked = survivors(&self.stage.mark());
        marked.into_iter().chain(running_with(&self.tag)).for_each(signal);
        let directories = directories || self.stays_after_the_next_run();
        let kinds =
            left.into_iter().map(|(_, kind)| kind).chain(directories.then_some(LeftoverKind::Directory));
        (kinds.collect(), took)
    }

    /// Waits until nothing remains, and returns the survivors.
    fn await_death(&self, host: &Host) -> Vec<(u32, LeftoverKind)> {
        let until = Instant::now() + DEATH;
        let mut empty_looks = 0;
        loop {
            let left = self.left(host);
            // A process that starts another one during the scan may be missed once.
            empty_looks = if left.is_empty() { empty_looks + 1 } else { 0 };
            if empty_looks == 3 || Instant::now() > until {
                return left;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether a private directory remains after only the host was killed. In that case, its supervisor removes
    /// it.
    fn await_removal(&self, took: Duration) -> bool {
        // A starting run has no supervisor yet, and a run that is being cancelled may no longer have one.
        let has_supervisor = !matches!(self.kill.moment, KillMoment::Start | KillMoment::Closing);
        let is_host_alone = matches!(self.kill.victim, Victim::Agentline | Victim::WithStoppedSupervisor);
        if !is_host_alone || !has_supervisor || took >= DEATH {
            return false;
        }
        let until = Instant::now() + DEATH;
        while !self.private_directories().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        !self.private_directories().is_empty()
    }

    /// Returns whether an unused private directory remains after another run. Every run removes such directories when
    /// it starts.
    fn stays_after_the_next_run(&self) -> bool {
        let until = Instant::now() + DEATH;
        while !survivors(&self.stage.mark()).is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = self.private_directories();
        if before.is_empty() {
            return false;
        }
        loop {
            let mut next = self.agentline();
            next.args(["run", "--surface", "acp", "say done"]).env("FAKE_AGENT_FAULT", "ok");
            next.env("GEMINI_CLI_PATH", &self.programs.fake_acp);
            drop(next.stdout(Stdio::null()).stderr(Stdio::null()).status());
            let stays = self.private_directories().iter().any(|path| before.contains(path));
            // The kernel releases the memory of a killed process, by which it was found above, before its locks.
            if !stays || Instant::now() > until {
                return stays;
            }
        }
    }

    fn private_directories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.stage.path().join("tmp")).into_iter().flatten().flatten();
        let is_private = |path: &PathBuf| path.to_string_lossy().contains("/agentline-run-");
        entries.map(|entry| entry.path()).filter(is_private).collect()
    }

    fn start(&self) -> Host {
        let surface = match self.kill.surface {
            KillSurface::Json => "json",
            KillSurface::StreamJson => "stream-json",
            _ => "acp",
        };
        let prompt = match self.command() {
            command if command.is_empty() => "hang".to_owned(),
            command => format!("run {command} sleep {}", self.time(0)),
        };
        let mut run = self.agentline();
        run.args(["run", "--permission-mode", "bypass", "--surface", surface, &prompt]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        match self.kill.surface {
            KillSurface::Host => {
                let settings = json!({"defaults": {"isolation": self.kill.isolation.name()}});
                let mut program =
                    HostProgram::start(&self.programs.agentline, Arc::clone(&self.stage), &settings);
                program.send("run", json!({"prompt": prompt, "run": "r"}));
                Host::Program(Box::new(program))
            }
            KillSurface::Warm => {
                let started = self.agentline().args(["pool", "start"]).output().unwrap();
                assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
                let status = self.agentline().args(["pool", "status", "-o", "json"]).output().unwrap();
                let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
                let daemon = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
                Host::Warm(run.arg("--warm").spawn().unwrap(), daemon)
            }
            _ => Host::Cold(run.spawn().unwrap()),
        }
    }

    fn agentline(&self) -> Command {
        let mut command = Command::new(&self.programs.agentline);
        command
            .env_clear()
            .envs(self.stage.variables())
            .env("AGENTLINE_ISOLATION", self.kill.isolation.name())
            .env("AGENTLINE_PASS_ENV", "MARK_OF_THE_TEST,FAKE_AGENT_FAULT")
            .env("FAKE_AGENT_FAULT", "hang_with_tool")
            .current_dir(self.stage.workspace())
            .stdin(Stdio::null());
        if matches!(self.kill.surface, KillSurface::Json | KillSurface::StreamJson) {
            command.env("GEMINI_CLI_PATH", self.wrapper());
        }
        command
    }

    /// Returns the fake agent, which starts its processes before anything else. It has no tools that run commands.
    fn wrapper(&self) -> PathBuf {
        let path = self.stage.path().join("agent.sh");
        if !path.exists() {
            let program = self.programs.fake_gemini.display();
            let command = match self.command() {
                command if command.is_empty() => String::new(),
                command => format!("{command} sleep {} &", self.time(0)),
            };
            let script = format!(
                "#!/bin/sh\ncase \"$*\" in *--version*) exec '{program}' \"$@\";; esac\n{command}\nexec '{program}' \"$@\"\n"
            );
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    fn wait_for_moment(&self, host: &Host) {
        let pause = |most: u32| {
            std::thread::sleep(Duration::from_micros(u64::from(self.kill.jitter % (most * 1000))));
        };
        match self.kill.moment {
            KillMoment::Start if self.kill.victim == Victim::Agentline => pause(120),
            KillMoment::Start => {
                self.until(|| child_named(host.pid(), "agentline-super").is_some());
                pause(20);
            }
            KillMoment::Prompt => {
                self.until(|| init_of(host.pid()).is_some_and(|init| !children(init).is_empty()));
                pause(200);
            }
            KillMoment::Tool => self.until(|| self.is_up(0)),
            KillMoment::Daemons | KillMoment::Closing => {
                self.until(|| [0, 1, 2, 3, 4].iter().all(|kind| self.is_up(*kind)));
                if self.kill.moment == KillMoment::Closing {
                    drop(Command::new("kill").args(["-TERM", &host.caller().to_string()]).output());
                    pause(80);
                }
            }
        }
    }

    /// Returns whether the process of a kind itself exists, not only a shell whose command names it.
    fn is_up(&self, kind: usize) -> bool {
        let is_sleep = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep\0"))
        };
        running_with(&self.time(kind)).iter().any(is_sleep)
    }

    fn until(&self, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + START;
        while !holds() {
            assert!(Instant::now() < end, "did not start: {:?}", self.kill);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the processes to kill. A supervisor that does not exist cannot be killed.
    fn victims(&self, host: &Host) -> Vec<u32> {
        let supervisor = child_named(host.pid(), "agentline-super");
        let init = init_of(host.pid());
        let host = Some(host.pid());
        let victims = match self.kill.victim {
            Victim::Agentline | Victim::WithStoppedSupervisor => vec![host],
            Victim::Supervisor => vec![supervisor],
            Victim::Both => vec![host, supervisor],
            Victim::All => vec![init, supervisor, host],
        };
        victims.into_iter().flatten().collect()
    }

    /// Returns the remaining processes with their kinds. Programs that may continue are not counted.
    fn left(&self, host: &Host) -> Vec<(u32, LeftoverKind)> {
        let mut left: BTreeMap<u32, LeftoverKind> = BTreeMap::new();
        for pid in survivors(&self.stage.mark()) {
            left.insert(pid, LeftoverKind::Agent);
        }
        for (kind, number) in STARTED.into_iter().zip(0..) {
            left.extend(running_with(&self.time(number)).into_iter().map(|pid| (pid, kind)));
        }
        let is_ours = |pid: u32| pid == host.pid() || pid == host.caller() || is_agentline(pid);
        left.into_iter().filter(|(pid, _)| !is_ours(*pid) && !is_of_living_run(*pid)).collect()
    }
}

/// Returns the init below the supervisor of a host.
pub(crate) fn init_of(host: u32) -> Option<u32> {
    child_named(child_named(host, "agentline-super")?, "agentline-init")
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Returns whether this is the command-line tool itself.
fn is_agentline(pid: u32) -> bool {
    name_of(pid).starts_with("agentline-under")
}

/// Returns whether a process belongs to a continuing run: one that a caller restarted after its daemon or process was
/// lost.
fn is_of_living_run(pid: u32) -> bool {
    let above = ancestors(pid);
    above.windows(2).any(|pair| name_of(pair[0]) == "agentline-super" && is_agentline(pair[1]))
}

/// Returns the process itself and all of its ancestors.
fn ancestors(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok().filter(|parent| *parent > 1)
    };
    std::iter::successors(Some(pid), parent).take(64).collect()
}

/// Returns the first child with this name.
fn child_named(parent: u32, name: &str) -> Option<u32> {
    children(parent).into_iter().find(|pid| name_of(*pid) == name)
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(Path::new("/proc").join(parent.to_string()).join("task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists.collect::<Vec<_>>().join(" ").split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
