//! Waits with a limit, for tests: for a condition, for the exit of a child, and for its output. Each says what it waited
//! for if that does not happen.

use crate::Watchdog;
use std::{
    process::{Child, ExitStatus, Output},
    time::{Duration, Instant},
};

/// The time limit of a wait: long enough for a loaded machine. A passing test never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The pause between two checks of a condition, which may search all processes.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until a condition holds. `awaited` completes the sentence "waited 90 s for …".
///
/// # Panics
/// Panics if the condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn wait_until(awaited: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {awaited}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a condition holds, in a runtime, where other tasks continue.
///
/// # Panics
/// Panics if the condition does not hold within [`PATIENCE`].
pub async fn wait_in_runtime(awaited: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {awaited}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits for the exit of a child. After [`PATIENCE`], a child that still runs is killed, with a message.
///
/// # Panics
/// Panics if the child was already waited for.
#[track_caller]
pub fn exit_of(child: &mut Child, awaited: &str) -> ExitStatus {
    let _watchdog = Watchdog::over(child, PATIENCE, awaited);
    child.wait().expect("a child of this test")
}

/// Reads the output of a child to its end. After [`PATIENCE`], a child that still runs is killed, with a message.
///
/// # Panics
/// Panics if the child was already waited for.
#[track_caller]
pub fn output_of(child: Child, awaited: &str) -> Output {
    let _watchdog = Watchdog::over(&child, PATIENCE, awaited);
    child.wait_with_output().expect("a child of this test")
}
