//! `agentline trust`: manages the directories that may configure agents and agentline without limits.

use crate::{error::CommandError, exit, output::ReportFormat, ui::Ui};
use agentline::{
    Agentline, Problem,
    config::ChangedTrust,
    trust::{Manifest, TrustStore},
};
use agentline_core::config::one_line;
use agentline_fs::disk_fs::canonicalize;
use clap::Args;
use serde_json::{Value, json};
use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

const EXAMPLES: &str = "\
Examples:
  agentline trust                     trust the current directory
  agentline trust ../project          trust another one
  agentline trust --list
  agentline trust --revoke ../project

A trusted directory may run commands: its agentline.toml applies in full, and agents load its \
settings, hooks and MCP servers. Trust covers only this directory and the current content of these \
files. When one of them changes, a run asks again on a terminal; without a terminal it ignores \
these files and prints a warning. `--trust run` always ignores them.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrustArgs {
    /// Directory to trust [default: the current directory]
    dir: Option<PathBuf>,
    /// List the trusted directories
    #[arg(long, conflicts_with_all = ["revoke", "dir"])]
    list: bool,
    /// Stop trusting the directory
    #[arg(long)]
    revoke: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &TrustArgs) -> Result<u8, CommandError> {
    let agentline = Agentline::from_env()?;
    let host_env = agentline.host_env();
    let variables = std::env::vars_os().collect();
    let store = TrustStore::find(Some(&host_env.home), &variables)
        .ok_or_else(|| Problem::new("HOME", "not set, so trust cannot be stored").hint("set HOME"))?;
    let directory = args.dir.as_ref().map_or_else(|| host_env.cwd.clone(), |dir| host_env.cwd.join(dir));
    let (report, text) = match (args.list, args.revoke) {
        (true, _) => list(&store)?,
        (_, true) => revoke(&store, directory)?,
        _ => trust(&store, &Manifest::read(&directory, Some(&host_env.home))?)?,
    };
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{report}")?,
        ReportFormat::Text => ui.out().write_all(text.as_bytes())?,
    }
    Ok(exit::DONE)
}

fn trust(store: &TrustStore, manifest: &Manifest) -> Result<(Value, String), CommandError> {
    store.trust(manifest)?;
    let (directory, files) = (manifest.directory.display().to_string(), &manifest.files);
    let mut text = match files.len() {
        0 => format!("trusted {}, which has no settings of its own yet\n", one_line(&directory)),
        _ => format!("trusted {} and the current content of these files:\n", one_line(&directory)),
    };
    for file in files.keys() {
        text.push_str(&format!("  {}\n", one_line(file)));
    }
    let files: Vec<&String> = files.keys().collect();
    Ok((json!({"directory": directory, "trusted": true, "digest": manifest.digest(), "files": files}), text))
}

fn revoke(store: &TrustStore, directory: PathBuf) -> Result<(Value, String), CommandError> {
    let was_trusted = store.revoke(&directory)?;
    let directory = canonicalize(&directory).unwrap_or(directory).display().to_string();
    let word = if was_trusted { "is no longer trusted" } else { "was not trusted" };
    let text = format!("{} {word}\n", one_line(&directory));
    Ok((json!({"directory": directory, "trusted": false, "was_trusted": was_trusted}), text))
}

fn list(store: &TrustStore) -> Result<(Value, String), CommandError> {
    let all = store.list()?;
    let mut rows = Vec::new();
    let mut text = String::new();
    for (directory, trusted) in &all {
        let changed: Vec<Value> = match store.state(directory) {
            Ok(agentline::trust::TrustState::Changed { changes, .. }) => {
                changes.iter().map(|c| json!({"path": c.path, "change": c.change.name()})).collect()
            }
            _ => Vec::new(),
        };
        let note = match (directory.is_dir(), changed.len()) {
            (false, _) => " (does not exist)".to_owned(),
            (true, 0) => format!(" ({} files)", trusted.files.len()),
            (true, changes) => format!(" ({changes} changed, so it is not trusted until you trust it again)"),
        };
        text.push_str(&format!("{}{note}\n", one_line(&directory.display().to_string())));
        rows.push(json!({
            "directory": directory, "trusted_at": trusted.trusted_at, "digest": trusted.digest,
            "files": trusted.files.keys().collect::<Vec<_>>(), "changed": changed,
        }));
    }
    if all.is_empty() {
        text.push_str("no trusted directories\n");
    }
    Ok((rows.into(), text))
}

/// Asks whether a changed directory is still trusted, and stores the new state if the user agrees. Returns `false`
/// without a terminal.
pub(crate) fn ask_again(ui: &mut Ui, changed: &ChangedTrust) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let directory = changed.manifest.directory.display().to_string();
    ui.line(format!("Settings in {} changed since you trusted it:", one_line(&directory)));
    for change in &changed.changes {
        ui.line(format!("  {:<8} {}", change.change.name(), one_line(&change.path)));
    }
    ui.prompt("Trust the current settings? They can run commands. [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if is_yes {
        changed.store.trust(&changed.manifest)?;
    }
    Ok(is_yes)
}
