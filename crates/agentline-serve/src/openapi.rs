//! The OpenAPI 3.1 document of the interface, generated from the types of the messages, and a page to read it.

mod html;
mod operations;
mod shapes;

pub use html::html;
use operations::{Operation, Payload, operations};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Returns the OpenAPI 3.1 document of the interface.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<crate::http_error::ErrorBody>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations(&mut generator) {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe(&operation, &json!(error));
    }
    let mut schemas = generator.take_definitions(true);
    schemas.extend(shapes::all());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "agentline serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs coding agents over HTTP. Property names are those of the host protocol.",
        },
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": crate::tokens::COOKIE},
            },
        },
    })
}

fn describe(operation: &Operation, error: &Value) -> Value {
    let mut parameters: Vec<Value> = path_names(operation.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    parameters.extend(operation.query.iter().cloned());
    let mut answers = json!({
        "default": {"description": "An error.", "content": {"application/json": {"schema": error}}},
    });
    for (status, description, payload) in &operation.answers {
        let mut answer = json!({"description": description});
        if let Some(Payload { content_type, schema }) = payload {
            answer["content"] = json!({(*content_type): {"schema": schema}});
        }
        answers[status.to_string()] = answer;
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": answers,
    });
    if let Some(body) = &operation.body {
        described["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": body}}});
    }
    described
}

/// Returns the names of the variable parts of a path.
fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Returns the fields of a type as query parameters.
fn query_of(generator: &mut SchemaGenerator, schema: &schemars::Schema) -> Vec<Value> {
    let mut schema = json!(schema);
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next()) {
        schema = generator.definitions().get(name).cloned().unwrap_or_default();
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let is_required = required.contains(&name.as_str());
        json!({"name": name, "in": "query", "required": is_required, "schema": schema, "description": description})
    };
    fields.into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_to_a_schema() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
