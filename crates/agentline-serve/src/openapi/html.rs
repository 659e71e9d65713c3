//! A page with all operations and schemas, without scripts.

use super::document;
use serde_json::Value;
use std::fmt::Write as _;

/// Returns the page.
#[must_use]
pub fn html() -> String {
    let document = document();
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>agentline serve: HTTP interface</title>\
         <link rel=\"stylesheet\" href=\"/assets/docs.css\"></head><body><main>\
         <h1>HTTP interface</h1><p>Generated from <a href=\"/openapi.json\">/openapi.json</a> (OpenAPI 3.1). \
         Send <code>Authorization: Bearer TOKEN</code> with each request.</p>\n<h2>Operations</h2>\n",
    );
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (path, methods) in object(&document["paths"]) {
        for (method, operation) in object(&methods) {
            write_operation(&mut page, &method, &path, &operation);
        }
    }
    page.push_str("<h2>Schemas</h2>\n");
    for (name, schema) in object(&document["components"]["schemas"]) {
        let name = escape(&name);
        // Writing to a string does not fail.
        let _ = writeln!(page, "<section id=\"{name}\"><h3>{name}</h3>{}</section>", json(&schema));
    }
    page.push_str("</main></body></html>\n");
    page
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    let summary = escape(operation["summary"].as_str().unwrap_or_default());
    let (method, path) = (escape(&method.to_uppercase()), escape(path));
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "<section><h3><span class=\"method\">{method}</span> <code>{path}</code></h3><p>{summary}.</p>"
    );
    let parts = [
        ("Query", &operation["parameters"]),
        ("Body", &operation["requestBody"]["content"]),
        ("Responses", &operation["responses"]),
    ];
    for (name, part) in parts {
        if !part.is_null() && part.as_array().is_none_or(|list| !list.is_empty()) {
            let _ = writeln!(page, "<details><summary>{name}</summary>{}</details>", json(part));
        }
    }
    page.push_str("</section>\n");
}

fn json(value: &Value) -> String {
    format!("<pre>{}</pre>", escape(&format!("{value:#}")))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
