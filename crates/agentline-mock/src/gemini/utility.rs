//! Distinguishes the agent's helper requests from its turns, and answers them without advancing the script.
//!
//! The rules, observed in Gemini CLI 0.61.0: only turns of the agent and its subagents use `:streamGenerateContent`.
//! Everything else (router, session summary, loop check, next-speaker check, edit correction, compression, web search)
//! uses `:generateContent`, and requests for JSON have `generationConfig.responseMimeType` and a `responseJsonSchema`
//! (older: `responseSchema`). The router is the one whose schema has `complexity_score` or `model_choice`:
//!
//! | request | purpose |
//! |---|---|
//! | asks for JSON and its schema has a router's property | router |
//! | asks for JSON otherwise | utility |
//! | `:streamGenerateContent` | main |
//! | `:generateContent` that offers functions | main |
//! | `:generateContent` without functions | utility |
//!
//! The router and the session summary were observed with the real program. The others follow from its source.

use serde_json::{Map, Value, json};

use super::request::{Purpose, function_declarations};

/// The values for properties where any value of the right type would mislead the agent.
const KNOWN_ANSWERS: &[(&str, &str)] = &[
    // Routers, new and old: a simple task.
    ("complexity_score", "10"),
    ("model_choice", "\"flash\""),
    // The turn is over; the model does not continue by itself.
    ("next_speaker", "\"user\""),
    // No loop.
    ("unproductive_state_confidence", "0"),
    ("confidence", "0"),
];

const ROUTER_PROPERTIES: &[&str] = &["complexity_score", "model_choice"];

/// Returns the purpose of a request to `:generateContent` or `:streamGenerateContent`.
pub(super) fn purpose(streams: bool, body: &Value) -> Purpose {
    if asks_for_json(body) {
        let properties = &schema(body)["properties"];
        let routes = ROUTER_PROPERTIES.iter().any(|name| !properties[name].is_null());
        return if routes { Purpose::Router } else { Purpose::Utility };
    }
    if streams || function_declarations(body).next().is_some() { Purpose::Main } else { Purpose::Utility }
}

/// Returns the text of the answer to a helper request.
pub(super) fn answer(body: &Value) -> String {
    if asks_for_json(body) {
        return fill(schema(body)).to_string();
    }
    "A scripted session".to_owned()
}

fn asks_for_json(body: &Value) -> bool {
    let config = &body["generationConfig"];
    config["responseMimeType"] == "application/json" || !schema(body).is_null()
}

fn schema(body: &Value) -> &Value {
    let config = &body["generationConfig"];
    if config["responseJsonSchema"].is_null() {
        &config["responseSchema"]
    } else {
        &config["responseJsonSchema"]
    }
}

/// Returns the simplest value that matches a schema. Types may be in either case (`OBJECT`, `object`).
fn fill(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str().unwrap_or("object").to_ascii_lowercase().as_str() {
        "string" => json!("scripted"),
        "number" | "integer" => json!(0),
        "boolean" => json!(false),
        "array" => json!([]),
        "null" => Value::Null,
        _ => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let filled = properties.map(|(name, of)| (name.clone(), known(name).unwrap_or_else(|| fill(of))));
            Value::Object(filled.collect::<Map<_, _>>())
        }
    }
}

fn known(name: &str) -> Option<Value> {
    let (_, answer) = KNOWN_ANSWERS.iter().find(|(property, _)| *property == name)?;
    serde_json::from_str(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(properties: Value) -> Value {
        let schema = json!({"type": "OBJECT", "properties": properties});
        json!({"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}})
    }

    #[test]
    fn router_is_recognized_by_its_schema_and_gets_a_choice() {
        let new = asking(
            json!({"complexity_reasoning": {"type": "STRING"}, "complexity_score": {"type": "INTEGER"}}),
        );
        assert_eq!(purpose(false, &new), Purpose::Router);
        assert_eq!(answer(&new), r#"{"complexity_reasoning":"scripted","complexity_score":10}"#);
        let old = asking(json!({"model_choice": {"type": "string", "enum": ["pro", "flash"]}}));
        assert_eq!(purpose(false, &old), Purpose::Router);
        assert_eq!(answer(&old), r#"{"model_choice":"flash"}"#);
    }

    #[test]
    fn helper_requests_are_not_turns_even_with_streamed_json() {
        let speaker = asking(json!({"next_speaker": {"type": "string", "enum": ["model", "user"]}}));
        assert_eq!(purpose(true, &speaker), Purpose::Utility);
        assert_eq!(answer(&speaker), r#"{"next_speaker":"user"}"#);
        assert_eq!(purpose(false, &json!({"contents": []})), Purpose::Utility);
    }

    #[test]
    fn turns_are_recognized_by_streaming_or_functions() {
        assert_eq!(purpose(true, &json!({"contents": []})), Purpose::Main);
        let tools = json!({"tools": [{"functionDeclarations": [{"name": "write_file"}]}]});
        assert_eq!(purpose(false, &tools), Purpose::Main);
        let search = json!({"tools": [{"googleSearch": {}}]});
        assert_eq!(purpose(false, &search), Purpose::Utility);
    }
}
