//! Tests the surface that prints one document at the end: events come from the session file, and the document is found
//! wherever it is in the output.

use crate::capture;
use crate::play::{Player, spec};
use agentline_core::{
    Event, ExitReason, FailureKind, Origin, SessionTarget, Surface, ToolStatus, TurnSpec, Verdict,
};

fn spec_of_new_session() -> TurnSpec {
    let mut spec = spec();
    spec.session = SessionTarget::Named("s-1".into());
    spec.info.model = Some("m".into());
    spec
}

fn player() -> Player {
    let mut player = Player::new(Surface::Json);
    player.prompt(spec_of_new_session());
    player
}

const ANSWER: &str = r#"{"session_id":"s-1","response":"All done. 4","stats":{"models":{"m":{"tokens":{"prompt":100,"candidates":20,"total":125,"cached":30,"thoughts":5}}}}}"#;

fn failed(code: u16) -> Vec<String> {
    let text = format!(
        "{{\n  \"session_id\": \"s-1\",\n  \"error\": {{\n    \"type\": \"Error\",\n    \"message\": \"told {code}\",\n    \"code\": {code}\n  }}\n}}"
    );
    text.lines().map(str::to_owned).collect()
}

#[test]
fn events_are_read_from_the_session_file_during_the_run() {
    let mut player = player();
    for line in capture::session("full_tools") {
        player.side(&line);
    }
    assert!(!player.is_over());
    assert_eq!(player.texts(), ["Let me write it.", "All done. 4"]);
    let uses: Vec<&str> = player
        .events()
        .filter_map(|e| if let Event::ToolUse(t) = e { Some(&*t.name) } else { None })
        .collect();
    assert_eq!(
        uses,
        ["Write", "Edit", "Read", "Glob", "Bash", "WebSearch", "Read", "Bash", "nonexistent_tool"]
    );
    let thoughts = player.events().filter(|e| matches!(e, Event::Thinking { .. })).count();
    assert_eq!(thoughts, 2);
    assert!(player.records().all(|r| r.from == Origin::SessionFile && r.line.is_some()));
    player.stdout(ANSWER);
    player.exit(ExitReason::Code(0));
    player.check();
    assert_eq!(player.texts(), ["Let me write it.", "All done. 4"], "the last text is reported once");
    let outcome = player.outcome();
    assert_eq!((outcome.verdict, outcome.turns, outcome.tool_calls), (Verdict::Done, 7, 9));
    assert_eq!(outcome.text, "All done. 4");
    assert_eq!(outcome.session_id.as_deref(), Some("s-1"));
    assert!(player.warnings().is_empty(), "{:?}", player.warnings());
}

#[test]
fn denials_are_read_from_the_session_file() {
    let mut player = player();
    player.late_lines = capture::session("default_denied");
    player.stdout(r#"{"session_id":"s-1","response":"after deny","stats":{"models":{"m":{}}}}"#);
    player.exit(ExitReason::Code(0));
    player.check();
    let outcome = player.outcome();
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials);
    assert_eq!(outcome.denied[0].native_tool, "write_file");
    assert_eq!(outcome.denied[0].reason, "not_offered");
}

#[test]
fn stopped_tool_is_reported_as_stopped() {
    let mut player = player();
    for line in capture::session("acp_reject_cancel_error") {
        player.side(&line);
    }
    player.exit(ExitReason::Code(0));
    player.check();
    let cancelled = player
        .events()
        .filter(|e| matches!(e, Event::ToolResult(result) if result.status == ToolStatus::Cancelled))
        .count();
    assert_eq!(cancelled, 1);
}

#[test]
fn text_added_by_a_rewritten_record_is_reported() {
    let mut player = player();
    player.side(r#"{"id":"1","type":"gemini","content":""}"#);
    player.side(r#"{"id":"1","type":"gemini","content":"later"}"#);
    player.side(r#"{"id":"1","type":"gemini","content":"later"}"#);
    assert_eq!(player.texts(), ["later"]);
}

#[test]
fn agent_counts_are_used_with_a_warning_without_a_session_file() {
    let player = capture::find("json/json_tools").play();
    let outcome = player.outcome();
    assert_eq!((outcome.turns, outcome.tool_calls), (4, 4));
    assert_eq!(outcome.usage.requests, Some(5));
    assert_eq!(player.warnings(), ["no_session_file"]);
    assert_eq!(outcome.usage.tokens.thoughts, Some(25));
}

#[test]
fn document_may_be_on_stderr() {
    let mut player = player();
    player.stderr("Ripgrep is not available. Falling back to GrepTool.");
    failed(429).iter().for_each(|line| player.stderr(line));
    player.stderr("goodbye");
    player.exit(ExitReason::Code(173));
    let outcome = player.outcome();
    assert_eq!(outcome.verdict, Verdict::RateLimited);
    assert_eq!(outcome.error.as_ref().map(|e| &*e.message), Some("told 429"));
    assert_eq!(outcome.stderr_tail, "goodbye");
}

#[test]
fn document_may_be_repeated_and_truncated_the_second_time() {
    for length in 0..=7 {
        let mut player = player();
        let lines = failed(401);
        lines.iter().for_each(|line| player.stderr(line));
        for (i, line) in lines.iter().take(length).enumerate() {
            player.stderr(&if i == 0 { format!("[ERROR] {line}") } else { line.clone() });
        }
        player.exit(ExitReason::Code(145));
        let outcome = player.outcome();
        assert_eq!(outcome.verdict, Verdict::NotAuthenticated, "{length}");
        assert_eq!(outcome.error.as_ref().map(|e| &*e.message), Some("told 401"));
    }
}

#[test]
fn brace_on_stderr_does_not_hide_later_lines() {
    let mut player = player();
    player.stderr("{");
    player.stderr("  not: 'a document'");
    player.stderr("Please set an Auth method in your settings.json");
    player.exit(ExitReason::Code(1));
    let outcome = player.outcome();
    assert_eq!(outcome.verdict, Verdict::NotAuthenticated);
    assert!(outcome.stderr_tail.contains("not: 'a document'"));
    let mut player = self::player();
    player.stderr("{");
    for _ in 0..5000 {
        player.stderr("line");
    }
    player.stderr("Please set an Auth method in your settings.json");
    player.exit(ExitReason::Code(1));
    assert_eq!(player.outcome().verdict, Verdict::NotAuthenticated);
}

#[test]
fn noise_around_the_document_is_reported_and_does_not_hide_it() {
    for (before, after) in [
        ("Empty file created.\n", ""),
        ("{broken\n", "\nbye {"),
        ("{\"other\":1}\n", "\n[1,2]"),
        ("\u{feff}log: ", " end"),
    ] {
        let mut player = player();
        for line in format!("{before}{ANSWER}{after}").lines() {
            player.stdout(line);
        }
        player.exit(ExitReason::Code(0));
        player.check();
        let outcome = player.outcome();
        assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "All done. 4"), "{before:?} {after:?}");
        assert!(outcome.unreadable_lines > 0);
    }
}

#[test]
fn truncated_document_is_not_a_success() {
    for length in 0..ANSWER.len() {
        let mut player = player();
        player.stdout(&ANSWER[..length]);
        player.exit(ExitReason::Code(0));
        let outcome = player.outcome();
        assert_eq!(outcome.verdict, Verdict::Failed, "{length}");
        assert_eq!(outcome.error.as_ref().map(|e| e.kind), Some(FailureKind::NoResult));
    }
}

#[test]
fn lone_surrogate_does_not_lose_the_document() {
    let mut player = player();
    player.stdout(r#"{"response":"half \ud83d pair","stats":{"models":{"m":{}}}}"#);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().text, "half \u{fffd} pair");
}

#[test]
fn unsent_prompt_is_reported_as_context_overflow() {
    let mut player = player();
    player.stdout(r#"{"session_id":"s","response":"","stats":{"models":{}}}"#);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::ContextOverflow));
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    player.stdout(r#"{"type":"init","session_id":"s","model":"m"}"#);
    player.stdout(r#"{"type":"result","status":"success","stats":{"total_tokens":0,"models":{}}}"#);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::ContextOverflow));
}

#[test]
fn requests_that_the_service_rejected_are_a_failure_even_if_the_document_is_silent_about_them() {
    for (requests, answered, verdict) in
        [(3, false, Verdict::Failed), (4, false, Verdict::Empty), (4, true, Verdict::Done)]
    {
        let mut player = player();
        let response = if answered { "4" } else { "" };
        player.stdout(&format!(
            r#"{{"response":"{response}","stats":{{"models":{{"m":{{"api":{{"totalRequests":{requests},"totalErrors":3}}}}}}}}}}"#
        ));
        player.exit(ExitReason::Code(0));
        let outcome = player.outcome();
        assert_eq!(outcome.verdict, verdict, "{requests} requests, answered: {answered}");
        let kind = outcome.error.as_ref().map(|error| error.kind);
        assert_eq!(kind == Some(FailureKind::ApiError), verdict == Verdict::Failed, "{kind:?}");
    }
}

#[test]
fn outcome_names_the_model_that_answered() {
    for (other, named) in [("", "routed"), (r#","helper":{"api":{"totalRequests":1}}"#, "m")] {
        let mut player = player();
        player.stdout(&format!(
            r#"{{"response":"4","stats":{{"models":{{"routed":{{"api":{{"totalRequests":1}}}}{other}}}}}}}"#
        ));
        player.exit(ExitReason::Code(0));
        assert_eq!(player.outcome().model.as_deref(), Some(named));
    }
}
