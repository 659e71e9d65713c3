//! Renders a saved session as Markdown for GitHub. No content can break its fences or `<details>` blocks.

use super::{
    SessionDetail, SessionFigures, SessionPiece, SessionTree,
    diff::ShownChange,
    facts::{grouped, money, title},
    text::{counted, describe_media, spent},
    time::TimeFormat,
    tool::{self, ShownCall},
};
use agentline_core::{
    Entry, EntryPart, Role, SavedTool, ToolStatus,
    terminal_text::{plain, shorten},
};
use std::{
    borrow::Cow,
    io::{self, Write},
};

/// Writes a session as Markdown for GitHub.
///
/// # Errors
/// Fails if `out` does.
pub fn markdown(
    out: &mut dyn Write,
    tree: &SessionTree<'_>,
    detail: SessionDetail,
    clock: &TimeFormat,
) -> io::Result<()> {
    let info = &tree.session.info;
    writeln!(out, "# {}\n", line(&title(tree.session)))?;
    let facts = SessionFigures::of(tree);
    let version = info.agent_version.as_deref().unwrap_or_default();
    let mut rows = vec![("agent", format!("{} {version}", info.agent).trim().to_owned())];
    rows.push(("session", info.id.clone()));
    rows.extend(info.project.clone().map(|project| ("project", project)));
    rows.extend(info.started.map(|at| ("began", clock.minute(at))));
    if !facts.models.is_empty() {
        rows.push(("model", facts.models.join(", ")));
    }
    let counts = [counted(facts.prompts, "prompt"), counted(facts.tools, "tool call")];
    rows.push(("did", counts.join(", ")));
    rows.extend(tree.tokens().map(|tokens| ("tokens", grouped(tokens.sum()))));
    rows.extend(tree.used.cost_usd.map(|usd| ("cost", money(usd))));
    writeln!(out, "| | |\n|---|---|")?;
    for (name, value) in rows {
        writeln!(out, "| {name} | {} |", line(&value).replace('|', "\\|"))?;
    }
    for piece in tree.pieces(detail) {
        match piece {
            SessionPiece::Entry(entry) => self::entry(out, entry, detail, clock)?,
            SessionPiece::Sidechain(entries) => subagent(out, "Sub-agent", entries, detail, clock)?,
            SessionPiece::Child(child) => {
                subagent(out, &format!("Sub-agent: {}", title(child)), &child.entries, detail, clock)?;
            }
        }
    }
    for damage in &tree.session.damage {
        let location = damage.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        writeln!(out, "\n> unreadable: {location}{}", line(&damage.message))?;
    }
    Ok(())
}

fn subagent(
    out: &mut dyn Write,
    name: &str,
    entries: &[Entry],
    detail: SessionDetail,
    clock: &TimeFormat,
) -> io::Result<()> {
    writeln!(out, "\n<details><summary>{}</summary>", tagless(name))?;
    let mut shown = entries.iter().filter(|entry| detail.context || !entry.context);
    shown.try_for_each(|entry| self::entry(out, entry, detail, clock))?;
    writeln!(out, "\n</details>")
}

fn entry(out: &mut dyn Write, entry: &Entry, detail: SessionDetail, clock: &TimeFormat) -> io::Result<()> {
    let entry = entry.loaded();
    let is_shown = |part: &&EntryPart| detail.thinking || !matches!(part, EntryPart::Thinking { .. });
    let mut parts = entry.parts.iter().filter(is_shown).peekable();
    if parts.peek().is_none() {
        return Ok(());
    }
    let author = match entry.role {
        _ if entry.context => "Context",
        Role::User if entry.results_only => "Result",
        Role::User => "You",
        Role::Assistant => entry.model.as_deref().unwrap_or("Answer"),
        _ => "Agent",
    };
    let mut heading = vec![line(author).into_owned()];
    heading.extend(entry.timestamp.map(|at| clock.time(at)));
    writeln!(out, "\n### {}", heading.join(" · "))?;
    for part in parts {
        match part {
            EntryPart::Text { text } if entry.role == Role::Assistant => writeln!(out, "\n{}", closed(text))?,
            EntryPart::Text { text } => {
                writeln!(out)?;
                closed(text).lines().try_for_each(|line| writeln!(out, "> {line}"))?;
            }
            EntryPart::Thinking { text, .. } => {
                writeln!(out, "\n<details><summary>Thinking</summary>")?;
                fenced(out, "text", text)?;
                writeln!(out, "\n</details>")?;
            }
            EntryPart::Tool(tool) => self::tool(out, tool)?,
            EntryPart::Media(media) => writeln!(out, "\n*{}*", line(&describe_media(media)))?,
            _ => {}
        }
    }
    match entry.usage.as_ref().map(spent).filter(|spent| !spent.is_empty()) {
        Some(spent) => writeln!(out, "\n<sub>{spent}</sub>"),
        None => Ok(()),
    }
}

fn tool(out: &mut dyn Write, tool: &SavedTool) -> io::Result<()> {
    let shown = ShownCall::of(tool, None);
    let sign = match shown.status {
        Some(ToolStatus::Ok) => "✓",
        Some(ToolStatus::Error) => "✗",
        _ => "–",
    };
    let target = shown.command.as_ref().or(shown.target.as_ref());
    let target = target.map(|target| format!(" <code>{}</code>", tagless(&shorten(&one_line(target), 120))));
    let lines = shown.change.as_ref().map(|c| format!(" (+{} −{})", c.added, c.removed)).unwrap_or_default();
    let word = if shown.status == Some(ToolStatus::Ok) { "" } else { tool::word(shown.status) };
    let name = tagless(&shown.name);
    let summary = format!("{sign} <b>{name}</b>{}{lines} {word}", target.unwrap_or_default());
    writeln!(out, "\n<details><summary>{}</summary>", summary.trim_end())?;
    if let Some(command) = &shown.command {
        fenced(out, "sh", command)?;
    }
    if let Some(input) = shown.input {
        fenced(out, "json", input)?;
    }
    if let Some(change) = &shown.change {
        fenced(out, "diff", &unified(change))?;
    }
    if shown.has_news() {
        fenced(out, "text", &shown.output)?;
    }
    for media in tool.result.iter().flat_map(|result| &result.media) {
        writeln!(out, "\n*{}*", line(&describe_media(media)))?;
    }
    writeln!(out, "\n</details>")
}

/// Formats a change as a unified diff.
fn unified(change: &ShownChange) -> String {
    let hunk = |hunk: &Vec<super::diff::DiffLine>| {
        let lines = hunk.iter().map(|line| format!("{}{}\n", line.sign.mark(), line.text));
        lines.collect::<String>()
    };
    change.hunks.iter().map(hunk).collect::<Vec<_>>().join("@@ … @@\n")
}

/// Writes a text between fences that are longer than any in the text.
fn fenced(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let text = plain(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    writeln!(out, "\n{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// Closes an open fence in a model's Markdown and escapes its HTML tags.
fn closed(text: &str) -> String {
    let text = plain(text.trim_end());
    let mut done = String::with_capacity(text.len() + 16);
    let mut fence: Option<String> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = start.chars().next().filter(|c| matches!(c, '`' | '~')).unwrap_or(' ');
        let length = start.chars().take_while(|c| *c == mark).count();
        let rest = start.trim_start_matches(mark);
        match &fence {
            Some(open) => {
                if start.starts_with(open.as_str()) && rest.trim().is_empty() {
                    fence = None;
                }
                done.push_str(line);
            }
            None if mark != ' ' && length >= 3 && !(mark == '`' && rest.contains('`')) => {
                fence = Some(start[..length].to_owned());
                done.push_str(line);
            }
            None => without_tags(line, &mut done),
        }
        done.push('\n');
    }
    if let Some(open) = fence {
        done.push_str(&open);
    }
    done.trim_end().to_owned()
}

/// Appends a line with `<` escaped, except between backticks, where it has no effect.
fn without_tags(line: &str, done: &mut String) {
    let mut rest = line;
    while let Some(at) = rest.find(['`', '<']) {
        let (before, from) = rest.split_at(at);
        done.push_str(before);
        if let Some(after) = from.strip_prefix('<') {
            done.push_str("&lt;");
            rest = after;
            continue;
        }
        let ticks = from.len() - from.trim_start_matches('`').len();
        let inner = &from[ticks..];
        let runs = inner.match_indices('`').filter(|(i, _)| !inner[..*i].ends_with('`'));
        let mut ends =
            runs.filter(|(i, _)| inner[*i..].len() - inner[*i..].trim_start_matches('`').len() == ticks);
        let end = ends.next().map_or(ticks, |(i, _)| ticks + i + ticks);
        done.push_str(&from[..end]);
        rest = &from[end..];
    }
    done.push_str(rest);
}

fn one_line(text: &str) -> String {
    plain(text).lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Escapes plain text as one line of Markdown.
fn line(text: &str) -> Cow<'_, str> {
    let text = one_line(text);
    text.replace('\\', "\\\\").replace('<', "&lt;").replace('`', "\\`").replace('*', "\\*").into()
}

/// Escapes text inside an HTML tag.
fn tagless(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use agentline_core::PriceTable;

    #[test]
    fn session_is_rendered_as_github_markdown() {
        let (session, children) = sample::session();
        let tree = SessionTree::new(&session, &children, &PriceTable::default());
        let mut out = Vec::new();
        let detail = SessionDetail::default().thinking(true).subagents(true);
        markdown(&mut out, &tree, detail, &TimeFormat::utc()).unwrap();
        sample::same("sample.md", &String::from_utf8(out).unwrap());
    }

    #[test]
    fn code_fences_are_longer_than_inner_fences() {
        let mut out = Vec::new();
        fenced(&mut out, "text", "a\n````\nb").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\n`````text\na\n````\nb\n`````\n");
    }

    #[test]
    fn unclosed_markdown_is_closed_and_html_is_escaped() {
        assert_eq!(closed("```rust\nlet a = <b>;"), "```rust\nlet a = <b>;\n```");
        assert_eq!(
            closed("~~~\n```\n~~~\n<x> `<y>` ``<`>`` <!--"),
            "~~~\n```\n~~~\n&lt;x> `<y>` ``<`>`` &lt;!--"
        );
        assert_eq!(closed("a ` b <c>"), "a ` b &lt;c>");
    }
}
