//! The identity of a worker: its machine, and a name that no other worker in the queue has.

use crate::distributed::DistributedError;
use crate::distributed::control;
use crate::execute::now_ms;
use agentline::Problem;
use agentline_queue::{Queue, check_part};

/// Returns the name of this machine.
pub(super) fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Checks that a name is valid and that no other worker has it.
///
/// # Errors
/// Fails if the name is invalid, or if a worker with this name has reported recently, unless it was a process of this
/// machine that has ended.
pub(super) async fn check_unique(
    queue: &dyn Queue,
    name: &str,
    started_ms: u64,
) -> Result<(), DistributedError> {
    if let Err(error) = check_part(name) {
        let problem = Problem::new("--name", error.to_string());
        return Err(DistributedError::Invalid(problem.hint("choose another name").into()));
    }
    let workers = control::workers(queue).await?;
    let Some(other) = workers.get(name) else { return Ok(()) };
    let is_here = other.host == host_name();
    let is_own = is_here && other.pid == std::process::id() && other.started_ms == started_ms;
    if is_own || !other.is_alive(now_ms()) || (is_here && has_ended(other.pid)) {
        return Ok(());
    }
    let message = format!("`{name}` is the name of a worker on {} (process {})", other.host, other.pid);
    let hint = "choose another name; a worker that has disappeared keeps its name for 30 seconds";
    Err(DistributedError::Invalid(Problem::new("--name", message).hint(hint).into()))
}

/// Returns whether a process of this machine has ended.
#[cfg(unix)]
fn has_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Returns whether a process of this machine has ended, as far as that is known.
#[cfg(not(unix))]
fn has_ended(_: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::spec::WorkerStatus;

    #[tokio::test]
    async fn name_of_a_worker_that_reports_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let queue = agentline_queue::SqliteQueue::open(&dir.path().join("queue.db")).await.expect("a queue");
        let status = |host: &str, pid: u32, updated_ms: u64| WorkerStatus {
            host: host.to_owned(),
            pid,
            started_ms: 1,
            updated_ms,
            slots: 1,
            agents: Vec::new(),
            labels: Vec::new(),
            runs: Vec::new(),
            committed: 0,
            spent_usd: 0.0,
            is_draining: false,
        };
        let (here, own) = (host_name(), std::process::id());
        let now = now_ms();
        let mut revision = 0;
        for (other, is_free) in [
            (status("another", own, now), false),
            (status(&here, own, now), false),
            (status("another", own, now - 31_000), true),
            // No process has this number.
            (status(&here, u32::MAX >> 1, now), !cfg!(windows)),
            (WorkerStatus { started_ms: 7, ..status(&here, own, now) }, true),
        ] {
            let value = serde_json::to_vec(&other).expect("JSON");
            revision = queue.write_record("worker.w", &value, revision).await.expect("a record");
            let checked = check_unique(&queue, "w", 7).await;
            assert_eq!(checked.is_ok(), is_free, "{other:?}: {checked:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("--name"), "{error}");
            }
        }
        check_unique(&queue, "other", 7).await.expect("a free name");
        let invalid = check_unique(&queue, "a.b", 7).await.expect_err("no name").to_string();
        assert!(invalid.contains("--name") && invalid.contains("`a.b` is not a name"), "{invalid}");
    }
}
