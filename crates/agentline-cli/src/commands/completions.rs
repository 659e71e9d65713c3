//! `agentline completions`: prints shell completions.

use crate::{error::CommandError, exit, ui::Ui};
use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use std::io::Write;

/// The variable with which the script asks the program for candidates.
pub(crate) const VARIABLE: &str = "COMPLETE";

#[derive(Debug, Args)]
#[command(after_help = "\
The script asks `agentline` for candidates, so it also completes agents, models and session ids.

Examples:
  bash: agentline completions bash > ~/.local/share/bash-completion/completions/agentline
  zsh:  agentline completions zsh > \"${fpath[1]}/_agentline\"
  fish: agentline completions fish > ~/.config/fish/completions/agentline.fish
")]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

/// A shell with completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

pub(crate) fn run(ui: &mut Ui, args: &CompletionsArgs) -> Result<u8, CommandError> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::Powershell => &Powershell,
        Shell::Zsh => &Zsh,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "agentline", "agentline", "agentline", &mut script)?;
    ui.out().write_all(&script)?;
    Ok(exit::DONE)
}
