//! `agentline batch status`, `pause`, `resume`, `cancel` and `delete`: experiments in a queue.

use crate::commands::experiment_error::store_error;
use crate::commands::queue::{QueueArgs, block_on, queue_error};
use crate::{error::CommandError, exit, ui::Ui};
use agentline::Problem;
use agentline_batch::{
    Experiment, ExperimentState, ExperimentStatus, delete, experiments, set_state, status, submitted_id,
};
use agentline_core::terminal_text::duration;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long these commands try to reach a queue.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The directory of the experiment, or its name in the queue [default: all experiments in the queue]
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: StatusOutput,
    #[command(flatten)]
    queue: QueueArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The directory of the experiment, or its name in the queue
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    #[command(flatten)]
    queue: QueueArgs,
}

/// The output of `batch status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusOutput {
    /// For people
    Text,
    /// One JSON object per experiment
    Json,
}

/// What to do with an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlAction {
    Pause,
    Resume,
    Cancel,
    Delete,
}

/// Returns the name of an experiment in the queue.
pub(crate) fn name_of(experiment: &Path) -> Result<String, CommandError> {
    if !experiment.is_dir() {
        return Ok(experiment.to_string_lossy().into_owned());
    }
    submitted_id(experiment).map_err(|error| store_error(&error))?.ok_or_else(|| {
        let message = format!("the experiment in `{}` was not submitted to a queue", experiment.display());
        Problem::new("EXPERIMENT", message)
            .hint("run `agentline batch` with --queue, or name another one")
            .into()
    })
}

pub(super) fn control(ui: &mut Ui, args: &ControlArgs, what: ControlAction) -> Result<u8, CommandError> {
    let id = name_of(&args.experiment)?;
    let state = match what {
        ControlAction::Pause => ExperimentState::Paused,
        ControlAction::Resume => ExperimentState::Running,
        ControlAction::Cancel | ControlAction::Delete => ExperimentState::Cancelled,
    };
    let before = block_on(async {
        let queue = args.queue.connect(PATIENCE).await?;
        let before = set_state(&*queue, &id, state).await.map_err(|error| queue_error(&error))?;
        if before.is_some() && what == ControlAction::Delete {
            delete(&*queue, &id).await.map_err(|error| queue_error(&error))?;
        }
        Ok(before)
    })?;
    let Some(before) = before else { return Err(unknown(&id)) };
    let is_over = matches!(before, ExperimentState::Cancelled | ExperimentState::Finished);
    let line = match what {
        ControlAction::Delete => format!("{id}: deleted from the queue"),
        _ if is_over => format!("{id}: already {}", before.name()),
        _ => format!("{id}: {}", state.name()),
    };
    ui.print_status(line);
    Ok(if is_over && what != ControlAction::Delete { exit::FAILED } else { exit::DONE })
}

fn unknown(id: &str) -> CommandError {
    let problem = Problem::new("EXPERIMENT", format!("the queue has no experiment `{id}`"));
    problem.hint("`agentline batch status --queue URL` lists those that it has").into()
}

pub(super) fn show(ui: &mut Ui, args: &StatusArgs) -> Result<u8, CommandError> {
    if args.queue.address().is_none()
        && let Some(dir) = args.experiment.as_deref().filter(|dir| dir.is_dir())
        && submitted_id(dir).map_err(|error| store_error(&error))?.is_none()
    {
        return show_local(ui, dir, args.output);
    }
    let wanted = args.experiment.as_deref().map(name_of).transpose()?;
    let found = block_on(async {
        let queue = args.queue.connect(PATIENCE).await?;
        let failed = |error| queue_error(&error);
        let ids = match &wanted {
            Some(id) => vec![id.clone()],
            None => experiments(&*queue).await.map_err(failed)?.into_iter().map(|(id, ..)| id).collect(),
        };
        let mut found = Vec::new();
        for id in ids {
            found.extend(status(&*queue, &id).await.map_err(failed)?);
        }
        Ok(found)
    })?;
    if let (Some(id), true) = (&wanted, found.is_empty()) {
        return Err(unknown(id));
    }
    if found.is_empty() && args.output == StatusOutput::Text {
        ui.print_status("the queue has no experiments");
    }
    for status in &found {
        match args.output {
            StatusOutput::Json => writeln!(ui.out(), "{}", as_json(status))?,
            StatusOutput::Text => ui.out().write_all(as_text(status, wanted.is_some()).as_bytes())?,
        }
    }
    Ok(exit::DONE)
}

/// Shows an experiment that was never in a queue.
fn show_local(ui: &mut Ui, dir: &Path, output: StatusOutput) -> Result<u8, CommandError> {
    let experiment = Experiment::read(dir).map_err(|error| store_error(&error))?;
    let results = experiment.results().map_err(|error| store_error(&error))?.len();
    let is_running = matches!(Experiment::open(dir), Err(agentline_batch::StoreError::Locked(_)));
    let state = if is_running { "running" } else { "not running" };
    match output {
        StatusOutput::Json => {
            writeln!(ui.out(), "{}", json!({"experiment": dir, "state": state, "finished": results}))?;
        }
        StatusOutput::Text => writeln!(ui.out(), "{}: {state} · {results} results", dir.display())?,
    }
    Ok(exit::DONE)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn as_text(status: &ExperimentStatus, with_workers: bool) -> String {
    use std::fmt::Write;
    let ExperimentStatus { id, counts, .. } = status;
    let mut text = format!(
        "{id}: {} · {} finished · {} in progress · {} waiting",
        status.state.name(),
        counts.finished,
        counts.claimed,
        counts.waiting
    );
    if let Some(limit) = status.limit_usd {
        let _ = write!(
            text,
            " · ${:.4} spent and ${:.4} reserved of ${limit:.2}",
            status.spent_usd, status.reserved_usd
        );
    }
    if status.duplicates > 0 {
        let plural = if status.duplicates == 1 { "" } else { "s" };
        let _ = write!(text, " · {} duplicate execution{plural}", status.duplicates);
        if status.duplicates_usd > 0.0 {
            let _ = write!(text, " (${:.4})", status.duplicates_usd);
        }
    }
    text.push('\n');
    if !with_workers {
        return text;
    }
    if status.workers.is_empty() {
        text.push_str("  no workers\n");
    }
    for (name, worker) in &status.workers {
        let state = match (worker.is_alive(now_ms()), worker.is_draining) {
            (false, _) => "lost",
            (true, true) => "draining",
            (true, false) if worker.runs.is_empty() => "idle",
            (true, false) => "busy",
        };
        let _ = writeln!(
            text,
            "  {name} on {}: {state} · {} of {} slots · {} results · {}",
            worker.host,
            worker.runs.len(),
            worker.slots,
            worker.committed,
            worker.agents.join(", ")
        );
        for run in worker.runs.iter().filter(|run| run.experiment == *id) {
            let since = duration(now_ms().saturating_sub(run.began_ms));
            let _ = writeln!(text, "    {} · {} · attempt {}: {since}", run.case, run.variant, run.attempt);
        }
    }
    text
}

fn as_json(status: &ExperimentStatus) -> serde_json::Value {
    json!({
        "experiment": status.id,
        "name": status.name,
        "state": status.state,
        "submitted_ms": status.submitted_ms,
        "waiting": status.counts.waiting,
        "claimed": status.counts.claimed,
        "finished": status.counts.finished,
        "spent_usd": status.limit_usd.map(|_| status.spent_usd),
        "reserved_usd": status.limit_usd.map(|_| status.reserved_usd),
        "limit_usd": status.limit_usd,
        "duplicates": status.duplicates,
        "duplicates_usd": status.limit_usd.map(|_| status.duplicates_usd),
        "workers": status.workers,
    })
}
