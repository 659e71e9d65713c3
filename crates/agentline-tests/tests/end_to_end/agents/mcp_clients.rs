//! The real agents as clients of `agentline mcp`: each starts another agent and gets its answer and files.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{McpServer, PermissionMode, RunRequest, Verdict};
use agentline_mock::answer::{Action, Answer};
use agentline_tests::{ScriptedStage, shown, skipped, wait_until};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");
/// The mark of the outer agent's prompt.
const OUTER: &str = "[outer]";
/// The answer of the inner agent.
const ANSWER: &str = "kumquat from within";

/// The agent that the outer one starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inner {
    /// The same real agent with the same model.
    Same,
    /// The fake agent.
    Fake,
}

/// Creates the environment of an agent that makes these tool calls, one by one, and then answers. As the inner agent,
/// it writes a file.
fn stage(id: &str, calls: Vec<(&'static str, Value)>) -> Option<ScriptedStage> {
    let file = Arc::new(OnceLock::<String>::new());
    let written = Arc::clone(&file);
    let stage = ScriptedStage::new(id, move |request| {
        let done = request.tool_results.len();
        if request.user_texts.iter().any(|text| text.contains(OUTER)) {
            return match calls.get(done) {
                Some((tool, args)) => Answer::using(Action::mcp("agents", *tool, args.clone())),
                None => Answer::text("The other agent is done."),
            };
        }
        match (done, written.get()) {
            (0, Some(path)) => Answer::using(Action::write(path, "made\n")),
            _ => Answer::text(ANSWER),
        }
    })?;
    // Paths of tools are absolute, and the workspace is known only now.
    file.set(stage.workspace().join("made.txt").to_string_lossy().into_owned()).unwrap();
    Some(stage)
}

/// Returns the server for the agents of this stage.
fn server(stage: &ScriptedStage, inner: Inner) -> McpServer {
    let mut env: BTreeMap<String, String> = stage
        .command(Path::new("true"))
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())))
        .collect();
    let mut args: Vec<String> = vec!["mcp".into(), "--permission-mode".into(), "bypass".into()];
    if inner == Inner::Fake {
        let fake = [
            ("GEMINI_CLI_PATH", FAKE),
            ("GEMINI_API_KEY", "no-key-of-anything"),
            ("AGENTLINE_SURFACE", "acp"),
            ("AGENTLINE_QUIET_PERIOD_MS", "0"),
        ];
        env.extend(fake.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    args.extend(["--root".to_owned(), stage.workspace().to_string_lossy().into_owned()]);
    McpServer::Command { command: PROGRAM.into(), args, env }
}

fn request(stage: &ScriptedStage, server: McpServer) -> RunRequest {
    let mut request = RunRequest::new(format!("{OUTER} Let another agent do it."))
        .agent(stage.agent.id)
        .permission_mode(PermissionMode::Bypass)
        .working_dir(stage.workspace())
        .timeout(Duration::from_secs(240))
        .mcp_server("agents", server);
    request.model = stage.agent.model.map(str::to_owned);
    request
}

/// Returns the arguments with which the inner agent writes a file and answers.
fn inner_task(id: &str, inner: Inner) -> Value {
    match inner {
        Inner::Same => json!({"agent": id, "prompt": "Please write the file."}),
        Inner::Fake => {
            json!({"agent": "gemini", "prompt": format!("tool write_file made.txt made\nsay {ANSWER}")})
        }
    }
}

/// The calls with which a client runs an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Run,
    StartAndWait,
}

/// Runs a real agent that starts another one, and checks what it gets.
async fn starts_another(id: &'static str, inner: Inner, calls: Calls) {
    let task = inner_task(id, inner);
    let calls = match calls {
        Calls::Run => vec![("agent_run", task)],
        Calls::StartAndWait => vec![("agent_start", task), ("agent_wait", json!({"run": "run-1"}))],
    };
    let Some(stage) = stage(id, calls) else { return skipped(id) };
    let request = request(&stage, server(&stage, inner));
    let run = stage.agentline().run(request).await.unwrap();
    let outcome = run.outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    assert_eq!(outcome.text, "The other agent is done.", "{}", shown(&outcome));
    let made = fs::read_to_string(stage.workspace().join("made.txt")).unwrap_or_default();
    assert_eq!(made.trim(), "made", "{}", shown(&outcome));
    assert!(outcome.files.iter().any(|file| file.path == "made.txt"), "{}", shown(&outcome));
    let log = stage.model.log();
    let mut results = log.iter().flat_map(|request| &request.tool_results);
    let reached = results.any(|result| result.contains(ANSWER) && result.contains("made.txt"));
    assert!(reached, "{:#?}", log.iter().map(|request| &request.tool_results).collect::<Vec<_>>());
    wait_until("the end of all processes", || stage.living().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_starts_another_agent() {
    starts_another("gemini", Inner::Same, Calls::Run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_starts_another_agent() {
    starts_another("claude", Inner::Fake, Calls::StartAndWait).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_starts_another_agent() {
    starts_another("codex", Inner::Fake, Calls::Run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_starts_another_agent() {
    starts_another("opencode", Inner::Fake, Calls::Run).await;
}
