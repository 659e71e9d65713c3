//! The whole command-line tool, built again so that tests of this package can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_tests::restore_signals();
    agentline_cli::main_impl()
}
