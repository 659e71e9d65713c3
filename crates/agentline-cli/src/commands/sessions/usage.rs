//! `agentline sessions usage`: counts tokens and costs by day, week, month, agent, model, project or session.

use super::{SessionFilterArgs, SessionsContext, list::id_lengths};
use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    render::table::{Column, Table, bar},
    ui::Ui,
};
use agentline_sessions::{
    UsageBy, UsageRow,
    render::{grouped, money},
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::Write;

/// The maximum and minimum width of the longest bar.
const BAR: (usize, usize) = (40, 8);
/// The width of the bars without a terminal.
const BAR_ON_A_PIPE: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// What to group rows by
    #[arg(long, value_name = "WHAT", default_value = "day")]
    by: By,
    #[command(flatten)]
    among: SessionFilterArgs,
    /// What the bars show [default: tokens on a terminal, otherwise off]
    #[arg(long, value_name = "WHAT")]
    chart: Option<Chart>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

/// The grouping of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Day,
    Week,
    Month,
    Agent,
    Model,
    Project,
    Session,
}

/// The quantity that the bars show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chart {
    /// Total tokens
    Tokens,
    /// US dollars
    Cost,
    /// No bars
    Off,
}

/// A row in the JSON output.
#[derive(Serialize)]
struct JsonRow<'a> {
    #[serde(flatten)]
    row: &'a UsageRow,
    turns: u64,
}

impl<'a> JsonRow<'a> {
    fn of(row: &'a UsageRow) -> Self {
        Self { row, turns: row.answers }
    }
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: &UsageArgs,
) -> Result<u8, CommandError> {
    let (by, title) = match args.by {
        By::Day => (UsageBy::Day, "day"),
        By::Week => (UsageBy::Week, "week"),
        By::Month => (UsageBy::Month, "month"),
        By::Session => (UsageBy::Session, "session"),
        By::Agent => (UsageBy::Agent, "agent"),
        By::Model => (UsageBy::Model, "model"),
        By::Project => (UsageBy::Project, "project"),
    };
    let filter = sessions_context.filter(&args.among)?;
    let rows = sessions_context.store.usage(&filter, by)?;
    sessions_context.warn_of_unreadable(ui, &filter)?;
    let sum = UsageRow::sum(&rows);
    if args.output == ReportFormat::Json {
        let rows: Vec<JsonRow<'_>> = rows.iter().map(JsonRow::of).collect();
        let all = serde_json::json!({ "by": title, "rows": rows, "total": JsonRow::of(&sum) });
        writeln!(ui.out(), "{all}")?;
        return Ok(exit::DONE);
    }
    if rows.is_empty() {
        return Err(CommandError::failed("no sessions with token usage found"));
    }
    let width = ui.width();
    // The titles of sessions need the space of the bars.
    let has_bars = width.is_some() && args.by != By::Session;
    let chart = args.chart.unwrap_or(if has_bars { Chart::Tokens } else { Chart::Off });
    let mut columns =
        vec![if args.by == By::Project { Column::left(title).keep_end(32) } else { Column::left(title) }];
    if args.by == By::Session {
        columns.push(Column::left("title").shrinkable());
    }
    columns.extend(
        ["sessions", "turns", "input", "cached", "output", "thoughts", "total", "cost"].map(Column::right),
    );
    let ids: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    // Ids are not shortened in output for programs.
    let lengths = if args.by == By::Session && width.is_some() {
        id_lengths(&ids)
    } else {
        vec![usize::MAX; ids.len()]
    };
    let names = rows.iter().zip(lengths).map(|(row, length)| name(sessions_context, args.by, row, length));
    let mut cells: Vec<Vec<String>> = rows.iter().zip(names).map(|(row, name)| numbers(name, row)).collect();
    cells.push(numbers("total".into(), &sum));
    if args.by == By::Session {
        let titles = rows.iter().chain([&sum]).map(|row| row.title.clone().unwrap_or_default());
        cells.iter_mut().zip(titles).for_each(|(cells, title)| cells.insert(1, title));
    }
    let bars = bars(&rows, chart, width.map_or(BAR_ON_A_PIPE, |width| bar_width(width, &cells)));
    if chart != Chart::Off {
        columns.push(Column::left(""));
        let bars = bars.into_iter().chain([String::new()]);
        cells.iter_mut().zip(bars).for_each(|(row, bar)| row.push(bar));
    }
    let mut table = Table::new(columns);
    cells.into_iter().for_each(|row| table.row(row));
    table.write(ui, width)?;
    let unpriced: Vec<&str> = sum.unpriced().collect();
    if !unpriced.is_empty() {
        ui.print_status(format!("costs are lower bounds: no price is known for {}", unpriced.join(", ")));
    }
    Ok(exit::DONE)
}

fn name(sessions_context: &SessionsContext, by: By, row: &UsageRow, length: usize) -> String {
    match by {
        _ if row.name.is_empty() => "(unknown)".into(),
        By::Project => sessions_context.project(Some(&row.name)),
        _ => row.name.chars().take(length).collect(),
    }
}

fn numbers(name: String, row: &UsageRow) -> Vec<String> {
    let tokens = &row.used.tokens;
    let count = |n: Option<u64>| n.map(grouped).unwrap_or_default();
    let cost = match row.used.cost_usd {
        Some(usd) => money(usd),
        None if row.used.known_cost_usd > 0.0 => format!(">{}", money(row.used.known_cost_usd)),
        None => String::new(),
    };
    vec![
        name,
        grouped(row.sessions),
        grouped(row.answers),
        count(tokens.input),
        count(tokens.cached),
        count(tokens.output),
        count(tokens.thoughts),
        grouped(tokens.sum()),
        cost,
    ]
}

/// Returns the width that the numbers leave for bars.
fn bar_width(width: usize, cells: &[Vec<String>]) -> usize {
    let columns = cells.first().map_or(0, Vec::len);
    let widest = |i: usize| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0).max(8);
    let taken: usize = (0..columns).map(|i| widest(i) + 2).sum();
    width.saturating_sub(taken).clamp(BAR.1, BAR.0)
}

fn bars(rows: &[UsageRow], chart: Chart, room: usize) -> Vec<String> {
    let value = |row: &UsageRow| match chart {
        Chart::Cost => row.used.cost_usd.unwrap_or(row.used.known_cost_usd),
        _ => row.used.tokens.sum() as f64,
    };
    let most = rows.iter().map(value).fold(0.0, f64::max);
    rows.iter().map(|row| bar(value(row), most, room)).collect()
}
