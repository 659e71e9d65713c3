//! Runs the suite of `examples/coding-tasks` with two real agents, whose scripted models solve the tasks.

use agentline_mock::{
    agents::ServedRequest,
    answer::{Action, Answer},
};
use agentline_tests::{ScriptedStage, skipped};
use serde_json::Value;
use std::{path::Path, process::Output};

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/coding-tasks/suite.yaml");

/// A part of each prompt, the file that solves the task, and its content.
const SOLUTIONS: &[(&str, &str, &str)] = &[
    ("`slugify`", "slugify.mjs", include_str!("coding_tasks/slugify.mjs")),
    ("`median`", "stats.mjs", include_str!("coding_tasks/stats.mjs")),
    ("`toRoman(n)`", "roman.mjs", include_str!("coding_tasks/roman.mjs")),
    ("`parseLine`", "csv.mjs", include_str!("coding_tasks/csv.mjs")),
    ("`chunk`", "chunk.mjs", include_str!("coding_tasks/chunk.mjs")),
    ("`isBalanced(text)`", "brackets.mjs", include_str!("coding_tasks/brackets.mjs")),
    ("`daysBetween`", "days.mjs", include_str!("coding_tasks/days.mjs")),
    ("`Cache`", "cache.mjs", include_str!("coding_tasks/cache.mjs")),
    ("count.mjs", "count.mjs", include_str!("coding_tasks/count.mjs")),
];

const RENAME: &str = r"sed -i 's/\bgetUser\b/findUser/g' users.mjs greet.mjs";

/// Returns an answer of a model that solves a task with one command, unless it cannot do the task.
fn solve(request: &ServedRequest, cannot: &[&str]) -> Answer {
    let has = |part: &str| request.user_texts.iter().any(|text| text.contains(part));
    if !request.tool_results.is_empty() {
        return Answer::text("Done.");
    }
    if has("`getUser`") {
        return Answer::using(Action::shell(RENAME));
    }
    match SOLUTIONS.iter().find(|(part, ..)| has(part)) {
        Some((part, ..)) if cannot.contains(part) => Answer::text("It looks right to me."),
        Some((_, file, content)) => {
            Answer::using(Action::shell(format!("cat > {file} <<'END_OF_FILE'\n{content}END_OF_FILE")))
        }
        None => Answer::text("I do not know this task."),
    }
}

/// Runs the suite with an agent, and returns the class of each case.
fn classes(stage: &ScriptedStage, dir: &Path) -> (Output, Vec<(String, String)>) {
    let mut command = stage.command(Path::new(AGENTLINE));
    command.args(["batch", SUITE, "-a", stage.agent.id, "-j", "2", "-o", "jsonl", "--dir"]).arg(dir);
    if let Some(model) = stage.agent.model {
        command.args(["-m", model]);
    }
    let done = command.output().unwrap();
    let lines = String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    let mut classes: Vec<(String, String)> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| ["case", "class"].map(|key| line[key].as_str().unwrap().to_owned()).into())
        .collect();
    classes.sort();
    (done, classes)
}

#[test]
fn ten_tasks_with_hidden_tests_are_solved_and_compared() {
    let good = ScriptedStage::new("codex", |request| solve(request, &[]));
    let weak = ScriptedStage::new("gemini", |request| solve(request, &["`median`", "`daysBetween`"]));
    let (Some(good), Some(weak)) = (good, weak) else { return skipped("the example suite") };
    let (first, second) = (good.path().join("good"), good.path().join("weak"));
    let (done, results) = classes(&good, &first);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(done.status.code(), Some(0), "{results:?}\n{}", text(&done.stderr));
    assert_eq!(results.len(), 10);
    let (done, results) = classes(&weak, &second);
    assert_eq!(done.status.code(), Some(1), "{results:?}\n{}", text(&done.stderr));
    let failed: Vec<&str> =
        results.iter().filter(|(_, class)| class != "passed").map(|(case, _)| case.as_str()).collect();
    assert_eq!(failed, ["days", "median"], "{results:?}");
    let mut report = good.command(Path::new(AGENTLINE));
    let report = report.arg("report").args([&second, &first]).output().unwrap();
    let report = text(&report.stdout);
    assert!(
        report.contains("days") && report.contains("median") && report.contains("not decided"),
        "{report}"
    );
}
