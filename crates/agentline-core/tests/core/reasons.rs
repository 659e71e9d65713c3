//! Tests that the reason of a failure survives: the agent's own message and type, and its last lines of output.

use crate::play::{Player, spec};
use agentline_core::{ExitReason, FailureKind, RunError, RunId, Surface, Timeout, Verdict};

fn started(surface: Surface) -> Player {
    let mut player = Player::new(surface);
    player.prompt(spec());
    if surface == Surface::StreamJson {
        player.stdout(r#"{"type":"init","session_id":"s","model":"auto"}"#);
    }
    player
}

fn error(player: &Player) -> &RunError {
    player.outcome().error.as_ref().expect("the run failed")
}

#[test]
fn message_and_type_of_the_agent_survive_an_exit_code() {
    let message = "Error executing tool write_file: No space left on device: /ws/a.txt (ENOSPC)";
    for (code, kind, meaning) in [
        (42, FailureKind::Input, "Gemini CLI rejected its input"),
        (44, FailureKind::Sandbox, "Gemini CLI's sandbox failed"),
        (52, FailureKind::Settings, "Gemini CLI could not read its settings"),
        (54, FailureKind::Tool, "Gemini CLI stopped after a fatal tool error"),
    ] {
        let mut stream = started(Surface::StreamJson);
        stream.stdout(&format!(
            r#"{{"type":"result","status":"error","error":{{"type":"no_space_left","message":"{message}"}},"stats":{{}}}}"#
        ));
        stream.exit(ExitReason::Code(code));
        let mut json = started(Surface::Json);
        for line in [
            "{",
            r#""session_id": "s","#,
            &format!(r#""error": {{"type": "no_space_left", "message": "{message}", "code": {code}}}"#),
            "}",
        ] {
            json.stderr(line);
        }
        json.exit(ExitReason::Code(code));
        for player in [&stream, &json] {
            player.check();
            let error = error(player);
            assert_eq!(error.message, format!("{meaning}: {message} (exit code {code})"));
            assert_eq!((error.kind, error.agent_type.as_deref()), (kind, Some("no_space_left")));
        }
    }
}

#[test]
fn exit_without_a_result_quotes_the_last_output() {
    let mut player = started(Surface::StreamJson);
    player.stdout("a wrapper says no");
    player.stderr("and it says why");
    player.exit(ExitReason::Code(3));
    let found = error(&player);
    assert_eq!(found.kind, FailureKind::NoResult);
    assert!(found.message.contains("exit code 3"), "{}", found.message);
    assert!(found.message.contains("last output: a wrapper says no / and it says why"), "{}", found.message);
    assert_eq!(
        (found.stdout_tail.as_str(), found.stderr_tail.as_str()),
        ("a wrapper says no", "and it says why")
    );
    // A meaning without a message of the agent is explained by the output too.
    let mut player = started(Surface::StreamJson);
    player.stderr("Error in settings.json: Expected property name");
    player.exit(ExitReason::Code(52));
    assert_eq!(
        error(&player).message,
        "Gemini CLI could not read its settings (exit code 52); last output: Error in settings.json: Expected property name"
    );
}

#[test]
fn exit_130_is_a_cancellation() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let mut player = started(surface);
        player.stderr("Operation cancelled.");
        player.exit(ExitReason::Code(130));
        assert_eq!(player.outcome().verdict, Verdict::Cancelled);
        assert_eq!((error(&player).kind, error(&player).retryable), (FailureKind::Cancelled, false));
    }
}

#[test]
fn missing_default_credentials_are_not_authenticated() {
    let message = "[API Error: Could not load the default credentials. Browse to https://cloud.google.com/docs/authentication/getting-started for more information.]";
    let mut player = started(Surface::StreamJson);
    player.stdout(&format!(
        r#"{{"type":"result","status":"error","error":{{"type":"unknown","message":"{message}"}},"stats":{{}}}}"#
    ));
    player.exit(ExitReason::Code(1));
    let error = error(&player);
    assert_eq!((player.outcome().verdict, error.retryable), (Verdict::NotAuthenticated, false));
    assert!(error.hint.as_deref().unwrap_or_default().contains("gcloud auth application-default login"));
}

#[test]
fn unreadable_lines_give_one_warning_with_a_sample() {
    let mut player = started(Surface::StreamJson);
    player.stdout("not json");
    player.stdout("{\"also\": not");
    player.stdout(r#"{"type":"message","role":"assistant","content":"ok","delta":true}"#);
    player.stdout(r#"{"type":"result","status":"success","stats":{"total_tokens":1}}"#);
    player.exit(ExitReason::Code(0));
    let warnings: Vec<_> = player.outcome().warnings.iter().map(|w| (&*w.code, &*w.message)).collect();
    assert_eq!(
        warnings,
        [("malformed_lines", r#"Malformed JSON lines: 2 in total, first: ["not json", "{\"also\": not"]"#)]
    );
}

#[test]
fn a_timeout_names_itself_and_how_to_change_it() {
    let tool = r#"{"type":"tool_use","tool_name":"run_shell_command","tool_id":"1","parameters":{"command":"sleep 9"}}"#;
    for (lines, wait, name, flag) in [
        (&[][..], 7_000, "idle timeout of 7 s", "`--idle-timeout`"),
        (&[tool][..], 9_000, "tool timeout of 9 s", "`--tool-timeout`"),
    ] {
        let mut spec = spec();
        (spec.timeouts.idle, spec.timeouts.idle_tool) = (7_000, 9_000);
        let mut player = Player::new(Surface::StreamJson);
        player.prompt(spec);
        player.stdout(r#"{"type":"init","session_id":"s","model":"auto"}"#);
        lines.iter().for_each(|line| player.stdout(line));
        player.wait(wait);
        player.exit(ExitReason::Code(0));
        let error = error(&player);
        assert!(error.message.contains(name), "{:?}: {}", Timeout::Idle, error.message);
        assert!(error.hint.as_deref().unwrap_or_default().contains(flag), "{:?}", error.hint);
    }
    // The part of the time that was spent on waiting for a slot counts, and the message names the whole timeout.
    let mut spec = spec();
    (spec.timeouts.run, spec.timeouts.spent) = (5_000, 130);
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec);
    player.stdout(r#"{"type":"init","session_id":"s","model":"auto"}"#);
    player.wait(4_871);
    player.exit(ExitReason::Code(0));
    assert!(error(&player).message.contains("the timeout of 5 s"), "{}", error(&player).message);
}

#[test]
fn stderr_of_the_start_belongs_to_every_run_of_a_warm_process() {
    let mut harness = crate::acp::harness::AcpHarness::unknown();
    harness.player.stderr("a setting is deprecated");
    for (run, session) in [(1, "a"), (2, "b")] {
        harness.start(RunId(run), session, spec());
        let id = harness.frame()["id"].clone();
        harness.player.stderr(&format!("said in run {run}"));
        harness.text(session, "ok");
        harness.end(&id, &serde_json::json!({"stopReason": "end_turn"}));
        let outcome = harness.player.outcome_of(RunId(run));
        assert_eq!(outcome.verdict, Verdict::Done);
        assert_eq!(outcome.stderr_tail, format!("a setting is deprecated\nsaid in run {run}"));
    }
}
