//! Tests resumed sessions of the real Gemini CLI on every surface, and that the agent's own starts do not remove them.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::agents::run_messages::{actions, run_and_read};
use agentline::{
    Event, FailureKind, Outcome, Pool, PoolOptions, RunRequest, Surface, Verdict, messages::MessageSource,
};
use agentline_mock::gemini::{FAKE_KEY, GeminiModel, GeminiStep, Script};
use agentline_tests::{RunRecord, TestStage, needs_real_gemini, paths_below, real_gemini, shown};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const CHOSEN: &str = "aaaaaaaa-1111-4111-8111-111111111111";

/// Returns the files of a session in the user's store.
fn files(stage: &TestStage, session: &str) -> Vec<PathBuf> {
    let mut found = paths_below(&stage.home().join(".gemini/tmp"));
    let ending = format!("-{}.jsonl", &session[..8]);
    found.retain(|path| path.to_string_lossy().ends_with(&ending));
    found
}

/// Renames a session's file so that the session seems to have started in another minute.
fn rename_to_minute(stage: &TestStage, session: &str, minute: &str) {
    let file = files(stage, session).remove(0);
    let name = format!("session-{minute}-{}.jsonl", &session[..8]);
    fs::rename(&file, file.with_file_name(name)).expect("the file can be renamed");
}

/// Returns the messages of a session by the user and the model in order. A message that is written twice counts once.
fn messages(stage: &TestStage, session: &str) -> Vec<(String, Value)> {
    let mut messages: Vec<(String, Value)> = Vec::new();
    for file in files(stage, session) {
        let text = fs::read_to_string(file).expect("a session file");
        for record in text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON")) {
            let is_message = record["type"] == "user" || record["type"] == "gemini";
            let id = record["id"].as_str().unwrap_or_default().to_owned();
            if is_message && messages.iter().all(|(other, _)| *other != id) {
                messages.push((id, record["content"].clone()));
            }
        }
    }
    messages
}

/// Starts the agent as its user does, without agentline.
fn start_without_agentline(stage: &TestStage) {
    let program = real_gemini().expect("real agents are enabled");
    let mut command = Command::new(program.path);
    command.args(program.args).args(["-m", "gemini-2.5-flash", "--skip-trust", "-p", "an ordinary start"]);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_NO_RELAUNCH", "1");
    let output = command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
fn assert_refused(stage: &TestStage, key: &str, request: RunRequest) {
    let error = agentline::blocking::run(&stage.agentline(), request, |_, _| {}).unwrap_err().to_string();
    assert!(error.contains(key), "{error}");
}

fn resuming(stage: &TestStage, session: &str) -> RunRequest {
    stage.request("which number was it?").resume(session)
}

/// Asserts that a run continued a session, knows its history, and counts only its own request.
#[track_caller]
fn assert_resumed(stage: &TestStage, outcome: &Outcome, session: &str, number: &str) {
    let all = shown(outcome);
    assert_eq!((outcome.verdict, outcome.session_id.as_deref()), (Verdict::Done, Some(session)), "{all}");
    // A secret in the text is redacted.
    assert_eq!(outcome.text, "It was it, [redacted].", "{all}");
    assert_eq!((outcome.turns, outcome.tool_calls), (1, 0), "{all}");
    assert_eq!((outcome.usage.tokens.total, outcome.usage.requests), (Some(125), Some(1)), "{all}");
    let texts = stage.model.requests_to_main().last().expect("a request").user_texts().concat();
    assert!(texts.contains(number) && texts.contains("which number"), "{texts}");
}

/// The sessions have numbers: 4711 is resumed on `stream-json` in the minute of its file, 4712 later on `json`, 4713 over
/// ACP in the minute of its file, and 4714 over ACP later. Over ACP, loading a session in the minute of its file would
/// damage it, so that run waits until the minute is over.
#[test]
fn resumed_sessions_are_complete_after_two_normal_starts() {
    needs_real_gemini!();
    let remember = Script::new([
        GeminiStep::thought("Hm.").and_call("list_directory", json!({"dir_path": "."})),
        GeminiStep::text("I will remember it."),
    ]);
    let model = GeminiModel::matching([
        ("which number", Script::always(GeminiStep::text(format!("It was it, {FAKE_KEY}.")))),
        ("remember", remember),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    let stage = TestStage::with_model(model.unwrap());
    assert_refused(&stage, "`resume`", stage.request("x").resume("latest"));

    let first = run_and_read(&stage, stage.request("remember the number 4711").session_id(CHOSEN));
    assert_eq!(first.outcome.session_id.as_deref(), Some(CHOSEN), "{}", shown(&first.outcome));
    assert!(actions(&first.completed.messages).contains(&"says I will remember it.".to_owned()));
    assert_refused(&stage, "`session_id`", stage.request("x").session_id(CHOSEN));
    assert_refused(&stage, "`resume`", stage.request("x").resume("ffffffff"));
    let again = run_and_read(&stage, resuming(&stage, &CHOSEN[..8]).surface(Surface::StreamJson));
    assert_resumed(&stage, &again.outcome, CHOSEN, "4711");
    // A resumed run has only its own messages.
    assert_eq!(again.completed.source, MessageSource::Session, "{:?}", again.completed.warning);
    assert_eq!(actions(&again.completed.messages), ["says It was it, [redacted]."]);
    assert!(!serde_json::to_string(&again.completed.messages).unwrap().contains(FAKE_KEY));

    let [json, older, latest] = sessions_of_one_process(&stage, ["4712", "4714", "4713"]);
    rename_to_minute(&stage, &json, "2026-01-01T00-00");
    rename_to_minute(&stage, &older, "2026-01-01T00-01");
    let outcome = stage.outcome(resuming(&stage, "latest").surface(Surface::Acp));
    assert_resumed(&stage, &outcome, &latest, "4713");
    assert_eq!(files(&stage, &latest).len(), 1, "no empty duplicate remains");
    let outcome = stage.outcome(resuming(&stage, &json[..8]).surface(Surface::Json));
    assert_resumed(&stage, &outcome, &json, "4712");
    check_resumed_over_acp(&stage, &older, "4714");

    let sessions = [(CHOSEN, "4711"), (&json, "4712"), (&latest, "4713"), (&older, "4714")];
    let before = sessions.map(|(session, _)| messages(&stage, session));
    for _ in 0..2 {
        start_without_agentline(&stage);
    }
    for ((session, number), before) in sessions.into_iter().zip(before) {
        assert_eq!(messages(&stage, session), before, "{number}: {:?}", files(&stage, session));
        let text = serde_json::to_string(&before).unwrap();
        assert!(text.contains(number) && text.contains("which number"), "{number}: {text}");
    }
    assert_eq!(files(&stage, &older).len(), 1, "no duplicate remains");
    let once_more = stage.outcome(stage.request("once more").resume(CHOSEN));
    assert_eq!(once_more.verdict, Verdict::Done, "{}", shown(&once_more));
    let texts = stage.model.requests_to_main().last().unwrap().user_texts().concat();
    assert!(texts.contains("4711"), "{texts}");
    check_not_resumed_while_that_would_overwrite(&stage, &older);
}

/// Makes one session for each of these numbers on one warm agent.
fn sessions_of_one_process(stage: &TestStage, numbers: [&str; 3]) -> [String; 3] {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = Pool::new(stage.agentline(), PoolOptions::default());
        let mut sessions = Vec::new();
        for number in numbers {
            let request = stage.request(&format!("remember the number {number}"));
            let outcome = pool.run(request).await.unwrap().outcome().await;
            assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
            sessions.extend(outcome.session_id);
        }
        pool.close().await;
        sessions.try_into().unwrap()
    })
}

/// Resumes an older session over ACP. The agent replays the history, but it is not part of the run.
fn check_resumed_over_acp(stage: &TestStage, session: &str, number: &str) {
    let before = messages(stage, session);
    assert!(before.len() >= 3, "{before:?}");
    let (records, outcome) = stage.play(resuming(stage, &session[..8]).surface(Surface::Acp));
    assert_resumed(stage, &outcome, session, number);
    let run = RunRecord { records, outcome };
    let is_old = |event: &Event| matches!(event, Event::Thinking { .. } | Event::ToolUse(_));
    assert!(!run.records.iter().any(|record| is_old(&record.event)), "{}", run.shown());
    let replayed = run.records.iter().find_map(|record| match &record.event {
        Event::SessionInfo { info } => Some(info.get().to_owned()),
        _ => None,
    });
    assert!(replayed.is_some_and(|info| info.contains("replayedUpdates")), "{}", run.shown());
    assert_eq!(messages(stage, session)[..before.len()], before, "the messages are unchanged");
}

/// In the minute of its file, the agent would overwrite a session; this minute is far away.
fn check_not_resumed_while_that_would_overwrite(stage: &TestStage, session: &str) {
    rename_to_minute(stage, session, "2099-01-01T00-00");
    let file = files(stage, session).remove(0);
    let temporary = || fs::read_dir(stage.outside().join("tmp")).unwrap().count();
    let state = || (fs::read(&file).unwrap(), stage.model.requests_to_main().len(), temporary());
    let before = state();
    let request = || resuming(stage, session).surface(Surface::Acp);
    let outcome = stage.outcome(request());
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(
        (outcome.verdict, error.kind),
        (Verdict::TimedOut, FailureKind::TimeoutRun),
        "{}",
        shown(&outcome)
    );
    assert!(error.message.contains("cannot be opened safely"), "{}", error.message);
    assert!(error.hint.as_ref().unwrap().contains("stream-json"), "{error:?}");
    // A run with enough time waits, and can be cancelled while it waits.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let patient = request().timeout(Duration::from_secs(200 * 365 * 86_400));
        let run = stage.agentline().run(patient).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let started_at = Instant::now();
        run.cancel();
        let outcome = run.outcome().await;
        assert_eq!(outcome.verdict, Verdict::Cancelled, "{}", shown(&outcome));
        assert!(started_at.elapsed() < Duration::from_secs(10), "{:?}", started_at.elapsed());
    });
    assert!(state() == before, "nothing was started or changed");
}
