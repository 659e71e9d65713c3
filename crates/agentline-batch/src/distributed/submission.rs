//! What was submitted from the directory of an experiment.

use crate::execute::BatchError;
use crate::store::{Experiment, StoreError};
use agentline_queue::Cursor;
use serde::{Deserialize, Serialize};

/// The name of the stored submission.
pub(super) const META: &str = "submission";

/// What was submitted from a directory. It is stored, so that the same command attaches again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredSubmission {
    /// The name of the experiment in the queue.
    pub(super) id: String,
    /// A digest of the suite and of the chosen runs.
    pub(super) digest: String,
    /// Whether all jobs are in the queue.
    pub(super) is_complete: bool,
    /// The results that are in the directory already.
    pub(super) cursor: Cursor,
}

impl StoredSubmission {
    pub(super) fn stored(experiment: &Experiment) -> Result<Option<Self>, StoreError> {
        Ok(experiment.meta(META)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub(super) fn store(&self, experiment: &Experiment) -> Result<(), BatchError> {
        Ok(experiment.set_meta(META, &serde_json::to_string(self).unwrap_or_default())?)
    }
}
