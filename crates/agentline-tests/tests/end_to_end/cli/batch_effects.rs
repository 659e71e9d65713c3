//! Tests suites whose runs have effects outside the workspace (`repeatable: false`), with a fake agent: an interrupted or
//! failed run is not executed again.

use crate::cli::batch::{batch, lines, suite, user};
use crate::cli::user::User;
use agentline_tests::{exit_of, wait_until};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// The files through which the agents and the test see each other.
struct Marks {
    /// Gets a line from each run of the blocked cases.
    effects: PathBuf,
    /// While it exists, these runs do not end.
    block: PathBuf,
}

impl Marks {
    fn new(user: &User) -> Self {
        let dir = user.path("marks");
        fs::create_dir(&dir).unwrap();
        let marks = Self { effects: dir.join("effects"), block: dir.join("block") };
        fs::write(&marks.effects, "").unwrap();
        fs::write(&marks.block, "").unwrap();
        marks
    }

    /// Returns a suite in which `twice` and `once` block both jobs, so that `later` has to wait.
    fn suite(&self, key: &str) -> String {
        let (effects, block) = (self.effects.display(), self.block.display());
        let prompt = |case: &str| {
            format!("run echo {case} >> '{effects}'; while test -e '{block}'; do sleep 0.02; done\\nsay done")
        };
        format!(
            "{key}cases:\n- {{id: twice, prompt: \"{}\", repeatable: true}}\n- {{id: once, prompt: \"{}\"}}\n\
             - {{id: later, prompt: say done}}\n",
            prompt("twice"),
            prompt("once")
        )
    }

    /// Returns how often the agent of a case has run.
    fn runs(&self, case: &str) -> usize {
        fs::read_to_string(&self.effects).unwrap().lines().filter(|line| *line == case).count()
    }
}

fn start(user: &User) -> Child {
    user.command(&["batch", "suite.yaml", "--dir", "exp", "-j", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    exit_of(&mut child, "the end of a killed batch");
}

fn signal_twice(mut child: Child) {
    for signal in ["INT", "TERM"] {
        let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
    let code = exit_of(&mut child, "the end of a stopped batch").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
}

/// Returns the case, the class and the kind of each line.
fn classes(done: &crate::cli::user::Done) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines(done)
        .into_iter()
        .map(|((case, ..), line)| (case, text(&line["class"]), line["kind"].clone()))
        .collect()
}

fn passed(case: &str) -> (String, String, Value) {
    (case.into(), "passed".into(), Value::Null)
}

fn interrupted(case: &str) -> (String, String, Value) {
    (case.into(), "infrastructure".into(), "interrupted".into())
}

#[test]
fn interrupted_run_that_is_not_repeatable_is_executed_again_only_with_rerun() {
    for interrupt in [kill, signal_twice] {
        let user = user();
        let marks = Marks::new(&user);
        suite(&user, &marks.suite("repeatable: false\n"));
        let child = start(&user);
        wait_until("the effects of both runs", || marks.runs("twice") + marks.runs("once") == 2);
        interrupt(child);
        fs::remove_file(&marks.block).unwrap();

        let resumed = batch(&user, &["-o", "jsonl"]);
        assert_eq!(resumed.code, 12, "{}", resumed.err);
        assert_eq!(classes(&resumed), [passed("later"), interrupted("once"), passed("twice")]);
        assert_eq!((marks.runs("twice"), marks.runs("once")), (2, 1));
        assert!(resumed.out.contains("not repeatable"), "{}", resumed.out);
        let csv = user.agentline(&["report", "exp", "-o", "csv"]).out;
        assert!(csv.lines().any(|line| line.starts_with("once,") && line.contains("interrupted")), "{csv}");
        let again = batch(&user, &["-o", "jsonl"]);
        assert_eq!((again.code, again.out.as_str()), (12, ""), "{}", again.err);

        // A rerun that is interrupted itself is not executed again either, until the next one is asked for.
        fs::write(&marks.block, "").unwrap();
        let child = user
            .command(&["batch", "suite.yaml", "--dir", "exp", "--rerun", "infra"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the effects of the second run", || marks.runs("once") == 2);
        interrupt(child);
        fs::remove_file(&marks.block).unwrap();
        let rerun = || batch(&user, &["--rerun", "infra", "-o", "jsonl"]);
        assert_eq!((classes(&rerun()), marks.runs("once")), (vec![interrupted("once")], 2));
        assert_eq!((classes(&rerun()), marks.runs("once")), (vec![passed("once")], 3));
        assert_eq!(batch(&user, &[]).code, 0);
    }
}

#[test]
fn rerun_executes_an_interrupted_run_that_has_no_result_yet() {
    let user = user();
    let marks = Marks::new(&user);
    suite(&user, &marks.suite("repeatable: false\n"));
    let child = start(&user);
    wait_until("the effects of both runs", || marks.runs("twice") + marks.runs("once") == 2);
    kill(child);
    fs::remove_file(&marks.block).unwrap();
    let rerun = batch(&user, &["--rerun", "infra", "-o", "jsonl"]);
    assert_eq!(classes(&rerun), [passed("later"), passed("once"), passed("twice")], "{}", rerun.err);
    assert_eq!(marks.runs("once"), 2);
}

#[test]
fn run_that_is_not_repeatable_is_not_retried() {
    let user = user();
    let count = |case: &str| user.path(&format!("../count-{case}")).display().to_string();
    let case = |case: &str, repeatable: bool| {
        let count = count(case);
        format!("- {{id: {case}, repeatable: {repeatable}, prompt: \"refused 1 {count} busy\\nsay done\"}}\n")
    };
    suite(&user, &format!("cases:\n{}{}", case("a", true), case("b", false)));
    let done = batch(&user, &["-o", "jsonl"]);
    assert_eq!(done.code, 12, "{}", done.err);
    let refused = ("b".to_owned(), "infrastructure".to_owned(), Value::from("rate_limited"));
    assert_eq!(classes(&done), [passed("a"), refused], "{}", done.err);
    let rerun = batch(&user, &["-o", "jsonl", "--rerun", "infra"]);
    assert_eq!(classes(&rerun), [passed("b")], "{}", rerun.err);
}

#[test]
fn dry_run_warns_about_mcp_servers_if_the_suite_does_not_say_what_is_repeatable() {
    let user = user();
    let warning = |key: &str| {
        suite(
            &user,
            &format!(
                "{key}repeat: 3\ncases: [{{id: a, prompt: x}}, {{id: b, prompt: y, repeatable: true}}]\n\
                 variants: [{{id: with, mcp_servers: {{tickets: {{command: tickets}}}}}}, {{id: without}}]\n"
            ),
        );
        let done = batch(&user, &["--dry-run"]);
        assert_eq!(done.code, 0, "{}", done.err);
        assert!(done.out.contains("= 12 runs"), "{}", done.out);
        done.err
    };
    let text = warning("");
    assert!(text.contains("warning: 3 runs have MCP servers") && text.contains("`repeatable`"), "{text}");
    assert_eq!(warning("repeatable: false\n"), "");
    assert_eq!(warning("repeatable: true\n"), "");
}
