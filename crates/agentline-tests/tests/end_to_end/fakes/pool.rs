//! Tests the warm pool with a fake agent: which runs share a process, what happens when one dies, and that nothing is
//! left running.

use agentline::{FailureKind, Outcome, Pool, PoolOptions, RunRequest, Verdict};
use agentline_tests::{FakeStage, shown, wait_in_runtime, wait_until};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    time::{Duration, Instant},
};

fn stage() -> FakeStage {
    FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"))
}

fn pool_of(stage: &FakeStage, change: impl FnOnce(&mut PoolOptions)) -> Pool {
    let mut options = PoolOptions::default();
    change(&mut options);
    Pool::new(stage.agentline(), options)
}

async fn run(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("an accepted request").outcome().await
}

async fn run_all(pool: &Pool, requests: impl IntoIterator<Item = RunRequest>) -> Vec<Outcome> {
    let mut outcomes = tokio::task::JoinSet::new();
    for request in requests {
        let pool = pool.clone();
        outcomes.spawn(async move { run(&pool, request).await });
    }
    outcomes.join_all().await
}

/// Returns what the fake agent reports about the session and process of a run.
#[track_caller]
fn state(outcome: &Outcome) -> Value {
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(outcome));
    serde_json::from_str(outcome.text.trim()).unwrap_or_else(|error| panic!("{error}: {}", shown(outcome)))
}

fn distinct(states: &[Value], key: &str) -> usize {
    states.iter().map(|state| state[key].to_string()).collect::<BTreeSet<_>>().len()
}

async fn nothing_lives(stage: &FakeStage) {
    wait_in_runtime("the end of all processes", || stage.living().is_empty()).await;
}

#[tokio::test]
async fn consecutive_runs_share_a_process_with_separate_sessions() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let mut states = Vec::new();
    for _ in 0..3 {
        states.push(state(&run(&pool, stage.request("state")).await));
    }
    assert_eq!((distinct(&states, "pid"), distinct(&states, "session")), (1, 3), "{states:?}");
    assert!(states.iter().all(|state| state["prompts"] == 1), "{states:?}");
    let status = pool.status();
    assert_eq!((status.runs, status.started, status.queued, status.retried), (3, 1, 0, 0), "{status:?}");
    assert_eq!((status.processes[0].sessions, status.processes[0].active), (3, 0), "{status:?}");
    assert!(status.processes[0].ready && status.processes[0].memory.is_some_and(|bytes| bytes > 0));
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
    let late = run(&pool, stage.request("state")).await;
    assert_eq!(late.verdict, Verdict::Failed);
    assert!(late.error.as_ref().unwrap().message.contains("closed"), "{}", shown(&late));
}

/// An agent that keeps a process for each session is notified when a session ends.
#[tokio::test]
async fn session_is_closed_with_its_run_if_supported() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let request = |script: &str| stage.request(script).env("FAKE_ACP_FAULT", "process_per_session");
    let keepers = || {
        let commands = stage.living().into_iter().map(|pid| fs::read(format!("/proc/{pid}/cmdline")));
        commands.flatten().filter(|command| command.starts_with(b"sleep\x00600")).count()
    };
    let one = state(&run(&pool, request("state")).await);
    wait_in_runtime("the end of the first session's process", || keepers() == 0).await;
    // A prewarmed session stays until its run ends; a cancelled run leaves nothing behind.
    assert_eq!(pool.prewarm(request("state"), 1).await.expect("a session"), 1);
    assert_eq!(keepers(), 1);
    let two = state(&run(&pool, request("state")).await);
    wait_in_runtime("the end of the second session's process", || keepers() == 0).await;
    let run = pool.run(request("say x\nsleep 60000")).await.expect("an accepted request");
    wait_in_runtime("the third session", || keepers() == 1).await;
    run.cancel();
    assert_eq!(run.outcome().await.verdict, Verdict::Cancelled);
    wait_in_runtime("the end of the third session's process", || keepers() == 0).await;
    assert_eq!((one["pid"].clone(), pool.status().started), (two["pid"].clone(), 1));
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn only_runs_without_commands_share_a_process() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let started_at = Instant::now();
    let outcomes = run_all(&pool, (0..4).map(|_| stage.sharing("sleep 4000\nstate"))).await;
    let states: Vec<Value> = outcomes.iter().map(state).collect();
    assert_eq!((distinct(&states, "pid"), distinct(&states, "session")), (1, 4), "{states:?}");
    assert!(started_at.elapsed() < Duration::from_secs(13), "one after another would take 16 s");
    let outcomes = run_all(&pool, (0..2).map(|_| stage.request("sleep 1500\nstate"))).await;
    let states: Vec<Value> = outcomes.iter().map(state).collect();
    assert_eq!(distinct(&states, "pid"), 2, "{states:?}");
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn at_most_two_sessions_open_at_once() {
    let stage = stage();
    let pool = pool_of(&stage, |options| (options.max_processes, options.concurrent_sessions) = (1, 8));
    let request = || stage.sharing("state").env("FAKE_ACP_FAULT", "session_new_stalls:2");
    let started_at = Instant::now();
    let outcomes = run_all(&pool, (0..8).map(|_| request())).await;
    let states: Vec<Value> = outcomes.iter().map(state).collect();
    assert_eq!((distinct(&states, "pid"), distinct(&states, "session")), (1, 8));
    // A third one at the same time would have stalled the agent for twenty seconds.
    assert!(started_at.elapsed() < Duration::from_secs(15), "{:?}", started_at.elapsed());
    pool.close().await;
}

#[tokio::test]
async fn process_settings_need_another_process_and_session_settings_do_not_leak() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let first = run(&pool, stage.request("env COLOUR\nstate").env("COLOUR", "red")).await;
    let second = run(&pool, stage.request("env COLOUR\nstate").env("COLOUR", "blue")).await;
    assert!(first.text.contains("red") && second.text.contains("blue"), "{} {}", first.text, second.text);
    assert_eq!(pool.status().started, 2);

    let plan = state(&run(&pool, stage.sharing("state").model("fake-small")).await);
    let wild = state(&run(&pool, stage.request("state").model("fake-small")).await);
    let other = state(&run(&pool, stage.request("state").model("fake-other")).await);
    let bare = state(&run(&pool, stage.request("state")).await);
    assert_eq!((&plan["mode"], &plan["model"]), (&"plan".into(), &"fake-small".into()));
    assert_eq!((&wild["mode"], &wild["model"]), (&"yolo".into(), &"fake-small".into()));
    assert_eq!((&other["pid"], &other["model"]), (&wild["pid"], &"fake-other".into()));
    // A process that was started for a model is not used by a run that names none.
    assert_eq!((bare["pid"] == wild["pid"], &bare["mode"]), (false, &"yolo".into()));
    assert!(bare["model"] != wild["model"] && bare["model"] != other["model"], "the model of another run");
    let history = run(&pool, stage.request("history")).await;
    assert_eq!(history.text.matches("history").count(), 1, "{}", history.text);
    assert!(!history.text.contains("state"), "{}", history.text);
    pool.close().await;
}

#[tokio::test]
async fn removed_workspace_does_not_affect_other_runs() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let other = stage.path().join("other");
    fs::create_dir(&other).unwrap();
    let first = state(&run(&pool, stage.request("state").working_dir(&other)).await);
    fs::remove_dir_all(&other).unwrap();
    let second = run(&pool, stage.request("run echo still here\nstate")).await;
    assert_eq!(second.verdict, Verdict::Done, "{}", shown(&second));
    assert!(second.text.contains(&first["pid"].to_string()), "{}", second.text);
    pool.close().await;
}

#[tokio::test]
async fn run_is_retried_once_if_its_agent_died_before_any_output() {
    let stage = stage();
    for fault in ["session_new_exit", "exit_after_initialize", "die_at_prompt", "exit_at_start"] {
        let pool = pool_of(&stage, |_| {});
        let once = stage.path().join(fault);
        let request = stage.request("say hello").env("FAKE_ACP_FAULT", fault);
        let outcome = run(&pool, request.env("FAKE_ACP_FAULT_ONCE", once.to_str().unwrap())).await;
        assert_eq!(
            (outcome.verdict, outcome.text.as_str()),
            (Verdict::Done, "hello"),
            "{fault}: {}",
            shown(&outcome)
        );
        let status = pool.status();
        assert_eq!(
            (status.retried, status.started, status.processes.len()),
            (1, 2, 1),
            "{fault}: {status:?}"
        );
        pool.close().await;
    }
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn run_is_not_retried_twice_or_after_side_effects() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let hopeless = run(&pool, stage.request("die 9")).await;
    assert_eq!(
        hopeless.error.as_ref().map(|error| error.kind),
        Some(FailureKind::NoResult),
        "{}",
        shown(&hopeless)
    );
    assert_eq!((pool.status().retried, pool.status().started), (1, 2));
    let partial = run(&pool, stage.request("say Half of the\ndie 9")).await;
    assert_eq!(
        (partial.verdict, partial.text.as_str()),
        (Verdict::Failed, "Half of the"),
        "{}",
        shown(&partial)
    );
    let wrote = run(&pool, stage.request("tool write_file made.txt made\ndie 9")).await;
    assert_eq!((wrote.verdict, wrote.tool_calls), (Verdict::Failed, 1), "{}", shown(&wrote));
    assert_eq!(wrote.files[0].path, "made.txt", "{}", shown(&wrote));
    assert_eq!(pool.status().retried, 1, "only the first was retried");
    // The pool continues.
    assert_eq!(run(&pool, stage.request("say on")).await.text, "on");
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn process_that_dies_while_idle_is_replaced() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_processes = 1);
    let first = state(&run(&pool, stage.request("state")).await);
    let pid = first["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let second = state(&run(&pool, stage.request("state")).await);
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(pool.status().processes.len(), 1);
    pool.close().await;
}

#[tokio::test]
async fn hung_process_is_replaced() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let once = stage.path().join("once");
    let mut request = stage.request("say hello").env("FAKE_ACP_FAULT", "initialize_never");
    request = request.env("FAKE_ACP_FAULT_ONCE", once.to_str().unwrap());
    request.startup_timeout = Duration::from_secs(4);
    let outcome = run(&pool, request).await;
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "hello"), "{}", shown(&outcome));
    assert_eq!(pool.status().retried, 1);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn agent_that_ignores_cancel_is_not_reused() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_processes = 1);
    let deaf = |script: &str| stage.request(script).env("FAKE_ACP_FAULT", "cancel_ignored");
    let hanging = pool.run(deaf("hang")).await.unwrap();
    wait_in_runtime("the run", || pool.status().processes.iter().any(|process| process.ready)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    hanging.cancel();
    assert_eq!(hanging.outcome().await.verdict, Verdict::Cancelled);
    let next = run(&pool, deaf("say hello")).await;
    assert_eq!((next.verdict, next.text.as_str()), (Verdict::Done, "hello"), "{}", shown(&next));
    assert_eq!(pool.status().started, 2);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn queue_is_bounded_and_waiting_runs_can_be_cancelled() {
    let stage = stage();
    let pool = pool_of(&stage, |options| (options.max_processes, options.max_queue) = (1, 1));
    let working = pool.run(stage.request("hang")).await.unwrap();
    wait_in_runtime("the run", || pool.status().processes.iter().any(|process| process.active == 1)).await;
    let waiting = pool.run(stage.request("say waited")).await.unwrap();
    wait_in_runtime("the queue", || pool.status().queued == 1).await;
    let refused = run(&pool, stage.request("say refused")).await;
    assert!(refused.error.as_ref().unwrap().message.contains("too many"), "{}", shown(&refused));
    waiting.cancel();
    let stopped = waiting.outcome().await;
    assert_eq!(stopped.verdict, Verdict::Cancelled, "{}", shown(&stopped));
    assert_eq!(pool.status().queued, 0);
    // A waiting run has its own timeout.
    let late = run(&pool, stage.request("say late").timeout(Duration::from_secs(1))).await;
    let kind = late.error.as_ref().map(|error| error.kind);
    assert_eq!((late.verdict, kind), (Verdict::TimedOut, Some(FailureKind::TimeoutRun)), "{}", shown(&late));
    // A run that is dropped while it waits leaves no trace.
    drop(pool.run(stage.request("say dropped")).await.unwrap());
    wait_in_runtime("an empty queue", || pool.status().queued == 0).await;
    let next = pool.run(stage.request("say next")).await.unwrap();
    working.cancel();
    assert_eq!(working.outcome().await.verdict, Verdict::Cancelled);
    assert_eq!(next.outcome().await.text, "next");
    assert_eq!(pool.status().started, 1);
    pool.close().await;
}

#[tokio::test]
async fn queue_size_zero_still_serves_runs_with_a_free_slot() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_queue = 0);
    assert_eq!(run(&pool, stage.request("say hello")).await.text, "hello");
    pool.close().await;
}

#[tokio::test]
async fn processes_are_replaced_by_session_count_and_memory() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_sessions = 2);
    let mut states = Vec::new();
    for _ in 0..5 {
        states.push(state(&run(&pool, stage.request("state")).await));
    }
    assert_eq!(distinct(&states, "pid"), 3, "{states:?}");
    assert_eq!((pool.status().recycled, pool.status().processes.len()), (2, 1));
    pool.close().await;

    let pool = pool_of(&stage, |options| options.max_memory = 100 << 20);
    // The pool checks its processes every second, so also before this session is open and the memory has grown.
    let faults = "memory_growth:120,session_new_slow:1500";
    let heavy = |script: &str| stage.sharing(script).env("FAKE_ACP_FAULT", faults);
    let first = state(&run(&pool, heavy("state")).await);
    wait_in_runtime("the process to be let go", || pool.status().recycled >= 1).await;
    let second = state(&run(&pool, heavy("state")).await);
    assert_ne!(first["pid"], second["pid"]);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn idle_process_is_ended() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.idle_timeout = Duration::from_millis(500));
    assert_eq!(run(&pool, stage.request("say hello")).await.text, "hello");
    wait_in_runtime("the end of the process", || pool.status().processes.is_empty()).await;
    nothing_lives(&stage).await;
    assert_eq!(run(&pool, stage.request("say again")).await.text, "again");
    pool.close().await;
}

#[tokio::test]
async fn closing_waits_for_active_runs_and_refuses_queued_ones() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_processes = 1);
    let working = tokio::spawn(pool.run(stage.request("sleep 1500\nsay done")).await.unwrap().outcome());
    wait_in_runtime("the run", || pool.status().processes.iter().any(|process| process.active == 1)).await;
    let waiting = tokio::spawn(pool.run(stage.request("say waited")).await.unwrap().outcome());
    wait_in_runtime("the queue", || pool.status().queued == 1).await;
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
    let (working, waiting) = (working.await.unwrap(), waiting.await.unwrap());
    assert_eq!((working.verdict, working.text.as_str()), (Verdict::Done, "done"), "{}", shown(&working));
    assert!(waiting.error.as_ref().unwrap().message.contains("closed"), "{}", shown(&waiting));
}

#[tokio::test]
async fn closing_while_an_agent_starts_leaves_nothing_running() {
    let stage = stage();
    for wait in [0, 5, 50, 300] {
        let pool = pool_of(&stage, |_| {});
        let request = stage.request("say hello").env("FAKE_ACP_FAULT", "initialize_slow:500");
        let starting = tokio::spawn(pool.run(request).await.unwrap().outcome());
        tokio::time::sleep(Duration::from_millis(wait)).await;
        pool.close().await;
        assert_eq!(stage.living(), [0_u32; 0], "after {wait} ms");
        let outcome = starting.await.unwrap();
        assert!(matches!(outcome.verdict, Verdict::Done | Verdict::Failed), "{}", shown(&outcome));
    }
}

#[tokio::test]
async fn run_dropped_during_startup_leaves_the_pool_usable() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_processes = 1);
    for wait in [0, 5, 50, 300] {
        let request = stage.request("say hello").env("FAKE_ACP_FAULT", "initialize_slow:500");
        let dropped = pool.run(request).await.unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        drop(dropped);
    }
    assert_eq!(run(&pool, stage.request("say hello")).await.text, "hello");
    let status = pool.status();
    assert_eq!((status.queued, status.processes.len()), (0, 1), "{status:?}");
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn dropped_pool_lets_its_runs_finish() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let working = pool.run(stage.request("sleep 1000\nsay done")).await.unwrap();
    drop(pool);
    let outcome = working.outcome().await;
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "done"), "{}", shown(&outcome));
    nothing_lives(&stage).await;
}

#[test]
fn runtime_shutdown_ends_all_agents() {
    let stage = stage();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let hanging = runtime.block_on(async {
        let pool = pool_of(&stage, |_| {});
        let hanging = pool.run(stage.request("run sleep 300")).await.unwrap();
        wait_in_runtime("the command", || stage.living().len() >= 3).await;
        hanging
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(hanging);
    wait_until("the end of all processes", || stage.living().is_empty());
}

#[tokio::test]
async fn processes_of_a_run_end_with_it_while_the_agent_continues() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let first = state(&run(&pool, stage.request("state")).await);
    let before = stage.living();
    let left = run(
        &pool,
        stage.request("run setsid sleep 300 >/dev/null 2>&1 &\nrun sleep 301 >/dev/null 2>&1 &\nsay left"),
    )
    .await;
    assert_eq!((left.verdict, left.text.as_str()), (Verdict::Done, "left"), "{}", shown(&left));
    assert_eq!(stage.living(), before, "they have exited when the outcome is reported");
    let dropped = pool.run(stage.request("run sleep 302")).await.unwrap();
    wait_in_runtime("the command", || stage.living().len() > before.len()).await;
    drop(dropped);
    wait_in_runtime("its end", || stage.living() == before).await;
    wait_in_runtime("a free place", || pool.status().processes[0].active == 0).await;
    let last = state(&run(&pool, stage.request("state")).await);
    assert_eq!(first["pid"], last["pid"]);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn prewarmed_sessions_are_used_by_matching_runs() {
    let stage = stage();
    let pool = pool_of(&stage, |options| options.max_processes = 2);
    assert_eq!(pool.prewarm(stage.sharing(""), 3).await.unwrap(), 3);
    assert_eq!(pool.prewarm(stage.sharing(""), 3).await.unwrap(), 3, "they exist already");
    let status = pool.status();
    assert_eq!((status.started, status.runs, status.processes[0].sessions), (1, 0, 3), "{status:?}");
    let outcomes = run_all(&pool, (0..3).map(|_| stage.sharing("sleep 300\nstate"))).await;
    let states: Vec<Value> = outcomes.iter().map(state).collect();
    assert_eq!((distinct(&states, "session"), distinct(&states, "pid")), (3, 1), "{states:?}");
    assert!(states.iter().all(|state| state["mode"] == "plan" && state["prompts"] == 1), "{states:?}");
    assert_eq!(pool.status().processes[0].sessions, 3, "none was opened for them");
    let other = stage.path().join("other");
    fs::create_dir(&other).unwrap();
    assert_eq!(pool.prewarm(stage.sharing(""), 1).await.unwrap(), 1);
    let elsewhere = run(&pool, stage.sharing("cwd").working_dir(&other)).await;
    assert!(elsewhere.text.contains("other"), "{}", shown(&elsewhere));
    assert_eq!(pool.status().processes[0].sessions, 5, "a session opened elsewhere is not used");
    // Runs that cannot share have separate processes.
    assert_eq!(pool.prewarm(stage.request(""), 2).await.unwrap(), 2);
    assert_eq!(pool.status().processes.len(), 2);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}

#[tokio::test]
async fn prewarming_an_unsupported_request_is_reported() {
    let stage = stage();
    let pool = pool_of(&stage, |_| {});
    let mut resumes = stage.request("");
    resumes.resume = Some("latest".into());
    assert_eq!(pool.prewarm(resumes, 2).await.unwrap(), 0);
    let broken = stage.request("").env("FAKE_ACP_FAULT", "session_new_error");
    assert_eq!(pool.prewarm(broken, 2).await.unwrap(), 0);
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}
