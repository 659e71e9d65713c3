//! The real agents: installed once into our cache folder, at their pinned versions, from the npm registry.

use agentline::{Agentline, Program, agents, install};
use std::{
    io::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

static GEMINI: OnceLock<Option<Program>> = OnceLock::new();
static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// The real Gemini CLI, or `None` where `AGENTLINE_REAL_AGENTS=off` leaves real agents out.
///
/// # Panics
/// It cannot be installed; or it was to be left out where CI=true, which is refused.
#[must_use]
#[expect(clippy::print_stderr, reason = "a test says what it sets up")]
pub fn real_gemini() -> Option<Program> {
    GEMINI
        .get_or_init(|| {
            if left_out() {
                return None;
            }
            let agent = agents::find("gemini").expect("it is in the list");
            let agentline = Agentline::from_env().expect("the tests have a home");
            let installed = install::ensure(agent, agent.info().pinned, agentline.here(), &mut |p| eprintln!("{p}"));
            match installed {
                Ok(program) => Some(program),
                Err(error) => panic!(
                    "the real Gemini CLI could not be installed: {error}\n{}\nAGENTLINE_REAL_AGENTS=off leaves these tests out",
                    error.hint()
                ),
            }
        })
        .clone()
}

/// Whether real agents are to be left out.
pub(crate) fn left_out() -> bool {
    let off = std::env::var("AGENTLINE_REAL_AGENTS").is_ok_and(|v| v == "off");
    assert!(
        !(off && std::env::var("CI").is_ok_and(|v| v == "true")),
        "AGENTLINE_REAL_AGENTS=off is refused where CI=true: CI shows the real agents"
    );
    off
}

/// Says aloud that a test with a real agent was left out, and how many so far.
pub fn skipped(test: &str) {
    let so_far = LEFT_OUT.fetch_add(1, Ordering::Relaxed) + 1;
    // Not a print macro: the test runner would keep that to itself.
    let _ = writeln!(
        std::io::stderr(),
        "left out with AGENTLINE_REAL_AGENTS=off ({so_far} in this file so far): {test}"
    );
}
