//! `agentline report`: the report of an experiment.

use super::experiment_error::distributed_error;
use super::queue::{QueueArgs, block_on};
use crate::{error::CommandError, exit, ui::Ui};
use agentline::Problem;
use agentline_batch::{ExperimentReport, StoreError, fetch_results};
use agentline_core::error_chain;
use clap::{Args, ValueEnum};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of the experiment, or with --queue its name; with two, the second is compared with the first
    #[arg(value_name = "EXPERIMENT", required = true, num_args = 1..=2)]
    experiments: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ExperimentFormat,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    queue: QueueArgs,
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
    /// A SWE-bench prediction file: the changes of each case
    Predictions,
}

pub(crate) fn run(ui: &mut Ui, args: &ReportArgs) -> Result<u8, CommandError> {
    // Results that come from a queue are there until the report is written.
    let mut fetched = Vec::new();
    let mut reports = Vec::new();
    for experiment in &args.experiments {
        if experiment.is_dir() || args.queue.address().is_none() {
            reports.push(build(experiment)?);
        } else {
            let dir = fetch(experiment, &args.queue)?;
            reports.push(build(dir.path())?);
            fetched.push(dir);
        }
    }
    let report = match (reports.pop(), reports.pop()) {
        (Some(after), Some(before)) => ExperimentReport::compare(&before, &after),
        (Some(report), None) => report,
        (None, _) => return Ok(exit::DONE),
    };
    let text = match args.output {
        ExperimentFormat::Text => report.text(),
        ExperimentFormat::Json => format!("{:#}\n", report.json()),
        ExperimentFormat::Html => report.html(&page_dir(args.to.as_deref())),
        ExperimentFormat::Predictions => report.predictions(),
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

/// Brings the results of an experiment from its queue into a temporary directory.
fn fetch(experiment: &Path, queue: &QueueArgs) -> Result<tempfile::TempDir, CommandError> {
    let dir = tempfile::tempdir()
        .map_err(|error| CommandError::failed(format!("cannot create a directory: {error}")))?;
    block_on(async {
        let queue = queue.connect(std::time::Duration::from_secs(5)).await?;
        let fetched = fetch_results(&*queue, &experiment.to_string_lossy(), dir.path()).await;
        fetched.map_err(distributed_error)
    })?;
    Ok(dir)
}

/// Returns the directory of a page, from which its links start.
fn page_dir(file: Option<&Path>) -> PathBuf {
    let parent = file.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Computes the report of the experiment in a directory.
pub(super) fn build(dir: &Path) -> Result<ExperimentReport, CommandError> {
    ExperimentReport::read(dir).map_err(|error| match error {
        StoreError::Missing(_) => {
            let problem = Problem::new("EXPERIMENT", error.to_string());
            problem.hint("name a directory that `agentline batch` wrote").into()
        }
        error => CommandError::failed(error_chain(&error)),
    })
}
