//! The `agentline` command-line program. Standard output has the answer, standard error everything else.
//!
//! It is a library so that a test can build the program a second time; `main.rs` only calls [`main_impl`].

mod args;
mod commands;
mod completers;
mod error;
mod exit;
mod keyboard;
mod live_run;
mod output;
mod permission_prompt;
mod prompt;
mod render;
mod setup;
mod time;
mod ui;

use args::{Cli, CliCommand};
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use std::process::ExitCode;
use ui::Ui;

/// Returns the command-line parser with all commands, for documentation and its tests.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program.
pub fn main_impl() -> ExitCode {
    // This executable is also the supervisor of a run. The check must come before any thread is started.
    agentline::init();
    // All children of this process belong to the library.
    agentline::supervisor::adopt_orphans();
    // A shell asks for candidates. This ends the process.
    CompleteEnv::with_factory(Cli::command).var(commands::completions::VARIABLE).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(Ui::default().usage(&error)),
    };
    let mut ui = Ui::new(cli.global);
    let done = match cli.command {
        CliCommand::Run(args) => commands::run::run(&mut ui, *args),
        CliCommand::Batch(args) => commands::batch::run(&mut ui, &args),
        CliCommand::Report(args) => commands::report::run(&mut ui, &args),
        CliCommand::Worker(args) => commands::worker::run(&mut ui, &args),
        CliCommand::Compare(args) => commands::compare::run(&mut ui, &args),
        CliCommand::Replay(args) => commands::replay::run(&mut ui, &args),
        CliCommand::Sessions(args) => commands::sessions::run(&mut ui, args),
        CliCommand::Doctor(args) => commands::doctor::run(&mut ui, &args),
        CliCommand::Conformance(args) => commands::conformance::run(&mut ui, &args),
        CliCommand::Agents(args) => commands::agents::run(&mut ui, &args),
        CliCommand::Install(args) => commands::install::run(&mut ui, &args),
        CliCommand::Policy(args) => commands::policy::run(&mut ui, &args),
        CliCommand::Pool(args) => commands::pool::run(&mut ui, args),
        CliCommand::Cache(args) => commands::cache::run(&mut ui, &args),
        CliCommand::Prices(args) => commands::prices::run(&mut ui, &args),
        // The host writes its output itself, and its writer may be blocked by a client that no longer reads.
        CliCommand::Host(args) => {
            return ExitCode::from(commands::host::run(&args).unwrap_or_else(|stop| ui.stop(&stop)));
        }
        // As with the host, standard output belongs to the protocol.
        CliCommand::Acp(args) => {
            return ExitCode::from(commands::acp::run(&mut ui, *args).unwrap_or_else(|stop| ui.stop(&stop)));
        }
        CliCommand::Mcp(args) => {
            return ExitCode::from(commands::mcp::run(&mut ui, &args).unwrap_or_else(|stop| ui.stop(&stop)));
        }
        CliCommand::Serve(args) => commands::serve::run(&mut ui, *args),
        CliCommand::Demo(args) => commands::demo::run(&mut ui, &args),
        CliCommand::Config(args) => commands::config::run(&mut ui, &args),
        CliCommand::Trust(args) => commands::trust::run(&mut ui, &args),
        CliCommand::Undo(args) => commands::undo::run(&mut ui, &args),
        CliCommand::Completions(args) => commands::completions::run(&mut ui, &args),
    };
    let done = done.and_then(|code| ui.flush().map(|()| code).map_err(error::CommandError::from));
    ExitCode::from(done.unwrap_or_else(|stop| ui.stop(&stop)))
}
