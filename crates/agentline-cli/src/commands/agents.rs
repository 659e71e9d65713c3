//! `agentline agents`: lists what each agent supports on each of its surfaces.

use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    setup::Setup,
    ui::{Paint, Ui},
};
use agentline::Surface;
use agentline_core::{AgentInfo, SurfaceFeatures};
use clap::Args;
use serde::Serialize;
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

/// One agent in the JSON output.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    info: AgentInfo<'a>,
    abilities: Vec<SurfaceRow>,
}

#[derive(Serialize)]
struct SurfaceRow {
    surface: Surface,
    #[serde(flatten)]
    abilities: SurfaceFeatures,
}

/// A column of the table: its title and its value.
type Column = (&'static str, fn(&SurfaceFeatures) -> bool);

const COLUMNS: &[Column] = &[
    ("works", |a| a.works),
    ("live text", |a| a.streams_text),
    ("thinking", |a| a.thinking),
    ("tool events", |a| a.tool_events),
    ("asks", |a| a.asks_permission),
    ("resume", |a| a.resumes),
    ("mcp", |a| a.mcp),
    ("host tools", |a| a.hosted_tools),
    ("schema", |a| a.schema),
    ("warm", |a| a.warm),
    ("attach", |a| a.attachments),
    ("live usage", |a| a.live_usage),
    ("stop reason", |a| a.stop_reason),
];

pub(crate) fn run(ui: &mut Ui, args: &AgentsArgs) -> Result<u8, CommandError> {
    // Agents from the settings are listed too. If the settings are invalid, only these agents are missing.
    let setup = Setup::read(None, None)?;
    let registry =
        setup.config().map(|config| setup.with_config(&config).0.registry().clone()).unwrap_or_default();
    let rows: Vec<Row<'_>> = registry
        .all()
        .iter()
        .map(|agent| {
            let info = agent.info();
            let abilities = |surface: &Surface| SurfaceRow {
                surface: *surface,
                abilities: agent.abilities(*surface, None),
            };
            Row { info, abilities: info.surfaces.iter().map(abilities).collect() }
        })
        .collect();
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?,
        ReportFormat::Text => table(ui, &rows)?,
    }
    Ok(exit::DONE)
}

fn table(ui: &mut Ui, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let mut head = format!("{:<10} {:<12}", "agent", "surface");
    for (title, _) in COLUMNS {
        head.push_str(&format!("  {title}"));
    }
    let head = ui.paint_out(Paint::Bold, &head);
    writeln!(ui.out(), "{head}")?;
    for row in rows {
        for SurfaceRow { surface, abilities } in &row.abilities {
            let mut line = format!("{:<10} {:<12}", row.info.id, surface.name());
            for (title, has) in COLUMNS {
                let word = if has(abilities) { "yes" } else { "-" };
                line.push_str(&format!("  {word:<width$}", width = title.len()));
            }
            writeln!(ui.out(), "{}", line.trim_end())?;
        }
    }
    for row in rows {
        let AgentInfo { id, title, aliases, package, pinned, program, .. } = row.info;
        if package.is_empty() {
            writeln!(ui.out(), "\n{id} (from your settings)\n  command: `{program}`")?;
            continue;
        }
        let also =
            if aliases.is_empty() { String::new() } else { format!(", also called {}", aliases.join(", ")) };
        writeln!(ui.out(), "\n{title} ({id}){also}")?;
        writeln!(ui.out(), "  npm package {package}, tested with {pinned}")?;
    }
    Ok(())
}
