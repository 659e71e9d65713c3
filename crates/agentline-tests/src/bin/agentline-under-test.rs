//! The whole command-line tool, built a second time so that tests of this package can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_tests::restore_signals();
    agentline_cli::main_impl()
}
