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
use agentline::{Error, HostEnv};
use agentline_mock::agents::ScriptedAgent;
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

/// Numbers the scenarios of this process, so that their marks are unique.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Plays scenarios on targets, with at most `at_once` runs at the same time. Targets are played one after the other.
///
/// The environment of the caller is only used to find programs such as Node.js.
pub async fn run(
    targets: &[TestedSurface],
    scenarios: &[Scenario],
    host_env: &HostEnv,
    at_once: usize,
    on: &mut dyn FnMut(Progress<'_>),
) -> Matrix {
    let mut matrix = Matrix::default();
    for target in targets {
        on(Progress::Target { target, scenarios: scenarios.len() });
        matrix.cells.extend(run_target(target, scenarios, host_env, at_once.max(1), on).await);
    }
    matrix
}

async fn run_target(
    target: &TestedSurface,
    played: &[Scenario],
    host_env: &HostEnv,
    at_once: usize,
    on: &mut dyn FnMut(Progress<'_>),
) -> Vec<Cell> {
    let all_fail = |message: String| -> Vec<Cell> {
        let differences = vec![Difference::new(Aspect::Start, "a scripted model", message)];
        let status = CellStatus::Fail { differences };
        played.iter().map(|scenario| cell(target, scenario.name, status.clone(), Instant::now())).collect()
    };
    let Some(scripted) = ScriptedAgent::find(&target.agent) else {
        return all_fail(format!("no scripted model serves `{}`", target.agent));
    };
    let bench = match Bench::new(target.clone(), scripted, &search_path(&host_env.env)) {
        Ok(bench) => Arc::new(bench),
        Err(error) => return all_fail(error.to_string()),
    };
    // The first scenario runs alone, because some agents cannot initialize a new home twice at the same time. Then
    // those that mostly wait begin, so that none of them runs alone at the end.
    let mut queue: VecDeque<Scenario> = played.iter().copied().collect();
    if let Some((_, others)) = queue.make_contiguous().split_first_mut() {
        others.sort_by_key(|scenario| !waits(scenario));
    }
    let mut running = JoinSet::new();
    let mut cells = Vec::new();
    while !queue.is_empty() || !running.is_empty() {
        let at_once = if cells.is_empty() { 1 } else { at_once };
        while running.len() < at_once
            && let Some(scenario) = queue.pop_front()
        {
            on(Progress::Started { target, scenario: scenario.name });
            let bench = Arc::clone(&bench);
            running.spawn(async move { judge(&bench, scenario).await });
        }
        if let Some(done) = running.join_next().await {
            let cell = match done {
                Ok(cell) => cell,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            on(Progress::Finished { cell: &cell });
            cells.push(cell);
        }
    }
    bench.close().await;
    let position = |cell: &Cell| played.iter().position(|scenario| scenario.name == cell.scenario);
    cells.sort_by_key(position);
    if cells.len() == scenarios::all().len() {
        judge_general_exceptions(target, &mut cells);
    }
    cells
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
    bench.scripts.add(&scene.mark, (scenario.script)(&scene));
    let expected = (scenario.expect)(&scene);
    let observed = match play(&scene, scenario).await {
        Ok(observed) => observed,
        Err(Error::Usage(problems)) if scenario.may_be_refused => {
            return CellStatus::NotApplicable { reason: problems.to_string() };
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
    for exception in covering.iter().filter(|exception| !exception.scenarios.is_empty()) {
        let is_needed = |aspect: &&Aspect| {
            differences.iter().any(|one| one.aspect == **aspect && exception.explains(one))
        };
        let needless = exception.aspects.iter().filter(|aspect| !is_needed(aspect));
        failures.extend(needless.map(|aspect| needless_exception(*aspect, exception.reason)));
    }
    let used = covering.iter().filter(|exception| differences.iter().any(|one| exception.explains(one)));
    match () {
        () if !failures.is_empty() => CellStatus::Fail { differences: failures },
        () if differences.is_empty() => CellStatus::Pass,
        () => CellStatus::Explained { reasons: used.map(|exception| exception.reason).collect() },
    }
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
