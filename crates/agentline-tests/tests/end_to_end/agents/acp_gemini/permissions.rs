//! Tests permission decisions: modes, rules and a permission handler. Each decision is reported, and options are chosen
//! by kind.

use crate::agents::acp_gemini::harness::{
    RunRecord, SETTINGS_WITHOUT_BYPASS, calling, command, in_mode, send_prompt, stage, write,
};
use agentline::{
    FailureKind, Permission, PermissionHandler, PermissionMode as Mode, PermissionRequest, RunOptions,
    Surface, ToolStatus, Verdict,
};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::needs_real_gemini;
use serde_json::json;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Returns a word of the prompt for a file, and the script that writes the file.
fn writes(path: &str) -> (&str, Script) {
    (path, calling([write(path)]))
}

#[tokio::test]
async fn each_mode_decides_as_documented() {
    needs_real_gemini!();
    let stage = stage([
        writes("default.txt"),
        writes("bypass.txt"),
        writes("again.txt"),
        writes("deny.txt"),
        writes("prompt.txt"),
        writes("plan.txt"),
        // The agent's own rules let it write plans anywhere.
        ("a plan", calling([write("plan.md"), write("./plans/plan.md"), command("touch planned")])),
        (
            "edits",
            calling([
                write("edits.txt"),
                command("touch touched-by-edits"),
                ("web_fetch", json!({"prompt": "see http://127.0.0.1:9/x"})),
            ]),
        ),
        ("auto", calling([write("auto1.txt"), write("auto2.txt"), command("touch auto3.txt")])),
    ]);
    // The CLI offers its plan mode only in a process that was started for it.
    let session = stage.agentline().session(in_mode(&stage, Mode::Plan)).await.unwrap();
    let exists = |path: &str| stage.workspace().join(path).exists();

    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "default.txt").await;
    assert_eq!(result.decisions(), ["Write deny mode mode -"], "{}", result.shown());
    assert_eq!(result.denied(), ["Write mode -"], "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
    assert!(!exists("default.txt") && result.outcome.files.is_empty(), "{}", result.shown());

    // The agent is configured not to ask, so there is nothing to decide.
    let result = send_prompt(&session, in_mode(&stage, Mode::Bypass), "bypass.txt").await;
    assert_eq!(result.decisions(), [""; 0], "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert!(exists("bypass.txt"));

    // A permission for one prompt does not apply to the next.
    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "again.txt").await;
    assert_eq!(result.decisions(), ["Write deny mode mode -"], "{}", result.shown());
    assert!(!exists("again.txt"));

    for (mode, path) in [(Mode::Deny, "deny.txt"), (Mode::Prompt, "prompt.txt")] {
        let result = send_prompt(&session, in_mode(&stage, mode), path).await;
        assert_eq!(result.decisions(), ["Write deny mode mode -"], "{mode:?} {}", result.shown());
        assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{mode:?}");
        assert!(!exists(path));
    }

    // In its plan mode, the agent refuses by itself.
    let result = send_prompt(&session, in_mode(&stage, Mode::Plan), "plan.txt").await;
    assert_eq!(result.ends(), [ToolStatus::Denied], "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
    assert!(!exists("plan.txt"));
    let result = send_prompt(&session, in_mode(&stage, Mode::Plan), "a plan").await;
    let plans = stage.home().join(".gemini/tmp");
    assert!(
        result.outcome.files.iter().all(|file| Path::new(&file.path).starts_with(&plans)),
        "{}",
        result.shown()
    );
    assert!(!exists("plan.md") && !exists("plans") && !exists("planned"), "{}", result.shown());

    let result = send_prompt(&session, in_mode(&stage, Mode::AcceptEdits), "edits").await;
    assert_eq!(
        result.decisions(),
        ["Write allow mode accept-edits -", "Bash deny mode mode -", "WebFetch deny mode mode -"],
        "{}",
        result.shown()
    );
    assert!(exists("edits.txt") && !exists("touched-by-edits"));

    // The answer is `allow_once` each time: after `allow_always`, there would be no request for the second call.
    let result = send_prompt(&session, in_mode(&stage, Mode::Auto), "auto").await;
    assert_eq!(
        result.decisions(),
        ["Write allow mode auto -", "Write allow mode auto -", "Bash allow mode auto -"],
        "{}",
        result.shown()
    );
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert!(exists("auto1.txt") && exists("auto2.txt") && exists("auto3.txt"));
    session.close().await;
}

#[tokio::test]
async fn rules_override_the_mode_and_the_workspace_boundary_overrides_both() {
    needs_real_gemini!();
    let stage = stage([
        ("rules", calling([write("src/a.txt"), write("other.txt"), command("touch ok"), command("rm ok")])),
        ("outside", calling([write("../outside.txt")])),
    ]);
    let request =
        in_mode(&stage, Mode::Default).allow("Write(src/**)").allow("Bash(touch *)").deny("Bash(rm *)");
    let session = stage.agentline().session(request.clone()).await.unwrap();
    let result = send_prompt(&session, request, "rules").await;
    assert_eq!(
        result.decisions(),
        [
            "Write allow rule - Write(src/**)",
            "Write deny mode mode -",
            "Bash allow rule - Bash(touch *)",
            "Bash deny rule rule Bash(rm *)",
        ],
        "{}",
        result.shown()
    );
    assert_eq!(result.denied(), ["Write mode -", "Bash rule Bash(rm *)"], "{}", result.shown());
    assert_eq!(stage.read("src/a.txt").as_deref(), Some("new\n"));
    assert!(stage.read("ok").is_some() && stage.read("other.txt").is_none());

    let result = send_prompt(&session, in_mode(&stage, Mode::Auto), "outside").await;
    assert_eq!(result.ends().len(), 1, "{}", result.shown());
    assert!(!stage.outside().join("outside.txt").exists(), "{}", result.shown());

    // When it starts, the agent receives the list of commands that it must ask about.
    let mut late = in_mode(&stage, Mode::Auto).deny("Read(secret/**)").deny("Grep");
    late.prompt = "rules".into();
    let refused = session.prompt_with(late).await.unwrap_err().to_string();
    assert!(refused.contains("`Read(secret/**)`") && refused.contains("`Grep`"), "{refused}");

    // This process does not offer plan mode, and continuing in a more permissive mode would be worse than failing.
    let result = send_prompt(&session, in_mode(&stage, Mode::Plan), "rules").await;
    assert_eq!(result.outcome.verdict, Verdict::Failed, "{}", result.shown());
    let error = result.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::Policy, Phase::Request), "{}", result.shown());
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("mode")), "{}", result.shown());
    session.close().await;
}

#[tokio::test]
async fn permission_handler_gets_open_requests_with_diff_or_command() {
    needs_real_gemini!();
    let stage = stage([
        (
            "edit",
            calling([(
                "replace",
                json!({"file_path": "a.txt", "instruction": "i", "old_string": "old", "new_string": "new"}),
            )]),
        ),
        ("commands", calling([command("touch allowed"), command("touch refused")])),
        ("secret", calling([write("secret/key.txt"), write("src/ask.txt")])),
        ("panic", calling([command("touch panic")])),
        ("slow", calling([command("touch slow")])),
    ]);
    stage.file("a.txt", "old text\n");
    let received = Arc::new(Mutex::new(Vec::<PermissionRequest>::new()));
    let seen = received.clone();
    let handler = PermissionHandler::new(move |ask| {
        seen.lock().unwrap().push(ask.clone());
        async move {
            match ask.command.as_deref() {
                Some("touch refused") => Permission::Deny("not that".into()),
                Some("touch panic") => panic!("on purpose"),
                Some("touch slow") => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Permission::Allow
                }
                _ => Permission::Allow,
            }
        }
    });
    let session = stage
        .agentline()
        .session_with(in_mode(&stage, Mode::Default), RunOptions::new().permission_handler(handler))
        .await
        .unwrap();

    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "edit").await;
    assert_eq!(result.decisions(), ["Edit allow callback - -"], "{}", result.shown());
    assert_eq!(stage.read("a.txt").as_deref(), Some("new text\n"));
    let ask = received.lock().unwrap().remove(0);
    let diff = &ask.diffs[0];
    assert_eq!((diff.old.as_deref(), diff.new.as_str()), (Some("old text\n"), "new text\n"), "{ask:?}");
    assert!(ask.paths[0].ends_with("a.txt"), "{ask:?}");

    let result = send_prompt(&session, in_mode(&stage, Mode::Prompt), "commands").await;
    assert_eq!(
        result.decisions(),
        ["Bash allow callback - -", "Bash deny callback not that -"],
        "{}",
        result.shown()
    );
    assert_eq!(result.denied(), ["Bash not that -"], "{}", result.shown());
    assert!(stage.read("allowed").is_some() && stage.read("refused").is_none());
    let commands: Vec<_> = received.lock().unwrap().drain(..).map(|ask| ask.command).collect();
    assert_eq!(commands, [Some("touch allowed".to_owned()), Some("touch refused".to_owned())]);

    // A deny rule needs no answer. An ask rule goes to the permission handler with its name.
    let request = in_mode(&stage, Mode::Auto).deny("Write(secret/**)").ask("Write(src/**)");
    let result = send_prompt(&session, request, "secret").await;
    assert_eq!(
        result.decisions(),
        ["Write deny rule rule Write(secret/**)", "Write allow callback - Write(src/**)"],
        "{}",
        result.shown()
    );
    assert_eq!(received.lock().unwrap().drain(..).count(), 1);
    assert!(stage.read("secret/key.txt").is_none() && stage.read("src/ask.txt").is_some());

    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "panic").await;
    assert_eq!(result.decisions(), ["Bash deny callback callback_failed -"], "{}", result.shown());

    // The agent is not idle while a request is pending.
    let request = in_mode(&stage, Mode::Default).idle_timeout(Duration::from_secs(2));
    let result = send_prompt(&session, request, "slow").await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert!(stage.read("slow").is_some());
    session.close().await;
}

/// A session that is switched to this mode over ACP uses it regardless of the settings. `observed_behaviour` runs in
/// another mode with these settings.
#[tokio::test]
async fn settings_that_forbid_bypass_are_respected() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("said")))]);
    stage.settings(SETTINGS_WITHOUT_BYPASS);
    let mut request = in_mode(&stage, Mode::Bypass).surface(Surface::Acp);
    request.prompt = "go".into();
    let result = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    let kind = result.outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(
        (result.outcome.verdict, kind),
        (Verdict::Failed, Some(FailureKind::Settings)),
        "{}",
        result.shown()
    );
}

/// Over ACP, the agent does not report a tool that it does not offer. Without its session file, a call that did not
/// happen would look successful. Plan mode has no shell, whatever the rules are.
#[tokio::test]
async fn unavailable_tool_is_a_denial() {
    needs_real_gemini!();
    let stage = stage([("", calling([command("touch x"), ("made_up", json!({"a": 1}))]))]);
    let plan = in_mode(&stage, Mode::Plan).ask("Bash").allow("Bash");
    for request in [plan, in_mode(&stage, Mode::Auto).deny("Bash")] {
        let mut request = request.surface(Surface::Acp);
        request.prompt = "go".into();
        let result = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
        let denied: Vec<_> = result.outcome.denied.iter().map(|d| (&*d.tool, &*d.reason)).collect();
        assert_eq!(denied, [("Bash", "not_offered")], "{}", result.shown());
        assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
        assert_eq!((result.outcome.tool_calls, &*result.outcome.text), (2, "said"), "{}", result.shown());
        assert!(stage.read("x").is_none(), "{}", result.shown());
    }
}
