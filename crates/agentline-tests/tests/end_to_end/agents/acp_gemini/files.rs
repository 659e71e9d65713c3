//! Tests that the agent reads and writes files through agentline, within the workspace.

use crate::agents::acp_gemini::harness::{RunRecord, calling, in_mode, send_prompt, stage, write};
use agentline::{PermissionMode as Mode, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use agentline_tests::needs_real_gemini;
use serde_json::json;

#[tokio::test]
async fn client_file_access_is_limited_to_the_workspace() {
    needs_real_gemini!();
    let edit = json!({"file_path": "old.txt", "instruction": "i", "old_string": "old", "new_string": "new"});
    let link = "link/through.txt";
    let stage = stage([
        ("new", calling([write("deep/er/new.txt")])),
        ("edit", calling([("replace", edit)])),
        ("escape", calling([write(link)])),
        ("refused", calling([write("refused.txt")])),
    ]);
    stage.file("old.txt", "old\n");
    let elsewhere = stage.outside().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, stage.workspace().join("link")).unwrap();
    let request = || in_mode(&stage, Mode::AcceptEdits).allow_file_reads(true).allow_file_writes(true);
    let session = stage.agentline().session(request()).await.unwrap();

    // Gemini CLI requests the file first, and does not create it if the response says that it does not exist.
    let result = send_prompt(&session, request(), "new").await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(stage.read("deep/er/new.txt").as_deref(), Some("new\n"), "{}", result.shown());
    assert_eq!(
        rows(&result),
        [("deep/er/new.txt".to_owned(), FileChangeKind::Created, ChangeSource::Tool, true)],
        "{}",
        result.shown()
    );

    let result = send_prompt(&session, request(), "edit").await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(stage.read("old.txt").as_deref(), Some("new\n"), "{}", result.shown());
    assert_eq!(
        rows(&result),
        [("old.txt".to_owned(), FileChangeKind::Modified, ChangeSource::Tool, true)],
        "{}",
        result.shown()
    );

    let result = send_prompt(&session, request(), "escape").await;
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
    assert_eq!(result.denied(), ["Write outside_workspace -"], "{}", result.shown());

    let result = send_prompt(&session, request().deny("Write(refused.txt)"), "refused").await;
    assert_eq!(result.denied(), ["Write rule Write(refused.txt)"], "{}", result.shown());
    assert!(stage.read("refused.txt").is_none() && rows(&result).is_empty());
    session.close().await;
}

fn rows(result: &RunRecord) -> Vec<(String, FileChangeKind, ChangeSource, bool)> {
    result.outcome.files.iter().map(|f| (f.path.clone(), f.change, f.source, f.verified)).collect()
}
