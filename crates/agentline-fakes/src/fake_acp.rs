//! A fake ACP agent (JSON-RPC, one message per line, on standard input and output) with faults on request.
//!
//! Without a fault, it is a well-behaved agent: `initialize`, `authenticate`, `session/new`, `session/load` with its
//! replay, `session/set_mode`, `session/set_model`, `session/set_config_option`, `session/prompt` in any number of
//! concurrent sessions, `session/cancel`, and the MCP servers that it is given.
//!
//! A prompt is the script of its own turn: each line that starts with a word of [`WORDS`] is executed in order, and
//! other lines are ignored. A prompt without such a line is answered with `You said: …`.
//!
//! ```text
//! think I will write the file.
//! ask write_file hello.txt hi\n
//! say Done.
//! usage 100 20
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_ACP_FAULT` | names of [`FAULTS`], separated by commas, each with an optional parameter after a colon: `initialize_slow:500` |
//! | `FAKE_ACP_FAULT_ONCE` | a file: only the process that creates it has the fault, the next one does not |
//! | `FAKE_ACP_FAULT_PROMPTS` | a number: only this many prompts are played with the scripts of the faults |
//! | `FAKE_ACP_VERSION` | the reported version instead of 1.2.3 |
//! | `FAKE_ACP_MODES` | the ids of its modes, separated by commas, instead of its own; the first one is the initial mode |
//! | `FAKE_ACP_STORE` | a directory for sessions, so that `session/load` also works in another process |
//! | `FAKE_ACP_LOG` | a file to which every received line is written |
//!
//! `--list` prints the faults, `--words` the words of a prompt, `--version` the version.

mod agent;
mod control;
mod faults;
mod mcp;
mod peer;
mod script;
mod serve;
mod session;
mod shapes;
mod shell;
mod table;
mod tools;
mod turn;
mod words;

use std::env;
use std::io::{self, Write};

use agent::FakeAcpAgent;
use faults::{ActiveFaults, FaultFlag};

pub use faults::AcpFault;
pub use table::FAULTS;
pub use words::{ScriptWord, WORDS};

/// The version that the agent reports unless `FAKE_ACP_VERSION` is set.
pub const VERSION: &str = "1.2.3";

/// Returns the fault with this name.
#[must_use]
pub fn fault(name: &str) -> Option<&'static AcpFault> {
    FAULTS.iter().find(|fault| fault.name == name)
}

/// Runs the whole program: reads the command line and the environment, serves until its input ends, and returns the
/// exit code.
///
/// Another program may call this as its `main`. Shell commands are started through the current executable, so the
/// program must call it before anything else.
pub fn main() -> u8 {
    let args: Vec<String> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            // If this fails too, there is no way to report it.
            let _ = writeln!(io::stderr(), "fake-acp: {error}");
            2
        }
    }
}

fn run(args: &[String]) -> io::Result<u8> {
    match args.first().map(String::as_str) {
        Some(shell::FLAG) => return shell::be_shell(&args[1..]),
        Some("--list") => return list(FAULTS.iter().map(|fault| (fault.name, fault.description))),
        Some("--words") => return list(WORDS.iter().map(|word| (word.usage, word.description))),
        Some("--version" | "-v") => {
            writeln!(io::stdout(), "{}", version())?;
            return Ok(0);
        }
        _ => {}
    }
    let faults =
        ActiveFaults::from_env().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    if let Some(code) = faults.number(FaultFlag::ExitAtStart, 3) {
        writeln!(io::stderr(), "fake-acp: cannot start (requested fault)")?;
        return Ok(u8::try_from(code).unwrap_or(3));
    }
    if faults.has(FaultFlag::IgnoresSignals) {
        crate::os::ignore_signals()?;
    }
    FakeAcpAgent::new(faults).serve()
}

fn list(rows: impl Iterator<Item = (&'static str, &'static str)>) -> io::Result<u8> {
    let mut out = io::stdout().lock();
    for (name, description) in rows {
        writeln!(out, "{name:<30} {description}")?;
    }
    Ok(0)
}

fn version() -> String {
    env::var("FAKE_ACP_VERSION").unwrap_or_else(|_| VERSION.to_owned())
}
