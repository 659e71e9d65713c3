//! The deviations of one agent from ACP. The defaults are for an unknown agent; an agent's directory overrides them.

use super::tool_call::AcpToolCall;
use crate::{
    ExitReason, Failure, FailureKind, ReportedUsage, RunId, Sink, ToolKind, ToolUse, TurnSpec, Version,
    rpc::JsonRpcError,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

/// The result of a tool call, according to the agent's own texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolEnd {
    /// It succeeded.
    Ok,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was denied. The text is the reason, or `reason: rule` if the rule is known.
    Denied(String),
}

/// Deviations that change how the dialogue behaves. The agent's directory says which versions have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// The agent sends no update about a denied tool call, so the dialogue closes it.
    pub(crate) silent_refusal: bool,
    /// Reading a missing file must return empty content, or the agent cannot create files.
    pub(crate) empty_content_for_missing_files: bool,
    /// The history of a loaded session arrives after the response to `session/load`.
    pub(crate) history_after_load: bool,
    /// What the token counts mean.
    pub(crate) usage: ReportedUsage,
    /// Images and audio do not reach the model if a file is embedded in the same prompt.
    pub(crate) resources_drop_media: bool,
    /// The agent writes a session file that corrects what it reports over ACP.
    pub(crate) session_file: bool,
    /// The agent may end the turn when a tool call is denied, without asking its model. It is prompted to continue.
    pub(crate) denial_ends_turn: bool,
    /// The agent asks a model for a title after the first turn of a session, unless the session has one.
    pub(crate) needs_title: bool,
    /// The agent lists the tools of MCP servers only when it gets a prompt.
    pub(crate) lists_tools_late: bool,
    /// The agent does not enforce a limit on turns itself. It sends its next request as soon as all calls have results, so
    /// the limit acts then. Calls of the last answer that it has not announced are not carried out.
    pub(crate) stops_after_results: bool,
    /// The agent reports 0 thoughts if the model's service does not count them separately from the output.
    pub(crate) thoughts_in_output: bool,
}

/// What an update means beyond the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpdateMeaning {
    /// Nothing.
    Standard,
    /// It is not part of the answer, and is reported as an `agent` event.
    Noise,
    /// The agent would keep retrying a request that fails. The turn is cancelled and fails for this reason.
    GiveUp(Failure),
}

/// The kind of a text chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Ordinary text.
    Plain,
    /// A note that the session is now in this mode.
    Mode(String),
    /// Noise that is reported as an `agent` event instead of text.
    Noise,
    /// An error that the agent reports as text. It is the result of the turn if nothing follows, and text otherwise.
    Failed(Failure),
}

/// A tool call that the agent rejected by itself and reported only to its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreportedCall {
    /// The agent's id for the call.
    pub(crate) id: String,
    /// The agent's own name for the tool.
    pub(crate) name: String,
    /// The message to the model.
    pub(crate) message: String,
}

/// The deviations of one agent.
pub(crate) trait AcpProfile: Send {
    /// Takes the name and version that the agent reports. The version may not have been known before.
    fn set_agent_version(&mut self, name: &str, version: Option<Version>) {
        let _ = (name, version);
    }

    /// Returns the agent's deviations.
    fn quirks(&self) -> Quirks {
        Quirks::default()
    }

    /// Translates an error response.
    fn failure(&self, error: &JsonRpcError<'_>) -> Failure {
        plain_failure(error)
    }

    /// Returns whether an error response says that the answer was cut off at the token limit.
    fn is_cut_off(&self, error: &JsonRpcError<'_>) -> bool {
        let _ = error;
        false
    }

    /// Translates a stop reason that does not have its standard meaning. `Some(None)` means success.
    ///
    /// `most_answers` is an upper bound of the number of answers that the session has, if it is known.
    fn stop(&self, reason: &str, most_answers: Option<usize>) -> Option<Option<Failure>> {
        let _ = (reason, most_answers);
        None
    }

    /// Interprets an update of this kind in the turn of a run.
    fn interpret(&mut self, run: RunId, kind: &str, raw: &str, sink: &mut Sink) -> UpdateMeaning {
        let _ = (run, kind, raw, sink);
        UpdateMeaning::Standard
    }

    /// Takes the failure of a turn that the agent reports as ended normally.
    fn take_failure(&mut self, run: RunId) -> Option<Failure> {
        let _ = run;
        None
    }

    /// Handles a notification that is not part of the protocol.
    fn notification(&mut self, method: &str) {
        let _ = method;
    }

    /// Returns the failure after which the agent retries a request, if a notification outside the protocol reports one.
    fn retried(&self, notification: &str) -> Option<Failure> {
        let _ = notification;
        None
    }

    /// Returns the session and the failure of a request to the model's service, if this line of stderr reports one that
    /// the agent retries.
    fn failed_request(&self, line: &str) -> Option<(String, Failure)> {
        let _ = line;
        None
    }

    /// Returns the number of retries of one request after which a turn is cancelled.
    fn max_retries(&self) -> u32 {
        u32::MAX
    }

    /// Returns why a run must not start.
    fn refuse(&self, spec: &TurnSpec) -> Option<Failure> {
        let _ = spec;
        None
    }

    /// Processes a line of stderr.
    fn stderr(&mut self, text: &str, sink: &mut Sink) {
        if !text.trim().is_empty() {
            sink.stderr(text);
        }
    }

    /// Processes the exit of the process.
    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        let _ = (exit, sink);
    }

    /// Returns the failure of a request to the model's service that this line of the session file reports.
    fn recorded_failure(&self, line: &str) -> Option<Failure> {
        let _ = line;
        None
    }

    /// Returns whether the session file shows how each answer ended, so that its last record decides.
    fn records_ends(&self) -> bool {
        false
    }

    /// Returns whether the session file has the tokens of each answer.
    fn records_answers(&self) -> bool {
        true
    }

    /// Processes a line of a run's session file.
    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let _ = (run, text, sink);
    }

    /// Returns whether the session file has shown the tokens of a run.
    fn has_recorded_usage(&self, run: RunId) -> bool {
        let _ = run;
        false
    }

    /// Returns the calls in this line of the session file that the agent does not report over ACP.
    fn unreported(&self, text: &str) -> Vec<UnreportedCall> {
        let _ = text;
        Vec::new()
    }

    /// Discards the state of a finished run.
    fn forget(&mut self, run: RunId) {
        let _ = run;
    }

    /// Classifies a chunk of the answer.
    fn message_chunk(&self, text: &str) -> Chunk {
        let _ = text;
        Chunk::Plain
    }

    /// Classifies a chunk of reasoning.
    fn thought_chunk(&self, text: &str) -> Chunk {
        let _ = text;
        Chunk::Plain
    }

    /// Translates a call to a canonical tool use. Only name, kind, path and input must be correct.
    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        plain_tool(call)
    }

    /// Returns the MCP server that provides the tool.
    fn server(&self, call: &AcpToolCall) -> Option<String> {
        let _ = call;
        None
    }

    /// Returns whether a permission request is not about a tool call, so that no update follows once it is allowed.
    fn is_only_a_question(&self, call: &AcpToolCall) -> bool {
        let _ = call;
        false
    }

    /// Returns whether the arguments of a pending call are complete.
    fn input_is_whole(&self, call: &AcpToolCall) -> bool {
        call.raw_input.as_ref().is_none_or(|raw| !matches!(raw.get().trim(), "{}" | "null"))
    }

    /// Returns the output that an update adds to a running tool.
    fn streamed(&self, meta: &RawValue) -> Option<String> {
        let _ = meta;
        None
    }

    /// Returns the output of a tool.
    fn output(&self, call: &AcpToolCall) -> Option<String> {
        plain_output(call)
    }

    /// Returns how a call ended that the agent reports as completed or failed.
    fn ended(&self, call: &AcpToolCall, failed: bool, output: &str) -> ToolEnd {
        let _ = (call, output);
        if failed { ToolEnd::Failed } else { ToolEnd::Ok }
    }

    /// Returns whether a name in the usage by model is a real model and not the agent's name for automatic selection.
    fn is_model(&self, name: &str) -> bool {
        let _ = name;
        true
    }
}

/// An agent that is only known to speak ACP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainProfile;

impl AcpProfile for PlainProfile {}

/// Translates an error response from any agent.
pub(crate) fn plain_failure(error: &JsonRpcError<'_>) -> Failure {
    let message = message_of(error);
    match error.code {
        -32000 => Failure::new(FailureKind::NotAuthenticated, message),
        code @ 400..=599 => Failure::http(u16::try_from(code).unwrap_or_default(), message),
        -32602
            if message.to_lowercase().contains("session") && message.to_lowercase().contains("not found") =>
        {
            Failure::new(FailureKind::SessionNotFound, message)
        }
        -32601 | -32602 => Failure::new(FailureKind::Input, message),
        _ => Failure::new(FailureKind::ApiError, message),
    }
}

wire! { struct Data<'a> { details: Str<'a> = "details", message: Str<'a> = "message", error: Inner<'a> = "error" } }
wire! { struct Inner<'a> { message: Str<'a> = "message" } }

/// Returns the message of an error, including details that are only in its data.
pub(crate) fn message_of(error: &JsonRpcError<'_>) -> String {
    const MOST: usize = 1000;
    let data = error.data.map_or("null", RawValue::get);
    let more = match serde_json::from_str::<Data<'_>>(data) {
        Ok(data) => [data.details, data.message, data.error.message]
            .into_iter()
            .map(Str::own)
            .find(|text| !text.trim().is_empty())
            .or_else(|| serde_json::from_str::<Str<'_>>(data_text(error)).ok().map(Str::own)),
        Err(_) => None,
    };
    let more = more.filter(|text| !text.trim().is_empty() && !error.message.contains(&**text));
    let text = match more {
        Some(more) if error.message.trim().is_empty() || &*error.message == "Internal error" => more,
        Some(more) => format!("{}: {more}", &*error.message),
        None if error.message.trim().is_empty() => format!("error {} without a message", error.code),
        None => error.message.to_string(),
    };
    text.trim().chars().take(MOST).collect()
}

fn data_text<'a>(error: &JsonRpcError<'a>) -> &'a str {
    error.data.map_or("null", RawValue::get)
}

/// Translates a call using only standard ACP fields: its kind, diffs and locations.
pub(crate) fn plain_tool(call: &AcpToolCall) -> ToolUse {
    let native = call.name.clone().unwrap_or_else(|| call.first_title.clone());
    let (name, kind) = match &*call.kind {
        "edit" if call.diffs.iter().any(|diff| diff.old.as_deref().unwrap_or_default().is_empty()) => {
            ("Write", ToolKind::Write)
        }
        "edit" | "delete" | "move" => ("Edit", ToolKind::Edit),
        "execute" => ("Bash", ToolKind::Shell),
        "read" => ("Read", ToolKind::Read),
        "search" => ("Grep", ToolKind::Search),
        "fetch" => ("WebFetch", ToolKind::Web),
        _ => ("", ToolKind::Other),
    };
    let name = if name.is_empty() { native.clone() } else { name.to_owned() };
    let mut tool = ToolUse::new(call.id.clone(), name, native, kind);
    tool.input.clone_from(&call.raw_input);
    tool.raw_input.clone_from(&call.raw_input);
    if matches!(kind, ToolKind::Write | ToolKind::Edit) {
        tool.path = call.first_path();
    }
    tool
}

wire! { struct Output<'a> { output: Option<Str<'a>> = "output", error: Option<Str<'a>> = "error" } }

/// Returns the output of a tool: its content, else the streamed output, else its raw output if that is text.
pub(crate) fn plain_output(call: &AcpToolCall) -> Option<String> {
    let raw = call.raw_output.as_ref().map(|raw| raw.get());
    let from_raw = || {
        let raw = raw?;
        if raw.starts_with('"') {
            return serde_json::from_str::<Str<'_>>(raw).ok().map(Str::own);
        }
        let output = serde_json::from_str::<Output<'_>>(raw).ok()?;
        output.output.or(output.error).map(Str::own)
    };
    let filled = |text: &String| !text.is_empty();
    Some(call.text.clone())
        .filter(filled)
        .or_else(|| Some(call.streamed.clone()).filter(filled))
        .or_else(from_raw)
}
