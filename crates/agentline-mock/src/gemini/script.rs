//! A script: the steps of a scripted model in order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GeminiStep;

/// The answers of a [`GeminiModel`](super::GeminiModel), one step for each request to the main model.
///
/// As JSON: `{"steps": [{"answer": {"chunks": [[{"text": "hi"}]]}}], "repeat_last": false}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The answers in order.
    pub steps: Vec<GeminiStep>,
    /// Whether the last step also answers every later request.
    #[serde(default)]
    pub repeat_last: bool,
}

impl Script {
    /// Creates a script that answers with status 500 after its last step.
    pub fn new(steps: impl IntoIterator<Item = GeminiStep>) -> Self {
        Self { steps: steps.into_iter().collect(), repeat_last: false }
    }

    /// Creates a script with one step that answers every request.
    pub fn always(step: GeminiStep) -> Self {
        Self::new([step]).repeating_last()
    }

    /// Makes the last step answer every later request.
    #[must_use]
    pub fn repeating_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }

    /// Returns the answer to request number `index`, starting at 0, taking [`GeminiStep::times`] into account.
    pub fn at(&self, index: usize) -> GeminiStep {
        let mut before = 0;
        for step in &self.steps {
            before += step.times as usize;
            if index < before {
                return step.clone();
            }
        }
        match self.steps.last() {
            Some(last) if self.repeat_last => last.clone(),
            _ => ran_out(index, before),
        }
    }
}

/// Returns an answer whose text is clear in a log.
fn ran_out(index: usize, length: usize) -> GeminiStep {
    let message = format!("script ran out: request {} to a script of {length} answers", index + 1);
    GeminiStep::api_error(500, "INTERNAL", &message, Value::Null)
}
