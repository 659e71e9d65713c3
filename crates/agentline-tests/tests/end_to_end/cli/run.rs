//! Tests `agentline run`: verdicts and their exit codes, prompts, settings, and messages on standard error.

use crate::cli::user::{KEY, User};
use agentline_tests::exit_of;

/// Runs a prompt and returns the JSON outcome. The exit code must match the verdict.
fn verdict(user: &User, args: &[&str], verdict: &str, code: i32) {
    let all: Vec<&str> = ["run", "-o", "json", "hi"].iter().chain(args).copied().collect();
    let done = user.agentline(&all);
    assert_eq!(
        (done.json()["verdict"].as_str(), done.code),
        (Some(verdict), code),
        "{}{}",
        done.out,
        done.err
    );
}

#[test]
fn every_verdict_has_its_exit_code() {
    verdict(&User::new(), &[], "done", 0);
    verdict(&User::with_fault("exit_code_after_text", r#"{"code":1}"#), &[], "failed", 1);
    verdict(&User::new().env("GEMINI_CLI_PATH", "/nowhere/gemini"), &[], "not_installed", 3);
    verdict(&User::with_fault("exit_41", "{}"), &[], "not_authenticated", 4);
    verdict(&User::with_fault("empty_answer", "{}"), &[], "empty", 6);
    verdict(
        &User::with_fault("many_tools", r#"{"count":50}"#),
        &["--max-tool-calls", "5"],
        "limit_reached",
        7,
    );
    verdict(&User::with_fault("hang_after_init", "{}"), &["--idle-timeout", "1"], "timed_out", 8);
    verdict(&User::with_fault("exit_55", "{}"), &[], "untrusted", 11);
    let retries = User::with_fault("retries_forever", r#"{"interval_ms":100}"#);
    verdict(&retries.env("AGENTLINE_RETRY_PATIENCE", "1"), &[], "rate_limited", 9);
}

#[cfg(unix)]
#[test]
fn denied_tools_are_reported_and_change_the_exit_code() {
    let user = User::with_script(
        r#"cat <<'END'
{"type":"init","session_id":"s","model":"m"}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"t1","parameters":{"command":"rm -rf x"}}
{"type":"tool_result","tool_id":"t1","status":"error","error":{"type":"policy_violation","message":"denied by policy"}}
{"type":"message","role":"assistant","content":"I could not.","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":10,"input_tokens":6,"output_tokens":4}}
END"#,
    );
    verdict(&user, &[], "done_with_denials", 5);
    let done = user.agentline(&["run", "hi"]);
    assert_eq!((done.out.as_str(), done.code), ("I could not.\n", 5));
    assert!(done.err.contains("denied tools: Bash") && done.err.contains("--allow"), "{}", done.err);
}

#[test]
fn failure_is_reported_once_with_a_hint() {
    let done = User::with_fault("exit_41", "{}").agentline(&["run", "hi"]);
    assert_eq!((done.out.as_str(), done.code), ("", 4));
    assert_eq!(done.err.matches("error:").count(), 1, "{}", done.err);
    assert!(done.err.contains("(not_authenticated)") && done.err.contains("hint:"), "{}", done.err);
}

#[test]
fn prompt_is_read_from_the_argument_or_stdin() {
    let sent = |user: &User| {
        let tape = user.read("tape");
        let line = tape.lines().find(|line| line.contains(r#""ch":"in""#)).unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["text"].as_str().unwrap().to_owned()
    };
    let user = User::new();
    assert_eq!(user.agentline(&["run", "--record", "tape", "-q", "typed"]).code, 0);
    assert_eq!(sent(&user), "typed");
    for args in [&["run", "--record", "tape"][..], &["run", "--record", "tape", "-"]] {
        let done = user.agentline_with_input(args, "piped ü\nsecond line\n".as_bytes());
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(sent(&user), "piped ü\nsecond line\n");
    }
    // If a prompt is given, an endless standard input is not awaited.
    let mut child = user.start(&["run", "--record", "tape", "typed"]);
    let stdin = child.stdin.take();
    assert_eq!(exit_of(&mut child, "the end of a run whose standard input stays open").code(), Some(0));
    drop(stdin);
    assert_eq!(sent(&user), "typed");
}

#[test]
fn verbose_output_shows_the_command_and_withheld_variables() {
    let user = User::new().env("MY_DATABASE", "x").env("FAKE_AGENT_FAULT", "secret_in_text");
    let done = user.agentline(&["run", "-v", "hi"]);
    assert!(done.err.contains("command: ") && done.err.contains("stream-json"), "{}", done.err);
    assert!(done.err.contains("withheld variables: ") && done.err.contains("MY_DATABASE"), "{}", done.err);
    assert!(!done.err.contains(KEY) && !done.out.contains(KEY), "{}{}", done.out, done.err);
    assert!(done.out.contains("The key is"), "{}", done.out);
    let done = user.agentline(&["run", "hi"]);
    assert!(!done.err.contains("command: ") && !done.err.contains("MY_DATABASE"), "{}", done.err);
}

#[test]
fn settings_are_layered_and_flags_win() {
    let user = User::new();
    let model = |user: &User, args: &[&str]| {
        let all: Vec<&str> = ["run", "-o", "json", "hi"].iter().chain(args).copied().collect();
        user.agentline(&all).json()["model"].as_str().unwrap_or_default().to_owned()
    };
    user.write("../home/.config/agentline/config.toml", "model = 'of-the-user'\nmodle = 'x'\n");
    assert_eq!(model(&user, &[]), "of-the-user");
    user.write("agentline.toml", "model = 'of-the-workspace'\n");
    assert_eq!(model(&user, &[]), "of-the-workspace");
    let user = user.env("AGENTLINE_MODEL", "of-the-environment");
    assert_eq!(model(&user, &[]), "of-the-environment");
    assert_eq!(model(&user, &["-m", "of-the-flag"]), "of-the-flag");
    let done = user.agentline(&["run", "hi"]);
    assert!(done.err.contains("`modle`") && done.err.contains("did you mean `model`?"), "{}", done.err);
    assert_eq!(user.agentline(&["run", "-q", "hi"]).err, "");
}

#[test]
fn agent_settings_apply_to_its_runs() {
    let user = User::new().env("GEMINI_CLI_PATH", "");
    let program = env!("CARGO_BIN_EXE_fake-gemini");
    user.write(
        "../home/.config/agentline/config.toml",
        &format!("[agents.gemini]\nprogram = '{program}'\nenv = {{ FAKE_AGENT_FAULT = 'exit_55' }}\n"),
    );
    assert_eq!(user.agentline(&["run", "hi"]).code, 11);
    assert_eq!(user.agentline(&["run", "--env", "FAKE_AGENT_FAULT=ok", "hi"]).code, 0);
}

#[test]
fn workspace_cannot_set_the_program_to_start() {
    let user = User::new().env("GEMINI_CLI_PATH", "").env("PATH", "/nowhere");
    let program = env!("CARGO_BIN_EXE_fake-gemini");
    user.write("agentline.toml", &format!("[agents.gemini]\nprogram = '{program}'\n"));
    let done = user.agentline(&["run", "hi"]);
    assert!(done.code == 3 && done.err.contains("agentline.toml"), "{}", done.err);
}

#[cfg(unix)]
fn user_with_answer(answer: &str) -> User {
    let text = serde_json::to_string(answer).unwrap();
    User::with_script(&format!(
        r#"cat <<'END'
{{"type":"init","session_id":"s","model":"m"}}
{{"type":"message","role":"assistant","content":{text},"delta":true}}
{{"type":"result","status":"success","stats":{{"total_tokens":10,"input_tokens":6,"output_tokens":4}}}}
END"#
    ))
}

#[test]
#[cfg(unix)]
fn json_in_an_answer_is_printed_alone() {
    let answer = "Here you are:\n```json\n{\"b\":  1.50, \"a\": [2]}\n```\nAnything else?";
    let user = user_with_answer(answer);
    let done = user.agentline(&["run", "--extract-json", "hi"]);
    assert_eq!((done.out.as_str(), done.code), ("{\"b\":  1.50, \"a\": [2]}\n", 0), "{}", done.err);
    let outcome = user.agentline(&["run", "--extract-json", "-o", "json", "hi"]).json();
    assert_eq!((&outcome["output"]["a"][0], &outcome["text"]), (&2.into(), &answer.into()));
    let result = user.agentline(&["run", "--extract-json", "-o", "claude", "hi"]).lines().pop().unwrap();
    assert_eq!(result["structured_output"]["a"][0], 2);
    assert_eq!(user.agentline(&["run", "hi"]).out, format!("{answer}\n"), "only on request");
}

#[test]
#[cfg(unix)]
fn an_answer_without_json_is_invalid() {
    let done = user_with_answer("I have {none}.").agentline(&["run", "--extract-json", "hi"]);
    assert_eq!((done.out.as_str(), done.code), ("", 10));
    assert!(done.err.contains("the answer contains no JSON value"), "{}", done.err);
    assert!(done.err.contains("ask for JSON"), "{}", done.err);
}
