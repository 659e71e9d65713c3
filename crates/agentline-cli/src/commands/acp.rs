//! `agentline acp`: serves any agent as an ACP agent on standard input and output, for editors.

use crate::{completers, error::CommandError, exit, live_run, setup::Setup, ui::Ui};
use agentline::{Agentline, Problem, Problems, RunRequest, agents::AgentRegistry};
use agentline_acp::{AcpServer, AcpTransport, ConnectionEnd, Workspace};
use agentline_core::{Layer, agents::CustomAgent};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Map, Number, Value};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How long blocked threads may delay the exit.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  agentline acp -- gemini                            an agent by its name
  agentline acp --deny 'Bash(git push*)' -- claude   with a rule of your own
  agentline acp --record s.tape.jsonl -- npx -y some-agent --acp

The page docs/acp.md has the configuration of editors.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcpArgs {
    /// Name of an agent, or the command line of any ACP agent
    #[arg(required = true, trailing_var_arg = true, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    agent: Vec<String>,
    /// Interface to the agent: auto, acp, stream-json, app-server, serve [default: auto]
    #[arg(long)]
    surface: Option<String>,
    /// Model of new sessions, as the agent names it
    #[arg(add = ArgValueCompleter::new(completers::models), short, long)]
    model: Option<String>,
    /// Write a tape of all messages
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Directory in which the agent starts [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Permissions")]
    cwd: Option<PathBuf>,
    /// Directory outside the workspace that tools may use (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Permissions")]
    include_dir: Vec<PathBuf>,
    /// Permission mode: default, accept-edits, bypass, plan, auto or deny; where it decides nothing, the editor asks
    /// [default: default]
    #[arg(add = ArgValueCompleter::new(completers::modes), long, value_name = "MODE", help_heading = "Permissions")]
    permission_mode: Option<String>,
    /// Allow a tool, path or command: `Write(src/**)`, `Bash(git *)`, `WebFetch` (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    allow: Vec<String>,
    /// Deny a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    deny: Vec<String>,
    /// Let the editor ask before using a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    ask: Vec<String>,
    /// Trust in the workspace: run (do not load its own settings, hooks and MCP servers), full, no
    /// [default: run, or full after `agentline trust`]
    #[arg(long, value_name = "HOW", help_heading = "Permissions")]
    trust: Option<String>,
    /// Set a variable in the agent's environment (repeatable)
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Permissions")]
    env: Vec<String>,
    /// Pass one of your variables to the agent; `*` passes all (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Permissions")]
    pass_env: Vec<String>,

    /// Time limit of a prompt: seconds, or a duration such as `90s` [default: 10m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    timeout: Option<String>,
    /// Maximum time without output while no tool runs and no permission is pending [default: 2m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    idle_timeout: Option<String>,
    /// Maximum time until the agent first responds [default: 1m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    startup_timeout: Option<String>,
    /// Maximum number of model turns of all prompts together
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_turns: Option<u32>,
    /// Maximum number of tool calls of all prompts together
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_tool_calls: Option<u32>,
    /// Maximum number of tokens of all prompts together
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_tokens: Option<u64>,
    /// Maximum number of output tokens of all prompts together, including thoughts
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_output_tokens: Option<u64>,
    /// Maximum cost of all prompts together, in US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_cost: Option<f64>,
}

pub(crate) fn run(ui: &mut Ui, args: AcpArgs) -> Result<u8, CommandError> {
    let (agentline, request) = configured(&args, args.cwd.as_deref())?;
    let directory = request.working_dir.clone().unwrap_or_else(|| agentline.host_env().cwd.clone());
    let directory = agentline.host_env().cwd.join(directory);
    let server = AcpServer::new(move |directory| {
        let (agentline, mut request) = configured(&args, Some(directory))?;
        request.working_dir = Some(directory.to_owned());
        Ok(Workspace::new(agentline, request))
    });
    server.check(&directory)?;
    let runtime = live_run::runtime(2)?;
    let served = runtime.block_on(async {
        let transport = AcpTransport::lines(tokio::io::stdin(), tokio::io::stdout());
        tokio::select! {
            served = server.serve(&directory, transport) => served.map(Ok),
            signal = live_run::first_signal() => Ok(Err(signal)),
        }
    });
    // Dropping the remaining tasks ends the agent. A thread may still be blocked on standard input.
    runtime.shutdown_timeout(EXIT_TIMEOUT);
    match served? {
        Ok(ConnectionEnd::AgentExited) => {
            ui.warn("the agent has exited");
            Ok(exit::FAILED)
        }
        Ok(_) => Ok(exit::DONE),
        Err(signal) => Err(CommandError::Signal(signal)),
    }
}

/// Returns the settings that apply in a directory, with the agent of the command line.
fn configured(args: &AcpArgs, directory: Option<&Path>) -> Result<(Agentline, RunRequest), Problems> {
    let setup = Setup::read(directory, Some(Layer::flags(args.table()))).map_err(into_problems)?;
    let config = setup.config()?;
    let (agentline, mut request) = setup.with_config(&config);
    let mut registry = agentline.registry().clone();
    request.agent = agent(&mut registry, &agentline, &args.agent)?.into();
    Ok((agentline.agents(registry), request))
}

fn into_problems(error: CommandError) -> Problems {
    match error {
        CommandError::Usage(problems) => problems,
        CommandError::Failed(message) => Problem::new("cwd", message).into(),
        _ => Problem::new("cwd", "the settings cannot be read").into(),
    }
}

/// Returns the name of the agent that the words name. A command line becomes an agent of its own.
fn agent(registry: &mut AgentRegistry, agentline: &Agentline, words: &[String]) -> Result<String, Problem> {
    let [first, rest @ ..] = words else { return Err(Problem::new("AGENT", "is missing")) };
    let unknown = match registry.find(first.as_str()) {
        Ok(_) if rest.is_empty() => return Ok(first.clone()),
        Ok(_) => {
            let message = format!("`{first}` is the name of an agent, so no words can follow it");
            let hint = format!("set its arguments in `[agents.{first}]`, or name its program with a path");
            return Err(Problem::new("AGENT", message).hint(hint));
        }
        Err(unknown) => unknown,
    };
    if !is_program(agentline, first) {
        let hint = unknown.hint.unwrap_or_else(|| "pass the name of an agent, or a command line".to_owned());
        return Err(Problem::new("AGENT", format!("`{first}` is neither an agent nor a program")).hint(hint));
    }
    let stem = Path::new(first).file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = if registry.find(name.as_str()).is_ok() { format!("{name}-command") } else { name };
    registry.register(Arc::new(CustomAgent::new(name.clone(), words.iter().cloned())))?;
    Ok(name)
}

fn is_program(agentline: &Agentline, name: &str) -> bool {
    let host_env = agentline.host_env();
    if name.contains(['/', '\\']) {
        return host_env.cwd.join(name).is_file();
    }
    let path = host_env.env.get("PATH").cloned().unwrap_or_default();
    let endings: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd", ".bat"] } else { &[""] };
    std::env::split_paths(&path)
        .any(|dir| endings.iter().any(|ending| dir.join(format!("{name}{ending}")).is_file()))
}

impl AcpArgs {
    /// Returns the flags as settings.
    fn table(&self) -> Map<String, Value> {
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let list = |value: &[String]| (!value.is_empty()).then(|| value.into());
        let path = |path: &PathBuf| Value::from(path.to_string_lossy().into_owned());
        let dirs: Vec<Value> = self.include_dir.iter().map(path).collect();
        // A number that JSON cannot represent is passed as text, so that it is rejected instead of ignored.
        let cost = |usd: f64| Number::from_f64(usd).map_or_else(|| usd.to_string().into(), Value::from);
        let settings = [
            ("surface", text(&self.surface)),
            ("model", text(&self.model)),
            ("record", self.record.as_ref().map(path)),
            ("working_dir", self.cwd.as_ref().map(path)),
            ("include_directories", (!dirs.is_empty()).then(|| dirs.into())),
            ("permission_mode", text(&self.permission_mode)),
            ("allow", list(&self.allow)),
            ("deny", list(&self.deny)),
            ("ask", list(&self.ask)),
            ("trust", text(&self.trust)),
            ("env", list(&self.env)),
            ("pass_env", list(&self.pass_env)),
            ("timeout", text(&self.timeout)),
            ("idle_timeout", text(&self.idle_timeout)),
            ("startup_timeout", text(&self.startup_timeout)),
            ("max_turns", self.max_turns.map(Value::from)),
            ("max_tool_calls", self.max_tool_calls.map(Value::from)),
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("max_output_tokens", self.max_output_tokens.map(Value::from)),
            ("max_cost", self.max_cost.map(cost)),
        ];
        settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}
