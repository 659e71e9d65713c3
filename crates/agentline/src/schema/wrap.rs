//! Wraps values of any type in the input object of a tool, and unwraps them.

use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The default draft, which need not be named in the wrapping schema.
const DEFAULT_DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The keywords for shared definitions. They move to the top level, so that references to them stay valid.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords whose values map names to schemas.
const SCHEMA_MAPS: &[&str] =
    &["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Keywords whose values are data, even if they look like schemas.
const DATA: &[&str] = &["const", "enum", "default", "examples", "example"];

/// Returns the key of the value in the input of the tool.
pub(super) fn key(schema: &Value) -> &'static str {
    let kind = &schema["type"];
    if kind == "array" || *kind == json!(["array"]) { "items" } else { "data" }
}

/// Returns the schema of an object that contains a value of this schema.
pub(super) fn wrapped(schema: &Value) -> Value {
    let key = key(schema);
    let mut outer = Map::new();
    let mut inner = schema.as_object().cloned().unwrap_or_default();
    if let Some(draft) = inner.remove("$schema").filter(|draft| draft != DEFAULT_DRAFT) {
        outer.insert("$schema".into(), draft);
    }
    // An inner schema with an id would become the base of its references.
    let id = ["$id", "id"].into_iter().find_map(|id| match inner.get(id) {
        Some(Value::String(_)) => inner.remove(id),
        _ => None,
    });
    let id = id.as_ref().and_then(Value::as_str).unwrap_or_default();
    let moved = Moved { id: id.trim_end_matches('#'), prefix: format!("#/properties/{key}") };
    let mut inner = Value::Object(inner);
    moved.schema(&mut inner);
    for part in DEFINITIONS {
        if let Some(part_of_inner) = inner.as_object_mut().and_then(|inner| inner.remove(part)) {
            outer.insert(part.into(), part_of_inner);
        }
    }
    outer.insert("type".into(), json!("object"));
    outer.insert("required".into(), json!([key]));
    outer.insert("properties".into(), json!({ key: inner }));
    Value::Object(outer)
}

/// Returns the possible meanings of the input of a tool, the specified one first.
pub(super) fn readings(input: &Value, key: &str) -> Vec<Value> {
    let value = input.get(key);
    let as_text = value.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    let other = input.get("data").or_else(|| input.get("items"));
    let nested = input.get("data").and_then(|data| data.get("items"));
    let known = [value, nested, other, Some(input)].into_iter().flatten().cloned();
    let mut readings: Vec<Value> = known.collect();
    readings.extend(as_text);
    readings
}

/// Rewrites the references of a schema that moved to another place.
struct Moved<'a> {
    id: &'a str,
    prefix: String,
}

impl Moved<'_> {
    fn schema(&self, schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        // Here `$recursiveRef` refers to the top of the schema, which has moved.
        if let Some(Value::String(to)) = schema.remove("$recursiveRef") {
            schema.insert("$ref".into(), Value::String(to));
        }
        for (key, value) in schema {
            match value {
                Value::String(to) if matches!(key.as_str(), "$ref" | "$dynamicRef") => {
                    *to = self.reference(to).into_owned();
                }
                _ if DATA.contains(&key.as_str()) => {}
                Value::Object(map) if SCHEMA_MAPS.contains(&key.as_str()) => {
                    map.values_mut().for_each(|value| self.below(value));
                }
                other => self.below(other),
            }
        }
    }

    fn below(&self, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|value| self.below(value)),
            Value::Object(map) if !is_resource(map) => self.schema(value),
            _ => {}
        }
    }

    fn reference<'t>(&self, to: &'t str) -> Cow<'t, str> {
        let to =
            to.strip_prefix(self.id).filter(|rest| rest.is_empty() || rest.starts_with('#')).unwrap_or(to);
        // An empty reference means the top of the schema.
        let fragment = if to.is_empty() { Some("") } else { to.strip_prefix('#') };
        match fragment {
            Some(rest) if DEFINITIONS.iter().any(|part| rest.starts_with(&format!("/{part}/"))) => {
                Cow::Borrowed(to)
            }
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                Cow::Owned(format!("{}{rest}", self.prefix))
            }
            _ => Cow::Borrowed(to),
        }
    }
}

/// Returns whether a schema is the base of its own references.
fn is_resource(schema: &Map<String, Value>) -> bool {
    let name = schema.get("$id").or_else(|| schema.get("id")).and_then(Value::as_str);
    name.is_some_and(|name| !name.starts_with('#'))
}
