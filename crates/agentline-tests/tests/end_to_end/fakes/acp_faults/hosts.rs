//! Tests misbehaving hosts: a permission handler that panics, never answers or answers late, and a consumer that does
//! not read.

use crate::fakes::acp_faults::stage::{AcpFaultStage, AcpPlayed};
use agentline::{
    Event,
    tools::{Tool, ToolHost},
};
use agentline::{
    FailureKind, Permission, PermissionHandler, PermissionMode, RunOptions, RunRequest, ToolStatus, Verdict,
};
use agentline_tests::{PATIENCE, Watchdog, exit_of, survivors, wait_until};
use std::{
    fs,
    future::pending,
    io::Read,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

const ASK_SCRIPT: &str = "say Before.\nask write_file asked.txt asked\nsay After.";

/// Returns the time this many milliseconds from now, in the format of a request.
async fn decided_by(stage: &AcpFaultStage, request: RunRequest, handler: PermissionHandler) -> AcpPlayed {
    let options = RunOptions::new().permission_handler(handler);
    let request = request.permission_mode(PermissionMode::Default).record(stage.tape());
    let run = stage.agentline().run_with(request, options).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    stage.nothing_runs().await;
    played.equals_its_tape(&stage.tape(), "a permission handler");
    played
}

#[tokio::test]
async fn panicking_permission_handler_denies() {
    let stage = AcpFaultStage::new();
    let handler = PermissionHandler::new(|_| async { std::panic::resume_unwind(Box::new("as planned")) });
    let played = decided_by(&stage, stage.request("", ASK_SCRIPT), handler).await;
    assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::DoneWithDenials, "After."));
    assert_eq!(played.outcome.denied[0].reason, "callback_failed");
    assert!(!stage.workspace().join("asked.txt").exists());
}

#[tokio::test]
async fn hanging_permission_handler_ends_at_the_deadline() {
    let stage = AcpFaultStage::new();
    let handler = PermissionHandler::new(|_| pending::<Permission>());
    let mut request = stage.request("", ASK_SCRIPT);
    request.deadline = Some(SystemTime::now() + Duration::from_millis(6000));
    let played = decided_by(&stage, request, handler).await;
    let kind = played.outcome.error.as_ref().map(|e| e.kind);
    assert_eq!((played.outcome.verdict, kind), (Verdict::TimedOut, Some(FailureKind::TimeoutRun)));
    assert_eq!(played.outcome.text, "Before.");
    assert!(played.took < Duration::from_secs(25), "{:?}", played.took);
}

#[tokio::test]
async fn slow_permission_handler_is_awaited_and_pauses_agent_timeouts() {
    let stage = AcpFaultStage::new();
    let handler = PermissionHandler::new(|_| async {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        Permission::Allow
    });
    let request = stage.request("", ASK_SCRIPT).idle_timeout(Duration::from_secs(2));
    let played = decided_by(&stage, request, handler).await;
    assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::Done, "After."));
}

#[tokio::test]
async fn permission_answer_after_cancel_has_no_effect() {
    let stage = AcpFaultStage::new();
    let (asked, answered) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicBool::new(false)));
    let (notify, mark) = (Arc::clone(&asked), Arc::clone(&answered));
    let handler = PermissionHandler::new(move |_| {
        let (notify, mark) = (Arc::clone(&notify), Arc::clone(&mark));
        async move {
            notify.notify_one();
            tokio::time::sleep(Duration::from_millis(400)).await;
            mark.store(true, Ordering::SeqCst);
            Permission::Allow
        }
    });
    let request = stage.request("", ASK_SCRIPT).permission_mode(PermissionMode::Default);
    let session = stage
        .agentline()
        .session_with(request, RunOptions::new().permission_handler(handler))
        .await
        .expect("a session");
    let run = session.prompt(ASK_SCRIPT).await.expect("a valid prompt");
    let stop = run.canceller();
    let played = tokio::spawn(AcpPlayed::of(run, Instant::now()));
    asked.notified().await;
    stop.cancel();
    let played = played.await.expect("no panic");
    assert_eq!(played.outcome.verdict, Verdict::Cancelled, "{:?}", played.outcome.error);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!answered.load(Ordering::SeqCst), "its answer is not needed, so there is no wait");
    let next =
        AcpPlayed::of(session.prompt("say Fine.").await.expect("a valid prompt"), Instant::now()).await;
    assert_eq!((next.outcome.verdict, next.outcome.text.as_str()), (Verdict::Done, "Fine."));
    assert!(!stage.workspace().join("asked.txt").exists());
    session.close().await;
    stage.nothing_runs().await;
}

fn host() -> ToolHost {
    let schema = || serde_json::json!({"type": "object"});
    let panics = Tool::new("panics", "Panics", schema(), |_, _| async {
        if true {
            std::panic::resume_unwind(Box::new("as planned"));
        }
        Ok("never")
    });
    let works = Tool::new("works", "Works", schema(), |_, _| async { Ok("worked") });
    ToolHost::new().tool(panics).tool(works)
}

#[tokio::test]
async fn panicking_host_tool_is_a_failed_tool() {
    let stage = AcpFaultStage::new();
    let prompt = "call agentline panics {}\ncall agentline works {}";
    let options = RunOptions::new().tools(host());
    let run = stage.agentline().run_with(stage.request("", prompt), options).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    stage.nothing_runs().await;
    assert_eq!(played.outcome.verdict, Verdict::Done, "{:?}", played.outcome.error);
    assert!(played.outcome.text.ends_with("works: worked"), "{}", played.outcome.text);
    let failed = |e: &Event| matches!(e, Event::ToolResult(result) if result.status == ToolStatus::Error);
    assert!(played.records.iter().any(|r| failed(&r.event)), "{:?}", played.story());
}

#[tokio::test]
async fn agent_that_never_lists_our_tools_is_not_prompted() {
    let stage = AcpFaultStage::new();
    let request = stage.request("mcp_ignored", "say I go on.").startup_timeout(Duration::from_secs(3));
    let run =
        stage.agentline().run_with(request, RunOptions::new().tools(host())).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    stage.nothing_runs().await;
    let error = played.outcome.error.as_ref().expect("an error");
    assert_eq!((error.kind, played.outcome.text.as_str()), (FailureKind::Mcp, ""), "{error:?}");
}

/// A hundred thousand chunks arrive while the consumer does not read for five seconds. The agent waits, nothing is
/// lost, and the buffers are bounded.
#[test]
fn stalled_consumer_uses_bounded_memory_and_loses_nothing() {
    const PIECES: usize = 100_000;
    let stage = AcpFaultStage::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    let prompt = format!("chunks {PIECES} piece {{n}} of the answer");
    command.args(["run", "--surface", "acp", "--timeout", "120s", "-o", "events", &prompt]);
    command.env_clear().envs(&stage.agentline().host_env().env).current_dir(stage.workspace());
    command.env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-acp")).env("GEMINI_API_KEY", "no-key");
    command.env("FAKE_ACP_LOG", stage.path("log")).env("AGENTLINE_PASS_ENV", "FAKE_ACP_LOG");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the program starts");
    let pid = child.id();
    let _watchdog = Watchdog::over(&child, PATIENCE * 2, "the end of the output");
    let largest = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    std::thread::sleep(Duration::from_secs(5));
    let stalled = largest();
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("text");
    let all = largest().max(stalled);
    assert_eq!(exit_of(&mut child, "the end of the program").code(), Some(0));
    let texts = output.lines().filter(|line| line.contains(r#""type":"text""#)).count();
    assert_eq!(texts, PIECES);
    assert!(stalled > 0 && stalled < 60 << 20, "{} MB while nothing was read", stalled >> 20);
    assert!(all < 80 << 20, "{} MB", all >> 20);
    let mark = stage.path("log").to_string_lossy().into_owned();
    wait_until("the end of all processes", || survivors(&mark).is_empty());
}
