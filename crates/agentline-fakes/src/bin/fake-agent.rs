//! The fake agent as a program; see `agentline_mock::fake_agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(agentline_mock::fake_agent::main())
}
