//! Checks token counts against sums calculated by hand from the recordings.

use crate::recordings::{read, recordings};
use agentline_core::Tokens;

fn sum(agent: &str, name: &str) -> (Tokens, u64) {
    let (_, text) =
        recordings(agent).into_iter().find(|(found, _)| found == name).expect("the recording exists");
    let session = read(agent, &text);
    let tokens = session.entries.iter().filter_map(|entry| entry.usage).fold(Tokens::default(), Tokens::plus);
    (tokens, session.entries.iter().filter_map(|entry| entry.requests).sum())
}

#[test]
fn claude_code_tokens_are_summed() {
    // Six answers with 100 to 105 uncached prompt tokens, 20 cached, 10 written to the cache and 30 output tokens each.
    // Three of them consist of several lines, each of which repeats the count.
    let (tokens, requests) = sum("claude", "full");
    assert_eq!((tokens.input, tokens.cached, tokens.cache_write), (Some(615 + 6 * 30), Some(120), Some(60)));
    assert_eq!((tokens.output, tokens.total, requests), (Some(180), Some(615 + 180 + 180), 6));
}

#[test]
fn codex_tokens_are_summed() {
    // Six answers with 100 to 105 prompt tokens, 20 of them cached, and 30 output tokens, 5 of them thoughts. Each has
    // a record of its own and a cumulative count; the last cumulative count is 615, 120, 180 and 30.
    let (tokens, requests) = sum("codex", "full");
    assert_eq!((tokens.input, tokens.cached, tokens.thoughts), (Some(615), Some(120), Some(30)));
    assert_eq!((tokens.output, tokens.total, requests), (Some(150), Some(795), 6));
}
