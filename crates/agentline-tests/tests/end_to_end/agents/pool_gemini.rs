//! Tests the warm pool with the real Gemini CLI: a run is isolated from the previous one and leaves nothing behind.

use agentline::{
    Outcome, PermissionMode, Pool, PoolOptions, RunOptions, RunRequest, Verdict,
    tools::{Tool, ToolHost},
};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown, survivors};
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

fn pool_of(stage: &TestStage, change: impl FnOnce(&mut PoolOptions)) -> Pool {
    let mut options = PoolOptions::default();
    change(&mut options);
    Pool::new(stage.agentline(), options)
}

async fn run(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("an accepted request").outcome().await
}

#[track_caller]
fn assert_text(outcome: &Outcome, text: &str) {
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, text), "{}", shown(outcome));
}

/// Returns every file below a directory by its relative path.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                _ => found
                    .push(entry.path().strip_prefix(folder).expect("a path below the directory").to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn pooled_runs_share_nothing() {
    needs_real_gemini!();
    let write = |name: &str| GeminiStep::call("write_file", json!({"file_path": name, "content": "x\n"}));
    let print_colour = json!({"command": "echo colour=$COLOUR > colour.txt"});
    let scripts = [
        ("write one", Script::new([write("one.txt"), GeminiStep::text("wrote")])),
        ("write two", Script::new([write("two.txt"), GeminiStep::text("tried")])),
        (
            "tell",
            Script::new([GeminiStep::call("run_shell_command", print_colour), GeminiStep::text("told")]),
        ),
        ("", Script::always(GeminiStep::text("hello"))),
    ];
    let model = GeminiModel::by_prompt(move |request| {
        let prompt = request.prompt();
        if prompt.contains("refuse one model") && !request.model.contains("pro") {
            return GeminiStep::daily_quota();
        }
        let script = scripts.iter().find(|(words, _)| prompt.contains(words)).expect("the last one matches");
        script.1.at(request.turn_in_prompt())
    });
    let stage = TestStage::with_model(model.unwrap());
    let pool = pool_of(&stage, |_| {});
    let cold = Instant::now();
    assert_text(&run(&pool, stage.request("The word is MARZIPAN.")).await, "hello");
    let cold = cold.elapsed();
    assert_text(&run(&pool, stage.request("What was the word?").model("gemini-2.5-pro")).await, "hello");
    let clock =
        Tool::new("tell_time", "Tells the time", json!({"type": "object"}), |_, _| async { Ok("noon") });
    let options = RunOptions::new().tools(ToolHost::new().tool(clock));
    assert_text(
        &pool.run_with(stage.request("With a tool."), options).await.unwrap().outcome().await,
        "hello",
    );
    let warm = Instant::now();
    assert_text(&run(&pool, stage.request("Without one.")).await, "hello");
    assert!(warm.elapsed() * 4 < cold, "{:?} {cold:?}", warm.elapsed());
    assert_eq!(pool.status().started, 1, "{:?}", pool.status());
    let model_requests = stage.model.requests_to_main();
    let models: Vec<&str> = model_requests.iter().map(|request| request.model.as_str()).collect();
    assert_eq!(models, ["gemini-2.5-flash", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash"]);
    let contains = |index: usize, word: &str| model_requests[index].body.to_string().contains(word);
    assert!(contains(0, "MARZIPAN") && !(1..4).any(|index| contains(index, "MARZIPAN")));
    let offered =
        |index: usize| model_requests[index].offered_tools().iter().any(|name| name.contains("tell_time"));
    assert_eq!([offered(1), offered(2), offered(3)], [false, true, false]);

    // A run that names no model does not get the one that a process was started with.
    let mut unnamed = stage.request("Any model.");
    unnamed.model = None;
    assert_text(&run(&pool, unnamed).await, "hello");
    let model_requests = stage.model.requests_to_main();
    assert!(
        model_requests.last().is_some_and(|request| !request.model.contains("2.5")),
        "{:?}",
        model_requests.last()
    );
    assert_eq!(pool.status().started, 2, "{:?}", pool.status());

    // Rules and variables apply to a whole process, so runs with different ones get another process.
    let without_shell = run(&pool, stage.request("No shell.").deny("Bash")).await;
    assert_eq!(without_shell.verdict, Verdict::Done, "{}", shown(&without_shell));
    assert_text(&run(&pool, stage.request("A shell again.")).await, "hello");
    assert_eq!(pool.status().started, 3);
    let model_requests = stage.model.requests_to_main();
    let shell =
        |index: usize| model_requests[index].offered_tools().iter().any(|name| name == "run_shell_command");
    assert_eq!([shell(3), shell(5), shell(6)], [true, false, true]);
    check_permissions_and_variables(&stage, &pool).await;
    pool.close().await;
}

/// Checks permissions and variables on the warm agents of the pool.
async fn check_permissions_and_variables(stage: &TestStage, pool: &Pool) {
    let started = pool.status().started;
    assert_text(&run(pool, stage.request("write one")).await, "wrote");
    let denied = run(pool, stage.request("write two").permission_mode(PermissionMode::Default)).await;
    assert_eq!(denied.verdict, Verdict::DoneWithDenials, "{}", shown(&denied));
    assert!(stage.read("one.txt").is_some() && stage.read("two.txt").is_none());
    assert_text(&run(pool, stage.request("tell").env("COLOUR", "red")).await, "told");
    assert_eq!(stage.read("colour.txt").as_deref(), Some("colour=red\n"));
    assert_text(&run(pool, stage.request("tell")).await, "told");
    assert_eq!(stage.read("colour.txt").as_deref(), Some("colour=\n"));
    assert!(pool.status().started > started, "a run with a variable has its own process");

    // Another model of the same warm agent answers if the first one refuses.
    let started = pool.status().started;
    let request = stage.request("refuse one model").fallback_model("gemini-2.5-pro");
    let outcome = run(pool, request).await;
    assert_text(&outcome, "hello");
    let found = (outcome.attempts, outcome.model.as_deref(), pool.status().started);
    assert_eq!(found, (Some(2), Some("gemini-2.5-pro"), started), "{}", shown(&outcome));
}

#[tokio::test]
async fn commands_end_with_their_run_and_do_not_share_a_process() {
    needs_real_gemini!();
    let leave = json!({"command": "sleep 311 >/dev/null 2>&1 & setsid sleep 312 >/dev/null 2>&1 & (setsid nohup sleep 313 >/dev/null 2>&1 &); echo left"});
    let script = Script::new([GeminiStep::call("run_shell_command", leave), GeminiStep::text("left")]);
    let model = GeminiModel::matching([
        ("leave", script),
        ("hang", Script::always(GeminiStep::text("late").delay(60_000))),
        ("", Script::always(GeminiStep::text("hello").delay(1500))),
    ]);
    let stage = TestStage::with_model(model.unwrap());
    let mark = format!("MARK_OF_THE_TEST={}", stage.outside().display());
    let stage = stage.env("MARK_OF_THE_TEST", Some(mark.strip_prefix("MARK_OF_THE_TEST=").unwrap()));
    let request = |prompt: &str| stage.request(prompt).pass_env("MARK_OF_THE_TEST");
    let pool = pool_of(&stage, |_| {});
    assert_text(&run(&pool, request("warm up")).await, "hello");
    let before = survivors(&mark);
    assert_text(&run(&pool, request("leave")).await, "left");
    assert_eq!(survivors(&mark), before, "only the agent and its supervisor are still alive");
    let (one, two) = (pool.clone(), pool.clone());
    let (first, second) = (request("first"), request("second"));
    let both = [
        tokio::spawn(async move { run(&one, first).await }),
        tokio::spawn(async move { run(&two, second).await }),
    ];
    for each in both {
        assert_text(&each.await.unwrap(), "hello");
    }
    assert_eq!(pool.status().started, 2, "runs with a shell have separate processes");
    // The message names the timeout and the caller's own value, not what was left of it after the wait for a slot.
    let outcome = run(&pool, request("hang").timeout(Duration::from_secs(2))).await;
    let error = outcome.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
    assert_eq!(outcome.verdict, Verdict::TimedOut, "{}", shown(&outcome));
    assert!(error.starts_with("the run exceeded the timeout of 2 s; "), "{}", shown(&outcome));
    pool.close().await;
    assert_eq!(survivors(&mark), [0_u32; 0]);
}

#[tokio::test]
async fn runs_without_a_shell_share_one_process() {
    needs_real_gemini!();
    let words = ["red", "green", "blue", "grey"];
    let model =
        GeminiModel::matching(words.map(|word| (word, Script::always(GeminiStep::text(word).delay(4000)))));
    let stage = TestStage::with_model(model.unwrap());
    let kinds: [fn(RunRequest) -> RunRequest; 2] =
        [|request| request.permission_mode(PermissionMode::Plan), |request| request.deny("Bash")];
    for kind in kinds {
        let pool = pool_of(&stage, |options| options.max_processes = 1);
        assert_eq!(pool.prewarm(kind(stage.request("")), 4).await.unwrap(), 4);
        let started_at = Instant::now();
        let mut runs = tokio::task::JoinSet::new();
        for word in words {
            let (pool, request) = (pool.clone(), kind(stage.request(&format!("Say {word}."))));
            runs.spawn(async move {
                let outcome = run(&pool, request).await;
                assert_text(&outcome, word);
                outcome.session_id
            });
        }
        let sessions: BTreeSet<_> = runs.join_all().await.into_iter().collect();
        assert_eq!(sessions.len(), words.len(), "each run has its own session");
        assert!(
            started_at.elapsed() < Duration::from_secs(14),
            "one after another would take 16 s: {:?}",
            started_at.elapsed()
        );
        assert_eq!(pool.status().processes[0].sessions, 4, "{:?}", pool.status());
        pool.close().await;
    }
}

#[tokio::test]
async fn workspace_may_be_removed_and_sessions_are_kept_in_the_user_store() {
    needs_real_gemini!();
    let script = Script::new([
        GeminiStep::call("run_shell_command", json!({"command": "pwd > where.txt"})),
        GeminiStep::text("ok"),
    ]);
    let model = GeminiModel::matching([("", script)]);
    let stage = TestStage::with_model(model.unwrap());
    let pool = pool_of(&stage, |_| {});
    let other = stage.outside().join("other");
    fs::create_dir(&other).unwrap();
    assert_text(&run(&pool, stage.request("there").working_dir(&other)).await, "ok");
    assert!(fs::read_to_string(other.join("where.txt")).unwrap().ends_with("/other\n"));
    fs::remove_dir_all(&other).unwrap();
    let mut sessions = Vec::new();
    for prompt in ["here", "and here"] {
        let outcome = run(&pool, stage.request(prompt)).await;
        assert_text(&outcome, "ok");
        sessions.push(outcome.session_id.unwrap());
    }
    assert_eq!(pool.status().started, 1);
    // A prewarmed session that is not used.
    assert_eq!(pool.prewarm(stage.request(""), 1).await.unwrap(), 1);
    pool.close().await;

    let store = stage.home().join(".gemini");
    let left = files_below(&store);
    let chats: Vec<String> = left
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| path.contains("/chats/"))
        .collect();
    assert_eq!(chats.len(), 3, "{left:#?}");
    for session in &sessions {
        let start = &session[..8];
        let file = chats.iter().find(|path| path.starts_with("tmp/ws/") && path.contains(start));
        let file = file.unwrap_or_else(|| panic!("{start} is not in {chats:#?}"));
        assert!(fs::read_to_string(store.join(file)).unwrap().contains("here"));
    }
    let allowed = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.contains("/chats/")
            || path.ends_with("/.project_root")
            || ["settings.json", "installation_id", "state.json"].iter().any(|name| *path == **name)
    };
    let abandoned: Vec<&PathBuf> = left.iter().filter(|path| !allowed(path)).collect();
    assert!(abandoned.is_empty(), "{abandoned:#?}");
    assert_eq!(files_below(&stage.outside().join("tmp")), Vec::<PathBuf>::new());
}
