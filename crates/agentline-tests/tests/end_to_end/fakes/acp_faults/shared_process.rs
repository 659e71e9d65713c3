//! Tests two runs on one process: neither affects the other, unless it ends the process.

use crate::fakes::acp_faults::stage::{AcpFaultStage, AcpPlayed};
use agentline::{
    FailureKind, Permission, PermissionHandler, Pool, PoolOptions, RunOptions, RunRequest, Verdict,
};
use agentline_fakes::fake_acp::{AcpFault, FAULTS};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, Semaphore};

/// Faults that end the process, and with it every run on it.
const DEADLY: &[&str] = &[
    "die_in_turn",
    "killed_in_turn",
    "die_at_prompt",
    "die_after_tool",
    "exit_0_in_turn",
    "half_line_then_exit",
    "stdout_closed",
];

/// Returns runs that cannot start commands, so that they can share a process. All have the same rules, because
/// different rules need separate processes.
fn sharing(stage: &AcpFaultStage, prompt: &str) -> RunRequest {
    stage.request("", prompt).deny("Bash").ask("Write").idle_timeout(Duration::from_secs(4))
}

fn shared_pool(stage: &AcpFaultStage) -> Pool {
    let mut options = PoolOptions::default();
    options.max_processes = 2;
    Pool::new(stage.agentline(), options)
}

/// A run that has sent text and waits in the middle of its turn until it is released.
struct Steady {
    go_on: Arc<Notify>,
    played: tokio::task::JoinHandle<AcpPlayed>,
}

impl Steady {
    async fn on(pool: &Pool, stage: &AcpFaultStage) -> Self {
        let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (notify, wait) = (Arc::clone(&asked), Arc::clone(&go_on));
        let handler = PermissionHandler::new(move |_| {
            let (notify, wait) = (Arc::clone(&notify), Arc::clone(&wait));
            async move {
                notify.notify_one();
                wait.notified().await;
                Permission::Allow
            }
        });
        let request = sharing(stage, "say One.\nask write_file steady.txt steady\nsay Two.");
        let run = pool
            .run_with(request, RunOptions::new().permission_handler(handler))
            .await
            .expect("a valid request");
        let played = tokio::spawn(AcpPlayed::of(run, Instant::now()));
        asked.notified().await;
        Self { go_on, played }
    }

    async fn end(self) -> AcpPlayed {
        self.go_on.notify_one();
        self.played.await.expect("no panic")
    }
}

async fn play(fault: &AcpFault) {
    let case = fault.name;
    let stage = AcpFaultStage::new();
    let pool = shared_pool(&stage);
    let steady = Steady::on(&pool, &stage).await;
    let request = sharing(&stage, &fault.as_prompt().expect("it is a script"));
    let handler =
        RunOptions::new().permission_handler(PermissionHandler::new(|_| async { Permission::Allow }));
    let run = pool.run_with(request, handler).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    let before = pool.status();
    let steady = steady.end().await.outcome;
    if DEADLY.contains(&case) {
        // It had sent text, so it is not retried; the text is kept, and the failure is reported.
        let kind = steady.error.as_ref().map(|e| e.kind);
        assert!(
            matches!(kind, Some(FailureKind::NoResult | FailureKind::Crashed)),
            "{case}: {:?}",
            steady.error
        );
        assert_eq!((steady.verdict, steady.text.as_str()), (Verdict::Failed, "One."), "{case}");
        // The other run may have sent nothing. Then it was retried, and failed again.
        assert!(played.outcome.error.is_some(), "{case}");
        assert_eq!(before.retried, u64::from(case == "die_at_prompt"), "{case}: started again");
    } else {
        assert_eq!(before.started, 1, "{case}: they share a process");
        assert_eq!(
            (steady.verdict, steady.text.as_str()),
            (Verdict::Done, "Two."),
            "{case}: {:?}",
            steady.error
        );
        assert_eq!(steady.unreadable_lines, played.outcome.unreadable_lines, "{case}");
        assert_eq!((steady.tool_calls, steady.denied.len()), (1, 0), "{case}");
    }
    // In every case, the pool continues.
    let next = pool.run(sharing(&stage, "say Fine.")).await.expect("a valid request");
    let next = AcpPlayed::of(next, Instant::now()).await.outcome;
    assert_eq!((next.verdict, next.text.as_str()), (Verdict::Done, "Fine."), "{case}: {:?}", next.error);
    pool.close().await;
    stage.nothing_runs().await;
}

#[test]
fn fault_in_one_run_does_not_affect_another_on_the_process() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let room = Arc::new(Semaphore::new(4));
        let scripts = FAULTS.iter().filter(|fault| fault.as_prompt().is_some());
        let tasks: Vec<_> = scripts
            .map(|fault| {
                let room = Arc::clone(&room);
                tokio::spawn(async move {
                    let _turn = room.acquire().await.expect("the semaphore is never closed");
                    play(fault).await;
                })
            })
            .collect();
        assert!(tasks.len() > 50, "the scripts of the table");
        let mut broken = 0;
        for task in tasks {
            broken += u32::from(task.await.is_err());
        }
        assert_eq!(broken, 0, "some faults affected another run; see above");
    });
}

#[tokio::test]
async fn interleaved_sessions_are_kept_apart() {
    let stage = AcpFaultStage::new();
    let pool = shared_pool(&stage);
    let texts = ["The quick brown fox jumps over the lazy dog.", "0123456789012345678901234567890123456789."];
    let runs = texts.map(|text| {
        let request = sharing(&stage, &format!("say {text}")).env("FAKE_ACP_FAULT", "one_character_chunks");
        let pool = pool.clone();
        tokio::spawn(async move {
            let run = pool.run(request).await.expect("a valid request");
            AcpPlayed::of(run, Instant::now()).await
        })
    });
    for (run, text) in runs.into_iter().zip(texts) {
        let played = run.await.expect("no panic");
        assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::Done, text));
        assert_eq!(played.story().iter().filter(|kind| *kind == "text").count(), text.len());
    }
    assert_eq!(pool.status().started, 1, "they share a process");
    pool.close().await;
    stage.nothing_runs().await;
}

#[tokio::test]
async fn sessions_with_the_same_id_do_not_share_a_process() {
    let stage = AcpFaultStage::new();
    let pool = shared_pool(&stage);
    let request = |prompt| sharing(&stage, prompt).env("FAKE_ACP_FAULT", "same_session_id");
    let first = pool.run(request("say One.\nsleep 1500\nsay Two.")).await.expect("a valid request");
    let first = tokio::spawn(AcpPlayed::of(first, Instant::now()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = pool.run(request("say Other.")).await.expect("a valid request");
    let second = AcpPlayed::of(second, Instant::now()).await.outcome;
    let first = first.await.expect("no panic").outcome;
    assert_eq!((second.verdict, second.text.as_str()), (Verdict::Done, "Other."), "{:?}", second.error);
    assert_eq!((first.verdict, first.text.as_str()), (Verdict::Done, "One.Two."), "{:?}", first.error);
    pool.close().await;
    stage.nothing_runs().await;
}
