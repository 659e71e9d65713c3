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
    /// A file or directory cannot be used, or what a queue contains cannot be read.
    #[error("{0}")]
    Files(String),
    /// The policy of the worker forbids the run.
    #[error("this worker refuses the run: {0}")]
    Refused(Problems),
    /// A file, a directory or the configuration of the worker cannot be used.
    #[error("{0}")]
    OfWorker(String),
    /// An artifact is absent.
    #[error(
        "the artifact `{0}` is not in the store that this worker uses; compare its --artifacts with the submitter's"
    )]
    MissingArtifact(String),
    /// The experiment's directory or the library cannot be used.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl DistributedError {
    /// Returns whether an error that prevents a run is one of this worker, so that another one may succeed. Other errors
    /// would recur everywhere.
    #[must_use]
    pub fn is_of_worker(&self) -> bool {
        match self {
            Self::Refused(_) | Self::OfWorker(_) | Self::MissingArtifact(_) | Self::Batch(_) => true,
            Self::Tree(TreeError::Io { .. } | TreeError::Missing(_)) => true,
            Self::Tree(TreeError::Queue(error)) | Self::Queue(error) => is_of_connection(error),
            Self::Invalid(_) | Self::Tree(_) | Self::Files(_) => false,
        }
    }
}

/// Returns whether an error of a queue concerns the connection of this process.
fn is_of_connection(error: &QueueError) -> bool {
    !matches!(error, QueueError::Damaged(_) | QueueError::InvalidName(_) | QueueError::TooLarge { .. })
}
