//! Claude Code's own CLI on `stream-json` with scripted models: what it reports, how it fails, how it ends, and how it is
//! kept warm.

mod inputs;

use agentline::{
    Agentline, FailureKind, Outcome, PermissionMode as Mode, Pool, PoolOptions, RunOptions, RunRequest,
    Schema, Surface, Verdict,
    detect::HostEnv,
    tools::{Tool, ToolHost},
};
use agentline_mock::{
    anthropic,
    scripted::{ModelRequest, ModelStep},
};
use agentline_tests::{AcpStage, RunRecord, shown, skipped, survivors, wait_in_runtime};
use serde_json::{Value, json};
use std::{
    fs,
    net::TcpListener,
    time::{Duration, Instant},
};

/// The longest time until an error of the model's service arrives.
const IN_TIME: Duration = Duration::from_secs(15);

struct Native {
    stage: AcpStage,
    surface: Surface,
}

impl Native {
    fn with(respond: impl Fn(&ModelRequest) -> ModelStep + Send + Sync + 'static) -> Option<Self> {
        let stage = AcpStage::claude_native(anthropic::model_by(respond).expect("a port"))?;
        Some(Self { stage, surface: Surface::StreamJson })
    }

    /// The adapter instead of the CLI.
    fn over_acp(respond: impl Fn(&ModelRequest) -> ModelStep + Send + Sync + 'static) -> Option<Self> {
        let stage = AcpStage::claude(anthropic::model_by(respond).expect("a port"))?;
        Some(Self { stage, surface: Surface::Acp })
    }

    fn steps(steps: Vec<ModelStep>) -> Option<Self> {
        let stage = AcpStage::claude_native(anthropic::model(steps).expect("a port"))?;
        Some(Self { stage, surface: Surface::StreamJson })
    }

    fn agentline(&self) -> Agentline {
        let host_env =
            HostEnv::new(self.stage.variables().clone(), self.stage.home(), self.stage.workspace());
        Agentline::new(host_env).program("claude", &self.stage.agent.program)
    }

    fn request(&self, prompt: &str) -> RunRequest {
        RunRequest::new(prompt)
            .agent("claude")
            .surface(self.surface)
            .working_dir(self.stage.workspace())
            .startup_timeout(Duration::from_secs(120))
            .timeout(Duration::from_secs(180))
    }

    async fn run(&self, request: RunRequest) -> Outcome {
        self.agentline().run(request).await.expect("a valid request").outcome().await
    }

    fn assert_no_processes(&self) {
        let mark = format!("HOME={}", self.stage.home().display());
        assert_eq!(survivors(&mark), [0_u32; 0]);
    }

    /// Returns the tokens that the model itself counted.
    fn model_tokens(&self) -> u64 {
        self.stage.model.requests().iter().filter(|request| request.path.starts_with("/v1/messages")).count()
            as u64
            * 130
    }
}

fn write(path: &str) -> ModelStep {
    ModelStep::call("Write", json!({"file_path": path, "content": "new\n"}))
}

fn shell(command: &str) -> ModelStep {
    ModelStep::call("Bash", json!({"command": command, "description": "d"}))
}

#[tokio::test]
async fn work_is_reported_as_it_happens_and_agrees_with_the_model_and_the_disk() {
    let steps = vec![
        ModelStep::thought("hm")
            .and_text("Writing.")
            .and_call("Write", json!({"file_path": "a.txt", "content": "a\n"})),
        shell("rm -f a.txt").and_call("Bash", json!({"command": "touch b.txt", "description": "d"})),
        write("../outside.txt"),
        ModelStep::text("All done."),
        ModelStep::text("Still done."),
    ];
    let Some(native) = Native::steps(steps) else { return skipped("claude") };
    fs::write(native.stage.workspace().join("notes.txt"), "PRIVATE\n").unwrap();
    let mut request =
        native.request("Do it, see @notes.txt").permission_mode(Mode::Bypass).deny("Bash(rm *)");
    request.system_prompt = Some("BE BRIEF".into());
    let run = native.agentline().run(request).await.unwrap();
    let record = RunRecord::of(run).await;
    let outcome = &record.outcome;
    assert_eq!(
        (outcome.verdict, &*outcome.text),
        (Verdict::DoneWithDenials, "All done."),
        "{}",
        record.shown()
    );
    assert_eq!(outcome.surface, Some(Surface::StreamJson));
    assert_eq!(record.denied()[0], "Bash rule Bash(rm *)", "{}", record.shown());
    let files: Vec<&str> = outcome.files.iter().map(|file| &*file.path).collect();
    assert!(files.contains(&"a.txt") && files.contains(&"b.txt"), "{}", record.shown());
    let turns = native.stage.model.turns();
    // One request for each turn: no title, no suggestion, no check.
    assert_eq!((native.stage.model.requests().len(), turns.len()), (4, 4), "{}", record.shown());
    assert_eq!(outcome.usage.tokens.total, Some(native.model_tokens()), "{}", record.shown());
    assert_eq!((outcome.turns, outcome.usage.requests), (4, Some(4)), "{}", record.shown());
    assert_eq!(outcome.model.as_deref(), turns[0].body["model"].as_str());
    assert!(outcome.cost_usd.is_some(), "{}", record.shown());
    assert!(turns[0].body["system"].to_string().contains("BE BRIEF"));
    assert!(
        !turns[0].body["messages"].to_string().contains("PRIVATE"),
        "files are not read without permission"
    );
    let words: Vec<&str> = record.records.iter().map(|record| record.event.type_word()).collect();
    assert_eq!(words[0], "started");
    for word in ["thinking", "text", "tool_use", "permission", "tool_result", "usage", "file_change"] {
        assert!(words.contains(&word), "{word}: {}", record.shown());
    }
    assert!(record.warnings().is_empty(), "{}", record.shown());
    native.assert_no_processes();

    // The session is saved where Claude Code keeps it, and `latest` finds it.
    let mut request = native.request("and now?");
    request.resume = Some("latest".into());
    let resumed = native.run(request).await;
    assert_eq!(
        (resumed.verdict, resumed.session_id.as_ref()),
        (Verdict::Done, outcome.session_id.as_ref()),
        "{}",
        shown(&resumed)
    );
    assert_eq!(resumed.usage.tokens.total, Some(130), "earlier prompts do not count: {}", shown(&resumed));
    assert!(native.stage.model.turns()[4].body["messages"].to_string().contains("All done."));
    let mut request = native.request("x");
    request.resume = Some("00000000-0000-4000-8000-000000000000".into());
    let unknown = native.run(request).await;
    assert_eq!(
        unknown.error.as_ref().map(|error| error.kind),
        Some(FailureKind::SessionNotFound),
        "{}",
        shown(&unknown)
    );
}

#[tokio::test]
async fn errors_of_the_models_service_arrive_in_time() {
    let Some(native) = Native::with(|request| {
        let texts = request.user_texts();
        let asks = |word: &str| texts.iter().any(|text| text.contains(word));
        match () {
            () if asks("case-401") => ModelStep::error(401, "invalid x-api-key"),
            () if asks("case-429") => ModelStep::error(429, "slow down"),
            () if asks("case-529") => ModelStep::error(529, "Overloaded"),
            () if asks("case-500") => ModelStep::error(500, "boom"),
            () if asks("case-400") => {
                ModelStep::error(400, "prompt is too long: 250000 tokens > 200000 maximum")
            }
            () if asks("case-404") => ModelStep::error(404, "model: no-such-model"),
            () if asks("case-cut") => ModelStep::text("half an answ").cut(),
            () => ModelStep::thought("hm").cut(),
        }
    }) else {
        return skipped("claude");
    };
    for (case, verdict, kind) in [
        ("case-401", Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        ("case-429", Verdict::RateLimited, FailureKind::RateLimited),
        ("case-529", Verdict::RateLimited, FailureKind::RateLimited),
        ("case-500", Verdict::Failed, FailureKind::ApiError),
        ("case-400", Verdict::Failed, FailureKind::ContextOverflow),
        ("case-404", Verdict::Failed, FailureKind::UnknownModel),
        ("case-cut", Verdict::Failed, FailureKind::ApiError),
        ("case-empty", Verdict::Empty, FailureKind::Empty),
    ] {
        let started_at = Instant::now();
        let request = native.request(case);
        let outcome =
            native.run(if case == "case-404" { request.model("no-such-model") } else { request }).await;
        let took = started_at.elapsed();
        let found = (outcome.verdict, outcome.error.as_ref().map(|error| error.kind));
        assert_eq!(found, (verdict, Some(kind)), "{case}: {}", shown(&outcome));
        assert!(took < IN_TIME, "{case} took {took:?}");
    }
    // A service that closes every connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let started_at = Instant::now();
    let outcome = native.run(native.request("x").env("ANTHROPIC_BASE_URL", &url)).await;
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!((outcome.verdict, kind), (Verdict::Failed, Some(FailureKind::Network)), "{}", shown(&outcome));
    assert!(started_at.elapsed() < IN_TIME);
    native.assert_no_processes();
}

#[tokio::test]
async fn limits_act_before_the_next_request() {
    let read = || ModelStep::call("Read", json!({"file_path": "a.txt"}));
    let Some(native) = Native::steps(vec![read(), read(), read(), read(), ModelStep::text("end")]) else {
        return skipped("claude");
    };
    fs::write(native.stage.workspace().join("a.txt"), "a\n").unwrap();
    let mut request = native.request("go");
    request.limits.max_tokens = Some(200);
    let outcome = native.run(request).await;
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(
        (outcome.verdict, kind),
        (Verdict::LimitReached, Some(FailureKind::MaxTokens)),
        "{}",
        shown(&outcome)
    );
    assert_eq!(
        native.stage.model.turns().len(),
        2,
        "the third request would exceed it further: {}",
        shown(&outcome)
    );
    let mut request = native.request("go");
    request.limits.max_turns = Some(1);
    let outcome = native.run(request).await;
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(
        (outcome.verdict, kind),
        (Verdict::LimitReached, Some(FailureKind::MaxTurns)),
        "{}",
        shown(&outcome)
    );
    assert_eq!(native.stage.model.turns().len(), 3, "{}", shown(&outcome));
}

/// The options of a run with a function of the program and a schema.
#[expect(clippy::unwrap_used, reason = "test helpers may panic")]
fn tool_and_schema() -> RunOptions {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let double = Tool::new("double", "Doubles", input, |args: Value, _| async move {
        Ok(format!("twice is {}", args["n"].as_i64().unwrap_or(0) * 2))
    });
    let schema = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    RunOptions::new()
        .tools(ToolHost::new().server_name("shop").tool(double))
        .schema(Schema::from_value(schema).unwrap())
}

#[tokio::test]
async fn warm_processes_serve_one_run_each_with_its_tools_and_its_schema() {
    let Some(native) = Native::with(|request| match request.turn() {
        0 => ModelStep::call("mcp__shop__double", json!({"n": 21})),
        _ if !request.offered_tools().contains(&"StructuredOutput".to_owned()) => ModelStep::text("42"),
        1 => ModelStep::call("StructuredOutput", json!({"sum": "much"})),
        _ => ModelStep::call("StructuredOutput", json!({"sum": 42})),
    }) else {
        return skipped("claude");
    };
    let pool = Pool::new(native.agentline(), PoolOptions::default());
    let ready = pool.prewarm(native.request("open"), 1).await.unwrap();
    assert_eq!((ready, native.stage.model.requests().len()), (1, 0), "a prepared process costs nothing");
    let prepared = pool.status().processes[0].pid;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        // The schema is a property of the process, the tools are not.
        let mut options = tool_and_schema();
        if sessions.is_empty() {
            options.schema = None;
        }
        let before = native.stage.model.turns().len();
        let run =
            pool.run_with(native.request("Add it up").permission_mode(Mode::Deny), options).await.unwrap();
        let record = RunRecord::of(run).await;
        let offered = native.stage.model.turns()[before].offered_tools();
        assert!(offered.contains(&"mcp__shop__double".to_owned()), "tools are listed: {offered:?}");
        assert_eq!(record.results()[0], "twice is 42", "{}", record.shown());
        if sessions.is_empty() {
            assert_ne!(record.outcome.verdict, Verdict::InvalidOutput, "{}", record.shown());
        } else {
            assert_eq!(record.outcome.verdict, Verdict::Done, "{}", record.shown());
            let value: Value = serde_json::from_str(record.outcome.output.as_ref().unwrap().get()).unwrap();
            assert_eq!(value, json!({"sum": 42}), "{}", record.shown());
            assert!(!record.warnings().contains(&"repair"), "Claude Code repairs the value itself");
        }
        sessions.push(record.outcome.session_id.clone().expect("a session"));
    }
    assert_ne!(sessions[0], sessions[1]);
    wait_in_runtime("the used processes end", || {
        pool.status().processes.iter().all(|process| process.active == 0 && process.pid != prepared)
    })
    .await;
    assert!(pool.status().processes.iter().all(|process| process.sessions == 0), "{:?}", pool.status());
    pool.close().await;
    native.assert_no_processes();
}

#[tokio::test]
async fn conversation_keeps_one_process_and_survives_a_cancelled_prompt() {
    let Some(native) = Native::with(|request| {
        let texts = request.user_texts();
        if texts.last().is_some_and(|text| text.contains("hang")) {
            ModelStep::hang()
        } else {
            ModelStep::text("hi")
        }
    }) else {
        return skipped("claude");
    };
    let session = native.agentline().session(native.request("")).await.unwrap();
    assert!(!session.models().is_empty());
    let first = session.prompt("one").await.unwrap().outcome().await;
    assert_eq!(
        (first.verdict, first.session_id.as_deref()),
        (Verdict::Done, Some(session.id())),
        "{}",
        shown(&first)
    );
    let before = native.stage.model.turns().len();
    let run = session.prompt("hang").await.unwrap();
    wait_in_runtime("the model is asked", || native.stage.model.turns().len() > before).await;
    let (next, cancelled) = tokio::join!(session.prompt("three"), async {
        // By then, the next prompt waits for this one.
        tokio::time::sleep(Duration::from_millis(500)).await;
        run.cancel();
        run.outcome().await
    });
    assert_eq!(cancelled.verdict, Verdict::Cancelled);
    let third = next.unwrap().outcome().await;
    assert_eq!((third.verdict, third.usage.tokens.total), (Verdict::Done, Some(130)), "{}", shown(&third));
    assert!(native.stage.model.turns().last().unwrap().body["messages"].to_string().contains("one"));
    session.close().await;
    native.assert_no_processes();
}
