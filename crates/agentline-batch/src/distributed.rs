//! Experiments on several machines: a submitter hands runs to workers through a queue, and collects their results.

mod budget;
mod control;
mod package;
mod secrets;
mod spec;
mod submission;
mod submit;
mod unpack;
mod worker;

pub use control::{ExperimentStatus, delete, experiments, set_state, status, submitted_id};
pub use spec::{ExperimentState, RunningJob, WorkerStatus};
pub use submit::{SubmitOptions, fetch_results, run_on_queue};
pub use worker::{WorkerEvent, WorkerOptions, WorkerPolicy, run_worker};

use crate::execute::BatchError;
use agentline::Problems;
use agentline_queue::{QueueError, TreeError};

/// Why runs could not be handed to workers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DistributedError {
    /// The suite or its settings are invalid, or cannot be distributed.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Files cannot be sent or received.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A file or directory cannot be used.
    #[error("{0}")]
    Files(String),
    /// The experiment's directory or the library cannot be used.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl DistributedError {
    /// Returns whether the error is one of this machine, so that another worker may not have it.
    pub(crate) fn is_of_worker(&self) -> bool {
        matches!(self, Self::Files(_) | Self::Batch(_))
    }
}
