//! `agentline cache`: shows or clears the cache of outcomes.

use crate::{error::CommandError, exit, output::ReportFormat, setup::Setup, ui::Ui};
use agentline::cache::{Cache, CacheStats};
use clap::{Args, Subcommand};
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  agentline run --cache \"what does this do?\"   reuse the result while nothing changes
  agentline cache stats
  agentline cache clear
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Show the location and size of the cache
    Stats(Form),
    /// Remove all cached results
    Clear(Form),
}

#[derive(Debug, Args)]
struct Form {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

pub(crate) fn run(ui: &mut Ui, args: &CacheArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, None)?;
    let config = setup.config()?;
    let (agentline, request) = setup.with_config(&config);
    let cache = Cache::of(&agentline, &request.cache);
    let (stats, form, prefix) = match &args.command {
        CacheCommand::Stats(form) => (cache.stats(), form, ""),
        CacheCommand::Clear(form) => {
            let cleared = cache.clear();
            let failed = |error| CommandError::failed(format!("cannot clear the cache: {error}"));
            (cleared.map_err(failed)?, form, "cleared ")
        }
    };
    match form.output {
        ReportFormat::Json => {
            writeln!(ui.out(), "{}", serde_json::to_string(&stats).unwrap_or_default())?;
        }
        ReportFormat::Text => {
            let CacheStats { folder, entries, bytes, max_bytes, .. } = &stats;
            let mb = |bytes: u64| format!("{}.{} MB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20);
            let (used, most) = (mb(*bytes), mb(*max_bytes));
            let noun = if *entries == 1 { "entry" } else { "entries" };
            writeln!(ui.out(), "{prefix}{}: {entries} {noun}, {used} of {most}", folder.display())?;
        }
    }
    Ok(exit::DONE)
}
