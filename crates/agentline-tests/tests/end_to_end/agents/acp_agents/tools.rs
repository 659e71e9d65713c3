//! Tests functions of the program as tools of these agents, and structured answers, in a mode that permits nothing.
//! `pool` tests OpenCode, which starts slowly, on its warm process.

use crate::agents::acp_agents::harness::{
    AgentScripts, AgentStage, CLAUDE, CODEX, CODEX_NATIVE, TestedAgent, stage,
};
use agentline::{
    PermissionMode as Mode, Pool, RunOptions, Schema, ToolKind, ToolStatus, Verdict,
    tools::{Tool, ToolHost},
};
use agentline_mock::scripted::ModelStep;
use agentline_tests::RunRecord;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn claude() {
    call(CLAUDE).await;
}

#[tokio::test]
async fn codex() {
    call(CODEX).await;
}

#[tokio::test]
async fn codex_native() {
    call(CODEX_NATIVE).await;
}

async fn call(tested: TestedAgent) {
    let stage = stage!(tested, scripts(tested));
    check_call(&stage, None).await;
    #[cfg(target_os = "linux")]
    assert_eq!(stage.live_processes(), [0_u32; 0]);
}

/// Returns what the model answers in these tests.
pub(crate) fn scripts(tested: TestedAgent) -> AgentScripts {
    let hand_in = |value: Value| tested.hosted("shop", "structured_output", json!({"data": value}));
    vec![
        // This is the second prompt of the session, because the agent was prompted again.
        ("does not match", vec![hand_in(json!({"sum": 42})), ModelStep::text("Mended.")]),
        (
            "Add it up",
            vec![
                tested.hosted("shop", "double", json!({"n": 21})),
                ModelStep::text("It is {\"sum\": \"much\"}."),
            ],
        ),
    ]
}

/// Lets the agent call a function and return a value, in a run of its own or on a warm agent.
pub(crate) async fn check_call(stage: &AgentStage, pool: Option<&Pool>) {
    let before = stage.stage.model.turns().len();
    let called = Arc::new(Mutex::new(Vec::<Value>::new()));
    let seen = called.clone();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let double = Tool::new("double", "Doubles", schema, move |args: Value, _| {
        seen.lock().unwrap().push(args.clone());
        async move { Ok(format!("twice is {}", args["n"].as_i64().unwrap_or(0) * 2)) }
    });
    let schema = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    let options = RunOptions::new()
        .tools(ToolHost::new().server_name("shop").tool(double))
        .schema(Schema::from_value(schema).unwrap());
    let mut request = stage.request(Mode::Deny);
    request.prompt = "Add it up".into();
    let run = match pool {
        Some(pool) => pool.run_with(request, options).await,
        None => stage.agentline().run_with(request, options).await,
    };
    let result = RunRecord::of(run.unwrap()).await;

    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(*called.lock().unwrap(), [json!({"n": 21})], "{}", result.shown());
    let tools: Vec<_> = result.tools().iter().map(|tool| (tool.name.as_str(), tool.kind)).collect();
    let expected = ["mcp__shop__double", "mcp__shop__structured_output"].map(|name| (name, ToolKind::Mcp));
    assert_eq!(tools, expected, "{}", result.shown());
    assert_eq!(result.ends(), [ToolStatus::Ok; 2], "{}", result.shown());
    assert_eq!(result.results()[0], "twice is 42", "{}", result.shown());
    let own = "allow agentline own_tool -";
    assert_eq!(result.decisions(), tools.iter().map(|(name, _)| format!("{name} {own}")).collect::<Vec<_>>());
    let turns = stage.stage.model.turns();
    let results = turns[before + 1].tool_results();
    assert!(results[0].contains("twice is 42"), "{results:?}");

    let value: Value = serde_json::from_str(result.outcome.output.as_ref().unwrap().get()).unwrap();
    assert_eq!((value, result.outcome.text.as_str()), (json!({"sum": 42}), "Mended."), "{}", result.shown());
    assert!(result.warnings().contains(&"repair"), "{}", result.shown());
}
