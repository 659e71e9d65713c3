//! `agentline install`: installs pinned versions of agents into the cache directory, and lists them.

use crate::{
    completers,
    error::CommandError,
    exit,
    output::ReportFormat,
    render::table::{Column, Table},
    setup::Setup,
    ui::Ui,
};
use agentline::{
    Agentline,
    install::{self, AgentVersion, InstallError, InstallProgress},
};
use agentline_core::{AgentInfo, Problem, Problems, agents::split_version, error_chain};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentline install gemini              the version that agentline is tested with
  agentline install gemini@0.24.0       another version
  agentline run -a gemini@0.24.0 \"…\"    use it
  agentline install claude@0.99.0       an ACP adapter, by its own version
  agentline install --list              the pinned and the installed versions

Pinned versions are installed by a lock file with the hashes of all packages. npm and pip use your settings (registry, \
proxy, credentials) and a private home directory. Your own installation of an agent is used unless a run names a version.
")]
pub(crate) struct InstallArgs {
    /// Agents to install, with a version if it is not the tested one
    #[arg(value_name = "AGENT[@VERSION]", required_unless_present = "list", add = ArgValueCompleter::new(completers::agents))]
    agents: Vec<String>,
    /// List the pinned and the installed versions, of all agents or of those named
    #[arg(long)]
    list: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &InstallArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, None)?;
    let agentline = setup.with_config(&setup.config()?).0;
    if args.list {
        return list(ui, args, &agentline);
    }
    // All names are checked before anything is installed.
    let (mut targets, mut problems) = (Vec::new(), Vec::new());
    for name in &args.agents {
        match agentline.registry().find(name) {
            Ok(agent) => targets.push((agent, split_version(name).1)),
            Err(problem) => problems.push(problem),
        }
    }
    let checked = targets.iter().map(|(agent, version)| target(agent.info(), *version, &agentline));
    problems.extend(checked.filter_map(Result::err));
    Problems(problems).into_result()?;
    let mut done = Vec::new();
    for (agent, version) in &targets {
        let info = target(agent.info(), *version, &agentline)?;
        let version = version.unwrap_or(info.pinned);
        let mut began = false;
        let program = install::ensure(info, version, agentline.host_env(), &mut |progress| match progress {
            InstallProgress::Working { .. } => ui.busy(&progress.to_string()),
            InstallProgress::NotPinned { .. } => ui.warn(&progress.to_string()),
            InstallProgress::Waiting { .. } | InstallProgress::Installing { .. } => {
                began = true;
                ui.print_status(progress.to_string());
            }
            _ => ui.print_status(progress.to_string()),
        });
        ui.clear_spinner();
        let program = program.map_err(stopped)?;
        if !began {
            ui.print_status(format!("{} {version} is already installed", info.title));
        }
        match args.output {
            ReportFormat::Text => ui.report(&format!("{}", program.path.display()))?,
            ReportFormat::Json => {
                let all = install::versions(&**agent, agentline.host_env());
                done.extend(
                    all.into_iter().filter(|row| row.version == version && row.package == info.package),
                );
            }
        }
    }
    if args.output == ReportFormat::Json {
        writeln!(ui.out(), "{}", serde_json::to_string(&done).unwrap_or_default())?;
    }
    Ok(exit::DONE)
}

/// Returns the description of the program to install.
fn target<'a>(
    info: AgentInfo<'a>,
    version: Option<&str>,
    agentline: &Agentline,
) -> Result<AgentInfo<'a>, Problem> {
    if info.package.is_empty() {
        let problem = Problem::new("agent", format!("agentline does not know the package of `{}`", info.id));
        return Err(problem.hint(format!("set `package` in `[agents.{}]`", info.id)));
    }
    match version {
        Some(version) => Ok(install::program_of_version(info, version, agentline.host_env())),
        None if info.pinned.is_empty() => {
            let problem = Problem::new("agent", format!("`{}` has no tested version", info.id));
            Err(problem.hint(format!("name a version: `agentline install {}@VERSION`", info.id)))
        }
        None => Ok(info),
    }
}

fn stopped(error: InstallError) -> CommandError {
    match &error {
        InstallError::Version(_) | InstallError::NotPinned { .. } => {
            Problem::new("agent", error.to_string()).hint(error.hint()).into()
        }
        _ => CommandError::Unable { message: error_chain(&error), hint: error.hint() },
    }
}

fn list(ui: &mut Ui, args: &InstallArgs, agentline: &Agentline) -> Result<u8, CommandError> {
    let mut rows = Vec::new();
    if args.agents.is_empty() {
        for agent in agentline.registry().available() {
            rows.extend(install::versions(&*agent, agentline.host_env()));
        }
    }
    for name in &args.agents {
        let (agent, version) = (agentline.registry().find(name)?, split_version(name).1);
        let all = install::versions(&*agent, agentline.host_env());
        rows.extend(all.into_iter().filter(|row| version.is_none_or(|version| row.version == version)));
    }
    if args.output == ReportFormat::Json {
        writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?;
        return Ok(exit::DONE);
    }
    let titles = ["agent", "program", "package", "state", "installed in"];
    let mut table = Table::new(titles.map(Column::left).to_vec()).keys(1);
    for row in &rows {
        let path = row.path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
        let name = format!("{}@{}", row.agent, row.version);
        table.row(vec![name, row.program.clone(), row.package.clone(), state(row).to_owned(), path]);
    }
    let width = ui.width();
    table.write(ui, width)?;
    Ok(exit::DONE)
}

fn state(row: &AgentVersion) -> &'static str {
    match (row.default, row.pinned) {
        (true, _) => "tested",
        (false, true) => "pinned",
        (false, false) => "not pinned",
    }
}
