//! The command-line arguments: the commands, and the options that all of them share.

use crate::{
    commands::{
        agents::AgentsArgs, cache::CacheArgs, completions::CompletionsArgs, config::ConfigArgs,
        demo::DemoArgs, doctor::DoctorArgs, host::HostArgs, policy::PolicyArgs, pool::PoolArgs,
        prices::PricesArgs, replay::ReplayArgs, run::RunArgs, sessions::SessionsArgs, trust::TrustArgs,
    },
    exit,
    ui::Color,
};
use agentline::core::agents::AGENTS;
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  agentline demo                              watch a whole run, with no account
  agentline run \"why does the build fail?\"    ask the default agent about this folder
  agentline run --permission-mode accept-edits \"fix the failing test\"
  git diff | agentline run -o json            a prompt from a pipe, one JSON object at the end
  agentline run --record run.tape.jsonl \"…\"   keep everything that happens, and see it again:
  agentline replay run.tape.jsonl
";

const ENVIRONMENT: &str = "\
Environment:
  AGENTLINE_…           every setting, such as AGENTLINE_MODEL; see `agentline config show`
  AGENTLINE_CONFIG      your settings, instead of ~/.config/agentline/config.toml
  AGENTLINE_CACHE_DIR   where agents and known outcomes are kept, instead of ~/.cache/agentline
  NO_COLOR              no colours
";

/// Returns the examples, exit codes and environment variables, including those of every agent.
fn long_help() -> String {
    let mut help = format!("{EXAMPLES}\n{}\n{ENVIRONMENT}", exit::HELP);
    for info in AGENTS.iter().map(|agent| agent.info()) {
        let line = format!("{}'s program, instead of the first one that is found", info.title);
        help.push_str(&format!("  {:<20}  {line}\n", info.path_variable));
    }
    help
}

/// Drives coding-agent command-line tools and tells the truth about what they did.
#[derive(Debug, Parser)]
#[command(
    name = "agentline",
    bin_name = "agentline",
    version,
    about,
    long_about = "Drives coding-agent command-line tools (Gemini CLI first) and tells the truth about what they did: \
                  what was said, which files really changed, what it cost, and whether it worked.\n\n\
                  Standard output holds the answer and nothing else; progress, warnings and errors go to standard error.",
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

/// Options of every command.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Global {
    /// Say nothing on standard error but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more: the agent's command line, and which variables it does not see
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Give one prompt to one agent
    Run(Box<RunArgs>),
    /// Play a recorded run again, exactly
    Replay(ReplayArgs),
    /// List, show, search, export, count and follow what the agents saved
    Sessions(SessionsArgs),
    /// Say which agents are here, whether they could run, and what to do about it
    Doctor(DoctorArgs),
    /// List the agents and what each of them can do
    Agents(AgentsArgs),
    /// Show what each agent will do with a policy
    Policy(PolicyArgs),
    /// Keep agents warm between runs
    Pool(PoolArgs),
    /// Say what the cache of outcomes holds, or empty it
    Cache(CacheArgs),
    /// Say what tokens cost, and of which day that is
    Prices(PricesArgs),
    /// Serve a program in any language over standard input and output
    Host(HostArgs),
    /// Watch a whole run with no account: the real agent against a scripted model
    Demo(DemoArgs),
    /// Show the settings that are in force, or check them
    Config(ConfigArgs),
    /// Trust a directory's own settings in full, as they are now
    Trust(TrustArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

/// How a run is told on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The assistant's text as it streams
    #[default]
    Text,
    /// One JSON object when the run ends, also when it fails
    Json,
    /// One JSON object per event, the outcome last
    Events,
    /// The lines of Claude Code's stream-json
    Claude,
    /// {"response", "files"} for a workflow's provider
    Provider,
    /// {"output", "tokenUsage", "cost", …} for promptfoo
    Promptfoo,
}

/// How a report is told on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}
