//! The command-line arguments: the commands, and the options that all of them share.

use crate::{
    commands::{
        acp::AcpArgs, agents::AgentsArgs, batch::BatchArgs, cache::CacheArgs, compare::CompareArgs,
        completions::CompletionsArgs, config::ConfigArgs, conformance::ConformanceArgs, demo::DemoArgs,
        doctor::DoctorArgs, host::HostArgs, install::InstallArgs, mcp::McpArgs, policy::PolicyArgs,
        pool::PoolArgs, prices::PricesArgs, replay::ReplayArgs, report::ReportArgs, run::RunArgs,
        serve::ServeArgs, sessions::SessionsArgs, trust::TrustArgs, undo::UndoArgs, worker::WorkerArgs,
    },
    exit,
    ui::Global,
};
use agentline_core::agents::built_in;
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  agentline demo                              run a demo, no account needed
  agentline run \"why does the build fail?\"    ask the default agent about this directory
  agentline run --permission-mode accept-edits \"fix the failing test\"
  git diff | agentline run -o json            read the prompt from a pipe, print one JSON object
  agentline run --record run.tape.jsonl \"…\"   record everything that happens
  agentline replay run.tape.jsonl             replay the recorded run
";

const ENVIRONMENT: &str = "\
Environment:
  AGENTLINE_…           any setting, such as AGENTLINE_MODEL; see `agentline config show`
  AGENTLINE_CONFIG      path of your settings file [default: ~/.config/agentline/config.toml]
  AGENTLINE_CACHE_DIR   directory for installed agents and cached results [default: ~/.cache/agentline]
  NO_COLOR              disable colors
";

/// Returns the examples, exit codes and environment variables, including those of every agent.
fn long_help() -> String {
    let mut help = format!("{EXAMPLES}\n{}\n{ENVIRONMENT}", exit::HELP);
    let agents = built_in();
    for info in agents.iter().map(|agent| agent.info()) {
        let line = format!("path of the {} program [default: the first one found]", info.title);
        help.push_str(&format!("  {:<20}  {line}\n", info.path_variable));
        if let Some(adapter) = info.adapter {
            let line = format!("path of the ACP adapter for {}", info.title);
            help.push_str(&format!("  {:<20}  {line}\n", adapter.path_variable));
        }
    }
    help
}

/// Run coding agents and report what they did.
#[derive(Debug, Parser)]
#[command(
    name = "agentline",
    bin_name = "agentline",
    version,
    about,
    long_about = "Run coding agents (Gemini CLI by default) and report what they did: the answer, the files that changed \
                  on disk, the cost, and whether the run succeeded.\n\n\
                  Standard output contains only the answer. Progress, warnings and errors go to standard error.",
    after_help = EXAMPLES,
    after_long_help = long_help(),
    disable_help_subcommand = true,
    max_term_width = 110,
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run one prompt with an agent
    Run(Box<RunArgs>),
    /// Run one prompt with several agents side by side, each in its own copy of the workspace
    Compare(Box<CompareArgs>),
    /// Run a suite of cases many times, and resume it
    Batch(Box<BatchArgs>),
    /// Report the results of a batch
    Report(ReportArgs),
    /// Execute runs that others submit to a queue
    Worker(Box<WorkerArgs>),
    /// Replay a recorded run
    Replay(ReplayArgs),
    /// List, show, search, export and follow saved sessions
    Sessions(SessionsArgs),
    /// Check installed agents, sign-in and settings
    Doctor(DoctorArgs),
    /// Check that agents behave alike, against scripted models
    Conformance(ConformanceArgs),
    /// List agents and their features
    Agents(AgentsArgs),
    /// Install pinned versions of agents into the cache directory
    Install(InstallArgs),
    /// Explain what each agent does under a policy
    Policy(PolicyArgs),
    /// Manage the pool that keeps agents warm between runs
    Pool(PoolArgs),
    /// Show or clear the cache of results
    Cache(CacheArgs),
    /// Show token prices and their date
    Prices(PricesArgs),
    /// Serve runs to another program over JSON-RPC on standard input and output
    Host(HostArgs),
    /// Serve any agent to an editor over ACP on standard input and output
    Acp(Box<AcpArgs>),
    /// Offer agents as tools of an MCP server, so that other agents can start them
    Mcp(McpArgs),
    /// Serve runs, conversations and saved sessions over HTTP, with a page
    Serve(Box<ServeArgs>),
    /// Run a demo without an account: a real agent with a scripted model
    Demo(DemoArgs),
    /// Show or check the effective settings
    Config(ConfigArgs),
    /// Take back the change that an isolated run applied
    Undo(UndoArgs),
    /// Trust a directory's own settings in their current state
    Trust(TrustArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
}
