//! Checks that no spelling of a denied command or path evades its rule.

mod generated;

use agentline::{
    PermissionMode as Mode, PermissionRequest, Policy, RunRequest, Surface, ToolKind, ToolStatus, Verdict,
};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{RunRecord, TestStage, needs_real_gemini};
use generated::Numbers;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// Spellings of one denied command, collected from attacks.
const SPELLINGS: &str = include_str!("../../../../agentline-core/tests/data/spellings.json");

#[derive(serde::Deserialize)]
struct Spelling {
    name: String,
    command: String,
    /// Whether the command runs `rm` at all. A rule about `rm` does not cover other ways to delete.
    runs_rm: bool,
}

/// Returns the result of each call of a turn, by its number.
fn ends(record: &RunRecord) -> BTreeMap<usize, ToolStatus> {
    let number = |id: &str| id.rsplit('_').next().and_then(|number| number.parse().ok());
    let of = |record: &agentline::Record| match &record.event {
        agentline::Event::ToolResult(result) => Some((number(&result.tool_use_id)?, result.status)),
        _ => None,
    };
    record.records.iter().filter_map(of).collect()
}

fn shell(command: &str) -> (&'static str, Value) {
    ("run_shell_command", json!({"command": command, "description": "d"}))
}

/// Runs all spellings in one turn of the real agent. Each has its own victim, so that a deleted one is found.
#[tokio::test]
async fn no_spelling_of_a_denied_command_runs_in_gemini() {
    needs_real_gemini!();
    let spellings: Vec<Spelling> = serde_json::from_str(SPELLINGS).unwrap();
    let of = |at: usize| format!("victim{at}");
    // A few allowed commands run as well, to show that commands run at all.
    let calls = spellings.iter().enumerate().map(|(at, s)| shell(&s.command.replace("victim", &of(at))));
    let calls = calls.chain([shell("echo one"), shell("touch made")]);
    let stage = TestStage::new(Script::new([GeminiStep::calls(calls), GeminiStep::text("said")]));
    for at in 0..spellings.len() {
        stage.file(&of(at), "x");
    }
    let request = stage.request("go").permission_mode(Mode::Bypass).deny("Bash(rm *)");
    let record = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    assert_eq!(record.outcome.surface, Some(Surface::Acp), "{}", record.shown());
    assert_eq!(record.outcome.verdict, Verdict::DoneWithDenials, "{}", record.shown());
    let ends = ends(&record);
    for (at, spelling) in spellings.iter().enumerate().filter(|(_, spelling)| spelling.runs_rm) {
        assert!(stage.read(&of(at)).is_some(), "{} deleted its file\n{}", spelling.name, record.shown());
        assert_eq!(ends.get(&at), Some(&ToolStatus::Denied), "{}\n{}", spelling.name, record.shown());
    }
    let tail = [spellings.len(), spellings.len() + 1].map(|at| ends.get(&at).copied());
    assert_eq!(tail, [Some(ToolStatus::Ok); 2], "{}", record.shown());
    assert!(stage.read("made").is_some(), "{}", record.shown());
    let reasons = |reason: &str| record.outcome.denied.iter().filter(|d| d.reason == reason).count();
    assert!(reasons("rule") >= 25 && reasons("undeterminable_command") >= 8, "{:#?}", record.outcome.denied);
    assert!(record.outcome.denied.iter().all(|denial| denial.rule.as_deref() == Some("Bash(rm *)")));
}

/// Commands that the agent considers harmless also need permission, in every spelling, and so do reads.
#[tokio::test]
async fn rules_apply_to_actions_gemini_does_not_ask_about() {
    needs_real_gemini!();
    let read = |path: &str| ("read_file", json!({"file_path": path}));
    let write = |path: &str| ("write_file", json!({"file_path": path, "content": "new"}));
    let cases: Vec<((&str, Value), ToolStatus)> = vec![
        (shell("echo refused"), ToolStatus::Denied),
        (shell("'echo' refused"), ToolStatus::Denied),
        (shell("cat open.txt"), ToolStatus::Ok),
        (read("open.txt"), ToolStatus::Ok),
        (read("secret/key.txt"), ToolStatus::Denied),
        (read("./secret/../secret/key.txt"), ToolStatus::Denied),
        (read("way-in/key.txt"), ToolStatus::Denied),
        (read("alias.txt"), ToolStatus::Denied),
        (read("/proc/self/cwd/secret/key.txt"), ToolStatus::Denied),
        (write("/proc/self/cwd/src/proc.txt"), ToolStatus::Ok),
        (write("/proc/self/cwd/other.txt"), ToolStatus::Denied),
        (write("src/made.txt"), ToolStatus::Ok),
        (write("other.txt"), ToolStatus::Denied),
        (write("src/way-out/made.txt"), ToolStatus::Denied),
        (write("src/hard.txt"), ToolStatus::Denied),
        (write("src/../other.txt"), ToolStatus::Denied),
    ];
    let stage = TestStage::new(Script::new([
        GeminiStep::calls(cases.iter().map(|(call, _)| call.clone())),
        GeminiStep::text("said"),
    ]));
    let at = |path: &str| stage.workspace().join(path);
    for path in ["open.txt", "secret/key.txt", "src/here.txt", "elsewhere/here.txt", "precious.txt"] {
        stage.file(path, "old");
    }
    symlink(at("secret"), at("way-in")).unwrap();
    symlink(at("elsewhere"), at("src/way-out")).unwrap();
    fs::hard_link(at("secret/key.txt"), at("alias.txt")).unwrap();
    fs::hard_link(at("precious.txt"), at("src/hard.txt")).unwrap();
    let request = stage.request("go").permission_mode(Mode::Default).allow("Write(src/**)");
    let request =
        request.deny("Read(secret/**)").deny("Bash(echo *)").allow("Bash(cat *)").allow("Read(open.txt)");
    let record = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    let ends = ends(&record);
    for (at, (call, status)) in cases.iter().enumerate() {
        assert_eq!(ends.get(&at), Some(status), "{call:?}\n{}", record.shown());
    }
    for path in ["precious.txt", "secret/key.txt"] {
        assert_eq!(stage.read(path).as_deref(), Some("old"), "{path}");
    }
    assert!(stage.read("elsewhere/made.txt").is_none() && stage.read("other.txt").is_none());
}

/// Rules that an agent cannot enforce start nothing: the exit code is 2, and the message names the rule, its source and
/// a hint.
#[test]
fn unenforceable_rule_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join(".config/agentline");
    fs::create_dir_all(&config).unwrap();
    let program = env!("CARGO_BIN_EXE_fake-acp");
    fs::write(config.join("config.toml"), format!("[agents.mine]\ncommand = {program:?}\n")).unwrap();
    for (agent, surface, mode, key, rule) in [
        ("gemini", "stream-json", "bypass", "deny", "Bash(rm *)"),
        ("gemini", "json", "bypass", "deny", "Read(secret/**)"),
        ("gemini", "stream-json", "default", "allow", "Write(src/**)"),
        ("claude", "auto", "auto", "deny", "Grep(secret/**)"),
        ("claude", "auto", "auto", "deny", "*"),
        ("codex", "acp", "bypass", "deny", "Bash(rm *)"),
        ("codex", "acp", "bypass", "deny", "Write(src/**)"),
        ("codex", "acp", "auto", "deny", "Bash(rm *)"),
        ("codex", "acp", "default", "deny", "Bash"),
        ("codex", "auto", "default", "ask", "Read"),
        ("codex", "stream-json", "default", "deny", "Write"),
        ("codex", "acp", "default", "deny", "mcp__notes__look"),
        ("opencode", "auto", "auto", "deny", "Read(secret/**)"),
        ("opencode", "auto", "auto", "deny", "*"),
        ("opencode", "auto", "auto", "ask", "Bash(cd *)"),
        ("mine", "auto", "auto", "deny", "Bash(rm *)"),
        ("mine", "auto", "default", "ask", "Write"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(["run", "-a", agent, "--surface", surface, "--permission-mode", mode])
            .args([&format!("--{key}"), rule, "go"])
            .env_clear()
            .env("HOME", dir.path())
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{agent} {rule}: {error}");
        for word in [&format!("`{rule}`"), key, "cannot be enforced", "hint:"] {
            assert!(error.contains(word), "{agent} {rule}: {word} is missing in {error}");
        }
    }
}

/// Creates a directory with a program called `rm` that only leaves a mark, for commands that name nothing outside of
/// it.
fn temp_workspace() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("agentline-rules-").tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    fs::write(at("bin/rm"), format!("#!/bin/sh\n: > {}\n", at("marker").display())).unwrap();
    fs::set_permissions(at("bin/rm"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("names"), "victim\n").unwrap();
    fs::write(at("names0"), "victim\0").unwrap();
    dir
}

/// Runs a command in bash and returns whether the program `rm` ran.
fn runs_rm(command: &str, dir: &Path) -> bool {
    fs::write(dir.join("victim"), "x").unwrap();
    let marker = dir.join("marker");
    let _ = fs::remove_file(&marker);
    let status = Command::new("timeout")
        .args(["-k", "1", "5", "bash", "-c", command])
        .current_dir(dir)
        .env_clear()
        .env("PATH", format!("{}/bin:/usr/bin:/bin", dir.display()))
        .env("HOME", dir)
        .envs([("R", "rm"), ("RR", "R"), ("V", "victim")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("bash and timeout are available");
    marker.exists()
}

/// Searches for unknown spellings: whatever runs `rm` in bash must be denied. `AGENTLINE_RULES_SEED` and
/// `AGENTLINE_RULES_COUNT` select others and more of them.
#[test]
fn no_generated_command_running_a_denied_program_is_allowed() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let mut numbers = Numbers::new(number("AGENTLINE_RULES_SEED", 1));
    let dir = temp_workspace();
    let request = RunRequest::new("x").permission_mode(Mode::Bypass).deny("Bash(rm *)");
    let policy = Policy::new(&request, dir.path()).unwrap();
    let (mut ran, count) = (0, number("AGENTLINE_RULES_COUNT", 400));
    for _ in 0..count {
        let command = generated::command(&mut numbers);
        let mut ask = PermissionRequest::default();
        (ask.tool, ask.kind, ask.command) = ("Bash".into(), ToolKind::Shell, Some(command.clone()));
        let refused = policy.decide(&ask, &|path| policy.resolve(path)).name() == "deny";
        let runs = runs_rm(&command, dir.path());
        assert!(refused || !runs, "{command:?} runs `rm` and is allowed");
        ran += u64::from(runs);
    }
    assert!(ran * 2 > count, "only {ran} of {count} commands ran anything");
}
