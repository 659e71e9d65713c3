//! Tests the four functions of an agent-CLI SDK with the real Gemini CLI and a scripted model.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{
    Agentline, Event, PermissionMode,
    agent_cli::{
        CapabilitySource, CliCapabilities, Execute, LoadError, capabilities, detect_cli, execute,
        load_messages, load_messages_or_none,
    },
    agents,
    detect::HostEnv,
};
use agentline_core::{Content, Role};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use serde_json::{Value, json};
use std::{collections::BTreeMap, future::Future, sync::Mutex};

fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(task)
}

#[test]
fn execute_calls_its_callbacks_and_returns_the_result() {
    needs_real_gemini!();
    let file = json!({"file_path": "hello.txt", "content": "hello\n"});
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", file),
        GeminiStep::text("Hello! {\"greeting\": \"hello\"}"),
    ]));
    let agentline = stage.agentline();
    let request = stage.request("Say hello").permission_mode(PermissionMode::AcceptEdits);
    let events = Mutex::new(Vec::new());
    let note = |event: &str| events.lock().unwrap().push(event.to_owned());
    let call = Execute::new(request)
        .json()
        .verbose()
        .on_start(|launched| note(&format!("start {}", launched.command.is_empty())))
        .on_stdout(|record| {
            if let Event::Text { text } = &record.event {
                note(&format!("stdout {text}"));
            }
        })
        .on_stderr(|text| note(&format!("stderr {}", text.is_empty())))
        .on_error(|error| note(&format!("error {error}")))
        .on_close(|code| note(&format!("close {code:?}")));
    let result = wait(execute(&agentline, call));
    assert!(result.success && result.error.is_none(), "{result:?}");
    assert!(!result.messages.is_empty() && !result.quota_exceeded && result.duration > 0);
    assert_eq!(result.exit_code, Some(0));
    let data: Value = serde_json::from_str(result.data.as_ref().unwrap().get()).unwrap();
    assert_eq!(data, json!({"greeting": "hello"}));
    let shape = serde_json::to_value(&result).unwrap();
    for field in ["success", "exit_code", "session_id", "duration", "messages", "data", "error"] {
        assert!(shape.get(field).is_some(), "{field}");
    }
    let events = events.into_inner().unwrap();
    assert_eq!(events.first().map(String::as_str), Some("start false"), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("close Some(0)"), "{events:?}");
    assert!(events.iter().any(|h| h.starts_with("stdout Hello")), "{events:?}");
    assert!(!events.iter().any(|h| h.starts_with("error")), "{events:?}");

    // The saved data is read back: the last session of the project, and the one with this id.
    let project = stage.workspace();
    let last = load_messages(&agentline, "gemini", Some(&project), None).unwrap();
    let by_id = load_messages(&agentline, "gemini", Some(&project), result.session_id.as_deref()).unwrap();
    assert_eq!(serde_json::to_value(&last).unwrap(), serde_json::to_value(&by_id).unwrap());
    assert_eq!(
        last.iter().map(|m| m.role).collect::<Vec<_>>(),
        [Role::User, Role::Assistant, Role::Assistant]
    );
    let write = serde_json::to_value(&last[1]).unwrap();
    assert_eq!(
        (&write["content"][0]["name"], &write["content"][1]["type"]),
        (&json!("Write"), &json!("tool_result"))
    );
    assert_eq!((&write["tool"], &write["_original"]["type"]), (&json!("gemini"), &json!("gemini")));
    assert!(matches!(&last[0].content, Content::Blocks(blocks) if blocks.len() == 1));
}

#[test]
fn failures_are_reported_without_panics() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::daily_quota()));
    let errors = Mutex::new(Vec::new());
    let call =
        Execute::new(stage.request("hi")).on_error(|error| errors.lock().unwrap().push(error.to_owned()));
    let result = wait(execute(&stage.agentline(), call));
    assert!(!result.success && result.quota_exceeded, "{result:?}");
    assert_eq!(errors.into_inner().unwrap(), [result.error.unwrap()]);
    let refused = wait(execute(&stage.agentline(), Execute::new(stage.request("  "))));
    assert!(!refused.success && refused.error.is_some() && refused.outcome.is_none(), "{refused:?}");
}

#[test]
fn project_without_a_session_is_an_error_or_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let agentline = Agentline::new(HostEnv::new(BTreeMap::new(), folder.path().join("home"), folder.path()));
    let error = load_messages(&agentline, "gemini", None, None).unwrap_err();
    let expected = format!("No Gemini session found for project: {}", folder.path().display());
    assert_eq!(error.to_string(), expected);
    let by_id = load_messages(&agentline, "gemini", Some(folder.path()), Some("12345678")).unwrap_err();
    assert!(matches!(by_id, LoadError::NoSession { .. }), "{by_id}");
    assert!(load_messages_or_none(&agentline, "gemini", None, None).unwrap().is_empty());
    assert!(matches!(load_messages(&agentline, "unknown-agent", None, None), Err(LoadError::Other(_))));
}

#[test]
fn program_is_found_by_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let name = if cfg!(windows) { "gemini.exe" } else { "gemini" };
    let program = folder.path().join(name);
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let found = |path: &str| {
        let env = BTreeMap::from([("GEMINI_CLI_PATH".to_owned(), path.to_owned())]);
        detect_cli(&Agentline::new(HostEnv::new(env, folder.path().join("home"), folder.path())), "gemini")
    };
    assert_eq!(found(&program.to_string_lossy()), Some(program.clone()));
    assert_eq!(
        detect_cli(
            &Agentline::new(HostEnv::new(BTreeMap::new(), folder.path(), folder.path())),
            "unknown-agent"
        ),
        None
    );
}

#[test]
fn capabilities_come_from_the_agent_if_it_reports_them() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([]));
    let found = wait(capabilities(&stage.agentline(), "gemini")).unwrap();
    assert_eq!(found.source, CapabilitySource::Agent, "{found:?}");
    assert!(
        found.models.iter().any(|model| model.id == "gemini-2.5-pro" && !model.name.is_empty()),
        "{found:?}"
    );
    assert!(
        found.supports_models
            && found.supports_web_search
            && found.supports_thinking
            && found.supports_slash_commands
    );
    assert_eq!(stage.model.requests().len(), 0, "there was no model request");
}

#[test]
fn capability_table_covers_every_agent() {
    for agent in agents::built_in() {
        let table = CliCapabilities::of(&*agent);
        assert_eq!((table.source, table.supports_models), (CapabilitySource::Table, true));
        assert!(table.supports_thinking, "{}", table.agent);
    }
    let gemini = serde_json::to_value(CliCapabilities::of(&*agents::find("gemini").unwrap())).unwrap();
    assert_eq!(gemini["models"][1], json!({"id": "gemini-2.5-pro", "name": "Gemini 2.5 Pro"}));
}
