//! Tests the main workflow over ACP with the real Gemini CLI: as a cold run, in a conversation, and on a warm pool.

use agentline::{Event, Pool, PoolOptions, Surface, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use agentline_mock::gemini::{GeminiStep, Script, demo_script};
use agentline_tests::{TestStage, needs_real_gemini};

#[test]
fn acp_run_reports_events_files_and_usage() {
    needs_real_gemini!();
    let stage = TestStage::new(demo_script());
    let (records, outcome) = stage.play(stage.request("Write a small program").surface(Surface::Acp));
    let shown = serde_json::to_string_pretty(&outcome).unwrap();
    assert_eq!(outcome.verdict, Verdict::Done, "{shown}");
    let files: Vec<_> =
        outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
    assert_eq!(
        files,
        [
            ("SUMMARY.txt", FileChangeKind::Created, ChangeSource::Shell, true),
            ("primes.py", FileChangeKind::Created, ChangeSource::Tool, true)
        ],
        "{shown}"
    );
    assert_eq!((outcome.tool_calls, outcome.turns), (4, 5), "{shown}");
    assert!(outcome.usage.tokens.thoughts.is_some_and(|t| t > 0), "{shown}");
    assert!(records.iter().any(|r| matches!(r.event, Event::Thinking { .. })), "{records:#?}");
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"), "{shown}");
    // The CLI runs the scripted model but does not list it.
    let codes: Vec<&str> = outcome.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["unknown_model"], "{shown}");
}

#[tokio::test]
async fn conversation_keeps_context_and_continues_after_cancel() {
    needs_real_gemini!();
    let stage =
        TestStage::new(Script::new([GeminiStep::text("one"), GeminiStep::hang(), GeminiStep::text("three")]));
    let session = stage.agentline().session(stage.request("")).await.unwrap();
    let first = session.prompt("first").await.unwrap().outcome().await;
    assert_eq!((first.verdict, first.text.as_str()), (Verdict::Done, "one"), "{first:#?}");
    let second = session.prompt("second").await.unwrap();
    let stop = second.canceller();
    let waited = tokio::spawn(second.outcome());
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    stop.cancel();
    let second = waited.await.unwrap();
    assert_eq!(second.verdict, Verdict::Cancelled, "{second:#?}");
    let third = session.prompt("third").await.unwrap().outcome().await;
    assert_eq!((third.verdict, third.text.as_str()), (Verdict::Done, "three"), "{third:#?}");
    assert_eq!(first.session_id.as_deref(), Some(session.id()));
    let told = [&first, &second, &third].map(|outcome| outcome.usage.tokens.total.unwrap_or(0));
    assert_eq!(session.usage().total, Some(told.iter().sum()), "{told:?}");
    let asked = stage.model.requests_to_main();
    let last = serde_json::to_string(&asked.last().unwrap().body).unwrap();
    assert!(last.contains("first") && last.contains("one") && last.contains("third"), "{last}");
    session.close().await;
}

#[tokio::test]
async fn pool_runs_prompts_on_one_warm_agent() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::text("hello")));
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let mut times = Vec::new();
    for round in 0..5 {
        let begun = std::time::Instant::now();
        let outcome = pool.run(stage.request(&format!("prompt {round}"))).await.unwrap().outcome().await;
        times.push(begun.elapsed());
        assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "hello"), "{outcome:#?}");
    }
    let status = pool.status();
    assert_eq!((status.started, status.runs), (1, 5), "{status:?}");
    assert!(times[4] * 4 < times[0], "{times:?}");
    pool.close().await;
}
