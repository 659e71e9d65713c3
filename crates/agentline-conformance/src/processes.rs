//! Finds the processes of a scenario by their environment or command line. Linux only: elsewhere, none are found.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Returns whether processes can be found here.
pub(crate) fn are_visible() -> bool {
    cfg!(target_os = "linux")
}

/// Kills the agent that has this variable in its environment. Its children are left to agentline.
pub(crate) fn kill(mark: &str) {
    let marked = with("environ", mark);
    let own = env::current_exe().ok();
    let is_marked = |pid: u32| marked.contains(&pid);
    // The supervisor is a process of this program.
    let is_agent =
        |pid: &&u32| executable(**pid) != own && !is_marked_agent_child(**pid, &is_marked, own.as_deref());
    for pid in marked.iter().filter(is_agent) {
        // A process that is gone already needs no signal.
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

/// Returns whether a process is a child of another marked process that is not this program.
fn is_marked_agent_child(pid: u32, is_marked: &dyn Fn(u32) -> bool, own: Option<&Path>) -> bool {
    parent(pid).is_some_and(|parent| is_marked(parent) && executable(parent).as_deref() != own)
}

/// Returns whether a process with this text on its command line is running.
pub(crate) fn is_running(text: &str) -> bool {
    with("cmdline", text).iter().any(|pid| *pid != std::process::id())
}

/// Returns the processes that have this text in a file of their directory below `/proc`.
fn with(file: &str, text: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let contains = |pid: &u32| {
        let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // Arguments are separated by zero bytes.
        String::from_utf8_lossy(&content).replace('\0', " ").contains(text)
    };
    pids.filter(contains).collect()
}

fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain spaces.
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}
