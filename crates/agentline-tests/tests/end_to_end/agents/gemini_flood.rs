//! Sends a flood of events from the real Gemini CLI to a slow consumer: every event arrives, and none is buffered in
//! memory.

use agentline::{Event, Verdict};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{RealSlot, TestStage, is_own_process, needs_real_gemini};
use std::time::Duration;

/// The agent needs much time for each event. The tests with fake agents send a million.
const EVENTS: usize = 15_000;
/// How long the consumer pauses. The agent needs about three seconds for everything.
const STALL: Duration = Duration::from_secs(5);
/// The events of that time would take three times as much memory if they were buffered.
const MOST_GROWTH_KB: u64 = 12_000;

/// Returns the resident memory of this process in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

#[test]
fn fifteen_thousand_events_reach_a_slow_consumer_in_bounded_memory() {
    needs_real_gemini!();
    // The test measures the memory of the process, and other tests use memory too.
    let _slot = RealSlot::take();
    let name = concat!(module_path!(), "::fifteen_thousand_events_reach_a_slow_consumer_in_bounded_memory");
    if !is_own_process(name) {
        return;
    }
    let text = format!("{{n}} {} ", "x".repeat(2000));
    let stage = TestStage::new(Script::new([GeminiStep::many_chunks(EVENTS as u64, &text)]));
    stage.settings(
        r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"model":{"disableLoopDetection":true}}"#,
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let request = stage.request("Flood me").timeout(Duration::from_secs(150));
        let mut run = stage.agentline().run(request).await.unwrap();
        let (mut texts, mut bytes) = (0_usize, 0_usize);
        while let Some(record) = run.next().await {
            match record.event {
                Event::Text { text } => {
                    texts += 1;
                    bytes += text.len();
                    let number = text.split(' ').next().and_then(|n| n.parse::<usize>().ok());
                    assert_eq!(number, Some(texts), "in order, none missing");
                    if texts == 1000 {
                        // Meanwhile, the agent writes nearly all of its output.
                        let before = resident();
                        tokio::time::sleep(STALL).await;
                        let grown = resident().saturating_sub(before);
                        assert!(grown < MOST_GROWTH_KB, "grew by {grown} kB while nothing was read");
                    }
                    if texts % 100 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                Event::Outcome { outcome } => {
                    assert_eq!(outcome.verdict, Verdict::Done, "{:?}", outcome.error);
                    assert_eq!((outcome.text.len(), outcome.unreadable_lines), (bytes, 0));
                }
                _ => {}
            }
        }
        assert_eq!(texts, EVENTS);
    });
}
