//! One run of a batch, with all its tries.

mod judge;
mod row;

use super::checking::evaluate;
use super::commands::{self, FilesBy};
use super::host_failure::{OomKills, is_full, is_no_space};
use super::lane::{FilledWorkspace, Lane};
use super::requests::RequestTable;
use super::run_files::{add_unreported, store_changes, store_ignored, store_messages, store_outcome};
use super::{BatchEvent, BatchShutdown, Shared, now_ms};
use crate::check::{Check, ToolCount};
use crate::class::{Class, Classification};
use crate::result::{MESSAGES, RunResult, TAPE};
use crate::store::{CANCELLED, StoreError, TryCost};
use crate::suite::{RunIndex, Suite, TestCase};
use agentline::admission::AttemptResult;
use agentline::isolate::{IsolationMethod, WorkspaceCopy};
use agentline::request::Trust;
use agentline::saved::Transcript;
use agentline::{Agentline, Event, Outcome, RunOptions, RunRequest, Signal, Verdict};
use agentline_core::{Redactor, error_chain, looks_secret};
use judge::Judged;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time that `setup` and `teardown` may take.
const COMMAND_TIME: Duration = Duration::from_secs(600);

/// The time that a command of `teardown` may still take after the runs in progress were cancelled.
const TEARDOWN_GRACE: Duration = Duration::from_secs(10);

/// How a run of a batch ended.
pub(crate) enum Ended {
    /// With a result, to be committed.
    Result(Box<RunResult>),
    /// It was stopped; it is executed again when the batch is resumed.
    NotCommitted,
    /// The experiment cannot be written.
    Store(StoreError),
}

/// What a run does.
#[derive(Clone)]
pub(crate) struct RunSpec {
    pub(crate) suite: Arc<Suite>,
    pub(crate) run: RunIndex,
    /// The key of its result.
    pub(crate) key: String,
    /// The requests of the run and its judges.
    pub(crate) requests: Arc<RequestTable>,
    /// Tells the run to stop.
    pub(crate) stop: watch::Receiver<BatchShutdown>,
    /// How often the run is executed again after an infrastructure failure that a retry can cure.
    pub(crate) retries: u32,
}

/// One run of a batch.
pub(crate) struct Attempt {
    shared: Arc<Shared>,
    suite: Arc<Suite>,
    run: RunIndex,
    key: String,
    requests: Arc<RequestTable>,
    stop: watch::Receiver<BatchShutdown>,
    retries: u32,
}

/// A try that reached its end.
struct Tried {
    outcome: Outcome,
    tools: Vec<ToolCount>,
    workspace: FilledWorkspace,
    /// Whether the hidden files were out of the agent's reach; absent without hidden files.
    hidden_covered: Option<bool>,
    /// How many processes the system had killed for lack of memory when the try began.
    oom_kills: OomKills,
    /// The changed files that the template makes Git ignore.
    ignored: Vec<String>,
}

impl Attempt {
    pub(crate) fn new(shared: Arc<Shared>, spec: RunSpec) -> Self {
        let RunSpec { suite, run, key, requests, stop, retries } = spec;
        Self { shared, suite, run, key, requests, stop, retries }
    }

    fn case(&self) -> &TestCase {
        &self.suite.cases[self.run.case]
    }

    /// Returns the handle and the request of the run.
    fn request(&self) -> Option<&(Agentline, RunRequest)> {
        self.requests.get(&self.case().settings[self.run.variant])
    }

    /// Executes the run, and again after infrastructure failures that a retry can cure.
    pub(crate) async fn execute(self) -> Ended {
        let shared = Arc::clone(&self.shared);
        let lane = shared.lanes.take();
        let mut left: Option<Duration> = None;
        for retry in 0.. {
            let begun = shared.experiment().begin_try(&self.key, now_ms());
            let (number, dir) = match begun {
                Ok(begun) => begun,
                Err(error) => return Ended::Store(error),
            };
            let permit = tokio::select! {
                permit = shared.admission.acquire() => permit,
                () = self.stopped_now() => return Ended::NotCommitted,
            };
            let began = Instant::now();
            let tried = match self.attempt(&lane, number, &dir, left).await {
                Ok(tried) => tried,
                Err(_) if self.is_stopped_now() => return Ended::NotCommitted,
                Err(message) => {
                    drop(permit);
                    return Ended::Result(Box::new(self.broken(number, message)));
                }
            };
            let outcome = &tried.outcome;
            let answer = match outcome.verdict {
                Verdict::RateLimited => AttemptResult::Refused,
                Verdict::Done | Verdict::DoneWithDenials => AttemptResult::Answered,
                _ => AttemptResult::Unknown,
            };
            let error = outcome.error.as_ref();
            let asked = error.and_then(|error| error.retry_after_ms).map(Duration::from_millis);
            let mut wait = shared.admission.record_result(answer, retry, asked);
            drop(permit);
            let classification = self.suite.classes.classify(outcome);
            if classification == Classification::NotCommitted {
                let ended = self.end_try(number, CANCELLED, outcome);
                self.tear_down(&lane, &tried.workspace.path).await;
                return ended.err().map_or(Ended::NotCommitted, Ended::Store);
            }
            let is_curable = classification == Classification::Fixed(Class::Infrastructure)
                && error.is_some_and(|error| error.retryable)
                && retry < self.retries
                && shared.totals().reached().is_none()
                // A shared workspace keeps what the failed try did to it.
                && (!self.suite.shares_workspace || outcome.files.is_empty())
                // The failed try may have had effects elsewhere.
                && self.case().is_repeatable(self.run.variant);
            let timeout = left.unwrap_or_else(|| self.timeout());
            let after = timeout.saturating_sub(began.elapsed());
            if wait.is_zero() {
                wait = Duration::from_millis(500 << retry.min(6));
            }
            if is_curable && wait < after {
                let message = error.map_or_else(String::new, |error| error.message.clone());
                if let Err(error) = self.end_try(number, "retried", outcome) {
                    return Ended::Store(error);
                }
                let _ = shared.events.send(BatchEvent::Retried { run: self.run, message });
                self.tear_down(&lane, &tried.workspace.path).await;
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.stopped() => return Ended::NotCommitted,
                }
                left = Some(after - wait);
                continue;
            }
            return self.finish(&lane, number, &dir, tried, classification).await;
        }
        Ended::NotCommitted
    }

    /// Records a try that is no result. What it used counts.
    fn end_try(&self, number: u32, ending: &str, outcome: &Outcome) -> Result<(), StoreError> {
        self.shared.totals().add_try(outcome.cost_usd, outcome.usage.tokens.total);
        let cost = TryCost::of_agent(outcome.cost_usd);
        self.shared.experiment().end_try(&self.key, number, ending, cost, now_ms())
    }

    /// Returns the redactors of the user's secrets and of those in the settings of the run.
    fn redactors(&self) -> [Redactor; 2] {
        let request = self.request().map(|(_, request)| request);
        let secrets = request.into_iter().flat_map(|request| {
            let named = request.env.iter().filter(|(name, _)| looks_secret(name)).map(|(_, value)| value);
            named.chain(&request.api_key)
        });
        [self.shared.redactor.clone(), Redactor::new(secrets)]
    }

    fn timeout(&self) -> Duration {
        self.request().map_or(Duration::ZERO, |(_, request)| request.timeout)
    }

    /// Returns whether the runs in progress are to be cancelled.
    fn is_stopped_now(&self) -> bool {
        matches!(*self.stop.borrow(), BatchShutdown::Immediate(_))
    }

    /// Waits until the runs in progress are to be cancelled.
    async fn stopped_now(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| matches!(stop, BatchShutdown::Immediate(_))).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether the agent is to be killed.
    fn is_killed(&self) -> bool {
        *self.stop.borrow() == BatchShutdown::Immediate(Signal::Kill)
    }

    /// Waits until the agent is to be killed.
    async fn killed(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| *stop == BatchShutdown::Immediate(Signal::Kill)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the agent is to get a signal after the one that was sent: an interrupt first, or else a kill.
    async fn cancelled(&self, sent: Option<Signal>) -> Signal {
        match sent {
            None => self.stopped_now().await,
            Some(Signal::Kill) => std::future::pending().await,
            Some(_) => self.killed().await,
        }
        if self.is_killed() { Signal::Kill } else { Signal::Interrupt }
    }

    /// Waits until no further tries are to be started.
    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| *stop != BatchShutdown::None).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Prepares the workspace and runs the agent once.
    ///
    /// # Errors
    /// Returns what prevented the run, which says nothing about the agent.
    async fn attempt(
        &self,
        lane: &Lane<'_>,
        number: u32,
        dir: &Path,
        left: Option<Duration>,
    ) -> Result<Tried, String> {
        let case = self.case();
        let oom_kills = OomKills::now();
        let shares = self.suite.shares_workspace;
        let (agentline, template) =
            self.request().ok_or_else(|| "the settings of the run are missing".to_owned())?;
        // The agent reads the settings of a trusted workspace when it starts, so it must start in it.
        let starts_inside = template.trust == Trust::Full;
        let mut workspace = match (&case.workspace, shares) {
            (Some(crate::suite::WorkspaceSource::Directory(path)), true) => {
                FilledWorkspace { path: path.clone(), copy: None, template: None, method: None }
            }
            (source, _) => tokio::task::block_in_place(|| {
                lane.fill(source.as_ref(), !case.hidden.is_empty(), starts_inside)
            })
            .map_err(|error| format!("the workspace cannot be prepared: {error}"))?,
        };
        if case.workspace.is_none() && workspace.copy.is_none() {
            // Whatever is in an empty workspace afterwards is the run's work.
            let empty = dir.join("empty");
            let copy = tokio::task::block_in_place(|| {
                WorkspaceCopy::existing(&empty, &workspace.path).with_ignored()
            });
            workspace.copy =
                Some(copy.map_err(|error| format!("the workspace cannot be prepared: {error}"))?);
        }
        let begun = self.shared.experiment().begin_effects(&self.key, number, now_ms());
        begun.map_err(|error| error_chain(&error))?;
        for line in &case.setup {
            if let Err(reason) =
                self.command(lane, line, &workspace.path, Duration::ZERO, FilesBy::Suite).await
            {
                self.tear_down(lane, &workspace.path).await;
                return Err(format!("the setup command `{line}` failed: {reason}"));
            }
        }
        if let Some(copy) = workspace.copy.as_mut().filter(|_| !case.setup.is_empty()) {
            tokio::task::block_in_place(|| copy.note_prepared());
        }
        let mut request: RunRequest = template.clone();
        request.prompt.clone_from(&case.prompts[self.run.variant]);
        request.working_dir = Some(workspace.path.clone());
        request.name = Some(case.id.clone());
        request.diffs = true;
        request.timeout = left.unwrap_or(request.timeout);
        // Repeats are different runs, even if the result of an identical one may be reused.
        request.cache.attempt = self.run.attempt;
        // The path of a lane is another one in each batch.
        request.cache.any_path = workspace.copy.is_some();
        let is_overlay = workspace.method == Some(IsolationMethod::Overlay);
        let started = if is_overlay && starts_inside {
            // A run that records a tape has no result in the cache.
            request.record = (!request.cache.on).then(|| dir.join(TAPE));
            agentline.run(request).await
        } else {
            self.shared.pool.run_as(agentline, request, RunOptions::default()).await
        };
        let mut run = match started {
            Ok(run) => run,
            Err(error) => {
                self.tear_down(lane, &workspace.path).await;
                return Err(error_chain(&error));
            }
        };
        let canceller = run.canceller();
        let mut log = File::create(dir.join("events.jsonl")).ok().map(BufWriter::new);
        let mut transcript = Transcript::started_at(now_ms());
        let mut tools: Vec<ToolCount> = Vec::new();
        let mut outcome = None;
        let mut hidden_covered = None;
        let mut sent: Option<Signal> = None;
        loop {
            let record = tokio::select! {
                record = run.next() => record,
                signal = self.cancelled(sent) => {
                    sent = Some(signal);
                    canceller.cancel_with(signal);
                    continue;
                }
            };
            let Some(record) = record else { break };
            // A cold agent is gone when its run ends.
            if !case.hidden.is_empty() && hidden_covered.is_none() {
                hidden_covered = tokio::task::block_in_place(|| lane.is_covered(case, &workspace));
            }
            transcript.take(&record);
            if let (Some(log), Ok(line)) = (&mut log, serde_json::to_string(&record)) {
                let _ = writeln!(log, "{line}");
            }
            match record.event {
                Event::ToolUse(tool) => count(&mut tools, &tool.native_name, &tool.name),
                Event::Outcome { outcome: ended } => outcome = Some(*ended),
                _ => {}
            }
        }
        let (agent, prompt) = (&*template.agent, &*case.prompts[self.run.variant]);
        store_messages(&dir.join(MESSAGES), agent, prompt, transcript);
        let outcome = outcome.ok_or_else(|| "the run ended without an outcome".to_owned())?;
        let hidden_covered = (!case.hidden.is_empty()).then_some(hidden_covered.unwrap_or(false));
        Ok(Tried { outcome, tools, workspace, hidden_covered, oom_kills, ignored: Vec::new() })
    }

    /// Checks the outcome and stores what the run left.
    async fn finish(
        &self,
        lane: &Lane<'_>,
        number: u32,
        dir: &Path,
        mut tried: Tried,
        classification: Classification,
    ) -> Ended {
        let case = self.case();
        tokio::task::block_in_place(|| {
            let _ = lane.settle(&tried.workspace.path);
            if let Some(copy) = &tried.workspace.copy {
                add_unreported(copy, &mut tried.outcome.files);
                tried.ignored = store_ignored(copy, dir);
            }
        });
        let changes = tried.workspace.copy.as_ref().map(|copy| {
            let warnings = &mut tried.outcome.warnings;
            tokio::task::block_in_place(|| store_changes(copy, dir, &self.redactors(), warnings))
        });
        let outcome = &tried.outcome;
        let mut result = self.row(number, outcome);
        result.tools.clone_from(&tried.tools);
        let (workspace, method) = (&tried.workspace.path, tried.workspace.method);
        result.isolation = method.map_or("none", IsolationMethod::name).into();
        result.hidden_covered = tried.hidden_covered;
        let mut stored = store_outcome(outcome, dir);
        match changes {
            Some(Ok(ignored_left_out)) => result.not_stored = ignored_left_out,
            Some(Err(error)) => {
                result.not_stored = Some(error.to_string());
                stored = stored.and(Err(error));
            }
            None => {}
        }
        let must_check = match classification {
            Classification::ByChecks => true,
            Classification::FailedUnlessExpected => case.checks.iter().any(Check::is_verdict),
            _ => false,
        };
        if must_check {
            let checked = tokio::select! {
                checked = self.check(lane, &tried, &mut result) => checked,
                () = self.stopped_now() => {
                    let ended = self.end_try(number, CANCELLED, outcome);
                    self.tear_down(lane, workspace).await;
                    return ended.err().map_or(Ended::NotCommitted, Ended::Store);
                }
            };
            match checked {
                Ok(passed) => result.class = if passed { Class::Passed } else { Class::Failed },
                Err(message) => {
                    result.class = Class::Infrastructure;
                    result.message = Some(message);
                }
            }
        } else if let Classification::Fixed(class) = classification {
            result.class = class;
        }
        if let Some(message) = self.host_failure(&result, &tried, classification, stored.err().as_ref()) {
            result.class = Class::Infrastructure;
            result.message = Some(message);
        }
        let is_kept = self.shared.options.keep_failed && tried.workspace.copy.is_some();
        if result.class != Class::Passed && is_kept {
            let _ = tokio::task::block_in_place(|| lane.keep(&tried.workspace, &dir.join("workspace")));
        }
        self.tear_down(lane, workspace).await;
        tokio::task::block_in_place(|| lane.end_run());
        result.finished_ms = now_ms();
        Ended::Result(Box::new(result))
    }

    /// Returns why a run that failed says nothing about the agent: the machine had no memory or disk space left.
    fn host_failure(
        &self,
        result: &RunResult,
        tried: &Tried,
        classification: Classification,
        stored: Option<&std::io::Error>,
    ) -> Option<String> {
        if stored.is_some_and(is_no_space) {
            return Some("the disk is full: the files of the run cannot be stored".into());
        }
        // A row of the suite's own table is not overridden.
        if result.class != Class::Failed || matches!(classification, Classification::Fixed(_)) {
            return None;
        }
        if tried.oom_kills.explain(result.kind, OomKills::now()) {
            return Some("the system killed a process for lack of memory, and the agent crashed".into());
        }
        let experiment = self.shared.experiment().dir().to_owned();
        let dirs = [experiment, std::env::temp_dir()];
        let full = dirs.iter().find(|dir| tokio::task::block_in_place(|| is_full(dir)))?;
        Some(format!("the disk is full: nothing more fits into `{}`", full.display()))
    }

    /// Runs a command of the suite. After the runs in progress were cancelled, it ends when `grace` has passed.
    async fn command(
        &self,
        lane: &Lane<'_>,
        line: &str,
        dir: &Path,
        grace: Duration,
        files: FilesBy,
    ) -> Result<(), String> {
        let stopped = async {
            self.stopped_now().await;
            tokio::select! {
                () = tokio::time::sleep(grace) => {}
                () = self.killed() => {}
            }
        };
        tokio::select! {
            ended = commands::run(line, dir, COMMAND_TIME, files, lane.kill_deadline()) => ended.into_result(),
            () = stopped => Err("the batch was stopped".to_owned()),
        }
    }

    /// Runs the commands of `teardown` in the workspace of the agent, unless its time is over.
    async fn tear_down(&self, lane: &Lane<'_>, workspace: &Path) {
        let lines = &self.case().teardown;
        if lines.is_empty()
            || self.is_killed()
            || tokio::task::block_in_place(|| lane.for_teardown(workspace)).is_err()
        {
            return;
        }
        for line in lines {
            let _ = self.command(lane, line, workspace, TEARDOWN_GRACE, FilesBy::Agent).await;
        }
    }

    /// Evaluates the checks, and returns whether all passed.
    ///
    /// # Errors
    /// Returns why a check could not be evaluated.
    async fn check(&self, lane: &Lane<'_>, tried: &Tried, result: &mut RunResult) -> Result<bool, String> {
        let mut judged = Judged { attempt: self, lane, outcome: &tried.outcome, cost_usd: None };
        let Tried { workspace, outcome, tools, ignored, .. } = tried;
        let rows = evaluate(self.case(), lane, workspace, outcome, tools, ignored, &mut judged).await;
        result.judge_cost_usd = judged.cost_usd;
        result.checks = rows?;
        Ok(result.checks.iter().all(|row| row.passed))
    }
}

fn count(tools: &mut Vec<ToolCount>, name: &str, canonical: &str) {
    match tools.iter_mut().find(|tool| tool.name == name) {
        Some(tool) => tool.calls += 1,
        None => tools.push(ToolCount { name: name.into(), canonical: canonical.into(), calls: 1 }),
    }
}
