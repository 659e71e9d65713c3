//! Blocking work on a thread of its own.

/// Runs blocking work on a blocking thread and waits for it. A panic in it continues here.
///
/// A runtime that shuts down discards work that has not begun. The waiting task is discarded next, so it never continues.
///
/// # Panics
/// Panics outside of a task if the runtime shuts down before the work has begun.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) if tokio::task::try_id().is_some() => std::future::pending().await,
            Err(discarded) => panic!("the runtime shut down: {discarded}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn panic_of_the_work_continues_in_the_caller() {
        assert_eq!(on_blocking_thread(|| 7).await, 7);
        let panicked = tokio::spawn(on_blocking_thread(|| panic!("a panic of the test"))).await;
        assert!(panicked.unwrap_err().is_panic());
    }

    #[test]
    fn work_that_a_runtime_discards_does_not_panic() {
        let panics = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let runtime =
                Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).build().unwrap();
            for _ in 0..20 {
                let panics = Arc::clone(&panics);
                runtime.spawn(async move {
                    let count = CountPanic(panics);
                    on_blocking_thread(|| std::thread::sleep(Duration::from_millis(1))).await;
                    drop(count);
                });
            }
            runtime.shutdown_timeout(Duration::from_secs(60));
        }
        assert_eq!(panics.load(Ordering::Relaxed), 0);
    }

    struct CountPanic(Arc<AtomicUsize>);

    impl Drop for CountPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
