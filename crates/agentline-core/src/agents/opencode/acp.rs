//! OpenCode's ACP behavior: the first title of a call is the tool's name, and a command's exit code is in its metadata.

use super::{failures, tools::TOOLS};
use crate::agents::opencode::session_message::{ABORTED_COMMAND, StoredAnswer};
use crate::{
    CountScope, Failure, ReportedUsage, RunId, Sink, TokenCount, ToolUse, UsageSource,
    acp::{
        profile::{AcpProfile, Quirks, ToolEnd, message_of, plain_failure},
        tool_call::AcpToolCall,
    },
    agents::adapter,
    rpc::JsonRpcError,
    wire::wire,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

wire! { struct Raw<'a> { metadata: Metadata<'a> = "metadata" } }
wire! { struct Metadata<'a> { exit: Option<&'a serde_json::value::RawValue> = "exit" } }

/// The name with which OpenCode introduces itself over ACP.
pub(in crate::agents) const ACP_NAME: &str = "OpenCode";

/// The deviations that also apply if OpenCode is configured as a custom agent.
pub(in crate::agents) const QUIRKS: Quirks = Quirks {
    silent_refusal: false,
    empty_content_for_missing_files: false,
    history_after_load: false,
    usage: ReportedUsage::LastRequest,
    resources_drop_media: false,
    session_file: false,
    denial_ends_turn: false,
    needs_title: false,
    lists_tools_late: false,
    stops_after_results: true,
    thoughts_in_output: false,
};

/// OpenCode's deviations from ACP.
#[derive(Debug, Default)]
pub(super) struct OpenCodeProfile {
    /// The cost of each recorded answer by its id, for each run.
    recorded: BTreeMap<RunId, BTreeMap<String, f64>>,
}

/// Returns the session and the error of a failed request to the model's service in a line of the log. Over ACP, OpenCode
/// does not report that it retries.
fn failed_request(line: &str) -> Option<(&str, &str)> {
    // Requests for titles and summaries are small ones.
    if !line.contains(" message=\"stream error\" ") || line.contains(" small=true ") {
        return None;
    }
    let session = line.split_once(" session.id=")?.1.split(' ').next()?;
    let error = line.split_once(" error.error=\"")?.1.trim_end().trim_end_matches('"');
    // The class of the error precedes its message.
    Some((session, error.split_once(": ").map_or(error, |(_, message)| message)))
}

impl AcpProfile for OpenCodeProfile {
    fn quirks(&self) -> Quirks {
        // The database has the tokens of all requests.
        Quirks { session_file: true, ..QUIRKS }
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let Some(answer) = StoredAnswer::of(text) else { return };
        let cost = answer.cost_usd.unwrap_or(0.0);
        let before = self.recorded.entry(run).or_default().insert(answer.id.clone(), cost);
        let mut count = TokenCount::new(UsageSource::SessionFile, CountScope::Call(answer.id), answer.tokens);
        count.model = answer.model;
        sink.count(run, count);
        sink.recorded_cost(run, cost - before.unwrap_or(0.0));
        // An answer that is recorded again may not be the last one.
        if answer.calls_tools && before.is_none() {
            sink.next_request(run);
        }
    }

    fn has_recorded_usage(&self, run: RunId) -> bool {
        self.recorded.contains_key(&run)
    }

    fn forget(&mut self, run: RunId) {
        self.recorded.remove(&run);
    }

    fn failed_request(&self, line: &str) -> Option<(String, Failure)> {
        let (session, error) = failed_request(line)?;
        Some((session.to_owned(), failures::of_text(error)))
    }

    fn max_retries(&self) -> u32 {
        failures::MAX_RETRIES
    }

    fn failure(&self, error: &JsonRpcError<'_>) -> Failure {
        let text = message_of(error);
        let Some(kind) = failures::kind_of(&text) else { return plain_failure(error) };
        Failure::new(kind, text)
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        adapter::tool(call, &native_name(call), &TOOLS)
    }

    fn server(&self, call: &AcpToolCall) -> Option<String> {
        TOOLS.server_tool(&native_name(call)).map(|(server, _)| server.to_owned())
    }

    fn input_is_whole(&self, call: &AcpToolCall) -> bool {
        // The first update of a command contains only the directory in which it will run.
        let input = call.raw_input.as_ref().map(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()));
        input.is_none_or(|input| input.is_ok_and(|input| input.keys().any(|name| name != "cwd")))
    }

    fn ended(&self, call: &AcpToolCall, failed: bool, output: &str) -> ToolEnd {
        let raw = call.raw_output.as_ref().map_or("null", |raw| raw.get());
        let exit = serde_json::from_str::<Raw<'_>>(raw).ok().and_then(|raw| raw.metadata.exit);
        let code = exit.and_then(|exit| exit.get().parse::<i64>().ok());
        // A call to an unknown tool is reported as a call to the tool `invalid`, which always succeeds.
        let invalid = call.title == "Invalid Tool" || call.title == "invalid";
        let native = native_name(call);
        if invalid && output.contains("unavailable tool") && TOOLS.is_own(&native) {
            return ToolEnd::Denied("not_offered".to_owned());
        }
        // A killed command is reported as completed.
        if native == "bash" && output.trim_end().ends_with(ABORTED_COMMAND) {
            return ToolEnd::Cancelled;
        }
        if failed || invalid || code.is_some_and(|code| code != 0) { ToolEnd::Failed } else { ToolEnd::Ok }
    }
}

/// Returns the tool's own name, which is its first title. A permission request may arrive before that title.
fn native_name(call: &AcpToolCall) -> String {
    let by_kind = match &*call.kind {
        "execute" => "bash",
        "edit" => "edit",
        "read" => "read",
        "fetch" => "webfetch",
        _ => "",
    };
    let is_tool_name = |name: &str| TOOLS.is_own(name) || (name.contains('_') && !name.contains(['/', ' ']));
    if is_tool_name(&call.first_title) || by_kind.is_empty() {
        call.first_title.clone()
    } else {
        by_kind.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agents::session_file_totals, dialogue::SinkItem};

    #[test]
    fn each_recorded_answer_is_counted_once() {
        let row = |id: &str, role: &str, output: u64, finish: &str| {
            format!(
                r#"{{"role":"{role}","modelID":"m","cost":0.5,"finish":"{finish}","tokens":{{"input":80,"output":{output},"reasoning":0,"cache":{{"read":20,"write":0}}}},"id":"{id}"}}"#
            )
        };
        let lines = [
            row("msg_1", "user", 30, ""),
            row("msg_2", "assistant", 20, "tool-calls"),
            row("msg_2", "assistant", 30, "tool-calls"),
            row("msg_3", "assistant", 30, "stop"),
            "not JSON".into(),
        ];
        let mut profile = OpenCodeProfile::default();
        let (mut cost, mut next) = (0.0, 0);
        let totals = session_file_totals(&lines, |run, line, sink| {
            profile.session_line(run, line, sink);
            for (_, item) in &sink.items {
                match item {
                    SinkItem::RecordedCost(usd) => cost += usd,
                    SinkItem::NextRequest => next += 1,
                    _ => {}
                }
            }
        });
        assert_eq!(totals, [None, Some(120), Some(130), Some(260), Some(260)]);
        assert_eq!((cost, next), (1.0, 1));
    }

    #[test]
    fn failed_requests_are_found_in_the_log() {
        let line = |small: bool| {
            format!(
                "timestamp=2026-11-17T18:27:18.027Z level=ERROR run=64c1 message=\"stream error\" providerID=p modelID=m \
                 session.id=ses_1 small={small} agent=build mode=primary error.error=\"AI_APICallError: slow down\""
            )
        };
        assert_eq!(failed_request(&line(false)), Some(("ses_1", "slow down")));
        assert_eq!(failed_request(&line(true)), None, "a helper request");
        assert_eq!(failed_request("level=ERROR message=process error=Aborted"), None);
    }
}
