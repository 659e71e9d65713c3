//! Tests Codex on its own surfaces, `app-server` and `exec --json`, with the real program and a scripted model. The
//! topics that all agents share are in `acp_agents`.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::agents::acp_agents::harness::{AgentStage, CODEX, CODEX_NATIVE, TestedAgent, stage, tokens};
use agentline::{
    FailureKind, Outcome, PermissionMode as Mode, RunOptions, RunRequest, Schema, Surface, Verdict,
};
use agentline_mock::scripted::ModelStep;
use agentline_tests::{DOT_PNG, RunRecord, shown};
use serde_json::json;
use std::{
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

/// The time within which an error of the service must be reported.
const MOST: Duration = Duration::from_secs(15);

async fn run(stage: &AgentStage, mut request: RunRequest, prompt: &str) -> RunRecord {
    request.prompt = prompt.into();
    RunRecord::of(stage.agentline().run(request).await.unwrap()).await
}

/// Writes inside the workspace are allowed in this mode, others and rules are denied, and the numbers are the model's own.
#[tokio::test]
async fn rules_limits_and_the_workspace_are_enforced() {
    let many = |steps: usize| {
        let mut steps: Vec<ModelStep> = (0..steps).map(|n| CODEX.shell(&format!("echo {n}"))).collect();
        steps.push(ModelStep::text("done"));
        steps
    };
    let outside = std::env::temp_dir().join(format!("agentline-outside-{}.txt", std::process::id()));
    let outside_name = outside.to_string_lossy().into_owned();
    let stage = stage!(
        CODEX_NATIVE,
        vec![
            (
                "write outside",
                vec![
                    CODEX.write("inside.txt"),
                    CODEX.write(&outside_name),
                    CODEX.shell(&format!(
                        "touch {outside_name}; echo $TMPDIR; touch $TMPDIR/mine && echo wrote"
                    )),
                    ModelStep::text("done"),
                ],
            ),
            (
                "remove it",
                vec![CODEX.shell("rm kept.txt"), CODEX.shell("rm -rf gone"), ModelStep::text("done")]
            ),
            ("many steps", many(6)),
        ]
    );
    let kept = stage.stage.workspace().join("kept.txt");
    std::fs::write(&kept, "x").unwrap();
    std::fs::create_dir(stage.stage.workspace().join("gone")).unwrap();

    let result = run(&stage, stage.request(Mode::AcceptEdits), "write outside").await;
    let outcome = &result.outcome;
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
    assert_eq!(result.denied(), ["Write outside_workspace -"], "{}", result.shown());
    assert!(stage.read("inside.txt").is_some() && !outside.exists(), "{}", result.shown());
    // Commands have a temporary directory of their own.
    assert!(result.results()[2].contains("wrote"), "{}", result.shown());
    let requests = stage.stage.model.requests();
    assert_eq!(requests.len(), 4, "no other request was made");
    assert_eq!(tokens(outcome), [Some(400), Some(100), Some(80), Some(20), Some(520)], "{}", result.shown());
    assert_eq!((outcome.usage.requests, outcome.turns), (Some(4), 4), "{}", result.shown());
    assert_eq!((outcome.model.as_deref(), outcome.surface), (Some("gpt-5.5"), Some(Surface::AppServer)));

    // A rule is enforced in a mode that allows everything else, including what Codex considers dangerous.
    let result = run(&stage, stage.request(Mode::Bypass).deny("Bash(rm kept*)"), "remove it").await;
    assert_eq!(result.denied(), ["Bash rule Bash(rm kept*)"], "{}", result.shown());
    assert!(kept.exists() && !stage.stage.workspace().join("gone").exists(), "{}", result.shown());

    let before = stage.stage.model.requests().len();
    let mut limited = stage.request(Mode::Default);
    limited.limits.max_tokens = Some(200);
    let result = run(&stage, limited, "many steps").await;
    assert_eq!(result.outcome.verdict, Verdict::LimitReached, "{}", result.shown());
    let made = stage.stage.model.requests().len() - before;
    assert!(made <= 3, "{made} requests were made: {}", result.shown());
    assert_eq!(stage.live_processes(), [0_u32; 0]);
}

/// Every error of the service is reported as what it is, in time, with Codex's own retries. The conformance kit shows them
/// on `app-server`.
#[tokio::test]
async fn errors_of_the_service_are_reported_by_exec() {
    check_errors(CODEX_NATIVE, Surface::StreamJson).await;
}

#[tokio::test]
async fn errors_of_the_service_are_reported_over_acp() {
    check_errors(CODEX, Surface::Acp).await;
}

async fn check_errors(tested: TestedAgent, surface: Surface) {
    let stage = stage!(
        tested,
        vec![
            ("error 401", vec![ModelStep::error(401, "Incorrect API key provided")]),
            ("error 429", vec![ModelStep::error(429, "Rate limit reached")]),
            ("error 500", vec![ModelStep::error(500, "boom")]),
            ("error 529", vec![ModelStep::error(529, "overloaded")]),
            ("error 400", vec![ModelStep::error(400, "Your input exceeds the context window of this model")]),
            ("error 404", vec![ModelStep::error(404, "The model `gpt-5.5` does not exist")]),
            ("truncated text", vec![ModelStep::text("half").cut()]),
            ("truncated nothing", vec![ModelStep::thought("hm").cut()]),
        ]
    );
    let expected = [
        ("error 401", Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        ("error 429", Verdict::RateLimited, FailureKind::RateLimited),
        ("error 500", Verdict::Failed, FailureKind::ApiError),
        ("error 529", Verdict::RateLimited, FailureKind::RateLimited),
        ("error 400", Verdict::Failed, FailureKind::ContextOverflow),
        ("error 404", Verdict::Failed, FailureKind::UnknownModel),
        ("truncated text", Verdict::Failed, FailureKind::ApiError),
        ("truncated nothing", Verdict::Empty, FailureKind::Empty),
    ];
    let check = async |prompt: &str, verdict, kind, request: RunRequest| {
        let started_at = Instant::now();
        let outcome = run(&stage, request.surface(surface), prompt).await.outcome;
        assert!(started_at.elapsed() < MOST, "{prompt} took {:?}", started_at.elapsed());
        let error = outcome.error.as_ref().unwrap_or_else(|| panic!("{prompt}: {}", shown(&outcome)));
        assert_eq!((outcome.verdict, error.kind), (verdict, kind), "{prompt}: {}", shown(&outcome));
    };
    for (prompt, verdict, kind) in expected {
        check(prompt, verdict, kind, stage.request(Mode::Default)).await;
    }
    // A service that drops every connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let config = stage.stage.home().join(".codex/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace(&format!("{}/v1", stage.stage.model.url()), &url)).unwrap();
    check("dropped", Verdict::Failed, FailureKind::Network, stage.request(Mode::Default)).await;
}

/// A session is continued by its id and as the latest one, on both surfaces.
#[tokio::test]
async fn sessions_are_resumed() {
    let stage = stage!(
        CODEX_NATIVE,
        vec![
            ("remember one", vec![ModelStep::text("one")]),
            ("remember two", vec![ModelStep::text("two")]),
            ("what was it", vec![ModelStep::text("it was")]),
        ]
    );
    let history = |outcome: &Outcome, expected: &[&str], missing: &str| {
        assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(outcome));
        let texts = stage.stage.model.turns().last().unwrap().user_texts().concat();
        assert!(expected.iter().all(|text| texts.contains(text)) && !texts.contains(missing), "{texts}");
    };
    let request = || stage.request(Mode::Default);
    let first = run(&stage, request(), "remember one").await.outcome;
    let id = first.session_id.clone().unwrap();
    let second = run(&stage, request().surface(Surface::StreamJson), "remember two").await.outcome;
    assert_eq!(second.verdict, Verdict::Done, "{}", shown(&second));

    let latest = run(&stage, request().resume("latest"), "what was it").await.outcome;
    history(&latest, &["remember two", "what was it"], "remember one");
    assert_eq!(latest.session_id, second.session_id);
    let by_id = run(&stage, request().resume(&id), "what was it").await.outcome;
    history(&by_id, &["remember one"], "remember two");
    // Only the tokens of this run count.
    assert_eq!(tokens(&by_id)[0], Some(100), "{}", shown(&by_id));
    let exec = run(&stage, request().resume(&id).surface(Surface::StreamJson), "what was it").await.outcome;
    history(&exec, &["remember one", "what was it"], "remember two");
    assert_eq!(tokens(&exec)[0], Some(100), "{}", shown(&exec));

    let unknown = "01a1dd7a-0000-7e23-9732-0e209f9dc524";
    for surface in [Surface::AppServer, Surface::StreamJson] {
        let outcome = run(&stage, request().resume(unknown).surface(surface), "x").await.outcome;
        let kind = outcome.error.as_ref().map(|error| error.kind);
        assert_eq!(kind, Some(FailureKind::SessionNotFound), "{surface}: {}", shown(&outcome));
    }
}

/// Creates the smallest valid image in the workspace.
fn image_in(stage: &AgentStage) -> PathBuf {
    let image = stage.stage.workspace().join("dot.png");
    std::fs::write(&image, DOT_PNG).unwrap();
    image
}

/// Everything that a request sets for the model reaches it.
#[tokio::test]
async fn model_effort_instructions_and_images_reach_the_model() {
    let stage = stage!(CODEX_NATIVE, vec![("look", vec![ModelStep::text("seen")])]);
    let image = image_in(&stage);
    let request = stage
        .request(Mode::Default)
        .model("gpt-6.1-sol")
        .agent_option("effort", "high")
        .system_prompt("Answer like a pirate.");
    let mut with_image = request.clone();
    with_image.attachments = vec![image];
    let result = run(&stage, with_image, "look").await;
    assert_eq!(result.outcome.model.as_deref(), Some("gpt-6.1-sol"), "{}", result.shown());
    // The tools of this model are not part of a request, so the request does not look like a turn.
    let body = stage.stage.model.requests().last().unwrap().body.clone();
    assert_eq!((&body["model"], &body["reasoning"]["effort"]), (&json!("gpt-6.1-sol"), &json!("high")));
    let text = body["input"].to_string();
    assert!(text.contains("Answer like a pirate.") && text.contains("data:image/png;base64,"), "{text}");

    let result = run(&stage, request.surface(Surface::StreamJson), "look").await;
    assert_eq!(result.outcome.model.as_deref(), Some("gpt-6.1-sol"), "{}", result.shown());
    let body = stage.stage.model.requests().last().unwrap().body.clone();
    assert_eq!((&body["model"], &body["reasoning"]["effort"]), (&json!("gpt-6.1-sol"), &json!("high")));
    assert!(body["input"].to_string().contains("Answer like a pirate."));
}

/// Over ACP, a model is set by its plain name, with an effort or without.
#[tokio::test]
async fn model_effort_and_images_reach_the_model_over_acp() {
    let stage = stage!(CODEX, vec![("look", vec![ModelStep::text("seen")])]);
    let mut request = stage.request(Mode::Default).model("gpt-5.6-luna");
    request.attachments = vec![image_in(&stage)];
    for (request, effort) in [(request.clone(), None), (request.agent_option("effort", "low"), Some("low"))] {
        let result = run(&stage, request, "look").await;
        assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
        assert_eq!(result.outcome.model.as_deref(), Some("gpt-5.6-luna"), "{}", result.shown());
        let body = stage.stage.model.requests().last().unwrap().body.clone();
        assert_eq!(body["model"], "gpt-5.6-luna", "{}", result.shown());
        if let Some(effort) = effort {
            assert_eq!(body["reasoning"]["effort"], effort);
        }
        assert!(body["input"].to_string().contains("data:image/png;base64,"), "{}", body["input"]);
    }
    let result = run(&stage, stage.request(Mode::Default).model("gpt-5.6-lun"), "look").await;
    let error = result.outcome.error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::UnknownModel, "{}", result.shown());
    assert!(error.message.contains("gpt-5.6-luna["), "{}", result.shown());
}

/// Files in an included directory can be written like those of the workspace.
#[tokio::test]
async fn included_directories_are_writable() {
    let more = tempfile::tempdir().unwrap();
    let more = std::fs::canonicalize(more.path()).unwrap();
    let path = |name: &str| more.join(name).to_string_lossy().into_owned();
    let steps = |name: &str| {
        let (patched, touched) = (path(&format!("{name}-patched.txt")), path(&format!("{name}-touched.txt")));
        vec![CODEX.write(&patched), CODEX.shell(&format!("touch {touched}")), ModelStep::text("done")]
    };
    let stage = stage!(CODEX_NATIVE, vec![("server", steps("server")), ("exec", steps("exec"))]);
    for (prompt, surface) in [("server", Surface::AppServer), ("exec", Surface::StreamJson)] {
        let mut request = stage.request(Mode::AcceptEdits).surface(surface);
        request.include_directories = vec![more.clone()];
        let result = run(&stage, request, prompt).await;
        assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
        for kind in ["patched", "touched"] {
            assert!(more.join(format!("{prompt}-{kind}.txt")).exists(), "{kind}: {}", result.shown());
        }
    }
}

/// The provider that is built in uses a WebSocket, and HTTP after several failures. Both are within the time.
#[tokio::test]
async fn failing_websocket_is_replaced_by_http() {
    let scripts =
        vec![("hello", vec![ModelStep::text("hi")]), ("error 500", vec![ModelStep::error(500, "boom")])];
    let stage = stage!(CODEX_NATIVE, scripts);
    let config = format!("model = \"gpt-5.5\"\nopenai_base_url = \"{}/v1\"\n", stage.stage.model.url());
    stage.stage.home_file(".codex/config.toml", &config);
    stage.stage.home_file(".codex/auth.json", r#"{"OPENAI_API_KEY": "no-key-of-anything"}"#);
    // One after the other: two processes of Codex cannot initialize a new home at the same time.
    let started_at = Instant::now();
    let answered = run(&stage, stage.request(Mode::Default), "hello").await;
    let failed = run(&stage, stage.request(Mode::Default).surface(Surface::StreamJson), "error 500").await;
    // Two processes also start in this time, on a machine that may be busy.
    assert!(started_at.elapsed() < 3 * MOST, "{:?}", started_at.elapsed());
    assert_eq!(answered.outcome.text, "hi", "{}", answered.shown());
    let retries = answered.outcome.warnings.iter().filter(|warning| warning.code == "retry").count();
    assert!(retries > 1, "{}", answered.shown());
    let kind = failed.outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(kind, Some(FailureKind::ApiError), "{}", failed.shown());
}

/// An answer that was interrupted and sent again is in the outcome once.
#[tokio::test]
async fn repeated_text_is_in_the_outcome_once() {
    let steps =
        vec![ModelStep::text("The beginning").drop_midway(), ModelStep::text("The beginning and the end.")];
    let stage = stage!(CODEX_NATIVE, vec![("go", steps)]);
    let result = run(&stage, stage.request(Mode::Default), "go").await;
    assert_eq!(result.outcome.text, "The beginning and the end.", "{}", result.shown());
    assert_eq!(result.warnings(), ["retry", "text_repeated"], "{}", result.shown());
}

/// A schema that the service enforces is sent to it, and the answer itself is the value.
#[tokio::test]
async fn schema_is_sent_to_the_service() {
    let stage = stage!(CODEX_NATIVE, vec![("who", vec![ModelStep::text(r#"{"name": "Ada"}"#)])]);
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
                        "additionalProperties": false});
    let options = RunOptions::new().schema(Schema::from_value(schema.clone()).unwrap());
    let mut request = stage.request(Mode::Default);
    request.prompt = "who".into();
    let run = stage.agentline().run_with(request, options).await.unwrap();
    let result = RunRecord::of(run).await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(result.outcome.output.as_ref().unwrap().get(), r#"{"name":"Ada"}"#, "{}", result.shown());
    let body = stage.stage.model.turns().last().unwrap().body.clone();
    assert_eq!(body["text"]["format"]["schema"], schema, "{body}");
}

/// Cancelling a run of `exec` in a tool leaves no process.
#[tokio::test]
async fn cancelled_exec_leaves_no_process() {
    let stage = stage!(CODEX_NATIVE, vec![("endless", vec![CODEX.shell("touch begun; sleep 600")])]);
    let mut request = stage.request(Mode::AcceptEdits).surface(Surface::StreamJson);
    request.prompt = "endless".into();
    let run = stage.agentline().run(request).await.unwrap();
    let canceller = run.canceller();
    let outcome = tokio::spawn(run.outcome());
    crate::agents::acp_agents::harness::until("the command", || stage.read("begun").is_some()).await;
    canceller.cancel();
    let outcome = outcome.await.unwrap();
    assert_eq!(outcome.verdict, Verdict::Cancelled, "{}", shown(&outcome));
    assert_eq!(stage.live_processes(), [0_u32; 0]);
}
