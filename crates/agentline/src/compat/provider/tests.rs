//! Tests of the provider before a run starts: configuration, metadata, detection of the program.

use crate::compat::provider::{CallContext, ErrorKind, Provider, ProviderError, ResultCollector};
use crate::{Agentline, ToolResult, detect::HostEnv};
use agentline_core::agents::{AgentRegistry, CustomAgent};
use agentline_core::{
    Event, Failure, FailureKind, Outcome, PermissionMode, RunInfo, RunRequest, ToolKind, ToolStatus, ToolUse,
    Verdict,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

fn agentline() -> Agentline {
    let env = BTreeMap::from([("PATH".to_owned(), "/nonexistent".to_owned())]);
    Agentline::new(HostEnv::new(env, "/nonexistent/home", "/nonexistent/work"))
}

fn provider(config: Value) -> Result<Provider, ProviderError> {
    Provider::new(agentline(), config.as_object().cloned().expect("a map"))
}

fn refused(config: Value) -> ProviderError {
    let error = provider(config.clone()).map(|_| panic!("{config} is accepted")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Configuration);
    error
}

#[test]
fn metadata_has_the_keys_and_values_of_the_specification_in_order() {
    let metadata = r#"{"name":"gemini-cli","description":"Gemini CLI AI agent via subprocess","requires_config":false,"config_keys":["model","sandbox","approval_mode","include_directories","allowed_tools","working_dir","timeout"],"default_response_timeout":600,"fs_ability":"local-write"}"#;
    let provider = provider(json!({})).unwrap();
    assert_eq!(serde_json::to_string(&provider.metadata()).unwrap(), metadata);
    assert_eq!(provider.request.timeout.as_secs(), provider.metadata().default_response_timeout);
}

#[test]
fn provider_is_found_by_each_of_its_ids() {
    for id in ["gemini-cli", "google:gemini-cli", "gemini"] {
        assert_eq!(Provider::metadata_of(id).unwrap().name, "gemini-cli");
        assert_eq!(
            Provider::by_id(id, agentline(), Default::default()).unwrap().metadata().name,
            "gemini-cli"
        );
    }
    let error = Provider::metadata_of("gemini-clii").unwrap_err();
    assert_eq!(error.message, "`gemini-clii` is not a known agent");
    assert!(error.to_string().contains("did you mean `gemini-cli`?"), "{error}");
}

#[test]
fn configured_and_registered_agents_are_accepted() {
    let config = json!({"agents": {"mine": {"command": ["/nonexistent/mine", "acp"]}}});
    let config = config.as_object().cloned().unwrap();
    let mut named = config.clone();
    named.insert("agent".into(), "mine".into());
    let registry =
        || AgentRegistry::default().with_agent(Arc::new(CustomAgent::new("own", ["own"]))).unwrap();
    for (name, provider) in [
        ("mine", Provider::new(agentline(), named.clone())),
        ("mine", Provider::by_id("mine", agentline(), config)),
        ("own", Provider::by_id("own", agentline().agents(registry()), Default::default())),
        // A configuration adds agents to those of the instance.
        (
            "own",
            Provider::by_id(
                "own",
                agentline().agents(registry()),
                json!({"model": "m"}).as_object().cloned().unwrap(),
            ),
        ),
    ] {
        let provider = provider.unwrap();
        assert_eq!((provider.metadata().name.as_str(), provider.agent.info().id), (name, name));
        assert_eq!(provider.validate().unwrap_err().kind, ErrorKind::NotFound, "{name}");
    }
    let error = Provider::by_id("mine", agentline(), Default::default()).unwrap_err();
    assert_eq!(error.message, "`mine` is not a known agent");
    let other = Provider::by_id("gemini", agentline(), named).unwrap_err();
    assert!(other.message.contains("the provider is `gemini`"), "{other}");
}

#[test]
fn defaults_permit_everything_and_pass_the_environment() {
    let request = provider(json!({})).unwrap().request;
    assert_eq!(request.permission_mode, PermissionMode::Bypass);
    assert_eq!(request.pass_env, ["*"]);
    assert_eq!(request.timeout, Duration::from_secs(600));
    let request = provider(json!({"approval_mode": "auto_edit", "pass_env": ["CI"]})).unwrap().request;
    assert_eq!(request.permission_mode, PermissionMode::AcceptEdits);
    assert_eq!(request.pass_env, ["CI"]);
    let request = provider(json!({"yolo": false})).unwrap().request;
    assert_eq!(request.permission_mode, PermissionMode::Default);
}

#[test]
fn every_key_of_the_specification_is_accepted() {
    let request = provider(json!({
        "model": "gemini-2.5-pro", "sandbox": true, "approval_mode": "yolo", "include_directories": ["../lib"],
        "allowed_tools": ["read_file"], "working_dir": "~/project", "timeout": 30,
    }));
    let expected = RunRequest::new("")
        .model("gemini-2.5-pro")
        .sandbox(agentline_core::Sandbox::On)
        .permission_mode(PermissionMode::Bypass)
        .include_dir("../lib")
        .allow("read_file")
        .working_dir("/nonexistent/home/project")
        .timeout(Duration::from_secs(30))
        .pass_env("*");
    assert_eq!(request.unwrap().request, expected);
}

#[test]
fn row_18_timeout_must_be_above_zero() {
    for timeout in [json!(0), json!(-1), json!(-0.5)] {
        assert_eq!(refused(json!({"timeout": timeout})).message, "timeout must be > 0");
    }
}

#[test]
fn row_19_invalid_approval_mode_lists_the_sorted_modes_and_the_value() {
    assert_eq!(
        refused(json!({"approval_mode": "bogus"})).message,
        "approval_mode must be one of ['auto_edit', 'default', 'plan', 'yolo'], got: 'bogus'"
    );
}

#[test]
fn row_20_non_list_is_refused_with_its_type() {
    for key in ["include_directories", "allowed_tools"] {
        for (value, name) in [(json!("src"), "str"), (json!(5), "int"), (json!({"a": 1}), "dict")] {
            assert_eq!(refused(json!({key: value})).message, format!("{key} must be a list, got: {name}"));
        }
    }
}

#[test]
fn row_21_unknown_keys_warn_and_are_ignored() {
    let provider = provider(json!({"temperature": 0.2})).unwrap();
    let messages: Vec<&str> = provider.warnings().iter().map(|w| w.message.as_str()).collect();
    assert_eq!(messages, ["`temperature` is not a known key and is ignored (from configuration)"]);
}

#[test]
fn misspelled_keys_are_refused() {
    let error = refused(json!({"modle": "x"}));
    assert_eq!(error.kind, ErrorKind::Configuration);
    assert!(error.message.starts_with("`modle`: is not a known key"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("did you mean `model`?"));
}

#[test]
fn all_problems_are_reported_at_once_each_with_its_key() {
    let error = refused(json!({"timeout": 0, "allowed_tools": "x", "mcp_servers": ["x"]}));
    assert_eq!(
        error.message,
        "allowed_tools must be a list, got: str\n`mcp_servers`: missing `=`; write `name=URL` or `name=command args…`\ntimeout must be > 0"
    );
    assert!(error.to_string().contains("\n  hint: write `allowed_tools"), "{error}");
    let error = refused(json!({"agent": "nope"}));
    assert!(error.message.contains("`nope` is not a known agent"), "{error}");
    let other = Provider::by_id("gemini-cli", agentline(), json!({"agent": 5}).as_object().cloned().unwrap());
    assert_eq!(other.unwrap_err().message, "agent must be a string, got: int");
}

#[test]
fn configured_key_is_not_in_the_debug_output() {
    let provider = provider(json!({"api_key": "hunter22hunter22"})).unwrap();
    assert_eq!(format!("{provider:?}"), "Provider { name: \"gemini-cli\", .. }");
}

#[test]
fn working_dir_overrides_the_call_context() {
    let cwd = Path::new("/here");
    let context = CallContext::default().project_root("/project");
    let request = context.apply(RunRequest::default(), "hi", Some("be brief"), cwd);
    assert_eq!(request.working_dir.as_deref(), Some(Path::new("/project")));
    assert_eq!((request.prompt.as_str(), request.system_prompt.as_deref()), ("hi", Some("be brief")));
    let request = context.apply(RunRequest::default().working_dir("/wins"), "hi", None, cwd);
    assert_eq!(request.working_dir.as_deref(), Some(Path::new("/wins")));
}

#[test]
fn prompt_file_replaces_the_prompt() {
    let root = tempfile::tempdir().unwrap();
    for folder in ["project", "work"] {
        std::fs::create_dir(root.path().join(folder)).unwrap();
    }
    std::fs::write(root.path().join("project/p.md"), "do it").unwrap();
    let context = CallContext::default().project_root("project").prompt_file("p.md");
    let of = |request: RunRequest| context.apply(request, "the same text", None, root.path());
    let request = of(RunRequest::default());
    assert_eq!(request.prompt, "");
    assert_eq!(request.prompt_file, Some(root.path().join("project/p.md")));
    // If the agent works elsewhere, the file is still found relative to the engine's project.
    let elsewhere = of(RunRequest::default().working_dir("work"));
    assert_eq!(elsewhere.prompt_file, Some(root.path().join("project/p.md")));
    std::fs::write(root.path().join("work/p.md"), "do that").unwrap();
    let elsewhere = of(RunRequest::default().working_dir("work"));
    assert_eq!(elsewhere.prompt_file, Some(root.path().join("work/p.md")));
}

#[test]
fn call_timeouts_override_configured_timeouts() {
    let context = CallContext::default()
        .connection_timeout(Duration::from_secs(5))
        .response_timeout(Duration::from_secs(50));
    let request = context.apply(RunRequest::default(), "hi", None, Path::new("/"));
    assert_eq!((request.startup_timeout.as_secs(), request.timeout.as_secs()), (5, 50));
}

#[test]
fn context_of_the_wrong_type_is_refused() {
    let map = json!({"project_root": 5, "prompt_file": ["x"], "phase": 1});
    let error = CallContext::from_map(map.as_object().unwrap()).unwrap_err();
    assert_eq!(error.message, "project_root must be a string\nprompt_file must be a string");
}

#[test]
fn hints_name_keys_instead_of_flags() {
    let hint = crate::compat::provider::error::keys_for_flags(
        "pass `--trust run`, or raise `--max-turns`; see `--nothing`",
    );
    assert_eq!(hint, "pass `trust run`, or raise `max_turns`; see `--nothing`");
}

#[test]
fn response_joins_all_turns_with_the_corrected_last_turn() {
    let text_event = |text: &str| Event::Text { text: text.into() };
    let mut gathered = ResultCollector::default();
    for event in [
        text_event("I fail."),
        Event::Retry { attempt: 2, wait_ms: 0, reason: "busy".into(), model: None },
        text_event("I will "),
        text_event("look. "),
        Event::from(ToolUse::new("1", "Read", "read_file", ToolKind::Read)),
        Event::from(ToolResult::new("1", ToolStatus::Ok, None)),
        text_event("The ans"),
        // The stream broke, and the agent restarted its turn without reporting it.
        text_event("The answer is 4."),
    ] {
        gathered.take(&event);
    }
    let mut outcome = Outcome::not_started(
        &RunInfo::default(),
        Verdict::Done,
        Failure::new(FailureKind::Empty, "not an error here"),
    );
    let finish = |outcome: &Outcome| gathered.clone().finish(outcome.clone(), &[]).response;
    assert_eq!(finish(&outcome), "I will look. The ansThe answer is 4.");
    outcome.text = "The answer is 4.".into();
    assert_eq!(finish(&outcome), "I will look. The answer is 4.");
}
