//! Tests that every wait has a timeout, and that the message of an expired one has its kind, its length and the last
//! activity.

use crate::play::{Player, spec};
use agentline_core::{
    ExitReason, FailureKind, InputKind, ShutdownStep, Signal, Stream, Surface, TurnSpec, Verdict,
};

const INIT: &str = r#"{"type":"init","session_id":"s","model":"m"}"#;
const TEXT: &str = r#"{"type":"message","role":"assistant","content":"half","delta":true}"#;
const TOOL: &str =
    r#"{"type":"tool_use","tool_name":"run_shell_command","tool_id":"t1","parameters":{"command":"sleep"}}"#;
const DONE: &str = r#"{"type":"result","status":"success","stats":{"total_tokens":3}}"#;
const BUSY: &str =
    r#"Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {"error":{"code":429}}"#;
const BROKEN: &str =
    r#"Attempt 1 failed with status 500. Retrying with backoff... _ApiError: {"error":{"code":500}}"#;

fn started(spec: TurnSpec, lines: &[&str]) -> Player {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec);
    lines.iter().for_each(|line| player.stdout(line));
    player
}

/// Advances the time, and checks the verdict, the kind, the message and the second at which the run is stopped.
#[track_caller]
fn assert_ends(mut player: Player, verdict: Verdict, kind: FailureKind, at: u64, parts: &[&str]) -> Player {
    player.wait(at * 1000 - player.now - 1);
    assert!(player.rungs().len() < 2, "the run was stopped too early: {:?}", player.rungs());
    player.ticks_to_the_end();
    player.check();
    let outcome = player.outcome();
    let error = outcome.error.as_ref().expect("it failed");
    assert_eq!((outcome.verdict, error.kind), (verdict, kind), "{}", error.message);
    for part in parts {
        assert!(error.message.contains(part), "`{}` does not contain `{part}`", error.message);
    }
    let stopped = player.now - 6000;
    assert_eq!(stopped, at * 1000, "stopped at {stopped}");
    player
}

#[test]
fn startup_timeout() {
    let expected = ["startup timeout of 60 s", "no earlier activity"];
    assert_ends(started(spec(), &[]), Verdict::TimedOut, FailureKind::TimeoutStartup, 60, &expected);
}

#[test]
fn idle_timeout() {
    let expected = ["idle timeout of 120 s", "last activity: text, 120 s earlier"];
    let player = assert_ends(
        started(spec(), &[INIT, TEXT]),
        Verdict::TimedOut,
        FailureKind::TimeoutIdle,
        120,
        &expected,
    );
    assert_eq!(player.outcome().text, "half");
}

#[test]
fn partial_lines_reset_the_idle_timeout_and_stderr_does_not() {
    let mut player = started(spec(), &[INIT]);
    player.wait(100_000);
    player.take(InputKind::Activity { stream: Stream::Stdout });
    player.wait(50_000);
    player.stderr("still here");
    player.take(InputKind::Activity { stream: Stream::Stderr });
    player.take(InputKind::TooLong { stream: Stream::Stderr, text: "x".into(), length: 1 << 30 });
    assert_ends(player, Verdict::TimedOut, FailureKind::TimeoutIdle, 220, &["last activity: started"]);
}

#[test]
fn tools_have_a_longer_timeout() {
    let mut spec = spec();
    spec.timeouts.run = 10_000_000;
    let expected = ["tool timeout of 600 s", "last activity: tool_use run_shell_command, 600 s earlier"];
    let player = assert_ends(
        started(spec, &[INIT, TOOL]),
        Verdict::TimedOut,
        FailureKind::TimeoutIdle,
        600,
        &expected,
    );
    assert_eq!(player.outcome().tool_calls, 1);
}

#[test]
fn run_timeout_applies_despite_activity() {
    let mut player = started(spec(), &[INIT]);
    for _ in 0..9 {
        player.wait(60_000);
        player.stdout(TEXT);
    }
    assert_ends(
        player,
        Verdict::TimedOut,
        FailureKind::TimeoutRun,
        600,
        &["timeout of 600 s", "last activity: text, 60 s earlier"],
    );
}

#[test]
fn flood_of_lines_cannot_suppress_a_timeout() {
    let mut player = started(spec(), &[INIT]);
    player.now = 700_000;
    player.stdout(TEXT);
    player.stdout(TEXT);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin, ShutdownStep::Interrupt]);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::TimeoutRun));
}

#[test]
fn retry_patience_limits_rate_limited_retries() {
    let mut player = started(spec(), &[INIT]);
    player.wait(10_000);
    for _ in 0..8 {
        player.stderr(BUSY);
        player.wait(10_000);
    }
    assert_eq!(player.warnings(), ["rate_limited"; 8]);
    assert_ends(
        player,
        Verdict::RateLimited,
        FailureKind::RateLimited,
        100,
        &["retry patience of 90 s", "429"],
    );
}

#[test]
fn retry_patience_resets_on_progress() {
    let mut player = started(spec(), &[INIT]);
    player.stderr(BUSY);
    player.wait(80_000);
    player.stdout(TEXT);
    player.wait(60_000);
    assert!(!player.is_over());
    assert_ends(player, Verdict::TimedOut, FailureKind::TimeoutIdle, 200, &["idle timeout of 120 s"]);
}

#[test]
fn retry_patience_limits_failing_service_retries() {
    let mut player = started(spec(), &[INIT]);
    player.stderr(BROKEN);
    assert_ends(player, Verdict::Failed, FailureKind::ApiError, 90, &["retry patience of 90 s", "500"]);
}

#[test]
fn any_timeout_during_a_429_means_rate_limited() {
    let mut spec = spec();
    spec.timeouts.patience = 10_000_000;
    let mut player = started(spec, &[INIT]);
    player.stderr(BUSY);
    assert_ends(player, Verdict::RateLimited, FailureKind::RateLimited, 120, &["idle timeout of 120 s"]);
}

#[test]
fn overcome_service_error_does_not_explain_a_later_failure() {
    let mut player = started(spec(), &[INIT]);
    player.stderr(BUSY);
    player.stdout(TEXT);
    player.stdout(r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: {\"error\":{\"code\":500,\"message\":\"broken\"}}]"}}"#);
    player.exit(ExitReason::Code(244));
    assert_eq!(player.outcome().verdict, Verdict::Failed);
    assert_eq!(player.outcome().error.as_ref().map(|e| e.message.as_str()), Some("broken"));
    let mut player = started(spec(), &[INIT]);
    player.stderr(BUSY);
    player.stdout(TEXT);
    player.exit(ExitReason::Code(1));
    assert_eq!(player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::NoResult));
}

#[test]
fn final_error_takes_precedence_over_an_earlier_service_error() {
    let mut player = started(spec(), &[INIT]);
    player.stderr(BUSY);
    player.stdout(r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: fetch failed]"}}"#);
    player.exit(ExitReason::Code(1));
    assert_eq!(player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::Network));
}

#[test]
fn unresolved_service_error_explains_the_failure() {
    let mut player = started(spec(), &[INIT]);
    player.stderr(BUSY);
    player.exit(ExitReason::Code(1));
    assert_eq!(player.outcome().verdict, Verdict::RateLimited);
}

#[test]
fn agent_that_hangs_after_an_auth_error_is_not_authenticated() {
    let mut player = started(spec(), &[]);
    player.stderr("Please set an Auth method in your settings.json");
    assert_ends(player, Verdict::NotAuthenticated, FailureKind::NotAuthenticated, 60, &["Auth method"]);
}

#[test]
fn process_is_shut_down_after_its_result() {
    let mut player = started(spec(), &[INIT, TEXT, DONE]);
    player.wait(4_999);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin]);
    player.wait(1);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin, ShutdownStep::Interrupt]);
    player.wait(2_000);
    player.wait(2_000);
    assert_eq!(
        player.rungs(),
        [ShutdownStep::CloseStdin, ShutdownStep::Interrupt, ShutdownStep::Terminate, ShutdownStep::Kill]
    );
    assert!(!player.is_over());
    player.wait(2_000);
    player.check();
    assert!(player.conn.is_finished());
    assert_eq!(player.outcome().verdict, Verdict::Done);
    assert_eq!(player.outcome().agent_exit_code, None);
}

#[test]
fn cancel_after_the_result_only_speeds_up_shutdown() {
    let mut player = started(spec(), &[INIT, TEXT, DONE]);
    player.take(InputKind::Cancel { run: crate::play::RUN, signal: Signal::Interrupt });
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin, ShutdownStep::Interrupt]);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().verdict, Verdict::Done);
}

#[test]
fn agent_is_killed_at_once_by_the_signal_for_it_whatever_was_tried_before() {
    for signals in [&[Signal::Kill][..], &[Signal::Interrupt, Signal::Kill]] {
        let mut player = started(spec(), &[INIT, TEXT, TOOL]);
        for signal in signals {
            player.take(InputKind::Cancel { run: crate::play::RUN, signal: *signal });
        }
        assert_eq!(player.rungs().last(), Some(&ShutdownStep::Kill), "{signals:?}");
        let steps = player.rungs().len();
        player.take(InputKind::Cancel { run: crate::play::RUN, signal: Signal::Kill });
        assert_eq!(player.rungs().len(), steps, "it is killed once");
        player.exit(ExitReason::Signal(9));
        player.check();
        assert_eq!(player.outcome().verdict, Verdict::Cancelled);
    }
}

#[test]
fn cancelled_by_either_signal_with_partial_output() {
    for (signal, name) in [(Signal::Interrupt, "SIGINT"), (Signal::Terminate, "SIGTERM")] {
        let mut player = started(spec(), &[INIT, TEXT, TOOL]);
        player.take(InputKind::Cancel { run: crate::play::RUN, signal });
        player.exit(ExitReason::Code(0));
        player.check();
        let outcome = player.outcome();
        assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Cancelled, "half"));
        assert!(outcome.error.as_ref().is_some_and(|e| e.message.contains(name)));
    }
}

#[test]
fn missing_workspace_report_is_not_awaited_forever() {
    let mut player = started(spec(), &[INIT, TEXT, DONE]);
    player.disk = None;
    player.exit(ExitReason::Code(0));
    assert!(!player.is_over());
    player.ticks_to_the_end();
    player.check();
    assert_eq!(player.now, 30_000);
    assert_eq!(player.outcome().verdict, Verdict::Done);
    assert_eq!(player.warnings(), ["workspace_not_compared"]);
}

#[test]
fn silent_surface_has_only_the_run_timeout() {
    let mut player = Player::new(Surface::Json);
    player.prompt(spec());
    assert_ends(player, Verdict::TimedOut, FailureKind::TimeoutRun, 600, &["timeout of 600 s"]);
    let mut player = Player::new(Surface::Json);
    let mut spec = spec();
    spec.session = agentline_core::SessionTarget::Named("s".into());
    player.prompt(spec);
    assert_ends(player, Verdict::TimedOut, FailureKind::TimeoutStartup, 60, &["startup timeout"]);
}
