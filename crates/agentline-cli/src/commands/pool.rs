//! `agentline pool`: keeps agents warm between runs, in a daemon.

use crate::{completers, error::CommandError, output::ReportFormat, ui::Ui};
#[cfg(unix)]
use crate::{live_run, setup::Setup};
#[cfg(unix)]
use agentline::supervisor::Supervisor;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

const EXAMPLES: &str = "\
Examples:
  agentline pool start                          start the daemon
  agentline pool start --prewarm                also start the default agent
  for p in one two three; do agentline run --warm \"$p\"; done
  agentline pool status
  agentline pool stop
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// Start the daemon if it is not running
    Start(StartArgs),
    /// Show the daemon's agents, their runs and their memory use
    Status {
        /// Output format
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: ReportFormat,
    },
    /// Stop all agents and the daemon
    Stop,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    /// Maximum number of agent processes
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    processes: u16,
    /// Exit after this long without work: seconds, or a duration such as `10m`
    #[arg(long, value_name = "TIME", default_value = "15m")]
    idle: String,
    /// Replace an agent that uses more memory than this, in MB
    #[arg(long, value_name = "MB", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..))]
    memory: u32,
    /// Start an agent for runs in this directory: `--prewarm` (the agent of your settings), `--prewarm=claude`
    /// (repeatable)
    #[arg(long, value_name = "AGENT", num_args = 0..=1, require_equals = true, default_missing_value = "",
          conflicts_with = "foreground", add = ArgValueCompleter::new(completers::agents))]
    prewarm: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
}

#[cfg(not(unix))]
pub(crate) fn run(_ui: &mut Ui, _args: PoolArgs) -> Result<u8, CommandError> {
    Err(CommandError::failed(
        "the pool daemon is not supported on this system; use `Pool` of the library instead",
    ))
}

#[cfg(unix)]
pub(crate) fn run(ui: &mut Ui, args: PoolArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, None)?;
    let config = setup.config()?;
    let (agentline, request) = setup.with_config(&config);
    match args.command {
        PoolCommand::Start(start) if start.foreground => {
            unix::serve(ui, &agentline, &start, config.supervisor.map(Supervisor::Path))
        }
        PoolCommand::Start(start) => live_run::start(|| async {
            let code = unix::start(ui, &agentline, &start).await?;
            unix::prewarm(ui, &agentline, &request, &start.prewarm).await?;
            Ok(code)
        }),
        PoolCommand::Status { output } => live_run::start(|| unix::status(ui, &agentline, output)),
        PoolCommand::Stop => live_run::start(|| unix::stop(ui, &agentline)),
    }
}

#[cfg(unix)]
mod unix {
    use super::StartArgs;
    use crate::{error::CommandError, exit, live_run, output::ReportFormat, ui::Ui};
    use agentline::{
        Agentline, PoolOptions, Problem, RunRequest,
        host::daemon::{self, Client, DaemonOptions, NoDaemon},
        supervisor::Supervisor,
    };
    use agentline_core::config::parse_duration;
    use std::{
        io::Write,
        os::unix::process::CommandExt,
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    /// The maximum time for the daemon to start.
    const START: Duration = Duration::from_secs(10);

    /// Starts the daemon as a separate process and waits until it answers.
    pub(super) async fn start(
        ui: &mut Ui,
        agentline: &Agentline,
        args: &StartArgs,
    ) -> Result<u8, CommandError> {
        idle(args)?;
        match Client::status(agentline.host_env()).await {
            Ok(status) => {
                ui.print_status(format!("the pool is already running (process {})", status.pid));
                return Ok(exit::DONE);
            }
            Err(error @ NoDaemon::OtherVersion(_)) => return Err(CommandError::failed(error.to_string())),
            Err(_) => {}
        }
        let program = std::env::current_exe().map_err(|error| {
            CommandError::failed(format!("cannot find the agentline executable: {error}"))
        })?;
        let mut daemon = Command::new(program)
            .args(["pool", "start", "--foreground", "--quiet", "--idle", &args.idle])
            .args(["--processes", &args.processes.to_string(), "--memory", &args.memory.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A new process group, so that signals of this terminal do not reach it.
            .process_group(0)
            .spawn()
            .map_err(|error| CommandError::failed(format!("cannot start the pool: {error}")))?;
        let until = Instant::now() + START;
        loop {
            if let Ok(status) = Client::status(agentline.host_env()).await {
                ui.print_status(format!(
                    "started the pool (process {}); use it with `agentline run --warm`",
                    status.pid
                ));
                return Ok(exit::DONE);
            }
            if let Ok(Some(ended)) = daemon.try_wait() {
                let hint = "run `agentline pool start --foreground` to see why";
                return Err(CommandError::failed(format!("the pool exited at startup ({ended}); {hint}")));
            }
            if Instant::now() >= until {
                return Err(CommandError::failed(format!(
                    "the pool did not respond within {} s",
                    START.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts the agents for runs with the current settings, and waits until they are ready.
    pub(super) async fn prewarm(
        ui: &mut Ui,
        agentline: &Agentline,
        request: &RunRequest,
        agents: &[String],
    ) -> Result<(), CommandError> {
        for name in agents {
            let mut request = request.clone();
            if !name.is_empty() {
                agentline.registry().find(name)?;
                request.agent = name.as_str().into();
            }
            let agent = request.agent.clone();
            ui.busy(&format!("starting {agent}"));
            let client = Client::connect(agentline.host_env()).await;
            let client = client.map_err(|error| CommandError::failed(error.to_string()))?;
            let ready = client.prewarm(agentline, &request).await?;
            ui.clear_spinner();
            if ready == 0 {
                let hint = format!(
                    "run `agentline doctor {agent}`; the settings may need a surface that stays cold"
                );
                return Err(CommandError::Unable { message: format!("could not prewarm {agent}"), hint });
            }
            ui.print_status(format!("{agent} is warm for runs in this directory"));
        }
        Ok(())
    }

    /// Runs the daemon until it is stopped.
    pub(super) fn serve(
        ui: &mut Ui,
        agentline: &Agentline,
        args: &StartArgs,
        supervisor: Option<Supervisor>,
    ) -> Result<u8, CommandError> {
        let mut options = DaemonOptions::default();
        let mut pool = PoolOptions::default();
        pool.max_processes = args.processes.into();
        pool.max_memory = u64::from(args.memory) << 20;
        options.pool = pool;
        options.idle_exit = idle(args)?;
        options.supervisor = supervisor.unwrap_or_default();
        ui.print_status(format!("listening on {}", daemon::socket(agentline.host_env()).display()));
        live_run::start(|| async {
            let last = daemon::serve(agentline.host_env(), options, live_run::stopped()).await?;
            // The exit of this process closes them, so `pool stop` returns after it.
            std::mem::forget(last);
            Ok(exit::DONE)
        })
    }

    fn idle(args: &StartArgs) -> Result<Duration, CommandError> {
        parse_duration(&args.idle).ok().filter(|time| !time.is_zero()).ok_or_else(|| {
            Problem::new("--idle", format!("`{}` is not a duration", args.idle))
                .hint("use seconds, or a duration such as `10m`")
                .into()
        })
    }

    pub(super) async fn status(
        ui: &mut Ui,
        agentline: &Agentline,
        output: ReportFormat,
    ) -> Result<u8, CommandError> {
        let status = match Client::status(agentline.host_env()).await {
            Ok(status) => status,
            Err(error) => {
                if output == ReportFormat::Json {
                    writeln!(ui.out(), "null")?;
                }
                ui.print_status(format!("{error}; start one with `agentline pool start`"));
                return Ok(exit::FAILED);
            }
        };
        if output == ReportFormat::Json {
            let json = serde_json::to_string_pretty(&status).unwrap_or_default();
            writeln!(ui.out(), "{json}")?;
            return Ok(exit::DONE);
        }
        let pool = &status.pool;
        let out = ui.out();
        writeln!(out, "pool       process {}, up {}", status.pid, seconds(status.age_ms))?;
        writeln!(out, "socket     {}", status.socket.display())?;
        let (runs, queued) = (pool.runs, pool.queued);
        writeln!(out, "runs       {runs}, {queued} waiting, {} retried", pool.retried)?;
        writeln!(
            out,
            "agents     {} running, {} started, {} recycled",
            pool.processes.len(),
            pool.started,
            pool.recycled
        )?;
        for process in &pool.processes {
            let version = process.version.as_deref().unwrap_or("?");
            let pid = process.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
            let memory = process.memory.map_or_else(|| "-".into(), |bytes| format!("{} MB", bytes >> 20));
            let state = match (process.ready, process.active) {
                (false, _) => "starting".to_owned(),
                (true, 0) => "idle".to_owned(),
                (true, runs) => format!("{runs} running"),
            };
            let age = seconds(process.age_ms);
            writeln!(
                out,
                "  {} {version}  process {pid}, {state}, {} sessions, {memory}, up {age}",
                process.agent, process.sessions
            )?;
        }
        Ok(exit::DONE)
    }

    pub(super) async fn stop(ui: &mut Ui, agentline: &Agentline) -> Result<u8, CommandError> {
        if Client::stop(agentline.host_env()).await {
            ui.print_status("stopped the pool and its agents");
        } else {
            ui.print_status("no pool is running");
        }
        Ok(exit::DONE)
    }

    fn seconds(ms: u64) -> String {
        format!("{}.{} s", ms / 1000, ms % 1000 / 100)
    }
}
