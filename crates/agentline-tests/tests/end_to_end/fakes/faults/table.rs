//! The table of every fault with its expected result and the reason.
//!
//! The rows have the order of the fake agent's own table. The two surfaces differ if the fault is in the events: the
//! fake agent omits events from its JSON document but writes raw lines unchanged. Lines around the document are
//! reported as unreadable, and a document without text is an empty answer.

use crate::fakes::faults::expect::{
    BY_TOOL, Row, UNATTRIBUTED, both, done, empty, ends, failed, row, timed_out,
};
use agentline::{Event, FailureKind, ToolStatus, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use serde_json::json;
use std::time::Duration;

const ANSWER: &str = "All done. 4";

/// Bytes and lines.
pub(crate) fn lines() -> Vec<Row> {
    let ok = || done(ANSWER).reported("I will write it.All done. 4").files(&[BY_TOOL]);
    let ok_json = || done(ANSWER).files(&[UNATTRIBUTED]);
    vec![
        row("ok", ok(), ok_json().also(|p| assert!(p.warned("no_session_file")))),
        row(
            "garbage_between",
            ok().lines([1, 2, 4, 5, 7, 8, 11, 12, 14, 15, 17, 18]),
            ok_json().unreadable(12),
        ),
        row("blank_lines", ok(), ok_json()),
        row("nul_bytes", ok().lines([1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]), ok_json().unreadable(8)),
        row("invalid_utf8", done("before\u{fffd}afterAll done. 4").lines([3]), done(ANSWER).lines([1, 2])),
        row(
            "ansi_escapes",
            done("coloured line \u{1b}[1mbold\u{1b}[0m \u{1b}[2J\u{7} All done. 4").lines([3, 4]),
            done("\u{1b}[1mbold\u{1b}[0m \u{1b}[2J\u{7} All done. 4").lines([1, 2]),
        ),
        row("text_before_json", done(ANSWER).lines([3, 4, 5]), empty().lines([1, 2, 3])),
        row("text_after_json", done(ANSWER).lines([3, 4, 5]), empty().lines([1, 2, 3])),
        row("two_on_a_line", done("All All done. done. 44"), empty().lines([1, 2, 3])),
        row("crlf", done(ANSWER), empty().lines([1, 2, 3])),
        both("bom", done(ANSWER)),
        // An event is on one line. One that is spread over several lines is not read, and the error says so.
        row(
            "pretty_printed",
            empty().unreadable(21).also(|p| {
                let error = p.outcome.error.as_ref().expect("an error");
                assert!(error.message.ends_with("unreadable lines: 21"), "{}", error.message);
            }),
            empty().unreadable(3),
        ),
        row(
            "unicode_separators",
            done("\u{2028}\u{2029}\u{85}All \u{2028}\u{2029}\u{85}done. \u{2028}\u{2029}\u{85}4"),
            empty().unreadable(3),
        ),
        row("half_line_at_end", done(ANSWER).lines([5]), done(ANSWER).unreadable(1)),
        row(
            "result_cut",
            failed(FailureKind::NoResult).text(ANSWER).lines([4]),
            failed(FailureKind::NoResult).unreadable(1),
        ),
        both("no_last_newline", done(ANSWER)),
        row("split_character", done("🦀 é 漢"), empty().unreadable(1)),
        // Partial lines count as activity: the result alone takes longer than the idle timeout.
        row("slow_drip", done("4"), failed(FailureKind::NoResult).unreadable(3))
            .args(json!({"interval_ms": 8}))
            .tune(|request| request.idle_timeout(Duration::from_millis(1500))),
        both(
            "huge_line",
            done("").any_text().also(|p| {
                assert_eq!(p.outcome.text.len(), 1_000_000 + ANSWER.len());
                assert!(p.outcome.text.ends_with(ANSWER));
            }),
        )
        .args(json!({"bytes": 1_000_000})),
        both(
            "huge_garbage_line",
            done(ANSWER).unreadable(1).also(|p| assert_eq!(p.unreadable()[0].1, 9_000_000)),
        ),
        both("endless_line", failed(FailureKind::NoResult).unreadable(1)).args(json!({"bytes": 8_000_000})),
        row(
            "million_events",
            done("").any_text().also(|p| assert_eq!(p.texts(), vec!["x"; 10_000])),
            empty().unreadable(10_000),
        )
        .args(json!({"count": 10_000})),
        both("many_unreadable", done(ANSWER).unreadable(5_000)).args(json!({"count": 5_000})),
        row(
            "stdout_cut",
            failed(FailureKind::NoResult).any_text().unreadable(1).also(|p| assert_eq!(p.texts().len(), 507)),
            failed(FailureKind::NoResult).unreadable(508),
        )
        .args(json!({"bytes": 65_000})),
    ]
}

/// Formats of events.
pub(crate) fn shapes() -> Vec<Row> {
    // A result of the stream is not a document.
    let no_document = |raw_lines| failed(FailureKind::NoResult).unreadable(raw_lines);
    vec![
        // A number in place of a text is reported as that text.
        row(
            "wrong_types",
            done(ANSWER).reported(format!("42-1.5false{}{ANSWER}", "text".repeat(7))),
            done(ANSWER).unreadable(4),
        ),
        // The status is success; an `error` that is a string instead of an object has no effect.
        row(
            "wrong_result_types",
            done(ANSWER).also(|p| assert_eq!(p.outcome.usage.tokens.total, None)),
            no_document(0),
        ),
        row("missing_fields", done(ANSWER).reported("textAll done. 4"), done(ANSWER).unreadable(7)),
        row(
            "no_stats",
            done(ANSWER).also(|p| assert_eq!(p.outcome.usage.tokens.total, None)),
            no_document(0),
        ),
        // A status that is neither success nor error is not a valid result.
        row("unknown_status", failed(FailureKind::NoResult).text(ANSWER), no_document(0)),
        row("unknown_events", done("with All done. 4"), done(ANSWER)),
        row("not_objects", done(ANSWER).lines(3..=9), done(ANSWER).lines(1..=7)),
        row("deep_nesting", done(ANSWER).lines([4]), done(ANSWER).lines([1, 2])),
        // Numbers that cannot be counts are unknown; the result is still valid.
        row("huge_numbers", done(ANSWER).also(no_tokens), no_document(1)),
        // `NaN` is not JSON, so this line cannot be read, and it was the result.
        row("nan_tokens", failed(FailureKind::NoResult).text(ANSWER).lines([4]), no_document(1)),
        row("negative_tokens", done(ANSWER).also(no_tokens), no_document(1)),
        row(
            "fractional_tokens",
            done(ANSWER).also(|p| {
                let tokens = p.outcome.usage.tokens;
                assert_eq!((tokens.total, tokens.input, tokens.output), (Some(125), Some(100), None));
            }),
            no_document(1),
        ),
        row(
            "stats_disagree",
            done(ANSWER).files(&[BY_TOOL]).also(|p| assert_eq!(p.outcome.tool_calls, 1)),
            no_document(0).files(&[UNATTRIBUTED]),
        ),
        row("duplicate_keys", done("bAll done. 4"), no_document(2)),
        row(
            "lone_surrogate",
            done("\u{fffd}\u{fffd} backwards \u{fffd}🦀 is whole\0All done. 4"),
            done(ANSWER).unreadable(4),
        ),
        row("odd_timestamps", done("tick tick tick tick tick tick All done. 4"), done(ANSWER).unreadable(6)),
        row("other_agents_format", failed(FailureKind::NoResult), no_document(3)),
        both("plain_text", failed(FailureKind::NoResult).lines([1])),
    ]
}

fn no_tokens(played: &crate::fakes::faults::stage::Played) {
    let tokens = played.outcome.usage.tokens;
    assert_eq!((tokens.total, tokens.input, tokens.output), (None, None, None));
}

/// Order and truth of events.
pub(crate) fn order() -> Vec<Row> {
    let by_disk = |text| done(text).files(&[UNATTRIBUTED]);
    vec![
        both("no_init", done(ANSWER)),
        row("result_before_init", done(ANSWER), empty()),
        row(
            "two_inits",
            done(ANSWER).also(|p| assert_ne!(p.outcome.model.as_deref(), Some("other"))),
            done(ANSWER),
        ),
        row(
            "result_twice",
            done(ANSWER).also(|p| assert_eq!(p.outcome.usage.tokens.total, Some(125))),
            done(ANSWER).any_unreadable().also(|p| assert_eq!(p.outcome.usage.tokens.total, Some(125))),
        ),
        // A success that is followed by an error does not count, and the exit code agrees.
        both("success_then_error", failed(FailureKind::ApiError).text(ANSWER)),
        row(
            "writes_after_result",
            done("All done. 4One more thing.").lines([8]).files(&[BY_TOOL]),
            by_disk(ANSWER).unreadable(1),
        ),
        both("result_only", empty()),
        both("empty_answer", empty()),
        // Only the session file has the valid text, and there is none here.
        both("retried_text", done("The answer The answer The answer The answer is 4.")),
        both("echo_differs", done(ANSWER)),
        row(
            "other_model",
            done(ANSWER).also(|p| assert_eq!(p.outcome.model.as_deref(), Some("gemini-0.1-tiny"))),
            done(ANSWER),
        ),
        both("result_without_use", done(ANSWER)),
        row("result_before_use", done(ANSWER).also(|p| assert_eq!(cancelled(p), 1)), done(ANSWER)),
        row("tool_unanswered", done(ANSWER).also(|p| assert_eq!(cancelled(p), 1)), done(ANSWER)),
        // The second call cannot be distinguished from the first, so it is unknown which tool wrote the file.
        both("same_tool_id", by_disk(ANSWER)),
        row("tool_result_twice", done(ANSWER).files(&[BY_TOOL]), by_disk(ANSWER)),
        // Tools that are not the agent's own were not withheld from it.
        both("unknown_tool", done(ANSWER).also(|p| assert!(p.outcome.denied.is_empty()))),
        both("odd_tool_params", done(ANSWER).also(|p| assert!(p.outcome.denied.is_empty()))),
        row(
            "interleaved_tools",
            done(ANSWER)
                .reported("text while tools run All done. 4")
                .also(|p| assert_eq!(p.outcome.tool_calls, 3)),
            done("text while tools run All done. 4"),
        ),
        both("many_tools", done(ANSWER).also(|p| assert_eq!(p.outcome.tool_calls, 2_000))),
        // The false report is in `files`, marked as not verified.
        row(
            "success_lie",
            done("I wrote hello.txt.").files(&[(
                "hello.txt",
                FileChangeKind::Created,
                ChangeSource::Tool,
                false,
            )]),
            done("I wrote hello.txt."),
        ),
        row("content_lie", done("I wrote hello.txt.").files(&[BY_TOOL]), by_disk("I wrote hello.txt.")),
        both("silent_write", by_disk("I only looked around.")),
        both("failed_but_wrote", by_disk("It did not work.")),
        both(
            "writes_file_after_result",
            done(ANSWER).files(&[("late.txt", FileChangeKind::Created, ChangeSource::Unknown, true)]),
        ),
        // Errors from which the agent recovered.
        row("error_events", done(ANSWER).also(|p| assert_eq!(p.outcome.warnings.len(), 5)), done(ANSWER)),
        row("loop_warning", failed(FailureKind::Loop), empty()),
    ]
}

fn cancelled(played: &crate::fakes::faults::stage::Played) -> usize {
    let is =
        |event: &Event| matches!(event, Event::ToolResult(result) if result.status == ToolStatus::Cancelled);
    played.records.iter().filter(|r| is(&r.event)).count()
}

/// Ends of runs. Exit codes have their own table.
pub(crate) fn ends_of_runs() -> Vec<Row> {
    let crashed = |fault| {
        row(fault, failed(FailureKind::Crashed).text("I was about to "), failed(FailureKind::Crashed))
    };
    let ok = |fault| {
        row(
            fault,
            done(ANSWER).reported("I will write it.All done. 4").files(&[BY_TOOL]),
            done(ANSWER).files(&[UNATTRIBUTED]),
        )
    };
    vec![
        both("exit_code", failed(FailureKind::NoResult)),
        row(
            "exit_code_after_text",
            failed(FailureKind::NoResult).text("I was about to "),
            failed(FailureKind::NoResult),
        ),
        both("exit_code_with_result", ends(Verdict::NotAuthenticated, FailureKind::NotAuthenticated)),
        both("no_output", failed(FailureKind::NoResult)),
        // The agent answered and reported success; the outcome has the exit code.
        both("success_exit_1", done(ANSWER).also(|p| assert_eq!(p.outcome.agent_exit_code, Some(1)))),
        row("error_exit_0", empty(), failed(FailureKind::NoResult)),
        crashed("killed_sigkill"),
        crashed("killed_sigsegv"),
        crashed("killed_sigabrt"),
        crashed("killed_sigterm"),
        both("killed_with_tool_open", failed(FailureKind::Crashed).files(&[UNATTRIBUTED])),
        both("killed_after_result", done(ANSWER).also(|p| assert_eq!(p.outcome.agent_exit_code, None))),
        both("node_stack", failed(FailureKind::Crashed)),
        // The version is read from files; the agent is not started for it.
        ok("version_garbage"),
        ok("version_hang"),
        ok("version_fails"),
    ]
}

/// Hangs and signals. On the json surface, there is no output before the end, so the startup timeout expires.
pub(crate) fn hangs() -> Vec<Row> {
    let startup = || timed_out(FailureKind::TimeoutStartup);
    let idle = |text| timed_out(FailureKind::TimeoutIdle).text(text);
    let late = [("late.txt", FileChangeKind::Created, ChangeSource::Unknown, true)];
    vec![
        both("hang_at_start", startup()).hangs(),
        row("hang_after_init", idle(""), startup()).hangs(),
        row("hang_mid_text", idle("The answer is "), startup()).hangs(),
        row("hang_mid_line", idle("").lines([3]), startup().lines([1])).hangs(),
        row("hang_with_tool", idle("").also(|p| assert_eq!(cancelled(p), 1)), startup()).hangs(),
        // The result has arrived; the agent is shut down after a moment.
        both("hang_after_result", done(ANSWER).within(60)).hangs(),
        both("hang_after_failure", failed(FailureKind::ApiError).within(60)).hangs(),
        row("ignores_signals", idle("I will not stop. ").within(60), startup().within(60)).hangs(),
        row(
            "talks_without_end",
            timed_out(FailureKind::TimeoutRun).any_text(),
            timed_out(FailureKind::TimeoutRun),
        )
        .tune(|request| request.timeout(Duration::from_secs(3))),
        both("retries_forever", ends(Verdict::RateLimited, FailureKind::RateLimited).within(60)).hangs(),
        row("exit_0_on_signal", idle("Working. "), startup()).hangs(),
        // The agent ended because it was stopped, whatever it reports.
        row("result_on_signal", idle("Working. Stopped early."), startup().text("Working. Stopped early."))
            .hangs(),
        row("slow_to_die", idle("Working. Good night."), startup()).hangs(),
        row("writes_file_after_signal", idle("Working. ").files(&late), startup().files(&late)).hangs(),
    ]
}

/// An agent that floods its output when it is stopped. This is separate because it keeps a core busy.
pub(crate) fn floods() -> Vec<Row> {
    let flood = |kind| timed_out(kind).any_text().any_unreadable().within(90);
    vec![
        row("flood_after_signal", flood(FailureKind::TimeoutIdle), flood(FailureKind::TimeoutStartup))
            // The flood ends long before the timeout of the run, also on a machine that is too busy to read it.
            .tune(|request| {
                request.idle_timeout(Duration::from_secs(2)).startup_timeout(Duration::from_secs(4))
            }),
    ]
}

/// Standard streams. The prompt is larger than a pipe.
pub(crate) fn streams() -> Vec<Row> {
    let startup = || timed_out(FailureKind::TimeoutStartup);
    vec![
        both("closes_stdin", done(ANSWER)).tune(large_prompt),
        both("never_reads_stdin", done(ANSWER)).tune(large_prompt),
        row("hang_without_reading", timed_out(FailureKind::TimeoutIdle), startup()).tune(|request| {
            large_prompt(request.idle_timeout(Duration::from_secs(2)).startup_timeout(Duration::from_secs(4)))
        }),
        both("reads_some_stdin", done(ANSWER)).tune(large_prompt),
        both("reads_stdin_slowly", done(ANSWER)).tune(large_prompt),
        row(
            "closes_stdout",
            failed(FailureKind::NoResult).text("I go on in silence. ").files(&[UNATTRIBUTED]),
            failed(FailureKind::NoResult).files(&[UNATTRIBUTED]),
        ),
        row("closes_all_and_hangs", timed_out(FailureKind::TimeoutIdle), startup()).hangs(),
        both("stderr_garbage", done(ANSWER)),
        both("events_on_stderr", failed(FailureKind::NoResult)),
        row(
            "usual_noise",
            done(ANSWER).reported("I will write it.All done. 4").files(&[BY_TOOL]).also(no_tail),
            done(ANSWER).files(&[UNATTRIBUTED]).also(no_tail),
        ),
    ]
}

/// Much output on standard error. This is separate because it keeps a core busy.
pub(crate) fn complaints() -> Vec<Row> {
    vec![
        both("big_stderr", done(ANSWER).also(short_tail)).args(json!({"bytes": 1_000_000})),
        both("stderr_one_line", done(ANSWER).also(short_tail)).args(json!({"bytes": 1_000_000})),
    ]
}

fn large_prompt(mut request: agentline::RunRequest) -> agentline::RunRequest {
    request.prompt = "What is 2 + 2? ".repeat(14_000);
    request
}

fn no_tail(played: &crate::fakes::faults::stage::Played) {
    assert_eq!(played.outcome.stderr_tail, "", "known noise is omitted");
}

fn short_tail(played: &crate::fakes::faults::stage::Played) {
    let length = played.outcome.stderr_tail.len();
    assert!((1_000..=8_192).contains(&length), "{length}");
}

/// Processes. Every row checks that none remains.
pub(crate) fn processes() -> Vec<Row> {
    let leaves = |fault| both(fault, done(ANSWER)).args(json!({"pid_file": true}));
    let startup = || timed_out(FailureKind::TimeoutStartup);
    let waiting = || timed_out(FailureKind::TimeoutIdle).text("Waiting for them. ");
    vec![
        leaves("child_left"),
        leaves("child_own_session"),
        leaves("daemon"),
        leaves("daemon_clean_env"),
        leaves("fork_storm"),
        leaves("child_chain"),
        leaves("child_keeps_stdout"),
        row("hang_with_children", waiting(), startup()).hangs().args(json!({"pid_file": true})),
        row("stubborn_with_children", waiting().within(60), startup().within(60))
            .hangs()
            .args(json!({"pid_file": true, "stubborn": true})),
        row("children_after_signal", timed_out(FailureKind::TimeoutIdle).text("Working. "), startup())
            .hangs()
            .args(json!({"pid_file": true})),
    ]
}

/// Secrets. Every row checks that none is shown.
pub(crate) fn secrets() -> Vec<Row> {
    let leak = |source| [("leak.env", FileChangeKind::Created, source, true)];
    vec![
        both("secret_in_text", done("The key is [redacted], keep it safe.")),
        both("secret_split", done("The key is [redacted], keep it safe.")),
        // Live text is held back only from the fourth character of a secret on.
        row("secret_by_character", done("AIz[redacted]"), done("[redacted]")),
        both(
            "secret_in_stderr",
            done(ANSWER).also(|p| assert!(p.outcome.stderr_tail.ends_with("x-goog-api-key: [redacted]"))),
        ),
        both("secret_in_tool", done(ANSWER)),
        both("secret_in_error", failed(FailureKind::ApiError)),
        both("secret_in_garbage", done(ANSWER).unreadable(1)),
        row("secret_escaped", done("[redacted]"), empty().unreadable(1)),
        row(
            "secret_in_file",
            done(ANSWER).files(&leak(ChangeSource::Tool)),
            done(ANSWER).files(&leak(ChangeSource::Unknown)),
        ),
    ]
}

/// The working directory.
pub(crate) fn workspaces() -> Vec<Row> {
    let by_disk = |text, changed: &[(&'static str, FileChangeKind)]| {
        let files: Vec<_> = changed.iter().map(|(p, c)| (*p, *c, ChangeSource::Unknown, true)).collect();
        done(text).files(&files)
    };
    let created = |path| by_disk(ANSWER, &[(path, FileChangeKind::Created)]);
    let odd = [
        "$(touch x)",
        "-rf",
        "new\nline.txt",
        "not-utf8-\u{fffd}.txt",
        "né漢🦀.txt",
        "quote\".txt",
        "tab\t.txt",
        "with space.txt",
    ];
    vec![
        both("cwd_deleted", by_disk(ANSWER, &[("kept.txt", FileChangeKind::Deleted)]))
            .args(json!({"dir": true})),
        both(
            "many_files",
            done(ANSWER).any_files().also(|p| {
                assert_eq!(p.outcome.files.len(), 2_000);
                assert!(p.outcome.files.iter().all(|f| f.verified && f.change == FileChangeKind::Created));
            }),
        )
        .args(json!({"count": 2_000})),
        both("big_file", created("big.bin")).args(json!({"bytes": 30_000_000})),
        both("odd_names", by_disk(ANSWER, &odd.map(|name| (name, FileChangeKind::Created)))),
        both("fifo_in_workspace", created("pipe")),
        both(
            "symlink_loop",
            by_disk(ANSWER, &[("dangling", FileChangeKind::Created), ("loop", FileChangeKind::Created)]),
        ),
        both("deletes_files", by_disk("I changed nothing.", &[("kept.txt", FileChangeKind::Deleted)]))
            .args(json!({"file": "kept.txt"})),
        both("unreadable_file", created("locked.txt")),
    ]
}

/// Every exit code that the agent is known to use, and its result if the agent reports nothing itself.
pub(crate) const EXITS: &[(u8, Verdict, FailureKind)] = &[
    (0, Verdict::Failed, FailureKind::NoResult),
    (1, Verdict::Failed, FailureKind::NoResult),
    (41, Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
    (42, Verdict::Failed, FailureKind::Input),
    (44, Verdict::Failed, FailureKind::Sandbox),
    (52, Verdict::Failed, FailureKind::Settings),
    (53, Verdict::LimitReached, FailureKind::AgentTurns),
    (54, Verdict::Failed, FailureKind::Tool),
    (55, Verdict::Untrusted, FailureKind::Untrusted),
    (127, Verdict::NotInstalled, FailureKind::NotInstalled),
    (130, Verdict::Cancelled, FailureKind::Cancelled),
    (144, Verdict::Failed, FailureKind::ApiError),
    (145, Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
    (147, Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
    (173, Verdict::RateLimited, FailureKind::RateLimited),
    (244, Verdict::Failed, FailureKind::ApiError),
    (247, Verdict::RateLimited, FailureKind::RateLimited),
];
