//! Experiments with coding agents: the same cases, many times, with several variants.
//!
//! A [`Suite`] has cases, variants and checks. A batch runs whatever has no result yet and commits each result once to
//! an [`Experiment`], a directory on disk. Reports are computed from it, with the statistics of [`stats`].

mod check;
mod class;
mod distributed;
mod document;
mod execute;
mod key;
mod report;
mod result;
mod sequence;
pub mod stats;
mod store;
mod suite;
mod template;
mod worktree;

pub use check::{Check, CheckResultRow, Condition, JudgeSpec, Judgement, RunEvidence, ToolCount};
pub use class::{Class, ClassTable, Classification};
pub use distributed::{
    DistributedError, ExperimentState, ExperimentStatus, RunningJob, SubmitOptions, WorkerEvent,
    WorkerOptions, WorkerPolicy, WorkerStatus, delete, experiments, fetch_results, run_on_queue, run_worker,
    set_state, status, submitted_id,
};
pub use execute::{
    BatchError, BatchEvent, BatchForecast, BatchLimitReached, BatchOptions, BatchShutdown, BatchSummary,
    PriceRange, Rerun, default_dir, grade, load_for_grading, run_batch, validate,
};
pub use report::{
    CaseReport, ChangedResult, ComparisonRow, ExperimentReport, PassK, REPORT_SCHEMA, VariantReport,
};
pub use result::{RunResult, try_dir};
pub use sequence::SequentialComparison;
pub use store::{Experiment, StoreError, TryCost};
pub use suite::{
    BatchLimits, RunIndex, Suite, SuiteInput, TestCase, Variant, WorkspaceSource, load, load_with,
};
