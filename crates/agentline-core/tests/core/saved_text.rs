//! Formats a saved session as a few lines of text for comparison.

use agentline_core::{
    Entry, EntryPart, RawJson, Role, SavedSession, SavedTool, SessionFormat, SessionReader, agents,
};
use std::fmt::Write as _;

/// Reads one file.
pub(crate) fn load(agent: &str, form: SessionFormat, text: &str) -> SavedSession {
    let mut fold = fold(agent, form);
    take(fold.as_mut(), form, text);
    fold.finish()
}

pub(crate) fn fold(agent: &str, form: SessionFormat) -> Box<dyn SessionReader> {
    let agent = agents::find(agent).expect("the agent is listed");
    agent.sessions().reader(form).expect("it has a reader")
}

/// Passes one file to a reader.
pub(crate) fn take(fold: &mut dyn SessionReader, form: SessionFormat, text: &str) {
    let whole = RawJson::new(text);
    match form {
        SessionFormat::Lines => {
            for line in whole.as_str().lines() {
                fold.take(whole.part_of(line).expect("a line of the text"));
            }
        }
        _ => fold.take(whole),
    }
}

/// Formats every entry and its parts in short form.
pub(crate) fn text_of(session: &SavedSession) -> String {
    let info = &session.info;
    let mut out = String::new();
    let _ = writeln!(out, "session {} of {}", info.id, info.agent);
    let _ = writeln!(
        out,
        "  project {:?} title {:?} model {:?} parent {:?} from {:?} to {:?}",
        info.project.as_deref().unwrap_or("-"),
        info.title.as_deref().unwrap_or("-"),
        info.model.as_deref().unwrap_or("-"),
        info.parent.as_deref().unwrap_or("-"),
        info.started,
        info.updated
    );
    for entry in &session.entries {
        write_entry(&mut out, entry);
    }
    if !session.abandoned.is_empty() {
        out.push_str("abandoned:\n");
    }
    for entry in &session.abandoned {
        write_entry(&mut out, entry);
    }
    for damage in &session.damage {
        let _ = writeln!(out, "damage {:?}: {}", damage.line, damage.message);
    }
    out
}

fn write_entry(out: &mut String, entry: &Entry) {
    let role = match entry.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        _ => "system",
    };
    let _ = write!(out, "{role} {} at {:?}", &entry.id, entry.timestamp);
    if entry.context {
        out.push_str(" context");
    }
    if entry.sidechain {
        out.push_str(" sidechain");
    }
    if let Some(reason) = &entry.stop_reason {
        let _ = write!(out, " stop {reason}");
    }
    if let Some(t) = entry.usage {
        let n = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = write!(
            out,
            " tokens in {} out {} cached {} thoughts {} tool {} total {}",
            n(t.input),
            n(t.output),
            n(t.cached),
            n(t.thoughts),
            n(t.tool),
            n(t.total)
        );
    }
    let _ = writeln!(out, " originals {}", entry.originals.len());
    for part in &entry.parts {
        match part {
            EntryPart::Text { text } => {
                let _ = writeln!(out, "  text {}", short(text));
            }
            EntryPart::Thinking { text, signature } => {
                let _ = writeln!(out, "  thinking {} {}", short(text), signature.as_deref().unwrap_or(""));
            }
            EntryPart::Tool(tool) => write_tool(out, tool),
            EntryPart::Media(file) => {
                let _ = writeln!(
                    out,
                    "  media {} {:?} {:?}",
                    file.mime_type,
                    file.data.as_deref().map(short),
                    file.uri
                );
            }
            other => {
                let _ = writeln!(out, "  {other:?}");
            }
        }
    }
}

fn write_tool(out: &mut String, tool: &SavedTool) {
    let input = |raw: &Option<Box<serde_json::value::RawValue>>| {
        raw.as_ref().map_or_else(|| "-".to_owned(), |r| short(r.get()))
    };
    let _ = writeln!(
        out,
        "  tool {} = {} {} {}",
        tool.call.id,
        tool.call.native_name,
        tool.call.name,
        input(&tool.call.input)
    );
    if tool.call.input.as_ref().map(|r| r.get()) != tool.call.raw_input.as_ref().map(|r| r.get()) {
        let _ = writeln!(out, "    raw {}", input(&tool.call.raw_input));
    }
    match &tool.result {
        None => out.push_str("    no result\n"),
        Some(result) => {
            let own = if result.original.is_some() { " told by a record of its own" } else { "" };
            let _ = writeln!(
                out,
                "    {:?} at {:?} {}{own}",
                result.status,
                result.timestamp,
                short(&result.content)
            );
            if let Some(raw) = &result.raw {
                let _ = writeln!(out, "    raw {}", short(raw.get()));
            }
            for file in &result.media {
                let _ = writeln!(out, "    media {}", file.mime_type);
            }
        }
    }
    if let Some(diff) = &tool.diff {
        let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), short);
        let _ = writeln!(
            out,
            "    diff {} old {} new {} unified {}",
            diff.path,
            text(&diff.old),
            text(&diff.new),
            text(&diff.unified)
        );
    }
}

/// Formats a text on one line, with its length if it is truncated.
fn short(text: &str) -> String {
    let start: String = text.chars().take(100).collect();
    if start.len() == text.len() {
        format!("{text:?}")
    } else {
        format!("{start:?}… ({} bytes)", text.len())
    }
}
