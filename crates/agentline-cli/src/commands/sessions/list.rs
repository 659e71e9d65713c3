//! `agentline sessions list`: lists the sessions of all agents, newest first.

use super::{SessionFilterArgs, SessionsContext};
use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    render::table::{Column, Table},
    ui::Ui,
};
use agentline_sessions::{
    Summary,
    render::{grouped, money},
};
use clap::Args;
use serde::Serialize;

/// The terminal width below which the year is omitted.
const NARROW_WIDTH: usize = 110;
/// The minimum length of a displayed id.
const SHORTEST_ID: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    among: SessionFilterArgs,
    /// Maximum number of sessions [default: all]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Number of sessions to skip, to see the next page
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0)]
    offset: usize,
    /// Include sessions of sub-agents
    #[arg(long)]
    subagents: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

/// A session in the JSON output.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    turns: u64,
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: &ListArgs,
) -> Result<u8, CommandError> {
    let filter = sessions_context.filter(&args.among)?.sub_agents(args.subagents);
    let mut all = sessions_context.store.list(&filter)?;
    sessions_context.warn_of_unreadable(ui, &filter)?;
    let ids: Vec<&str> = all.iter().map(|summary| summary.info.id.as_str()).collect();
    let mut lengths = id_lengths(&ids);
    let total = all.len();
    let skipped = args.offset.min(total);
    all.drain(..skipped);
    lengths.drain(..skipped);
    all.truncate(args.limit.unwrap_or(usize::MAX));
    if args.output == ReportFormat::Json {
        let rows = all.iter().map(|summary| Row { summary, turns: summary.answers });
        super::show::array(ui.out(), rows)?;
        return Ok(exit::DONE);
    }
    if all.is_empty() && total > 0 && args.limit != Some(0) {
        let message = match total {
            1 => "there is only 1 session".to_owned(),
            _ => format!("there are only {} sessions", grouped(total as u64)),
        };
        return Err(CommandError::failed(message));
    }
    if all.is_empty() {
        return Err(CommandError::failed("no sessions found"));
    }
    let width = ui.width();
    let mut table = Table::new(vec![
        Column::left("when"),
        Column::left("agent"),
        Column::left("id"),
        Column::left("project").keep_end(24),
        Column::left("title").shrinkable(),
        Column::right("turns"),
        Column::right("tokens"),
        Column::right("cost"),
    ]);
    for (summary, length) in all.iter().zip(lengths) {
        let info = &summary.info;
        let minute = |at| {
            if width.is_some_and(|w| w < NARROW_WIDTH) {
                sessions_context.clock.short_minute(at)
            } else {
                sessions_context.clock.minute(at)
            }
        };
        let at = info.updated.or(info.started).map(minute);
        // Ids are not shortened in output for programs.
        let id = if width.is_some() { info.id.get(..length).unwrap_or(&info.id) } else { &info.id };
        let tokens =
            Some(&summary.used).filter(|used| !used.is_empty()).map(|used| grouped(used.tokens.sum()));
        table.row(vec![
            at.unwrap_or_default(),
            info.agent.to_string(),
            id.to_owned(),
            sessions_context.project(info.project.as_deref()),
            summary.title.clone().unwrap_or_default(),
            grouped(summary.answers),
            tokens.unwrap_or_default(),
            cost(summary),
        ]);
    }
    table.write(ui, width)?;
    let last = skipped + all.len();
    if all.len() < total {
        let next =
            if last < total { format!("; pass `--offset {last}` to see the next") } else { String::new() };
        let of = grouped(total as u64);
        ui.print_status(format!("showing sessions {} to {last} of {of}{next}", skipped + 1));
    }
    Ok(exit::DONE)
}

fn cost(summary: &Summary) -> String {
    let used = &summary.used;
    match used.cost_usd {
        Some(usd) if used.cost_estimated => format!("~{}", money(usd)),
        Some(usd) => money(usd),
        None => String::new(),
    }
}

/// Returns the length at which each id is unique.
pub(super) fn id_lengths(ids: &[&str]) -> Vec<usize> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    let length = |id: &&str| {
        let at = sorted.partition_point(|other| other < id);
        let before = at.checked_sub(1).and_then(|i| sorted.get(i)).map_or(0, |other| common(id, other));
        let after = sorted.get(at + 1).map_or(0, |other| common(id, other));
        (before.max(after) + 1).max(SHORTEST_ID)
    };
    ids.iter().map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_to_a_unique_prefix() {
        assert_eq!(id_lengths(&["01234567-89", "01234567-8a", "ffffffff-0", "x"]), [11, 11, 8, 8]);
    }
}
