//! `agentline conformance`: plays the scenarios of the conformance kit on agents, against scripted models.

use crate::{completers, error::CommandError, exit, live_run, output::ReportFormat, ui::Ui};
use agentline::{Agent, Agentline, Problem, Signal, Surface, install};
use agentline_conformance::{
    CellStatus, Matrix, Progress, Scenario, TestedSurface, is_supported, run as play, scenarios,
};
use agentline_core::error_chain;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    thread::available_parallelism,
};

/// The markers of the part of a page that `--to` replaces.
const BEGIN: &str = "<!-- matrix -->\n";
const END: &str = "<!-- end of matrix -->";

#[derive(Debug, Args)]
#[command(after_help = "\
Runs the real agents with a private home directory against scripted models on this machine. Nothing is sent to a \
service, and your files, sign-in and settings are not used. Prints a table with a column for each surface and \
version, then what was not as expected.

Exit codes: 0 if everything passed or is a known difference; 1 if something failed; 3 if no agent is installed.
")]
pub(crate) struct ConformanceArgs {
    /// Only this agent; with @VERSION, install that version if necessary [default: every installed agent]
    #[arg(short, long = "agent", value_name = "AGENT[@VERSION]", add = ArgValueCompleter::new(completers::agents))]
    agents: Vec<String>,
    /// Only this surface: json, stream-json, acp, app-server, serve
    #[arg(long, value_name = "SURFACE")]
    surface: Option<String>,
    /// Only this scenario; can be repeated
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Every pinned version of every agent, installed if necessary
    #[arg(long, conflicts_with = "agents")]
    matrix: bool,
    /// Write the table into a Markdown page, between `<!-- matrix -->` and `<!-- end of matrix -->`
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &ConformanceArgs) -> Result<u8, CommandError> {
    let page = args.to.as_deref().map(Page::read).transpose()?;
    let scenarios = selected(&args.scenarios)?;
    let agentline = Agentline::from_env()?;
    let surface = args.surface.as_deref().map(parse_surface).transpose()?;
    let targets = if args.matrix {
        pinned(ui, &agentline, surface)?
    } else if args.agents.is_empty() {
        installed(ui, &agentline, surface)
    } else {
        named(ui, &agentline, &args.agents, surface)?
    };
    if targets.is_empty() {
        ui.error(
            "no agent is installed",
            Some("run `agentline doctor`, or name a version: `-a gemini@0.61.0`"),
        );
        return Ok(exit::NOT_INSTALLED);
    }
    let matrix = play_on(ui, &agentline, &targets, &scenarios)?;
    if let Some(page) = page {
        page.write(&matrix)?;
    }
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{}", serde_json::to_string(&matrix).unwrap_or_default())?,
        ReportFormat::Text => ui.report(&matrix.to_text())?,
    }
    Ok(if matrix.is_ok() { exit::DONE } else { exit::FAILED })
}

/// Plays scenarios and shows their progress.
pub(super) fn play_on(
    ui: &mut Ui,
    agentline: &Agentline,
    targets: &[TestedSurface],
    scenarios: &[Scenario],
) -> Result<Matrix, CommandError> {
    // Agents wait for their model and for timeouts, so one run more than there are cores.
    let at_once = available_parallelism().map_or(2, usize::from) + 1;
    let total = targets.len() * scenarios.len();
    let mut done = 0;
    let matrix = live_run::start(|| async {
        let mut show = |progress: Progress<'_>| match progress {
            Progress::Target { target, .. } => ui.print_status(target.to_string()),
            Progress::Started { target, scenario } => {
                ui.busy(&format!("{done} of {total}: {target}: {scenario}"));
            }
            Progress::Finished { cell } => {
                done += 1;
                if matches!(cell.status, CellStatus::Fail { .. }) {
                    ui.print_status(format!("  {} failed", cell.scenario));
                } else {
                    ui.detail(format!("  {} {} ({} ms)", cell.scenario, cell.status.word(), cell.took_ms));
                }
            }
            _ => {}
        };
        tokio::select! {
            matrix = play(targets, scenarios, agentline.host_env(), at_once, &mut show) => Ok(matrix),
            // Dropping the scenarios ends their agents and removes their directories.
            _ = tokio::signal::ctrl_c() => Err(CommandError::Signal(Signal::Interrupt)),
        }
    });
    ui.clear_spinner();
    matrix
}

fn selected(names: &[String]) -> Result<Vec<Scenario>, CommandError> {
    let all = scenarios::all();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|scenario| scenario.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
            Problem::new("scenario", format!("`{name}` is not a scenario")).hint(known.join(", ")).into()
        })
    };
    names.iter().map(find).collect()
}

fn parse_surface(name: &str) -> Result<Surface, CommandError> {
    let found = Surface::ALL.iter().find(|surface| surface.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = Surface::ALL.iter().map(|surface| surface.name()).collect();
        Problem::new("surface", format!("`{name}` is not a surface")).hint(known.join(", ")).into()
    })
}

/// Returns the surfaces of the installed agents.
fn installed(ui: &mut Ui, agentline: &Agentline, surface: Option<Surface>) -> Vec<TestedSurface> {
    let mut targets = Vec::new();
    for agent in supported(agentline) {
        for surface in surfaces(&*agent, surface) {
            match TestedSurface::installed(&*agent, surface, agentline.host_env()) {
                Ok(target) => targets.push(target),
                Err(error) => ui.detail(format!("{} {surface}: {error}", agent.info().id)),
            }
        }
    }
    targets
}

/// Returns the surfaces of the named agents, and installs the named versions.
fn named(
    ui: &mut Ui,
    agentline: &Agentline,
    names: &[String],
    surface: Option<Surface>,
) -> Result<Vec<TestedSurface>, CommandError> {
    let mut targets = Vec::new();
    for name in names {
        let (name, version) = name.split_once('@').map_or((name.as_str(), None), |(n, v)| (n, Some(v)));
        let agent = agentline.registry().find(name)?;
        match version {
            Some(version) => targets.extend(at_version(ui, agentline, &*agent, version, surface)?),
            None => {
                for surface in surfaces(&*agent, surface) {
                    let target = TestedSurface::installed(&*agent, surface, agentline.host_env());
                    targets.push(target.map_err(|error| CommandError::from(error.problem))?);
                }
            }
        }
    }
    Ok(targets)
}

/// Returns every pinned version of every agent.
fn pinned(
    ui: &mut Ui,
    agentline: &Agentline,
    surface: Option<Surface>,
) -> Result<Vec<TestedSurface>, CommandError> {
    let mut targets = Vec::new();
    for agent in supported(agentline) {
        let versions = install::versions(&*agent, agentline.host_env());
        for version in versions.iter().filter(|version| version.pinned) {
            targets.extend(at_version(ui, agentline, &*agent, &version.version, surface)?);
        }
    }
    Ok(targets)
}

/// Returns the surfaces that a version of an agent provides, and installs it if necessary.
fn at_version(
    ui: &mut Ui,
    agentline: &Agentline,
    agent: &dyn Agent,
    version: &str,
    surface: Option<Surface>,
) -> Result<Vec<TestedSurface>, CommandError> {
    let info = agent.info();
    let program = install::program_of_version(info, version, agentline.host_env()).program;
    let is_provided = |one: &Surface| info.for_surface(*one).program == program;
    let provided: Vec<Surface> = surfaces(agent, surface).filter(is_provided).collect();
    let Some(first) = provided.first() else { return Ok(Vec::new()) };
    let program = install::ensure(info.for_surface(*first), version, agentline.host_env(), &mut |progress| {
        match progress {
            install::InstallProgress::Working { .. } => ui.busy(&progress.to_string()),
            _ => ui.print_status(progress.to_string()),
        }
    });
    ui.clear_spinner();
    let program =
        program.map_err(|error| CommandError::Unable { message: error_chain(&error), hint: error.hint() })?;
    Ok(provided.iter().filter_map(|one| TestedSurface::new(agent, *one, &program).ok()).collect())
}

/// Returns the agents that a scripted model can serve.
fn supported(agentline: &Agentline) -> Vec<Arc<dyn Agent>> {
    let all = agentline.registry().all().iter();
    all.filter(|agent| is_supported(agent.info().id)).cloned().collect()
}

fn surfaces(agent: &dyn Agent, only: Option<Surface>) -> impl Iterator<Item = Surface> {
    let all = agent.info().surfaces.to_vec();
    all.into_iter().filter(move |surface| only.is_none_or(|only| only == *surface))
}

/// A page with a generated part.
struct Page<'a> {
    path: &'a Path,
    before: String,
    after: String,
}

impl<'a> Page<'a> {
    /// Reads a page before anything is started.
    fn read(path: &'a Path) -> Result<Self, CommandError> {
        let text = fs::read_to_string(path)
            .map_err(|error| CommandError::failed(format!("cannot read `{}`: {error}", path.display())))?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) = parts.ok_or_else(|| {
            let message = format!("`{}` has no part between `{}` and `{END}`", path.display(), BEGIN.trim());
            CommandError::failed(message)
        })?;
        Ok(Self { path, before: before.to_owned(), after: after.to_owned() })
    }

    fn write(&self, matrix: &Matrix) -> Result<(), CommandError> {
        let text = format!("{}{BEGIN}{}{END}{}", self.before, matrix.to_markdown(), self.after);
        fs::write(self.path, text)
            .map_err(|error| CommandError::failed(format!("cannot write `{}`: {error}", self.path.display())))
    }
}
