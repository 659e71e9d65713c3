//! The text and value of a run's answer.

use super::RunState;
use crate::Millis;

impl RunState {
    /// Returns the text, so far, of the last turn that has text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn note_text(&mut self, text: &str, at: Millis) {
        self.begin_turn();
        self.progress("text", at);
        if !std::mem::replace(&mut self.turn_has_text, true) {
            self.text.clear();
        }
        self.facts.answer |= !text.trim().is_empty();
        self.text.push_str(text);
    }

    /// Records the agent's own text of a turn. The last text that is not blank counts.
    pub(crate) fn record_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.recorded = Some(text.to_owned());
        }
    }

    /// Extracts the JSON value from the answer. Returns whether there is one.
    pub(super) fn find_value(&mut self) -> bool {
        self.value = crate::extract_json_text(&self.text).and_then(|text| serde_json::from_str(text).ok());
        self.value.is_some()
    }

    /// Replaces the text with the agent's record of the turn if the agent repeated text or sent none.
    ///
    /// Returns whether text was repeated.
    pub(crate) fn correct_text(&mut self) -> bool {
        let Some(recorded) = self.recorded.take() else { return false };
        // The record may lack whitespace at its ends, which does not count as repetition.
        let (sent, record) = (self.text.trim(), recorded.trim());
        let repeated = sent.len() > record.len() && sent.ends_with(record);
        if self.text.trim().is_empty() || repeated {
            self.facts.answer = true;
            self.text = recorded;
        }
        repeated
    }
}
