//! The fake agent that replaces Gemini CLI in the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentline_fakes::fake_agent::main().into()
}
