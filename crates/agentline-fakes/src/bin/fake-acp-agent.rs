//! The fake ACP agent as a program; see `agentline_fakes::fake_acp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_fakes::fake_acp::main().into()
}
