//! Reads the tokens of each answer from the session file, the rollout, that Codex writes while it works.

use super::sessions::usage_of;
use crate::{
    CountScope, RunId, Sink, TokenCount, UsageSource,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

wire! { struct Rec<'a> { kind: Str<'a> = "type", payload: Payload<'a> = "payload" } }
wire! { struct Payload<'a> {
    kind: Str<'a> = "type", model: Str<'a> = "model", response: Str<'a> = "response_id", usage: Option<&'a RawValue> = "usage",
    info: Info<'a> = "info",
} }
wire! { struct Info<'a> {
    total: Option<&'a RawValue> = "total_token_usage", last: Option<&'a RawValue> = "last_token_usage",
} }

/// The session file of one run.
#[derive(Debug, Default)]
pub(super) struct CodexSessionFile {
    /// The model of the run, once its turn has begun. The last records of the previous run may be written after that run
    /// ended.
    model: Option<String>,
    /// Whether the file has a record for each response, as newer versions write.
    has_records: bool,
}

impl CodexSessionFile {
    /// Processes one line. Unreadable lines are ignored, because the file is another program's and may be truncated.
    pub(super) fn line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let Ok(record) = serde_json::from_str::<Rec<'_>>(text) else { return };
        let payload = record.payload;
        match (&*record.kind, &*payload.kind) {
            ("turn_context", _) => {
                let model = payload.model.own();
                // This is the model that runs, whatever was requested.
                if !model.is_empty() {
                    sink.model(run, model.clone());
                }
                self.model = Some(model);
            }
            ("token_usage_record", _) => {
                self.has_records = true;
                self.count(run, payload.response.own(), payload.usage, sink);
            }
            // The same total is recorded again when a turn ends.
            ("event_msg", "token_count") if !self.has_records => {
                let total = payload.info.total.map(|total| total.get().to_owned()).unwrap_or_default();
                self.count(run, total, payload.info.last, sink);
            }
            _ => {}
        }
    }

    fn count(&self, run: RunId, id: String, usage: Option<&RawValue>, sink: &mut Sink) {
        let (Some(model), Some(usage)) = (&self.model, usage.and_then(usage_of)) else { return };
        let mut count = TokenCount::new(UsageSource::SessionFile, CountScope::Call(id), usage);
        count.model = Some(model.clone()).filter(|model| !model.is_empty());
        sink.count(run, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::session_file_totals;

    const USAGE: &str = r#"{"input_tokens":100,"cached_input_tokens":20,"output_tokens":30,"reasoning_output_tokens":5,"total_tokens":130}"#;
    const TURN: &str = r#"{"type":"turn_context","payload":{"model":"m"}}"#;

    fn totals(lines: &[String]) -> Vec<Option<u64>> {
        let mut file = CodexSessionFile::default();
        session_file_totals(lines, |run, line, sink| file.line(run, line, sink))
    }

    #[test]
    fn each_response_of_the_turn_is_counted_once() {
        let response = |id: &str| {
            format!(r#"{{"type":"token_usage_record","payload":{{"response_id":"{id}","usage":{USAGE}}}}}"#)
        };
        let count = format!(
            r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{USAGE},"last_token_usage":{USAGE}}}}}}}"#
        );
        let lines =
            [response("0"), TURN.into(), response("1"), count.clone(), "[]".into(), response("2"), count];
        let expected = [None, None, Some(130), Some(130), Some(130), Some(260), Some(260)];
        assert_eq!(totals(&lines), expected);
    }

    #[test]
    fn older_versions_record_only_totals() {
        let count = |total: u64| {
            format!(
                r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"total_tokens":{total}}},"last_token_usage":{USAGE}}}}}}}"#
            )
        };
        let empty = r#"{"type":"event_msg","payload":{"type":"token_count","info":null}}"#.to_owned();
        let lines = [count(130), TURN.into(), empty, count(260), count(260), count(390)];
        assert_eq!(totals(&lines), [None, None, None, Some(130), Some(130), Some(260)]);
    }
}
