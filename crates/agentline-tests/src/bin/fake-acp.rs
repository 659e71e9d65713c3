//! The fake ACP agent, as a program for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_fakes::fake_acp::main().into()
}
