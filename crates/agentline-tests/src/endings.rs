//! Ends runs of the real agents at every stage and in every way, and looks for what remains.
//!
//! A cold run is a process of `agentline run`. A warm run is the second prompt of an `agentline host`, whose agents stay
//! alive. The agent's command starts a daemon, a daemon without an environment, and a child; each has a unique word on
//! its command line, so that it is found in any environment, session and pid namespace.

use crate::{
    ScriptedStage,
    kills::{children, init_of},
    running_with, unique_tag,
};
use agentline_mock::{
    agents::ServedRequest,
    answer::{Action, Answer},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long a run may take to reach its stage, and to end, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long processes may take to exit after agentline was killed.
const DEATH: Duration = Duration::from_secs(8);
/// The timeouts of runs that end by it: long enough to reach the stage on a loaded machine.
const TIMEOUTS: [f64; 2] = [10.0, 40.0];
/// How often a line of output or a process is looked for.
const PAUSE: Duration = Duration::from_millis(5);

/// The agents whose runs are ended.
const AGENTS: [&str; 4] = ["gemini", "claude", "codex", "opencode"];

/// Whether the agent's process is started for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartMode {
    /// A run with a process of its own.
    Cold,
    /// A run on an agent that has already answered a prompt.
    Warm,
}

/// The stage of a run at which it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndingStage {
    /// Before or while the agent's process is started.
    Start,
    /// The agent's process exists and opens its session.
    Opening,
    /// The model has the prompt.
    Thinking,
    /// The model has sent part of its answer.
    Streaming,
    /// A command runs, with daemons.
    Tool,
    /// The agent waits for permission.
    Permission,
    /// The run is being cancelled, while a command runs.
    Closing,
}

/// How a run is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndingCause {
    /// It is cancelled, by SIGINT or over the host protocol.
    Cancel,
    /// Its timeout expires.
    Timeout,
    /// Agentline is killed with SIGKILL.
    Kill,
    /// The program that uses the host closes its pipe, as it does when it dies.
    Hangup,
}

const STAGES: [EndingStage; 7] = [
    EndingStage::Start,
    EndingStage::Opening,
    EndingStage::Thinking,
    EndingStage::Streaming,
    EndingStage::Tool,
    EndingStage::Permission,
    EndingStage::Closing,
];
const CAUSES: [EndingCause; 4] =
    [EndingCause::Cancel, EndingCause::Timeout, EndingCause::Kill, EndingCause::Hangup];

/// One run that is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ending {
    /// The agent.
    pub agent: &'static str,
    /// Whether its process is warm.
    pub start: StartMode,
    /// When the run is ended.
    pub stage: EndingStage,
    /// How it is ended.
    pub cause: EndingCause,
}

impl Ending {
    /// Returns all combinations: each agent, cold and warm, at every stage, in every way.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of = |agent: &'static str| {
            let modes = [StartMode::Cold, StartMode::Warm].into_iter();
            modes.flat_map(move |start| {
                STAGES.into_iter().flat_map(move |stage| {
                    CAUSES.into_iter().map(move |cause| Self { agent, start, stage, cause })
                })
            })
        };
        AGENTS.into_iter().flat_map(of).filter(Self::exists).collect()
    }

    /// Returns a sample: three endings of each agent, which together have every stage and every cause.
    #[must_use]
    pub fn sample() -> Vec<Self> {
        use EndingCause::*;
        use EndingStage::*;
        use StartMode::*;
        let rows = [
            ("gemini", [(Cold, Tool, Kill), (Warm, Streaming, Cancel), (Cold, Start, Cancel)]),
            ("claude", [(Warm, Tool, Cancel), (Cold, Permission, Kill), (Cold, Closing, Cancel)]),
            ("codex", [(Cold, Tool, Cancel), (Warm, Thinking, Kill), (Cold, Opening, Timeout)]),
            ("opencode", [(Cold, Tool, Timeout), (Warm, Permission, Hangup), (Cold, Streaming, Cancel)]),
        ];
        let of = |(agent, rows): (&'static str, [_; 3])| {
            rows.map(|(start, stage, cause)| Self { agent, start, stage, cause })
        };
        rows.into_iter().flat_map(of).collect()
    }

    /// Returns whether there is such an ending.
    fn exists(&self) -> bool {
        match self.cause {
            // `agentline run` has no pipe to its caller.
            EndingCause::Hangup => self.start == StartMode::Warm,
            // A cancelled run has no timeout.
            EndingCause::Timeout => self.stage != EndingStage::Closing,
            EndingCause::Cancel | EndingCause::Kill => true,
        }
    }

    /// Returns whether the run is made through `agentline host`. Only there can a program be asked for permission.
    fn is_hosted(&self) -> bool {
        self.start == StartMode::Warm || self.stage == EndingStage::Permission
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, start, stage, cause } = self;
        write!(f, "{agent}, {start:?}, {stage:?}, {cause:?}")
    }
}

/// The results of endings.
#[derive(Debug, Default)]
pub struct EndingReport {
    rows: BTreeMap<Ending, Result<Duration, String>>,
}

impl EndingReport {
    /// Returns the number of ended runs.
    #[must_use]
    pub fn endings(&self) -> usize {
        self.rows.len()
    }

    /// Returns the endings that left something behind, or did not end as they should, with what was found.
    pub fn failures(&self) -> impl Iterator<Item = (&Ending, &str)> {
        self.rows.iter().filter_map(|(ending, result)| Some((ending, result.as_ref().err()?.as_str())))
    }
}

impl fmt::Display for EndingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "agent | process | cause | endings | with leftovers | slowest end")?;
        writeln!(f, "---|---|---|---|---|---")?;
        let mut groups: BTreeMap<_, Vec<&Result<Duration, String>>> = BTreeMap::new();
        for (ending, result) in &self.rows {
            groups.entry((ending.agent, ending.start, ending.cause)).or_default().push(result);
        }
        for ((agent, start, cause), results) in groups {
            let times = results.iter().filter_map(|result| result.as_ref().ok());
            let slowest = times.clone().max().map_or(0, Duration::as_millis);
            let failed = results.len() - times.count();
            writeln!(f, "{agent} | {start:?} | {cause:?} | {} | {failed} | {slowest} ms", results.len())?;
        }
        for (ending, what) in self.failures() {
            writeln!(f, "FAILED: {ending}: {what}")?;
        }
        write!(f, "{} endings, {} with leftovers", self.endings(), self.failures().count())
    }
}

/// Ends runs on several threads, and reports each. Returns `None` if real agents are disabled.
pub fn end_runs(
    endings: &[Ending],
    agentline: &Path,
    threads: usize,
    each: impl Fn(&Ending, &Result<Duration, String>) + Sync,
) -> Option<EndingReport> {
    let report = Mutex::new(EndingReport::default());
    let next = AtomicUsize::new(0);
    let are_disabled = crate::are_disabled();
    crate::os::restore_interrupts();
    std::thread::scope(|scope| {
        for _ in 0..if are_disabled { 0 } else { threads } {
            scope.spawn(|| {
                while let Some(ending) = endings.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = end_run(*ending, agentline);
                    each(ending, &result);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.rows.insert(*ending, result);
                }
            });
        }
    });
    (!are_disabled).then(|| report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Ends one run, and returns how long that took. A run that does not reach its stage before its timeout is repeated
/// with a longer one.
fn end_run(ending: Ending, agentline: &Path) -> Result<Duration, String> {
    let attempts = TIMEOUTS.map(|timeout| move || EndedRun::start(ending, agentline, timeout)?.end());
    match attempts[0]() {
        Err(error) if error == MISSED => attempts[1](),
        result => result,
    }
}

/// Why a run is repeated.
const MISSED: &str = "the run ended before it reached its stage";

/// A run that will be ended.
struct EndedRun {
    ending: Ending,
    stage: ScriptedStage,
    child: Child,
    stdin: Option<ChildStdin>,
    /// The lines that agentline printed: events, or messages of the host protocol.
    lines: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
    /// The end of a unique duration for `sleep`.
    tag: String,
    timeout: Duration,
}

/// Returns the answers of the model. The prompt names the stage.
fn answer(request: &ServedRequest, command: &str, file: &str) -> Answer {
    let asks = |word: &str| request.user_texts.iter().rev().take(2).any(|text| text.contains(word));
    match () {
        () if !request.tool_results.is_empty() => Answer::hang(),
        () if asks("stage-streaming") => Answer::text("The first half of ").and_text("it.").hang_midway(),
        () if asks("stage-tool") => Answer::using(Action::shell(command)),
        () if asks("stage-permission") => Answer::using(Action::write(file, "new\n")),
        () if asks("stage-warm-up") => Answer::text("Ready."),
        () => Answer::hang(),
    }
}

impl EndedRun {
    /// Starts the run of an ending, with this timeout in seconds if it ends by it.
    fn start(ending: Ending, agentline: &Path, timeout: f64) -> Result<Self, String> {
        let tag = unique_tag();
        let command = format!(
            "(setsid sleep 120.1{tag} >/dev/null 2>&1 &) ; (env -i setsid sleep 120.2{tag} >/dev/null 2>&1 &) ; \
             sh -c 'sleep 120.0{tag}; :'"
        );
        let file = Arc::new(Mutex::new(PathBuf::new()));
        let stage = ScriptedStage::new(ending.agent, {
            let file = Arc::clone(&file);
            move |request| {
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                answer(request, &command, &file.to_string_lossy())
            }
        });
        let stage = stage.ok_or("real agents are disabled")?;
        *file.lock().unwrap_or_else(PoisonError::into_inner) = stage.workspace().join("new.txt");
        let timeout = match (ending.cause, ending.stage) {
            (EndingCause::Timeout, EndingStage::Start) => 0.02,
            (EndingCause::Timeout, EndingStage::Opening) if ending.start == StartMode::Warm => 0.03,
            (EndingCause::Timeout, EndingStage::Opening) => 0.6,
            (EndingCause::Timeout, _) => timeout,
            _ => PATIENCE.as_secs_f64(),
        };
        let prompt = match ending.stage {
            EndingStage::Streaming => "stage-streaming",
            EndingStage::Tool | EndingStage::Closing => "stage-tool",
            EndingStage::Permission => "stage-permission",
            EndingStage::Start | EndingStage::Opening | EndingStage::Thinking => "stage-thinking",
        };
        let mut program = stage.command(agentline);
        if ending.is_hosted() {
            program.arg("host").stdin(Stdio::piped());
        } else {
            program.args(["run", "-o", "events", "--permission-mode", "bypass", "-a", ending.agent]);
            program.args(["--timeout", &timeout.to_string(), prompt]);
        }
        let spawned = program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|error| error.to_string())?;
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let reader = child.stdout.take().map(|output| {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(value);
                }
            })
        });
        let stdin = child.stdin.take();
        let mut run = Self {
            ending,
            stage,
            child,
            stdin,
            lines,
            reader,
            tag,
            timeout: Duration::from_secs_f64(timeout),
        };
        if ending.is_hosted() {
            run.prompt_host(prompt, timeout)?;
        }
        Ok(run)
    }

    /// Sends the prompt to the host, after another one that warms the agent up.
    fn prompt_host(&mut self, prompt: &str, timeout: f64) -> Result<(), String> {
        let Ending { agent, start, stage, cause } = self.ending;
        let mut params = json!({
            "agent": agent, "permission_mode": "bypass", "startup_timeout": PATIENCE.as_secs(),
            "timeout": PATIENCE.as_secs(), "working_dir": self.stage.workspace(),
        });
        match (start, stage) {
            // A run that is recorded has a process of its own.
            (StartMode::Cold, _) => params["record"] = json!(self.stage.path().join("tape")),
            (StartMode::Warm, EndingStage::Start) => {}
            (StartMode::Warm, _) => {
                let mut first = params.clone();
                (first["prompt"], first["run"]) = (json!("stage-warm-up"), json!("warm-up"));
                self.send(1, "run", &first)?;
                self.until("the first answer", |run| run.response(1).is_some())?;
            }
        }
        if stage == EndingStage::Permission {
            params["permission_mode"] = json!("default");
            params["ask_permission"] = json!(true);
        }
        (params["prompt"], params["run"], params["timeout"]) = (json!(prompt), json!("r"), json!(timeout));
        if (stage, cause) == (EndingStage::Permission, EndingCause::Timeout) {
            // The other timeouts do not run while a person is asked.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
            params["deadline"] = json!(now.as_secs_f64() + timeout);
        }
        self.send(2, "run", &params)
    }

    fn send(&mut self, id: u32, method: &str, params: &Value) -> Result<(), String> {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let stdin = self.stdin.as_mut().ok_or("the host has no input")?;
        writeln!(stdin, "{message}").map_err(|error| format!("the host does not read: {error}"))
    }

    /// Ends the run at its stage, and returns how long that took.
    fn end(mut self) -> Result<Duration, String> {
        let result = self.reach_stage().and_then(|()| self.end_now());
        // They belong to this run: no other process has its words.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.left() {
            signal("-9", pid);
        }
        result
    }

    fn reach_stage(&mut self) -> Result<(), String> {
        let by_timeout = self.ending.cause == EndingCause::Timeout;
        match self.ending.stage {
            EndingStage::Start => {}
            // The timeout is short enough for this stage.
            EndingStage::Opening if by_timeout => {}
            EndingStage::Opening => self.reach("the agent's process", |run| {
                init_of(run.child.id()).is_some_and(|init| !children(init).is_empty())
            })?,
            EndingStage::Thinking => self.reach("the request", |run| {
                let log = run.stage.model.log();
                log.iter()
                    .any(|request| request.user_texts.iter().any(|text| text.contains("stage-thinking")))
            })?,
            EndingStage::Streaming => self.reach("the first text", |run| {
                run.has_line(|line| line.to_string().contains("The first half"))
            })?,
            EndingStage::Tool | EndingStage::Closing => {
                self.reach("the command", |run| (0..3).all(|kind| run.sleeps(kind)))?;
            }
            EndingStage::Permission => {
                self.reach("the question", |run| run.has_line(|line| line["method"] == "permission/ask"))?
            }
        }
        let is_started = !matches!(self.ending.stage, EndingStage::Start | EndingStage::Opening);
        if is_started && self.left().is_empty() {
            return Err("no process of the agent was found before the end".into());
        }
        if self.ending.stage == EndingStage::Closing {
            self.cancel()?;
        }
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), String> {
        if self.ending.is_hosted() {
            return self.send(3, "cancel", &json!({"run": "r"}));
        }
        signal("-INT", self.child.id());
        Ok(())
    }

    fn end_now(&mut self) -> Result<Duration, String> {
        let started_at = Instant::now();
        let verdict = match self.ending.cause {
            EndingCause::Cancel => {
                self.cancel()?;
                Some("cancelled")
            }
            EndingCause::Timeout => Some("timed_out"),
            EndingCause::Kill => {
                self.child.kill().map_err(|error| error.to_string())?;
                None
            }
            EndingCause::Hangup => {
                self.stdin = None;
                None
            }
        };
        if let Some(expected) = verdict {
            self.check_outcome(expected)?;
        }
        let took = started_at.elapsed();
        // A host ends with its input.
        self.stdin = None;
        self.until("the end of agentline", |run| matches!(run.child.try_wait(), Ok(Some(_))))?;
        let is_second = !self.ending.is_hosted() && self.outcome().is_none();
        let is_forced = self.ending.cause == EndingCause::Kill || is_second;
        self.check_nothing_left(if is_forced { DEATH } else { Duration::ZERO })?;
        Ok(match self.ending.cause {
            EndingCause::Timeout => self.after_timeout(),
            EndingCause::Kill | EndingCause::Hangup => started_at.elapsed(),
            EndingCause::Cancel => took,
        })
    }

    /// Waits for the outcome, after which no process of the run may be left. A warm agent may live on. `agentline run` has
    /// no outcome if a signal arrives before it handles signals, or a second time.
    fn check_outcome(&mut self, expected: &str) -> Result<(), String> {
        self.until("the outcome", |run| {
            run.outcome().is_some() || run.reader.as_ref().is_none_or(JoinHandle::is_finished)
        })?;
        let Some(outcome) = self.outcome() else {
            let may_exit = matches!(self.ending.stage, EndingStage::Start | EndingStage::Closing);
            return if may_exit { Ok(()) } else { Err("agentline exited without an outcome".into()) };
        };
        let left: Vec<u32> = (0..3).flat_map(|kind| running_with(&self.time(kind))).collect();
        if !left.is_empty() {
            return Err(format!("{left:?} of the command after the outcome"));
        }
        if outcome["verdict"] != expected {
            return Err(format!("the verdict is {}: {}", outcome["verdict"], outcome["error"]));
        }
        Ok(())
    }

    /// Checks that no process and no private directory is left, at the latest after this time.
    fn check_nothing_left(&self, within: Duration) -> Result<(), String> {
        let until = Instant::now() + within;
        loop {
            let (left, directories) = (self.left(), self.private_directories());
            // A run that was killed while it started has no supervisor, and the next run removes its directory.
            let has_supervisor = self.ending.stage != EndingStage::Start;
            if left.is_empty() && (directories.is_empty() || !has_supervisor) {
                return Ok(());
            }
            if Instant::now() >= until {
                let names: Vec<String> = left.iter().map(|pid| command_line(*pid)).collect();
                return Err(format!("left behind: {names:?} {directories:?}"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the live processes of the run, except agentline itself.
    fn left(&self) -> Vec<u32> {
        let mut left = self.stage.living();
        left.extend(running_with(&self.tag));
        left.sort_unstable();
        left.dedup();
        left.retain(|pid| *pid != self.child.id());
        left
    }

    fn private_directories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.stage.path().join("tmp")).into_iter().flatten().flatten();
        let is_private = |path: &PathBuf| path.to_string_lossy().contains("/agentline-run-");
        entries.map(|entry| entry.path()).filter(is_private).collect()
    }

    fn time(&self, kind: usize) -> String {
        format!("120.{kind}{}", self.tag)
    }

    /// Returns whether the process of a kind itself exists, not only a shell whose command names it.
    fn sleeps(&self, kind: usize) -> bool {
        running_with(&self.time(kind)).iter().any(|pid| command_line(*pid).starts_with("sleep "))
    }

    fn has_line(&self, matches: impl Fn(&Value) -> bool) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().any(matches)
    }

    /// Returns the response of the host to a request.
    fn response(&self, id: u32) -> Option<Value> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| line["id"] == id && line.get("method").is_none()).cloned()
    }

    /// Returns how long the run took to end after its timeout.
    fn after_timeout(&self) -> Duration {
        let took = self.outcome().and_then(|outcome| outcome["duration_ms"].as_u64()).unwrap_or(0);
        Duration::from_millis(took).saturating_sub(self.timeout)
    }

    fn outcome(&self) -> Option<Value> {
        if self.ending.is_hosted() {
            return self.response(2).map(|response| response["result"].clone());
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| line["type"] == "outcome").map(|line| line["outcome"].clone())
    }

    /// Waits until the run reaches its stage. Fails if it ends before that, by its timeout.
    fn reach(&mut self, awaited: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        self.until(awaited, |run| run.outcome().is_some() || holds(run))?;
        if self.outcome().is_some() { Err(MISSED.into()) } else { Ok(()) }
    }

    /// Waits until something holds.
    fn until(&mut self, awaited: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            if Instant::now() > end {
                let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
                let last = lines.last().map(Value::to_string).unwrap_or_default();
                return Err(format!("waited {PATIENCE:?} for {awaited}; the last line: {last}"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn signal(name: &str, pid: u32) {
    drop(Command::new("kill").args([name, &pid.to_string()]).output());
}
