//! Tests of checks that pass, fail, print a lot, hang, and leave processes running.
#![cfg(unix)]

use crate::run::completion::*;
use std::time::Instant;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

fn command(line: &str) -> CompletionCheck {
    let env = [("PATH", "/usr/bin:/bin"), ("MINE", "of the caller")];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    CompletionCheck::command(line, env, Supervisor::None)
}

async fn check_output(line: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    match command(line).check(CheckInput::new("", dir.path()), LONG).await.unwrap() {
        CheckResult::Continue(reason) => reason,
        CheckResult::Done => "done".into(),
    }
}

#[tokio::test]
async fn command_passes_on_success_and_reports_its_output_on_failure() {
    assert_eq!(check_output("true").await, "done");
    assert_eq!(check_output("exit 3").await, "`exit 3` exited with code 3. It printed no output.");
    let both = check_output("echo out; echo err >&2; false").await;
    assert!(both.contains("exited with code 1. The end of its output:\n"), "{both}");
    assert!(both.contains("out") && both.contains("err"), "{both}");
    assert!(check_output("kill -9 $$").await.contains("was killed by signal 9"));
    assert!(check_output("no-such-program-anywhere").await.contains("exited with code 127"));
}

#[tokio::test]
async fn command_runs_in_the_workspace_with_the_callers_environment_and_no_stdin() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("made-by-the-agent"), "").unwrap();
    let line = "test -e made-by-the-agent && test \"$MINE\" = 'of the caller' && test -z \"$HOME\" && test -z \"$(cat)\"";
    let checked = command(line).check(CheckInput::new("", dir.path()), LONG).await.unwrap();
    assert_eq!(checked, CheckResult::Done);
}

#[tokio::test]
async fn long_output_is_truncated_to_its_end() {
    let text = check_output("i=0; while [ $i -lt 20000 ]; do echo \"line $i é\"; i=$((i+1)); done; printf '\\033[1m\\000last\\377'; false").await;
    assert!(
        text.len() < TAIL + 200 && text.ends_with("[1mlast\u{fffd}"),
        "{} {}",
        text.len(),
        &text[text.len() - 40..]
    );
    let (_, shown) = text.split_once("its output:\n").unwrap();
    assert!(shown.starts_with("…\nline 1"), "{}", &shown[..40]);
    let one_line = check_output("head -c 100000 /dev/zero | tr '\\0' x; false").await;
    assert!(one_line.len() > TAIL && one_line.len() < TAIL + 200, "{}", one_line.len());
}

/// Returns a check whose command creates a file unless it is ended, with its input.
fn lingering(dir: &TempDir) -> (CompletionCheck, CheckInput) {
    let line = "echo $$ > started; (sleep 6; echo late > survived) & wait";
    (command(line), CheckInput::new("", dir.path()))
}

async fn started(dir: &TempDir) -> u32 {
    loop {
        let pid = std::fs::read_to_string(dir.path().join("started")).ok();
        if let Some(pid) = pid.and_then(|pid| pid.trim().parse().ok()) {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn nothing_survives(dir: &TempDir) {
    tokio::time::sleep(Duration::from_millis(6500)).await;
    assert!(!dir.path().join("survived").exists());
}

#[tokio::test]
async fn timeout_ends_the_command_and_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let (checker, input) = lingering(&dir);
    let started_at = Instant::now();
    let failure = checker.check(input, Duration::from_millis(500)).await.unwrap_err();
    assert!(started_at.elapsed() < Duration::from_secs(6), "{:?}", started_at.elapsed());
    assert_eq!(failure.kind, FailureKind::TimeoutRun);
    assert!(failure.message.contains("echo $$ > started"), "{}", failure.message);
    nothing_survives(&dir).await;
}

#[tokio::test]
async fn dropping_a_check_ends_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let (checker, input) = lingering(&dir);
    tokio::select! {
        _ = checker.check(input, LONG) => unreachable!("the command takes three seconds"),
        _ = started(&dir) => {}
    }
    nothing_survives(&dir).await;
}

#[tokio::test]
async fn background_processes_of_a_command_end_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let line = "(sleep 6; echo late > survived) >/dev/null 2>&1 &";
    let checked = command(line).check(CheckInput::new("", dir.path()), LONG).await.unwrap();
    assert_eq!(checked, CheckResult::Done);
    nothing_survives(&dir).await;
}

#[tokio::test]
async fn command_that_cannot_be_started_is_a_failure() {
    let failure = command("true").check(CheckInput::new("", "/no/such/folder"), LONG).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Spawn);
    assert!(failure.message.contains("cannot start the check `true`"), "{}", failure.message);
}

#[tokio::test]
async fn function_checks_get_the_answer_and_may_panic_or_hang() {
    let mut input = CheckInput::new("the text", "/ws");
    input.value = Some(serde_json::json!({"n": 1}));
    let checker = CompletionCheck::new(|input: CheckInput| async move {
        assert_eq!(input.workspace, std::path::Path::new("/ws"));
        match input.value {
            Some(value) if value["n"] == 1 => CheckResult::Continue(format!("not {}", input.text)),
            _ => CheckResult::Done,
        }
    });
    let checked = checker.check(input, LONG).await.unwrap();
    assert_eq!(checked, CheckResult::Continue("not the text".into()));
    assert_eq!(checker.check(CheckInput::new("", "/ws"), LONG).await.unwrap(), CheckResult::Done);

    let panics = CompletionCheck::new(|input: CheckInput| {
        assert!(!input.text.is_empty(), "there is no text");
        async { CheckResult::Done }
    });
    let failure = panics.check(CheckInput::default(), LONG).await.unwrap_err();
    assert_eq!(
        (failure.kind, &*failure.message),
        (FailureKind::Tool, "the check panicked: there is no text")
    );

    let hangs = CompletionCheck::new(|_| std::future::pending());
    let failure = hangs.check(CheckInput::default(), Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TimeoutRun);
    assert_eq!(
        format!("{hangs:?} {:?}", command("x")),
        "CompletionCheck(the check) CompletionCheck(the check `x`)"
    );
}
