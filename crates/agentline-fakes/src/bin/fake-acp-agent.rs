//! The fake ACP agent as a program; see `agentline_mock::fake_acp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_mock::fake_acp::main().into()
}
