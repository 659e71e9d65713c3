//! OpenCode's ACP behavior: the first title of a call is the tool's name, and a command's exit code is in its metadata.

use super::{failures, tools::TOOLS};
use crate::agents::opencode::session_message::ABORTED_COMMAND;
use crate::{
    Failure, ReportedUsage, ToolUse,
    acp::{
        profile::{AcpProfile, Quirks, ToolEnd, message_of, plain_failure},
        tool_call::AcpToolCall,
    },
    agents::adapter,
    rpc::JsonRpcError,
    wire::wire,
};
use serde_json::{Map, Value};

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
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCodeProfile;

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
        QUIRKS
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
