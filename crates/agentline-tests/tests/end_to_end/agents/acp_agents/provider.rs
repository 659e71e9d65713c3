//! Tests the workflow provider with another agent than Gemini CLI: the rows of `docs/provider-comparison.md` about
//! Claude Code. The real agent shows the normal case, the fake agent in its place the failures.

use crate::agents::acp_agents::harness::{CLAUDE, stage};
use agentline::{
    Surface,
    provider::{CallContext, ErrorKind, Provider, ProviderError, ProviderResult},
};
use agentline_mock::scripted::ModelStep;
use agentline_tests::FakeStage;
use serde_json::{Value, json};

#[test]
fn claude_reads_the_prompt_file_and_its_files_are_checked_on_the_disk() {
    let steps = vec![
        ModelStep::text("Writing. ").and_call("Write", json!({"file_path": "a.txt", "content": "new\n"})),
        ModelStep::call("Read", json!({"file_path": "missing.txt"})),
        CLAUDE.shell("echo made > b.txt; touch gone.txt; rm gone.txt"),
        ModelStep::text("Done."),
    ];
    let stage = stage!(CLAUDE, vec![("Process the prompt in", steps)]);
    std::fs::write(stage.stage.workspace().join("plan.md"), "Do it.\n").unwrap();
    let config = json!({"agent": "claude", "startup_timeout": 120, "timeout": 180});
    let provider = Provider::new(stage.agentline(), config.as_object().cloned().unwrap()).unwrap();
    provider.validate().unwrap();
    assert_eq!(provider.metadata().config_keys.len(), 7);
    let context = CallContext::default().project_root(stage.stage.workspace()).prompt_file("plan.md");
    let result = provider.generate("not sent", &context, None).unwrap();
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"response":"Writing. Done.","files":{"a.txt":null,"b.txt":null}}"#,
        "{:#?}",
        result.outcome
    );
    assert_eq!(result.outcome.surface, Some(Surface::Acp));
    // Nothing was refused: the provider's mode is `bypass`.
    assert!(result.denied().is_empty() && result.outcome.cost_usd.is_some(), "{:#?}", result.outcome);
}

/// Calls the provider with the fake agent in place of Claude Code. The prompt is the fake agent's script.
fn fake_claude(fault: &str, config: Value, prompt: &str) -> Result<ProviderResult, ProviderError> {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let mut config = config.as_object().cloned().unwrap();
    config.insert("agent".into(), "claude".into());
    config.insert("surface".into(), "acp".into());
    config.insert("env".into(), json!({"FAKE_ACP_FAULT": fault, "FAKE_ACP_MODES": "default,plan"}));
    let agentline = stage.agentline().program("claude", env!("CARGO_BIN_EXE_fake-acp"));
    Provider::new(agentline, config).unwrap().generate(prompt, &CallContext::default(), None)
}

#[test]
fn malformed_lines_of_claude_are_skipped() {
    let result = fake_claude("junk_between", json!({}), "say Done.").unwrap();
    assert_eq!(result.response, "Done.");
    assert!(result.warnings.iter().any(|warning| warning.code == "malformed_lines"), "{:?}", result.warnings);
}

#[test]
fn missing_sign_in_of_claude_is_an_authentication_error() {
    let error = fake_claude("auth_hopeless", json!({}), "say Done.").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Authentication, "{error}");
    assert!(error.message.starts_with("Claude Code authentication error"), "{error}");
}

#[test]
fn exit_of_claude_is_reported_with_its_code() {
    let error = fake_claude("exit_at_start:7", json!({}), "say Done.").unwrap_err();
    assert!(error.kind == ErrorKind::Failed && error.message.contains("(exit 7)"), "{error}");
}

#[test]
fn limits_are_enforced_for_claude() {
    let error = fake_claude("", json!({"max_tool_calls": 1}), "run true\nrun true\nsay Done.").unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitReached, "{error}");
}

#[test]
fn configuration_is_checked_alike_for_every_agent() {
    for agent in ["gemini", "claude"] {
        let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
        let config = json!({"agent": agent, "timeout": 0, "approval_mode": "x", "allowed_tools": "Bash"});
        let error = Provider::new(stage.agentline(), config.as_object().cloned().unwrap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Configuration);
        for part in ["timeout must be > 0", "got: 'x'", "allowed_tools must be a list, got: str"] {
            assert!(error.message.contains(part), "{agent}: {error}");
        }
    }
}
