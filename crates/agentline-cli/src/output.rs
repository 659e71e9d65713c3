//! The formats that commands print.

use clap::ValueEnum;

/// The output format of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer as it streams
    #[default]
    Text,
    /// One JSON object at the end of the run, even if it fails
    Json,
    /// One JSON object per event; the outcome is last
    Events,
    /// The stream-json lines of Claude Code
    Claude,
    /// {"response", "files"}, for workflow providers
    Provider,
    /// {"output", "tokenUsage", "cost", …}, for promptfoo
    Promptfoo,
}

/// The output format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Human-readable text
    #[default]
    Text,
    /// JSON
    Json,
}
