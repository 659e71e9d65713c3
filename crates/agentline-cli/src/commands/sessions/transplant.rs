//! `agentline sessions transplant`: writes a session as a new session of another agent.

use super::{SessionArg, SessionsContext};
use crate::{completers, error::CommandError, exit, output::ReportFormat, ui::Ui};
use agentline::{
    Agentline,
    sessions::{Loss, TransplantOptions},
};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use std::{io::Write, path::PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentline sessions transplant 3f2a91bc --to claude
  agentline sessions transplant latest --to opencode -m anthropic/claude-sonnet-4-5
  agentline run -a codex --resume \"$(agentline sessions transplant latest --to codex)\" \"continue\"

Prints the id of the new session. What was lost goes to standard error.
")]
pub(crate) struct TransplantArgs {
    #[command(flatten)]
    target: SessionArg,
    /// Agent that continues the session
    #[arg(long, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    to: String,
    /// Project of the new session [default: that of the session]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Model that the new session names, if its format requires one: `provider/model` [default: that of the session]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Show what would be lost, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    agentline: &Agentline,
    args: &TransplantArgs,
) -> Result<u8, CommandError> {
    let found = sessions_context.find(&args.target)?;
    let mut options = TransplantOptions::new(&args.to);
    options.project = args.cwd.as_ref().map(|dir| sessions_context.cwd.join(dir));
    options.model.clone_from(&args.model);
    if args.dry_run {
        let prepared = sessions_context.store.transplant(&found, &options)?;
        let losses = prepared.losses(&prepared.preview());
        match args.output {
            ReportFormat::Json => {
                let agent = prepared.agent().info().id;
                let report = json!({"agent": agent, "project": prepared.project(), "losses": losses});
                writeln!(ui.out(), "{report}")?;
            }
            ReportFormat::Text => show_losses(ui, &losses, "would be lost"),
        }
        return Ok(exit::DONE);
    }
    ui.busy("writing the session");
    let done = agentline.transplant(&found, &options);
    ui.clear_spinner();
    let done = done?;
    match args.output {
        ReportFormat::Json => {
            serde_json::to_writer(ui.out(), &done).map_err(std::io::Error::from)?;
            writeln!(ui.out())?;
        }
        ReportFormat::Text => {
            show_losses(ui, &done.losses, "lost");
            writeln!(ui.out(), "{}", done.id)?;
            let is_here = done.project == sessions_context.cwd;
            let cwd = if is_here { String::new() } else { format!(" -C {}", done.project.display()) };
            ui.print_status(format!(
                "continue with: agentline run -a {}{cwd} --resume {} \"…\"",
                done.agent, done.id
            ));
        }
    }
    Ok(exit::DONE)
}

/// Shows how much was lost of each kind, and why.
fn show_losses(ui: &mut Ui, losses: &[Loss], title: &str) {
    if losses.is_empty() {
        ui.print_status(format!("nothing {title}"));
        return;
    }
    ui.print_status(format!("{title}:"));
    let width = losses.iter().map(|loss| loss.kind.title().len()).max().unwrap_or(0);
    for Loss { kind, count, .. } in losses {
        ui.print_status(format!("  {count:>5}  {:<width$}  {}", kind.title(), kind.reason()));
    }
}
