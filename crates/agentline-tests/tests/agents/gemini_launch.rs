//! Tests a launch of the real Gemini CLI: prompts, settings, sign-in, servers, sessions and the user's home.

use agentline::{FailureKind, McpServer, Outcome, PermissionMode, RunRequest, Surface, Trust, Verdict};
use agentline_core::SystemMode;
use agentline_mock::gemini::{FAKE_KEY, GeminiStep, SETTINGS, Script};
use agentline_tests::{TestStage, needs_real_gemini, real_gemini};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
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
    for prompt in [
        "plain\r\n\ttext \"\"\" ''' \\n é 💩 \u{7f}\u{1b}[31m\n\n",
        "/init",
        "look at @a.txt and write to bob@example.com, \\@a.txt\n",
        "/a {{args}} !{touch pwned} @{a.txt} @{ open",
    ] {
        let surface = if prompt.starts_with("look") { Surface::Json } else { Surface::StreamJson };
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
    const LONG: usize = 3_000_000;
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
    fs::write(&outside, "/from outside").unwrap();
    let _ = stage.outcome(stage.request("").prompt_file(&outside));
    assert_eq!(last_request_text(&stage), "/from outside");
}

#[test]
fn system_prompt_is_prepended_or_replaces_the_agents_own() {
    needs_real_gemini!();
    let stage = answering();
    let _ = stage.outcome(stage.request("do it").system_prompt("be brief"));
    assert_eq!(last_request_text(&stage), "be brief\n\ndo it");
    assert!(stage.model.requests_to_main()[0].system_text().contains("Gemini CLI"));
    let request = stage.request("do it").system_prompt("You are a clock.").system_mode(SystemMode::Replace);
    let _ = stage.outcome(request);
    let system = stage.model.requests_to_main()[1].system_text();
    assert!(system.starts_with("You are a clock.") && !system.contains("Core Mandates"), "{system:.300}");
    assert_eq!(last_request_text(&stage), "do it");
}

#[test]
fn request_key_is_used_and_the_user_settings_stay_unchanged() {
    needs_real_gemini!();
    let stage = answering();
    stage.settings(r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#);
    let outcome = stage.outcome(stage.request("hi").api_key("key-of-the-request"));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    assert_eq!(stage.model.requests_to_main()[0].headers["x-goog-api-key"], "key-of-the-request");
    stage.settings("{}");
    let outcome = stage.outcome(stage.request("hi"));
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
    stage.settings(&format!("// mine\n{SETTINGS} /* yes */"));
    assert_eq!(stage.outcome(stage.request("hi")).verdict, Verdict::Done);
}

/// An MCP server with one tool, in the language of the agent's runtime.
const SERVER: &str = r#"
const say = m => process.stdout.write(JSON.stringify(m) + "\n");
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = {
    "initialize": { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" } },
    "tools/list": { tools: [{ name: "shout", description: "d", inputSchema: { type: "object", properties: {} } }] },
    "tools/call": { content: [{ type: "text", text: "HEY " + process.env.SRV_TOKEN + " " + process.argv[2] }] },
  }[method] ?? {};
  say({ jsonrpc: "2.0", id, result });
});
"#;

#[test]
fn given_servers_work_in_default_mode_and_their_secrets_are_redacted() {
    needs_real_gemini!();
    let script = Script::new([GeminiStep::call("mcp_srv_shout", json!({})), GeminiStep::text("done")]);
    let stage = TestStage::new(script);
    let path = stage.outside().join("server.js");
    fs::write(&path, SERVER).unwrap();
    stage.settings(&format!(r#"{{"mcp":{{"allowed":["other"]}},{}"#, SETTINGS.trim_start_matches('{')));
    let server = McpServer::Command {
        command: "node".into(),
        args: vec![path.to_string_lossy().into_owned(), "loud".into()],
        env: [("SRV_TOKEN".to_owned(), "token-of-the-server".to_owned())].into(),
    };
    let request = stage.request("go").permission_mode(PermissionMode::Default).mcp_server("srv", server);
    let (records, outcome) = stage.play(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    let response = stage.model.requests_to_main()[1].tool_responses()[0].1.to_string();
    assert!(response.contains("HEY token-of-the-server loud"), "{response}");
    let seen = format!("{}{}", serde_json::to_string(&records).unwrap(), to_json(&outcome));
    assert!(seen.contains("HEY [redacted] loud") && !seen.contains("token-of-the-server"), "{seen}");
}

#[test]
fn agent_sees_only_allow_listed_variables() {
    needs_real_gemini!();
    let command = json!({"command": "env", "description": "d"});
    let stage = TestStage::new(Script::new([
        GeminiStep::call("run_shell_command", command),
        GeminiStep::text("done"),
    ]))
    .env("WITHHELD", Some("no"))
    .env("PASSED", Some("yes"))
    .env("LC_ALL", Some("C"));
    let request = stage.request("go").pass_env("PASSED").env("ADDED_TOKEN", "token-that-was-added");
    let (records, outcome) = stage.play(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    let printed = stage.model.requests_to_main()[1].tool_responses()[0].1.to_string();
    assert!(printed.contains("PASSED=yes") && printed.contains("LC_ALL=C"), "{printed}");
    assert!(printed.contains("ADDED_TOKEN=token-that-was-added"), "{printed}");
    assert!(!printed.contains("WITHHELD"), "{printed}");
    let seen = format!("{}{}", serde_json::to_string(&records).unwrap(), to_json(&outcome));
    assert!(!seen.contains("token-that-was-added") && !seen.contains(FAKE_KEY), "{seen}");
}

#[test]
fn workspace_settings_need_full_trust() {
    needs_real_gemini!();
    let stage = answering();
    stage.file(".gemini/settings.json", r#"{"tools":{"exclude":["glob"]}}"#);
    let offers_glob = |trust| {
        let outcome = stage.outcome(stage.request("hi").trust(trust));
        let offered = stage.model.requests_to_main().pop().map(|r| r.offered_tools());
        (outcome.verdict, offered.is_some_and(|tools| tools.contains(&"glob".to_owned())))
    };
    assert_eq!(offers_glob(Trust::Run), (Verdict::Done, true));
    assert_eq!(offers_glob(Trust::Full), (Verdict::Done, false));
    let before = stage.model.requests().len();
    assert_eq!(stage.outcome(stage.request("hi").trust(Trust::No)).verdict, Verdict::Untrusted);
    assert_eq!(stage.model.requests().len(), before, "no request was sent");
}

#[test]
fn user_home_is_not_changed() {
    needs_real_gemini!();
    let stage = answering();
    let gemini = stage.home().join(".gemini");
    let settings = "{\n  // mine\n  \"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}, \"general\":{\"maxAttempts\":9}\n}";
    stage.settings(settings);
    fs::write(gemini.join("GEMINI.md"), "The user likes short words.").unwrap();
    fs::create_dir_all(gemini.join("commands")).unwrap();
    fs::write(gemini.join("commands/mine.toml"), "prompt = \"do mine\"").unwrap();
    let outcome = stage.outcome(stage.request("hello"));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    let request = &stage.model.requests_to_main()[0];
    assert!(request.body.to_string().contains("The user likes short words."), "memory is read");

    assert_eq!(fs::read_to_string(gemini.join("settings.json")).unwrap(), settings, "settings are unchanged");
    assert!(gemini.join("installation_id").is_file(), "files of a run without agentline are kept");
    let session = outcome.session_id.unwrap();
    let files = session_files(&stage, &session);
    assert_eq!(files.len(), 1, "the session is in the user's store");
    let leftover: Vec<PathBuf> = walk(&stage.home()).into_iter().filter(|p| p.is_symlink()).collect();
    assert!(leftover.is_empty(), "a link of agentline remains: {leftover:?}");

    // The user's own commands exist next to the one that carries a prompt.
    let _ = stage.outcome(stage.request("/mine").file_references(true));
    assert_eq!(last_request_text(&stage), "do mine");
    let bare = start_without_agentline(&stage, &["--resume", "latest"], "and now?");
    assert!(bare.status.success(), "{bare:?}");
    assert!(stage.model.requests_to_main().last().unwrap().user_texts().concat().contains("do mine"));
}

/// Over ACP, loading a session in the minute of its file would damage it, so that run waits until the minute is over.
/// `acp_gemini::resume` resumes an older session over ACP.
#[test]
fn resumed_sessions_are_complete_after_two_normal_starts() {
    needs_real_gemini!();
    let stage = answering();
    let cases = [
        ("4711", Surface::StreamJson, true),
        ("4712", Surface::StreamJson, false),
        ("4713", Surface::Acp, true),
    ];
    let sessions = cases.map(|(number, surface, same_minute)| {
        let first = stage.outcome(stage.request(&format!("remember the number {number}")));
        let session = first.session_id.clone().unwrap();
        if !same_minute {
            make_older(&stage, &session);
        }
        let request = stage.request("which number was it?").resume(&session[..8]).surface(surface);
        let again = stage.outcome(request);
        assert_eq!((again.verdict, again.text.is_empty()), (Verdict::Done, false), "{}", to_json(&again));
        assert_eq!(again.session_id.as_deref(), Some(session.as_str()));
        let texts = stage.model.requests_to_main().last().unwrap().user_texts().concat();
        assert!(texts.contains(number) && texts.contains("which number"), "{texts}");
        if surface == Surface::Acp {
            assert_eq!(session_files(&stage, &session).len(), 1, "no empty duplicate remains");
        }
        session
    });
    for _ in 0..2 {
        let start = start_without_agentline(&stage, &[], "an ordinary start");
        assert!(start.status.success(), "{start:?}");
    }
    for ((number, surface, same_minute), session) in cases.iter().zip(&sessions) {
        let files = session_files(&stage, session);
        let stored: String = files.iter().map(|f| fs::read_to_string(f).unwrap()).collect();
        assert!(
            stored.contains(number) && stored.contains("which number"),
            "{surface} {same_minute}: {files:?} {stored}"
        );
        if *surface == Surface::StreamJson {
            let latest = stage.outcome(stage.request("once more").resume(session));
            assert_eq!(latest.verdict, Verdict::Done, "{}", to_json(&latest));
            let texts = stage.model.requests_to_main().last().unwrap().user_texts().concat();
            assert!(texts.contains(number), "{texts}");
        }
    }
}

#[test]
fn latest_session_is_found_and_unknown_or_used_ids_start_nothing() {
    needs_real_gemini!();
    let stage = answering();
    let refused = |key: &str, request: RunRequest| {
        let error = agentline::blocking::run(&stage.agentline(), request, |_, _| {}).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    };
    refused("`resume`", stage.request("x").resume("latest"));
    let chosen = "aaaaaaaa-1111-4111-8111-111111111111";
    let first = stage.outcome(stage.request("first").session_id(chosen));
    assert_eq!(first.session_id.as_deref(), Some(chosen));
    refused("`session_id`", stage.request("x").session_id(chosen));
    let second = stage.outcome(stage.request("second"));
    let latest = stage.outcome(stage.request("third").resume("latest"));
    assert_eq!(latest.session_id, second.session_id);
    refused("`resume`", stage.request("x").resume("ffffffff"));
    assert_eq!(stage.model.requests_to_main().len(), 3);
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
    let all = walk(&stage.home().join(".gemini/tmp"));
    all.into_iter().filter(|p| p.to_string_lossy().ends_with(&ending)).collect()
}

/// Renames a session's file so that the session seems to have started in an earlier minute.
fn make_older(stage: &TestStage, session: &str) {
    let file = session_files(stage, session).remove(0);
    fs::rename(&file, file.with_file_name(format!("session-2026-01-01T00-00-{}.jsonl", &session[..8])))
        .expect("the file can be renamed");
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        }
        found.push(path);
    }
    found
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
    let left: Vec<String> = walk(temporary.path()).iter().map(|p| p.display().to_string()).collect();
    assert!(left.iter().all(|p| !p.contains("agentline-")), "{left:?}");
}
