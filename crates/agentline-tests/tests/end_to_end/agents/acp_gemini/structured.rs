//! Tests structured answers: submitted through the tool, corrected if they are invalid, or read from the text.

use crate::agents::acp_gemini::harness::{RunRecord, in_mode, send_prompt, stage};
use agentline::{
    FailureKind, PermissionMode as Mode, Pool, PoolOptions, RunOptions, RunRequest, Schema, Surface,
    TypedError, Verdict, tools::schemars::JsonSchema,
};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use serde::Deserialize;
use serde_json::{Value, json};

const TOOL: &str = "mcp_agentline_structured_output";

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": false,
    })
}

/// Runs a request with a schema on the warm agent, in a mode that changes nothing.
async fn value(
    pool: &Pool,
    stage: &TestStage,
    prompt: &str,
    schema: Value,
    change: impl FnOnce(RunRequest) -> RunRequest,
) -> RunRecord {
    let mut request = in_mode(stage, Mode::Plan);
    request.prompt = prompt.into();
    let options = RunOptions::new().schema(Schema::from_value(schema).expect("a schema"));
    RunRecord::of(pool.run_with(change(request), options).await.expect("a valid request")).await
}

fn output(result: &RunRecord) -> Value {
    let output = result.outcome.output.as_ref().unwrap_or_else(|| panic!("{}", result.shown()));
    serde_json::from_str(output.get()).expect("a value")
}

/// One warm agent answers all of these prompts, each in its own session.
#[tokio::test]
async fn values_are_submitted_corrected_or_read_from_the_text() {
    needs_real_gemini!();
    let ada = || json!({"name": "Ada", "age": 36});
    let stage = stage([
        // This is the second prompt of the session, because the agent was prompted again about this value.
        ("/age", Script::new([GeminiStep::call(TOOL, json!({"data": ada()})), GeminiStep::text("Mended.")])),
        (
            "submitted",
            Script::new([GeminiStep::call(TOOL, json!({"data": ada()})), GeminiStep::text("Done.")]),
        ),
        ("first wrong", Script::new([GeminiStep::text("It was `{\"name\": \"Ada\", \"age\": \"old\"}`.")])),
        (
            "in the text",
            Script::new([GeminiStep::text("Here:\n```json\n{\"name\": \"Ada\", \"age\": 36}\n```\n")]),
        ),
        // An answer without text is normally empty; here the value is the answer.
        ("a scalar", Script::new([GeminiStep::call(TOOL, json!({"data": 7})), GeminiStep::text("")])),
        ("", Script::always(GeminiStep::text("{\"name\": \"Ada\"}"))),
    ]);
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let model_requests = || stage.model.requests_to_main();

    let result = value(&pool, &stage, "submitted", person(), |r| r).await;
    assert_eq!((result.outcome.verdict, output(&result)), (Verdict::Done, ada()), "{}", result.shown());
    assert_eq!((result.outcome.turns, result.outcome.text.as_str()), (2, "Done."), "{}", result.shown());
    // The model receives the format, and the caller's prompt stays unchanged.
    let prompt = model_requests()[0].prompt();
    assert!(prompt.starts_with("submitted") && prompt.contains("structured_output"), "{prompt}");

    let before = model_requests().len();
    let result = value(&pool, &stage, "first wrong", person(), |r| r).await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(output(&result), ada());
    assert_eq!(
        (result.warnings(), result.outcome.text.as_str()),
        (vec!["unknown_model", "repair"], "Mended."),
        "{}",
        result.shown()
    );
    let second = model_requests()[before + 1].prompt();
    assert!(second.contains("/age") && second.contains("integer"), "{second}");

    let result = value(&pool, &stage, "in the text", person(), |r| r).await;
    assert_eq!((result.outcome.verdict, result.outcome.turns), (Verdict::Done, 1), "{}", result.shown());
    assert_eq!(output(&result), ada());
    check_missing_value(&stage, &pool).await;
    assert_eq!(pool.status().started, 1);
    pool.close().await;
}

/// A value that is missing after the repair turns is an invalid output with details.
async fn check_missing_value(stage: &TestStage, pool: &Pool) {
    let before = stage.model.requests_to_main().len();
    let result = value(pool, stage, "Who was it?", person(), |r| r.repair_turns(1)).await;
    let error = result.outcome.error.as_ref().unwrap_or_else(|| panic!("{}", result.shown()));
    assert_eq!(result.outcome.verdict, Verdict::InvalidOutput, "{}", result.shown());
    assert_eq!(
        (error.kind, error.phase),
        (FailureKind::InvalidOutput, Phase::Response),
        "{}",
        result.shown()
    );
    for expected in ["after 1 repair turn", "age", "the text starts with: {\"name\": \"Ada\"}"] {
        assert!(error.message.contains(expected), "{expected}: {}", error.message);
    }
    let model_requests = stage.model.requests_to_main().len() - before;
    assert_eq!((model_requests, result.outcome.output.is_none()), (2, true));

    let integer = json!({"type": "integer"});
    let result = value(pool, stage, "a scalar", integer, |r| r).await;
    assert_eq!((result.outcome.verdict, output(&result)), (Verdict::Done, json!(7)), "{}", result.shown());
}

#[tokio::test]
async fn lists_are_wrapped_and_each_prompt_has_its_own_value() {
    needs_real_gemini!();
    let call = GeminiStep::call(TOOL, json!({"items": [2, 3, 5]}));
    let stage = stage([
        ("first", Script::new([call, GeminiStep::text("ok")])),
        ("second", Script::new([GeminiStep::text("[7]")])),
        ("", Script::always(GeminiStep::text("no more"))),
    ]);
    let schema = Schema::from_value(json!({"type": "array", "items": {"type": "integer"}})).unwrap();
    let request = || in_mode(&stage, Mode::Default).repair_turns(0);
    let options = RunOptions::new().schema(schema);
    let session = stage.agentline().session_with(request(), options).await.unwrap();
    for (prompt, expected) in [("first", json!([2, 3, 5])), ("second", json!([7]))] {
        let result = send_prompt(&session, request(), prompt).await;
        assert_eq!(
            (result.outcome.verdict, output(&result)),
            (Verdict::Done, expected),
            "{}",
            result.shown()
        );
    }
    // A value submitted for an earlier prompt is not the answer to this one.
    let result = send_prompt(&session, request(), "third").await;
    assert_eq!(result.outcome.verdict, Verdict::InvalidOutput, "{}", result.shown());
    assert!(result.outcome.output.is_none(), "{}", result.shown());
    session.close().await;
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(crate = "agentline::tools::schemars")]
struct Answer {
    /// The number of items.
    count: u8,
}

#[tokio::test]
async fn typed_run_returns_the_value_or_an_error() {
    needs_real_gemini!();
    let stage = stage([
        (
            "good",
            Script::new([GeminiStep::call(TOOL, json!({"data": {"count": 3}})), GeminiStep::text("ok")]),
        ),
        ("", Script::always(GeminiStep::text("no idea"))),
    ]);
    let request = |prompt: &str| stage.request(prompt).repair_turns(0);
    let typed = stage.agentline().run_typed::<Answer>(request("good")).await.unwrap();
    assert_eq!((typed.value, typed.outcome.verdict), (Answer { count: 3 }, Verdict::Done));
    assert_eq!(typed.outcome.surface, Some(Surface::Acp), "it was chosen for the schema");
    let error = stage.agentline().run_typed::<Answer>(request("bad")).await.unwrap_err();
    assert!(matches!(error, TypedError::Failed(_)), "{error:?}");
    assert_eq!((error.verdict(), error.text()), (Some(Verdict::InvalidOutput), "no idea"), "{error}");
}
