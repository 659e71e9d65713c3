//! `agentline report`: the report of an experiment.

use crate::{error::CommandError, exit, ui::Ui};
use agentline::Problem;
use agentline_batch::{Experiment, Report};
use agentline_core::error_chain;
use clap::{Args, ValueEnum};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of the experiment
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ExperimentFormat,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExperimentFormat {
    /// A table
    Text,
    /// One JSON object
    Json,
    /// JUnit XML, for CI systems
    Junit,
    /// One line per run
    Csv,
    /// One page for a browser
    Html,
}

pub(crate) fn run(ui: &mut Ui, args: &ReportArgs) -> Result<u8, CommandError> {
    let report = build(&args.experiment, None)?;
    let text = match args.output {
        ExperimentFormat::Text => report.text(),
        ExperimentFormat::Json => format!("{:#}\n", report.json()),
        ExperimentFormat::Html => report.html(&args.experiment),
        ExperimentFormat::Junit => report.junit(),
        ExperimentFormat::Csv => report.csv().map_err(|error| CommandError::failed(error.to_string()))?,
    };
    match &args.to {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| CommandError::failed(format!("cannot write `{}`: {error}", path.display())))?,
        None => ui.out().write_all(text.as_bytes())?,
    }
    Ok(exit::DONE)
}

/// Computes the report of the experiment in a directory.
pub(super) fn build(dir: &Path, name: Option<&str>) -> Result<Report, CommandError> {
    let failed = |error: agentline_batch::StoreError| match error {
        agentline_batch::StoreError::Missing(_) => {
            let problem = Problem::new("EXPERIMENT", error.to_string());
            CommandError::Nothing(problem.hint("name a directory that `agentline batch` wrote"))
        }
        error => CommandError::failed(error_chain(&error)),
    };
    let experiment = Experiment::read(dir).map_err(failed)?;
    let list = |key: &str| -> Result<Vec<String>, CommandError> {
        let text = experiment.meta(key).map_err(failed)?.unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or_default())
    };
    let stored = experiment.meta("name").map_err(failed)?;
    let name = name.map(str::to_owned).or(stored).unwrap_or_default();
    let results = experiment.results().map_err(failed)?.into_values().collect();
    Ok(Report::new(&name, &list("variants")?, &list("cases")?, results))
}
