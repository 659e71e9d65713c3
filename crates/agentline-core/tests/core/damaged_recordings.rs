//! Replays thousands of damaged recordings, with bytes flipped, removed, swapped and duplicated. Each has one outcome,
//! and none panics.

use crate::capture::{self, Capture, Stderr};
use crate::play::{Dice, Player, spec};
use agentline_core::{ExitReason, Surface};

const VARIANTS: usize = 40;

/// Damages bytes in one of seven ways.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(bytes.len());
    let many = 1 + dice.below(64);
    let end = (at + many).min(bytes.len());
    match dice.below(7) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
        1 => bytes.truncate(at),
        2 => {
            bytes.drain(at..end);
        }
        3 => {
            let piece = bytes[at..end].to_vec();
            let to = dice.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        4 if !bytes.is_empty() => {
            let other = dice.below(bytes.len());
            bytes.swap(at, other);
        }
        5 => bytes
            .insert(at, *[b'\n', b'{', b'"', b'\\', 0, 0xff, b'}', b'['].get(dice.below(8)).unwrap_or(&0)),
        _ => {
            // Swap two lines.
            let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
            let (a, b) = (dice.below(lines.len()), dice.below(lines.len()));
            lines.swap(a, b);
            *bytes = lines.join(&b'\n');
        }
    }
}

fn damaged(capture: &Capture, dice: &mut Dice) -> Capture {
    let mut stdout = capture.stdout.clone();
    let mut stderr = capture.stderr.join("\n").into_bytes();
    for _ in 0..1 + dice.below(4) {
        damage(&mut stdout, dice);
        if dice.below(2) == 0 {
            damage(&mut stderr, dice);
        }
    }
    Capture {
        name: capture.name.clone(),
        // Also read a document line by line, and lines as a document.
        surface: if dice.below(8) == 0 { Surface::Json } else { capture.surface },
        stdout,
        stderr: String::from_utf8_lossy(&stderr).lines().map(str::to_owned).collect(),
        exit: if dice.below(8) == 0 { None } else { Some([0, 1, 41, 53, 145, 173][dice.below(6)]) },
    }
}

#[test]
fn every_damaged_recording_has_one_outcome() {
    let mut dice = Dice::new(2);
    let mut count = 0;
    let sessions: Vec<Vec<String>> = ["full_tools", "default_denied", "acp_reject_cancel_error", "subagent"]
        .into_iter()
        .map(capture::session)
        .collect();
    for capture in capture::all().into_iter().filter(|c| c.stdout.len() < 20_000) {
        for _ in 0..VARIANTS {
            let variant = damaged(&capture, &mut dice);
            let mut player = match dice.below(3) {
                0 => Player::redacted(variant.surface, &["write_file", "gemini-2.5-flash", "session_id"]),
                _ => Player::new(variant.surface),
            };
            let mut session = sessions[dice.below(sessions.len())].join("\n").into_bytes();
            damage(&mut session, &mut dice);
            player.late_lines = String::from_utf8_lossy(&session).lines().map(str::to_owned).collect();
            player.prompt(spec());
            variant.play_into(&mut player, &[], Stderr::Between);
            player.check();
            assert!(player.conn.is_finished(), "{}", capture.name);
            player.outcome();
            count += 1;
        }
    }
    assert!(count > 5000, "{count}");
}

#[test]
fn partial_line_before_a_whole_one_loses_only_the_partial_line() {
    let mut player = Player::new(Surface::StreamJson);
    player.prompt(spec());
    player.stdout(r#"{"type":"init","session_id":"s","model":"m"}"#);
    player.stdout(r#"{"type":"message","role":"assi{"type":"message","role":"assistant","content":"kept"}"#);
    player.stdout(r#"noise {"type":"result","status":"success"} more noise"#);
    player.exit(ExitReason::Code(0));
    player.check();
    assert_eq!(player.outcome().text, "kept");
    assert_eq!(player.outcome().unreadable_lines, 2);
    assert!(player.outcome().is_done());
}
