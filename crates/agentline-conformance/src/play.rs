//! Plays one scenario: starts its runs, and cancels, kills or continues them as the scenario says.

use crate::bench::Scene;
use crate::observed::{Collected, Observed, collect};
use crate::processes;
use crate::scenario::{Play, ResumeBy, Scenario};
use agentline::{Error, FailureKind, Run};
use std::time::{Duration, Instant};

/// How long to wait for what a scenario waits for.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a late reader stays away.
const ABSENCE: Duration = Duration::from_secs(1);

/// Plays a scenario.
///
/// # Errors
/// Fails if a run is refused before it starts.
pub(crate) async fn play(scene: &Scene, scenario: &Scenario) -> Result<Observed, Error> {
    let request = (scenario.request)(scene, scene.request());
    let options = (scenario.options)(scene);
    let mut before = 0;
    let collected = match scenario.play {
        Play::Run => collect(scene.start(request, options, scenario.cold).await?).await,
        Play::ReadLate => {
            let run = scene.start(request, options, scenario.cold).await?;
            until(|| scene.turns() > 0).await;
            tokio::time::sleep(ABSENCE).await;
            collect(run).await
        }
        Play::CancelWhen(holds) => {
            let run = scene.start(request, options, scenario.cold).await?;
            let canceller = run.canceller();
            interrupt(run, || holds(scene), move || canceller.cancel()).await
        }
        Play::Kill => {
            let run = scene.start(request, options, true).await?;
            let mark = scene.process_mark();
            interrupt(run, || scene.turns() > 0, move || processes::kill(&mark)).await
        }
        Play::Resume(by) => {
            let first = collect(scene.start(request.clone(), options.clone(), true).await?).await;
            if first.outcome.error.is_some() {
                return Ok(observed(scene, 0, first));
            }
            before = scene.log().len();
            let mut next = request;
            next.resume = match by {
                ResumeBy::Id => first.outcome.session_id,
                ResumeBy::Latest => Some("latest".into()),
            };
            next.prompt = scene.prompt("Continue.");
            collect(scene.start(next, options, true).await?).await
        }
        Play::Conversation => {
            let session = scene.session(request.clone()).await?;
            let first = collect(session.prompt(request.prompt.clone()).await?).await;
            if first.outcome.error.is_some() {
                session.close().await;
                return Ok(observed(scene, 0, first));
            }
            before = scene.log().len();
            let second = collect(session.prompt(scene.prompt("Continue.")).await?).await;
            session.close().await;
            second
        }
    };
    Ok(observed(scene, before, collected))
}

/// Returns what was observed, with the requests of the last run: those after the first `before`.
fn observed(scene: &Scene, before: usize, collected: Collected) -> Observed {
    let ended_at = Instant::now();
    let first = scene.bench.scripts.first(&scene.mark);
    Observed {
        records: collected.records,
        outcome: collected.outcome,
        log: scene.log().split_off(before),
        after_request: first.map(|first| ended_at.duration_since(first)),
    }
}

/// Reads a run to its end, and does something to it as soon as a condition holds.
async fn interrupt(run: Run, holds: impl Fn() -> bool, act: impl FnOnce()) -> Collected {
    let reader = tokio::spawn(collect(run));
    until(|| holds() || reader.is_finished()).await;
    act();
    match reader.await {
        Ok(collected) => collected,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn until(condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() && started_at.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns whether a failure only says that the program is missing, so that nothing was tested.
pub(crate) fn is_missing(observed: &Observed) -> bool {
    observed.outcome.error.as_ref().is_some_and(|error| error.kind == FailureKind::NotInstalled)
}
