//! `agentline agents`: lists what each agent supports on each of its surfaces.

use crate::{
    args::ReportOutput,
    exit,
    setup::Setup,
    stop::Stop,
    ui::{Paint, Ui},
};
use agentline::{Abilities, Card, Surface};
use clap::Args;
use serde::Serialize;
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// What standard output holds
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: ReportOutput,
}

/// One agent in the JSON output.
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

/// A column of the table: its title and its value.
type Column = (&'static str, fn(&Abilities) -> bool);

const COLUMNS: &[Column] = &[
    ("works", |a| a.works),
    ("live text", |a| a.streams_text),
    ("thinking", |a| a.thinking),
    ("tool events", |a| a.tool_events),
    ("asks", |a| a.asks_permission),
    ("resume", |a| a.resumes),
    ("mcp", |a| a.mcp),
    ("own tools", |a| a.hosted_tools),
    ("schema", |a| a.schema),
    ("warm", |a| a.warm),
    ("attach", |a| a.attachments),
    ("live usage", |a| a.live_usage),
    ("stop reason", |a| a.stop_reason),
];

pub(crate) fn run(ui: &mut Ui, args: &AgentsArgs) -> Result<u8, Stop> {
    // Agents of the settings are listed too. Invalid settings only hide those.
    let setup = Setup::read(None, None)?;
    let roster = setup.config().map(|config| setup.equip(&config).0.roster().clone()).unwrap_or_default();
    let rows: Vec<Row> = roster
        .all()
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
        let Card { id, title, aliases, package, pinned, program, .. } = row.card;
        if package.is_empty() {
            writeln!(ui.out(), "\n{id}, from your settings\n  started by `{program}`")?;
            continue;
        }
        let also =
            if aliases.is_empty() { String::new() } else { format!(", also called {}", aliases.join(", ")) };
        writeln!(ui.out(), "\n{title} ({id}){also}")?;
        writeln!(ui.out(), "  npm package {package}, tested with {pinned}")?;
    }
    Ok(())
}
