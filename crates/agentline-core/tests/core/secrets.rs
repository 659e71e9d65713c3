//! Checks that no output contains a secret, wherever the agent puts it and wherever a text is cut. Frames are not
//! redacted.

use crate::capture::{self, Stderr};
use crate::play::{Player, spec};
use agentline_core::{ConnectionOutput, Event, ExitReason, InputKind, Surface};
use std::collections::BTreeSet;

const SECRET: &str = "s3cr3t-\"value\"/of-ours";

/// Returns all outputs as programs see them.
fn visible_outputs(player: &Player) -> String {
    let mut all = String::new();
    for output in &player.out {
        match output {
            ConnectionOutput::Event(_, record) => all.push_str(&serde_json::to_string(record).expect("JSON")),
            ConnectionOutput::Done(_, outcome) => {
                all.push_str(&serde_json::to_string(outcome).expect("JSON"))
            }
            _ => continue,
        }
        all.push('\n');
    }
    all
}

/// Collects the texts of a recorded line that could be secrets.
fn texts_in(line: &str, found: &mut BTreeSet<String>) {
    fn walk(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::String(s) if s.len() >= 8 && s.len() < 200 => {
                found.insert(s.clone());
            }
            serde_json::Value::Array(items) => items.iter().for_each(|v| walk(v, found)),
            serde_json::Value::Object(map) => map.values().for_each(|v| walk(v, found)),
            _ => {}
        }
    }
    if let Ok(value) = serde_json::from_str(line) {
        walk(&value, found);
    }
}

#[test]
fn recorded_text_is_redacted_if_it_is_a_secret() {
    let mut tried = 0;
    for capture in capture::all().into_iter().filter(|c| c.stdout.len() < 20_000) {
        let mut secrets = BTreeSet::new();
        String::from_utf8_lossy(&capture.stdout).lines().for_each(|line| texts_in(line, &mut secrets));
        // These words of the format are in every output.
        secrets.retain(|s| !["assistant", "tool_use", "tool_result"].contains(&s.as_str()));
        for secret in secrets {
            let mut player = Player::redacted(capture.surface, &[&secret]);
            player.prompt(spec());
            capture.play_into(&mut player, &[], Stderr::Between);
            player.check();
            let quoted = serde_json::to_string(&secret).expect("JSON");
            let shown = visible_outputs(&player);
            let quoted = &quoted[1..quoted.len() - 1];
            let at = shown.lines().find(|line| line.contains(quoted));
            assert!(at.is_none(), "{}: `{secret}` in {at:?}", capture.name);
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn redaction_does_not_change_the_verdict() {
    for capture in capture::all() {
        let plain = capture.play();
        let mut redacted =
            Player::redacted(capture.surface, &["nowhere to be found", "not in any recording"]);
        redacted.prompt(spec());
        capture.play_into(&mut redacted, &[], Stderr::Last);
        let (plain, redacted) = (plain.outcome(), redacted.outcome());
        assert_eq!(
            serde_json::to_string(plain).expect("JSON"),
            serde_json::to_string(redacted).expect("JSON"),
            "{}",
            capture.name
        );
    }
}

#[test]
fn recordings_contain_nothing_that_looks_like_a_key() {
    let redactor = agentline_core::Redactor::default();
    for capture in capture::all() {
        let text = String::from_utf8_lossy(&capture.stdout);
        assert_eq!(redactor.text(&text), text, "{}", capture.name);
    }
}

#[test]
fn secret_interrupted_by_a_tool_call_is_redacted_everywhere() {
    for cut in 1..SECRET.len() {
        let shown = outputs_of(|p| {
            let message = |piece: &str| {
                let content = serde_json::to_string(piece).expect("JSON");
                format!(r#"{{"type":"message","role":"assistant","content":{content},"delta":true}}"#)
            };
            p.stdout(&message(&format!("it is {}", &SECRET[..cut])));
            p.stdout(
                r#"{"type":"tool_use","tool_name":"read_file","tool_id":"t","parameters":{"file_path":"a"}}"#,
            );
            p.stdout(r#"{"type":"tool_result","tool_id":"t","status":"success"}"#);
            p.stdout(&message(&SECRET[cut..]));
        });
        for part in ["s3cr", "3cr3t", "r3t-", "value", "/of-", "ours"] {
            assert!(!shown.contains(part), "`{part}` in {shown}");
        }
    }
}

#[test]
fn frames_are_sent_unredacted() {
    let mut player = Player::redacted(Surface::StreamJson, &[SECRET]);
    let mut spec = spec();
    spec.prompt = format!("use {SECRET} here");
    player.prompt(spec);
    let frames: Vec<&String> = player
        .out
        .iter()
        .filter_map(|o| if let ConnectionOutput::Frame(f) = o { Some(f) } else { None })
        .collect();
    assert_eq!(frames, [&format!("use {SECRET} here")]);
}

/// Returns the outputs of a run in which `put` inserts the secret somewhere.
fn outputs_of(put: impl Fn(&mut Player)) -> String {
    let mut player = Player::redacted(Surface::StreamJson, &[SECRET]);
    player.prompt(spec());
    player.stdout(r#"{"type":"init","session_id":"s","model":"m"}"#);
    put(&mut player);
    player.stdout(r#"{"type":"result","status":"success"}"#);
    player.exit(ExitReason::Code(0));
    player.check();
    visible_outputs(&player)
}

#[track_caller]
fn assert_redacted(shown: &str) {
    // No part of four or more letters may be shown.
    for part in ["s3cr", "3cr3t", "r3t-", "value", "/of-", "ours"] {
        assert!(!shown.contains(part), "`{part}` in {shown}");
    }
}

#[test]
fn truncated_text_shows_no_part_of_a_secret() {
    for before in 150..230 {
        let line = format!("{}{SECRET}{}", ".".repeat(before), ".".repeat(300));
        assert_redacted(&outputs_of(|p| p.stdout(&line)));
        assert_redacted(&outputs_of(|p| {
            p.take(InputKind::TooLong {
                stream: agentline_core::Stream::Stdout,
                text: line.clone().into(),
                length: 1 << 30,
            });
        }));
    }
    for before in 250..320 {
        let line = format!("Attempt 1 failed {}{SECRET} and more", ".".repeat(before));
        assert_redacted(&outputs_of(|p| p.stderr(&line)));
    }
    for after in [4070, 4080, 4090, 4096, 8170, 8180, 8190] {
        let line = format!("{SECRET}{}", ".".repeat(after));
        assert_redacted(&outputs_of(|p| p.stderr(&line)));
        assert_redacted(&outputs_of(|p| {
            p.stderr(SECRET);
            (0..after / 1000).for_each(|_| p.stderr(&".".repeat(after % 1000 + 999)));
        }));
    }
}

#[test]
fn secret_split_across_events_is_redacted() {
    for cut in 1..SECRET.len() {
        let shown = outputs_of(|p| {
            for piece in [&SECRET[..cut], &SECRET[cut..]] {
                let content = serde_json::to_string(piece).expect("JSON");
                p.stdout(&format!(r#"{{"type":"message","role":"assistant","content":{content}}}"#));
                p.stderr("a word between");
            }
        });
        assert_redacted(&shown);
        assert!(shown.contains("[redacted]"));
    }
}

#[test]
fn text_before_a_possible_secret_is_shown_after_a_short_pause() {
    let mut player = Player::redacted(Surface::StreamJson, &[SECRET]);
    player.prompt(spec());
    player.stdout(r#"{"type":"message","role":"assistant","content":"it is s3cr3t","delta":true}"#);
    assert!(player.texts().is_empty());
    player.wait(1_000);
    assert_eq!(player.texts(), ["it is "]);
    player.stdout(r#"{"type":"message","role":"assistant","content":" here","delta":true}"#);
    assert_eq!(player.texts(), ["it is ", "s3cr3t", " here"]);
    player.check();
}

#[test]
fn tools_stay_paired_when_their_ids_are_redacted() {
    let id = serde_json::to_string(SECRET).expect("JSON");
    let mut player = Player::redacted(Surface::StreamJson, &[SECRET]);
    player.prompt(spec());
    player.stdout(&format!(
        r#"{{"type":"tool_use","tool_name":"write_file","tool_id":{id},"parameters":{{"file_path":{id}}}}}"#
    ));
    player.stdout(&format!(r#"{{"type":"tool_result","tool_id":{id},"status":"error","error":{{"type":"policy_violation","message":{id}}}}}"#));
    player.stdout(r#"{"type":"message","role":"assistant","content":"fin"}"#);
    player.stdout(r#"{"type":"result","status":"success"}"#);
    player.exit(ExitReason::Code(0));
    player.check();
    assert_redacted(&visible_outputs(&player));
    let results = player.events().filter(|e| matches!(e, Event::ToolResult(_))).count();
    assert_eq!((results, player.outcome().denied.len()), (1, 1));
}

#[test]
fn session_file_text_is_redacted() {
    let content = serde_json::to_string(&format!("it is {SECRET}")).expect("JSON");
    let shown = outputs_of(|p| {
        p.stdout(r#"{"type":"message","role":"assistant","content":"it is "}"#);
        p.stdout(&format!(r#"{{"type":"message","role":"assistant","content":{content}}}"#));
        p.side(&format!(r#"{{"id":"1","type":"gemini","content":{content}}}"#));
    });
    assert_redacted(&shown);
    assert!(shown.contains("text_repeated"), "{shown}");
}
