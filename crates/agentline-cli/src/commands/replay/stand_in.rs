//! Stands in for an agent's program: prints its recorded output in order and exits with its code.

use super::{Pace, TapeLines};
use crate::{error::CommandError, exit, ui::Ui};
use agentline::Problem;
use agentline_core::{ExitReason, TapeAction, TapeHeader, agents};
use agentline_fs::disk_fs::canonicalize;
use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long standard input may be silent before its content counts as complete.
const STDIN_IDLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Prints the agent's output, line by line from the tape. Returns the agent's exit code.
pub(super) fn print_output(
    ui: &mut Ui,
    tape: &Path,
    agent: &str,
    real_time: bool,
) -> Result<u8, CommandError> {
    let mut lines = open(tape, agent)?;
    discard_stdin();
    let pace = if real_time { Pace::Recorded } else { Pace::AtOnce };
    let mut code = exit::FAILED;
    let mut now = 0;
    let mut wait = |at: u64, ui: &mut Ui| {
        if real_time {
            ui.flush()?;
        }
        pace.wait(now, at);
        now = at;
        Ok::<(), io::Error>(())
    };
    while let Some(line) = lines.next()? {
        match TapeAction::read(&line) {
            Some(TapeAction::Out(at, line)) => {
                wait(at, ui)?;
                writeln!(ui.out(), "{line}")?;
            }
            Some(TapeAction::Err(at, line)) => {
                wait(at, ui)?;
                // Flush, so that both streams are in order on a terminal.
                ui.flush()?;
                ui.line(line);
            }
            Some(TapeAction::Exit(ExitReason::Code(recorded))) => {
                code = u8::try_from(recorded).unwrap_or(exit::FAILED);
            }
            Some(TapeAction::Exit(ExitReason::Signal(signal))) => {
                code = u8::try_from(128 + signal).unwrap_or(exit::FAILED);
            }
            _ => {}
        }
    }
    ui.flush()?;
    Ok(code)
}

/// Writes a script that stands in for the agent, for tools that need the path of a program.
pub(super) fn write_program(
    ui: &mut Ui,
    agent: &str,
    tape: &Path,
    program: &Path,
) -> Result<u8, CommandError> {
    open(tape, agent)?;
    let absolute = |path: &Path| canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let own = std::env::current_exe()
        .map_err(|error| CommandError::failed(format!("cannot find the agentline executable: {error}")))?;
    let tape_path = absolute(tape);
    let script = if cfg!(windows) {
        format!("@\"{}\" replay --as {agent} \"{}\" -- %*\r\n", own.display(), tape_path.display())
    } else {
        let (own, tape_path) = (quoted(&own.to_string_lossy()), quoted(&tape_path.to_string_lossy()));
        format!("#!/bin/sh\nexec {own} replay --as {agent} {tape_path} -- \"$@\"\n")
    };
    fs::write(program, script)
        .and_then(|()| make_runnable(program))
        .map_err(|error| CommandError::failed(format!("cannot write `{}`: {error}", program.display())))?;
    ui.print_status(format!("wrote `{}`, which acts as {agent}", program.display()));
    Ok(exit::DONE)
}

/// Opens a tape, which must be of the requested agent.
fn open<'a>(tape: &'a Path, agent: &str) -> Result<TapeLines<'a>, CommandError> {
    let mut lines = TapeLines::open(tape)?;
    let recorded = TapeHeader::read(&lines.next()?.unwrap_or_default())?.agent;
    if recorded == agents::find(agent)?.info().id {
        return Ok(lines);
    }
    let problem = Problem::new("--as", format!("the tape was recorded with `{recorded}`")).value(agent);
    Err(problem.hint(format!("pass `--as {recorded}`")).into())
}

/// Reads standard input, as the agent would, so that the caller's writes do not fail.
fn discard_stdin() {
    if io::stdin().is_terminal() {
        return;
    }
    let (alive, activity) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while io::stdin().lock().read(&mut buffer).is_ok_and(|n| n > 0) {
            // The receiver is gone once the silence has lasted long enough.
            let _ = alive.send(());
        }
    });
    while activity.recv_timeout(STDIN_IDLE_TIMEOUT).is_ok() {}
}

#[cfg(unix)]
fn make_runnable(program: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_runnable(_program: &Path) -> io::Result<()> {
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
