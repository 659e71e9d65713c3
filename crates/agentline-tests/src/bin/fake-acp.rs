//! The fake ACP agent, as a program that the tests of this crate can start.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_mock::fake_acp::main().into()
}
