//! Redacts secrets in the frames of an agent, also those that it streams in pieces over several frames.

use agentline_core::{LineRedactor, Redactor};
use std::time::Duration;
use tokio::time::Instant;

/// How long a frame is held back that may end with the beginning of a secret.
const PATIENCE: Duration = Duration::from_millis(100);

/// The frames of one agent on their way to the client.
#[derive(Debug)]
pub(crate) struct FrameRedactor {
    redactor: LineRedactor,
    held: usize,
    since: Instant,
}

impl FrameRedactor {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor: LineRedactor::new(redactor), held: 0, since: Instant::now() }
    }

    /// Takes a frame, and returns the frames that are safe.
    pub(crate) fn push(&mut self, frame: &str) -> Vec<String> {
        let mut safe = Vec::new();
        self.redactor.push(frame, |frame| safe.push(frame.to_owned()));
        self.held = (self.held + 1).saturating_sub(safe.len());
        self.since = Instant::now();
        safe
    }

    /// Returns all frames that are held back.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        self.redactor.finish(|frame| rest.push(frame.to_owned()));
        self.held = 0;
        rest
    }

    /// Returns when frames have been held back for too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.held > 0).then(|| self.since + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_one_frame_and_in_pieces() {
        let mut frames = FrameRedactor::new(Redactor::new(["hush-hush-0123456789"]));
        let exact = r#"{ "n" : 12345678901234567890, "t":"\u0041" }"#;
        assert_eq!(frames.push(exact), [exact]);
        assert!(!frames.push(r#"{"t":"hush-hush-0123456789"}"#)[0].contains("0123456789"));
        assert!(frames.push(r#"{"t":"it is hush-hush-0123"}"#).is_empty());
        assert!(frames.deadline().is_some());
        let mut rest = frames.push(r#"{"t":"456789."}"#);
        rest.extend(frames.finish());
        let rest = rest.join("");
        assert!(rest.contains("it is ") && !rest.contains("0123") && !rest.contains("456789"), "{rest}");
        assert_eq!(frames.deadline(), None);
    }
}
