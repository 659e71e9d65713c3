//! `agentline host`: serves a program in any language over JSON-RPC on standard input and output.

use crate::{error::CommandError, exit, live_run, setup::Setup};
use agentline::host;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  agentline host                              serve requests from standard input
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"run\",\"params\":{\"prompt\":\"Say hello\"}}' | agentline host --drain
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HostArgs {
    /// Maximum number of agent processes
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    processes: u16,
    /// When standard input closes, finish pending requests instead of cancelling them
    #[arg(long)]
    drain: bool,
}

pub(crate) fn run(args: &HostArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, None)?;
    let config = setup.config()?;
    let (agentline, _) = setup.with_config(&config);
    let mut options = host::HostOptions::default();
    options.pool.max_processes = usize::from(args.processes);
    options.drain = args.drain;
    // One worker handles requests in the order in which they arrive.
    let runtime = live_run::runtime(1)?;
    let served = runtime.block_on(host::serve(
        agentline,
        tokio::io::stdin(),
        tokio::io::stdout(),
        options,
        live_run::stopped(),
    ));
    // A thread may still be blocked on standard input or output; the exit does not wait for it.
    runtime.shutdown_background();
    match served {
        Ok(()) => Ok(exit::DONE),
        // The client has disconnected, so there is nothing to report.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(exit::DONE),
        Err(error) => Err(CommandError::failed(format!("standard input or output failed: {error}"))),
    }
}
