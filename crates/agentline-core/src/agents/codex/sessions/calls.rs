//! Converts Codex's tool calls to canonical ones.

use crate::agents::codex::sessions::{
    patch::{self, PatchAction},
    records::{CodexCommand, CodexPayload},
};
use crate::agents::codex::tools::TOOLS;
use crate::{
    SavedTool, ToolKind, ToolUse,
    wire::{List, Str},
};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

/// Converts a function call with JSON arguments.
pub(super) fn function(call: &CodexPayload<'_>) -> SavedTool {
    let native = match &*call.namespace {
        "" => call.name.0.to_string(),
        space => format!("{}__{}", space.trim_end_matches('_'), &*call.name),
    };
    let raw =
        RawValue::from_string(call.arguments.0.to_string()).or_else(|_| to_raw_value(&*call.arguments)).ok();
    if native == "apply_patch" {
        let input: PatchInput<'_> =
            raw.as_deref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        return patched(&call.call_id, &input.input, raw.clone());
    }
    let mut tool = tool_use(&call.call_id, &native);
    let read: CodexCommand<'_> =
        raw.as_deref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    tool.input = match read.cmd.or(read.command).filter(|_| tool.kind == ToolKind::Shell) {
        Some(command) => shell(command, &read.justification),
        None => raw.as_deref().map(|raw| TOOLS.canonical_input(&native, raw)),
    };
    tool.raw_input = raw;
    SavedTool::new(tool)
}

crate::wire::wire! { struct PatchInput<'a> { input: Str<'a> = "input" } }

/// Converts a call to a tool that takes plain text.
pub(super) fn plain(call: &CodexPayload<'_>) -> SavedTool {
    let raw = to_raw_value(&*call.input).ok();
    if &*call.name == "apply_patch" {
        return patched(&call.call_id, &call.input, raw);
    }
    let mut tool = tool_use(&call.call_id, &call.name);
    tool.input = to_raw_value(&json!({"input": &*call.input})).ok();
    tool.raw_input = raw;
    SavedTool::new(tool)
}

/// Converts a call to the built-in `local_shell` tool.
pub(super) fn local_shell(call: &CodexPayload<'_>) -> SavedTool {
    let id = if call.call_id.is_empty() { &call.id } else { &call.call_id };
    let mut tool = tool_use(id, "local_shell");
    tool.input = call.action.command.and_then(|command| shell(command, ""));
    tool.raw_input = call.action.command.map(ToOwned::to_owned);
    SavedTool::new(tool)
}

/// Converts a web search that OpenAI's service ran.
pub(super) fn web_search(call: &CodexPayload<'_>, id: &str) -> SavedTool {
    let mut tool = tool_use(id, "web_search");
    let action = &call.action;
    tool.input = to_raw_value(&match &*action.url {
        "" => json!({"query": &*action.query}),
        url => json!({"query": &*action.query, "url": url}),
    })
    .ok();
    tool.raw_input.clone_from(&tool.input);
    SavedTool::new(tool)
}

/// Converts a web search that is recorded only with its query.
pub(super) fn searched(id: &str, query: &str) -> SavedTool {
    let mut tool = tool_use(id, "web_search");
    tool.input = to_raw_value(&json!({"query": query})).ok();
    tool.raw_input.clone_from(&tool.input);
    SavedTool::new(tool)
}

fn tool_use(id: &str, native: &str) -> ToolUse {
    TOOLS.tool_use(id, native, None)
}

/// Builds the input of a command, without the shell that wraps it.
fn shell(command: &RawValue, justification: &str) -> Option<Box<RawValue>> {
    let text = match serde_json::from_str::<List<Str<'_>>>(command.get()).unwrap_or_default().0 {
        args if args.is_empty() => serde_json::from_str::<Str<'_>>(command.get()).unwrap_or_default().own(),
        args => unwrapped(&args),
    };
    let input = if justification.is_empty() {
        json!({"command": text})
    } else {
        json!({"command": text, "description": justification})
    };
    to_raw_value(&input).ok()
}

fn unwrapped(args: &[Str<'_>]) -> String {
    if let [shell, flag, command] = args {
        let name = shell.rsplit(['/', '\\']).next().unwrap_or_default().trim_end_matches(".exe");
        let wraps = matches!(name, "bash" | "sh" | "zsh") && matches!(&**flag, "-lc" | "-c");
        let wraps_on_windows =
            matches!(name, "powershell" | "pwsh" | "cmd") && matches!(&**flag, "-Command" | "/c");
        if wraps || wraps_on_windows {
            return command.0.to_string();
        }
    }
    args.iter().map(|arg| &**arg).collect::<Vec<_>>().join(" ")
}

/// Converts a patch: a `Write` if it adds a single file, else an `Edit`.
fn patched(id: &str, text: &str, raw: Option<Box<RawValue>>) -> SavedTool {
    let files = patch::files(text);
    let (name, kind, input) = match &*files {
        [file] if file.action == PatchAction::Add => {
            ("Write", ToolKind::Write, json!({"file_path": file.path, "content": file.content()}))
        }
        [file] if file.action == PatchAction::Update && file.replaced().is_some() => {
            let (old, new) = file.replaced().unwrap_or_default();
            ("Edit", ToolKind::Edit, json!({"file_path": file.path, "old_string": old, "new_string": new}))
        }
        [first, ..] => ("Edit", ToolKind::Edit, json!({"file_path": first.path, "patch": text})),
        [] => ("Edit", ToolKind::Edit, json!({"patch": text})),
    };
    let mut call = ToolUse::new(id, name, "apply_patch", kind);
    call.path = files.first().map(|file| file.path.to_owned());
    call.input = to_raw_value(&input).ok();
    call.raw_input = raw;
    let mut tool = SavedTool::new(call);
    tool.diff = patch::diff(&files);
    tool
}
