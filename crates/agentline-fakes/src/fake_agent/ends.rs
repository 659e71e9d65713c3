//! Faults in the end of a run: misleading exit codes, crashes, no result.

use std::io;

use serde_json::json;

use super::agent::{FILE, FakeAgent};
use crate::os::{self, signal};

/// Exit codes that Gemini CLI is known to use, each of which a driver must handle.
///
/// From 144 on they are HTTP statuses modulo 256 (400, 401, 403, 429, 500, 503), not signals.
pub const EXIT_CODES: &[u8] = &[0, 1, 41, 42, 44, 52, 53, 54, 55, 127, 130, 144, 145, 147, 173, 244, 247];

/// Returns what Gemini CLI writes to standard error with a code.
const MESSAGES: &[(u8, &str)] = &[
    (41, "When using Gemini API, you must specify the GEMINI_API_KEY environment variable."),
    (
        42,
        "No input provided via stdin. Input can be provided by piping data into gemini or using the --prompt option.",
    ),
    (44, "FatalSandboxError: Sandbox image is missing or could not be pulled."),
    (52, "Error in settings.json: Expected property name or '}' in JSON at position 1"),
    (
        53,
        "Reached max session turns for this session. Increase the number of turns by specifying maxSessionTurns in settings.json.",
    ),
    (55, "Gemini CLI is not running in a trusted directory."),
    (127, "env: 'node': No such file or directory"),
    (130, "Operation cancelled."),
];

pub(super) fn exit_code(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    leave(agent)
}

pub(super) fn exit_code_after_text(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("I was about to ")?;
    leave(agent)
}

pub(super) fn exit_code_with_result(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let code = code(agent);
    agent.fail("unknown", "[API Error: {\"error\":{\"code\":401,\"message\":\"no\"}}]", code)
}

/// What Gemini CLI reports in its result with exit code 54. It prints nothing on standard error.
const FULL_DISK: (&str, &str) =
    ("no_space_left", "Error executing tool write_file: No space left on device: hello.txt (ENOSPC)");

fn leave(agent: &mut FakeAgent) -> io::Result<u8> {
    let code = code(agent);
    if code == 54 {
        return agent.fail(FULL_DISK.0, FULL_DISK.1, code);
    }
    if let Some((_, message)) = MESSAGES.iter().find(|(known, _)| *known == code) {
        agent.stderr(format!("{message}\n"))?;
    }
    Ok(code)
}

fn code(agent: &FakeAgent) -> u8 {
    u8::try_from(agent.number("code", 1)).unwrap_or(1)
}

pub(super) fn no_output(_: &mut FakeAgent) -> io::Result<u8> {
    Ok(0)
}

pub(super) fn success_exit_1(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()?;
    Ok(1)
}

pub(super) fn error_exit_0(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let message = json!("The model returned an empty response with no text or thoughts.");
    agent.event("error", &[("severity", json!("error")), ("message", message)])?;
    // The real one gives no reason in this result.
    agent.event("result", &[("status", json!("error")), ("stats", agent.stats())])?;
    Ok(0)
}

pub(super) fn killed_sigkill(agent: &mut FakeAgent) -> io::Result<u8> {
    die(agent, signal::KILL)
}

pub(super) fn killed_sigsegv(agent: &mut FakeAgent) -> io::Result<u8> {
    die(agent, signal::SEGV)
}

pub(super) fn killed_sigabrt(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.stderr("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n")?;
    die(agent, signal::ABRT)
}

pub(super) fn killed_sigterm(agent: &mut FakeAgent) -> io::Result<u8> {
    die(agent, signal::TERM)
}

pub(super) fn killed_with_tool_open(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    std::fs::write(FILE.0, "hi th")?;
    os::die_by(signal::KILL)?;
    Ok(0)
}

pub(super) fn killed_after_result(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()?;
    os::die_by(signal::SEGV)?;
    Ok(0)
}

fn die(agent: &mut FakeAgent, signal: i32) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("I was about to ")?;
    os::die_by(signal)?;
    Ok(0)
}

pub(super) fn node_stack(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.stderr(concat!(
        "file:///usr/lib/node_modules/@google/gemini-cli/bundle/gemini.js:12198\n    throw new TypeError(\n    ^\n\n",
        "TypeError: Cannot read properties of undefined (reading 'map')\n",
        "    at main (file:///usr/lib/node_modules/@google/gemini-cli/bundle/gemini.js:17627:5)\n\nNode.js v20.20.2\n",
    ))?;
    Ok(1)
}

pub(super) fn version_garbage(agent: &mut FakeAgent) -> io::Result<u8> {
    if agent.asks_version {
        agent.raw("Update available! banner\nnot a version\n")?;
        return Ok(0);
    }
    super::lines::ok(agent)
}

pub(super) fn version_hang(agent: &mut FakeAgent) -> io::Result<u8> {
    if agent.asks_version {
        agent.hang();
        return Ok(0);
    }
    super::lines::ok(agent)
}

pub(super) fn version_fails(agent: &mut FakeAgent) -> io::Result<u8> {
    if agent.asks_version {
        agent.stderr("env: 'node': No such file or directory\n")?;
        return Ok(127);
    }
    super::lines::ok(agent)
}
