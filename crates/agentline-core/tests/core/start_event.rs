//! Tests that `started` is the first event of every run, with the version of the format.

use crate::play::{Player, spec};
use agentline_core::{EVENTS_SCHEMA, Event, ExitReason, InputKind, Notice, RunId, Surface, Verdict};

const INIT: &str = r#"{"type":"init","session_id":"s","model":"m"}"#;
const TEXT: &str = r#"{"type":"message","role":"assistant","content":"hi"}"#;
const DONE: &str = r#"{"type":"result","status":"success"}"#;

/// Returns the types of the events of a run that receives a warning and these lines, then exits.
fn types(lines: &[&str], code: i32) -> (Vec<&'static str>, Player) {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    player.take(InputKind::Notice { run: RunId(1), notice: Notice::new("early", "before the start") });
    lines.iter().for_each(|line| player.stdout(line));
    player.exit(ExitReason::Code(code));
    player.check();
    (player.events().map(Event::type_word).collect(), player)
}

#[test]
fn events_before_the_start_are_held_back_until_it() {
    let (events, player) = types(&["a banner", r#"{"type":"brand_new"}"#, INIT, TEXT, DONE], 0);
    // The last warning is about the line that could not be read.
    assert_eq!(events, ["started", "warning", "unreadable", "agent", "text", "warning"]);
    let Some(Event::Started(started)) = player.events().next() else {
        panic!("`started` is the first event")
    };
    assert_eq!(started.schema, EVENTS_SCHEMA);
    assert_eq!((started.run_id.as_str(), started.session_id.as_deref()), ("run-1", Some("s")));
    assert_eq!(player.outcome().unreadable_lines, 1);
    assert_eq!(player.outcome().warnings[0].code, "early");
}

#[test]
fn text_before_the_start_is_not_held_back() {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    player.stdout(TEXT);
    assert_eq!(player.texts(), ["hi"]);
    let (events, player) = types(&[TEXT, INIT, DONE], 0);
    assert_eq!(events, ["started", "warning", "text", "agent"]);
    // The session is known from then on.
    assert_eq!(player.outcome().session_id.as_deref(), Some("s"));
    assert_eq!(player.outcome().verdict, Verdict::Done);
}

#[test]
fn run_whose_agent_never_starts_has_a_start_too() {
    let (events, player) = types(&[], 1);
    assert_eq!(events, ["started", "warning"]);
    let Some(Event::Started(started)) = player.events().next() else {
        panic!("`started` is the first event")
    };
    assert_eq!((started.agent.as_str(), started.cwd.as_str(), &started.session_id), ("gemini", "/ws", &None));
    assert_eq!(player.outcome().first_event_ms, None, "it is not an event of the agent");
}

#[test]
fn a_flood_of_lines_before_the_start_is_not_held_back() {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    (0..1000).for_each(|_| player.stdout("a banner"));
    let unreadable = player.events().filter(|event| matches!(event, Event::Unreadable { .. })).count();
    assert_eq!((player.events().next().map(Event::type_word), unreadable), (Some("started"), 1000));
}
