//! Tests the list of changed files with the real Gemini CLI: it matches the disk, whatever changed the files.
//! Variations run on its tapes.

use agentline::{Event, Outcome, Record, RunRequest, Verdict};
use agentline_core::{
    ChangeSource::{self, Shell, Tool, Unknown},
    FileChangeKind::{self, Created, Deleted, Modified},
};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{RunRecord, TestStage, needs_real_gemini, shown, tapes::replay};
use serde_json::json;
use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

fn default_request(stage: &TestStage) -> RunRequest {
    stage.request("Change files").timeout(Duration::from_secs(90))
}

fn write(path: impl AsRef<std::path::Path>, content: &str) -> GeminiStep {
    GeminiStep::call("write_file", json!({"file_path": path.as_ref(), "content": content}))
}

fn shell(command: &str) -> GeminiStep {
    GeminiStep::call("run_shell_command", json!({"command": command}))
}

type Row<'a> = (&'a str, FileChangeKind, ChangeSource, Option<&'a str>, bool);

fn rows(outcome: &Outcome) -> Vec<Row<'_>> {
    outcome
        .files
        .iter()
        .map(|f| (f.path.as_str(), f.change, f.source, f.tool.as_deref(), f.verified))
        .collect()
}

#[test]
fn changes_by_tools_shell_and_background_are_listed() {
    needs_real_gemini!();
    let script = Script::new([
        write("new.txt", "one\ntwo\n"),
        GeminiStep::call(
            "replace",
            json!({"file_path": "edit.txt", "instruction": "Say new.", "old_string": "old", "new_string": "new"}),
        ),
        shell("echo made > made.txt && rm gone.txt && mv before.txt after.txt"),
        GeminiStep::call(
            "run_shell_command",
            json!({"command": "sleep 0.3; echo late > late.txt", "is_background": true}),
        ),
        // These two calls have no effect: the first file is unchanged, and the second cannot exist.
        write("same.txt", "same\n"),
        write("edit.txt/below.txt", "never"),
        GeminiStep::text("Done.").delay(2000),
    ]);
    let stage = TestStage::new(script);
    for (path, content) in
        [("edit.txt", "old\n"), ("gone.txt", "x"), ("before.txt", "b\n"), ("same.txt", "same\n")]
    {
        stage.file(path, content);
    }
    let (records, outcome) = stage.play(default_request(&stage).diffs(true));
    check_diffs(&records, &outcome);
    for run in [RunRecord { records, outcome }, replay("changes.json").run] {
        let (records, outcome, all) = (&run.records, &run.outcome, shown(&run.outcome));
        assert_eq!((outcome.verdict, outcome.tool_calls), (Verdict::Done, 6), "{all}");
        let expected: [Row<'_>; 8] = [
            ("after.txt", Created, Shell, None, true),
            ("before.txt", Deleted, Shell, None, true),
            ("edit.txt", Modified, Tool, Some("Edit"), true),
            ("gone.txt", Deleted, Shell, None, true),
            ("late.txt", Created, Shell, None, true),
            ("made.txt", Created, Shell, None, true),
            ("new.txt", Created, Tool, Some("Write"), true),
            ("same.txt", Modified, Tool, Some("Write"), false),
        ];
        assert_eq!(rows(outcome), expected, "{all}");
        let lines: Vec<_> =
            outcome.files.iter().filter(|f| f.source == Tool).map(|f| (f.added, f.removed)).collect();
        assert_eq!(lines, [(Some(1), Some(1)), (Some(2), Some(0)), (Some(0), Some(0))], "{all}");
        let events: Vec<_> = records
            .iter()
            .filter_map(|r| match &r.event {
                Event::FileChange { path, verified, .. } => Some((path.as_str(), *verified)),
                _ => None,
            })
            .collect();
        assert_eq!(
            events,
            outcome.files.iter().map(|f| (f.path.as_str(), f.verified)).collect::<Vec<_>>(),
            "one event per file"
        );
    }
}

/// Checks that every changed file has its diff, whatever changed it.
fn check_diffs(records: &[Record], outcome: &Outcome) {
    let diffs: Vec<_> = outcome.files.iter().map(|f| (f.path.as_str(), f.diff.as_deref())).collect();
    let gone = "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n";
    let expected = [
        ("after.txt", Some("--- /dev/null\n+++ b/after.txt\n@@ -0,0 +1 @@\n+b\n")),
        ("before.txt", Some("--- a/before.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n")),
        ("edit.txt", Some("--- a/edit.txt\n+++ b/edit.txt\n@@ -1 +1 @@\n-old\n+new\n")),
        ("gone.txt", Some(gone)),
        ("late.txt", Some("--- /dev/null\n+++ b/late.txt\n@@ -0,0 +1 @@\n+late\n")),
        ("made.txt", Some("--- /dev/null\n+++ b/made.txt\n@@ -0,0 +1 @@\n+made\n")),
        ("new.txt", Some("--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n")),
        ("same.txt", None),
    ];
    assert_eq!(diffs, expected);
    let events = records.iter().filter_map(|r| match &r.event {
        Event::FileChange { path, diff, .. } => Some((path.as_str(), diff.as_deref())),
        _ => None,
    });
    assert_eq!(events.collect::<Vec<_>>(), expected);
}

#[test]
fn reported_files_are_listed_even_if_ignored_or_outside() {
    needs_real_gemini!();
    let [elsewhere, forbidden] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let elsewhere = elsewhere.path().canonicalize().unwrap();
    let outside = elsewhere.join("out.txt");
    let forbidden = forbidden.path().join("out.txt");
    let stage = TestStage::new(Script::new([
        write("tool.log", "by a tool\n"),
        shell("echo by-the-shell > shell.log; echo seen > seen.txt"),
        write(&outside, "outside\n"),
        // This directory is not included.
        write(&forbidden, "out"),
        GeminiStep::text("Done."),
    ]));
    let git = |args: &[&str]| {
        assert!(Command::new("git").arg("-C").arg(stage.workspace()).args(args).status().unwrap().success())
    };
    git(&["init", "-q"]);
    stage.file(".gitignore", "*.log\n");
    let outcome = stage.outcome(default_request(&stage).include_dir(&elsewhere));
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
    let denied: Vec<&str> = outcome.denied.iter().map(|d| d.reason.as_str()).collect();
    assert_eq!((denied, forbidden.exists()), (vec!["outside_workspace"], false), "{all}");
    let expected: [Row<'_>; 3] = [
        (outside.to_str().unwrap(), Created, Tool, Some("Write"), true),
        ("seen.txt", Created, Shell, None, true),
        ("tool.log", Created, Tool, Some("Write"), true),
    ];
    assert_eq!(rows(&outcome), expected, "{all}");
}

#[test]
fn subagent_changes_are_listed_with_unknown_source() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call("invoke_agent", json!({"agent_name": "generalist", "prompt": "write sub.txt"})),
        write("sub.txt", "by the sub-agent\n"),
        GeminiStep::call("complete_task", json!({"result": {"response": "Written."}})),
        GeminiStep::text("Done."),
    ]));
    let (records, outcome) = stage.play(default_request(&stage));
    let all = shown(&outcome);
    assert_eq!(
        (outcome.verdict, stage.read("sub.txt").as_deref()),
        (Verdict::Done, Some("by the sub-agent\n")),
        "{all}"
    );
    assert_eq!(rows(&outcome), [("sub.txt", Created, Unknown, None, true)], "{all}");
    let tools: Vec<_> = records
        .iter()
        .filter_map(|r| match &r.event {
            Event::ToolUse(t) => Some(t.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(tools, ["Task"]);
    // Its tokens are part of the total, but its requests are in no followed file.
    assert_eq!((outcome.usage.tokens.input, outcome.usage.requests), (Some(400), None), "{all}");
}

#[test]
fn concurrent_runs_do_not_claim_each_others_files() {
    needs_real_gemini!();
    // Neither run gets its first answer before both have scanned the workspace, nor its last before both have made all
    // changes. The runs therefore overlap on a busy machine too, where one may start seconds after the other.
    let arrived = [const { AtomicU32::new(0) }; 3];
    let model = GeminiModel::by_prompt(move |request| {
        let name = if request.user_texts().iter().any(|t| t.contains("red")) { "red" } else { "blue" };
        let turn = request.turn();
        if let (0 | 2, Some(arrived)) = (turn, arrived.get(turn)) {
            arrived.fetch_add(1, Ordering::SeqCst);
            let since = Instant::now();
            while arrived.load(Ordering::SeqCst) < 2 && since.elapsed() < Duration::from_secs(40) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let by_shell = shell(&format!("echo y > {name}-shell.txt"));
        Script::new([write(format!("{name}.txt"), "x\n"), by_shell, GeminiStep::text("Done.")]).at(turn)
    });
    let stage = TestStage::with_model(model.unwrap());
    let run = |prompt: &str| {
        let mut request = default_request(&stage);
        request.prompt = prompt.to_owned();
        stage.outcome(request)
    };
    let (red, blue) = std::thread::scope(|scope| {
        let red = scope.spawn(|| run("red"));
        let blue = scope.spawn(|| run("blue"));
        (red.join().unwrap(), blue.join().unwrap())
    });
    for (outcome, own, other) in [(&red, "red", "blue"), (&blue, "blue", "red")] {
        let all = shown(outcome);
        assert_eq!(outcome.verdict, Verdict::Done, "{all}");
        assert!(outcome.warnings.iter().any(|w| w.code == "shared_workspace"), "{all}");
        for file in &outcome.files {
            let by_own_tool = file.path == format!("{own}.txt");
            assert_eq!(file.source, if by_own_tool { Tool } else { Unknown }, "{all}");
            assert!(file.tool.is_some() == by_own_tool, "{all}");
        }
        assert!(outcome.files.iter().any(|f| f.path == format!("{own}-shell.txt")), "{all}");
        assert!(outcome.files.iter().any(|f| f.path == format!("{other}.txt")), "both overlapped: {all}");
    }
}

#[test]
fn unavailable_tool_changes_no_files() {
    let taped = replay("unavailable_write.stream-json");
    let outcome = &taped.run.outcome;
    assert_eq!((outcome.verdict, outcome.files.len()), (Verdict::DoneWithDenials, 0), "{}", shown(outcome));
    assert_eq!(taped.facts.files.get("a.txt").map(String::as_str), Some("before"));
}
