//! Robustness against arbitrary output: invalid lines are reported and never answered, any split of the bytes gives the
//! same result, and every damaged conversation has one outcome per run.

use super::{
    harness::{AcpHarness, capabilities},
    recorded::{self, Recorded, Replay},
};
use crate::play::{Dice, Player, RUN, spec};
use agentline_core::{
    ConnectionOutput, DialogueConfig, Event, ExitReason, InputKind, LineSplitter, RunId, Signal, SplitItem,
    Stream, Surface, Verdict,
};
use serde_json::json;

#[test]
fn invalid_lines_are_reported_and_never_answered() {
    let (mut harness, id) = AcpHarness::running();
    let lines = [
        ("plain text", 1),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"resu", 1),
        ("42", 1),
        ("[]", 1),
        ("{}", 1),
        ("null", 1),
        ("", 0),
        ("   ", 0),
        ("\u{fffd}\u{fffd} bytes that were no text", 1),
        // A reply to an unknown request, an unknown notification, an error message: all are read and have no effect.
        (r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, 0),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#, 0),
        (r#"{"jsonrpc":"2.0","method":"_auth/status_update","params":{"authStatus":{}}}"#, 0),
        (r#"{"jsonrpc":"2.0","method":"session/update"}"#, 0),
        (r#"{"jsonrpc":"2.0","method":7,"params":[]}"#, 0),
    ];
    for (line, unreadable) in lines {
        let before = harness.player.events().filter(|e| matches!(e, Event::Unreadable { .. })).count();
        harness.player.stdout(line);
        let after = harness.player.events().filter(|e| matches!(e, Event::Unreadable { .. })).count();
        assert_eq!(after - before, unreadable, "{line}");
        assert!(harness.frames().is_empty(), "{line} was answered");
    }
    // If half a line precedes a whole one, only the half is lost. A lone surrogate does not lose a line.
    let whole = |text: &str| {
        let content = format!(r#"{{"type":"text","text":"{text}"}}"#);
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{content}}}}}}}"#
        )
    };
    harness.player.stdout(&format!("{{\"jsonrpc\":\"2.0\",\"me{}", whole("kept ")));
    harness.player.stdout(&whole("\\ud83d too"));
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    assert_eq!(harness.player.outcome().text, "kept \u{fffd} too");
    assert_eq!(harness.player.outcome().verdict, Verdict::Done);
    assert_eq!(harness.player.outcome().unreadable_lines, 8);
}

#[test]
fn session_notification_is_reported_to_its_run() {
    let (mut harness, _) = AcpHarness::running();
    harness.send(&json!({"jsonrpc": "2.0", "method": "_x/progress", "params": {"sessionId": "s", "n": 1}}));
    assert_eq!(harness.story(), ["started", "agent"]);
}

#[test]
fn requests_without_a_run_are_still_answered() {
    let (mut harness, id) = AcpHarness::running();
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    for session in ["s", "unknown"] {
        let params = json!({"sessionId": session, "toolCall": {"toolCallId": "t"}, "options": []});
        harness.frames();
        harness.send(
            &json!({"jsonrpc": "2.0", "id": null, "method": "session/request_permission", "params": params}),
        );
        assert_eq!(
            harness.frame(),
            json!({"jsonrpc": "2.0", "id": null, "result": {"outcome": {"outcome": "cancelled"}}})
        );
    }
    assert!(harness.asked().is_empty());
}

fn run_outputs(replay: &Replay) -> String {
    let run_of = |o: &ConnectionOutput| !matches!(o, ConnectionOutput::Frame(_));
    format!("{:?}", replay.harness.player.out.iter().filter(|o| run_of(o)).collect::<Vec<_>>())
}

/// Feeds a line as bytes that are cut at random positions.
fn cut(line: &str, dice: &mut Dice) -> Vec<String> {
    let bytes = format!("{line}\n").into_bytes();
    let mut splitter = LineSplitter::new(64 << 20);
    let mut lines = Vec::new();
    let mut from = 0;
    let mut cuts: Vec<usize> = (0..1 + dice.below(6)).map(|_| dice.below(bytes.len())).collect();
    cuts.extend([bytes.len()]);
    cuts.sort_unstable();
    for to in cuts {
        splitter.push(&bytes[from..to], |piece| match piece {
            SplitItem::Line(text) => lines.push(text.into_owned()),
            other => panic!("{other:?}"),
        });
        from = to;
    }
    lines
}

#[test]
fn any_split_of_the_bytes_gives_the_same_result() {
    for recording in recorded::all() {
        let expected = run_outputs(&recording.play());
        for seed in 0..3 {
            let mut dice = Dice::new(seed + 40);
            let replay = recording.play_with(Some(Box::new(move |line| cut(&line, &mut dice))));
            assert!(run_outputs(&replay) == expected, "{} with seed {seed}", recording.name);
        }
    }
}

#[test]
fn same_conversation_gives_the_same_result() {
    for recording in recorded::all() {
        assert!(run_outputs(&recording.play()) == run_outputs(&recording.play()), "{}", recording.name);
    }
}

/// Damages a line in one of five ways, drops it, or duplicates it. Most lines stay intact.
fn damage(line: String, dice: &mut Dice) -> Vec<String> {
    let mut bytes = line.into_bytes();
    let at = dice.below(bytes.len());
    let end = (at + 1 + dice.below(40)).min(bytes.len());
    match dice.below(24) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let piece = bytes[at..end].to_vec();
            let to = dice.below(bytes.len());
            drop(bytes.splice(to..to, piece));
        }
        4 => bytes.insert(at, [b'\n', b'{', b'"', b'\\', 0, 0xff, b'}', b'['][dice.below(8)]),
        5 => return Vec::new(),
        6 => {
            let line = String::from_utf8_lossy(&bytes).into_owned();
            return vec![line.clone(), line];
        }
        _ => {}
    }
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

fn check_all(recording: &Recorded, replay: &Replay) {
    let player = &replay.harness.player;
    player.check();
    assert!(player.conn.is_finished(), "{}", recording.name);
    for run in 1..=replay.runs {
        player.outcome_of(RunId(run));
    }
}

#[test]
fn every_damaged_conversation_has_one_outcome_per_run() {
    let mut runs = 0;
    for recording in recorded::all() {
        for seed in 0..25 {
            let mut dice = Dice::new(seed * 7 + 1);
            let replay = recording.play_with(Some(Box::new(move |line| damage(line, &mut dice))));
            check_all(&recording, &replay);
            runs += replay.runs;
        }
    }
    assert!(runs > 4000, "{runs}");
}

#[test]
fn timeout_cancel_or_exit_ends_a_conversation_at_any_point() {
    for recording in recorded::all().into_iter().filter(|r| r.lines.len() < 60) {
        let replay = recording.play();
        let lines = replay.harness.player.tape.clone().expect("a tape was recorded");
        for stop in (0..lines.len()).step_by(7) {
            for end in 0..3 {
                let mut player = replayed(&recording, &lines[..stop]);
                match end {
                    0 => {}
                    1 => (1..=replay.runs).for_each(|run| {
                        player.take(InputKind::Cancel { run: RunId(run), signal: Signal::Terminate })
                    }),
                    _ => player.exit(ExitReason::Code(1)),
                }
                player.take(InputKind::Retire);
                player.ticks_to_the_end();
                player.check();
                assert!(player.conn.is_finished(), "{} after {stop}", recording.name);
            }
        }
    }
}

/// Replays a part of a tape.
fn replayed(recording: &Recorded, lines: &[String]) -> Player {
    let mut harness = recording.harness();
    harness.player.disk = None;
    let header = r#"{"schema":"agentline.tape/1","agent":"gemini","surface":"acp"}"#;
    let tape = agentline_core::Tape::read(&format!("{header}\n{}", lines.join("\n"))).expect("a valid tape");
    for input in tape.inputs.into_iter().skip(1) {
        harness.player.now = input.at;
        harness.player.take(input.kind);
    }
    harness.player.disk = Some(agentline_core::DiskReport::default());
    harness.player
}

#[test]
fn tape_round_trips_and_replays_identically() {
    for recording in recorded::all() {
        let replay = recording.play();
        let lines = replay.harness.player.tape.clone().expect("a tape was recorded");
        let player = replayed(&recording, &lines);
        let again = Replay::of(player, replay.runs);
        assert!(run_outputs(&replay) == run_outputs(&again), "{}", recording.name);
    }
}

#[test]
fn agent_exit_ends_all_its_runs() {
    let mut harness = AcpHarness::with(super::harness::gemini(&DialogueConfig::new(Surface::Acp, None)));
    harness.reply("initialize", &capabilities("0.61.0"));
    harness.start(RUN, "a", spec());
    harness.frames();
    harness.start(RunId(2), "b", spec());
    harness.text("a", "half");
    harness.player.line(Stream::Stderr, "Error when talking to Gemini API");
    harness.player.exit(ExitReason::Signal(9));
    harness.player.check();
    for run in [1, 2] {
        assert_eq!(harness.player.outcome_of(RunId(run)).verdict, Verdict::Failed);
    }
    assert!(harness.player.conn.is_finished());
}
