//! Tests `agentline demo`: with the real agent and a scripted model, or with the recorded run if no agent is installed.

use crate::cli::{outputs::TEXT, user::User};
use agentline_tests::{needs_real_gemini, real_gemini};

#[test]
fn demo_runs_the_real_agent_and_shows_the_outcome() {
    needs_real_gemini!();
    let program = real_gemini().unwrap().path;
    let user = User::new().env("GEMINI_CLI_PATH", program.to_string_lossy()).env("GEMINI_API_KEY", "");
    let done = user.agentline(&["demo", "--record", "tape"]);
    assert_eq!((done.out.as_str(), done.code), (TEXT, 0), "{}", done.err);
    for part in [
        "● Write primes.py (+8 -0) … ok",
        "● Edit primes.py (+",
        "● Read WISHES.txt … failed",
        "● Bash echo",
        "done in ",
        "created  SUMMARY.txt",
        "created  primes.py",
        "tokens: 42590 in",
        "$0.0203",
    ] {
        assert!(done.err.contains(part), "{part} is missing in {}", done.err);
    }
    // The user's own home was not used, and nothing remains.
    assert!(!user.path("../home/.gemini").exists());
    assert_eq!(std::fs::read_dir(user.path("../tmp")).unwrap().count(), 0);
    let tape = user.read("tape");
    for path in [user.path("..").to_string_lossy().into_owned(), program.to_string_lossy().into_owned()] {
        assert!(!tape.contains(&path), "{path} is on the tape");
    }
    let again = user.agentline(&["replay", "tape"]);
    assert_eq!((again.out.as_str(), again.code), (TEXT, 0), "{}", again.err);
}

#[test]
fn recorded_demo_equals_the_real_run() {
    let done = User::new().agentline(&["demo", "--replay"]);
    assert_eq!((done.out.as_str(), done.code), (TEXT, 0), "{}", done.err);
    assert!(done.err.contains("replaying a recorded run of Gemini CLI 0.61.0"), "{}", done.err);
    assert!(
        done.err.contains("● Write primes.py (+8 -0) … ok") && done.err.contains("done in "),
        "{}",
        done.err
    );
}

#[test]
fn demo_plays_the_recording_without_node() {
    let user = User::new().env("GEMINI_CLI_PATH", "").env("PATH", "/nowhere");
    let report = user.agentline(&["doctor", "-o", "json"]).json();
    if !report["node"].is_null() || report["agents"][0]["installed"] == true {
        // This machine has Node.js or the agent in a location that does not depend on the user.
        return;
    }
    let done = user.agentline(&["demo"]);
    assert_eq!((done.out.as_str(), done.code), (TEXT, 0), "{}", done.err);
    assert!(done.err.contains("Node.js was not found") && done.err.contains("recorded run"), "{}", done.err);
}

#[test]
fn demo_serve_prints_the_environment_for_other_programs() {
    needs_real_gemini!();
    let program = real_gemini().unwrap().path;
    let user = User::new().env("GEMINI_CLI_PATH", program.to_string_lossy());
    // Its input is empty, so it exits after printing its information.
    let done = user.agentline(&["demo", "--serve"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let printed = done.json();
    assert!(
        printed["env"]["GOOGLE_GEMINI_BASE_URL"].as_str().unwrap().starts_with("http://127.0.0.1:"),
        "{printed}"
    );
    assert_eq!(printed["env"]["GEMINI_CLI_PATH"], program.to_string_lossy().as_ref());
    assert!(!std::path::Path::new(printed["workspace"].as_str().unwrap()).exists(), "it was removed");
    let wrong = user.agentline(&["demo", "--serve", "no-such-script"]);
    assert!(wrong.code != 0 && wrong.err.contains("no-such-script"), "{}", wrong.err);
}

#[test]
fn demo_checks_its_input_before_it_installs_an_agent() {
    let user = User::new().env("GEMINI_CLI_PATH", "").env("PATH", "/nowhere");
    for (args, part) in [
        (["demo", "--serve", "99999"], "error: `--serve`: cannot read the script `99999`"),
        (["demo", "--record", "/nope/x"], "error: `--record`: cannot write `/nope/x`"),
    ] {
        let done = user.agentline(&args);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.starts_with(part) && done.err.contains("hint: "), "{}", done.err);
        assert!(!done.err.contains("agent:"), "{}", done.err);
    }
}
