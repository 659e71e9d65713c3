//! The command-line tool: words in, the answer on standard output, everything else on standard error.
//!
//! It is a library so that a test can build the whole program a second time; `main.rs` calls [`main_impl`] and nothing
//! else.

mod args;
mod commands;
mod exit;
mod live;
mod prompt;
mod question;
mod render;
mod setup;
mod stop;
mod ui;
mod when;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;
use ui::Ui;

/// The whole program.
pub fn main_impl() -> ExitCode {
    // Our own program is also the one that clears up after a run; this must come before any thread.
    agentline::process::supervisor_main_if_asked();
    // All of its children are the library's.
    agentline::process::adopt_orphans();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(Ui::default().usage(&error)),
    };
    let mut ui = Ui::new(cli.global);
    let done = match cli.command {
        Command::Run(args) => commands::run::run(&mut ui, *args),
        Command::Replay(args) => commands::replay::run(&mut ui, &args),
        Command::Sessions(args) => commands::sessions::run(&mut ui, args),
        Command::Doctor(args) => commands::doctor::run(&mut ui, &args),
        Command::Agents(args) => commands::agents::run(&mut ui, &args),
        Command::Policy(args) => commands::policy::run(&mut ui, &args),
        Command::Pool(args) => commands::pool::run(&mut ui, args),
        Command::Cache(args) => commands::cache::run(&mut ui, &args),
        Command::Prices(args) => commands::prices::run(&mut ui, &args),
        // It writes by itself, and the thread that does may still wait for a program that has ceased to read.
        Command::Host(args) => {
            return ExitCode::from(commands::host::run(&args).unwrap_or_else(|stop| ui.stop(&stop)));
        }
        Command::Demo(args) => commands::demo::run(&mut ui, &args),
        Command::Config(args) => commands::config::run(&mut ui, &args),
        Command::Trust(args) => commands::trust::run(&mut ui, &args),
        Command::Completions(args) => commands::completions::run(&mut ui, &args),
    };
    let done = done.and_then(|code| ui.flush().map(|()| code).map_err(stop::Stop::from));
    ExitCode::from(done.unwrap_or_else(|stop| ui.stop(&stop)))
}
