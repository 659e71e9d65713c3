//! The result of a tool call, in a form that every agent accepts.

use serde::{Serialize, de::IgnoredAny};
use serde_json::{Value, json};
use std::{any::Any, fmt};

/// The error of a tool: any error, or a string converted with `.into()`. The model reads its message.
///
/// A [`StopRun`] ends the run instead.
pub type ToolError = Box<dyn std::error::Error + Send + Sync>;

/// Ends the run from inside a tool: return it as the error of the tool.
///
/// The run is cancelled, and the warning `stopped_by_tool` in its outcome has the reason. A program uses it when the
/// work continues with another prompt: for example if the model asks for a part of the prompt that it was not shown.
///
/// ```
/// use agentline::tools::{StopRun, Tool, ToolError};
/// use serde_json::{Value, json};
/// let open = Tool::new("open", "Opens a section", json!({"type": "object"}), |args: Value, _call| async move {
///     Err::<(), ToolError>(StopRun::new(format!("the section {} is needed", args["section"])).into())
/// });
/// # let _ = open;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRun {
    reason: String,
}

impl StopRun {
    /// Creates the error with the reason for the outcome.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for StopRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StopRun {}

/// The output of a tool.
///
/// A tool may return anything that can be serialized. A string is returned unchanged and any other value as JSON. An
/// object is also returned as structured content, any other value but a string as the `result` of such an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The text that the model reads.
    pub text: String,
    /// The output as an object, for agents that support structured content.
    pub structured: Option<Value>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Whether the run ends with this call.
    #[serde(skip)]
    pub(super) stops_run: bool,
}

impl ToolOutput {
    /// Creates a text output.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates an error, which the model reads.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }

    /// Adds the output as an object.
    #[must_use]
    pub fn structured(mut self, object: Value) -> Self {
        self.structured = Some(object);
        self
    }

    pub(super) fn from_result<R: Serialize + 'static>(result: Result<R, ToolError>) -> Self {
        match result {
            Ok(value) => Self::of(value),
            Err(error) => match error.downcast_ref::<StopRun>() {
                Some(stop) => Self { stops_run: true, ..Self::text(stop.to_string()) },
                None => Self::error(error.to_string()),
            },
        }
    }

    fn of<R: Serialize + 'static>(value: R) -> Self {
        // A `ToolOutput` is returned unchanged.
        let mut value = Some(value);
        if let Some(own) = (&mut value as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return own.take().unwrap_or_default();
        }
        match serde_json::to_value(&value) {
            Ok(value) => Self::from_value(value),
            Err(error) => Self::error(format!("the tool's result cannot be serialized as JSON: {error}")),
        }
    }

    /// Creates the output for a value.
    pub(crate) fn from_value(value: Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Null => Self::text("done"),
            object @ Value::Object(_) => Self::text(object.to_string()).structured(object),
            other => Self::text(other.to_string()).structured(json!({ "result": other })),
        }
    }

    /// Appends a paragraph to the text. Agents that pass structured content to the model pass only that, so the output
    /// then has none.
    pub(crate) fn append(&mut self, note: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(note);
        self.structured = None;
    }
}

/// Returns the structured content of a result that has this text and no structured content of its own, if it needs one.
///
/// Quirk `json_text_results` of Gemini CLI (0.61.0): it parses the first text of such a result and, if that is JSON,
/// uses the value as structured content. It then rejects the result unless the value is an object, and the model reads
/// that the tool failed. Test: `agents::acp_gemini::tools::agent_calls_functions_of_the_program`.
pub(super) fn structured_for(text: &str) -> Option<Value> {
    let is_json = || serde_json::from_str::<IgnoredAny>(text).is_ok();
    (!text.trim_start().starts_with('{') && is_json()).then(|| json!({ "result": text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_becomes_a_tool_output() {
        assert_eq!(ToolOutput::of("plain"), ToolOutput::text("plain"));
        assert_eq!(ToolOutput::of(()), ToolOutput::text("done"));
        let listed = [
            (json!(3), "3"),
            (json!(0.5), "0.5"),
            (json!(false), "false"),
            (json!([1, [2, null]]), "[1,[2,null]]"),
        ];
        for (value, text) in listed {
            let expected = ToolOutput::text(text).structured(json!({ "result": value.clone() }));
            assert_eq!(ToolOutput::of(value), expected);
        }
        let object = json!({"a": 1});
        assert_eq!(ToolOutput::of(object.clone()), ToolOutput::text(r#"{"a":1}"#).structured(object));
        assert_eq!(ToolOutput::of(ToolOutput::error("bad")), ToolOutput::error("bad"));
        let stopped = ToolOutput::from_result::<()>(Err(StopRun::new("enough").into()));
        assert!(stopped.stops_run && !stopped.is_error && stopped.text == "enough");
    }

    #[test]
    fn only_json_that_is_not_an_object_needs_structured_content() {
        for text in
            ["42", " -1.5e3\n", "true", "null", "[]", "\"42\"", "1e999", "\"\\ud800\"", &"[".repeat(200)]
        {
            // Deeper than serde_json parses a value, but a valid prefix only if it is closed.
            let text =
                if text.starts_with("[[") { format!("{text}{}", "]".repeat(200)) } else { text.to_owned() };
            assert_eq!(structured_for(&text), Some(json!({ "result": text })), "{text}");
        }
        for text in ["", "plain", "- 42", "42 apples", "{}", " {\"a\":1}", "[1,", "'42'", "True"] {
            assert_eq!(structured_for(text), None, "{text}");
        }
    }
}
