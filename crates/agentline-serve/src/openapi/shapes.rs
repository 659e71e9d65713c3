//! The schemas of values whose types serialize themselves: outcomes, saved sessions, reports.

use serde_json::{Map, Value, json};

/// Returns the schemas by name. They name the fields that are always there; more may be added.
pub(super) fn all() -> Map<String, Value> {
    let object = |required: &[&str], fields: Value| json!({"type": "object", "required": required, "properties": fields, "additionalProperties": true});
    let list = json!({"type": "array", "items": {"type": "object", "additionalProperties": true}});
    let open = json!({"type": "object", "additionalProperties": true});
    let text = json!({"type": "string"});
    let shapes = [
        ("SavedSessions", object(&["sessions"], json!({"sessions": list}))),
        ("SearchResults", object(&["results"], json!({"results": list}))),
        (
            "LoadedSession",
            object(
                &["session", "messages", "damage"],
                json!({"session": open, "messages": list, "damage": {}}),
            ),
        ),
        ("SessionUsage", object(&["by", "rows", "total"], json!({"by": text, "rows": list, "total": open}))),
        (
            "Agents",
            json!({"type": "array", "items": object(&["card", "surfaces"], json!({"card": open, "surfaces": open}))}),
        ),
        ("PoolState", object(&["pool", "runs"], json!({"pool": open, "runs": open}))),
        (
            "ExperimentReport",
            object(&["schema", "variants", "cases"], json!({"schema": text, "cases": list})),
        ),
    ];
    shapes.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect()
}
