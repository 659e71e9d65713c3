//! What is special about one agent behind ACP. The defaults are those of an agent that we do not know; an agent's
//! folder overrides what it knows better.

use super::tools::ToolCall;
use crate::{
    Exit, Failure, Kind, Order, RunId, Say, ToolKind, ToolUse, Version,
    rpc::RpcError,
    wire::{Str, wire},
};
use serde_json::value::RawValue;

/// How a tool call ended, with the agent's own words in mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It did what it was asked to do.
    Ok,
    /// It failed.
    Failed,
    /// It was stopped.
    Cancelled,
    /// It was refused; the text is the reason, `reason: rule` where a rule is known.
    Denied(String),
}

/// Departures that change what we do, by name. Which versions have them is the agent's own table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// A refused tool is never heard of again, so we close it.
    pub(crate) silent_refusal: bool,
    /// A file that is not there must be read as an empty one, or the agent cannot create files.
    pub(crate) empty_content_for_missing_files: bool,
    /// The history of a loaded session still comes after the answer to `session/load`.
    pub(crate) history_after_load: bool,
    /// The usage of a prompt's answer is that of its last request to the model alone.
    pub(crate) usage_of_last_call: bool,
    /// Images and audio do not reach the model when a file is embedded in the same prompt.
    pub(crate) resources_drop_media: bool,
    /// The agent writes a session file whose lines correct what the surface tells.
    pub(crate) session_file: bool,
}

/// What a piece of the agent's text really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Text.
    Plain,
    /// A note that the session is in this mode now.
    Mode(String),
    /// Noise that is passed on as the agent's own words, not as text.
    Noise,
}

/// A call that the agent turned away by itself, and told nobody but its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unheard {
    /// The agent's id of it.
    pub(crate) id: String,
    /// The agent's own name of the tool.
    pub(crate) name: String,
    /// What the model was told.
    pub(crate) message: String,
}

/// What is special about one agent.
pub(crate) trait Manners: Send {
    /// The agent has said who it is; its version may not have been known before.
    fn meet(&mut self, name: &str, version: Option<Version>) {
        let _ = (name, version);
    }

    /// Its departures.
    fn quirks(&self) -> Quirks {
        Quirks::default()
    }

    /// What an error answer means.
    fn failure(&self, error: &RpcError<'_>) -> Failure {
        plain_failure(error)
    }

    /// What a turn's stop reason means, where that is not what the protocol says: `Some(None)` is success.
    fn stop(&self, reason: &str) -> Option<Option<Failure>> {
        let _ = reason;
        None
    }

    /// A notification that is not part of the protocol.
    fn notification(&mut self, method: &str) {
        let _ = method;
    }

    /// Why a run must not begin.
    fn refuse(&self, order: &Order) -> Option<Failure> {
        let _ = order;
        None
    }

    /// A line of stderr.
    fn stderr(&mut self, text: &str, say: &mut Say) {
        if !text.trim().is_empty() {
            say.stderr(text);
        }
    }

    /// The process ended.
    fn exit(&mut self, exit: Exit, say: &mut Say) {
        let _ = (exit, say);
    }

    /// A line of the session file of a run.
    fn session_line(&mut self, run: RunId, text: &str, say: &mut Say) {
        let _ = (run, text, say);
    }

    /// Calls that this line of the session file tells of, and of which nothing is heard over ACP.
    fn unheard(&self, text: &str) -> Vec<Unheard> {
        let _ = text;
        Vec::new()
    }

    /// A run is over.
    fn forget(&mut self, run: RunId) {
        let _ = run;
    }

    /// What a piece of text of the answer really is.
    fn message_chunk(&self, text: &str) -> Chunk {
        let _ = text;
        Chunk::Plain
    }

    /// What a piece of reasoning really is.
    fn thought_chunk(&self, text: &str) -> Chunk {
        let _ = text;
        Chunk::Plain
    }

    /// The call as our vocabulary has it. Only name, kind, path and input need to be right.
    fn tool(&self, call: &ToolCall) -> ToolUse {
        plain_tool(call)
    }

    /// The MCP server whose tool it is.
    fn server(&self, call: &ToolCall) -> Option<String> {
        let _ = call;
        None
    }

    /// Whether what is asked for is no call at all, so that nothing will be heard of it once it is allowed.
    fn is_only_a_question(&self, call: &ToolCall) -> bool {
        let _ = call;
        false
    }

    /// Whether the call's arguments are all there while it is still pending.
    fn input_is_whole(&self, call: &ToolCall) -> bool {
        call.raw_input.as_ref().is_none_or(|raw| !matches!(raw.get().trim(), "{}" | "null"))
    }

    /// Output that an update adds to a running tool.
    fn streamed(&self, meta: &RawValue) -> Option<String> {
        let _ = meta;
        None
    }

    /// What a tool gave back.
    fn output(&self, call: &ToolCall) -> Option<String> {
        plain_output(call)
    }

    /// How a call ended that the agent calls completed or failed.
    fn ended(&self, call: &ToolCall, failed: bool, output: &str) -> Ended {
        let _ = (call, output);
        if failed { Ended::Failed } else { Ended::Ok }
    }

    /// Whether this name in the usage by model is a model, and not the agent's name for choosing one.
    fn is_model(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// An update of a kind that the protocol knows, before it is handled; what an agent hides in `_meta` can be told here.
    fn look(&self, run: RunId, update: &str, say: &mut Say) {
        let _ = (run, update, say);
    }
}

/// An agent of which we know nothing but that it speaks ACP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Manners for Plain {}

/// What an error answer of any agent means.
pub(crate) fn plain_failure(error: &RpcError<'_>) -> Failure {
    let message = message_of(error);
    match error.code {
        -32000 => Failure::new(Kind::NotAuthenticated, message),
        code @ 400..=599 => Failure::http(u16::try_from(code).unwrap_or_default(), message),
        -32602
            if message.to_lowercase().contains("session") && message.to_lowercase().contains("not found") =>
        {
            Failure::new(Kind::SessionNotFound, message)
        }
        -32601 | -32602 => Failure::new(Kind::Input, message),
        _ => Failure::new(Kind::ApiError, message),
    }
}

wire! { struct Data<'a> { details: Str<'a> = "details", message: Str<'a> = "message", error: Inner<'a> = "error" } }
wire! { struct Inner<'a> { message: Str<'a> = "message" } }

/// The words of an error, with those that only its data has.
pub(crate) fn message_of(error: &RpcError<'_>) -> String {
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

fn data_text<'a>(error: &RpcError<'a>) -> &'a str {
    error.data.map_or("null", RawValue::get)
}

/// A call by what the protocol itself says of it: its kind, its diffs and its places.
pub(crate) fn plain_tool(call: &ToolCall) -> ToolUse {
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

/// What a tool gave back: its content, else what came while it ran, else its raw output where that is text.
pub(crate) fn plain_output(call: &ToolCall) -> Option<String> {
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
