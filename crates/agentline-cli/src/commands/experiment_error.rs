//! Errors of experiments, with what to do about them.

use super::queue::queue_error;
use crate::error::CommandError;
use agentline_batch::{BatchError, DistributedError, StoreError};
use agentline_core::error_chain;

/// Returns an error of an experiment on one machine.
pub(crate) fn batch_error(error: BatchError) -> CommandError {
    match error {
        BatchError::Invalid(problems) => problems.into(),
        BatchError::Store(error) => store_error(&error),
        BatchError::Agentline(error) => error.into(),
        error => CommandError::failed(error_chain(&error)),
    }
}

/// Returns an error of an experiment on several machines.
pub(crate) fn distributed_error(error: DistributedError) -> CommandError {
    match error {
        DistributedError::Invalid(problems) | DistributedError::Refused(problems) => problems.into(),
        DistributedError::Queue(error) => queue_error(&error),
        DistributedError::Batch(error) => batch_error(error),
        error => CommandError::failed(error_chain(&error)),
    }
}

/// Returns an error of an experiment's directory.
pub(crate) fn store_error(error: &StoreError) -> CommandError {
    let hint = match error {
        StoreError::Locked(_) => "wait for it to end, or use another --dir",
        StoreError::Newer(_) => "use that version, or another --dir",
        error if error.is_full() => {
            "free some space, then run the same command again; what is finished is kept"
        }
        _ => "use another --dir",
    };
    CommandError::Unable { message: error_chain(error), hint: hint.into() }
}
