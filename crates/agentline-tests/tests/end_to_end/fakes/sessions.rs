//! Tests a conversation with calls in every possible order, with a fake agent: nothing is mixed up, and nothing
//! remains.

use agentline::{Event, McpServer, Outcome, Run, RunOptions, Session, Verdict, blocking, schema::Schema};
use agentline_tests::{FakeStage, shown, wait_in_runtime};
use serde_json::{Value, json};
use std::{
    fs,
    time::{Duration, Instant},
};

fn stage() -> FakeStage {
    FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"))
}

async fn open(stage: &FakeStage) -> Session {
    stage.agentline().session(stage.request("")).await.expect("a session")
}

/// Asserts that no process of the test is alive, and its temporary directory is empty.
async fn nothing_is_left(stage: &FakeStage) {
    wait_in_runtime("the end of all processes", || stage.living().is_empty()).await;
    let folder = stage.path().join("tmp");
    wait_in_runtime("an empty folder", || {
        fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_none())
    })
    .await;
}

/// Returns the value of a run.
fn value(outcome: &Outcome) -> Value {
    let output = outcome.output.as_ref().map_or("null", |output| output.get());
    serde_json::from_str(output).expect("JSON")
}

async fn prompts_at_once() {
    let stage = stage();
    let session = open(&stage).await;
    let prompt = async |word: &str| {
        let script = format!("say {word}\nsleep 150\nsay {word}");
        session.prompt(script).await.expect("a valid request").outcome().await
    };
    let (a, b, c) = tokio::join!(prompt("a"), prompt("b"), prompt("c"));
    for (outcome, text) in [(a, "aa"), (b, "bb"), (c, "cc")] {
        assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, text), "{}", shown(&outcome));
    }
    session.close().await;
    nothing_is_left(&stage).await;
}

#[tokio::test]
async fn concurrent_prompts_are_serialized() {
    prompts_at_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_prompts_are_serialized_on_a_multi_thread_runtime() {
    prompts_at_once().await;
}

#[tokio::test]
async fn prompts_of_a_session_share_its_temporary_workspace() {
    let stage = stage();
    let mut request = stage.request("").temporary_workspace(true);
    request.working_dir = None;
    let session = stage.agentline().session(request).await.expect("a session");
    let run = async |script: &str| session.prompt(script).await.expect("a valid request").outcome().await;
    let first = run("tool write_file kept.txt hello\nsay done").await;
    assert_eq!(first.files.len(), 1, "{}", shown(&first));
    let second = run("cwd\nrun cat kept.txt && echo more > new.txt").await;
    assert_eq!((second.verdict, second.text.trim()), (Verdict::Done, &*second.cwd), "{}", shown(&second));
    let files: Vec<&str> = second.files.iter().map(|file| &*file.path).collect();
    assert_eq!((files, &second.cwd), (vec!["new.txt"], &first.cwd), "{}", shown(&second));
    session.close().await;
    assert!(!std::path::Path::new(&first.cwd).exists());
    nothing_is_left(&stage).await;
}

#[tokio::test]
async fn each_prompt_of_a_session_returns_a_value_of_its_schema() {
    let stage = stage();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    fs::write(stage.workspace().join("n.json"), schema.to_string()).expect("a file");
    fs::write(stage.workspace().join("list.json"), r#"{"type":"array"}"#).expect("a file");
    let mut request = stage.request("");
    request.output_schema = Some(stage.workspace().join("n.json"));
    let session = stage.agentline().session(request).await.expect("a session");
    for n in [1, 2] {
        let script = format!(r#"call agentline structured_output {{"data":{{"n":{n}}}}}"#);
        let outcome = session.prompt(script).await.expect("a valid request").outcome().await;
        assert_eq!(
            (outcome.verdict, value(&outcome)),
            (Verdict::Done, json!({"n": n})),
            "{}",
            shown(&outcome)
        );
    }
    let mut other = session.request();
    other.prompt = "say [1, 2]".into();
    other.output_schema = Some(stage.workspace().join("list.json"));
    let outcome = session.prompt_with(other).await.expect("a valid request").outcome().await;
    assert_eq!(value(&outcome), json!([1, 2]), "{}", shown(&outcome));
    session.close().await;
    nothing_is_left(&stage).await;
}

#[tokio::test]
async fn session_with_a_dead_agent_fails_immediately() {
    let stage = stage();
    let session = open(&stage).await;
    for pid in stage.living() {
        let agent = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&agent).contains("fake-acp") {
            // It belongs to this test, by its mark; it may have exited already.
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
    let started_at = Instant::now();
    for _ in 0..2 {
        let outcome = session.prompt("say hi").await.expect("a valid request").outcome().await;
        assert_eq!(outcome.verdict, Verdict::Failed, "{}", shown(&outcome));
        assert!(outcome.error.is_some_and(|error| error.message.contains("signal 9")));
    }
    assert!(started_at.elapsed() < Duration::from_secs(20));
    session.close().await;
    nothing_is_left(&stage).await;
}

#[tokio::test]
async fn dropped_sessions_and_runs_leave_nothing_running() {
    let busy = "say x\nrun sleep 600";
    let at_work = async |run: &mut Run| {
        while let Some(record) = run.next().await {
            if matches!(record.event, Event::ToolUse(_)) {
                return;
            }
        }
        panic!("it never started");
    };
    let stage = stage();
    // The session first, then the run; the run first, then the session; the opening before it completes.
    let session = open(&stage).await;
    let mut run = session.prompt(busy).await.expect("a valid request");
    at_work(&mut run).await;
    drop(session);
    drop(run);
    nothing_is_left(&stage).await;

    let session = open(&stage).await;
    let mut run = session.prompt(busy).await.expect("a valid request");
    at_work(&mut run).await;
    drop(run);
    let outcome = session.prompt("say on").await.expect("a valid request").outcome().await;
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "on"), "{}", shown(&outcome));
    drop(session);
    nothing_is_left(&stage).await;

    let agentline = stage.agentline();
    for pause in [0, 5, 50, 200] {
        let opening = agentline.session(stage.request(""));
        let timed_out = tokio::time::timeout(Duration::from_millis(pause), opening).await;
        drop(timed_out);
        nothing_is_left(&stage).await;
    }
}

#[test]
fn blocking_acp_run_needs_no_runtime() {
    let stage = stage();
    let request = stage.request("say hello").surface(agentline::Surface::Acp);
    let outcome = blocking::run(&stage.agentline(), request, |_, _| {}).expect("a valid request");
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "hello"), "{}", shown(&outcome));
    assert!(stage.living().is_empty());
}

#[tokio::test]
async fn schema_applies_to_each_prompt() {
    let stage = stage();
    let schema = Schema::from_value(json!({"type": "object", "required": ["ok"]})).expect("a schema");
    let options = RunOptions::new().schema(schema);
    let session = stage.agentline().session_with(stage.request(""), options).await.expect("a session");
    let script = r#"call agentline structured_output {"data":{"ok":true}}"#;
    let outcome = session.prompt(script).await.expect("a valid request").outcome().await;
    assert_eq!(value(&outcome), json!({"ok": true}), "{}", shown(&outcome));
    session.close().await;
}

#[tokio::test]
async fn check_runs_after_answers_but_not_after_opening() {
    let stage = stage();
    let mut request = stage.request("");
    request.until = Some("echo checked >> checks; grep -q yes answer".into());
    let session = stage.agentline().session(request).await.expect("a session");
    let checks = || fs::read_to_string(stage.workspace().join("checks")).unwrap_or_default().lines().count();
    assert_eq!(checks(), 0);
    let run = session.prompt("tool write_file answer yes\nsay done").await.expect("a valid request");
    let outcome = run.outcome().await;
    assert_eq!((outcome.verdict, checks()), (Verdict::Done, 1), "{}", shown(&outcome));
    session.close().await;
    nothing_is_left(&stage).await;
}

/// Text after a cancelled answer belongs to the cancelled run, not to the next prompt.
#[tokio::test]
async fn text_after_cancel_is_not_part_of_the_next_answer() {
    let stage = stage();
    let mut request = stage.request("").env("FAKE_ACP_FAULT", "cancel_then_text");
    request.quiet_period = Some(Duration::from_secs(2));
    let session = stage.agentline().session(request).await.expect("a session");
    let mut run = session.prompt("say x\nsleep 60000").await.expect("a valid request");
    while let Some(record) = run.next().await {
        if matches!(record.event, Event::Text { .. }) {
            run.cancel();
            break;
        }
    }
    let first = run.outcome().await;
    let late = "Still talking after the cancel.";
    assert_eq!((first.verdict, first.text.contains(late)), (Verdict::Cancelled, true), "{}", shown(&first));
    let second = session.prompt("say on").await.expect("a valid request").outcome().await;
    assert_eq!((second.verdict, &*second.text), (Verdict::Done, "on"), "{}", shown(&second));
    assert!(second.warnings.is_empty(), "{}", shown(&second));
    session.close().await;
    nothing_is_left(&stage).await;
}

/// An MCP server whose tools could be mistaken for our own is refused before anything starts, with one message.
#[tokio::test]
async fn server_with_a_reserved_name_is_refused() {
    let stage = stage();
    let schema = Schema::from_value(json!({"type": "object"})).expect("a schema");
    let pool = agentline::Pool::new(stage.agentline(), agentline::PoolOptions::default());
    for name in ["agentline", "agentline_x"] {
        let mut request = stage.request("say hi");
        request.mcp_servers.insert(
            name.into(),
            McpServer::Command { command: "true".into(), args: Vec::new(), env: [].into() },
        );
        let options = || RunOptions::new().schema(schema.clone());
        let cold = stage.agentline().run_with(request.clone(), options()).await.map(|_| ()).unwrap_err();
        let warm = pool.run_with(request.clone(), options()).await.map(|_| ()).unwrap_err();
        let open = stage.agentline().session_with(request, options()).await.map(|_| ()).unwrap_err();
        for error in [cold, warm, open] {
            let agentline::Error::Usage(problems) = &error else { panic!("{error}") };
            assert_eq!(problems.0.len(), 1, "{error}");
            assert_eq!(problems.0[0].key, format!("mcp_servers.{name}"));
        }
    }
    assert_eq!(stage.living(), [0_u32; 0]);
}
