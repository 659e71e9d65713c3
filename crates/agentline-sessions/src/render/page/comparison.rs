//! Renders the results of several agents for one prompt as one self-contained HTML page, without a script.

use super::{change, escape, head, markdown};
use crate::render::{
    diff::ShownChange,
    facts::{grouped, money},
};
use agentline_core::{FileChangeKind, FileRow, Outcome, SavedDiff, terminal_text::duration};
use std::io::{self, Write};

/// Returns the value of a column.
type Value = fn(&Outcome) -> String;

/// The columns of the table, with the value of each for an outcome.
const COLUMNS: &[(&str, Value)] = &[
    ("agent", |outcome| outcome.agent.to_string()),
    ("model", |outcome| outcome.model.clone().unwrap_or_default()),
    ("verdict", |outcome| outcome.verdict.name().to_owned()),
    ("time", |outcome| duration(outcome.duration_ms)),
    ("turns", |outcome| outcome.turns.to_string()),
    ("tool calls", |outcome| outcome.tool_calls.to_string()),
    ("tokens", |outcome| outcome.usage.tokens.total.map(grouped).unwrap_or_default()),
    ("cost", |outcome| outcome.cost_usd.map(money).unwrap_or_default()),
    ("files", |outcome| outcome.files.len().to_string()),
    ("lines", |outcome| lines_of(&outcome.files)),
];

/// Writes the outcomes of several agents for one prompt as one self-contained HTML page: a table, then the answer and
/// the changes of each. All content is shown as text.
///
/// # Errors
/// Fails if `out` does.
pub fn comparison_html(
    out: &mut dyn Write,
    prompt: &str,
    workspace: &str,
    outcomes: &[&Outcome],
) -> io::Result<()> {
    let title = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Comparison");
    head(out, title)?;
    write!(out, "<section class=cover id=top><h1 dir=auto>")?;
    escape::text(out, title)?;
    write!(out, "</h1><p class=about><span>")?;
    escape::text(out, workspace)?;
    writeln!(out, "</span></p>")?;
    if prompt.trim() != title {
        write!(out, "<details class=asked><summary>prompt</summary><pre class=output>")?;
        escape::text(out, prompt)?;
        writeln!(out, "</pre></details>")?;
    }
    table(out, outcomes)?;
    writeln!(out, "</section>\n<main class=frame>")?;
    for (number, outcome) in outcomes.iter().enumerate() {
        result(out, number, outcome)?;
    }
    writeln!(out, "</main></body></html>")
}

fn table(out: &mut dyn Write, outcomes: &[&Outcome]) -> io::Result<()> {
    write!(out, "<div class=\"table prose\"><table><thead><tr>")?;
    COLUMNS.iter().try_for_each(|(name, _)| write!(out, "<th>{name}"))?;
    writeln!(out, "</tr></thead><tbody>")?;
    for (number, outcome) in outcomes.iter().enumerate() {
        write!(out, "<tr>")?;
        for (column, (_, value)) in COLUMNS.iter().enumerate() {
            write!(out, "<td>")?;
            if column == 0 {
                write!(out, "<a href=\"#agent-{number}\">")?;
            }
            escape::text(out, &value(outcome))?;
            if column == 0 {
                write!(out, "</a>")?;
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn result(out: &mut dyn Write, number: usize, outcome: &Outcome) -> io::Result<()> {
    write!(out, "<section id=\"agent-{number}\"><h2>")?;
    escape::text(out, &outcome.agent)?;
    write!(out, " <small>")?;
    escape::text(out, outcome.verdict.name())?;
    writeln!(out, "</small></h2>")?;
    if let Some(error) = &outcome.error {
        write!(out, "<p class=damage>")?;
        escape::text(out, &error.message)?;
        writeln!(out, "</p>")?;
    }
    if !outcome.text.trim().is_empty() {
        write!(out, "<div class=prose dir=auto>")?;
        markdown::prose(out, &outcome.text)?;
        writeln!(out, "</div>")?;
    }
    outcome.files.iter().try_for_each(|file| changed_file(out, file))?;
    writeln!(out, "</section>")
}

fn changed_file(out: &mut dyn Write, file: &FileRow) -> io::Result<()> {
    let word = match file.change {
        FileChangeKind::Created => "created",
        FileChangeKind::Deleted => "deleted",
        _ => "modified",
    };
    let mut diff = SavedDiff::default();
    (diff.path, diff.unified) = (file.path.clone(), file.diff.clone());
    let shown = ShownChange::of(&diff);
    write!(
        out,
        "<details class=tool{}><summary><b>{word}</b> <code class=target>",
        if shown.is_some() { " open" } else { "" }
    )?;
    escape::text(out, &file.path)?;
    write!(out, "</code>")?;
    if let (Some(added), Some(removed)) = (file.added, file.removed) {
        write!(out, " <span class=plus>+{added}</span> <span class=minus>−{removed}</span>")?;
    }
    writeln!(out, "</summary>")?;
    match shown {
        Some(shown) => change::change(out, &shown)?,
        None => writeln!(out, "<p class=file>No text to compare.</p>")?,
    }
    writeln!(out, "</details>")
}

/// Returns the lines that all changes add and remove, if they are known for at least one.
fn lines_of(files: &[FileRow]) -> String {
    let known: Vec<(u64, u64)> = files.iter().filter_map(|file| Some((file.added?, file.removed?))).collect();
    let (added, removed) = known.iter().fold((0, 0), |(a, r), (added, removed)| (a + added, r + removed));
    if known.is_empty() { String::new() } else { format!("+{added} −{removed}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Failure, FailureKind, RunInfo, Verdict};

    fn outcome(agent: &str, text: &str) -> Outcome {
        let mut info = RunInfo::default();
        info.agent = agent.into();
        let failure = Failure::new(FailureKind::NotInstalled, format!("{agent} <b>is</b> missing"));
        let mut outcome = Outcome::not_started(&info, Verdict::NotInstalled, failure);
        outcome.text = text.to_owned();
        outcome
    }

    fn page(prompt: &str, outcomes: &[&Outcome]) -> String {
        let mut out = Vec::new();
        comparison_html(&mut out, prompt, "/srv/<app>", outcomes).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_content_is_shown_as_text() {
        let evil = "<script>alert(1)</script><img src=x onerror=alert(1)> [a](javascript:alert(1))";
        let mut hostile = outcome("<i>a</i>", evil);
        hostile.model = Some(evil.into());
        let row: FileRow = serde_json::from_value(serde_json::json!({
            "path": "\"><script>x", "change": "modified", "source": "tool", "tool": null, "tool_use_id": null,
            "verified": true, "added": 1, "removed": 1,
            "diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-</table><script>\n+\u{202e}<style>\n",
        }))
        .unwrap();
        hostile.files.push(row);
        let page = page(evil, &[&hostile]);
        let body = page.split_once("<body>").unwrap().1;
        for tag in ["<script", "<img", "<style", "<i>", "<b>is", "javascript:alert(1)\""] {
            assert!(!body.contains(tag), "{tag} in {body}");
        }
        assert!(!body.contains('\u{202e}'), "direction marks are visible");
        assert!(body.contains("&lt;script&gt;") && page.contains("script-src 'sha256-"));
    }

    #[test]
    fn every_agent_has_a_row_and_a_section() {
        let (one, two) = (outcome("one", "**bold** answer"), outcome("two", ""));
        let page = page("Do it\nwell", &[&one, &two]);
        assert!(page.contains("<a href=\"#agent-1\">two</a>") && page.contains("<section id=\"agent-1\">"));
        assert!(page.contains("<strong>bold</strong> answer") && page.contains("not_installed"));
        assert!(page.contains("<details class=asked>"), "a prompt of several lines is shown as a whole");
    }
}
