//! Checks that our lines have every field of the real ones, except those that only Claude Code can fill.

use crate::clients::claude_sdk::types::demo_lines;
use serde_json::Value;
use std::collections::BTreeSet;

/// Lines that Claude Code 2.1.325 printed: one of each kind.
const REAL: &str = include_str!("claude-code-2.1.325.jsonl");

/// The fields that only Claude Code can fill, about itself, its product and its service. All are optional in the SDK's
/// types.
const ITS_OWN: [&str; 35] = [
    "additional_directories",
    "analytics_disabled",
    "api_error_status",
    "cacheCreationEphemeral1hInputTokens",
    "cacheCreationEphemeral5mInputTokens",
    "canonicalModel",
    "capabilities",
    "fast_mode_disabled_reason",
    "fast_mode_state",
    "first_content_frame_ms",
    "memory_paths",
    "messaging_socket_path",
    "model_usage_since_last_result",
    "original_cwd",
    "per_turn_effort_active",
    "product_feedback_disabled",
    "provider",
    "queued_turn_count",
    "request_id",
    "result_index",
    "safety_stops",
    "subagent_stats",
    "terminal_reason",
    "terminal_slash_commands",
    "thinking_display",
    "thinking_duration_ms",
    "time_to_request_ms",
    "timestamp",
    "tool_result_meta",
    "tool_use_result",
    "ttft_ms",
    "ttft_stream_ms",
    "ultrathink_available",
    "ultrathink_typed_raises",
    "view_mode",
];

/// Returns the names of an object's fields below a path, such as `message.usage`; `*` is any field.
fn fields(line: &Value, path: &[&str]) -> BTreeSet<String> {
    let inner = path.iter().try_fold(line, |value, name| match (*name, value) {
        ("*", Value::Object(map)) => map.values().next(),
        (name, value) => value.get(name),
    });
    inner.and_then(Value::as_object).map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn every_claude_code_field_is_present_or_listed_as_exclusive() {
    let real: Vec<Value> = REAL.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = demo_lines();
    let mut unused: BTreeSet<&str> = ITS_OWN.into();
    let compared = [
        ("system", vec![]),
        ("assistant", vec![]),
        ("assistant", vec!["message"]),
        ("assistant", vec!["message", "usage"]),
        ("user", vec![]),
        ("user", vec!["message"]),
        ("result", vec![]),
        ("result", vec!["usage"]),
        ("result", vec!["modelUsage", "*"]),
    ];
    for (kind, path) in compared {
        let all = |lines: &[Value]| -> BTreeSet<String> {
            lines.iter().filter(|line| line["type"] == kind).flat_map(|line| fields(line, &path)).collect()
        };
        let (real, ours) = (all(&real), all(&ours));
        assert!(!real.is_empty() && !ours.is_empty(), "{kind} {path:?}");
        let missing: Vec<&String> =
            real.difference(&ours).filter(|name| !ITS_OWN.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{kind} {path:?}: {missing:?}");
        for name in real.difference(&ours) {
            unused.remove(name.as_str());
        }
    }
    assert!(unused.is_empty(), "no longer needed in the list: {unused:?}");
}
