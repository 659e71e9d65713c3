//! The fake agent as a program; see `agentline_fakes::fake_agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(agentline_fakes::fake_agent::main())
}
