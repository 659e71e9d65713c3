//! Compares every recording, as it is read, with a snapshot.

use crate::recordings::{read, recordings, told};

fn all_are_read_as_before(agent: &str) {
    for (name, text) in recordings(agent) {
        let session = read(agent, &text);
        assert_eq!(session.damage, [], "{name}");
        insta::assert_snapshot!(format!("{agent}_{name}"), told(&session));
    }
}

#[test]
fn claude_code_recordings_match_their_snapshots() {
    all_are_read_as_before("claude");
}

#[test]
fn codex_recordings_match_their_snapshots() {
    all_are_read_as_before("codex");
}
