//! `agentline doctor`: checks installed agents, sign-in and settings.

mod deep;

use crate::{completers, error::CommandError, exit, output::ReportFormat, setup::Setup, ui::Ui};
use agentline::{Agentline, Trust, doctor};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use deep::DeepReport;
use std::{io::Write, path::PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line per agent with its state and the next step. With AGENT or --verbose, prints all details: versions, \
searched locations, sign-in methods, withheld variables, problems and fixes. With --deep, also prints which \
scenarios passed, and the known deviations of each agent. These runs use a private home directory and no service.

Exit codes: 0 if an agent is ready; 2 if the settings are invalid; 3 if no agent is installed; 4 if an agent is \
installed but not signed in; 1 for other problems, or if a scenario of --deep failed.
")]
pub(crate) struct DoctorArgs {
    /// Only this agent, with all details
    #[arg(add = ArgValueCompleter::new(completers::agents))]
    agent: Option<String>,
    /// Also play about a dozen scenarios on each installed agent, against a scripted model; takes a minute or two
    #[arg(long)]
    deep: bool,
    /// Workspace to check [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &DoctorArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(args.cwd.as_deref(), None)?;
    // Invalid settings are reported at the end, after all other checks.
    let settings = setup.config();
    let (mut agentline, mut trust) = (Agentline::from_env()?, Trust::default());
    if let Ok(config) = &settings {
        for notice in &config.notices {
            ui.warn(&notice.message);
        }
        let (equipped, request) = setup.with_config(config);
        (agentline, trust) = (equipped, request.trust);
    }
    let cwd = &agentline.host_env().cwd;
    let cwd = args.cwd.as_ref().map_or_else(|| cwd.clone(), |dir| cwd.join(dir));
    let mut report = match &args.agent {
        Some(name) => agentline.doctor_of(&*agentline.registry().find(name)?, &cwd, trust),
        None => agentline.doctor(&cwd, trust),
    };
    report.supervisor = Some(cfg!(unix));
    let is_detailed = args.agent.is_some() || ui.is_verbose();
    let deep =
        if args.deep { Some(DeepReport::create(ui, &agentline, args.agent.as_deref())?) } else { None };
    match args.output {
        ReportFormat::Json => {
            let mut json = serde_json::to_value(&report).unwrap_or_default();
            if let Some(deep) = &deep {
                json["conformance"] = serde_json::to_value(deep).unwrap_or_default();
            }
            writeln!(ui.out(), "{json}")?;
        }
        ReportFormat::Text if is_detailed => ui.report(&doctor::render(&report))?,
        ReportFormat::Text => ui.report(&doctor::summarize(&report))?,
    }
    if let (Some(deep), ReportFormat::Text) = (&deep, args.output) {
        ui.report(&deep.to_text())?;
    }
    settings?;
    Ok(match () {
        () if deep.is_some_and(|deep| !deep.matrix.is_ok()) => exit::FAILED,
        () if report.ok() => exit::DONE,
        () if report.agents.iter().all(|agent| !agent.installed) => exit::NOT_INSTALLED,
        () if report.agents.iter().any(|agent| {
            agent.installed && !agent.sign_in.is_empty() && !agent.sign_in.iter().any(|way| way.wins)
        }) =>
        {
            exit::NOT_AUTHENTICATED
        }
        () => exit::FAILED,
    })
}
