//! The values that functions of a program return in the tests of the Python and TypeScript packages, and what the model
//! receives for each of them.

use agentline_mock::gemini::{GeminiModel, GeminiStep};
use serde_json::json;

/// The functions by name, and the texts that the model receives.
const VALUES: [(&str, &str); 7] = [
    ("get_int", "42"),
    ("get_float", "0.5"),
    ("get_list", r#"[1,"two"]"#),
    ("get_bool", "false"),
    ("get_none", "done"),
    ("get_text", "42"),
    ("get_nested", r#"[{"a":[null]}]"#),
];

/// Returns the step of the model that calls all functions of the server `shop`.
pub(super) fn call_all() -> GeminiStep {
    let call = |step: GeminiStep, (name, _)| step.and_call(format!("mcp_shop_{name}"), json!({}));
    VALUES.into_iter().fold(GeminiStep::text("I call all of them."), call)
}

/// Asserts that the model received the values, and no error of the agent.
pub(super) fn assert_received(model: &GeminiModel) {
    let responses = model.requests_to_main().into_iter().flat_map(|request| request.tool_responses());
    let of_functions = responses.filter_map(|(name, response)| {
        let name = name.strip_prefix("mcp_shop_")?.to_owned();
        let text = response["output"].as_str().map_or_else(|| response.to_string(), str::to_owned);
        let text = text.replace("<untrusted_context>", "").replace("</untrusted_context>", "");
        name.starts_with("get_").then(|| (name, text.trim().to_owned()))
    });
    let received: Vec<(String, String)> = of_functions.collect();
    assert_eq!(received, VALUES.map(|(name, text)| (name.to_owned(), text.to_owned())));
}
