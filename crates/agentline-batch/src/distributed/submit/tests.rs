//! Tests of the submitter with a queue in a file, and workers that the tests play.

mod results;

use super::*;
use crate::class::Class;
use crate::distributed::budget;
use crate::distributed::spec::{EXPERIMENTS, JobPayload};
use crate::execute::BatchSummary;
use crate::suite::{SuiteInput, load};
use agentline::{FailureKind, HostEnv, Signal};
use agentline_queue::{JobCounts, JobRoute, Lease, SqliteQueue};
use std::path::PathBuf;

/// A lease that ends during a test.
const SHORT: Duration = Duration::from_secs(1);

struct SubmitStage {
    dir: tempfile::TempDir,
    queue: Arc<SqliteQueue>,
}

/// A submitter in the background.
struct RunningSubmitter {
    stop: watch::Sender<BatchShutdown>,
    events: mpsc::UnboundedReceiver<BatchEvent>,
    task: tokio::task::JoinHandle<Result<BatchSummary, DistributedError>>,
}

impl RunningSubmitter {
    /// Stops the submitter, and returns its summary.
    async fn stop(self) -> BatchSummary {
        self.stop.send(BatchShutdown::Graceful(Signal::Interrupt)).expect("a submitter");
        self.task.await.expect("a task").expect("a summary")
    }

    /// Waits for the next result.
    async fn result(&mut self) -> RunResult {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(120), self.events.recv()).await;
            if let BatchEvent::RunEnded { result: Some(result), .. } =
                event.expect("in time").expect("an event")
            {
                return *result;
            }
        }
    }
}

impl SubmitStage {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let queue = SqliteQueue::open(&dir.path().join("queue.db")).await.expect("a queue");
        Self { dir, queue: Arc::new(queue) }
    }

    /// Submits a suite with these cases, which cannot be repeated.
    fn submit(&self, cases: &[&str]) -> RunningSubmitter {
        self.submit_with(cases, "", SubmitOptions::default())
    }

    fn submit_with(&self, cases: &[&str], more: &str, options: SubmitOptions) -> RunningSubmitter {
        let cases: Vec<String> = cases.iter().map(|id| format!("{{id: {id}, prompt: do {id}}}")).collect();
        let text = format!("name: s\nrepeatable: false\n{more}\ncases: [{}]\n", cases.join(", "));
        let base = self.dir.path().to_owned();
        let input = SuiteInput::Text { name: "suite.yaml".into(), text, base: base.clone() };
        let suite = load(&input, &serde_json::Map::new()).expect("a suite");
        let agentline = Agentline::new(HostEnv::new([].into(), &base, &base));
        let experiment = Experiment::open(&self.results()).expect("an experiment");
        let (stop, stopped) = watch::channel(BatchShutdown::None);
        let (send, events) = mpsc::unbounded_channel();
        let queue = self.queue.clone();
        let task = tokio::spawn(async move {
            run_on_queue(&agentline, suite, experiment, queue, options, stopped, send).await
        });
        RunningSubmitter { stop, events, task }
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results")
    }

    /// Returns the submitted experiments, the oldest first.
    async fn experiments(&self) -> Vec<(String, ExperimentRecord)> {
        let mut found = Vec::new();
        for record in self.queue.records(EXPERIMENTS).await.expect("records") {
            let (id, record) =
                control::parse(&record).map(|(id, record)| (id.to_owned(), record)).expect("a record");
            found.push((id, record));
        }
        found.sort_by_key(|(_, record)| record.submitted_ms);
        found
    }

    /// Waits until there are this many experiments, and returns the last.
    async fn experiment(&self, number: usize) -> (String, ExperimentRecord) {
        for _ in 0..2400 {
            let mut found = self.experiments().await;
            if found.len() == number {
                return found.remove(number - 1);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited for {number} experiments");
    }

    async fn claim(&self, id: &str, record: &ExperimentRecord, lease: Duration) -> Lease {
        let routes: Vec<JobRoute> = record
            .routes
            .keys()
            .map(|route| JobRoute { experiment: id.to_owned(), route: route.clone() })
            .collect();
        self.queue.claim(&routes, lease).await.expect("an answer").expect("a job")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_run_with_effects_is_not_submitted_again_with_a_changed_suite() {
    let stage = SubmitStage::new().await;
    let first = stage.submit(&["a", "b"]);
    let (id, record) = stage.experiment(1).await;
    // This worker disappears.
    stage.claim(&id, &record, SHORT).await;
    assert_eq!(first.stop().await.remaining, 2);

    let mut second = stage.submit(&["a", "b", "c"]);
    let interrupted = second.result().await;
    assert_eq!((interrupted.case.as_str(), interrupted.kind), ("a", Some(FailureKind::Interrupted)));
    assert_eq!(interrupted.class, Class::Infrastructure);
    let (new, _) = stage.experiment(2).await;
    assert_ne!(new, id);
    assert_eq!(second.stop().await.remaining, 2);
    let counts = stage.queue.counts(&new).await.expect("counts");
    assert_eq!(counts, JobCounts { waiting: 2, claimed: 0, finished: 0 });
    // The jobs of the old experiment were given back.
    assert_eq!(stage.queue.counts(&id).await.expect("counts").waiting, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_of_a_cancelled_experiment_that_comes_late_is_imported() {
    let stage = SubmitStage::new().await;
    let mut first = stage.submit(&["a"]);
    let (id, record) = stage.experiment(1).await;
    let lease = stage.claim(&id, &record, Duration::from_secs(300)).await;
    control::set_state(&*stage.queue, &id, ExperimentState::Cancelled).await.expect("a cancelled experiment");
    while first.events.recv().await.is_some() {}
    let mut second = stage.submit(&["a"]);
    let late = RunResult { turns: 7, ..RunResult::broken(&lease.job, 1, "stopped".into()) };
    let late = JobResult { result: late, files: None, tries: Vec::new(), claims: 1, worker: "w".into() };
    let late = serde_json::to_vec(&late).expect("JSON");
    // The submitter waits for the claim.
    tokio::time::sleep(SHORT).await;
    stage.queue.commit(&lease, &late).await.expect("a commit");
    assert_eq!(second.result().await.turns, 7);
    let summary = second.task.await.expect("a task").expect("a summary");
    assert_eq!(summary.remaining, 0);
    assert_eq!(stage.experiments().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_experiment_keeps_the_artifacts_of_its_suite_and_results_only() {
    let stage = SubmitStage::new().await;
    let mut submitter = stage.submit(&["a"]);
    let (id, record) = stage.experiment(1).await;
    let artifacts = stage.queue.artifacts();
    let files = stage.dir.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("outcome.json"), "{}").expect("a file");
    let files = upload_tree(&*artifacts, &id, &files, TreeLimits::default()).await.expect("a tree");
    let orphan = artifacts.put(&id, b"left by a lost worker").await.expect("an artifact");
    let lease = stage.claim(&id, &record, Duration::from_secs(300)).await;
    let result = RunResult::broken(&lease.job, 1, "stopped".into());
    let mut needed = [files.pieces.clone(), record.suite.pieces].concat();
    let result = JobResult { result, files: Some(files), tries: Vec::new(), claims: 1, worker: "w".into() };
    stage.queue.commit(&lease, &serde_json::to_vec(&result).expect("JSON")).await.expect("a commit");
    submitter.result().await;
    assert_eq!(submitter.task.await.expect("a task").expect("a summary").remaining, 0);
    let mut kept = artifacts.names(&id).await.expect("names");
    needed.sort();
    kept.sort();
    assert_eq!(kept, needed);
    assert!(!kept.contains(&orphan));
}

#[tokio::test(flavor = "multi_thread")]
async fn result_that_cannot_be_read_is_an_infrastructure_failure() {
    let stage = SubmitStage::new().await;
    let mut submitter = stage.submit(&["a"]);
    let (id, record) = stage.experiment(1).await;
    let lease = stage.claim(&id, &record, SHORT * 100).await;
    stage.queue.commit(&lease, br#"{"format": "of the future"}"#).await.expect("a commit");
    let result = submitter.result().await;
    assert_eq!((result.case.as_str(), result.class), ("a", Class::Infrastructure));
    assert!(result.message.expect("a message").starts_with("the result of the run cannot be read"));
    assert_eq!(submitter.task.await.expect("a task").expect("a summary").remaining, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_of_results_reach_no_path() {
    let stage = SubmitStage::new().await;
    let submitter = stage.submit(&["a"]);
    let (id, record) = stage.experiment(1).await;
    let lease = stage.claim(&id, &record, SHORT * 100).await;
    submitter.stop().await;
    let result = JobResult {
        result: RunResult::broken("x", 1, "hostile".into()),
        files: None,
        tries: Vec::new(),
        claims: 1,
        worker: "w".into(),
    };
    let result = serde_json::to_vec(&result).expect("JSON");
    stage.queue.commit(&lease, &result).await.expect("a commit");
    let database = rusqlite::Connection::open(stage.dir.path().join("queue.db")).expect("the database");
    let renamed =
        database.execute("UPDATE results SET name = '../../../target/x'", []).expect("a hostile name");
    assert_eq!(renamed, 1);
    let target = stage.dir.path().join("target/x");
    std::fs::create_dir_all(&target).expect("a directory");
    std::fs::write(target.join("1"), "precious").expect("a file");
    let report = stage.dir.path().join("report");
    fetch_results(&*stage.queue, &id, &report).await.expect("a report without the result");
    assert_eq!(std::fs::read(target.join("1")).expect("the file"), b"precious");
    // The directory of results refuses such a key, whoever asks.
    let experiment = Experiment::open(&report).expect("an experiment");
    experiment.begin_try("../../../target/x", 1).expect_err("not a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_submission_is_removed_when_the_suite_changes() {
    let stage = SubmitStage::new().await;
    let experiment = Experiment::open(&stage.results()).expect("an experiment");
    let known = StoredSubmission {
        id: "s-old".into(),
        digest: "other".into(),
        is_complete: false,
        cursor: Cursor::default(),
    };
    known.store(&experiment).expect("a submission");
    drop(experiment);
    stage.queue.artifacts().put("s-old", b"case").await.expect("an artifact");
    let job = agentline_queue::Job { id: "j".into(), route: "r".into(), payload: Vec::new() };
    stage.queue.enqueue("s-old", &[job]).await.expect("a job");
    let submitter = stage.submit(&["a"]);
    stage.experiment(1).await;
    submitter.stop().await;
    assert_eq!(stage.queue.counts("s-old").await.expect("counts"), JobCounts::default());
    assert!(stage.queue.artifacts().names("s-old").await.expect("names").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_the_submission_and_the_next_start_submits() {
    let stage = SubmitStage::new().await;
    let submitter = stage.submit(&["a"]);
    // The signal may come before, during or after the submission.
    let summary = submitter.stop().await;
    assert!(summary.stopped_by.is_some() && summary.remaining == 1);
    let submitter = stage.submit(&["a"]);
    let (id, _) = stage.experiment(1).await;
    assert_eq!(stage.queue.counts(&id).await.expect("counts").waiting, 1);
    submitter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_limit_ends_a_batch_whose_worker_died_with_a_reservation() {
    let stage = SubmitStage::new().await;
    let mut submitter = stage.submit_with(&["a", "b"], "limits: {cost: 1.0}", SubmitOptions::default());
    let (id, record) = stage.experiment(1).await;
    // The first worker disappears, and what others have spent reaches the limit.
    let lost = stage.claim(&id, &record, SHORT).await;
    let lease = stage.claim(&id, &record, Duration::from_secs(300)).await;
    let change = |budget: &mut budget::Budget| {
        budget.spent = 1_000_000;
        budget.reserve(None, &lost.job, lost.claims, Some(300_000));
        budget.reserve(None, &lease.job, lease.claims, Some(300_000));
    };
    budget::update(&*stage.queue, &id, change).await.expect("reservations");
    let done =
        RunResult { turns: 1, cost_usd: Some(0.25), ..RunResult::broken(&lease.job, 1, "done".into()) };
    let tries = vec![("retried".to_owned(), Some(0.5))];
    let done = JobResult { result: done, files: None, tries, claims: 1, worker: "w".into() };
    stage.queue.commit(&lease, &serde_json::to_vec(&done).expect("JSON")).await.expect("a commit");
    submitter.result().await;
    let ended = tokio::time::timeout(Duration::from_secs(120), submitter.task).await.expect("an end");
    let summary = ended.expect("a task").expect("a summary");
    assert_eq!((summary.limit, summary.remaining), (Some(BatchLimitReached::Cost), 1));
    let (budget, _) = budget::read(&*stage.queue, &id).await.expect("a budget");
    // The reservation of the lost run counts in full; the other worker did not settle its run, which had two tries.
    assert_eq!((budget.reserved.len(), budget.spent), (0, 1_000_000 + 300_000 + 250_000 + 500_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_name_settings_that_may_allow_more_than_a_mode() {
    let stage = SubmitStage::new().await;
    let submitter = stage.submit_with(&["a"], "defaults: {allow: [Bash]}", SubmitOptions::default());
    let (_, record) = stage.experiment(1).await;
    assert!(record.routes.values().all(|route| route.is_beyond_modes), "{record:?}");
    submitter.stop().await;
    let submitter = stage.submit(&["a"]);
    let (_, record) = stage.experiment(2).await;
    assert!(record.routes.values().all(|route| !route.is_beyond_modes), "{record:?}");
    submitter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_with_reordered_cases_attaches_to_its_experiment() {
    let stage = SubmitStage::new().await;
    let submitter = stage.submit(&["a", "b", "c"]);
    let (id, record) = stage.experiment(1).await;
    submitter.stop().await;
    let mut submitter = stage.submit(&["c", "a", "b"]);
    let lease = stage.claim(&id, &record, SHORT * 100).await;
    let done = RunResult { turns: 7, ..RunResult::broken(&lease.job, 1, "done".into()) };
    let done = JobResult { result: done, files: None, tries: Vec::new(), claims: 1, worker: "w".into() };
    stage.queue.commit(&lease, &serde_json::to_vec(&done).expect("JSON")).await.expect("a commit");
    // Its result arrives at the case of the reordered suite.
    let result = submitter.result().await;
    assert_eq!((result.case.as_str(), result.turns), ("a", 7));
    assert_eq!(submitter.stop().await.remaining, 2);
    assert_eq!(stage.experiments().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_claims_is_another_submission() {
    let stage = SubmitStage::new().await;
    let submitter = stage.submit(&["a"]);
    stage.experiment(1).await;
    submitter.stop().await;
    let options = SubmitOptions { max_claims: 7, ..SubmitOptions::default() };
    let submitter = stage.submit_with(&["a"], "", options);
    assert_eq!(stage.experiment(2).await.1.max_claims, 7);
    submitter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_cases_are_in_several_artifacts_and_one_that_is_too_large_is_named() {
    let stage = SubmitStage::new().await;
    let prompt = "x".repeat(3 << 20);
    let cases = ["a", "b", "c", "d"].map(|id| format!("- {{id: {id}, prompt: {prompt}}}\n"));
    let packs = submit_text(&stage, &cases.concat()).await.expect("jobs");
    assert_eq!(packs.len(), 4);
    assert!(packs[0] == packs[1] && packs[1] != packs[2] && packs[2] == packs[3], "{packs:?}");
    let huge = format!("- {{id: small, prompt: x}}\n- {{id: huge, prompt: {}}}\n", "x".repeat(9 << 20));
    let error = submit_text(&stage, &huge).await.expect_err("a refusal").to_string();
    assert!(error.contains("the case `huge` has"), "{error}");
    assert!(!error.contains("small"), "{error}");
}

/// Stores the cases of a suite, and returns the names of the artifacts of its jobs.
async fn submit_text(stage: &SubmitStage, cases: &str) -> Result<Vec<String>, DistributedError> {
    let base = stage.dir.path().to_owned();
    let text = format!("name: s\ncases:\n{cases}");
    let input = SuiteInput::Text { name: "suite.yaml".into(), text, base: base.clone() };
    let suite = load(&input, &serde_json::Map::new()).expect("a suite");
    let agentline = Agentline::new(HostEnv::new([].into(), &base, &base));
    let requests = requests(&agentline, &suite).expect("requests");
    let runs: Vec<_> = suite.runs().collect();
    let artifacts = stage.queue.artifacts();
    let package = package(&*artifacts, "e", &suite, &requests, runs.iter().copied(), &base).await?;
    let payload = |run: &RunIndex| {
        let job = package.job(*run, format!("key-{}", run.case), None);
        serde_json::from_slice(&job.payload).expect("a payload")
    };
    let payloads: Vec<JobPayload> = runs.iter().map(payload).collect();
    assert!(payloads.iter().all(|payload| payload.case < 2), "{payloads:?}");
    Ok(payloads.into_iter().map(|payload| payload.pack).collect())
}
