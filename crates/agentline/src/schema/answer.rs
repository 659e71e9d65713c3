//! Finds the value of an answer that matches the schema.

use crate::{
    answer_error::AnswerError,
    schema::{Schema, limit::check_within},
};
use agentline_core::json_candidates;
use serde_json::Value;
use std::time::Duration;

impl Schema {
    /// Returns the matching value of an answer, in at most `left`.
    ///
    /// Dropping the future abandons the thread of the check.
    ///
    /// # Errors
    /// Fails if the answer has no such value, or if the check does not finish in time.
    pub(crate) async fn value_of(
        &self,
        text: &str,
        handed_in: Option<Value>,
        left: Duration,
    ) -> Result<Value, AnswerError> {
        let (schema, text) = (self.clone(), text.to_owned());
        check_within(left, move || find_value(&schema, &text, handed_in.as_ref())).await
    }
}

/// Returns the submitted value, otherwise a matching value from the text, otherwise the validation errors.
fn find_value(schema: &Schema, text: &str, handed_in: Option<&Value>) -> Result<Value, Vec<String>> {
    let by_tool = handed_in.map(|input| schema.take(input));
    if let Some(Ok(value)) = by_tool {
        return Ok(value);
    }
    let candidates = json_candidates(text);
    let bare = candidates.iter().find(|candidate| schema.check(candidate).is_ok()).cloned();
    // A model may write the input of the tool as text, or plain text where the schema accepts a string.
    let wrapped = || candidates.iter().find_map(|candidate| schema.take(candidate).ok());
    let plain_text =
        || Some(Value::from(text.trim())).filter(|text| text != "" && schema.check(text).is_ok());
    if let Some(value) = bare.or_else(wrapped).or_else(plain_text) {
        return Ok(value);
    }
    match (by_tool, candidates.first()) {
        (Some(Err(wrong)), _) => Err(wrong),
        (_, Some(candidate)) => Err(schema.check(candidate).err().unwrap_or_default()),
        _ => Err(vec!["the answer contains no JSON value".into()]),
    }
}
