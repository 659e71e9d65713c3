//! Invariants of every run: for any split of the bytes, any order of the streams, and a stop at any time.

use crate::capture::{self, Capture, Stderr};
use crate::play::{Dice, Player, RUN, spec};
use agentline_core::{ConnectionOutput, ExitReason, HostRequestId, HostResponse, InputKind, Signal};

fn all_outputs(player: &Player) -> String {
    format!("{:?}", player.out)
}

#[test]
fn any_split_of_the_bytes_gives_the_same_outputs() {
    let mut dice = Dice::new(1);
    let mut replays = 0;
    for capture in capture::all() {
        let expected = all_outputs(&capture.play());
        let length = capture.stdout.len();
        for _ in 0..12 {
            let mut cuts: Vec<usize> = (0..1 + dice.below(9)).map(|_| dice.below(length)).collect();
            cuts.sort_unstable();
            let player = capture.play_with(spec(), &cuts, Stderr::Last);
            assert!(all_outputs(&player) == expected, "{} cut at {cuts:?}", capture.name);
            replays += 1;
        }
        if length < 8000 {
            let every: Vec<usize> = (1..length).collect();
            assert!(
                all_outputs(&capture.play_with(spec(), &every, Stderr::Last)) == expected,
                "{} byte by byte",
                capture.name
            );
            replays += 1;
        }
    }
    assert!(replays > 1500, "{replays}");
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    for capture in capture::all() {
        assert!(all_outputs(&capture.play()) == all_outputs(&capture.play()), "{}", capture.name);
    }
}

/// Starts a recorded run and stops after some of its lines.
fn begin(capture: &Capture, lines: usize, disk: bool) -> Player {
    let mut player = Player::new(capture.surface);
    if !disk {
        player.disk = None;
    }
    player.prompt(spec());
    for line in String::from_utf8_lossy(&capture.stdout).lines().take(lines) {
        player.now += 7;
        player.stdout(line);
    }
    player
}

#[test]
fn timeouts_alone_end_a_run_at_any_point() {
    for capture in capture::all() {
        let lines = String::from_utf8_lossy(&capture.stdout).lines().count();
        for stop in [0, 1, 2, lines / 2, lines] {
            for disk in [true, false] {
                let mut player = begin(&capture, stop, disk);
                player.ticks_to_the_end();
                player.check();
                assert!(player.conn.is_finished(), "{} after {stop} lines: {:?}", capture.name, player.conn);
                player.outcome();
            }
        }
    }
}

#[test]
fn cancel_at_any_point_ends_the_run_in_four_shutdown_steps() {
    for capture in capture::all().into_iter().filter(|c| c.stdout.len() < 20_000) {
        let lines = String::from_utf8_lossy(&capture.stdout).lines().count();
        for stop in 0..=lines {
            let mut player = begin(&capture, stop, true);
            let began = player.now;
            player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
            player.take(InputKind::Cancel { run: RUN, signal: Signal::Terminate });
            player.ticks_to_the_end();
            player.check();
            assert!(player.conn.is_finished());
            assert!(player.now - began <= 4 * 2000, "{} took {} ms", capture.name, player.now - began);
            player.outcome();
        }
    }
}

#[test]
fn nothing_follows_the_outcome_and_late_answers_have_no_effect() {
    for capture in capture::all() {
        let mut player = capture.play();
        let before = player.out.len();
        let asked: Vec<HostRequestId> = player
            .out
            .iter()
            .filter_map(|o| if let ConnectionOutput::Ask(_, id, _) = o { Some(*id) } else { None })
            .collect();
        for ask in asked.into_iter().chain([HostRequestId(0), HostRequestId(u32::MAX)]) {
            for answer in [
                HostResponse::PermissionDecided(agentline_core::PermissionDecision::allow("test")),
                HostResponse::ChangesCollected(agentline_core::DiskReport::default()),
            ] {
                player.take(InputKind::Answer { ask, answer });
            }
        }
        player.stdout(r#"{"type":"message","role":"assistant","content":"late"}"#);
        player.stderr("Attempt 1 failed with status 429. Retrying with backoff...");
        player.side(r#"{"id":"1","type":"gemini","content":"late","tokens":{"total":5}}"#);
        player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
        player.take(InputKind::Retire);
        player.take(InputKind::Tick);
        player.exit(ExitReason::Code(0));
        assert_eq!(player.out.len(), before, "{}: {:?}", capture.name, &player.out[before..]);
    }
}

#[test]
fn late_prompt_also_gets_an_outcome() {
    for capture in capture::all().into_iter().take(5) {
        let mut player = capture.play();
        assert!(!player.conn.vacant());
        player.prompt_as(agentline_core::RunId(2), spec());
        player.check();
        let outcome = player.outcome_of(agentline_core::RunId(2));
        assert_eq!(outcome.verdict, agentline_core::Verdict::Failed);
        assert!(player.conn.is_finished());
    }
}
