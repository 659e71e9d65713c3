//! `agentline completions`: prints shell completions.

use crate::{error::CommandError, exit, ui::Ui};
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bash: agentline completions bash > ~/.local/share/bash-completion/completions/agentline
  zsh:  agentline completions zsh > \"${fpath[1]}/_agentline\"
  fish: agentline completions fish > ~/.config/fish/completions/agentline.fish
")]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

pub(crate) fn run(
    ui: &mut Ui,
    args: &CompletionsArgs,
    mut program: clap::Command,
) -> Result<u8, CommandError> {
    // The generator panics on write errors, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "agentline", &mut script);
    ui.out().write_all(&script)?;
    Ok(exit::DONE)
}
