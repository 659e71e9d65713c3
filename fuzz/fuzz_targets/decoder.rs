//! Checks that any bytes on any stream of either surface lead to one outcome, and that every invariant of the state
//! machine holds.
//!
//! The first byte selects the surface, the redaction and how the process ends. The rest is stdout, stderr and the session
//! file, separated by 0x1e. A recorded stdout is a valid seed.
#![no_main]

#[path = "../../crates/agentline-core/tests/core/play.rs"]
#[expect(dead_code, reason = "the tests need more of it than this target")]
mod play;

use agentline_core::{ExitReason, Surface};
use libfuzzer_sys::fuzz_target;
use play::{Player, feed, spec};

fuzz_target!(|data: &[u8]| {
    let selector = data.first().copied().unwrap_or(0);
    let mut streams = data.split(|b| *b == 0x1e);
    let stdout = streams.next().unwrap_or_default();
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let (stderr, session) = (text(streams.next()), text(streams.next()));
    let surface = if selector & 1 == 0 { Surface::Json } else { Surface::StreamJson };
    let secrets: &[&str] = if selector & 2 == 0 { &["write_file", "a longer secret"] } else { &[] };
    let mut player = Player::redacted(surface, secrets);
    player.prompt(spec());
    stderr.lines().for_each(|line| player.stderr(line));
    session.lines().for_each(|line| player.side(line));
    feed(&mut player, stdout, &[]);
    match selector >> 2 & 3 {
        0 => player.exit(ExitReason::Code(0)),
        1 => player.exit(ExitReason::Code(i32::from(selector))),
        2 => player.exit(ExitReason::Signal(9)),
        _ => {}
    }
    player.ticks_to_the_end();
    player.check();
    assert!(player.conn.is_finished());
    player.outcome();
});
