//! `agentline config`: shows or checks the effective settings.

use crate::{error::CommandError, exit, output::ReportFormat, setup::Setup, ui::Ui};
use agentline_core::{Config, Redactor};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{io::Write, path::PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show every setting with its value and source; secrets are omitted
    Show(ShowArgs),
    /// Report all problems with the settings
    Check(Where),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Show only settings that differ from the built-in defaults
    #[arg(long)]
    changed: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Args)]
struct Where {
    /// Workspace whose settings apply [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &ConfigArgs) -> Result<u8, CommandError> {
    match &args.command {
        ConfigCommand::Show(args) => show(ui, args),
        ConfigCommand::Check(args) => check(ui, args),
    }
}

fn show(ui: &mut Ui, ShowArgs { changed, place: args }: &ShowArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(args.cwd.as_deref(), None)?;
    let config = setup.config()?;
    let redactor = setup.with_config(&config).0.redactor();
    for notice in &config.notices {
        ui.warn(&notice.message);
    }
    let mut rows = config.show();
    if *changed {
        let defaults = Config::build(&[])?.show();
        rows.retain(|row| {
            !defaults.iter().any(|default| default.key == row.key && default.value == row.value)
        });
    }
    rows.iter_mut().for_each(|row| redact(&redactor, &mut row.value));
    if args.output == ReportFormat::Json {
        writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?;
        return Ok(exit::DONE);
    }
    if rows.is_empty() {
        ui.print_status("all settings have their defaults");
    }
    let width = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let values: Vec<String> = rows.iter().map(|row| shown(&row.value)).collect();
    let value_width =
        values.iter().map(|value| value.chars().count()).filter(|w| *w <= 40).max().unwrap_or(0);
    for (row, value) in rows.iter().zip(values) {
        ui.report(&format!("{:<width$}  {value:<value_width$}  {}", row.key, row.source))?;
    }
    Ok(exit::DONE)
}

/// Redacts all strings in a value, because a secret may be in a setting with an ordinary name.
fn redact(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => *text = redactor.text(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(|value| redact(redactor, value)),
        Value::Object(fields) => fields.values_mut().for_each(|value| redact(redactor, value)),
        _ => {}
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(not set)".into(),
        other => other.to_string(),
    }
}

fn check(ui: &mut Ui, args: &Where) -> Result<u8, CommandError> {
    let found = Setup::read(args.cwd.as_deref(), None)?.config();
    if args.output == ReportFormat::Json {
        let (problems, warnings) = match &found {
            Ok(config) => (json!([]), json!(config.notices)),
            Err(problems) => (json!(problems), json!([])),
        };
        writeln!(ui.out(), "{}", json!({"ok": found.is_ok(), "problems": problems, "warnings": warnings}))?;
        return Ok(if found.is_ok() { exit::DONE } else { exit::USAGE });
    }
    let config = found?;
    for notice in &config.notices {
        ui.warn(&notice.message);
    }
    let word = if config.notices.is_empty() { "valid" } else { "valid, with warnings" };
    writeln!(ui.out(), "the settings are {word}")?;
    Ok(exit::DONE)
}
