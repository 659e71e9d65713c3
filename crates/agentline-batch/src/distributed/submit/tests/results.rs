//! Tests of what the submitter stores in a queue for reports, and of how results are imported.

use super::*;
use crate::distributed::submit::import::Importer;
use agentline_queue::{ArtifactFuture, ArtifactVisitor, Artifacts, DirectoryArtifacts, download_tree};
use std::sync::atomic::{AtomicBool, Ordering};

/// Artifacts of which one cannot be read at first.
#[derive(Debug)]
struct FailingArtifacts(DirectoryArtifacts, AtomicBool);

impl Artifacts for FailingArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        self.0.put(experiment, content)
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        if self.1.swap(false, Ordering::Relaxed) {
            return Box::pin(async { Err(QueueError::Unavailable("no answer".into())) });
        }
        self.0.get(experiment, name)
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        self.0.has(experiment, name)
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        self.0.for_each_name(experiment, visit)
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        self.0.remove(experiment, name)
    }
}

#[tokio::test]
async fn import_that_is_repeated_stores_tries_and_costs_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = DirectoryArtifacts::new(&dir.path().join("store")).expect("a store");
    let artifacts = FailingArtifacts(store, AtomicBool::new(true));
    let left = dir.path().join("left");
    std::fs::create_dir(&left).expect("a directory");
    std::fs::write(left.join("outcome.json"), "{}").expect("a file");
    let files = upload_tree(&artifacts, "e", &left, TreeLimits::default()).await.expect("a tree");
    let experiment = Mutex::new(Experiment::open(&dir.path().join("results")).expect("an experiment"));
    let result = RunResult { cost_usd: Some(1.0), ..RunResult::broken("00", 1, "done".into()) };
    let tries = vec![("retried".to_owned(), Some(0.25))];
    let stored = JobResult { result, files: Some(files), tries, claims: 1, worker: "w".into() };
    let importer = Importer { artifacts: &artifacts, id: "e", experiment: &experiment };
    let import = || importer.import("00", ("a", "default", 0), stored.clone());
    let error = import().await.expect_err("no answer");
    assert!(matches!(error, DistributedError::Queue(QueueError::Unavailable(_))), "{error}");
    let imported = import().await.expect("a result");
    let experiment = experiment.into_inner().expect("an experiment");
    experiment.commit_imported(&imported, false).expect("a commit");
    assert_eq!((experiment.last_try("00").expect("tries"), imported.result.tries), (2, 2));
    assert_eq!(experiment.costs().expect("costs")["00"].agent_usd, Some(1.25));
    assert!(experiment.dir().join(&imported.result.dir).join("outcome.json").is_file());
    assert!(!experiment.dir().join("received").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_has_only_the_values_that_reports_need() {
    let stage = SubmitStage::new().await;
    let experiment = Experiment::open(&stage.results()).expect("an experiment");
    experiment.set_meta("private", "of this machine").expect("a value");
    drop(experiment);
    let submitter = stage.submit(&["a"]);
    let (id, record) = stage.experiment(1).await;
    submitter.stop().await;
    let path = stage.dir.path().join("suite.json");
    let artifacts = stage.queue.artifacts();
    let limits = TreeLimits::default();
    download_tree(&*artifacts, &id, &record.suite, &path, limits).await.expect("the values");
    let text = std::fs::read_to_string(&path).expect("the values");
    let values: Vec<(String, String)> = serde_json::from_str(&text).expect("pairs");
    let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "cases",
        "description",
        "name",
        "repeat",
        "runs/0",
        "selected_cases",
        "variant_settings",
        "variants",
    ];
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_a_queue_has_the_runs_of_the_directory() {
    let stage = SubmitStage::new().await;
    let mut submitter = stage.submit(&["a", "b", "c"]);
    let (id, record) = stage.experiment(1).await;
    // A worker that cannot prepare a job does not know its names, and another one is of another version.
    for number in 0..3 {
        let lease = stage.claim(&id, &record, Duration::from_secs(300)).await;
        let result = RunResult::broken(&lease.job, 1, "not prepared".into());
        let result = JobResult { result, files: None, tries: Vec::new(), claims: 1, worker: "w".into() };
        let result = match number {
            0 => br#"{"format": "of the future"}"#.to_vec(),
            _ => serde_json::to_vec(&result).expect("JSON"),
        };
        stage.queue.commit(&lease, &result).await.expect("a commit");
        submitter.result().await;
    }
    assert_eq!(submitter.task.await.expect("a task").expect("a summary").remaining, 0);
    let fetched = stage.dir.path().join("fetched");
    fetch_results(&*stage.queue, &id, &fetched).await.expect("results");
    let rows = |dir: &std::path::Path| {
        let results = Experiment::read(dir).expect("an experiment").results().expect("results");
        let row = |result: RunResult| {
            let RunResult { case, variant, attempt, class, message, key, .. } = result;
            (case, variant, attempt, class.name(), message, key)
        };
        let mut rows: Vec<_> = results.into_values().map(row).collect();
        rows.sort();
        rows
    };
    let expected = rows(&stage.results());
    assert_eq!(expected.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(rows(&fetched), expected);
}
