//! Tests the workflow provider with the real Gemini CLI and a scripted model. `provider.rs` tests its failures and
//! limits with a fake agent.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{
    Verdict,
    provider::{CallContext, ErrorKind, Provider, ProviderError, ProviderResult},
};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini};
use serde_json::{Value, json};

fn generate(
    stage: &TestStage,
    config: Value,
    prompt: &str,
    context: &CallContext,
) -> Result<ProviderResult, ProviderError> {
    let provider = Provider::new(stage.agentline(), config.as_object().cloned().unwrap()).unwrap();
    provider.validate().unwrap();
    provider.generate(prompt, context, None)
}

#[test]
fn an_empty_configuration_lists_the_files_of_tools_and_commands_but_no_deleted_ones() {
    needs_real_gemini!();
    let replace = json!({"file_path": "b.txt", "instruction": "x", "old_string": "old", "new_string": "new"});
    let stage = TestStage::new(Script::new([
        GeminiStep::text("Writing. ")
            .and_call("write_file", json!({"file_path": "a.txt", "content": "hi\n"}))
            .and_call("replace", replace),
        GeminiStep::call("run_shell_command", json!({"command": "rm gone.txt; echo c > c.txt"})),
        GeminiStep::call("read_file", json!({"file_path": "missing.txt"})),
        GeminiStep::text("Done."),
    ]));
    stage.file("b.txt", "old\n");
    stage.file("gone.txt", "x\n");
    let result = generate(&stage, json!({}), "Work.", &CallContext::default()).unwrap();
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"response":"Writing. Done.","files":{"a.txt":null,"b.txt":null,"c.txt":null}}"#
    );
    assert_eq!(stage.read("a.txt").as_deref(), Some("hi\n"));
    assert_eq!(stage.read("b.txt").as_deref(), Some("new\n"));
    assert_eq!(result.outcome.verdict, Verdict::Done);
}

#[test]
fn a_prompt_file_in_the_project_is_read_by_the_agent() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call("read_file", json!({"file_path": "prompts/plan.md"})),
        GeminiStep::text("Planned."),
    ]));
    stage.file("prompts/plan.md", "Plan the 77 steps.\n");
    let context = CallContext::default().project_root(stage.workspace()).prompt_file("prompts/plan.md");
    let result =
        generate(&stage, json!({"model": MODEL}), "not sent: the file stands for it", &context).unwrap();
    assert_eq!(result.response, "Planned.");
    let requests = stage.model.requests_to_main();
    let asked = requests[0].user_texts().join("\n");
    assert!(asked.contains("Process the prompt in ") && asked.contains("prompts/plan.md"), "{asked}");
    assert!(!asked.contains("not sent"), "{asked}");
    let (_, read) = requests[1].tool_responses().pop().expect("a tool's response");
    assert!(read.to_string().contains("Plan the 77 steps."), "{read}");
}

#[test]
fn unknown_model_is_a_failure_with_its_exit_code() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::unknown_model()));
    let error = generate(&stage, json!({"model": "no-such"}), "hi", &CallContext::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Failed, "{error}");
    assert!(error.message.starts_with("Gemini CLI failed (exit "), "{error}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("`model`")), "{error}");
}
