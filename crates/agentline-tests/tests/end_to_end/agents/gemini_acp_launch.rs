//! Tests a launch of the real Gemini CLI over ACP: rules in every mode, prompts, directories and the files that remain.

use crate::agents::acp_gemini::harness::{send_prompt, stage as answering_by_prompt};
use agentline::{Outcome, PermissionHandler, PermissionMode, RunOptions, RunRequest, Surface, Verdict};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use serde_json::json;
use std::fs;

fn to_json(outcome: &Outcome) -> String {
    serde_json::to_string_pretty(outcome).expect("an outcome is JSON")
}

fn acp_request(stage: &TestStage, prompt: &str, mode: PermissionMode) -> RunRequest {
    stage.request(prompt).surface(Surface::Acp).permission_mode(mode)
}

fn write(path: &str) -> GeminiStep {
    GeminiStep::call("write_file", json!({"file_path": path, "content": "x\n"}))
}

#[tokio::test]
async fn rules_apply_in_accept_edits_and_bypass_modes() {
    needs_real_gemini!();
    let modes = [PermissionMode::AcceptEdits, PermissionMode::Bypass, PermissionMode::Auto];
    let names = modes.map(|mode| (mode, format!("{mode:?}")));
    let stage = answering_by_prompt(names.iter().map(|(_, name)| {
        let shell = json!({"command": format!("touch shell-{name}.txt"), "description": "d"});
        let steps = [
            write(&format!("yes-{name}.txt")),
            write(&format!("no-{name}.txt")),
            GeminiStep::call("run_shell_command", shell),
            GeminiStep::text("done"),
        ];
        (name.as_str(), Script::new(steps))
    }));
    let request = |mode| acp_request(&stage, "", mode).deny("Write(no*)").deny("Bash(touch *)");
    let handler = PermissionHandler::new(|ask| async move { panic!("a rule decides: {ask:?}") });
    let options = RunOptions::new().permission_handler(handler);
    // A session in this mode needs the rules that the agent itself enforces.
    let session = stage.agentline().session_with(request(PermissionMode::Bypass), options).await.unwrap();
    for (mode, name) in &names {
        let result = send_prompt(&session, request(*mode), name).await;
        assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{name} {}", result.shown());
        let written = ["yes", "no", "shell"].map(|word| stage.read(&format!("{word}-{name}.txt")).is_some());
        assert_eq!(written, [true, false, false], "{name} {}", result.shown());
        assert_eq!(result.denied().len(), 2, "{name} {}", result.shown());
        assert!(!result.shown().contains("callback"), "the handler is not asked: {name} {}", result.shown());
    }
    session.close().await;
}

#[tokio::test]
async fn a_prompt_that_looks_like_a_command_reaches_the_model() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::text("answered")));
    stage.file("a.txt", "not to be sent");
    let request = || acp_request(&stage, "", PermissionMode::Default);
    let session = stage.agentline().session(request()).await.unwrap();
    for prompt in ["/about", " \n$help me", "/etc/hosts @a.txt bob@example.com"] {
        let result = send_prompt(&session, request(), prompt).await;
        assert_eq!(result.outcome.text, "answered", "{}", result.shown());
        let texts = stage.model.requests_to_main().last().expect("a request").user_texts().concat();
        assert!(texts.ends_with(prompt) && !texts.contains("not to be sent"), "{texts}");
    }
    session.close().await;
}

#[test]
fn tools_may_use_included_directories_and_only_the_session_itself_remains() {
    needs_real_gemini!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("b.txt");
    fs::write(&path, "from the included folder").unwrap();
    let read = GeminiStep::call("read_file", json!({"file_path": path}));
    let stage = TestStage::new(Script::new([read, GeminiStep::text("read")]));
    let request = acp_request(&stage, "read it", PermissionMode::Default).include_dir(path.parent().unwrap());
    let outcome = stage.outcome(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", to_json(&outcome));
    let last = serde_json::to_string(&stage.model.requests_to_main().last().unwrap().body).unwrap();
    assert!(last.contains("from the included folder"), "{last}");
    let session = outcome.session_id.clone().unwrap();
    let chats =
        fs::read_dir(stage.home().join(".gemini/tmp")).unwrap().flatten().map(|e| e.path().join("chats"));
    let files: Vec<String> = chats
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].contains(&session[..8]), "{files:?} {session}");
}
