//! `agentline batch`: runs a suite of cases, and resumes it.

pub(crate) mod control;
mod demo;
mod progress;

use super::experiment_error::{batch_error, distributed_error, store_error};
use super::queue::QueueArgs;
use super::stop_signals::StopSignals;
use crate::{completers, error::CommandError, exit, live_run, ui::Ui};
use agentline::isolate::{IsolationMethod, enter_namespace};
use agentline::{Agentline, Problem, Signal};
use agentline_batch::{
    BatchEvent, BatchForecast, BatchOptions, BatchShutdown, BatchSummary, Class, Experiment, PriceRange,
    Rerun, RunResult, StoreError, SubmitOptions, Suite, SuiteInput, default_dir, grade, load,
    load_for_grading, load_with, run_batch, run_on_queue, validate,
};
use agentline_fs::regular_file::read_unlinked;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use control::{ControlAction, ControlArgs, StatusArgs};
use progress::BatchProgress;
use serde_json::{Map, json};
use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};
use tokio::sync::{mpsc, watch};

/// How long a batch tries to reach its queue before it says why it cannot.
const QUEUE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The size of the largest outcome that is shown, in bytes.
const LARGEST_OUTCOME: u64 = 1 << 30;

/// The largest number of runs per case, above which a batch would only be a mistake.
const MAX_REPEAT: i64 = 100_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Runs whatever has no result in the experiment's directory yet, so the same command resumes after an interruption. \
Ctrl-C once finishes the runs in progress; twice stops them.

Exit codes: 0 if all runs passed; 1 if some failed; 2 if the suite is invalid; 7 if a limit of the batch was reached; \
12 if no run failed, but some ended with an infrastructure error; 130 or 143 if stopped by a signal.
")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    command: Option<BatchCommand>,
    #[command(flatten)]
    run: RunBatchArgs,
}

/// The commands of a batch.
#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Apply the suite's checks to stored results, without running agents
    Grade(GradeArgs),
    /// Show experiments in a queue, and the workers
    Status(StatusArgs),
    /// Let workers finish their runs of an experiment, and claim nothing more
    Pause(ControlArgs),
    /// Continue a paused experiment
    Resume(ControlArgs),
    /// Stop an experiment; results so far are kept
    Cancel(ControlArgs),
    /// Cancel an experiment and remove everything about it from the queue
    Delete(ControlArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GradeArgs {
    /// The suite
    #[arg(value_name = "SUITE")]
    suite: PathBuf,
    /// The directory of the experiment [default: agentline-experiments/NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunBatchArgs {
    /// The suite: a YAML, TOML, JSON, JSONL or CSV file, a directory of prompt files, or `-` for standard input
    #[arg(value_name = "SUITE", required_unless_present = "demo")]
    suite: Option<PathBuf>,
    /// Run a small built-in suite with the real Gemini CLI and a scripted model; no account needed
    #[arg(long, conflicts_with_all = ["suite", "agent", "model"])]
    demo: bool,
    /// The directory of the experiment [default: agentline-experiments/NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The number of runs at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Agent for variants that do not set one
    #[arg(short, long, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    agent: Option<String>,
    /// The model of variants that name none
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Only cases whose id matches the pattern, or `tag:NAME` (repeatable)
    #[arg(long = "filter", value_name = "PATTERN")]
    filters: Vec<String>,
    /// Run only the first N cases
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Runs per case; overrides `repeat`
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MAX_REPEAT))]
    repeat: Option<u32>,
    /// Rerun runs that already have a result; earlier results are kept
    #[arg(long, value_name = "WHICH")]
    rerun: Option<RerunArg>,
    /// Keep the workspaces of runs that did not pass in the experiment's directory
    #[arg(long)]
    keep_failed: bool,
    /// How each run gets its own workspace [default: an overlay where the system allows it, otherwise a copy]
    #[arg(long, value_name = "HOW")]
    isolate: Option<IsolateArg>,
    /// Stop as soon as the comparison of the two variants is decided (sequential test)
    #[arg(long)]
    until_decided: bool,
    /// Never exceed the suite's cost limit: every run needs `max_cost` and a known price
    #[arg(long, requires = "queue")]
    strict_budget: bool,
    /// How often a run is claimed by workers before it counts as an infrastructure failure
    #[arg(long, value_name = "N", default_value_t = 3, requires = "queue", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    max_claims: u32,
    /// Print what would run, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: BatchOutput,
    #[command(flatten)]
    queue: QueueArgs,
}

/// Which runs with a result are executed again.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RerunArg {
    /// Those that failed
    Failed,
    /// Those with an infrastructure failure
    Infra,
    /// All
    All,
}

impl RerunArg {
    fn which(self) -> Rerun {
        match self {
            Self::Failed => Rerun::Failed,
            Self::Infra => Rerun::Infrastructure,
            Self::All => Rerun::All,
        }
    }
}

/// How a run gets its own workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolateArg {
    /// An overlay of the original in a mount namespace; Linux only
    Overlay,
    /// A copy
    Copy,
    /// A Git worktree with what is committed
    Worktree,
}

impl IsolateArg {
    pub(crate) fn method(self) -> IsolationMethod {
        match self {
            Self::Overlay => IsolationMethod::Overlay,
            Self::Copy => IsolationMethod::Copy,
            Self::Worktree => IsolationMethod::Worktree,
        }
    }
}

/// Enters a namespace for overlays if `method` allows them. Must be called before any thread is started.
pub(crate) fn prepare_overlays(
    ui: &mut Ui,
    method: Option<IsolateArg>,
    storage: &Path,
) -> Result<(), CommandError> {
    if !matches!(method, None | Some(IsolateArg::Overlay)) {
        return Ok(());
    }
    match enter_namespace(storage) {
        Err(error) if method.is_some() => {
            Err(Problem::new("isolate", format!("overlays do not work here: {error}"))
                .hint("use `--isolate=copy`")
                .into())
        }
        Err(error) => {
            ui.detail(format!("workspaces are copies, because overlays do not work here: {error}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The output of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchOutput {
    /// The report
    Text,
    /// One line of JSON for each finished run
    Jsonl,
}

pub(crate) fn run(ui: &mut Ui, args: &BatchArgs) -> Result<u8, CommandError> {
    match &args.command {
        Some(BatchCommand::Grade(args)) => grade_results(ui, args),
        Some(BatchCommand::Status(args)) => control::show(ui, args),
        Some(BatchCommand::Pause(args)) => control::control(ui, args, ControlAction::Pause),
        Some(BatchCommand::Resume(args)) => control::control(ui, args, ControlAction::Resume),
        Some(BatchCommand::Cancel(args)) => control::control(ui, args, ControlAction::Cancel),
        Some(BatchCommand::Delete(args)) => control::control(ui, args, ControlAction::Delete),
        None => run_suite(ui, &args.run),
    }
}

/// Applies the checks of a suite to stored results.
fn grade_results(ui: &mut Ui, args: &GradeArgs) -> Result<u8, CommandError> {
    let input = suite_input(args.suite.clone())?;
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => default_dir(&load(&input, &Map::new())?.name),
    };
    // A directory without an experiment is not created.
    Experiment::read(&dir).map_err(|error| store_error(&error))?;
    let experiment = Experiment::open(&dir).map_err(|error| store_error(&error))?;
    let suite = load_for_grading(&input, &experiment).map_err(batch_error)?;
    let runtime = live_run::runtime(1)?;
    let summary = runtime.block_on(grade(&suite, &experiment)).map_err(batch_error)?;
    ui.report(&super::report::build(&dir)?.text())?;
    if summary.remaining > 0 {
        ui.print_status(format!("{} runs of the suite have no result to grade", summary.remaining));
    }
    Ok(exit_code(&summary))
}

fn run_suite(ui: &mut Ui, args: &RunBatchArgs) -> Result<u8, CommandError> {
    let demo = args.demo.then(|| demo::prepare(ui)).transpose()?;
    let (suite, agentline) = match &demo {
        Some(demo) => (demo.suite.clone(), demo.agentline.clone()),
        None => {
            let agentline = Agentline::from_env()?;
            (read_suite(args, &agentline)?, agentline)
        }
    };
    let suite = select(suite, args)?;
    validate(&agentline, &suite)?;
    if !suite.unused.is_empty() {
        let keys = suite.unused.join(", ");
        ui.print_status(format!(
            "not used from the promptfoo configuration: {keys}; choose an agent with -a"
        ));
    }
    if args.dry_run {
        return dry_run(ui, &agentline, &suite, args);
    }
    if args.queue.address().is_some() {
        match local_flag(args) {
            None => return run_on_workers(ui, args, agentline, suite),
            Some(flag) if args.queue.is_from_environment() => {
                ui.print_status(format!(
                    "{flag} runs the suite on this machine; AGENTLINE_QUEUE is not used"
                ));
            }
            Some(flag) => {
                let problem = Problem::new(flag, "cannot be combined with --queue");
                return Err(problem.hint("leave it out; workers have their own flags").into());
            }
        }
    }
    let has_files = suite.cases.iter().any(|case| case.workspace.is_some() || !case.hidden.is_empty());
    if args.isolate.is_some() || (has_files && !suite.shares_workspace && demo.is_none()) {
        prepare_overlays(ui, args.isolate, &std::env::temp_dir())?;
    }
    let dir = args.dir.clone().unwrap_or_else(|| default_dir(&suite.name));
    let experiment = Experiment::open(&dir).map_err(|error| store_error(&error))?;
    let mut options = BatchOptions::default();
    options.isolate = args.isolate.map(IsolateArg::method);
    options.jobs = args.jobs.map_or(options.jobs, |jobs| jobs as usize).max(1);
    options.keep_failed = args.keep_failed;
    options.until_decided = args.until_decided;
    options.rerun = args.rerun.map_or(Rerun::None, RerunArg::which);
    let workers = options.jobs.min(4);
    let runtime = live_run::runtime(workers)?;
    let ended = runtime.block_on(follow(ui, agentline, suite, experiment, options, args.output));
    runtime.shutdown_timeout(std::time::Duration::from_secs(10));
    ui.clear_spinner();
    show_summary(ui, args.output, &dir, &ended?)
}

/// Returns a flag that only a batch on this machine has.
fn local_flag(args: &RunBatchArgs) -> Option<&'static str> {
    let flags = [
        ("--demo", args.demo),
        ("--jobs", args.jobs.is_some()),
        ("--isolate", args.isolate.is_some()),
        ("--keep-failed", args.keep_failed),
    ];
    flags.into_iter().find_map(|(flag, is_set)| is_set.then_some(flag))
}

/// Hands the runs to the workers of a queue.
fn run_on_workers(
    ui: &mut Ui,
    args: &RunBatchArgs,
    agentline: Agentline,
    suite: Suite,
) -> Result<u8, CommandError> {
    let dir = args.dir.clone().unwrap_or_else(|| default_dir(&suite.name));
    let experiment = Experiment::open(&dir).map_err(|error| store_error(&error))?;
    let mut options = SubmitOptions::default();
    options.rerun = args.rerun.map_or(Rerun::None, RerunArg::which);
    options.until_decided = args.until_decided;
    options.strict_budget = args.strict_budget;
    options.max_claims = args.max_claims;
    let runtime = live_run::runtime(2)?;
    let ended = runtime.block_on(async {
        let queue = args.queue.connect(QUEUE_PATIENCE).await?;
        let (stop_sender, stop) = watch::channel(BatchShutdown::None);
        let (events, incoming) = mpsc::unbounded_channel();
        let progress = BatchProgress::new(&suite);
        let batch = tokio::spawn(async move {
            run_on_queue(&agentline, suite, experiment, queue, options, stop, events)
                .await
                .map_err(distributed_error)
        });
        let stopping = "leaving the experiment to the workers; the same command attaches again";
        show_events(ui, progress, incoming, stop_sender, args.output, &dir, stopping).await?;
        batch.await.map_err(|error| CommandError::failed(error.to_string()))?
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(10));
    ui.clear_spinner();
    let summary = ended?;
    let code = show_summary(ui, args.output, &dir, &summary)?;
    if summary.is_cancelled {
        ui.print_status(format!("the experiment was cancelled; {} runs remain", summary.remaining));
    } else if summary.stopped_by.is_some() && summary.remaining > 0 {
        let name = control::name_of(&dir)?;
        ui.print_status(format!(
            "{} runs remain with the workers; `agentline batch cancel {name} --queue …` stops them",
            summary.remaining
        ));
    }
    Ok(code)
}

fn show_summary(
    ui: &mut Ui,
    output: BatchOutput,
    dir: &Path,
    summary: &BatchSummary,
) -> Result<u8, CommandError> {
    if output == BatchOutput::Text {
        let report = super::report::build(dir)?;
        ui.report(&report.text())?;
    }
    if let Some(limit) = summary.limit {
        ui.print_status(format!(
            "the limit `{}` of the batch was reached; {} runs remain",
            limit.key(),
            summary.remaining
        ));
    }
    if summary.is_decided {
        ui.print_status(format!("the comparison is decided; {} runs remain", summary.remaining));
    }
    Ok(exit_code(summary))
}

fn read_suite(args: &RunBatchArgs, agentline: &Agentline) -> Result<Suite, CommandError> {
    let input = suite_input(args.suite.clone().unwrap_or_default())?;
    let mut defaults = Map::new();
    for (key, value) in [("agent", &args.agent), ("model", &args.model)] {
        if let Some(value) = value {
            defaults.insert(key.into(), value.as_str().into());
        }
    }
    Ok(load_with(&input, &defaults, |suite| validate(agentline, suite))?)
}

/// Returns where to read a suite; `-` is standard input.
fn suite_input(path: PathBuf) -> Result<SuiteInput, CommandError> {
    if path.as_os_str() != "-" {
        return Ok(SuiteInput::Path(path));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CommandError::failed(format!("cannot read standard input: {error}")))?;
    let base = std::env::current_dir().unwrap_or_default();
    Ok(SuiteInput::Text { name: "standard input".into(), text, base })
}

/// Applies the flags that choose what to run.
fn select(mut suite: Suite, args: &RunBatchArgs) -> Result<Suite, CommandError> {
    suite.repeat = args.repeat.unwrap_or(suite.repeat).max(1);
    if let Some((filter, error)) =
        args.filters.iter().find_map(|filter| Some((filter, Suite::check_filter(filter).err()?)))
    {
        let problem = Problem::new("--filter", format!("`{filter}` is not a pattern: {error}"));
        return Err(problem.hint("use a pattern over ids, or `tag:NAME`").into());
    }
    suite.select(&args.filters, args.limit.map(|limit| limit as usize));
    if suite.cases.is_empty() {
        let problem =
            Problem::new("--filter", "no case matches").hint("use a pattern over ids, or `tag:NAME`");
        return Err(problem.into());
    }
    Ok(suite)
}

fn dry_run(
    ui: &mut Ui,
    agentline: &Agentline,
    suite: &Suite,
    args: &RunBatchArgs,
) -> Result<u8, CommandError> {
    let runs = suite.repeat as usize * suite.cases.len() * suite.variants.len();
    let out = ui.out();
    writeln!(
        out,
        "{}: {} cases × {} variants × {} = {runs} runs",
        suite.name,
        suite.cases.len(),
        suite.variants.len(),
        suite.repeat
    )?;
    for variant in &suite.variants {
        writeln!(out, "variant {}", variant.id)?;
    }
    for case in &suite.cases {
        let first = case.prompts.first().and_then(|prompt| prompt.lines().next()).unwrap_or_default();
        let short: String = first.chars().take(80).collect();
        writeln!(out, "case {}: {short}", case.id)?;
    }
    let dir = args.dir.clone().unwrap_or_else(|| default_dir(&suite.name));
    let experiment = match Experiment::read(&dir) {
        Ok(experiment) => Some(experiment),
        Err(StoreError::Missing(_)) => None,
        Err(error) => return Err(store_error(&error)),
    };
    let rerun = args.rerun.map_or(Rerun::None, RerunArg::which);
    let forecast = BatchForecast::new(agentline, suite, experiment.as_ref(), rerun).map_err(batch_error)?;
    if forecast.finished > 0 {
        writeln!(out, "{} of them have a result already", forecast.finished)?;
    }
    let price = match forecast.price {
        None => "unknown".to_owned(),
        Some(PriceRange { least, most, results, .. }) if results > 0 => {
            format!("${least:.2} to ${most:.2} (from {results} earlier results)")
        }
        Some(PriceRange { most, .. }) => format!("at most ${most:.2}"),
    };
    writeln!(out, "price: {price}")?;
    if forecast.undeclared > 0 {
        ui.warn(&format!(
            "{} runs have MCP servers, and the suite does not say whether an interrupted run may be executed again; \
             set `repeatable` to true or false",
            forecast.undeclared
        ));
    }
    Ok(exit::DONE)
}

/// Runs the batch and shows its progress.
async fn follow(
    ui: &mut Ui,
    agentline: Agentline,
    suite: Suite,
    experiment: Experiment,
    options: BatchOptions,
    output: BatchOutput,
) -> Result<BatchSummary, CommandError> {
    let (stop_sender, stop) = watch::channel(BatchShutdown::None);
    let (events, incoming) = mpsc::unbounded_channel();
    let dir = experiment.dir().to_owned();
    let progress = BatchProgress::new(&suite);
    let batch =
        tokio::spawn(async move { run_batch(&agentline, suite, experiment, options, stop, events).await });
    let stopping = "finishing the runs in progress; press Ctrl-C again to stop them";
    show_events(ui, progress, incoming, stop_sender, output, &dir, stopping).await?;
    let ended = batch.await.map_err(|error| CommandError::failed(error.to_string()))?;
    ended.map_err(batch_error)
}

/// Shows what happens until the batch ends, and stops it on signals.
async fn show_events(
    ui: &mut Ui,
    mut progress: BatchProgress,
    mut incoming: mpsc::UnboundedReceiver<BatchEvent>,
    stop_sender: watch::Sender<BatchShutdown>,
    output: BatchOutput,
    dir: &Path,
    stopping: &str,
) -> Result<(), CommandError> {
    let mut signals = StopSignals::new()?;
    let mut signalled = 0_u32;
    loop {
        tokio::select! {
            event = incoming.recv() => {
                let Some(event) = event else { break };
                if let BatchEvent::RunEnded { result: Some(result), .. } = &event
                    && output == BatchOutput::Jsonl
                {
                    writeln!(ui.out(), "{}", result_line(result, dir))?;
                    ui.out().flush()?;
                }
                progress.show(ui, event);
            }
            signal = signals.next() => {
                signalled += 1;
                let stop = if signalled == 1 { BatchShutdown::Graceful(signal) } else { BatchShutdown::Immediate(signal) };
                let _ = stop_sender.send(stop);
                if signalled == 1 {
                    ui.print_status(stopping);
                }
            }
        }
    }
    Ok(())
}

/// Returns the line of a finished run for `-o jsonl`.
fn result_line(result: &RunResult, dir: &Path) -> String {
    let outcome = read_unlinked(&dir.join(&result.dir).join("outcome.json"), LARGEST_OUTCOME)
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    json!({
        "case": result.case,
        "variant": result.variant,
        "attempt": result.attempt,
        "class": result.class,
        "verdict": result.verdict,
        "kind": result.kind,
        "checks": result.checks,
        "message": result.message,
        "cost_usd": result.cost_usd,
        "judge_cost_usd": result.judge_cost_usd,
        "duration_ms": result.duration_ms,
        "isolation": result.isolation,
        "hidden_covered": result.hidden_covered,
        "dir": result.dir,
        "outcome": outcome,
    })
    .to_string()
}

fn exit_code(summary: &BatchSummary) -> u8 {
    let count = |class| summary.counts.get(&class).copied().unwrap_or(0);
    match summary.stopped_by {
        Some(signal) if summary.remaining > 0 => exit::by_signal(signal),
        _ if summary.is_cancelled => exit::by_signal(Signal::Interrupt),
        _ if summary.limit.is_some() => exit::LIMIT_REACHED,
        _ if count(Class::Failed) > 0 => exit::FAILED,
        _ if count(Class::Infrastructure) > 0 => exit::INFRASTRUCTURE,
        _ => exit::DONE,
    }
}
