//! The OpenAPI 3.1 document of the interface, generated from the types of the messages, and a page to read it.

mod html;
mod operations;
mod shapes;

pub use html::html;
use operations::{Operation, Payload, operations};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

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
    let mut bodies = Vec::new();
    for operation in operations(&mut generator) {
        bodies.extend(operation.body.clone());
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe(&operation, &json!(error));
    }
    let mut schemas = generator.take_definitions(true);
    make_fields_optional(&mut schemas, &bodies);
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
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "agentline_session_PORT",
                    "description": "The session of a browser that used a link. PORT is the server's port.",
                },
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
        // A response can have several types of content.
        let answer = &mut answers[status.to_string()];
        answer["description"] = (*description).into();
        if let Some(Payload { content_type, schema }) = payload {
            answer["content"][content_type] = json!({"schema": schema});
        }
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

/// Removes the defaults of the fields of request bodies: generators of clients take a field with a default as one that is
/// always there.
fn make_fields_optional(schemas: &mut Map<String, Value>, bodies: &[Value]) {
    let mut open: Vec<String> = bodies.iter().flat_map(names_of_references).collect();
    let mut done = BTreeSet::new();
    while let Some(name) = open.pop() {
        let Some(schema) = schemas.get_mut(&name).filter(|_| done.insert(name)) else { continue };
        remove_defaults(schema);
        open.extend(names_of_references(schema));
    }
}

fn remove_defaults(schema: &mut Value) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        field.remove("default");
    }
    match schema {
        Value::Object(map) => map.values_mut().for_each(remove_defaults),
        Value::Array(list) => list.iter_mut().for_each(remove_defaults),
        _ => {}
    }
}

/// Returns the names of the schemas that a schema refers to.
fn names_of_references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => {
            let own = map.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
            own.map(str::to_owned).into_iter().chain(map.values().flat_map(names_of_references)).collect()
        }
        Value::Array(list) => list.iter().flat_map(names_of_references).collect(),
        _ => Vec::new(),
    }
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
        let document = document();
        let found = names_of_references(&document);
        assert!(found.len() > 20);
        for name in found {
            assert!(document["components"]["schemas"][&name].is_object(), "{name}");
        }
    }

    #[test]
    fn only_fields_of_responses_have_defaults() {
        let schemas = &document()["components"]["schemas"];
        let has_defaults = |name: &str| {
            let fields = schemas[name]["properties"].as_object().unwrap();
            fields.values().any(|field| field.get("default").is_some())
        };
        assert!(has_defaults("ServedRun"));
        assert!(!has_defaults("StartRun") && !has_defaults("PermissionReply"));
    }
}
