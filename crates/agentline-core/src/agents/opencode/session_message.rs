//! Converts one message of an OpenCode session to entries of a saved session.

use crate::agents::opencode::tools::TOOLS;
use crate::{
    Entry, EntryPart, Media, RawJson, Role, SavedDiff, SavedResult, SavedTool, Tokens, ToolStatus,
    wire::{Entries, List, Num, Str, wire},
};
use serde_json::value::RawValue;

wire! { pub(super) struct MessageWire<'a> { info: InfoWire<'a> = "info", parts: List<PartWire<'a>> = "parts" } }
wire! { pub(super) struct InfoWire<'a> {
    id: Str<'a> = "id",
    role: Str<'a> = "role",
    model_id: Str<'a> = "modelID",
    tokens: Option<TokensWire<'a>> = "tokens",
    cost: Option<&'a RawValue> = "cost",
    finish: Str<'a> = "finish",
    error: ErrorWire<'a> = "error",
    summary: Str<'a> = "summary",
    time: TimeWire<'a> = "time",
} }
wire! { pub(super) struct TimeWire<'a> {
    created: Num = "created", completed: Num = "completed", start: Num = "start", end: Num = "end",
} }
wire! { pub(super) struct ErrorWire<'a> { name: Str<'a> = "name", data: ErrorData<'a> = "data" } }
wire! { pub(super) struct ErrorData<'a> { message: Str<'a> = "message", status: Num = "statusCode" } }
wire! { pub(super) struct TokensWire<'a> {
    total: Num = "total", input: Num = "input", output: Num = "output", reasoning: Num = "reasoning",
    cache: CacheWire<'a> = "cache",
} }
wire! { pub(super) struct CacheWire<'a> { read: Num = "read", write: Num = "write" } }
wire! { pub(super) struct PartWire<'a> {
    id: Str<'a> = "id",
    kind: Str<'a> = "type",
    text: Str<'a> = "text",
    synthetic: Str<'a> = "synthetic",
    metadata: Entries<'a, &'a RawValue> = "metadata",
    tool: Str<'a> = "tool",
    call: Str<'a> = "callID",
    state: StateWire<'a> = "state",
    mime: Str<'a> = "mime",
    url: Str<'a> = "url",
    prompt: Str<'a> = "prompt",
    reason: Str<'a> = "reason",
    tokens: Option<TokensWire<'a>> = "tokens",
    cost: Option<&'a RawValue> = "cost",
} }
wire! { pub(super) struct StateWire<'a> {
    status: Str<'a> = "status",
    input: Option<&'a RawValue> = "input",
    output: Option<&'a RawValue> = "output",
    error: Str<'a> = "error",
    metadata: MetadataWire<'a> = "metadata",
    attachments: List<PartWire<'a>> = "attachments",
    time: TimeWire<'a> = "time",
} }
wire! { pub(super) struct MetadataWire<'a> {
    exit: Option<&'a RawValue> = "exit",
    interrupted: Str<'a> = "interrupted",
    diff: Str<'a> = "diff",
    file: FileDiff<'a> = "filediff",
    files: List<FileDiff<'a>> = "files",
} }
wire! { pub(super) struct FileDiff<'a> {
    file: Str<'a> = "file",
    path: Str<'a> = "filePath",
    patch: Str<'a> = "patch",
    diff: Str<'a> = "diff",
    before: Option<Str<'a>> = "before",
    after: Option<Str<'a>> = "after",
} }
wire! { struct InputWire<'a> { file: Str<'a> = "filePath", content: Option<Str<'a>> = "content", tool: Str<'a> = "tool" } }
wire! { struct Proof<'a> { signature: Str<'a> = "signature" } }

/// Stop reasons and their equivalents in Claude's API.
const STOPS: &[(&str, &str)] = &[
    ("stop", "end_turn"),
    ("tool-calls", "tool_use"),
    ("length", "max_tokens"),
    ("content-filter", "refusal"),
];

/// Returns the stop reason in Claude's API for one of OpenCode, if it is known.
pub(super) fn stop_reason(finish: &str) -> Option<&'static str> {
    STOPS.iter().find(|(own, _)| *own == finish).map(|(_, stop)| *stop)
}

/// Texts of a denied call.
const REFUSALS: &[&str] =
    &["rejected permission", "specified a rule", "QuestionRejectedError", "user dismissed"];

/// The error of an interrupted call.
const ABORTED: &str = "Tool execution aborted";

/// The end of the output of a command that was killed when its prompt was cancelled.
pub(super) const ABORTED_COMMAND: &str = "User aborted the command\n</shell_metadata>";

/// The output of a command that timed out. OpenCode reports it as completed, without an exit code.
const TIMED_OUT: &str = "terminated command after exceeding timeout";

/// Selects parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartSelection<'a> {
    /// All parts.
    All,
    /// The parts before the one with this id.
    Before(&'a str),
    /// The part with this id and all later ones.
    From(&'a str),
}

impl PartSelection<'_> {
    fn means(self, part: &str) -> bool {
        match self {
            Self::All => true,
            Self::Before(first) => part < first,
            Self::From(first) => part >= first,
        }
    }
}

/// Returns the entries of the message in this record.
pub(super) fn entries(record: &RawJson, wire: MessageWire<'_>, selection: PartSelection<'_>) -> Vec<Entry> {
    let info = wire.info;
    let role = if &*info.role == "assistant" { Role::Assistant } else { Role::User };
    let new = |id: String, role| {
        let mut entry = Entry::new(id, role);
        entry.timestamp = info.time.created.0;
        entry.originals = vec![record.clone()];
        entry
    };
    let mut entry = new(info.id.to_string(), role);
    let mut context = new(format!("{}:context", &*info.id), role);
    context.context = true;
    let mut usage: Option<Tokens> = None;
    let mut cost: Option<f64> = None;
    let mut requests = 0;
    let mut finish = info.finish;
    let mut compacts = false;
    for part in wire.parts.0.into_iter().filter(|part| selection.means(&part.id)) {
        match &*part.kind {
            "text" if &*part.synthetic == "true" => context.parts.push(EntryPart::text(part.text.own())),
            "text" => entry.parts.push(EntryPart::text(part.text.own())),
            "reasoning" => entry.parts.extend(thinking(part)),
            "tool" => entry.parts.push(EntryPart::Tool(Box::new(tool(part)))),
            "file" => entry.parts.push(EntryPart::Media(media(&part))),
            "subtask" => entry.parts.push(EntryPart::text(part.prompt.own())),
            "compaction" => compacts = true,
            "step-finish" => {
                requests += 1;
                let step_tokens = part.tokens.map(tokens).unwrap_or_default();
                usage = Some(usage.unwrap_or_default().plus(step_tokens));
                cost = [cost, part.cost.and_then(dollars)].into_iter().flatten().reduce(|a, b| a + b);
                if finish.is_empty() {
                    finish = part.reason;
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    if role == Role::Assistant {
        entry.model = Some(info.model_id.own()).filter(|model| !model.is_empty());
        let spent = |tokens: &Tokens| tokens.sum() > 0;
        // If steps are not recorded, the usage of the whole message is counted with its first part.
        let is_first = !matches!(selection, PartSelection::From(_));
        let of_message = info.tokens.filter(|_| is_first);
        entry.cost_usd =
            if usage.is_some() { cost } else { info.cost.filter(|_| is_first).and_then(dollars) };
        entry.usage = usage.or_else(|| of_message.map(tokens).filter(spent));
        entry.requests = (requests > 0).then_some(requests);
        entry.counted_as = copied_name(&entry, info.time.completed.0);
        entry.stop_reason = stop_reason(&finish).map(str::to_owned);
        // The summary of a compaction is context for the model.
        entry.context = &*info.summary == "true";
    }
    if compacts {
        let mut note = new(info.id.to_string(), Role::System);
        note.parts.push(EntryPart::text("Conversation compacted"));
        all.push(note);
    }
    if !(entry.parts.is_empty() && entry.usage.is_none()) {
        all.push(entry);
    }
    if !context.parts.is_empty() {
        all.push(context);
    }
    if !info.error.name.is_empty() && !matches!(selection, PartSelection::From(_)) {
        let mut error = new(format!("{}:error", &*info.id), Role::System);
        let (name, message) = (&*info.error.name, &*info.error.data.message);
        error.parts.push(EntryPart::text(if message.is_empty() { name } else { message }));
        all.push(error);
    }
    all
}

/// Returns a name that identifies copies of a message. A fork copies messages under new ids but keeps their times,
/// model and tokens.
fn copied_name(entry: &Entry, completed: Option<u64>) -> Option<String> {
    let (created, completed) = (entry.timestamp?, completed?);
    let sum = entry.usage?.sum();
    Some(format!("{created}-{completed}-{sum}-{}", entry.model.as_deref().unwrap_or_default()))
}

/// What an answer used, according to its message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredAnswer {
    pub(super) id: String,
    pub(super) model: Option<String>,
    pub(super) tokens: Tokens,
    pub(super) cost_usd: Option<f64>,
    /// Whether another request follows, with the results of the tools that the answer called.
    pub(super) calls_tools: bool,
}

impl StoredAnswer {
    /// Reads a message without its parts. Returns `None` for a prompt, and for an answer without tokens, which has not
    /// ended yet.
    pub(super) fn of(message: &str) -> Option<Self> {
        let info = serde_json::from_str::<InfoWire<'_>>(message).ok()?;
        let tokens = info.tokens.filter(|_| &*info.role == "assistant").map(tokens)?;
        (tokens.sum() > 0).then(|| Self {
            id: info.id.own(),
            model: Some(info.model_id.own()).filter(|model| !model.is_empty()),
            tokens,
            cost_usd: info.cost.and_then(dollars),
            calls_tools: &*info.finish == "tool-calls",
        })
    }
}

pub(super) fn dollars(cost: &RawValue) -> Option<f64> {
    cost.get().parse().ok()
}

/// Converts token counts. OpenCode's input excludes cached tokens; `Tokens` includes them.
pub(super) fn tokens(wire: TokensWire<'_>) -> Tokens {
    let (read, write) = (wire.cache.read.0, wire.cache.write.0);
    let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
    let input = wire.input.0.map(|input| input.saturating_add(cached));
    let parts = [input, wire.output.0, wire.reasoning.0];
    let sum = || parts.into_iter().flatten().fold(0, u64::saturating_add);
    Tokens {
        input,
        output: wire.output.0,
        thoughts: wire.reasoning.0,
        cached: read,
        cache_write: write,
        total: Some(wire.total.0.unwrap_or_else(sum)),
        ..Tokens::default()
    }
}

fn thinking(part: PartWire<'_>) -> Option<EntryPart> {
    let proof = |raw: &RawValue| serde_json::from_str::<Proof<'_>>(raw.get()).ok().map(|p| p.signature.own());
    let mut proofs = part.metadata.0.iter().filter_map(|(_, raw)| proof(raw));
    let signature = proofs.find(|signature| !signature.is_empty());
    let text = part.text.own();
    (!text.trim().is_empty() || signature.is_some()).then_some(EntryPart::Thinking { text, signature })
}

/// Converts a file: its content if it is inline, else its URL.
fn media(part: &PartWire<'_>) -> Media {
    let inline = part.url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((mime, data)) => {
            let mime = if part.mime.is_empty() { mime } else { &*part.mime };
            Media::new(mime, Some(data.to_owned()), None)
        }
        None => Media::new(&*part.mime, None, Some(part.url.to_string())),
    }
}

/// Converts a tool call, with its result if it has ended.
pub(super) fn tool(part: PartWire<'_>) -> SavedTool {
    let state = part.state;
    let input = state.input.map_or("null", RawValue::get);
    let input: InputWire<'_> = serde_json::from_str(input).unwrap_or_default();
    // A call to an unknown tool is stored as a call to the tool `invalid`.
    let invalid = &*part.tool == "invalid";
    let native = if invalid && !input.tool.is_empty() { input.tool.to_string() } else { part.tool.own() };
    let mut tool = SavedTool::new(TOOLS.tool_use(part.call.own(), &native, state.input));
    if invalid {
        tool.call.input.clone_from(&tool.call.raw_input);
    }
    let output = state.output.map(text_of).unwrap_or_default();
    let status = match &*state.status {
        "completed" if invalid => {
            let offered = output.contains("unavailable tool") && TOOLS.is_own(&native);
            if offered { ToolStatus::Denied } else { ToolStatus::Error }
        }
        "completed" if output.trim_end().ends_with(ABORTED_COMMAND) => ToolStatus::Cancelled,
        "completed" if output.ends_with("</shell_metadata>") && output.contains(TIMED_OUT) => {
            ToolStatus::Error
        }
        "completed" if state.metadata.exit.is_some_and(|exit| exit.get() != "0") => ToolStatus::Error,
        "completed" => ToolStatus::Ok,
        "error" if &*state.metadata.interrupted == "true" || &*state.error == ABORTED => {
            ToolStatus::Cancelled
        }
        "error" if REFUSALS.iter().any(|phrase| state.error.contains(phrase)) => ToolStatus::Denied,
        "error" => ToolStatus::Error,
        _ => return tool,
    };
    let content = if &*state.status == "error" && output.is_empty() { state.error.own() } else { output };
    let mut result = SavedResult::new(status, content);
    result.media = state.attachments.0.iter().map(media).collect();
    result.raw = state.output.filter(|raw| !raw.get().starts_with('"')).map(ToOwned::to_owned);
    result.timestamp = state.time.end.0;
    tool.diff = (status == ToolStatus::Ok).then(|| diff(&native, state.metadata, input)).flatten();
    tool.result = Some(result);
    tool
}

fn text_of(raw: &RawValue) -> String {
    if raw.get().starts_with('"') {
        return serde_json::from_str::<Str<'_>>(raw.get()).map(Str::own).unwrap_or_default();
    }
    if raw.get() == "null" { String::new() } else { raw.get().to_owned() }
}

fn diff(native: &str, metadata: MetadataWire<'_>, input: InputWire<'_>) -> Option<SavedDiff> {
    let filled = |text: Str<'_>| Some(text.own()).filter(|text| !text.is_empty());
    let mut files = metadata.files.0;
    let file = if files.len() == 1 { files.remove(0) } else { metadata.file };
    let path = [file.path, file.file, input.file].into_iter().find_map(filled);
    let unified = filled(metadata.diff).or_else(|| filled(file.patch)).or_else(|| filled(file.diff));
    let (old, new) = (file.before.map(Str::own), file.after.map(Str::own));
    // The previous content of a written file is not stored.
    let new = new.or_else(|| input.content.filter(|_| native == "write").map(Str::own));
    let diff = SavedDiff { path: path.unwrap_or_default(), old, new, unified };
    (diff.new.is_some() || diff.unified.is_some()).then_some(diff)
}
