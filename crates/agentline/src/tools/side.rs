//! Side lines: what happens beside the agent's own streams, told as one JSON object a line.

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Texts longer than this many bytes are cut.
const LONGEST: usize = 64 << 10;

/// Where side lines are told. Telling never waits, and nobody has to listen.
#[derive(Debug, Clone)]
pub(super) struct Side(UnboundedSender<String>);

impl Side {
    pub(super) fn new() -> (Self, UnboundedReceiver<String>) {
        let (tell, hear) = unbounded_channel();
        (Self(tell), hear)
    }

    pub(super) fn tell(&self, line: &Value) {
        // Whoever listened may be gone; then nobody wants to know.
        let _ = self.0.send(line.to_string());
    }
}

/// A text for a side line.
pub(super) fn cut_text(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// A value for a side line: itself, or the beginning of its text.
pub(super) fn cut_value(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= LONGEST { value.clone() } else { Value::String(cut_text(&text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_texts_are_cut_and_between_letters() {
        assert_eq!(cut_text("short"), "short");
        let long = format!("a{}", "é".repeat(LONGEST));
        let cut = cut_text(&long);
        assert!(cut.len() <= LONGEST + '…'.len_utf8() && cut.ends_with("é…"), "{} bytes", cut.len());
        assert_eq!(cut_value(&Value::from(1)), 1);
        assert!(cut_value(&Value::from(vec![0; LONGEST])).is_string());
    }
}
