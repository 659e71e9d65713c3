//! `agentline worker`: executes the runs of experiments that others submit to a queue.

use super::batch::{IsolateArg, prepare_overlays};
use super::experiment_error::distributed_error;
use super::queue::QueueArgs;
use super::stop_signals::StopSignals;
use crate::{completers, error::CommandError, exit, live_run, ui::Ui};
use agentline::{Agentline, PermissionMode, Problem, config::Settings};
use agentline_batch::{BatchShutdown, RunningJob, WorkerEvent, WorkerOptions, run_worker};
use clap::{Args, builder::PossibleValuesParser};
use clap_complete::engine::ArgValueCompleter;
use std::{path::PathBuf, time::Duration};
use tokio::sync::{mpsc, watch};

/// How long a worker waits for a queue at its start before it says why it cannot be reached.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "\
Whoever can write to the queue can run commands on this machine as this user. A job cannot use other agents, looser \
permission modes or more money than these flags allow.

SIGTERM or Ctrl-C once finishes the runs in progress; twice stops them and returns them to the queue.
")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    queue: QueueArgs,
    /// The number of runs at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// The agents that jobs may use [default: all that are installed and signed in]
    #[arg(long, value_name = "AGENT", value_delimiter = ',', add = ArgValueCompleter::new(completers::agents))]
    agents: Vec<String>,
    /// A label that suites can demand with `worker_labels` (can be given several times)
    #[arg(long = "label", value_name = "NAME")]
    labels: Vec<String>,
    /// The loosest permission mode that jobs may have
    #[arg(long, value_name = "MODE", default_value = "bypass", value_parser = PossibleValuesParser::new(PermissionMode::NAMES))]
    max_mode: String,
    /// Claim nothing more when the runs of this worker have cost this many US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = positive)]
    max_cost: Option<f64>,
    /// How long a claim lasts if this worker disappears
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    lease: Duration,
    /// How long runs may still take after SIGTERM before they are returned [default: until they end]
    #[arg(long, value_name = "TIME", value_parser = agentline_core::config::parse_duration)]
    drain: Option<Duration>,
    /// The name of this worker, unique in the queue [default: the name of the machine and the process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Keep templates of workspaces in this directory [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How each run gets its own workspace [default: an overlay where the system allows it, otherwise a copy]
    #[arg(long, value_name = "HOW")]
    isolate: Option<IsolateArg>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".into()),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let time = agentline_core::config::parse_duration(text)?;
    if time < Duration::from_secs(1) { Err("must be at least 1s".into()) } else { Ok(time) }
}

pub(crate) fn run(ui: &mut Ui, args: &WorkerArgs) -> Result<u8, CommandError> {
    if args.queue.address().is_none() {
        let problem = Problem::new("--queue", "is missing");
        return Err(problem.hint("name a queue, such as nats://localhost, or set AGENTLINE_QUEUE").into());
    }
    let agentline = Agentline::from_env()?;
    let mut options = WorkerOptions::new(args.name.clone().unwrap_or_else(default_name));
    options.jobs = args.jobs.map_or(options.jobs, |jobs| jobs as usize);
    options.lease = args.lease;
    options.labels.clone_from(&args.labels);
    options.policy.agents = known_agents(&agentline, &args.agents)?;
    options.policy.max_mode = PermissionMode::parse(&args.max_mode);
    options.policy.max_cost_usd = args.max_cost;
    options.dir.clone_from(&args.dir);
    options.drain = args.drain;
    options.isolate = args.isolate.map(IsolateArg::method);
    prepare_overlays(ui, args.isolate, &std::env::temp_dir())?;
    let runtime = live_run::runtime((options.jobs + 1).min(4))?;
    let ended = runtime.block_on(work(ui, &agentline, options, &args.queue));
    // All runs have ended. A request to a queue or a file system that does not answer is abandoned.
    runtime.shutdown_timeout(Duration::from_secs(3));
    ended.map(|()| exit::DONE)
}

/// Returns the agents by their ids, also those of the user's configuration; `None` if none is named.
fn known_agents(agentline: &Agentline, names: &[String]) -> Result<Option<Vec<String>>, CommandError> {
    let host_env = agentline.host_env();
    let settings =
        Settings::find(&host_env.cwd, None, Some(&host_env.home), std::env::vars_os(), Vec::new()).build()?;
    let (agentline, _) = agentline.clone().with_config(&settings);
    let mut ids = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let found = agentline.registry().find(name).map_err(|mut problem| {
            problem.key = "--agents".into();
            CommandError::from(problem)
        })?;
        ids.push(found.info().id.to_owned());
    }
    Ok(Some(ids).filter(|ids| !ids.is_empty()))
}

/// Returns a name for this worker that no other one has.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    format!("{host}-{}-{:04x}", std::process::id(), rand_suffix())
}

/// Returns a number that differs between containers with the same name and process.
fn rand_suffix() -> u16 {
    use std::hash::{BuildHasher, Hasher};
    let number = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u16::try_from(number & 0xffff).unwrap_or(0)
}

async fn work(
    ui: &mut Ui,
    agentline: &Agentline,
    options: WorkerOptions,
    queue: &QueueArgs,
) -> Result<(), CommandError> {
    let address = queue.shown();
    let mut signals = StopSignals::new()?;
    let connected = tokio::select! {
        connected = queue.connect(PATIENCE) => connected?,
        _ = signals.next() => return Ok(()),
    };
    let (stop_sender, stop) = watch::channel(BatchShutdown::None);
    let (events, mut incoming) = mpsc::unbounded_channel();
    let agentline = agentline.clone();
    let name = options.name.clone();
    let worker = tokio::spawn(async move { run_worker(&agentline, connected, options, stop, events).await });
    let mut signalled = 0_u32;
    loop {
        tokio::select! {
            event = incoming.recv() => {
                let Some(event) = event else { break };
                show(ui, &name, &address, &event);
            }
            signal = signals.next() => {
                signalled += 1;
                let stop = if signalled == 1 { BatchShutdown::Graceful(signal) } else { BatchShutdown::Immediate(signal) };
                let _ = stop_sender.send(stop);
                if signalled == 1 {
                    ui.print_status("finishing the runs in progress; signal again to return them to the queue");
                }
            }
        }
    }
    let ended = worker.await.map_err(|error| CommandError::failed(error.to_string()))?;
    ended.map_err(distributed_error)
}

fn show(ui: &mut Ui, name: &str, address: &str, event: &WorkerEvent) {
    let run = |run: &RunningJob| {
        format!("{} · {} · {} · attempt {}", run.experiment, run.case, run.variant, run.attempt)
    };
    match event {
        WorkerEvent::Ready { agents } if agents.is_empty() => {
            ui.print_status(format!(
                "{name} is connected to {address}, but no agent is ready; `agentline doctor` says why"
            ));
        }
        WorkerEvent::Ready { agents } => {
            ui.print_status(format!("{name} waits for runs from {address} with {}", agents.join(", ")));
        }
        WorkerEvent::Began(job) => ui.detail(format!("{}: began", run(job))),
        WorkerEvent::Committed { run: job, class } => {
            ui.print_status(format!("{}: {}", run(job), class.name()))
        }
        WorkerEvent::Delayed { run: job, reason } => {
            ui.print_status(format!("{}: {reason}; trying again", run(job)));
        }
        WorkerEvent::NotStored { run: job, reason } => {
            ui.print_status(format!("{}: its files are not stored: {reason}", run(job)));
        }
        WorkerEvent::Dropped { run: job, reason } => {
            ui.print_status(format!("{}: no result here, because {reason}", run(job)));
        }
        WorkerEvent::Skipped { experiment, reason } => {
            ui.print_status(format!("{experiment}: its runs cannot be claimed, and are left out: {reason}"));
        }
        WorkerEvent::Unreachable(reason) => ui.print_status(format!("{reason}; trying again")),
        WorkerEvent::Reconnected => ui.print_status("the queue can be reached again"),
        _ => {}
    }
}
