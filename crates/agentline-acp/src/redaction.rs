//! Redacts secrets in the frames of an agent, also those that it streams in pieces over several frames.

use agentline_core::{
    LineRedactor, Redactor,
    rpc::{self, RpcMessage},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{ops::Range, time::Duration};
use tokio::time::Instant;

/// How long a frame is held back that may end with the beginning of a secret.
const PATIENCE: Duration = Duration::from_millis(100);

/// The frames of one agent on their way to the client.
#[derive(Debug)]
pub(crate) struct FrameRedactor {
    redactor: LineRedactor,
    since: Instant,
}

/// The parameters of an update with a piece of text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TextUpdate<'a> {
    session_id: String,
    #[serde(borrow)]
    update: TextChunk<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TextChunk<'a> {
    session_update: String,
    #[serde(borrow)]
    content: ChunkContent<'a>,
}

#[derive(Deserialize)]
struct ChunkContent<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

impl FrameRedactor {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor: LineRedactor::new(redactor), since: Instant::now() }
    }

    /// Takes a frame, and returns the frames that are safe.
    pub(crate) fn push(&mut self, frame: &str) -> Vec<String> {
        if !self.redactor.is_holding() {
            self.since = Instant::now();
        }
        collected(|each| self.redactor.push(frame, each))
    }

    /// Returns the frames that are held back. A text is held back from the possible start of a secret on, until it
    /// continues or ends.
    pub(crate) fn release(&mut self) -> Vec<String> {
        collected(|each| self.redactor.release(text_of, each))
    }

    /// Returns the rest of the texts of sessions without an active prompt.
    pub(crate) fn release_rests(&mut self, is_idle: impl Fn(&str) -> bool) -> Vec<String> {
        let is_over = |frame: &str| text_update(frame).is_some_and(|update| is_idle(&update.session_id));
        collected(|each| self.redactor.release_rests(is_over, each))
    }

    /// Returns all frames that are held back, after the last one.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        collected(|each| self.redactor.finish(each))
    }

    /// Returns when frames have been held back for too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.redactor.is_holding().then(|| self.since + PATIENCE)
    }
}

fn collected(emit: impl FnOnce(&mut dyn FnMut(&str))) -> Vec<String> {
    let mut frames = Vec::new();
    emit(&mut |frame| frames.push(frame.to_owned()));
    frames
}

fn text_update(frame: &str) -> Option<TextUpdate<'_>> {
    let Some(RpcMessage::Notification { method, params }) = rpc::read(frame) else { return None };
    let update = Some(params.get()).filter(|_| method == "session/update")?;
    let update: TextUpdate<'_> = serde_json::from_str(update).ok()?;
    update.update.session_update.ends_with("_chunk").then_some(update)
}

/// Returns the position of the text in an update with a piece of text, which the next such update continues.
fn text_of(frame: &str) -> Option<Range<usize>> {
    let text = text_update(frame)?.update.content.text.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let start = (inner.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    Some(start..start + inner.len())
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

    #[test]
    fn a_text_is_held_back_only_from_the_possible_start_of_a_secret_on() {
        let mut frames = FrameRedactor::new(Redactor::new(["hush-hush-0123456789"]));
        let chunk = |session: &str, text: &str| {
            format!(
                r#"{{"method":"session/update","params":{{"sessionId":"{session}", "update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
            )
        };
        assert!(frames.push(&chunk("a", "it is hush-hush")).is_empty());
        assert_eq!(frames.release(), [chunk("a", "it is ")]);
        assert_eq!(frames.deadline(), None);
        assert!(frames.release_rests(|session| session == "b").is_empty());
        assert_eq!(frames.push(&chunk("b", "x")), [chunk("b", "x")]);
        assert_eq!(frames.release_rests(|session| session == "a"), [chunk("a", "hush-hush")]);
        assert!(frames.finish().is_empty());
    }
}
