//! The real agents, installed once into our cache directory at pinned versions from the npm registry.

use agentline::{Agentline, agents, install};
use agentline_core::Program;
use std::{
    io::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

static GEMINI: OnceLock<Option<Program>> = OnceLock::new();
static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// Returns the real Gemini CLI, or `None` if `AGENTLINE_REAL_AGENTS=off` disables real agents.
///
/// # Panics
/// Panics if it cannot be installed, or if it is disabled and CI=true.
#[must_use]
#[expect(clippy::print_stderr, reason = "tests report what they install")]
pub fn real_gemini() -> Option<Program> {
    GEMINI
        .get_or_init(|| {
            if are_disabled() {
                return None;
            }
            let agent = agents::find("gemini").expect("it is listed");
            let agentline = Agentline::from_env().expect("the tests have a home");
            let installed = install::ensure(agent.info(), agent.info().pinned, agentline.host_env(), &mut |p| eprintln!("{p}"));
            match installed {
                Ok(program) => Some(program),
                Err(error) => panic!(
                    "the real Gemini CLI could not be installed: {error}\n{}\nAGENTLINE_REAL_AGENTS=off disables these tests",
                    error.hint()
                ),
            }
        })
        .clone()
}

/// Returns whether real agents are disabled.
///
/// # Panics
/// Panics if they are disabled and CI=true.
#[must_use]
pub fn are_disabled() -> bool {
    let off = std::env::var("AGENTLINE_REAL_AGENTS").is_ok_and(|v| v == "off");
    assert!(
        !(off && std::env::var("CI").is_ok_and(|v| v == "true")),
        "AGENTLINE_REAL_AGENTS=off is refused if CI=true: CI tests the real agents"
    );
    off
}

/// Prints that a test was skipped, and how many were skipped so far.
pub fn skipped(test: &str) {
    let so_far = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    // A print macro would be captured by the test runner.
    let _ = writeln!(std::io::stderr(), "skipped ({so_far} in this program so far): {test}");
}
