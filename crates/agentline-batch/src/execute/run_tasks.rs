//! The runs in progress.

use super::attempt::Ended;
use crate::suite::RunIndex;
use std::collections::HashMap;
use tokio::task::{Id, JoinSet};

/// The runs in progress. Every one of them ends with a result or a message, even if its task panics.
#[derive(Default)]
pub(super) struct RunTasks {
    tasks: JoinSet<Ended>,
    runs: HashMap<Id, RunIndex>,
}

impl RunTasks {
    pub(super) fn spawn(&mut self, run: RunIndex, execution: impl Future<Output = Ended> + Send + 'static) {
        self.runs.insert(self.tasks.spawn(execution).id(), run);
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next run that ends. An error is why its task has no result.
    pub(super) async fn next(&mut self) -> Option<(RunIndex, Result<Ended, String>)> {
        let joined = self.tasks.join_next_with_id().await?;
        let (id, ended) = match joined {
            Ok((id, ended)) => (id, Ok(ended)),
            Err(error) => (error.id(), Err(format!("internal error: the run's {error}"))),
        };
        self.runs.remove(&id).map(|run| (run, ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn run_that_panics_ends_with_a_message() {
        let run = RunIndex { attempt: 2, case: 1, variant: 0 };
        let mut active = RunTasks::default();
        active.spawn(run, async { panic!("expected by the test") });
        assert_eq!(active.len(), 1);
        let (ended, message) = active.next().await.expect("a run");
        let Err(message) = message else { panic!("a result") };
        assert!(ended == run && message.contains("panicked"), "{message}");
        assert!(active.is_empty() && active.next().await.is_none());
    }
}
