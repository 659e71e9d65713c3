//! A script: the steps of a scripted model, in order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GeminiStep;

/// The answers of a [`ScriptedModel`](super::ScriptedModel), one step for each request to the main model.
///
/// As JSON: `{"steps": [{"answer": {"chunks": [[{"text": "hi"}]]}}], "repeat_last": false}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What is answered, in order.
    pub steps: Vec<GeminiStep>,
    /// Whether the last step answers every later request too.
    #[serde(default)]
    pub repeat_last: bool,
}

impl Script {
    /// A script that answers status 500 when a request comes after its last step.
    pub fn new(steps: impl IntoIterator<Item = GeminiStep>) -> Self {
        Self { steps: steps.into_iter().collect(), repeat_last: false }
    }

    /// A script with one step that answers every request.
    pub fn always(step: GeminiStep) -> Self {
        Self::new([step]).repeating_last()
    }

    /// The same script, whose last step answers every later request too.
    #[must_use]
    pub fn repeating_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }

    /// The answer to request number `index`, counted from 0, with [`Step::times`] taken into account.
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

/// An answer that a person who reads it in a log understands at once.
fn ran_out(index: usize, length: usize) -> GeminiStep {
    let message = format!("script ran out: request {} to a script of {length} answers", index + 1);
    GeminiStep::api_error(500, "INTERNAL", &message, Value::Null)
}
