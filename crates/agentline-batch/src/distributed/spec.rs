//! What travels through a queue: experiments, jobs, results and the status of workers, as JSON.

use crate::class::Class;
use crate::result::RunResult;
use agentline_queue::{QueueRecord, TreeRef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The version of these formats. A worker leaves experiments of a newer version alone.
pub(crate) const FORMAT: u32 = 1;

/// The prefix of the records of experiments.
pub(crate) const EXPERIMENTS: &str = "experiment";
/// The prefix of the records of workers.
pub(crate) const WORKERS: &str = "worker";

/// Whether the jobs of an experiment are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExperimentState {
    /// Workers claim its jobs.
    Running,
    /// Workers finish what they have claimed, and claim nothing more.
    Paused,
    /// Workers stop what they have claimed, and claim nothing more.
    Cancelled,
    /// All jobs have a result.
    Finished,
}

impl ExperimentState {
    /// Returns the name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Finished => "finished",
        }
    }
}

/// What a worker must have to execute jobs of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Requirements {
    /// The agents of the run and its judges, possibly with a version: `gemini`, `claude@2.1.0`.
    pub(crate) agents: Vec<String>,
    /// The permission modes of the run and its judges.
    pub(crate) modes: Vec<String>,
    /// The labels that the worker must have.
    pub(crate) labels: Vec<String>,
    /// The variables that the worker's environment must have.
    pub(crate) variables: Vec<String>,
    /// Whether settings may allow more than the permission modes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_beyond_modes: bool,
}

/// The cost limit of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CostLimit {
    /// In US dollars.
    pub(crate) usd: f64,
    /// Whether the limit may never be exceeded.
    pub(crate) is_strict: bool,
}

/// The record of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExperimentRecord {
    pub(crate) format: u32,
    /// The name of the suite.
    pub(crate) name: String,
    pub(crate) state: ExperimentState,
    pub(crate) submitted_ms: u64,
    /// The number of jobs.
    pub(crate) jobs: u64,
    pub(crate) routes: BTreeMap<String, Requirements>,
    pub(crate) cost: Option<CostLimit>,
    /// How often a job is claimed before it counts as an infrastructure failure.
    pub(crate) max_claims: u32,
    /// The values of the experiment's store, for reports.
    pub(crate) suite: TreeRef,
}

/// A job: one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobPayload {
    /// The artifact with the case.
    pub(crate) pack: String,
    /// The position of the case in the artifact.
    pub(crate) case: usize,
    pub(crate) variant: usize,
    pub(crate) attempt: u32,
    /// What is reserved for the run, in millionths of a US dollar; absent if nothing is known.
    pub(crate) reserve_micros: Option<u64>,
}

/// Cases and the requests of their runs and judges.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CasePack {
    pub(crate) cases: Vec<PortableCase>,
    /// The ids of all variants.
    pub(crate) variants: Vec<String>,
    /// The classes that the suite assigns itself.
    pub(crate) classes: BTreeMap<String, Class>,
    /// By the name of their settings.
    pub(crate) requests: BTreeMap<String, PortableRequest>,
}

/// A case whose files are artifacts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PortableCase {
    pub(crate) id: String,
    pub(crate) prompts: Vec<String>,
    pub(crate) settings: Vec<Map<String, Value>>,
    pub(crate) workspace: Option<TreeRef>,
    pub(crate) hidden: Vec<NamedTree>,
    pub(crate) setup: Vec<String>,
    pub(crate) teardown: Vec<String>,
    pub(crate) checks: Vec<Value>,
    pub(crate) source: String,
    /// Whether each variant may be executed again after an interruption.
    pub(crate) repeatable: Vec<bool>,
}

/// A file or directory that keeps its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedTree {
    pub(crate) name: String,
    pub(crate) tree: TreeRef,
}

/// The complete request of a run or judge, without secrets and without paths of the submitting machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PortableRequest {
    pub(crate) request: Value,
    /// The files that the request names, by the name of its field.
    pub(crate) files: Vec<(String, NamedTree)>,
}

/// The committed result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobResult {
    pub(crate) result: RunResult,
    /// What the run left in its directory.
    pub(crate) files: Option<TreeRef>,
    /// Earlier tries of the run on the same worker: how each ended, and its cost.
    pub(crate) tries: Vec<(String, Option<f64>)>,
    /// How often the job was claimed.
    pub(crate) claims: u32,
    /// The worker that executed it.
    pub(crate) worker: String,
}

/// What a worker does at the moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The name of the machine.
    pub host: String,
    /// The process on this machine.
    pub pid: u32,
    /// When the worker started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When this status was written, in milliseconds since 1970.
    pub updated_ms: u64,
    /// The number of runs at a time.
    pub slots: usize,
    /// The agents that it runs.
    pub agents: Vec<String>,
    /// The labels.
    pub labels: Vec<String>,
    /// The runs in progress.
    pub runs: Vec<RunningJob>,
    /// The number of results that it has committed.
    pub committed: u64,
    /// What its runs have cost in US dollars.
    pub spent_usd: f64,
    /// Whether it finishes its runs and claims nothing more.
    pub is_draining: bool,
}

/// A run in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunningJob {
    /// The experiment.
    pub experiment: String,
    /// The case.
    pub case: String,
    /// The variant.
    pub variant: String,
    /// The attempt, from 0.
    pub attempt: u32,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
}

/// The time after which a worker that reports nothing counts as lost, in milliseconds.
const LOST_AFTER_MS: u64 = 30_000;

impl WorkerStatus {
    /// Reads the status in a record. The clock of the worker's machine may differ from that of this one, where it is now
    /// `now_ms`, so its dates are replaced, if the queue knows the age of the record.
    pub(crate) fn read(record: &QueueRecord, now_ms: u64) -> Option<Self> {
        let mut status: Self = serde_json::from_slice(&record.value).ok()?;
        if let Some(age) = record.age {
            let updated_ms = now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            for run in &mut status.runs {
                run.began_ms = updated_ms.saturating_sub(status.updated_ms.saturating_sub(run.began_ms));
            }
            status.updated_ms = updated_ms;
        }
        Some(status)
    }

    /// Returns whether the worker has reported recently.
    #[must_use]
    pub fn is_alive(&self, now_ms: u64) -> bool {
        self.updated_ms.saturating_add(LOST_AFTER_MS) > now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn age_of_a_status_does_not_depend_on_the_clock_of_its_worker() {
        let written = serde_json::json!({
            "host": "h", "pid": 1, "started_ms": 1, "updated_ms": 9_000_000, "slots": 1, "agents": [], "labels": [],
            "committed": 0, "spent_usd": 0.0, "is_draining": false,
            "runs": [{"experiment": "e", "case": "c", "variant": "v", "attempt": 0, "began_ms": 8_996_000}],
        });
        let read = |age: Option<u64>, now_ms| {
            let value = serde_json::to_vec(&written).expect("JSON");
            let age = age.map(Duration::from_secs);
            WorkerStatus::read(&QueueRecord { name: "worker.w".into(), value, revision: 1, age }, now_ms)
                .expect("a status")
        };
        // The clock of the worker is far ahead, and then far behind.
        for now_ms in [1_000_000, 90_000_000] {
            let status = read(Some(5), now_ms);
            assert!(status.is_alive(now_ms));
            assert_eq!(now_ms - status.runs[0].began_ms, 9_000);
            assert!(!read(Some(31), now_ms).is_alive(now_ms));
        }
        assert!(read(None, 9_001_000).is_alive(9_001_000) && !read(None, 90_000_000).is_alive(90_000_000));
    }
}
