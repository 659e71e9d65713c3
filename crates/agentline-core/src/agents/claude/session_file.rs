//! Reads the tokens of each answer from the session file that Claude Code writes while it works.

use super::sessions::{SYNTHETIC, usage_of};
use crate::{
    CountScope, RunId, Sink, TokenCount, UsageSource,
    wire::{Flag, Str, wire},
};
use serde_json::value::RawValue;

wire! { struct Rec<'a> {
    kind: Str<'a> = "type", side: Flag = "isSidechain", api_error: Flag = "isApiErrorMessage", request: Str<'a> = "requestId",
    message: Message<'a> = "message",
} }
wire! { struct Message<'a> {
    id: Str<'a> = "id", model: Str<'a> = "model", content: Option<&'a RawValue> = "content",
    usage: Option<&'a RawValue> = "usage",
} }

/// The session file of one run.
#[derive(Debug, Default)]
pub(super) struct ClaudeSessionFile {
    /// Whether the prompt of the run was read. The last records of the previous run may be written after that run ended.
    is_prompted: bool,
}

impl ClaudeSessionFile {
    /// Processes one line. Unreadable lines are ignored, because the file is another program's and may be truncated.
    pub(super) fn line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let Ok(record) = serde_json::from_str::<Rec<'_>>(text) else { return };
        // Sub-agents have conversations of their own.
        if record.side.0 {
            return;
        }
        let message = &record.message;
        match &*record.kind {
            // The results of tools are user records, too.
            "user" => {
                let is_result = |content: &RawValue| content.get().contains(r#""tool_result""#);
                self.is_prompted |= message.content.is_some_and(|content| !is_result(content));
            }
            "assistant" if self.is_prompted && !record.api_error.0 && &*message.model != SYNTHETIC => {
                if !message.model.is_empty() {
                    // The adapter only knows the name under which the model was chosen.
                    sink.model(run, message.model.to_string());
                }
                let Some(tokens) = message.usage.and_then(usage_of) else { return };
                // An answer has a line for each of its blocks.
                let id = format!("{}:{}", &*message.id, &*record.request);
                let mut count = TokenCount::new(UsageSource::SessionFile, CountScope::Call(id), tokens);
                count.model = Some(message.model.to_string()).filter(|model| !model.is_empty());
                sink.count(run, count);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::agents::session_file_totals;

    #[test]
    fn each_answer_after_the_prompt_is_counted_once() {
        let answer = |id: &str, block: &str| {
            format!(
                r#"{{"type":"assistant","requestId":"r","message":{{"id":"{id}","model":"m","content":[{block}],"usage":{{"input_tokens":80,"cache_read_input_tokens":20,"output_tokens":30}}}}}}"#
            )
        };
        let (text, call) = (r#"{"type":"text","text":"a"}"#, r#"{"type":"tool_use","id":"t"}"#);
        let mut file = super::ClaudeSessionFile::default();
        let lines = [
            answer("of the previous run", text),
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t"}]}}"#.into(),
            answer("also of the previous run", text),
            r#"{"type":"user","message":{"content":"a \"tool_result\" in a prompt"}}"#.into(),
            answer("one", text),
            answer("one", call),
            "not JSON".into(),
            r#"{"type":"assistant","isSidechain":true,"message":{"usage":{"input_tokens":9,"output_tokens":9}}}"#.into(),
            r#"{"type":"assistant","message":{"model":"<synthetic>","usage":{"input_tokens":9,"output_tokens":9}}}"#
                .into(),
            answer("two", text),
        ];
        let totals = session_file_totals(&lines, |run, line, sink| file.line(run, line, sink));
        let mut expected = vec![None; 4];
        expected.extend([Some(130), Some(130), Some(130), Some(130), Some(130), Some(260)]);
        assert_eq!(totals, expected);
    }
}
