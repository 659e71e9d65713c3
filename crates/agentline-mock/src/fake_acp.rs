//! A fake agent that speaks ACP (JSON-RPC, one message a line, on standard input and output) and errs on command.
//!
//! Without a fault it is a well-behaved agent: `initialize`, `authenticate`, `session/new`, `session/load` with its
//! replay, `session/set_mode`, `session/set_model`, `session/set_config_option`, `session/prompt` in any number of
//! sessions side by side, `session/cancel`, and the MCP servers that it is given.
//!
//! A prompt is the script of its own turn: each line that begins with a word of [`WORDS`] is done, in order, and the
//! other lines are left out. A prompt without such a line is answered with `You said: …`.
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
//! | `FAKE_ACP_FAULT` | names of [`FAULTS`], parted by commas; a number for it stands behind a colon: `initialize_slow:500` |
//! | `FAKE_ACP_FAULT_ONCE` | a file: only the process that creates it has the fault, so that the next one is sane |
//! | `FAKE_ACP_FAULT_PROMPTS` | a number: only so many prompts are played with the scripts of the faults |
//! | `FAKE_ACP_VERSION` | the version that it claims, instead of 1.2.3 |
//! | `FAKE_ACP_STORE` | a folder for sessions, so that `session/load` works in another process too |
//! | `FAKE_ACP_LOG` | a file that gets every line that came in, to see what the client really sent |
//!
//! `--list` prints the faults, `--words` the words of a prompt, `--version` the version.

mod agent;
mod faults;
mod mcp;
mod peer;
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

/// The version that the agent claims unless `FAKE_ACP_VERSION` says another.
pub const VERSION: &str = "1.2.3";

/// The fault with this name.
#[must_use]
pub fn fault(name: &str) -> Option<&'static AcpFault> {
    FAULTS.iter().find(|fault| fault.name == name)
}

/// The whole program: reads the command line and the environment, serves until its input ends, and returns the code.
///
/// A program of one's own may call this as its `main`; shell commands are started through the current executable, so
/// it must call it before anything else.
pub fn main() -> u8 {
    let args: Vec<String> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match run(&args) {
        Ok(code) => code,
        Err(why) => {
            // Nothing is left to say it with if this fails too.
            let _ = writeln!(io::stderr(), "fake-acp: {why}");
            2
        }
    }
}

fn run(args: &[String]) -> io::Result<u8> {
    match args.first().map(String::as_str) {
        Some(shell::FLAG) => return shell::be_shell(&args[1..]),
        Some("--list") => return list(FAULTS.iter().map(|fault| (fault.name, fault.about))),
        Some("--words") => return list(WORDS.iter().map(|word| (word.usage, word.about))),
        Some("--version" | "-v") => {
            writeln!(io::stdout(), "{}", version())?;
            return Ok(0);
        }
        _ => {}
    }
    let faults = ActiveFaults::from_env().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    if let Some(code) = faults.number(FaultFlag::ExitAtStart, 3) {
        writeln!(io::stderr(), "fake-acp: cannot start, as asked")?;
        return Ok(u8::try_from(code).unwrap_or(3));
    }
    if faults.has(FaultFlag::IgnoresSignals) {
        crate::os::ignore_signals()?;
    }
    FakeAcpAgent::new(faults).serve()
}

fn list(rows: impl Iterator<Item = (&'static str, &'static str)>) -> io::Result<u8> {
    let mut out = io::stdout().lock();
    for (name, about) in rows {
        writeln!(out, "{name:<30} {about}")?;
    }
    Ok(0)
}

fn version() -> String {
    env::var("FAKE_ACP_VERSION").unwrap_or_else(|_| VERSION.to_owned())
}
