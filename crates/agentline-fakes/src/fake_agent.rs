//! A fake Gemini CLI with faults on request.
//!
//! It reads its prompt from standard input, ignores most of its command line, and plays one of [`FAULTS`]:
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_AGENT_FAULT` | the name of the fault; by default `ok`, a run without a fault. `exit_41` means `exit_code` with 41 |
//! | `FAKE_AGENT_ARGS` | a JSON object with the fault's parameters, for example `{"bytes": 1000}` |
//!
//! It writes Gemini's stream-json, or with `-o json`, Gemini's single JSON document: events are then omitted, but
//! faults in the bytes or the process still apply. `--version` answers like Gemini CLI 0.61.0, whatever the fault,
//! unless the fault affects the version. `--list` prints the faults.
//!
//! A fault about processes starts children of this same program. They inherit the environment, write their process id
//! as a line to the file of the parameter `pid_file` before the agent continues, and exit after `seconds` (120), so
//! that a failing test leaves nothing behind for long.

mod agent;
mod children;
mod clock;
mod ends;
mod hangs;
mod inputs;
mod lines;
mod order;
mod secrets;
mod shapes;
mod table;
mod workspace;

use std::env;
use std::io::{self, Write};

use agent::FakeAgent;
use serde_json::Value;

pub use ends::EXIT_CODES;
pub use table::FAULTS;

/// One fault.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AgentFault {
    /// The value of `FAKE_AGENT_FAULT`.
    pub name: &'static str,
    /// The parameters that it accepts.
    pub params: &'static [&'static str],
    /// A one-sentence description.
    pub description: &'static str,
    play: Play,
}

/// Plays a fault and returns the exit code.
type Play = fn(&mut FakeAgent) -> io::Result<u8>;

/// Returns the fault with this name.
pub fn fault(name: &str) -> Option<&'static AgentFault> {
    FAULTS.iter().find(|fault| fault.name == name)
}

/// Runs the whole program: reads the command line and the environment, plays, and returns the exit code.
///
/// Another program may call this as its `main`. The children of a fault are started from the current
/// executable, so the program must call it before anything else.
pub fn main() -> u8 {
    let args: Vec<String> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match run(&args) {
        Ok(code) => code,
        // As the real one does when its output is no longer read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            // If this fails too, there is no way to report it.
            let _ = writeln!(io::stderr(), "fake-agent: {error}");
            2
        }
    }
}

fn run(args: &[String]) -> io::Result<u8> {
    match args.first().map(String::as_str) {
        Some(children::FLAG) => return children::be_child(&args[1..]),
        Some("--list") => return list(),
        _ => {}
    }
    let name = env::var("FAKE_AGENT_FAULT").unwrap_or_else(|_| "ok".to_owned());
    let (name, code) = match name.strip_prefix("exit_").and_then(|code| code.parse::<u8>().ok()) {
        Some(code) => ("exit_code".to_owned(), Some(code)),
        None => (name, None),
    };
    let fault = fault(&name).ok_or_else(|| wrong(format!("there is no fault `{name}`; see `--list`")))?;
    let mut params = params(fault)?;
    if let Some(code) = code {
        params["code"] = code.into();
    }
    let asks_version = args.iter().any(|arg| arg == "--version" || arg == "-v");
    if asks_version && !fault.name.starts_with("version_") {
        writeln!(io::stdout(), "{}", agent::VERSION)?;
        return Ok(0);
    }
    (fault.play)(&mut FakeAgent::new(args, params, asks_version))
}

/// Returns the parameters, all of which the fault must accept: a misspelled one would make a test prove nothing.
fn params(fault: &AgentFault) -> io::Result<Value> {
    let text = env::var("FAKE_AGENT_ARGS").unwrap_or_else(|_| "{}".to_owned());
    let params: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("FAKE_AGENT_ARGS is not JSON: {error}")))?;
    let object = params.as_object().ok_or_else(|| wrong("FAKE_AGENT_ARGS is not an object".to_owned()))?;
    match object.keys().find(|key| !fault.params.contains(&key.as_str())) {
        Some(key) => {
            Err(wrong(format!("`{}` has no parameter `{key}`; it has {:?}", fault.name, fault.params)))
        }
        None => Ok(params),
    }
}

fn list() -> io::Result<u8> {
    let mut out = io::stdout().lock();
    for fault in FAULTS {
        let params = if fault.params.is_empty() { String::new() } else { format!(" {:?}", fault.params) };
        writeln!(out, "{:<26} {}{params}", fault.name, fault.description)?;
    }
    Ok(0)
}

fn wrong(error: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
