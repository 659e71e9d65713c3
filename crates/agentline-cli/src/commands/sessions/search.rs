//! `agentline sessions search`: finds words in all sessions and shows the lines around them.

use super::{SessionFilterArgs, SessionsContext};
use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    ui::{Paint, Ui},
};
use agentline_core::{
    Role,
    terminal_text::{fit, plain},
};
use agentline_sessions::{Case, Hit, HitPlace, Query, SearchResult};
use clap::Args;
use std::io::{self, Write};

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Words or phrases; a message must contain all of them
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// Ignore case [default: unless a word has a capital letter]
    #[arg(short = 'i', long, conflicts_with = "case_sensitive")]
    ignore_case: bool,
    /// Match case
    #[arg(short = 's', long)]
    case_sensitive: bool,
    /// Treat the words as regular expressions
    #[arg(short = 'e', long)]
    regex: bool,
    #[command(flatten)]
    among: SessionFilterArgs,
    /// Lines of context before and after each hit
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1)]
    around: usize,
    /// Maximum number of sessions [default: all]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Maximum number of hits per session in text output
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 5)]
    hits: usize,
    /// Also search context that the agent added for the model only
    #[arg(long)]
    context: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: SearchArgs,
) -> Result<u8, CommandError> {
    let case = match (args.ignore_case, args.case_sensitive) {
        (true, _) => Case::Insensitive,
        (_, true) => Case::Sensitive,
        _ => Case::Smart,
    };
    let filter = sessions_context.filter(&args.among)?.sub_agents(true);
    let mut query = Query::new(args.words).regex(args.regex).case(case).context(args.around).filter(filter);
    query.hidden = args.context;
    let mut found = sessions_context.store.search(&query)?;
    sessions_context.warn_of_unreadable(ui, &query.filter)?;
    let total = found.len();
    let hits: usize = found.iter().map(|result| result.hits.len()).sum();
    found.truncate(args.limit.unwrap_or(usize::MAX));
    let code = if total == 0 { exit::FAILED } else { exit::DONE };
    if args.output == ReportFormat::Json {
        super::show::array(ui.out(), &found)?;
        return Ok(code);
    }
    if total == 0 {
        return Err(CommandError::failed("no matches found"));
    }
    let width = ui.width();
    for (i, result) in found.iter().enumerate() {
        if i > 0 {
            writeln!(ui.out())?;
        }
        head(ui, sessions_context, result, width)?;
        for hit in result.hits.iter().take(args.hits.max(1)) {
            self::hit(ui, hit, width)?;
        }
        let more = result.hits.len().saturating_sub(args.hits.max(1));
        if more > 0 {
            let line = ui.paint_out(Paint::Dim, &format!("  … {more} more; raise --hits to see them"));
            writeln!(ui.out(), "{line}")?;
        }
    }
    let many = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    ui.print_status(format!("{} in {}", many(hits, "hit"), many(total, "session")));
    Ok(code)
}

/// Writes the title and metadata of a session.
fn head(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    result: &SearchResult,
    width: Option<usize>,
) -> io::Result<()> {
    let info = &result.info;
    let at = info.updated.or(info.started).map(|at| sessions_context.clock.minute(at)).unwrap_or_default();
    let details =
        [at, info.agent.to_string(), info.id.clone(), sessions_context.project(info.project.as_deref())];
    let details: Vec<String> = details.into_iter().filter(|word| !word.is_empty()).collect();
    let title = plain(result.title.as_deref().unwrap_or("(no prompt)")).into_owned();
    let title = width.map_or_else(|| title.clone(), |width| fit(&title, width));
    let (title, details) =
        (ui.paint_out(Paint::Bold, &title), ui.paint_out(Paint::Dim, &details.join(" · ")));
    writeln!(ui.out(), "{title}\n{details}")
}

/// Writes one hit with the lines around it.
fn hit(ui: &mut Ui, hit: &Hit, width: Option<usize>) -> io::Result<()> {
    let source = match (&hit.tool, hit.role) {
        (Some(tool), _) if hit.place == HitPlace::ToolInput => format!("{tool} call"),
        (Some(tool), _) => format!("{tool} result"),
        (None, _) if hit.place == HitPlace::Thinking => "thinking".into(),
        (None, Role::User) => "you".into(),
        (None, Role::Assistant) => "answer".into(),
        _ => "agent".into(),
    };
    let details = match hit.place {
        HitPlace::Title => "  title".to_owned(),
        _ => format!("  {} (message {})", plain(&source), hit.entry + 1),
    };
    let details = ui.paint_out(Paint::Dim, &details);
    writeln!(ui.out(), "{details}")?;
    let around = |ui: &mut Ui, lines: &[String]| -> io::Result<()> {
        for line in lines {
            let line = plain(line);
            let line = width.map_or_else(|| line.to_string(), |width| fit(&line, width.saturating_sub(4)));
            let line = ui.paint_out(Paint::Dim, &line);
            writeln!(ui.out(), "    {line}")?;
        }
        Ok(())
    };
    around(ui, &hit.before)?;
    let mut line = String::new();
    let (text, spans) = window(hit, width.map(|width| width.saturating_sub(4)));
    let mut from = 0;
    for span in spans {
        line.push_str(&plain(&text[from..span.start]));
        line.push_str(&ui.paint_out(Paint::Yellow, &plain(&text[span.clone()])));
        from = span.end;
    }
    line.push_str(&plain(&text[from..]));
    writeln!(ui.out(), "    {line}")?;
    around(ui, &hit.after)
}

/// Returns the part of a line around its first match that fits, and the matches in it.
fn window(hit: &Hit, room: Option<usize>) -> (String, Vec<std::ops::Range<usize>>) {
    let (text, spans) = (&hit.text, &hit.spans);
    let (Some(room), Some(first)) = (room, spans.first()) else { return (text.clone(), spans.clone()) };
    let letters = text.chars().count();
    if letters <= room {
        return (text.clone(), spans.clone());
    }
    let before = text[..first.start].chars().count();
    let start = before.saturating_sub(room / 3).min(letters - room);
    let byte = |letter: usize| text.char_indices().nth(letter).map_or(text.len(), |(at, _)| at);
    let (from, to) = (byte(start), byte(start + room));
    let inside = spans.iter().filter(|span| span.start >= from && span.end <= to);
    (text[from..to].to_owned(), inside.map(|span| span.start - from..span.end - from).collect())
}
