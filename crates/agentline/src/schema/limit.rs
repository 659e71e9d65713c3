//! Limits the duration of a schema check.
//!
//! A schema can make validation take exponential time: each level of `anyOf` that refers to the next level twice
//! doubles the work. The validator cannot be interrupted, so it runs on a separate thread that is abandoned on timeout.
//! The number of threads, including abandoned ones, is limited for the whole program. A check that gets no thread in
//! time fails.

use super::depth;
use crate::answer_error::{AnswerError, CheckTimeout};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// The maximum duration of one check.
pub(crate) const LONGEST_CHECK: Duration = Duration::from_secs(10);

/// The maximum number of concurrent checks in this program, including abandoned ones.
const MAX_CHECKS: usize = 8;

static CHECKS: Semaphore = Semaphore::const_new(MAX_CHECKS);

/// Runs a check on a separate thread and waits at most `time` for it.
///
/// # Errors
/// Returns the validation errors, or fails if the check does not finish in time or no thread is available for it.
pub(crate) async fn check_within<T: Send + 'static>(
    time: Duration,
    check: impl FnOnce() -> Result<T, Vec<String>> + Send + 'static,
) -> Result<T, AnswerError> {
    let checked = check_among(&CHECKS, time, check).await?;
    checked.map_err(AnswerError::Invalid)
}

async fn check_among<T: Send + 'static>(
    checks: &'static Semaphore,
    time: Duration,
    check: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CheckTimeout> {
    let time = time.min(LONGEST_CHECK);
    let checked = async {
        let permit = checks.acquire().await.ok()?;
        let (send, receive) = oneshot::channel();
        let work = move || {
            depth::mark_stack();
            // The caller may have stopped waiting.
            let _ = send.send(check());
            drop(permit);
        };
        std::thread::Builder::new()
            .name("agentline-schema".into())
            .stack_size(depth::STACK)
            .spawn(work)
            .ok()?;
        receive.await.ok()
    };
    match tokio::time::timeout(time, checked).await {
        Ok(Some(checked)) => Ok(checked),
        Ok(None) | Err(_) => Err(CheckTimeout(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn abandoned_checks_are_limited_and_their_threads_reused() {
        static OWN: Semaphore = Semaphore::const_new(MAX_CHECKS);
        let (short, long) = (Duration::from_millis(20), LONGEST_CHECK);
        let mut stuck = Vec::new();
        for _ in 0..MAX_CHECKS {
            let (release, wait) = mpsc::channel::<()>();
            let (started, has_started) = mpsc::channel();
            let check = move || {
                let _ = started.send(());
                let _ = wait.recv();
            };
            let checked = tokio::spawn(check_among(&OWN, short, check)).await.unwrap();
            assert_eq!(checked, Err(CheckTimeout(short)));
            has_started.recv().unwrap();
            stuck.push(release);
        }
        let (started, has_started) = mpsc::channel();
        let one_more = check_among(&OWN, short, move || started.send(())).await;
        assert!(one_more.is_err() && has_started.recv().is_err(), "no ninth thread is started");
        stuck.pop();
        assert_eq!(check_among(&OWN, long, || 7).await, Ok(7), "a thread is free again");
    }
}
