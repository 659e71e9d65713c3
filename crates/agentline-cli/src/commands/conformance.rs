//! `agentline conformance`: plays the scenarios of the conformance kit on agents, against scripted models.

use crate::{completers, error::CommandError, exit, live_run, output::ReportFormat, ui::Ui};
use agentline::{Agent, Agentline, Problem, Signal, Surface, install};
use agentline_conformance::{
    CellStatus, Matrix, Progress, Scenario, TestedSurface, is_supported, run as play, scenarios, updated_page,
};
use agentline_core::{agents::split_version, error_chain};
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
version, then the failed expectations.

Exit codes: 0 if everything passed or is a known difference; 1 if a scenario failed or a version could not be \
installed; 2 if an argument is invalid; 3 if no agent is installed.
")]
pub(crate) struct ConformanceArgs {
    /// Only this agent; with @VERSION, install that version if necessary [default: every installed agent]
    #[arg(short, long = "agent", value_name = "AGENT[@VERSION]", add = ArgValueCompleter::new(completers::agents))]
    agents: Vec<String>,
    /// Only this surface: json, stream-json, acp, app-server, serve
    #[arg(long, value_name = "SURFACE")]
    surface: Option<String>,
    /// Only this scenario (repeatable)
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Every pinned version of every agent or of those named, installed if necessary
    #[arg(long)]
    matrix: bool,
    /// Write the results into a Markdown page, between `<!-- matrix -->` and `<!-- end of matrix -->`; results that
    /// are not played again stay
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &ConformanceArgs) -> Result<u8, CommandError> {
    let mut page = args.to.as_deref().map(Page::read).transpose()?;
    let scenarios = selected(&args.scenarios)?;
    let agentline = Agentline::from_env()?;
    let surface = args.surface.as_deref().map(parse_surface).transpose()?;
    let mut is_complete = true;
    let targets = if args.matrix {
        pinned(ui, &agentline, &args.agents, surface, &mut is_complete)?
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
    let mut matrix = Matrix::default();
    let total = targets.len() * scenarios.len();
    // A version at a time, so that an interrupted matrix keeps what was played.
    let is_same =
        |one: &TestedSurface, next: &TestedSurface| (&one.agent, one.version) == (&next.agent, next.version);
    for targets in targets.chunk_by(is_same) {
        let played = play_on(ui, &agentline, targets, &scenarios, (matrix.cells.len(), total))?;
        if let Some(page) = &mut page {
            page.write(&played, &listed(&agentline))?;
        }
        matrix.cells.extend(played.cells);
    }
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{}", serde_json::to_string(&matrix).unwrap_or_default())?,
        ReportFormat::Text => ui.report(&matrix.to_text())?,
    }
    Ok(if matrix.is_ok() && is_complete { exit::DONE } else { exit::FAILED })
}

/// Plays scenarios and shows their progress; the last argument is how many of all were played before.
pub(super) fn play_on(
    ui: &mut Ui,
    agentline: &Agentline,
    targets: &[TestedSurface],
    scenarios: &[Scenario],
    (mut done, total): (usize, usize),
) -> Result<Matrix, CommandError> {
    // Agents wait for their model and for timeouts, so one run more than there are cores.
    let at_once = available_parallelism().map_or(2, usize::from) + 1;
    let matrix = live_run::start(|| async {
        let mut show = |progress: Progress<'_>| match progress {
            Progress::Target { target, scenarios } => {
                ui.print_status(format!("{target}: {scenarios} scenarios"));
            }
            Progress::Started { target, scenario } => {
                ui.busy(&format!("{done} of {total}: {target}: {scenario}"));
            }
            Progress::Finished { cell } => {
                done += 1;
                let name = format!("{}: {}", cell.target, cell.scenario);
                if let CellStatus::Fail { differences } = &cell.status {
                    ui.print_status(format!("  {name} failed"));
                    for one in differences {
                        let (aspect, expected, observed) = (one.aspect.name(), &one.expected, &one.observed);
                        ui.detail(format!("    {aspect}: expected {expected}, observed {observed}"));
                    }
                } else {
                    ui.detail(format!("  {name} {} ({} ms)", cell.status.word(), cell.took_ms));
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
            Problem::new("--scenario", format!("`{name}` is not a scenario"))
                .hint(format!("known scenarios: {}", known.join(", ")))
                .into()
        })
    };
    names.iter().map(find).collect()
}

fn parse_surface(name: &str) -> Result<Surface, CommandError> {
    let found = Surface::ALL.iter().find(|surface| surface.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = Surface::ALL.iter().map(|surface| surface.name()).collect();
        Problem::new("--surface", format!("`{name}` is not a surface"))
            .hint(format!("known surfaces: {}", known.join(", ")))
            .into()
    })
}

/// Returns the surfaces of the installed agents.
fn installed(ui: &mut Ui, agentline: &Agentline, surface: Option<Surface>) -> Vec<TestedSurface> {
    let mut targets = Vec::new();
    for agent in supported(agentline.registry().all().to_vec()) {
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
        let (name, version) = split_version(name);
        let agent = agentline.registry().find(name)?;
        match version {
            Some(version) => targets.extend(at_version(ui, agentline, &*agent, version, surface)?),
            None => targets.extend(installed_surfaces(ui, agentline, &*agent, surface)?),
        }
    }
    Ok(targets)
}

/// Returns the surfaces of an agent that are installed; fails if none is, or if the one asked for is not.
fn installed_surfaces(
    ui: &mut Ui,
    agentline: &Agentline,
    agent: &dyn Agent,
    surface: Option<Surface>,
) -> Result<Vec<TestedSurface>, CommandError> {
    let mut targets = Vec::new();
    let mut missing = None;
    for surface in surfaces(agent, surface) {
        match TestedSurface::installed(agent, surface, agentline.host_env()) {
            Ok(target) => targets.push(target),
            Err(error) => {
                ui.detail(format!("{} {surface}: {error}", agent.info().id));
                missing.get_or_insert(error);
            }
        }
    }
    match missing {
        Some(error) if targets.is_empty() => Err(CommandError::from(error.problem)),
        _ => Ok(targets),
    }
}

/// Returns every pinned version of every agent, or of the named ones. A version that cannot be installed is reported and
/// left out.
fn pinned(
    ui: &mut Ui,
    agentline: &Agentline,
    names: &[String],
    surface: Option<Surface>,
    is_complete: &mut bool,
) -> Result<Vec<TestedSurface>, CommandError> {
    let mut agents = Vec::new();
    for name in names {
        if let (agent, Some(version)) = split_version(name) {
            let problem =
                Problem::new("agent", format!("`--matrix` plays every pinned version, not only {version}"));
            return Err(problem.hint(format!("write `-a {agent}`, or leave out `--matrix`")).into());
        }
        agents.push(agentline.registry().find(name)?);
    }
    if names.is_empty() {
        agents = supported(agentline.registry().available());
    }
    let mut targets = Vec::new();
    for agent in agents {
        let versions = install::versions(&*agent, agentline.host_env());
        for version in versions.iter().filter(|version| version.pinned) {
            match at_version(ui, agentline, &*agent, &version.version, surface) {
                Ok(found) => targets.extend(found),
                Err(CommandError::Unable { message, hint }) => {
                    ui.error(&message, Some(&hint));
                    *is_complete = false;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(targets)
}

/// Returns the agents and versions that the matrix of a page lists.
fn listed(agentline: &Agentline) -> Vec<(String, String)> {
    let agents = supported(agentline.registry().available());
    let versions = agents.iter().flat_map(|agent| install::versions(&**agent, agentline.host_env()));
    versions.filter(|version| version.pinned).map(|version| (version.agent, version.version)).collect()
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

/// Returns those agents that a scripted model can serve.
fn supported(mut agents: Vec<Arc<dyn Agent>>) -> Vec<Arc<dyn Agent>> {
    agents.retain(|agent| is_supported(agent.info().id));
    agents
}

fn surfaces(agent: &dyn Agent, only: Option<Surface>) -> impl Iterator<Item = Surface> {
    let all = agent.info().surfaces.to_vec();
    all.into_iter().filter(move |surface| only.is_none_or(|only| only == *surface))
}

/// A page with a generated part.
struct Page<'a> {
    path: &'a Path,
    before: String,
    matrix: String,
    after: String,
}

impl<'a> Page<'a> {
    /// Reads a page before anything is started.
    fn read(path: &'a Path) -> Result<Self, CommandError> {
        let invalid = |message: String| {
            Problem::new("--to", message)
                .hint(format!("pass a Markdown page with a part between `{}` and `{END}`", BEGIN.trim()))
        };
        let text = fs::read_to_string(path)
            .map_err(|error| invalid(format!("cannot read `{}`: {error}", path.display())))?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
        let (before, (matrix, after)) = parts.ok_or_else(|| {
            invalid(format!("`{}` has no part between `{}` and `{END}`", path.display(), BEGIN.trim()))
        })?;
        Ok(Self { path, before: before.to_owned(), matrix: matrix.to_owned(), after: after.to_owned() })
    }

    /// Replaces the sections of the versions that were played.
    fn write(&mut self, played: &Matrix, versions: &[(String, String)]) -> Result<(), CommandError> {
        self.matrix = updated_page(&self.matrix, played, versions);
        let text = format!("{}{BEGIN}{}{END}{}", self.before, self.matrix, self.after);
        fs::write(self.path, text)
            .map_err(|error| CommandError::failed(format!("cannot write `{}`: {error}", self.path.display())))
    }
}
