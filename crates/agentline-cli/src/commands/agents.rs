//! `agentline agents`: lists what each agent supports on each of its surfaces.

use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    render::table::{Column, Table},
    setup::Setup,
    ui::Ui,
};
use agentline::{Agent, Agentline, RunRequest, Surface};
use agentline_core::{AgentInfo, AgentSettings, PYPI, ReportedUsage};
use clap::Args;
use serde::Serialize;
use std::{collections::BTreeMap, io::Write};

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Also list agents with a shipped profile, and whether they are installed
    #[arg(long)]
    available: bool,
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
    /// The surface of a run that names none, and why.
    auto: AutoSurface,
    /// Whether a program of the agent was found.
    installed: bool,
    /// The settings of an agent that is not built in, with its profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<AgentSettings>,
}

#[derive(Serialize)]
struct AutoSurface {
    surface: Surface,
    reason: String,
}

impl AutoSurface {
    fn of(agentline: &Agentline, agent: &dyn Agent) -> Self {
        let (info, found) = (agent.info(), agentline.detect(agent));
        let program = info.for_surface(found.surface).program;
        let preferred = info.preferred().program;
        let reason = match found.program {
            None => format!("`{program}` is not installed"),
            Some(_) if program != preferred => format!("`{preferred}` is not installed, but `{program}` is"),
            Some(_) => format!("`{program}` is installed"),
        };
        let surface = agent.choose(&RunRequest::default()).ok();
        let same = |surface: &Surface| info.for_surface(*surface).program == program;
        Self { surface: surface.filter(same).unwrap_or(found.surface), reason }
    }
}

#[derive(Serialize)]
struct SurfaceRow {
    surface: Surface,
    /// Each ability; null if it is not known.
    #[serde(flatten)]
    abilities: BTreeMap<String, Option<bool>>,
}

impl SurfaceRow {
    fn of(agent: &dyn Agent, surface: Surface) -> Self {
        let abilities = serde_json::to_value(agent.abilities(surface, None)).unwrap_or_default();
        let mut abilities: BTreeMap<String, Option<bool>> =
            serde_json::from_value(abilities).unwrap_or_default();
        for name in agent.unknown_abilities() {
            abilities.insert((*name).to_owned(), None);
        }
        Self { surface, abilities }
    }

    /// Returns an ability as a word of the table.
    fn word(&self, name: &str) -> &'static str {
        match self.abilities.get(name) {
            Some(Some(true)) => "yes",
            Some(None) => "?",
            _ => "-",
        }
    }
}

/// The columns of the table: the title and the name of the ability.
const COLUMNS: &[(&str, &str)] = &[
    ("works", "works"),
    ("live text", "streams_text"),
    ("thinking", "thinking"),
    ("tool events", "tool_events"),
    ("asks", "asks_permission"),
    ("resume", "resumes"),
    ("mcp", "mcp"),
    ("host tools", "hosted_tools"),
    ("schema", "schema"),
    ("warm", "warm"),
    ("attach", "attachments"),
    ("live usage", "live_usage"),
    ("stop reason", "stop_reason"),
];

pub(crate) fn run(ui: &mut Ui, args: &AgentsArgs) -> Result<u8, CommandError> {
    // Agents from the settings are listed too. If the settings are invalid, only these agents are missing.
    let setup = Setup::read(None, None)?;
    let agentline = match setup.config() {
        Ok(config) => setup.with_config(&config).0,
        Err(_) => Agentline::from_env()?,
    };
    let registry = agentline.registry();
    let agents = if args.available { registry.available() } else { registry.all().to_vec() };
    let rows: Vec<Row<'_>> = agents
        .iter()
        .map(|agent| {
            let info = agent.info();
            let abilities = |surface: &Surface| SurfaceRow::of(&**agent, *surface);
            let auto = AutoSurface::of(&agentline, &**agent);
            let installed = agentline.detect(&**agent).program.is_some();
            let abilities = info.surfaces.iter().map(abilities).collect();
            Row { info, abilities, auto, installed, settings: agent.settings() }
        })
        .collect();
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?,
        ReportFormat::Text if args.available => available(ui, &rows)?,
        ReportFormat::Text => table(ui, &rows)?,
    }
    Ok(exit::DONE)
}

/// Lists all agents that a run can name, with what to do to use them.
fn available(ui: &mut Ui, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let titles = ["agent", "name", "installed", "package", "version", "asks first", "usage"];
    let mut table = Table::new(titles.map(Column::left).to_vec()).keys(2);
    for row in rows {
        let AgentInfo { id, title, package, pinned, .. } = row.info;
        let profile = row.settings.as_ref().map(|settings| &settings.profile);
        let asks = match profile.map(|profile| profile.asks) {
            None | Some(Some(true)) => "yes",
            Some(Some(false)) => "no",
            Some(None) => "?",
        };
        let usage = profile.map_or("exact", |profile| {
            let known = ReportedUsage::ALL.iter().find(|(_, usage)| Some(*usage) == profile.usage);
            known.map_or("?", |(name, _)| *name)
        });
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let installed = if row.installed { "yes" } else { "no" };
        let cells = [id, title, installed].map(str::to_owned).into_iter();
        let cells = cells.chain([dash(package), dash(pinned), asks.to_owned(), usage.to_owned()]);
        table.row(cells.collect());
    }
    let width = ui.width();
    table.write(ui, width)?;
    ui.report("\ninstall one with `agentline install AGENT`, and run it with `agentline run -a AGENT`")?;
    Ok(())
}

fn table(ui: &mut Ui, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let titles = ["agent", "surface"].into_iter().chain(COLUMNS.iter().map(|(title, _)| *title));
    let mut table = Table::new(titles.map(Column::left).collect()).keys(2);
    let mut has_unknown = false;
    for row in rows {
        for surface in &row.abilities {
            let words: Vec<&str> = COLUMNS.iter().map(|(_, name)| surface.word(name)).collect();
            has_unknown |= words.contains(&"?");
            let names = [row.info.id, surface.surface.name()];
            table.row(names.into_iter().chain(words).map(str::to_owned).collect());
        }
    }
    let width = ui.width();
    table.write(ui, width)?;
    if has_unknown {
        ui.report("\n?: depends on the agent and is not known before a run")?;
    }
    for row in rows {
        let AgentInfo { id, title, aliases, package, pinned, program, adapter, .. } = row.info;
        if package.is_empty() {
            ui.report(&format!("\n{id} (from your settings)\n  command: `{program}`"))?;
            continue;
        }
        let also =
            if aliases.is_empty() { String::new() } else { format!(", also called {}", aliases.join(", ")) };
        let source = match package.strip_prefix(PYPI) {
            Some(name) => format!("PyPI package {name}"),
            None => format!("npm package {package}"),
        };
        ui.report(&format!("\n{title} ({id}){also}\n  {source}, tested with {pinned}"))?;
        if let Some(adapter) = adapter {
            ui.report(&format!("  for ACP: {}, tested with {}", adapter.package, adapter.pinned))?;
        }
        let because = if row.installed { ", because" } else { ";" };
        ui.report(&format!("  auto: {}{because} {}", row.auto.surface, row.auto.reason))?;
    }
    Ok(())
}
