//! Reads the recordings, and formats a session as readable text.

use agentline_core::{
    Entry, EntryPart, RawJson, Role, SavedSession, SavedTool, SessionFormat, SessionReader, Tokens,
    ToolStatus, agents,
};
use std::{fmt::Write as _, fs, path::PathBuf};

/// Creates a reader for an agent's sessions.
pub(crate) fn fold(agent: &str) -> Box<dyn SessionReader> {
    agents::find(agent)
        .expect("the agent is listed")
        .sessions()
        .reader(SessionFormat::Lines)
        .expect("the file has lines")
}

/// Reads a text as a whole.
pub(crate) fn read(agent: &str, text: &str) -> SavedSession {
    let whole = RawJson::new(text);
    let mut fold = fold(agent);
    for line in whole.as_str().lines() {
        fold.take(whole.part_of(line).expect("a line of the text"));
    }
    fold.finish()
}

/// Returns the recordings of an agent: their names and texts.
pub(crate) fn recordings(agent: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(agent).join("saved");
    let files = fs::read_dir(folder).expect("the recordings exist").map(|file| file.expect("a file").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|kind| kind == "jsonl")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("a text"))
        })
        .collect()
}

/// Formats a whole session, with long texts truncated.
pub(crate) fn format_session(session: &SavedSession) -> String {
    let mut out = String::new();
    let info = &session.info;
    let _ = writeln!(out, "{} {} v{}", info.agent, info.id, info.agent_version.as_deref().unwrap_or("?"));
    for (name, value) in
        [("project", &info.project), ("title", &info.title), ("model", &info.model), ("parent", &info.parent)]
    {
        if let Some(value) = value {
            let _ = writeln!(out, "{name}: {value}");
        }
    }
    let _ = writeln!(out, "from {:?} to {:?}", info.started, info.updated);
    if let Some(cost) = info.cost_usd {
        let _ = writeln!(out, "cost: {cost:.6}");
    }
    for entry in &session.entries {
        write_entry(&mut out, entry);
    }
    if !session.abandoned.is_empty() {
        let _ = writeln!(out, "\n=== abandoned ===");
        session.abandoned.iter().for_each(|entry| write_entry(&mut out, entry));
    }
    for damage in &session.damage {
        let _ = writeln!(out, "damage at {:?}: {}", damage.line, damage.message);
    }
    out
}

fn write_entry(out: &mut String, entry: &Entry) {
    let role = match entry.role {
        Role::Assistant => "ASSISTANT",
        Role::User => "USER",
        Role::System => "SYSTEM",
        _ => "?",
    };
    let _ = write!(out, "\n{role} {} @{}", entry.id, entry.timestamp.unwrap_or(0));
    for (word, is_so) in [(" context", entry.context), (" sidechain", entry.sidechain)] {
        out.push_str(if is_so { word } else { "" });
    }
    for (name, value) in [("model", &entry.model), ("stop", &entry.stop_reason), ("as", &entry.counted_as)] {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value}");
        }
    }
    if let Some(tokens) = entry.usage {
        let _ = write!(out, " {} requests={:?}", counts(tokens), entry.requests.unwrap_or(0));
    }
    let _ = writeln!(out, " records={}", entry.originals.len());
    for part in &entry.parts {
        match part {
            EntryPart::Text { text } => writeln!(out, "  text: {}", short(text)),
            EntryPart::Thinking { text, signature } => {
                writeln!(out, "  thinking: {} signed={}", short(text), signature.is_some())
            }
            EntryPart::Media(media) => {
                writeln!(out, "  media: {} {:?}", media.mime_type, media.data.as_deref().map(short))
            }
            EntryPart::Tool(tool) => write_tool(out, tool),
            _ => writeln!(out, "  ?"),
        }
        .expect("a string accepts everything");
    }
}

fn write_tool(out: &mut String, tool: &SavedTool) -> std::fmt::Result {
    let call = &tool.call;
    let input = call.input.as_ref().map_or("-", |input| input.get());
    writeln!(
        out,
        "  tool {} {} ({} {:?}) {}",
        call.id,
        call.name,
        call.native_name,
        call.kind,
        short(input)
    )?;
    if let Some(path) = &call.path {
        writeln!(out, "    path {path}")?;
    }
    match &tool.result {
        None => writeln!(out, "    no result")?,
        Some(result) => {
            let status = match result.status {
                ToolStatus::Ok => "ok",
                ToolStatus::Error => "error",
                ToolStatus::Cancelled => "cancelled",
                ToolStatus::Denied => "denied",
                _ => "?",
            };
            let media: Vec<&str> = result.media.iter().map(|media| &*media.mime_type).collect();
            let more = if media.is_empty() { String::new() } else { format!(" {media:?}") };
            let raw = if result.raw.is_some() { " raw" } else { "" };
            writeln!(out, "    {status}: {}{more}{raw}", short(&result.content))?;
        }
    }
    if let Some(diff) = &tool.diff {
        let sides = [("old", &diff.old), ("new", &diff.new), ("unified", &diff.unified)];
        let known =
            sides.iter().filter_map(|(name, side)| Some(format!("{name}={}", short(side.as_deref()?))));
        writeln!(out, "    diff {} {}", diff.path, known.collect::<Vec<_>>().join(" "))?;
    }
    Ok(())
}

fn counts(t: Tokens) -> String {
    let n = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    format!(
        "tokens[in={} out={} cached={} write={} long={} thoughts={} total={}]",
        n(t.input),
        n(t.output),
        n(t.cached),
        n(t.cache_write),
        n(t.cache_write_long),
        n(t.thoughts),
        n(t.total)
    )
}

fn short(text: &str) -> String {
    let mut cut: String = text.chars().take(160).collect();
    let length = text.chars().count();
    if length > 160 {
        let _ = write!(cut, "… ({length})");
    }
    cut.replace('\n', "⏎")
}
