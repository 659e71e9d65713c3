//! A blocking interface for programs without an async runtime.

use crate::{agentline::Agentline, error::Error, run::Canceller};
use agentline_core::{Event, Outcome, Record, RunRequest};

/// Runs a prompt and waits for its end. Passes every event to `each` as it happens.
///
/// ```no_run
/// use agentline::{Agentline, RunRequest, blocking};
/// let outcome = blocking::run(&Agentline::from_env()?, RunRequest::new("What is 2 + 2?"), |_event, _stop| {})?;
/// println!("{}", outcome.text);
/// # Ok::<(), agentline::Error>(())
/// ```
///
/// # Errors
/// Fails like [`Agentline::run`], and if no runtime can be created.
pub fn run(
    agentline: &Agentline,
    request: RunRequest,
    mut each: impl FnMut(&Record, &Canceller),
) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::io("start", "a runtime"))?;
    runtime.block_on(async {
        let mut run = agentline.run(request).await?;
        let stop = run.canceller();
        while let Some(record) = run.next().await {
            each(&record, &stop);
            if let Event::Outcome { outcome } = record.event {
                return Ok(*outcome);
            }
        }
        Ok(run.outcome().await)
    })
}
