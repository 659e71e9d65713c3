//! JSON Schemas for models: inlined, closed, and without parts that only some validators understand.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// Returns the schema of an object.
pub(crate) fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    simplify(&mut schema);
    let Some(schema) = schema.as_object_mut() else { return Map::new() };
    // The tool has a description.
    schema.remove("description");
    std::mem::take(schema)
}

fn simplify(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else { return };
    keywords.remove("title");
    keywords.remove("default");
    // Numbers have formats of Rust, such as `uint64`.
    keywords.remove("format");
    if let Some(Value::String(description)) = keywords.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    remove_null(keywords);
    if keywords.get("type").is_some_and(|name| name == "object") {
        // Some models require the key even if there are no properties.
        keywords.entry("properties").or_insert_with(|| Map::new().into());
        keywords.insert("additionalProperties".into(), false.into());
    }
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(simplify),
            ("items", item) => simplify(item),
            ("anyOf" | "oneOf", Value::Array(choices)) => choices.iter_mut().for_each(simplify),
            _ => {}
        }
    }
}

/// An optional value is absent, never null.
fn remove_null(keywords: &mut Map<String, Value>) {
    if let Some(Value::Array(names)) = keywords.get_mut("type") {
        names.retain(|name| name != "null");
        if let [name] = names.as_slice() {
            let name = name.clone();
            keywords.insert("type".into(), name);
        }
    }
    if let Some(Value::Array(mut choices)) = keywords.remove("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        match (choices.pop(), choices.is_empty()) {
            (Some(Value::Object(only)), true) => {
                for (keyword, value) in only {
                    // The description of the property is more exact than that of its type.
                    keywords.entry(keyword).or_insert(value);
                }
            }
            (last, _) => {
                choices.extend(last);
                keywords.insert("anyOf".into(), choices.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Inner {
        title: u32,
    }

    /// The struct.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Outer {
        /// A name.
        name: Option<String>,
        /// The part.
        inner: Option<Inner>,
        list: Vec<Inner>,
    }

    #[test]
    fn schema_is_inlined_closed_and_without_null() {
        let inner = json!({
            "type": "object", "properties": {"title": {"type": "integer", "minimum": 0}}, "required": ["title"],
            "additionalProperties": false,
        });
        let mut described = inner.clone();
        described["description"] = "The part.".into();
        let expected = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "A name."},
                "inner": described,
                "list": {"type": "array", "items": inner},
            },
            "required": ["list"],
            "additionalProperties": false,
        });
        assert_eq!(Value::Object(schema_of::<Outer>()), expected);
    }
}
