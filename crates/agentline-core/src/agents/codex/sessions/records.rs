//! The record types of Codex's rollouts, limited to the fields that are used. The oldest have no envelope.

use crate::wire::{Entries, Flag, List, Num, Str, wire};
use serde_json::value::RawValue;

wire! {
    /// A line: an envelope around a payload or, in the oldest files, the payload itself.
    pub(super) struct CodexRecord<'a> {
        timestamp: Str<'a> = "timestamp",
        kind: Str<'a> = "type",
        ordinal: Num = "ordinal",
        payload: Option<CodexPayload<'a>> = "payload",
        id: Str<'a> = "id",
        instructions: Option<&'a RawValue> = "instructions",
    }
}

wire! {
    /// The content of a line of any type.
    pub(super) struct CodexPayload<'a> {
        kind: Str<'a> = "type",
        id: Str<'a> = "id",
        call_id: Str<'a> = "call_id",
        role: Str<'a> = "role",
        content: List<CodexContent<'a>> = "content",
        meta: Meta<'a> = "internal_chat_message_metadata_passthrough",
        summary: List<CodexContent<'a>> = "summary",
        name: Str<'a> = "name",
        namespace: Str<'a> = "namespace",
        arguments: Str<'a> = "arguments",
        input: Str<'a> = "input",
        output: Option<&'a RawValue> = "output",
        result: Option<&'a RawValue> = "result",
        action: CodexAction<'a> = "action",
        status: Str<'a> = "status",
        exit_code: Option<Str<'a>> = "exit_code",
        success: Option<Flag> = "success",
        changes: Entries<'a, CodexFileChange<'a>> = "changes",
        item: Option<CodexItem<'a>> = "item",
        message: Str<'a> = "message",
        reason: Str<'a> = "reason",
        info: CodexTokenInfo<'a> = "info",
        usage: Option<CodexTokenUsage<'a>> = "usage",
        response: Str<'a> = "response_id",
        thread_usage: Option<CodexTokenUsage<'a>> = "thread_token_usage",
        turns: Num = "num_turns",
        thread_name: Str<'a> = "thread_name",
        model: Str<'a> = "model",
        cwd: Str<'a> = "cwd",
        version: Str<'a> = "cli_version",
        source: Origin<'a> = "source",
        base: CodexBase<'a> = "history_base",
        error: Problem<'a> = "error",
    }
}

wire! {
    /// A piece of a message: text or an image.
    pub(super) struct CodexContent<'a> { kind: Str<'a> = "type", text: Str<'a> = "text", image: Str<'a> = "image_url" }
}

wire! { pub(super) struct Meta<'a> { kinds: List<Str<'a>> = "content_item_kinds" } }

wire! {
    /// The action of a built-in tool.
    pub(super) struct CodexAction<'a> {
        kind: Str<'a> = "type",
        command: Option<&'a RawValue> = "command",
        query: Str<'a> = "query",
        url: Str<'a> = "url",
    }
}

wire! {
    /// A completed item, stored in addition to the model's input and output.
    pub(super) struct CodexItem<'a> {
        id: Str<'a> = "id",
        kind: Str<'a> = "type",
        status: Str<'a> = "status",
        exit_code: Option<Str<'a>> = "exit_code",
        changes: Entries<'a, CodexFileChange<'a>> = "changes",
    }
}

wire! {
    /// The change to one file.
    pub(super) struct CodexFileChange<'a> {
        kind: Str<'a> = "type",
        content: Option<Str<'a>> = "content",
        unified: Option<Str<'a>> = "unified_diff",
    }
}

wire! {
    pub(super) struct CodexTokenInfo<'a> {
        total: Option<CodexTokenUsage<'a>> = "total_token_usage",
        last: Option<CodexTokenUsage<'a>> = "last_token_usage",
    }
}

wire! {
    pub(super) struct CodexTokenUsage<'a> {
        input: Num = "input_tokens",
        cached: Num = "cached_input_tokens",
        cache_write: Num = "cache_write_input_tokens",
        output: Num = "output_tokens",
        thoughts: Num = "reasoning_output_tokens",
        total: Num = "total_tokens",
    }
}

wire! {
    /// The thread that a file continues, and the record at which it does.
    pub(super) struct CodexBase<'a> { thread: Str<'a> = "thread_id", end: Num = "end_ordinal_exclusive" }
}

wire! { pub(super) struct Problem<'a> { message: Str<'a> = "message" } }

wire! { pub(super) struct Origin<'a> { agent: OfAgent<'a> = "subagent" } }
wire! { pub(super) struct OfAgent<'a> { spawn: Spawn<'a> = "thread_spawn" } }
wire! { pub(super) struct Spawn<'a> { parent: Str<'a> = "parent_thread_id" } }

wire! {
    /// The arguments of a command in all versions.
    pub(super) struct CodexCommand<'a> {
        cmd: Option<&'a RawValue> = "cmd",
        command: Option<&'a RawValue> = "command",
        justification: Str<'a> = "justification",
    }
}

wire! {
    /// The output of a tool, if it is an object.
    pub(super) struct CodexOutput<'a> {
        output: Option<Str<'a>> = "output",
        content: Option<Str<'a>> = "content",
        success: Option<Flag> = "success",
        metadata: OutputMetadata<'a> = "metadata",
    }
}

wire! { pub(super) struct OutputMetadata<'a> { exit_code: Option<Str<'a>> = "exit_code" } }
