//! `agentline agents`: what each agent can do over each of its surfaces.

use crate::{
    args::ReportOutput,
    exit,
    stop::Stop,
    ui::{Paint, Ui},
};
use agentline::{Abilities, Card, Surface, core::agents::AGENTS};
use clap::Args;
use serde::Serialize;
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// What standard output holds
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: ReportOutput,
}

/// One agent, as JSON.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    card: &'static Card,
    abilities: Vec<SurfaceRow>,
}

#[derive(Serialize)]
struct SurfaceRow {
    surface: Surface,
    #[serde(flatten)]
    abilities: Abilities,
}

/// A column of the table: its title and what it shows.
type Column = (&'static str, fn(&Abilities) -> bool);

const COLUMNS: &[Column] = &[
    ("works", |a| a.works),
    ("live text", |a| a.streams_text),
    ("thinking", |a| a.thinking),
    ("tool events", |a| a.tool_events),
    ("asks", |a| a.asks_permission),
    ("resume", |a| a.resumes),
    ("mcp", |a| a.mcp),
    ("attach", |a| a.attachments),
    ("live usage", |a| a.live_usage),
    ("stop reason", |a| a.stop_reason),
];

pub(crate) fn run(ui: &mut Ui, args: &AgentsArgs) -> Result<u8, Stop> {
    let rows: Vec<Row> = AGENTS
        .iter()
        .map(|agent| {
            let card = agent.card();
            let abilities = |surface: &Surface| SurfaceRow {
                surface: *surface,
                abilities: agent.abilities(*surface, None),
            };
            Row { card, abilities: card.surfaces.iter().map(abilities).collect() }
        })
        .collect();
    match args.output {
        ReportOutput::Json => writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?,
        ReportOutput::Text => table(ui, &rows)?,
    }
    Ok(exit::DONE)
}

fn table(ui: &mut Ui, rows: &[Row]) -> Result<(), Stop> {
    let mut head = format!("{:<10} {:<12}", "agent", "surface");
    for (title, _) in COLUMNS {
        head.push_str(&format!("  {title}"));
    }
    let head = ui.paint_out(Paint::Bold, &head);
    writeln!(ui.out(), "{head}")?;
    for row in rows {
        for SurfaceRow { surface, abilities } in &row.abilities {
            let mut line = format!("{:<10} {:<12}", row.card.id, surface.name());
            for (title, has) in COLUMNS {
                let word = if has(abilities) { "yes" } else { "-" };
                line.push_str(&format!("  {word:<width$}", width = title.len()));
            }
            writeln!(ui.out(), "{}", line.trim_end())?;
        }
    }
    for row in rows {
        let aliases = row.card.aliases.join(", ");
        writeln!(ui.out(), "\n{} ({}), also called {aliases}", row.card.title, row.card.id)?;
        writeln!(ui.out(), "  npm package {}, tested with {}", row.card.package, row.card.pinned)?;
    }
    Ok(())
}
