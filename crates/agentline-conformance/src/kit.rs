//! Plays scenarios on targets, several at a time, and judges them.

use crate::bench::{Bench, search_path};
use crate::compare;
use crate::exceptions::{self, Exception};
use crate::expected::{Aspect, Difference};
use crate::matrix::{Cell, CellStatus, Matrix};
use crate::play::{is_missing, play};
use crate::processes;
use crate::scenario::{Group, Play, Scenario};
use crate::scenarios;
use crate::target::TestedSurface;
use agentline::{Error, HostEnv, Problem, Problems};
use agentline_mock::agents::ScriptedAgent;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

/// What the kit is doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A target begins.
    Target {
        /// The target.
        target: &'a TestedSurface,
        /// The number of its scenarios.
        scenarios: usize,
    },
    /// A scenario begins.
    Started {
        /// The target.
        target: &'a TestedSurface,
        /// The name of the scenario.
        scenario: &'static str,
    },
    /// A scenario is over.
    Finished {
        /// Its result.
        cell: &'a Cell,
    },
}

/// Returns whether a scripted model can serve an agent.
#[must_use]
pub fn is_supported(agent: &str) -> bool {
    ScriptedAgent::find(agent).is_some()
}

/// How many targets are played at the same time. Their warm agents need memory.
const MAX_OPEN: usize = 4;

/// Numbers the scenarios of this process, so that their marks are unique.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Plays scenarios on targets, with at most `at_once` runs at the same time.
///
/// The environment of the caller is only used to find programs such as Node.js.
pub async fn run(
    targets: &[TestedSurface],
    scenarios: &[Scenario],
    host_env: &HostEnv,
    at_once: usize,
    on: &mut dyn FnMut(Progress<'_>),
) -> Matrix {
    let at_once = at_once.max(1);
    let mut lanes: Vec<Lane> = targets.iter().map(|target| Lane::new(target, scenarios)).collect();
    let (mut running, mut closing) = (JoinSet::new(), JoinSet::new());
    loop {
        while running.len() < at_once
            && let Some(index) = next_lane(&lanes)
        {
            let lane = &mut lanes[index];
            let target = lane.target.clone();
            if lane.cells.is_empty() && lane.bench.is_none() {
                on(Progress::Target { target: &target, scenarios: scenarios.len() });
            }
            let Some(bench) = lane.open(scenarios, host_env) else { continue };
            let Some(scenario) = lane.queue.pop_front() else { continue };
            on(Progress::Started { target: &target, scenario: scenario.name });
            lane.running += 1;
            running.spawn(async move { (index, judge(&bench, scenario).await) });
        }
        let Some(done) = running.join_next().await else { break };
        let (index, cell) = match done {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        on(Progress::Finished { cell: &cell });
        let lane = &mut lanes[index];
        lane.running -= 1;
        lane.cells.push(cell);
        if lane.is_over()
            && let Some(bench) = lane.bench.take()
        {
            closing.spawn(async move { bench.close().await });
        }
    }
    while closing.join_next().await.is_some() {}
    Matrix { cells: lanes.into_iter().flat_map(|lane| lane.judged(scenarios)).collect() }
}

/// The scenarios of one target.
struct Lane {
    target: TestedSurface,
    /// The environment, from the first scenario to the last.
    bench: Option<Arc<Bench>>,
    queue: VecDeque<Scenario>,
    running: usize,
    cells: Vec<Cell>,
}

impl Lane {
    fn new(target: &TestedSurface, played: &[Scenario]) -> Self {
        // The first scenario runs alone, because some agents cannot initialize a new home twice at the same time. Then
        // those that mostly wait begin, so that none of them runs alone at the end.
        let mut queue: VecDeque<Scenario> = played.iter().copied().collect();
        if let Some((_, others)) = queue.make_contiguous().split_first_mut() {
            others.sort_by_key(|scenario| !waits(scenario));
        }
        Self { target: target.clone(), bench: None, queue, running: 0, cells: Vec::new() }
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.running == 0
    }

    fn is_open(&self) -> bool {
        self.bench.is_some()
    }

    /// Returns whether a scenario may start.
    fn is_ready(&self) -> bool {
        !self.queue.is_empty() && (self.running == 0 || !self.cells.is_empty())
    }

    /// Returns the environment. If it cannot be created, all scenarios fail.
    fn open(&mut self, played: &[Scenario], host_env: &HostEnv) -> Option<Arc<Bench>> {
        if self.bench.is_none() {
            match new_bench(&self.target, host_env) {
                Ok(bench) => self.bench = Some(Arc::new(bench)),
                Err(message) => {
                    self.queue.clear();
                    let differences = vec![Difference::new(Aspect::Start, "a scripted model", message)];
                    let status = CellStatus::Fail { differences };
                    let failed =
                        |one: &Scenario| cell(&self.target, one.name, status.clone(), Instant::now());
                    self.cells = played.iter().map(failed).collect();
                }
            }
        }
        self.bench.clone()
    }

    /// Returns the results in the order of the scenarios.
    fn judged(mut self, played: &[Scenario]) -> Vec<Cell> {
        let position = |cell: &Cell| played.iter().position(|scenario| scenario.name == cell.scenario);
        self.cells.sort_by_key(position);
        if self.cells.len() == scenarios::all().len() {
            judge_general_exceptions(&self.target, &mut self.cells);
        }
        self.cells
    }
}

/// Returns the target whose next scenario starts: the one with the fewest running ones, and then with the most that are
/// left, so that all targets end at about the same time.
fn next_lane(lanes: &[Lane]) -> Option<usize> {
    let may_open = lanes.iter().filter(|lane| lane.is_open()).count() < MAX_OPEN;
    let ready = lanes.iter().enumerate().filter(|(_, lane)| lane.is_ready() && (lane.is_open() || may_open));
    let by_load = |(_, lane): &(usize, &Lane)| (lane.running, Reverse(lane.queue.len()));
    ready.min_by_key(by_load).map(|(index, _)| index)
}

fn new_bench(target: &TestedSurface, host_env: &HostEnv) -> Result<Bench, String> {
    let scripted = ScriptedAgent::find(&target.agent)
        .ok_or_else(|| format!("no scripted model serves `{}`", target.agent))?;
    Bench::new(target.clone(), scripted, &search_path(&host_env.env)).map_err(|error| error.to_string())
}

/// Returns whether a scenario waits longer than it computes.
fn waits(scenario: &Scenario) -> bool {
    // Some agents cannot resume a session in the minute in which it was stored.
    matches!(scenario.group, Group::Control | Group::Service | Group::Sessions)
}

/// Plays a scenario and judges it.
async fn judge(bench: &Arc<Bench>, scenario: Scenario) -> Cell {
    let started_at = Instant::now();
    let target = &bench.target;
    let status = if let Some(reason) = not_applicable(target, &scenario) {
        CellStatus::NotApplicable { reason: reason.to_owned() }
    } else {
        status_of(bench, &scenario).await
    };
    cell(target, scenario.name, status, started_at)
}

fn not_applicable(target: &TestedSurface, scenario: &Scenario) -> Option<&'static str> {
    if matches!(scenario.play, Play::Kill) && !processes::are_visible() {
        return Some("processes can be found on Linux only");
    }
    scenario.need.and_then(|need| need.missing(&target.features))
}

async fn status_of(bench: &Arc<Bench>, scenario: &Scenario) -> CellStatus {
    let fail = |observed: String| {
        let differences = vec![Difference::new(Aspect::Start, "a run", observed)];
        explain(&bench.target, scenario.name, differences)
    };
    let scene = match bench.scene(NEXT.fetch_add(1, Ordering::Relaxed)) {
        Ok(scene) => scene,
        Err(error) => return fail(error.to_string()),
    };
    let script = (scenario.script)(&scene).thinking(exceptions::thinking_ms(&bench.target, scenario.name));
    bench.scripts.add(&scene.mark, script);
    let expected = (scenario.expect)(&scene);
    let observed = match play(&scene, scenario).await {
        Ok(observed) => observed,
        Err(Error::Usage(problems)) if scenario.may_be_refused => {
            return CellStatus::NotApplicable { reason: refusal(&problems) };
        }
        Err(error) => return fail(error.to_string()),
    };
    if is_missing(&observed) {
        return fail("the program was not found".to_owned());
    }
    let differences = compare::differences(&scene, &expected, &observed);
    explain(&bench.target, scenario.name, differences)
}

/// Separates the differences that exceptions explain from the others.
fn explain(target: &TestedSurface, scenario: &'static str, differences: Vec<Difference>) -> CellStatus {
    let covering: Vec<_> = exceptions::all().filter(|one| one.covers(target, scenario)).collect();
    let explained = |difference: &Difference| covering.iter().any(|exception| exception.explains(difference));
    let mut failures: Vec<Difference> = differences.iter().filter(|one| !explained(one)).cloned().collect();
    let is_certain = |exception: &&&Exception| !exception.scenarios.is_empty() && !exception.is_race;
    for exception in covering.iter().filter(is_certain) {
        let is_needed = |aspect: &&Aspect| {
            differences.iter().any(|one| one.aspect == **aspect && exception.explains(one))
        };
        // A time that is too long in some runs is not too long in all of them.
        let is_checked = |aspect: &&Aspect| **aspect != Aspect::Time;
        let needless = exception.aspects.iter().filter(is_checked).filter(|aspect| !is_needed(aspect));
        failures.extend(needless.map(|aspect| needless_exception(*aspect, exception.reason)));
    }
    let is_used =
        |exception: &Exception| exception.is_race || differences.iter().any(|one| exception.explains(one));
    let mut reasons: Vec<&'static str> = Vec::new();
    for exception in covering.iter().filter(|exception| is_used(exception)) {
        if !reasons.contains(&exception.reason) {
            reasons.push(exception.reason);
        }
    }
    match () {
        () if !failures.is_empty() => CellStatus::Fail { differences: failures },
        () if reasons.is_empty() => CellStatus::Pass,
        () => CellStatus::Explained { reasons },
    }
}

/// Returns why a request is refused, in one line.
fn refusal(problems: &Problems) -> String {
    let line = |problem: &Problem| {
        let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("`{}`: {}{hint}", problem.key, problem.message)
    };
    problems.0.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// Fails the first cell of a target for each exception for all scenarios that none of them needed.
fn judge_general_exceptions(target: &TestedSurface, cells: &mut [Cell]) {
    let is_general = |exception: &&Exception| exception.scenarios.is_empty() && exception.covers(target, "");
    for exception in exceptions::all().filter(is_general) {
        let is_used = |cell: &Cell| match &cell.status {
            CellStatus::Explained { reasons } => reasons.contains(&exception.reason),
            // A failure may hide what an exception explains.
            CellStatus::Fail { .. } => true,
            CellStatus::Pass | CellStatus::NotApplicable { .. } => false,
        };
        if cells.iter().any(is_used) {
            continue;
        }
        if let Some(first) = cells.first_mut() {
            let differences = vec![needless_exception(exception.aspects[0], exception.reason)];
            first.status = CellStatus::Fail { differences };
        }
    }
}

fn needless_exception(aspect: Aspect, reason: &str) -> Difference {
    Difference::new(aspect, format!("the exception “{reason}”"), "no such difference: remove the exception")
}

fn cell(target: &TestedSurface, scenario: &'static str, status: CellStatus, started_at: Instant) -> Cell {
    let took_ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
    Cell { target: target.clone(), scenario, status, took_ms }
}
