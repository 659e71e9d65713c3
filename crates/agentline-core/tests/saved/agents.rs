//! Compares every recording, as it is read, with a snapshot.

use crate::recordings::{format_session, read, recordings};

fn check_snapshots(agent: &str) {
    for (name, text) in recordings(agent) {
        let session = read(agent, &text);
        assert_eq!(session.damage, [], "{name}");
        insta::assert_snapshot!(format!("{agent}_{name}"), format_session(&session));
    }
}

#[test]
fn claude_code_recordings_match_their_snapshots() {
    check_snapshots("claude");
}

#[test]
fn codex_recordings_match_their_snapshots() {
    check_snapshots("codex");
}
