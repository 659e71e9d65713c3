//! Runs tests that change or measure the whole process in a process of their own.

use std::{
    env,
    process::{Command, Stdio},
};

/// The variable that names the test of a process.
const VARIABLE: &str = "AGENTLINE_TEST_IN_OWN_PROCESS";

/// Returns whether this process runs only this test. If not, it starts such a process and waits until the test passes.
///
/// The test is named by its whole path: `concat!(module_path!(), "::name")`.
///
/// # Panics
/// Panics if the test does not pass.
#[must_use]
pub fn is_own_process(test: &str) -> bool {
    if env::var(VARIABLE).is_ok_and(|own| own == test) {
        return true;
    }
    let (_, name) = test.split_once("::").expect("a path that begins with the name of the program");
    let output = Command::new(env::current_exe().expect("the path of the test program"))
        .args(["--exact", name])
        .env(VARIABLE, test)
        .stdin(Stdio::null())
        .output()
        .expect("the test program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A wrong name runs no test, and that would be a success.
    assert!(output.status.success() && out.contains(" 1 passed;"), "{}\n{out}\n{err}", output.status);
    false
}
