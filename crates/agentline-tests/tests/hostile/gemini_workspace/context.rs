//! Checks that context files load as text and import no file from outside.

use super::workspace::HostileWorkspace;
use agentline::{Surface, Verdict};
use agentline_tests::{needs_real_gemini, shown};
use std::{fs, os::unix::fs::symlink};

#[test]
fn context_files_import_only_from_their_own_directory() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let outcome = hostile.stage.outcome(hostile.request("hello").surface(Surface::StreamJson));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let words = hostile.words_to_the_model();
    assert!(words.contains("CONTEXTWORDS") && words.contains("MOREWORDS"), "the context file is text");
    assert!(!words.contains("PRIVATEWORDS"), "a file outside the workspace was imported");
    hostile.assert_unharmed();
}

#[test]
fn a_context_file_that_links_out_of_the_workspace_is_not_read() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let file = hostile.stage.workspace().join("GEMINI.md");
    fs::remove_file(&file).unwrap();
    symlink("../private.txt", &file).unwrap();
    let outcome = hostile.stage.outcome(hostile.request("hello").surface(Surface::Acp));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    hostile.assert_unharmed();
}

#[test]
fn agent_tools_can_still_read_workspace_files() {
    needs_real_gemini!();
    use agentline_mock::gemini::{GeminiStep, Script};
    use serde_json::json;
    // The CLI itself lets no tool read `.env`.
    let calls = [".gemini/settings.json", ".gemini/commands/own.toml"]
        .map(|path| ("read_file", json!({"file_path": path})));
    let stage =
        agentline_tests::TestStage::new(Script::new([GeminiStep::calls(calls), GeminiStep::text("read")]));
    stage.file(".gemini/settings.json", r#"{"model": {"name": "one-line"}}"#);
    stage.file(".gemini/commands/own.toml", "prompt = \"two-line\"\n");
    let outcome = stage.outcome(stage.request("Read them.").surface(Surface::StreamJson));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let told = stage.model.requests_to_main().pop().unwrap().body.to_string();
    for line in ["one-line", "two-line"] {
        assert!(told.contains(line), "{line} was not read: {told}");
    }
}
