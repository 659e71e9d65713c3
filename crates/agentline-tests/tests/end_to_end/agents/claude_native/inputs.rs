//! What a request sets reaches Claude Code on both surfaces: images, included directories, and the reason of a denial. The
//! user's hooks are events.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use super::{Native, shell};
use agentline::{Event, Permission, PermissionHandler, PermissionMode as Mode, RunOptions, Surface, Verdict};
use agentline_mock::scripted::{ModelRequest, ModelStep};
use agentline_tests::{DOT_PNG, RunRecord, skipped};
use serde_json::json;
use std::fs;

/// The reason with which the caller denies a command.
const REASON: &str = "use `git rm` instead";

/// A hook of the user for every write.
const HOOK: &str = r#"{"hooks": {"PreToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "echo hooked"}]}]}}"#;

/// Writes to the directory of each name in the prompt, and runs a command. Then answers.
fn respond(request: &ModelRequest) -> ModelStep {
    if request.turn() > 0 {
        return ModelStep::text("Understood.");
    }
    let texts = request.user_texts().concat();
    let paths = texts.split_whitespace().filter(|word| word.ends_with("/new.txt"));
    paths.fold(shell("rm -rf old"), |step, path| {
        step.and_call("Write", json!({"file_path": path, "content": "new\n"}))
    })
}

async fn run(native: &Native) -> RunRecord {
    native.stage.home_file(".claude/settings.json", HOOK);
    let root = native.stage.workspace().parent().unwrap().canonicalize().unwrap();
    let (included, other) = (root.join("included"), root.join("other"));
    fs::create_dir(&included).unwrap();
    fs::create_dir(&other).unwrap();
    let image = root.join("dot.png");
    fs::write(&image, DOT_PNG).unwrap();
    let prompt = format!("Write {0}/new.txt and {1}/new.txt .", included.display(), other.display());
    let mut request = native.request(&prompt).permission_mode(Mode::AcceptEdits).include_dir(&included);
    request.attachments = vec![image];
    let handler = PermissionHandler::new(|_| async { Permission::DenyWithFeedback(REASON.into()) });
    let options = RunOptions::new().permission_handler(handler);
    let record = RunRecord::of(native.agentline().run_with(request, options).await.unwrap()).await;
    assert_eq!(record.outcome.verdict, Verdict::DoneWithDenials, "{}", record.shown());
    let denied = [format!("Bash {REASON} -"), "Write outside_workspace -".to_owned()];
    assert_eq!(record.denied(), denied, "{}", record.shown());
    assert_eq!(fs::read_to_string(included.join("new.txt")).unwrap(), "new\n", "{}", record.shown());
    assert!(!other.join("new.txt").exists(), "{}", record.shown());
    let first = &native.stage.model.turns()[0].body["messages"];
    assert!(first.to_string().contains(r#""media_type":"image/png""#), "{first}");
    record
}

/// Returns how often the last request to the model has the reason of the denial.
fn reasons(native: &Native) -> usize {
    let last = native.stage.model.turns().pop().expect("a request");
    last.body["messages"].to_string().matches(REASON).count()
}

#[tokio::test]
async fn images_directories_and_reasons_reach_the_model_and_hooks_are_events() {
    let Some(native) = Native::with(respond) else { return skipped("claude") };
    let record = run(&native).await;
    assert_eq!((native.stage.model.turns().len(), reasons(&native)), (2, 1), "{}", record.shown());
    assert!(!record.warnings().contains(&"denial_reason"), "{}", record.shown());
    let mut events = record.records.iter().filter_map(|record| match &record.event {
        Event::Agent { raw } => Some(raw.get()),
        _ => None,
    });
    let response = events.find(|raw| raw.contains("hook_response")).expect("the hook is an event");
    assert!(response.contains("hooked") && response.contains("PreToolUse"), "{response}");
}

#[tokio::test]
async fn images_directories_and_reasons_reach_the_model_over_acp_without_a_request_for_a_title() {
    let Some(native) = Native::over_acp(respond) else { return skipped("claude") };
    let record = run(&native).await;
    assert_eq!(record.outcome.surface, Some(Surface::Acp));
    // The protocol has no field for the reason, so it is another prompt.
    assert_eq!((native.stage.model.turns().len(), reasons(&native)), (3, 1), "{}", record.shown());
    assert!(record.warnings().contains(&"denial_reason"), "{}", record.shown());
    assert_eq!(native.stage.model.requests().len(), 3, "{:#?}", native.stage.model.requests());
    assert_eq!(record.outcome.usage.tokens.total, Some(3 * 130), "{}", record.shown());
}
