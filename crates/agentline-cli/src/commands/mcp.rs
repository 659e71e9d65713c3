//! `agentline mcp`: offers agents as tools of an MCP server.

use crate::{completers, error::CommandError, exit, live_run, ui::Ui};
use agentline::{Agentline, PermissionMode, Problem, Problems};
use agentline_core::config::parse_duration;
use agentline_mcp::{
    AgentToolOptions, AgentToolServer, McpServerError, PARENT_VARIABLE, connect_to_parent, has_parent,
};
use clap::{Args, builder::PossibleValuesParser};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Map, Value};
use std::{error::Error as _, io::IsTerminal as _, net::SocketAddr, path::PathBuf, time::Duration};

/// The variable with the token of the HTTP server.
const TOKEN_VARIABLE: &str = "AGENTLINE_MCP_TOKEN";
/// The minimum length of that token.
const SHORTEST_TOKEN: usize = 16;

const EXAMPLES: &str = "\
Examples:
  agentline mcp --permission-mode accept-edits
  agentline mcp --root ~/project --agents gemini,codex --max-cost 2
  agentline mcp --listen 127.0.0.1:8931       serve over HTTP; the token is printed

Clients connect over standard input and output; their runs end with them. See docs/mcp.md for the settings of each \
client.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArgs {
    /// Serve over HTTP on this loopback address, such as 127.0.0.1:8931; port 0 chooses one. The token is that of
    /// AGENTLINE_MCP_TOKEN, or a new one that is printed
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Directory in which agents may work (repeatable) [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// The agents that may be started [default: all]
    #[arg(long, value_name = "AGENT", value_delimiter = ',', add = ArgValueCompleter::new(completers::agents))]
    agents: Vec<String>,
    /// The agent to start if the client names none [default: gemini]
    #[arg(short, long, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    agent: Option<String>,
    /// The loosest permission mode of a run [default: default]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(PermissionMode::NAMES))]
    permission_mode: Option<String>,
    /// Allow a tool, path or command: `Write(src/**)`, `Bash(git *)`, `WebFetch` (repeatable)
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// The most that all runs together may cost in US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = above_zero)]
    max_cost: Option<f64>,
    /// How deep agents may start agents: with 1, the agents of the client cannot start others
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=8))]
    max_depth: u32,
    /// How many agents may be at work at the same time
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    max_runs: u16,
    /// The longest time limit of a run [default: 10m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    timeout: Option<String>,
    /// How long one call of a tool takes at most. Many clients give up after 60s
    #[arg(long, value_name = "TIME", default_value = "45s", allow_negative_numbers = true, value_parser = time)]
    max_wait: Duration,
    /// How long the client has to answer a permission request, if it can be asked
    #[arg(long, value_name = "TIME", default_value = "30s", allow_negative_numbers = true, value_parser = time)]
    ask_timeout: Duration,
    /// With --listen: end the runs of a client after this time without a request or an open stream
    #[arg(long, value_name = "TIME", default_value = "2m", allow_negative_numbers = true, value_parser = time)]
    idle_end: Duration,
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".into()),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address with a port, such as 127.0.0.1:8931".into())
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() { Err("must be a time above 0".into()) } else { Ok(time) }
}

pub(crate) fn run(ui: &mut Ui, args: &McpArgs) -> Result<u8, CommandError> {
    let agentline = Agentline::from_env()?;
    let runtime = live_run::runtime(2)?;
    let served = runtime.block_on(serve(ui, agentline, args));
    // A thread may still be blocked on standard input; the exit does not wait for it. All runs are over.
    runtime.shutdown_background();
    served.map(|()| exit::DONE)
}

async fn serve(ui: &mut Ui, agentline: Agentline, args: &McpArgs) -> Result<(), CommandError> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    if args.listen.is_some() && has_parent(&agentline.host_env().env) {
        let message = "an agent that another server started cannot start a server of its own";
        return Err(Problem::new("--listen", message).hint("leave it out, to use the other server").into());
    }
    if args.listen.is_none() {
        // An agent of another server has the limits of that server, so the flags have no effect.
        let connected = connect_to_parent(&agentline.host_env().env, input, output).await;
        let connected = connected.map_err(|error| {
            let socket =
                agentline.host_env().env.get(PARENT_VARIABLE).map(String::as_str).unwrap_or_default();
            CommandError::failed(format!(
                "cannot use the server that started this agent, at `{socket}` ({PARENT_VARIABLE}): {error}"
            ))
        })?;
        if connected {
            return Ok(());
        }
    }
    let token = match args.listen {
        Some(_) => token(&agentline)?,
        None => String::new(),
    };
    let server = AgentToolServer::new(agentline, args.options()).map_err(with_flags)?;
    match args.listen {
        None => {
            if std::io::stdin().is_terminal() {
                ui.print_status("serving an MCP client on standard input and output; Ctrl-C ends the server");
            }
            let streams = (tokio::io::stdin(), tokio::io::stdout());
            server.serve_stream(streams.0, streams.1, live_run::stopped()).await.map_err(serve_error)
        }
        Some(address) => {
            let endpoint = server.listen(address, token.clone()).await.map_err(serve_error)?;
            ui.print_status(format!("serving MCP on {}", endpoint.url()));
            if std::env::var_os(TOKEN_VARIABLE).is_none() {
                ui.print_status(format!("clients need this header: Authorization: Bearer {token}"));
            }
            endpoint.serve(live_run::stopped()).await.map_err(serve_error)
        }
    }
}

/// Returns the token of the user, or a new one.
fn token(agentline: &Agentline) -> Result<String, CommandError> {
    let Some(token) = agentline.host_env().env.get(TOKEN_VARIABLE) else {
        return Ok(AgentToolServer::new_token());
    };
    let is_plain = token.chars().all(|c| c.is_ascii_graphic());
    if token.len() >= SHORTEST_TOKEN && is_plain {
        return Ok(token.clone());
    }
    let message = format!("must have at least {SHORTEST_TOKEN} printable ASCII characters without spaces");
    Err(Problem::new(TOKEN_VARIABLE, message).hint("unset it for a new token").into())
}

/// Names the flags in problems of the options.
fn with_flags(problems: Problems) -> CommandError {
    let named = problems.0.into_iter().map(|mut problem| {
        if ["agent", "root", "agents", "max_cost"].contains(&problem.key.as_str()) {
            problem.key = format!("--{}", problem.key.replace('_', "-"));
        }
        problem
    });
    CommandError::Usage(Problems(named.collect()))
}

fn serve_error(error: McpServerError) -> CommandError {
    match &error {
        McpServerError::NotLoopback(_) => Problem::new("--listen", error.to_string())
            .hint("use 127.0.0.1, and a tunnel such as `ssh -L` from other machines")
            .into(),
        _ => {
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            CommandError::failed(format!("{error}{source}"))
        }
    }
}

impl McpArgs {
    fn options(&self) -> AgentToolOptions {
        let mut options = AgentToolOptions::default();
        options.roots.clone_from(&self.root);
        let agents: Vec<String> = self.agents.iter().map(|name| name.trim().to_owned()).collect();
        options.agents = (!agents.is_empty()).then_some(agents);
        options.settings = self.settings();
        options.max_cost_usd = self.max_cost;
        options.max_depth = self.max_depth;
        options.max_runs = usize::from(self.max_runs);
        options.max_wait = self.max_wait;
        options.ask_timeout = self.ask_timeout;
        options.idle_end = self.idle_end;
        // Without the path of this program, its agents cannot start others.
        if let Ok(program) = std::env::current_exe() {
            options.inner_command = vec![program.to_string_lossy().into_owned(), "mcp".into()];
        }
        options
    }

    /// Returns the flags that are settings of every run.
    fn settings(&self) -> Map<String, Value> {
        let list = |rules: &[String]| (!rules.is_empty()).then(|| rules.into());
        let text = |value: &Option<String>| value.clone().map(Value::from);
        [
            ("agent", text(&self.agent)),
            ("permission_mode", text(&self.permission_mode)),
            ("allow", list(&self.allow)),
            ("deny", list(&self.deny)),
            ("timeout", text(&self.timeout)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}
