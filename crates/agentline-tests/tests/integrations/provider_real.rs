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
use std::fs;

fn writes(path: &str) -> GeminiStep {
    GeminiStep::text("Writing. ").and_call("write_file", json!({"file_path": path, "content": "hi\n"}))
}

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
fn an_empty_configuration_writes_a_file() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([writes("hello.txt"), GeminiStep::text("Done.")]));
    let result = generate(&stage, json!({}), "Write hello.txt", &CallContext::default()).unwrap();
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"response":"Writing. Done.","files":{"hello.txt":null}}"#
    );
    assert_eq!(stage.read("hello.txt").as_deref(), Some("hi\n"));
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
fn working_dir_overrides_the_project_root() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([writes("here.txt"), GeminiStep::text("Done.")]));
    let wins = stage.outside().join("wins");
    fs::create_dir(&wins).unwrap();
    let config = json!({"model": MODEL, "working_dir": wins});
    let context = CallContext::default().project_root(stage.workspace());
    let result = generate(&stage, config, "Write here.txt", &context).unwrap();
    assert_eq!(result.files.keys().collect::<Vec<_>>(), ["here.txt"]);
    assert!(wins.join("here.txt").exists());
    assert_eq!(stage.read("here.txt"), None);
}

#[test]
fn system_prompt_precedes_the_prompt_with_a_blank_line() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("4")]));
    let provider =
        Provider::new(stage.agentline(), json!({"model": MODEL}).as_object().cloned().unwrap()).unwrap();
    let result = provider.generate("What is 2+2?", &CallContext::default(), Some("Be brief.")).unwrap();
    assert_eq!(result.response, "4");
    let asked = stage.model.requests_to_main()[0].user_texts();
    assert_eq!(asked.last().map(String::as_str), Some("Be brief.\n\nWhat is 2+2?"));
}

#[test]
fn files_of_tools_and_shell_commands_are_listed_and_deleted_ones_are_not() {
    needs_real_gemini!();
    let replace = json!({"file_path": "b.txt", "instruction": "x", "old_string": "old", "new_string": "new"});
    let stage = TestStage::new(Script::new([
        GeminiStep::calls([
            ("write_file", json!({"file_path": "a.txt", "content": "a\n"})),
            ("replace", replace),
        ]),
        GeminiStep::call("run_shell_command", json!({"command": "rm gone.txt; echo c > c.txt"})),
        GeminiStep::call("read_file", json!({"file_path": "missing.txt"})),
        GeminiStep::text("Done."),
    ]));
    stage.file("b.txt", "old\n");
    stage.file("gone.txt", "x\n");
    let result = generate(&stage, json!({"model": MODEL}), "Work.", &CallContext::default()).unwrap();
    assert_eq!(result.files.keys().collect::<Vec<_>>(), ["a.txt", "b.txt", "c.txt"]);
    assert_eq!(stage.read("b.txt").as_deref(), Some("new\n"));
}

#[test]
fn a_refused_key_is_an_authentication_error() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::invalid_key()));
    let error = generate(&stage, json!({"model": MODEL}), "hi", &CallContext::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Authentication, "{error}");
    assert!(error.message.contains("API key not valid"), "{error}");
}

#[test]
fn tools_withheld_by_a_mode_are_reported_with_the_answer() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([writes("hello.txt"), GeminiStep::text("I could not.")]));
    let config = json!({"model": MODEL, "approval_mode": "default"});
    let result = generate(&stage, config, "Write hello.txt", &CallContext::default()).unwrap();
    assert_eq!(result.response, "Writing. I could not.");
    assert!(result.files.is_empty());
    assert_eq!(result.denied().iter().map(|d| d.tool.as_str()).collect::<Vec<_>>(), ["Write"]);
    assert_eq!(stage.read("hello.txt"), None);
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
