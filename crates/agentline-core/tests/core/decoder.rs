//! Properties of the decoder: lines with the agent's keys and arbitrary values, in any order and on any stream, lead to
//! one outcome and keep every invariant.

use crate::play::{Player, spec};
use agentline_core::{ExitReason, InputKind, SideChannel, Stream, Surface};
use proptest::prelude::*;
use serde_json::{Value, json};

const KEYS: &[&str] = &[
    "type",
    "session_id",
    "model",
    "role",
    "content",
    "tool_name",
    "tool_id",
    "parameters",
    "status",
    "output",
    "error",
    "severity",
    "message",
    "stats",
    "models",
    "response",
    "warnings",
    "id",
    "tokens",
    "toolCalls",
    "thoughts",
    "result",
    "functionResponse",
    "resultDisplay",
    "diffStat",
    "total_tokens",
    "input_tokens",
    "code",
    "args",
    "name",
];
const WORDS: &[&str] = &[
    "init",
    "message",
    "assistant",
    "user",
    "tool_use",
    "tool_result",
    "error",
    "result",
    "success",
    "warning",
    "gemini",
    "write_file",
    "t1",
    "t2",
    "s",
    "Loop detected",
    "tool_not_registered",
    "policy_violation",
    "invalid_tool_params",
    "Path not in workspace: x",
    "cancelled",
    "\\ud83d",
    "[API Error: {\"error\":{\"code\":401}}]",
    "",
];
const STDERR: &[&str] = &[
    "Attempt 1 failed with status 429. Retrying with backoff...",
    "{",
    "}",
    "[ERROR] {",
    "  \"error\": {\"code\": 53}",
    "[USER] Policy file error in x:",
    "Error when talking to Gemini API Full report at: x.json ModelNotFoundError: y",
    "Please set an Auth method",
    "\u{1b}[31mred\u{1b}[0m",
    "",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => prop::sample::select(WORDS).prop_map(|w| json!(w)),
        1 => any::<i64>().prop_map(|n| json!(n)),
        1 => any::<f64>().prop_map(|n| json!(n)),
        1 => any::<bool>().prop_map(|b| json!(b)),
        1 => Just(Value::Null),
        1 => ".{0,12}".prop_map(|s| json!(s)),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(KEYS), inner), 0..6)
                .prop_map(|entries| entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Generates a nearly valid record: its type is one of the agent's, and the rest is arbitrary.
fn record() -> impl Strategy<Value = String> {
    const KINDS: &[&str] = &["init", "message", "tool_use", "tool_result", "error", "result", "gemini"];
    (prop::sample::select(KINDS), prop::collection::vec((prop::sample::select(KEYS), value()), 0..8))
        .prop_map(|(kind, entries)| {
            let mut object = serde_json::Map::new();
            object.insert("role".into(), json!("assistant"));
            object.insert("tool_id".into(), json!("t1"));
            object.extend(entries.into_iter().map(|(k, v)| (k.to_owned(), v)));
            object.insert("type".into(), json!(kind));
            Value::Object(object).to_string()
        })
}

fn line() -> impl Strategy<Value = (u8, String)> {
    let text = prop_oneof![
        6 => record(),
        2 => value().prop_map(|v| v.to_string()),
        1 => (record(), record()).prop_map(|(a, b)| {
            let half: String = a.chars().take(a.len() / 2).collect();
            half + &b
        }),
        2 => prop::sample::select(STDERR).prop_map(str::to_owned),
        1 => ".{0,40}",
    ];
    (0u8..8, text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_lead_to_one_outcome(
        lines in prop::collection::vec(line(), 0..24),
        surface in prop::sample::select(&[Surface::StreamJson, Surface::Json][..]),
        redacted in any::<bool>(),
        pause in 0u64..40_000,
        exit in prop::option::of(0i32..256),
    ) {
        let secrets: &[&str] = if redacted { &["tool_result", "write_file"] } else { &[] };
        let mut player = Player::redacted(surface, secrets);
        player.prompt(spec());
        for (stream, text) in &lines {
            let stream = match stream {
                0..5 => Stream::Stdout,
                5 => Stream::Stderr,
                6 => Stream::Side(crate::play::RUN, SideChannel::SessionFile),
                _ => {
                    player.wait(pause);
                    player.take(InputKind::TooLong { stream: Stream::Stdout, text: text.as_str().into(), length: 1 << 20 });
                    continue;
                }
            };
            player.line(stream, text);
        }
        if let Some(code) = exit {
            player.exit(ExitReason::Code(code));
        }
        player.ticks_to_the_end();
        player.check();
        prop_assert!(player.conn.is_finished());
        player.outcome();
    }
}
