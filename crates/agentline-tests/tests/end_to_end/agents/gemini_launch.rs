//! Tests a launch of the real Gemini CLI: prompts, settings, sign-in and the user's home.

use agentline::{FailureKind, Outcome, PermissionMode, Surface, Trust, Verdict};
use agentline_core::SystemMode;
use agentline_mock::gemini::{FAKE_KEY, GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, paths_below, real_gemini};
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

fn answering() -> TestStage {
    TestStage::new(Script::always(GeminiStep::text("ok")))
}

/// Returns the text of the latest model request, without the agent's own context.
fn last_request_text(stage: &TestStage) -> String {
    let requests = stage.model.requests_to_main();
    let texts = requests.last().expect("a request").user_texts();
    assert!(texts[0].starts_with("<session_context>"), "{texts:?}");
    texts[1..].concat()
}

fn to_json(outcome: &Outcome) -> String {
    serde_json::to_string_pretty(outcome).expect("an outcome is JSON")
}

#[test]
fn prompts_are_delivered_byte_for_byte() {
    needs_real_gemini!();
    let stage = answering();
    stage.file("a.txt", "content of a");
    for (prompt, surface) in [
        ("plain\r\n\ttext \"\"\" ''' \\n é 💩 \u{7f}\u{1b}[31m\n\n", Surface::StreamJson),
        (
            "/init {{args}} !{touch pwned} @{a.txt} @{ open @a.txt and bob@example.com, \\@a.txt\n",
            Surface::Json,
        ),
    ] {
        let outcome = stage.outcome(stage.request(prompt).surface(surface));
        assert_eq!(outcome.verdict, Verdict::Done, "{prompt:.80}: {}", to_json(&outcome));
        assert!(last_request_text(&stage) == prompt, "{prompt:.80}: {:.300}", last_request_text(&stage));
    }
    assert_eq!(stage.read("pwned"), None);
    assert_eq!(stage.read("GEMINI.md"), None, "`/init` was not executed");
    let _ = stage.outcome(stage.request("see @a.txt").file_references(true));
    assert!(last_request_text(&stage).contains("content of a"), "{}", last_request_text(&stage));
}

#[test]
fn long_prompt_is_delivered_and_an_oversized_one_starts_nothing() {
    needs_real_gemini!();
    // This is the limit of the CLI. A model's context window is much smaller, which the CLI detects itself.
    const LONGEST: usize = 8 << 20;
    const LONG: usize = 1_500_000;
    let stage = answering();
    stage.file("a.txt", "not to be sent");
    for (surface, begin) in [(Surface::StreamJson, "plain é\n"), (Surface::Json, "/x @a.txt ")] {
        let prompt = format!("{begin}{}@a.txt\n", "y".repeat(LONG - begin.len()));
        let outcome = stage.outcome(stage.request(&prompt).surface(surface));
        assert_eq!(outcome.verdict, Verdict::Done, "{surface}: {}", to_json(&outcome));
        assert!(
            last_request_text(&stage) == prompt,
            "{surface}: {} bytes of {LONG}",
            last_request_text(&stage).len()
        );
    }
    let before = stage.model.requests().len();
    let full = stage.outcome(stage.request(&"y".repeat(LONGEST)));
    assert_eq!(full.error.as_ref().unwrap().kind, FailureKind::ContextOverflow, "{}", to_json(&full));
    stage.file("long.md", &"y".repeat(LONGEST + 1));
    stage.file("empty.md", " \n");
    for (request, word) in [
        (stage.request(&"y".repeat(9_000_000)), "at most 8388608"),
        (stage.request("x").system_prompt("y".repeat(LONGEST)), "at most 8388608"),
        (stage.request("").prompt_file("long.md"), "at most 8388608"),
        (stage.request("").prompt_file("empty.md"), "empty"),
        (stage.request("").prompt_file("missing.md"), "missing.md"),
        (stage.request("a\0b"), "NUL"),
        (stage.request(""), "empty"),
        (stage.request(" \n\t"), "empty"),
    ] {
        let refused = agentline::blocking::run(&stage.agentline(), request, |_, _| {});
        let error = refused.expect_err(word).to_string();
        assert!(error.contains(word) && error.contains("`prompt"), "{word}: {error:.300}");
    }
    assert_eq!(stage.model.requests().len(), before, "nothing was started");
}

#[test]
fn prompt_file_is_read_by_the_agent_or_sent_inline() {
    needs_real_gemini!();
    let read = GeminiStep::call("read_file", json!({"file_path": "sub/p.md"}));
    let stage = TestStage::new(Script::new([read, GeminiStep::text("read")]).repeating_last());
    stage.file("sub/p.md", "the task @here");
    stage.file("kept/secret.md", "the other task");
    stage.file(".gitignore", "kept/\n");
    let request = stage.request("").prompt_file("sub/p.md").permission_mode(PermissionMode::Plan);
    let outcome = stage.outcome(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    let file = stage.workspace().canonicalize().unwrap().join("sub/p.md");
    let requests = stage.model.requests_to_main();
    assert_eq!(requests[0].user_texts()[1..].concat(), format!("Process the prompt in {}", file.display()));
    let responses = requests[1].tool_responses();
    assert!(responses[0].1.to_string().contains("the task"), "{responses:?}");
    let _ = stage.outcome(stage.request("").prompt_file("kept/secret.md"));
    assert_eq!(last_request_text(&stage), "the other task");
    let outside = stage.outside().join("outside.md");
    fs::write(&outside, "/from outside @here").unwrap();
    // A system prompt is prepended.
    let _ = stage.outcome(stage.request("").prompt_file(&outside).system_prompt("be brief"));
    assert_eq!(last_request_text(&stage), "be brief\n\n/from outside @here");
    assert!(stage.model.requests_to_main().last().unwrap().system_text().contains("Gemini CLI"));
}

#[test]
fn request_key_is_used_and_a_system_prompt_can_replace_the_agents_own() {
    needs_real_gemini!();
    let stage = answering();
    stage.settings(r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#);
    let outcome = stage.outcome(stage.request("hi").api_key("key-of-the-request"));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    assert_eq!(stage.model.requests_to_main()[0].headers["x-goog-api-key"], "key-of-the-request");
    stage.settings("{}");
    let request = stage.request("hi").system_prompt("You are a clock.").system_mode(SystemMode::Replace);
    let outcome = stage.outcome(request);
    let system = stage.model.requests_to_main()[1].system_text();
    assert!(system.starts_with("You are a clock.") && !system.contains("Core Mandates"), "{system:.300}");
    assert_eq!(last_request_text(&stage), "hi");
    assert_eq!(
        outcome.verdict,
        Verdict::Done,
        "no method is selected, but there is a key: {}",
        to_json(&outcome)
    );
    assert_eq!(stage.model.requests_to_main()[1].headers["x-goog-api-key"], FAKE_KEY);
}

#[test]
fn invalid_settings_fail_as_without_agentline() {
    needs_real_gemini!();
    let stage = answering();
    stage.settings("{ not json");
    let outcome = stage.outcome(stage.request("hi"));
    assert_eq!(outcome.verdict, Verdict::Failed, "{}", to_json(&outcome));
    assert_eq!(outcome.error.as_ref().unwrap().kind, FailureKind::Settings, "{}", to_json(&outcome));
    assert_eq!(outcome.agent_exit_code, Some(52));
}

#[test]
fn user_home_is_not_changed_and_workspace_settings_need_full_trust() {
    needs_real_gemini!();
    let stage = answering();
    let gemini = stage.home().join(".gemini");
    let settings = "{\n  // mine\n  \"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}, /* yes */ \"general\":{\"maxAttempts\":9}\n}";
    stage.settings(settings);
    fs::write(gemini.join("GEMINI.md"), "The user likes short words.").unwrap();
    fs::create_dir_all(gemini.join("commands")).unwrap();
    fs::write(gemini.join("commands/mine.toml"), "prompt = \"do mine\"").unwrap();
    stage.file(".gemini/settings.json", r#"{"tools":{"exclude":["glob"]}}"#);
    let offers_glob = || {
        let offered = stage.model.requests_to_main().pop().map(|r| r.offered_tools());
        offered.is_some_and(|tools| tools.contains(&"glob".to_owned()))
    };
    let outcome = stage.outcome(stage.request("hello").trust(Trust::Run));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    assert!(offers_glob());
    let request = &stage.model.requests_to_main()[0];
    assert!(request.body.to_string().contains("The user likes short words."), "memory is read");

    assert_eq!(fs::read_to_string(gemini.join("settings.json")).unwrap(), settings, "settings are unchanged");
    assert!(gemini.join("installation_id").is_file(), "files of a run without agentline are kept");
    let session = outcome.session_id.unwrap();
    let files = session_files(&stage, &session);
    assert_eq!(files.len(), 1, "the session is in the user's store");
    let leftover: Vec<PathBuf> = paths_below(&stage.home()).into_iter().filter(|p| p.is_symlink()).collect();
    assert!(leftover.is_empty(), "a link of agentline remains: {leftover:?}");

    // The user's own commands exist next to the one that carries a prompt.
    let _ = stage.outcome(stage.request("/mine").file_references(true).trust(Trust::Full));
    assert_eq!(last_request_text(&stage), "do mine");
    assert!(!offers_glob());
    let bare = start_without_agentline(&stage, &["--resume", "latest"], "and now?");
    assert!(bare.status.success(), "{bare:?}");
    assert!(stage.model.requests_to_main().last().unwrap().user_texts().concat().contains("do mine"));
}

/// Starts the agent as its user does, without agentline.
fn start_without_agentline(stage: &TestStage, args: &[&str], prompt: &str) -> std::process::Output {
    let program = real_gemini().expect("real agents are enabled");
    let mut command = Command::new(program.path);
    command.args(program.args).args(["-m", "gemini-2.5-flash", "--skip-trust", "-p", prompt]).args(args);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_NO_RELAUNCH", "1");
    command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("the agent starts")
}

fn session_files(stage: &TestStage, session: &str) -> Vec<PathBuf> {
    let ending = format!("-{}.jsonl", &session[..8]);
    let all = paths_below(&stage.home().join(".gemini/tmp"));
    all.into_iter().filter(|p| p.to_string_lossy().ends_with(&ending)).collect()
}

#[test]
fn stale_lock_does_not_block_a_run_and_no_private_files_remain() {
    needs_real_gemini!();
    let temporary = tempfile::tempdir().unwrap();
    let stage = answering().env("TMPDIR", Some(&temporary.path().to_string_lossy()));
    let lock = stage.home().join(".gemini/projects.json.lock");
    fs::create_dir_all(&lock).unwrap();
    let request = stage.request("@x").allow("WebFetch").startup_timeout(Duration::from_secs(45));
    let outcome = stage.outcome(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    assert!(lock.exists(), "agentline must not remove it");
    let left: Vec<String> = paths_below(temporary.path()).iter().map(|p| p.display().to_string()).collect();
    assert!(left.iter().all(|p| !p.contains("agentline-")), "{left:?}");
}
