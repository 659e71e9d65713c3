//! The schemas that OpenAI's service enforces itself. It accepts only a part of JSON Schema and refuses all others.

use serde_json::Value;

/// Keywords that are accepted anywhere.
const KNOWN: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "description",
    "title",
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
];

/// The deepest accepted schema.
const MAX_DEPTH: u32 = 10;

/// Returns whether the service accepts a schema: an object in which every property is required and no others are allowed,
/// here and in every object below.
pub(super) fn is_enforced(schema: &Value) -> bool {
    schema["type"] == "object" && schema.get("anyOf").is_none() && fits(schema, 0)
}

fn fits(schema: &Value, depth: u32) -> bool {
    let Some(table) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else { return false };
    let all = |value: &Value| match value {
        Value::Object(named) => named.values().all(|inner| fits(inner, depth + 1)),
        Value::Array(listed) => listed.iter().all(|inner| fits(inner, depth + 1)),
        _ => false,
    };
    let is_object = table.get("type").is_some_and(|kind| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
    });
    let is_closed = || {
        let required: Vec<&str> = table
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut names =
            table.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
        table.get("additionalProperties") == Some(&Value::Bool(false))
            && names.all(|name| required.contains(&&**name))
    };
    table.keys().all(|key| KNOWN.contains(&&**key))
        && (!is_object || is_closed())
        && ["properties", "$defs", "definitions", "anyOf"].iter().all(|key| table.get(*key).is_none_or(all))
        && table.get("items").is_none_or(|items| fits(items, depth + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_closed_objects_of_known_keywords_are_enforced() {
        let inner = json!({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"],
                           "additionalProperties": false});
        let outer = |inner: Value| {
            json!({"type": "object", "properties": {"a": {"type": "array", "items": inner}}, "required": ["a"],
                   "additionalProperties": false})
        };
        assert!(is_enforced(&inner) && is_enforced(&outer(inner.clone())));
        for schema in [
            json!({"type": "string"}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            outer(json!({"type": "object"})),
            outer(json!({"type": "string", "not": {"const": "x"}})),
            outer(json!(true)),
        ] {
            assert!(!is_enforced(&schema), "{schema}");
        }
    }
}
