//! The table of every fault of the fake ACP agent with its expected result. The rows have the order of the agent's own
//! table.

use crate::fakes::acp_faults::expect::{
    AcpRow, StopAt, by_nobody, by_tool, cancelled, denied, done, ends, failed, hasty, impatient, mode, row,
    timed_out,
};
use crate::fakes::acp_faults::stage::AcpPlayed;
use agentline::{Event, FailureKind, PermissionMode, RunRequest, ToolStatus, Verdict};
use std::time::Duration;

const ECHO: &str = "You said: hello";

fn hello(fault: &'static str) -> AcpRow {
    row(fault, done(ECHO))
}

/// Startup.
pub(crate) fn start() -> Vec<AcpRow> {
    let signed_out = || ends(Verdict::NotAuthenticated, FailureKind::NotAuthenticated, "");
    vec![
        row("exit_at_start", failed(FailureKind::NoResult, "")).not_opened().again(),
        row("exit_after_initialize", failed(FailureKind::NoResult, "")).not_opened().again(),
        row("initialize_never", timed_out(FailureKind::TimeoutStartup, "")).tune(hasty).not_opened().again(),
        hello("initialize_slow").spelled("initialize_slow:300"),
        row("initialize_error", failed(FailureKind::Input, "")).not_opened(),
        hello("initialize_bare"),
        hello("initialize_odd"),
        row("protocol_version", failed(FailureKind::Input, "")).not_opened(),
        hello("no_load"),
        // Signing in changes the user's settings, so it is done only on request.
        row("auth_required", signed_out()).not_opened(),
        row("auth_hopeless", signed_out()).not_opened(),
    ]
}

/// Sessions, modes and models.
pub(crate) fn sessions() -> Vec<AcpRow> {
    let small = |request: RunRequest| request.model("fake-small");
    vec![
        row("session_new_error", failed(FailureKind::Input, "")).not_opened(),
        row("session_new_never", timed_out(FailureKind::TimeoutStartup, "")).tune(hasty).not_opened().again(),
        hello("session_new_slow").spelled("session_new_slow:300"),
        hello("session_new_stalls"),
        row("session_new_exit", failed(FailureKind::NoResult, "")).not_opened().again(),
        hello("same_session_id"),
        row("session_id_missing", failed(FailureKind::NoResult, "")).not_opened().again(),
        row("session_id_number", failed(FailureKind::SessionNotFound, "")).persists(),
        row("no_modes_no_models", done("").any_text().also(assert_yolo_and_small_model))
            .prompt("state")
            .tune(|request| yolo(request.model("fake-small"))),
        row("config_options_only", done("").any_text().also(assert_yolo_and_small_model))
            .prompt("state")
            .tune(|request| yolo(request.model("fake-small"))),
        row("commands_after_new", done(ECHO).also(|p| assert!(p.story().contains(&"commands".into())))),
        // A session that stays in a stricter mode may do less than requested, which is a warning.
        row("set_mode_error", done(ECHO).warns(&["mode_not_set"])).tune(yolo),
        row("set_mode_never", timed_out(FailureKind::TimeoutIdle, ""))
            .tune(|request| yolo(impatient(request)))
            .not_opened(),
        hello("set_mode_ignored").tune(yolo),
        row("mode_update_text", done(ECHO)).tune(yolo),
        // An agent that rejects a model would work with another one.
        row("set_model_error", failed(FailureKind::UnknownModel, "")).tune(small).not_opened(),
        row(
            "set_model_unknown",
            done("").any_text().also(|p| assert!(p.outcome.text.contains("fake-small"))),
        )
        .prompt("state")
        .tune(small),
        row("set_config_error", failed(FailureKind::UnknownModel, ""))
            .spelled("set_config_error,config_options_only")
            .tune(small)
            .not_opened(),
        hello("load_error"),
        hello("load_answers_first"),
        hello("load_shows_context"),
        hello("memory_growth"),
        hello("mcp_ignored"),
        hello("process_per_session"),
    ]
}

/// Bytes, lines and JSON-RPC.
pub(crate) fn lines() -> Vec<AcpRow> {
    let written = || done("Done.").files(&[by_tool("asked.txt")]);
    let normal = |fault| row(fault, written());
    vec![
        row("junk_first", written().unreadable(2)),
        row("junk_between", written().unreadable(8)),
        normal("blank_lines"),
        row("truncated_lines", written().unreadable(8)),
        row("invalid_utf8", written().unreadable(8)),
        row("number_lines", written().unreadable(40)),
        row("array_lines", written().unreadable(16)),
        normal("crlf"),
        normal("bom"),
        row("nul_bytes", written().unreadable(8)),
        normal("slow_bytes"),
        normal("no_version_field"),
        normal("answer_ids_as_strings"),
        normal("request_ids_as_strings"),
        normal("answers_to_nobody"),
        normal("answers_twice"),
        row("result_and_error", failed(FailureKind::Input, "")).not_opened(),
        row(
            "long_line",
            done("").any_text().also(|p| assert_eq!(p.outcome.text.len(), 3_000_000 + ECHO.len())),
        )
        .untaped(),
        row("flood", done("").any_text().also(|p| assert_eq!(p.outcome.text.lines().count(), 20_001)))
            .untaped(),
        hello("unknown_notification"),
    ]
}

/// Content of updates.
pub(crate) fn updates() -> Vec<AcpRow> {
    let patient = |request: RunRequest| request.quiet_period(Duration::from_millis(500));
    let passed_on = |fault| row(fault, done(ECHO).also(|p| assert!(p.story().contains(&"agent".into()))));
    let shown = |fault, text| row(fault, done(text).also(|p| assert!(p.story().contains(&"content".into()))));
    vec![
        passed_on("unknown_update"),
        hello("update_for_unknown_session"),
        passed_on("update_without_kind"),
        passed_on("update_null"),
        hello("update_without_session"),
        hello("text_as_list"),
        hello("text_as_string"),
        hello("one_character_chunks"),
        passed_on("content_null"),
        passed_on("content_missing"),
        shown("unknown_block", ECHO),
        shown("image_only", ""),
        shown("audio_only", ""),
        row("thought_only", ends(Verdict::Empty, FailureKind::Empty, "")),
        row(
            "all_updates",
            done(ECHO).also(|p| {
                let story = [
                    "started",
                    "thinking",
                    "plan",
                    "commands",
                    "mode",
                    "config_option",
                    "session_info",
                    "usage",
                    "agent",
                    "text",
                    "outcome",
                ];
                assert_eq!(p.story(), story);
            }),
        ),
        // The text arrives 150 ms after an unknown update, which restarts the quiet period.
        row("late_text", done("Early.Late.")).tune(patient),
        // The silence between two updates is longer than the quiet period, so the turn ends immediately.
        row("late_trickle", done("Early.")).tune(|request| request.quiet_period(Duration::from_millis(20))),
        row("late_tool", done("Early.").files(&[by_tool("late.txt")])).tune(patient),
    ]
}

/// Reports of tools.
pub(crate) fn tools() -> Vec<AcpRow> {
    let both = || done("Done.").files(&[by_tool("one.txt"), by_tool("two.txt")]);
    let asked = || done("Done.").files(&[by_tool("asked.txt")]);
    let refusing = |request| mode(request, PermissionMode::Deny);
    vec![
        row("empty_tool_ids", both().also(|p| assert_eq!(ids(p), ["_tc_1", "_tc_2"]))),
        row(
            "missing_tool_ids",
            done("Done.").files(&[by_tool("made.txt")]).also(|p| assert_eq!(ids(p), ["_tc_1"])),
        ),
        row("same_tool_id", both()),
        row("tool_first_in_permission", asked()),
        row("refused_tool_silent", denied("Done.").also(|p| assert_eq!(statuses(p), [ToolStatus::Denied])))
            .tune(refusing),
        // It is not reported that the tool wrote the file, but the file exists.
        row(
            "tool_never_ended",
            done("Done.")
                .files(&[by_nobody("made.txt")])
                .also(|p| assert_eq!(statuses(p), [ToolStatus::Cancelled])),
        ),
        row(
            "tool_ended_twice",
            done("Done.").files(&[by_tool("made.txt")]).also(|p| assert_eq!(statuses(p), [ToolStatus::Ok])),
        ),
        row(
            "cancelled_shell_completed",
            cancelled("Working.").also(|p| assert_eq!(statuses(p), [ToolStatus::Cancelled])),
        )
        .unknown(cancelled("Working.").also(|p| assert_eq!(statuses(p), [ToolStatus::Ok])))
        .stop(StopAt::AtTool),
        row("shell_output_missing", done("Done.").also(|p| assert_eq!(statuses(p), [ToolStatus::Ok]))),
        row("tool_update_first", done(ECHO).also(|p| assert_eq!(statuses(p), [ToolStatus::Error]))),
        row("tool_odd_types", done(ECHO).also(|p| assert_eq!(statuses(p), [ToolStatus::Cancelled]))),
        row("gemini_manners", asked().also(|p| assert_eq!(p.outcome.usage.tokens.input, Some(100)))),
    ]
}

/// Permission requests and other requests.
pub(crate) fn requests() -> Vec<AcpRow> {
    let asked = || done("Done.").files(&[by_tool("asked.txt")]);
    let served = |request: RunRequest| request.allow_file_reads(true).allow_file_writes(true);
    let not_found = |fault, text| row(fault, done(text));
    vec![
        row("permission_unknown_kinds", asked()),
        row("permission_no_options", denied("Done.")),
        row("permission_reject_only", denied("Done.")),
        row("permission_always_only", asked()),
        row("permission_lying_ids", asked()),
        row("permission_again", asked().also(|p| assert_eq!(permissions(p), 50)))
            .spelled("permission_again:50"),
        row("permission_twice", asked().also(|p| assert_eq!(permissions(p), 2))),
        row(
            "permission_flood",
            asked().also(|p| assert_eq!((permissions(p), statuses(p).len()), (300, 300))),
        ),
        row("permission_without_tool", asked()),
        row("permission_without_session", asked()),
        not_found(
            "unknown_request",
            "request failed: -32601 method not found: _fake/questionYou said: hello",
        ),
        not_found(
            "terminal_request",
            "terminal failed: -32601 method not found: terminal/createYou said: hello",
        ),
        // Gemini reads a missing file as empty: otherwise it could not create one.
        row("read_missing", done("read: You said: hello"))
            .unknown(
                done("")
                    .any_text()
                    .also(|p| assert!(p.outcome.text.contains("not_found"), "{}", p.outcome.text)),
            )
            .tune(served),
        row(
            "read_outside",
            denied("").any_text().also(|p| assert!(p.outcome.text.starts_with("read failed"))),
        )
        .tune(served),
        row(
            "write_outside",
            denied("").any_text().also(|p| assert!(p.outcome.text.starts_with("write failed"))),
        )
        .tune(served),
        row("odd_path", done("").any_text()).tune(served),
    ]
}

/// Answers and their usage.
pub(crate) fn answers() -> Vec<AcpRow> {
    let no_word = |fault| row(fault, failed(FailureKind::NoResult, "Done."));
    let signed_out = |fault| row(fault, ends(Verdict::NotAuthenticated, FailureKind::NotAuthenticated, ""));
    let busy = |fault| row(fault, ends(Verdict::RateLimited, FailureKind::RateLimited, ""));
    vec![
        row("empty_end_turn", ends(Verdict::Empty, FailureKind::Empty, "")),
        row("refusal", ends(Verdict::Empty, FailureKind::Blocked, "I will not.")),
        // Gemini reports this only for a prompt that does not fit.
        row("max_tokens", failed(FailureKind::ContextOverflow, "It goes on and"))
            .unknown(failed(FailureKind::ApiError, "It goes on and")),
        // Gemini CLI ends a loop like this, too, and it has no turn limit here.
        row("max_turn_requests", failed(FailureKind::Loop, "Again.")).unknown(ends(
            Verdict::LimitReached,
            FailureKind::AgentTurns,
            "Again.",
        )),
        no_word("unknown_stop_reason"),
        no_word("no_stop_reason"),
        no_word("null_result"),
        row("never_answers", timed_out(FailureKind::TimeoutIdle, "Working.")).tune(impatient),
        row("prompt_error", failed(FailureKind::ApiError, "")),
        signed_out("prompt_auth_error"),
        signed_out("http_401"),
        signed_out("http_403"),
        busy("http_429"),
        row("http_500", failed(FailureKind::UnknownModel, "")).unknown(failed(FailureKind::ApiError, "")),
        busy("http_503"),
        row("error_odd_types", failed(FailureKind::ApiError, "")),
        row("error_after_text", failed(FailureKind::ApiError, "Half of the")),
        row(
            "usage_in_response",
            done(ECHO).also(|p| assert_eq!(tokens(p), [Some(100), Some(15), Some(30), Some(5)])),
        ),
        row("usage_updates", done(ECHO).also(|p| assert_eq!(p.outcome.cost_usd, Some(0.03)))),
        row("usage_in_quota", done(ECHO).also(|p| assert_eq!(tokens(p), [Some(100), Some(20), None, None]))),
        // The same tokens in three places are counted once.
        row(
            "usage_three_ways",
            done(ECHO).also(|p| {
                assert_eq!(tokens(p), [Some(100), Some(15), Some(30), Some(5)]);
                assert_eq!(p.outcome.cost_usd, Some(0.01));
            }),
        ),
        row("usage_odd", done("Done.")),
    ]
}

/// Cancellation by the caller.
pub(crate) fn cancels() -> Vec<AcpRow> {
    let stopped = |fault| row(fault, cancelled("Working.")).stop(StopAt::AtTool);
    vec![
        // An agent that ignores the cancel is shut down step by step; it may send text until it exits.
        row("cancel_ignored", cancelled("").any_text_and_warnings()).stop(StopAt::AtTool).exits(),
        stopped("cancel_slow").spelled("cancel_slow:300"),
        stopped("cancel_as_end_turn"),
        stopped("cancel_as_error"),
        // Whether this text still arrives depends on milliseconds.
        row("cancel_then_text", cancelled("").any_text_and_warnings()).stop(StopAt::AtTool),
        row("cancel_drops_permission", cancelled(""))
            .tune(|request| mode(request, PermissionMode::Default))
            .stop(StopAt::WhenAsked),
    ]
}

/// The process itself.
pub(crate) fn process() -> Vec<AcpRow> {
    let half = |fault, kind| row(fault, failed(kind, "Half of the")).exits();
    vec![
        half("die_in_turn", FailureKind::NoResult),
        half("killed_in_turn", FailureKind::Crashed),
        row("die_at_prompt", failed(FailureKind::NoResult, "")).exits().again(),
        row("die_after_tool", failed(FailureKind::NoResult, "").files(&[by_tool("made.txt")])).exits(),
        half("exit_0_in_turn", FailureKind::NoResult),
        row("half_line_then_exit", failed(FailureKind::NoResult, "Half of the").unreadable(1)).exits(),
        half("stdout_closed", FailureKind::Crashed),
        hello("stderr_flood"),
        hello("child_left"),
        row("ignores_signals", timed_out(FailureKind::TimeoutIdle, "")).tune(impatient),
        hello("survives_eof"),
        hello("slow_exit").spelled("slow_exit:300"),
    ]
}

/// A mode under each agent's own name.
fn yolo(request: RunRequest) -> RunRequest {
    request.permission_mode(PermissionMode::Bypass).mode_id("yolo")
}

fn assert_yolo_and_small_model(played: &AcpPlayed) {
    let text = &played.outcome.text;
    assert!(text.contains(r#""mode":"yolo""#) && text.contains(r#""model":"fake-small""#), "{text}");
}

fn ids(played: &AcpPlayed) -> Vec<String> {
    let id = |event: &Event| if let Event::ToolUse(tool) = event { Some(tool.id.clone()) } else { None };
    played.records.iter().filter_map(|record| id(&record.event)).collect()
}

fn statuses(played: &AcpPlayed) -> Vec<ToolStatus> {
    let status =
        |event: &Event| if let Event::ToolResult(result) = event { Some(result.status) } else { None };
    played.records.iter().filter_map(|record| status(&record.event)).collect()
}

fn permissions(played: &AcpPlayed) -> usize {
    played.records.iter().filter(|record| matches!(record.event, Event::Permission(_))).count()
}

fn tokens(played: &AcpPlayed) -> [Option<u64>; 4] {
    let tokens = &played.outcome.usage.tokens;
    [tokens.input, tokens.output, tokens.cached, tokens.thoughts]
}
