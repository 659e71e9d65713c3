//! Side lines: reports of what happens outside the agent's own streams, one JSON object per line.

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The maximum length of a text in bytes. Longer texts are truncated.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The sender of side lines. Sending never blocks, and the receiver may be gone.
#[derive(Debug, Clone)]
pub(super) struct SideSender(UnboundedSender<String>);

impl SideSender {
    pub(super) fn new() -> (Self, UnboundedReceiver<String>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    pub(super) fn send_line(&self, line: &Value) {
        // The receiver may be gone; the line is then not needed.
        let _ = self.0.send(line.to_string());
    }
}

/// Returns a text for a side line, truncated if it is too long.
pub(super) fn cut_text(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Returns a value for a side line, or the beginning of its JSON text if it is too long.
pub(super) fn cut_value(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_TEXT_BYTES { value.clone() } else { Value::String(cut_text(&text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_truncated_at_character_boundaries() {
        assert_eq!(cut_text("short"), "short");
        let long = format!("a{}", "é".repeat(MAX_TEXT_BYTES));
        let cut = cut_text(&long);
        assert!(cut.len() <= MAX_TEXT_BYTES + '…'.len_utf8() && cut.ends_with("é…"), "{} bytes", cut.len());
        assert_eq!(cut_value(&Value::from(1)), 1);
        assert!(cut_value(&Value::from(vec![0; MAX_TEXT_BYTES])).is_string());
    }
}
