//! Existing tools for the same purpose: `rg` from Debian's packages, and `ccusage` from npm.

use agentline_tests::ccusage_program;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The totals of ccusage.
pub(super) struct CcusageTotals {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cached: u64,
    pub(super) cost: f64,
}

/// Returns the path of `rg`, installed if possible, or prints a message and returns `None`.
pub(super) fn ripgrep() -> Option<PathBuf> {
    let is_installed =
        || Command::new("rg").arg("--version").output().is_ok_and(|done| done.status.success());
    if !is_installed() {
        let mut install = Command::new("apt-get");
        install.args(["install", "-y", "ripgrep"]).stdin(Stdio::null()).stdout(Stdio::null());
        let done = install.status().is_ok_and(|status| status.success());
        if !done || !is_installed() {
            println!("rg is not installed and cannot be installed here: run `apt-get install ripgrep`");
            return None;
        }
    }
    Some(PathBuf::from("rg"))
}

/// Searches the same files, including binary ones.
pub(super) fn rg(program: &Path, home: &Path, word: &str, any_case: bool) -> usize {
    let mut command = Command::new(program);
    command.args(["-uuu", "--no-config", "-c", "-F", if any_case { "-i" } else { "-s" }, word]);
    for folder in [".claude/projects", ".gemini/tmp", ".codex/sessions", ".local/share/opencode"] {
        command.arg(home.join(folder));
    }
    let output = command.stdin(Stdio::null()).output().expect("rg");
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
}

/// Counts Claude's part of the files without the network, and returns the time and the totals.
pub(super) fn ccusage(home: &Path) -> Result<(f64, CcusageTotals), String> {
    let program = ccusage_program()?;
    let mut command = Command::new(program);
    command.args(["claude", "daily", "--json", "--offline", "--timezone", "UTC"]);
    command.env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("ccusage: {e}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("ccusage: {e}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let totals = &json["totals"];
    let number = |name: &str| totals[name].as_u64().unwrap_or(0);
    let totals = CcusageTotals {
        input: number("inputTokens"),
        output: number("outputTokens"),
        cached: number("cacheReadTokens"),
        cost: totals["totalCost"].as_f64().unwrap_or(f64::NAN),
    };
    Ok((seconds, totals))
}
