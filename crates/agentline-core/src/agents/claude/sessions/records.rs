//! The record types of Claude Code's session files, limited to the fields that are used.

use crate::wire::{Flag, List, Num, Str, Tolerant, tolerant, wire};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess},
};
use serde_json::value::RawValue;

wire! {
    /// A line of any type.
    pub(in crate::agents::claude) struct ClaudeRecord<'a> {
        kind: Str<'a> = "type",
        subtype: Str<'a> = "subtype",
        uuid: Str<'a> = "uuid",
        parent: Str<'a> = "parentUuid",
        logical_parent: Str<'a> = "logicalParentUuid",
        session: Str<'a> = "sessionId",
        agent: Str<'a> = "agentId",
        side: Flag = "isSidechain",
        meta: Flag = "isMeta",
        summary_of_all: Flag = "isCompactSummary",
        api_error: Flag = "isApiErrorMessage",
        timestamp: Str<'a> = "timestamp",
        cwd: Str<'a> = "cwd",
        version: Str<'a> = "version",
        request: Str<'a> = "requestId",
        cost: Cost = "costUSD",
        total_cost: Cost = "totalCostUSD",
        denial: Str<'a> = "toolDenialKind",
        decision: Option<&'a RawValue> = "permissionDecision",
        origin: Str<'a> = "promptSource",
        rendered: List<RenderedAttachment<'a>> = "rendered",
        message: ClaudeMessage<'a> = "message",
        result: Option<&'a RawValue> = "toolUseResult",
        attachment: ClaudeAttachment<'a> = "attachment",
        content: Str<'a> = "content",
        summary: Str<'a> = "summary",
        leaf: Str<'a> = "leafUuid",
        custom_title: Str<'a> = "customTitle",
        ai_title: Str<'a> = "aiTitle",
    }
}

wire! {
    /// A message in the format of the API.
    pub(in crate::agents::claude) struct ClaudeMessage<'a> {
        id: Str<'a> = "id",
        model: Str<'a> = "model",
        content: ClaudeContent<'a> = "content",
        stop_reason: Option<Str<'a>> = "stop_reason",
        usage: ClaudeUsage<'a> = "usage",
    }
}

wire! {
    pub(in crate::agents::claude) struct ClaudeUsage<'a> {
        input: Num = "input_tokens",
        cache_read: Num = "cache_read_input_tokens",
        cache_write: Num = "cache_creation_input_tokens",
        output: Num = "output_tokens",
        cache_creation: CacheCreation<'a> = "cache_creation",
        of_output: OfOutput<'a> = "output_tokens_details",
    }
}

wire! { pub(in crate::agents::claude) struct OfOutput<'a> { thinking: Num = "thinking_tokens" } }

wire! {
    /// The text of an attachment as the model sees it.
    pub(in crate::agents::claude) struct RenderedAttachment<'a> { content: Str<'a> = "content" }
}

wire! {
    /// Cache writes by retention time.
    pub(in crate::agents::claude) struct CacheCreation<'a> { hour: Num = "ephemeral_1h_input_tokens" }
}

wire! {
    /// A content block of any type.
    pub(in crate::agents::claude) struct ClaudeBlock<'a> {
        kind: Str<'a> = "type",
        text: Str<'a> = "text",
        thinking: Str<'a> = "thinking",
        signature: Option<Str<'a>> = "signature",
        redacted: Option<Str<'a>> = "data",
        id: Str<'a> = "id",
        name: Str<'a> = "name",
        input: Option<&'a RawValue> = "input",
        call: Str<'a> = "tool_use_id",
        content: Option<&'a RawValue> = "content",
        is_error: Flag = "is_error",
        source: ClaudeSource<'a> = "source",
    }
}

wire! {
    /// The content of an image or a document.
    pub(in crate::agents::claude) struct ClaudeSource<'a> {
        media_type: Str<'a> = "media_type",
        data: Option<Str<'a>> = "data",
        url: Option<Str<'a>> = "url",
    }
}

wire! {
    /// Context that Claude Code adds for the model.
    pub(in crate::agents::claude) struct ClaudeAttachment<'a> {
        kind: Str<'a> = "type",
        content: Str<'a> = "content",
        prompt: ClaudeContent<'a> = "prompt",
        mode: Str<'a> = "commandMode",
    }
}

wire! {
    /// The structured result of any tool, stored next to its text.
    pub(in crate::agents::claude) struct ClaudeToolResult<'a> {
        path: Str<'a> = "filePath",
        content: Option<Str<'a>> = "content",
        original: Option<&'a RawValue> = "originalFile",
        patch: List<Hunk<'a>> = "structuredPatch",
        interrupted: Flag = "interrupted",
        notebook: Str<'a> = "notebook_path",
        notebook_old: Option<&'a RawValue> = "original_file",
        notebook_new: Option<&'a RawValue> = "updated_file",
    }
}

wire! {
    pub(in crate::agents::claude) struct Hunk<'a> {
        old_start: Num = "oldStart",
        old_lines: Num = "oldLines",
        new_start: Num = "newStart",
        new_lines: Num = "newLines",
        lines: List<Str<'a>> = "lines",
    }
}

/// An amount in US dollars. Invalid values are unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::agents::claude) struct Cost(pub(in crate::agents::claude) Option<f64>);

impl Tolerant<'_> for Cost {
    fn of_u64(n: u64) -> Self {
        Self::of_f64(n as f64)
    }
    fn of_f64(n: f64) -> Self {
        Self((n.is_finite() && n >= 0.0).then_some(n))
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        tolerant(d)
    }
}

/// The content of a message: text or blocks.
#[derive(Debug, Default)]
pub(in crate::agents::claude) enum ClaudeContent<'a> {
    /// No content.
    #[default]
    None,
    /// Plain text.
    Text(Str<'a>),
    /// Blocks.
    Blocks(Vec<ClaudeBlock<'a>>),
}

impl<'de> Tolerant<'de> for ClaudeContent<'de> {
    fn of_borrowed(text: &'de str) -> Self {
        Self::Text(Str::of_borrowed(text))
    }
    fn of_str(text: &str) -> Self {
        Self::Text(Str::of_str(text))
    }
    fn of_seq<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Ok(Self::Blocks(List::of_seq(seq)?.0))
    }
    fn of_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Ok(Self::Blocks(vec![ClaudeBlock::of_map(map)?]))
    }
}

impl<'de> Deserialize<'de> for ClaudeContent<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        tolerant(d)
    }
}
