//! `agentline undo`: takes back the change that an isolated run applied.

use crate::{error::CommandError, exit, ui::Ui};
use agentline::Agentline;
use agentline_core::error_chain;
use clap::Args;
use std::io::Write as _;

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The id of the run, as `agentline run --isolate` printed it
    #[arg(value_name = "RUN")]
    run: String,
}

pub(crate) fn run(ui: &mut Ui, args: &UndoArgs) -> Result<u8, CommandError> {
    let files =
        Agentline::from_env()?.undo(&args.run).map_err(|error| CommandError::failed(error_chain(&error)))?;
    for file in files {
        writeln!(ui.out(), "{}", file.display())?;
    }
    Ok(exit::DONE)
}
