//! Faults with additional processes: children that outlive the agent, hide from it, or are too many.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::agent::FakeAgent;
use crate::os;

/// The first argument of this program when it is a child of a fault.
pub(super) const FLAG: &str = "--fake-agent-child";

/// No pid file.
const NOWHERE: &str = "-";

/// The behavior of a child. Its arguments are `FLAG KIND SECONDS PID_FILE STUBBORN`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sleeps in the session of the agent.
    Sleeper,
    /// Sleeps in its own session, like the children of the shell tool.
    OwnSession,
    /// Starts a [`Kind::OwnSession`] and exits, so that the child is orphaned.
    Daemonizer,
    /// Starts a child like itself, to this depth.
    Chain(u8),
}

impl Kind {
    fn word(self) -> String {
        match self {
            Self::Sleeper => "sleeper".to_owned(),
            Self::OwnSession => "own-session".to_owned(),
            Self::Daemonizer => "daemonizer".to_owned(),
            Self::Chain(depth) => format!("chain{depth}"),
        }
    }

    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "sleeper" => Self::Sleeper,
            "own-session" => Self::OwnSession,
            "daemonizer" => Self::Daemonizer,
            _ => Self::Chain(word.strip_prefix("chain")?.parse().ok()?),
        })
    }
}

/// Runs as a child.
pub(super) fn be_child(args: &[String]) -> io::Result<u8> {
    let [kind, seconds, pid_file, stubborn] = args else { return Ok(2) };
    let (Some(kind), Ok(lifetime)) = (Kind::of(kind), seconds.parse()) else { return Ok(2) };
    if stubborn == "true" {
        os::ignore_signals()?;
    }
    let start = |kind| command(kind, [seconds, pid_file, stubborn]).and_then(|mut command| command.spawn());
    match kind {
        Kind::Sleeper | Kind::Chain(0) => {}
        Kind::OwnSession => os::own_session()?,
        Kind::Daemonizer => {
            start(Kind::OwnSession)?;
            return Ok(0);
        }
        Kind::Chain(depth) => drop(start(Kind::Chain(depth - 1))?),
    }
    if pid_file != NOWHERE {
        let mut file = OpenOptions::new().create(true).append(true).open(pid_file)?;
        // One write, so that the lines of several children do not mix.
        file.write_all(format!("{}\n", process::id()).as_bytes())?;
    }
    thread::sleep(Duration::from_secs(lifetime));
    Ok(0)
}

fn command(kind: Kind, [seconds, pid_file, stubborn]: [&str; 3]) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args([FLAG, &kind.word(), seconds, pid_file, stubborn]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Starts children and waits until `expected` of them have reported that they are running.
fn start(
    agent: &FakeAgent,
    kinds: &[Kind],
    expected: usize,
    change: fn(&mut Command),
) -> io::Result<Vec<Child>> {
    let pid_file = agent.text("pid_file");
    let seconds = agent.number("seconds", 120).to_string();
    let stubborn = agent.flag("stubborn").to_string();
    let before = pid_file.as_deref().map_or(0, lines_in);
    let args = [seconds.as_str(), pid_file.as_deref().unwrap_or(NOWHERE), stubborn.as_str()];
    let mut children = Vec::new();
    for kind in kinds {
        let mut command = command(*kind, args)?;
        change(&mut command);
        let mut child = command.spawn()?;
        if *kind == Kind::Daemonizer {
            child.wait()?;
        }
        children.push(child);
    }
    let Some(pid_file) = pid_file else { return Ok(children) };
    let until = Instant::now() + Duration::from_secs(30);
    while lines_in(&pid_file) < before + expected {
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the children did not write their ids"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(children)
}

fn lines_in(file: &str) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

fn unchanged(_: &mut Command) {}

/// Plays a successful run that leaves these children behind.
fn leave_behind(
    agent: &mut FakeAgent,
    kinds: &[Kind],
    expected: usize,
    change: fn(&mut Command),
) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("run_shell_command", "t1", json!({"command": "sleep 300 &"}))?;
    start(agent, kinds, expected, change)?;
    agent.tool_done("t1")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn child_left(agent: &mut FakeAgent) -> io::Result<u8> {
    leave_behind(agent, &[Kind::Sleeper], 1, unchanged)
}

pub(super) fn child_own_session(agent: &mut FakeAgent) -> io::Result<u8> {
    leave_behind(agent, &[Kind::OwnSession], 1, unchanged)
}

pub(super) fn daemon(agent: &mut FakeAgent) -> io::Result<u8> {
    leave_behind(agent, &[Kind::Daemonizer], 1, unchanged)
}

pub(super) fn daemon_clean_env(agent: &mut FakeAgent) -> io::Result<u8> {
    leave_behind(agent, &[Kind::Daemonizer], 1, |command| {
        command.env_clear();
    })
}

pub(super) fn fork_storm(agent: &mut FakeAgent) -> io::Result<u8> {
    let count = agent.size("count", 50);
    let kinds: Vec<Kind> =
        [Kind::Sleeper, Kind::OwnSession, Kind::Daemonizer].into_iter().cycle().take(count).collect();
    leave_behind(agent, &kinds, count, unchanged)
}

pub(super) fn child_chain(agent: &mut FakeAgent) -> io::Result<u8> {
    let depth = u8::try_from(agent.number("depth", 5)).unwrap_or(5).max(1);
    leave_behind(agent, &[Kind::Chain(depth - 1)], usize::from(depth), unchanged)
}

pub(super) fn child_keeps_stdout(agent: &mut FakeAgent) -> io::Result<u8> {
    leave_behind(agent, &[Kind::OwnSession], 1, |command| {
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    })
}

pub(super) fn hang_with_children(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("run_shell_command", "t1", json!({"command": "sleep 300"}))?;
    start(agent, &[Kind::Sleeper, Kind::OwnSession, Kind::Daemonizer], 3, unchanged)?;
    agent.send_text("Waiting for them. ")?;
    agent.hang();
    Ok(0)
}

pub(super) fn stubborn_with_children(agent: &mut FakeAgent) -> io::Result<u8> {
    os::ignore_signals()?;
    hang_with_children(agent)
}

pub(super) fn children_after_signal(agent: &mut FakeAgent) -> io::Result<u8> {
    os::notice_signals()?;
    agent.begin()?;
    agent.send_text("Working. ")?;
    let until = Instant::now() + Duration::from_secs(agent.number("seconds", 120));
    while !os::signalled() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    start(agent, &[Kind::OwnSession], 1, unchanged)?;
    Ok(0)
}
