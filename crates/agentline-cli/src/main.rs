//! The `agentline` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_cli::main_impl()
}
