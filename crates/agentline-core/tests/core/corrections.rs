//! Tests what the session file corrects: repeated text, stopped tools, lines of a diff, and tokens missing from the
//! stream.

use crate::capture;
use crate::play::{Player, spec};
use agentline_core::{
    ChangeSource, DiskChange, DiskReport, ExitReason, FileChangeKind, Origin, Surface, ToolStatus,
    UsageSource, Verdict,
};

const INIT: &str = r#"{"type":"init","session_id":"s","model":"auto"}"#;
const DONE: &str = r#"{"type":"result","status":"success","stats":{"total_tokens":250,"input_tokens":200,"output_tokens":40,"cached":60}}"#;

fn started() -> Player {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    player.stdout(INIT);
    player
}

fn text(player: &mut Player, text: &str) {
    let content = serde_json::to_string(text).expect("a string");
    player.stdout(&format!(r#"{{"type":"message","role":"assistant","content":{content},"delta":true}}"#));
}

fn write(player: &mut Player, id: &str, path: &str) {
    player.stdout(&format!(
        r#"{{"type":"tool_use","tool_name":"write_file","tool_id":"{id}","parameters":{{"file_path":"{path}","content":"x"}}}}"#
    ));
    player.stdout(&format!(r#"{{"type":"tool_result","tool_id":"{id}","status":"success"}}"#));
}

fn disk(changes: &[(&str, FileChangeKind)]) -> DiskReport {
    let mut disk = DiskReport::default();
    disk.changes = changes.iter().map(|(path, change)| DiskChange::new(*path, *change)).collect();
    disk
}

#[test]
fn text_repeated_by_retries_is_replaced_by_the_record() {
    for (pieces, recorded) in [
        (&["The answer ", "The answer is 4."][..], "The answer is 4."),
        (&["Something else", "It is 4."], "It is 4."),
        (&["4", "4", "4"], "4"),
    ] {
        let mut player = started();
        pieces.iter().for_each(|piece| text(&mut player, piece));
        player.stdout(DONE);
        player.late_lines = vec![format!(r#"{{"id":"1","type":"gemini","content":"{recorded}"}}"#)];
        player.exit(ExitReason::Code(0));
        player.check();
        assert_eq!(player.outcome().text, recorded);
        assert_eq!(player.warnings(), ["text_repeated"]);
        assert_eq!(player.outcome().warnings.len(), 1);
    }
}

#[test]
fn correct_text_is_not_replaced_by_an_older_record() {
    for recorded in ["", "Let me look.", "The answer is 4."] {
        let mut player = started();
        text(&mut player, "The answer ");
        text(&mut player, "is 4.");
        player.stdout(DONE);
        player.side(&format!(r#"{{"id":"1","type":"gemini","content":"{recorded}"}}"#));
        player.exit(ExitReason::Code(0));
        assert_eq!(player.outcome().text, "The answer is 4.");
        assert!(player.warnings().is_empty());
    }
}

#[test]
fn text_is_taken_from_the_last_turn_with_text() {
    let mut player = started();
    text(&mut player, "First.");
    write(&mut player, "a", "a.txt");
    text(&mut player, "Sec");
    text(&mut player, "ond.");
    write(&mut player, "b", "b.txt");
    player.stdout(DONE);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().text, "Second.");
    assert_eq!(player.outcome().turns, 2);
}

#[test]
fn stopped_call_confirms_no_change() {
    let stopped = [
        r#""status":"cancelled""#,
        r#""status":"success","resultDisplay":"Command cancelled by user.""#,
        r#""status":"error","result":[{"functionResponse":{"response":{"error":"Tool \"write_file\" was canceled by the user."}}}]"#,
    ];
    for fields in stopped {
        let mut player = started();
        write(&mut player, "a", "a.txt");
        text(&mut player, "done");
        player.stdout(DONE);
        player.side(&format!(
            r#"{{"id":"1","type":"gemini","content":"","toolCalls":[{{"id":"a","name":"write_file",{fields}}}]}}"#
        ));
        player.exit(ExitReason::Code(0));
        assert!(player.outcome().files.is_empty(), "{fields}: {:?}", player.outcome().files);
    }
    let mut player = started();
    write(&mut player, "a", "a.txt");
    text(&mut player, "done");
    player.stdout(DONE);
    player.exit(ExitReason::Code(0));
    assert_eq!(player.outcome().files.len(), 1);
    assert!(!player.outcome().files[0].verified);
}

#[test]
fn recorded_run_with_its_session_file() {
    let capture = capture::find("stream-json/v0.61.0_full_tools");
    let mut player = Player::new(Surface::StreamJson);
    player.disk =
        Some(disk(&[("hello.txt", FileChangeKind::Created), ("made-by-shell.txt", FileChangeKind::Created)]));
    let mut spec = spec();
    spec.info.cwd = "/srv/lab/runs/old_0.61.0_full/ws".into();
    player.prompt(spec);
    player.late_lines = capture::session("full_tools");
    capture.play_into(&mut player, &[], capture::Stderr::Last);
    player.check();
    let outcome = player.outcome();
    assert_eq!((outcome.verdict, outcome.turns, outcome.tool_calls), (Verdict::Done, 7, 9));
    assert_eq!(outcome.model.as_deref(), Some("gemini-2.5-flash"));
    // Another model performed a search that the session file does not contain: 7 of 8 requests are recorded.
    let tokens = outcome.usage.tokens;
    assert_eq!((tokens.input, tokens.output, tokens.total), (Some(800), Some(160), Some(1000)));
    assert_eq!(tokens.thoughts, Some(40), "total = input + output + thoughts");
    assert_eq!(outcome.usage.sources, [UsageSource::Stream, UsageSource::SessionFile]);
    let by_model = &outcome.usage.by_model["gemini-2.5-flash"];
    assert_eq!((by_model.total, by_model.thoughts), (Some(875), Some(35)));
    let rows: Vec<_> =
        outcome.files.iter().map(|f| (&*f.path, f.source, f.verified, f.added, f.removed)).collect();
    assert_eq!(
        rows,
        [
            ("hello.txt", ChangeSource::Tool, true, Some(3), Some(1)),
            ("made-by-shell.txt", ChangeSource::Shell, true, None, None),
        ]
    );
    let disk_events = player.records().filter(|r| r.from == Origin::Disk).count();
    assert_eq!(disk_events, 2);
}

#[test]
fn unfinished_tools_are_closed_as_cancelled() {
    let mut player = started();
    player.stdout(
        r#"{"type":"tool_use","tool_name":"write_file","tool_id":"a","parameters":{"file_path":"a"}}"#,
    );
    player.exit(ExitReason::Signal(9));
    player.check();
    let cancelled = player.events().any(|e| {
        matches!(e, agentline_core::Event::ToolResult(result) if result.status == ToolStatus::Cancelled && result.is_error)
    });
    assert!(cancelled);
    assert!(player.outcome().files.is_empty());
    assert!(player.outcome().error.as_ref().is_some_and(|e| e.message.contains("signal 9")));
}
