//! `agentline run`: runs one prompt with one agent.

use crate::{
    commands::{
        batch::{IsolateArg, prepare_overlays},
        trust,
    },
    completers,
    error::CommandError,
    exit,
    live_run::{self, LiveRun},
    output::OutputFormat,
    permission_prompt, prompt,
    render::{RenderOptions, Renderer},
    setup::Setup,
    ui::Ui,
};
use agentline::{
    Agentline, Error, FailureKind, Outcome, PermissionHandler, Problem, Record, Run, RunOptions, RunRequest,
    Verdict, isolate::IsolatedWorkspace, messages::Completer,
};
use agentline_core::{CachePolicy, Failure, Layer, Problems, RunInfo, error_chain};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Map, Number, Value};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  agentline run \"what does this project do?\"
  agentline run --permission-mode bypass -C ../other \"add a test for the parser\"
  agentline run --allow 'Write(src/**)' --allow 'Bash(cargo test*)' \"make the tests pass\"
  cat task.md | agentline run -o json > outcome.json
  agentline run -o events \"…\" | jq -c 'select(.type == \"tool_use\")'

Settings come from these sources; the last one wins: built-in defaults, ~/.config/agentline/config.toml, \
the workspace's agentline.toml (in full only after `agentline trust`), AGENTLINE_… variables, flags.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::HELP))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// Work in an isolated workspace: overlay, copy or worktree [default: an overlay where the system allows it,
    /// otherwise a copy]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, help_heading = "Permissions")]
    isolate: Option<Option<IsolateArg>>,
    /// With --isolate: apply the changes if the run, with its --until check, succeeded; this is the default
    #[arg(long, requires = "isolate", conflicts_with = "discard", help_heading = "Permissions")]
    apply: bool,
    /// With --isolate: discard the changes
    #[arg(long, requires = "isolate", help_heading = "Permissions")]
    discard: bool,
    /// Name for this run, repeated in events, errors and the outcome
    #[arg(long)]
    name: Option<String>,
    /// Agent to run [default: gemini]
    #[arg(add = ArgValueCompleter::new(completers::agents), short, long, help_heading = "Agent")]
    agent: Option<String>,
    /// Model, as the agent names it
    #[arg(add = ArgValueCompleter::new(completers::models), short, long, help_heading = "Agent")]
    model: Option<String>,
    /// Model to try if the service refuses the run, or if all retries failed (repeatable)
    #[arg(long, value_name = "MODEL", help_heading = "Agent")]
    fallback_model: Vec<String>,
    /// Resume a saved session: its id, or `latest`
    #[arg(add = ArgValueCompleter::new(completers::sessions), long, value_name = "ID", help_heading = "Agent")]
    resume: Option<String>,
    /// Id of the new session
    #[arg(long, value_name = "ID", help_heading = "Agent")]
    session_id: Option<String>,
    /// Use a warm agent from `agentline pool`, if the pool is running
    #[arg(long, help_heading = "Agent")]
    warm: bool,
    /// Reuse the result of an identical earlier run; store this one
    #[arg(long, help_heading = "Agent")]
    cache: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub(crate) output: OutputFormat,
    /// Also show the reasoning, on standard error
    #[arg(long, help_heading = "Output")]
    emit_thoughts: bool,
    /// Include the messages of the run in the outcome
    #[arg(long, help_heading = "Output")]
    messages: bool,
    /// Include a unified diff of each changed file in the outcome and in events
    #[arg(long, help_heading = "Output")]
    diffs: bool,
    /// Print only the JSON value in the answer; an answer without one is `invalid_output`
    #[arg(long, help_heading = "Output")]
    extract_json: bool,
    /// Write a tape of the run, for `agentline replay`
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    record: Option<PathBuf>,
}

/// The options that `run` shares with `compare`: the task and its settings.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Prompt; `-` reads standard input, as does omitting the prompt if standard input is piped
    pub(crate) prompt: Option<String>,
    /// Tell the agent to read its task from this file
    #[arg(short = 'f', long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Attach an image, audio, PDF or text file, if the surface supports it (repeatable)
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Whether --system is added to the agent's own system prompt (`append`) or replaces it (`replace`)
    #[arg(long, value_name = "MODE")]
    system_mode: Option<String>,
    /// Interface to the agent: auto, json, stream-json, acp, app-server, serve [default: auto]
    #[arg(long, help_heading = "Agent")]
    surface: Option<String>,
    /// How much the model reasons, as the agent names it, such as low, medium or high
    #[arg(long, value_name = "LEVEL", help_heading = "Agent")]
    effort: Option<String>,
    /// How to handle a model that is not in the agent's list: warn, strict [default: warn]
    #[arg(long, value_name = "HOW", help_heading = "Agent")]
    model_validation: Option<String>,
    /// MCP server for this run: `name=URL` or `name=command args…` (repeatable)
    #[arg(long, value_name = "SERVER", help_heading = "Agent")]
    mcp: Vec<String>,
    /// JSON Schema file that the answer must match
    #[arg(long, value_name = "FILE", help_heading = "Agent")]
    schema: Option<PathBuf>,
    /// Maximum number of attempts to repair an answer that does not match the schema [default: 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Agent")]
    repair_turns: Option<u32>,
    /// Re-prompt the agent until COMMAND succeeds
    #[arg(long, value_name = "COMMAND", help_heading = "Agent")]
    until: Option<String>,
    /// Maximum number of re-prompts with --until [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Agent")]
    max_rounds: Option<u32>,

    /// Workspace [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Permissions")]
    pub(crate) cwd: Option<PathBuf>,
    /// Directory outside the workspace that tools may use (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Permissions")]
    include_dir: Vec<PathBuf>,
    /// Permission mode: default, accept-edits, bypass or plan; on a live surface also auto, deny, prompt [default: default]
    #[arg(add = ArgValueCompleter::new(completers::modes), long, value_name = "MODE", help_heading = "Permissions")]
    permission_mode: Option<String>,
    /// Allow a tool, path or command: `Write(src/**)`, `Bash(git *)`, `WebFetch` (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    allow: Vec<String>,
    /// Deny a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    deny: Vec<String>,
    /// Ask before using a tool, path or command; denied without a terminal (repeatable)
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    ask: Vec<String>,
    /// Trust in the workspace: run (do not load its own settings, hooks and MCP servers), full, no
    /// [default: run, or full after `agentline trust`]
    #[arg(long, value_name = "HOW", help_heading = "Permissions")]
    trust: Option<String>,
    /// Use the agent's own sandbox, or a sandbox program: `--sandbox`, `--sandbox=docker`
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Permissions")]
    sandbox: Option<String>,
    /// Set a variable in the agent's environment (repeatable)
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Permissions")]
    env: Vec<String>,
    /// Pass one of your variables to the agent; `*` passes all (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Permissions")]
    pass_env: Vec<String>,

    /// Time limit of the run: seconds, or a duration such as `90s` [default: 10m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    timeout: Option<String>,
    /// Maximum time without output while no tool runs and no permission is pending [default: 2m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    idle_timeout: Option<String>,
    /// Maximum time without output while a tool runs [default: 10m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    tool_timeout: Option<String>,
    /// Maximum time until the agent first responds [default: 1m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    startup_timeout: Option<String>,
    /// Time at which the run must end: `2030-01-01T00:00:00Z`, or seconds since 1970
    #[arg(long, value_name = "WHEN", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    deadline: Option<String>,
    /// ACP: how long the agent must be silent after its answer before the turn ends, in milliseconds
    #[arg(long, value_name = "MS", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    quiet_period: Option<String>,
    /// Retry the run this many times, on each model, after a retryable failure [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    retries: Option<u32>,
    /// Also retry a run that has changed files of the workspace
    #[arg(long, help_heading = "Timeouts and limits")]
    retry_after_changes: bool,
    /// Stop after this many model turns
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_turns: Option<u32>,
    /// Stop after this many tool calls
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_tool_calls: Option<u32>,
    /// Stop after this many tokens in total
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_tokens: Option<u64>,
    /// Stop after this many output tokens, including thoughts
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_output_tokens: Option<u64>,
    /// Stop when the cost reaches this many US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, help_heading = "Timeouts and limits")]
    max_cost: Option<f64>,
}

pub(crate) fn run(ui: &mut Ui, args: RunArgs) -> Result<u8, CommandError> {
    let read = || Setup::read(args.task.cwd.as_deref(), Some(Layer::flags(args.table())));
    let mut setup = match read() {
        Err(CommandError::Failed(message)) => {
            let hint = "change to a directory that exists and is readable".into();
            let mut renderer = Renderer::new(RenderOptions::plain(args.output));
            return show_failure(ui, &mut renderer, &RunRequest::default(), message, hint);
        }
        read => read?,
    };
    let mut config = setup.config()?;
    if let Some(changed) = setup.changed_trust(&config)
        && trust::ask_again(ui, changed)?
    {
        setup = read()?;
        config = setup.config()?;
    }
    for notice in &config.notices {
        ui.warn(&notice.message);
    }
    let (agentline, mut request) = setup.with_config(&config);
    request.prompt = prompt::read(args.task.prompt.as_deref(), &request)?;
    let options = RenderOptions {
        output: args.output,
        messages: args.messages,
        thoughts: request.emit_thoughts,
        mode: request.permission_mode,
        value_only: request.extract_json || request.output_schema.is_some(),
        keeps_session: !request.temporary_workspace,
    };
    let isolated = match args.isolate {
        Some(how) => Some(isolate(ui, &agentline, &mut request, how, args.warm)?),
        None => None,
    };
    let mut renderer = Renderer::new(options);
    let asked = request.clone();
    let mut has_started = false;
    let mut ended = None;
    let done = live_run::start(|| async {
        let mut completer = Completer::new(&agentline, &request.prompt);
        let (permission_handler, permission_prompt) = permission_prompt::at_terminal(&request).unzip();
        let mut live = LiveRun::begin(begin(ui, &agentline, request, args.warm, permission_handler))
            .await?
            .with_permission_prompt(permission_prompt);
        has_started = true;
        completer.started(&live.run);
        renderer.complete_by(&completer);
        if let Some(launched) = live.run.launched() {
            ui.detail(format!("command: {}", launched.command.join(" ")));
            if !launched.withheld.is_empty() {
                ui.detail(format!("withheld variables: {}", launched.withheld.join(", ")));
                ui.detail("pass one with `--pass-env NAME`, or all with `--pass-env '*'`");
            }
        }
        let shown = live.show(ui, &mut renderer).await;
        ended = live.ended.take();
        shown
    });
    let done = match isolated {
        Some(isolated) => {
            done.and_then(|code| finish(ui, isolated, ended, args.discard && !args.apply, code))
        }
        None => done,
    };
    match done {
        Err(CommandError::Failed(message)) if !has_started => {
            let hint = "run `agentline doctor` to check your setup".into();
            show_failure(ui, &mut renderer, &asked, message, hint)
        }
        Err(CommandError::Unable { message, hint }) if !has_started => {
            show_failure(ui, &mut renderer, &asked, message, hint)
        }
        // A problem that is found late is named after its flag, too.
        Err(CommandError::Usage(problems)) => {
            Err(CommandError::Usage(Problems(asked.as_written(problems.0))))
        }
        done => done,
    }
}

/// Gives the run its own workspace.
fn isolate(
    ui: &mut Ui,
    agentline: &Agentline,
    request: &mut RunRequest,
    how: Option<IsolateArg>,
    is_warm: bool,
) -> Result<IsolatedWorkspace, CommandError> {
    let settings = [
        ("warm", is_warm),
        ("resume", request.resume.is_some()),
        ("cache", request.cache != CachePolicy::default()),
        ("temporary_workspace", request.temporary_workspace),
    ];
    let problems = settings
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(key, _)| Problem::new(key, "cannot be used with `--isolate`").hint("leave out one of them"));
    Problems(problems.collect()).into_result()?;
    prepare_overlays(ui, how, &agentline.isolated_workspaces()?)?;
    let original = request.working_dir.clone().unwrap_or_default();
    let isolated = agentline.isolate(&original, how.map(IsolateArg::method))?;
    ui.detail(format!("isolated workspace ({}): {}", isolated.method().name(), isolated.path().display()));
    request.working_dir = Some(isolated.path().to_owned());
    Ok(isolated)
}

/// Applies the changes of an isolated run that succeeded. Returns the exit code.
fn finish(
    ui: &mut Ui,
    isolated: IsolatedWorkspace,
    ended: Option<(String, Verdict)>,
    discard: bool,
    code: u8,
) -> Result<u8, CommandError> {
    let Some((run, _)) = ended.filter(|(_, verdict)| is_success(*verdict)) else {
        ui.print_status("the run did not succeed; its changes are discarded");
        return Ok(code);
    };
    if discard {
        return Ok(code);
    }
    match isolated.apply(&run) {
        Ok(files) if files.is_empty() => Ok(code),
        Ok(files) => {
            ui.print_status(format!(
                "{} changed files applied; undo with `agentline undo {run}`",
                files.len()
            ));
            Ok(code)
        }
        Err(error) => {
            ui.warn(&format!("the changes are not applied: {}", error_chain(&error)));
            match isolated.keep() {
                Ok(dir) => ui.print_status(format!("the changed workspace is in {}", dir.display())),
                Err(error) => ui.warn(&format!("the changed workspace cannot be kept: {error}")),
            }
            Ok(exit::FAILED)
        }
    }
}

fn is_success(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Done | Verdict::DoneWithDenials)
}

/// Shows a run that could not start as a failed outcome. Returns the exit code.
fn show_failure(
    ui: &mut Ui,
    renderer: &mut Renderer,
    request: &RunRequest,
    message: String,
    hint: String,
) -> Result<u8, CommandError> {
    let info = RunInfo::of_request(request);
    let failure = Failure::new(FailureKind::Spawn, message).hint(hint);
    let outcome = Outcome::not_started(&info, Verdict::Failed, failure);
    renderer.begin(ui);
    let first = Record::first(&outcome);
    renderer.record(ui, &first)?;
    renderer.record(ui, &Record::last((first.seq, first.at_ms), outcome))?;
    ui.flush()?;
    Ok(exit::FAILED)
}

/// Starts the run, on the pool's daemon if `--warm` is set and a daemon is running.
async fn begin(
    ui: &mut Ui,
    agentline: &Agentline,
    request: RunRequest,
    warm: bool,
    permission_handler: Option<PermissionHandler>,
) -> Result<Run, Error> {
    if let Some(permission_handler) = permission_handler {
        if warm {
            // The daemon has no terminal to ask on.
            ui.detail(
                "`--warm` has no effect on a run that may ask for permission; starting an agent for this run",
            );
        }
        return agentline.run_with(request, RunOptions::new().permission_handler(permission_handler)).await;
    }
    #[cfg(unix)]
    if warm {
        match agentline::host::daemon::Client::connect(agentline.host_env()).await {
            Ok(pool) => return pool.run(agentline, request).await,
            Err(error) => ui.detail(format!("{error}; starting an agent for this run")),
        }
    }
    agentline.run(request).await
}

impl RunArgs {
    /// Returns the flags as settings.
    fn table(&self) -> Map<String, Value> {
        let mut table = self.task.table();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                table.insert(key.to_owned(), value);
            }
        };
        let text = |value: &Option<String>| value.clone().map(Value::from);
        put("name", text(&self.name));
        put("agent", text(&self.agent));
        put("model", text(&self.model));
        put("fallback_models", (!self.fallback_model.is_empty()).then(|| self.fallback_model.clone().into()));
        put("emit_thoughts", self.emit_thoughts.then_some(Value::Bool(true)));
        put("cache", self.cache.then_some(Value::Bool(true)));
        put("extract_json", self.extract_json.then_some(Value::Bool(true)));
        put("diffs", self.diffs.then_some(Value::Bool(true)));
        put("resume", text(&self.resume));
        put("session_id", text(&self.session_id));
        put("record", self.record.as_ref().map(|path| path.to_string_lossy().into()));
        table
    }
}

impl TaskArgs {
    /// Returns the flags as settings.
    pub(crate) fn table(&self) -> Map<String, Value> {
        let mut table = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                table.insert(key.to_owned(), value);
            }
        };
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let path = |value: &Option<PathBuf>| value.as_ref().map(|path| path.to_string_lossy().into());
        let list = |value: &[String]| (!value.is_empty()).then(|| value.into());
        let paths = |value: &[PathBuf]| {
            let paths: Vec<Value> = value.iter().map(|path| path.to_string_lossy().into()).collect();
            (!paths.is_empty()).then(|| paths.into())
        };
        put("prompt_file", path(&self.prompt_file));
        put("attachments", paths(&self.attach));
        put("system_prompt", text(&self.system));
        put("system_mode", text(&self.system_mode));
        put("surface", text(&self.surface));
        put("effort", text(&self.effort));
        put("model_validation", text(&self.model_validation));
        put("retries", self.retries.map(Value::from));
        put("retry_after_changes", self.retry_after_changes.then_some(Value::Bool(true)));
        put("repair_turns", self.repair_turns.map(Value::from));
        put("until", text(&self.until));
        put("max_rounds", self.max_rounds.map(Value::from));
        put("ask", list(&self.ask));
        put("deadline", text(&self.deadline));
        put("mcp_servers", list(&self.mcp));
        put("output_schema", path(&self.schema));
        put("working_dir", path(&self.cwd));
        put("include_directories", paths(&self.include_dir));
        put("permission_mode", text(&self.permission_mode));
        put("allow", list(&self.allow));
        put("deny", list(&self.deny));
        put("trust", text(&self.trust));
        put("sandbox", text(&self.sandbox));
        put("env", list(&self.env));
        put("pass_env", list(&self.pass_env));
        put("timeout", text(&self.timeout));
        put("idle_timeout", text(&self.idle_timeout));
        put("tool_timeout", text(&self.tool_timeout));
        put("startup_timeout", text(&self.startup_timeout));
        put("quiet_period_ms", text(&self.quiet_period));
        put("max_turns", self.max_turns.map(Value::from));
        put("max_tool_calls", self.max_tool_calls.map(Value::from));
        put("max_tokens", self.max_tokens.map(Value::from));
        put("max_output_tokens", self.max_output_tokens.map(Value::from));
        // A number that JSON cannot represent is passed as text, so that it is rejected instead of ignored.
        put(
            "max_cost",
            self.max_cost
                .map(|usd| Number::from_f64(usd).map_or_else(|| usd.to_string().into(), Value::from)),
        );
        table
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, CliCommand};
    use agentline_core::config::keys;
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_setting_with_a_flag_has_that_flag() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let flags: Vec<&str> = run.get_arguments().filter_map(clap::Arg::get_long).collect();
        for key in keys() {
            let Some(flag) = key.flag else { continue };
            assert!(flags.contains(&flag), "--{flag} is missing");
        }
        cli.clone().debug_assert();
    }

    #[test]
    fn every_flag_sets_its_key() {
        let typed = "agentline run -f p.md --attach a --system s --system-mode append --name n -a gemini --surface json -m m \
            --resume latest --session-id i --mcp d=http://localhost --schema s.json -C w --include-dir d \
            --permission-mode plan --allow Read --deny Bash --trust no --sandbox --env A=1 --pass-env B --timeout 1 \
            --idle-timeout 1 --tool-timeout 1 --startup-timeout 1 --quiet-period 1 --max-turns 1 --max-tool-calls 1 \
            --max-tokens 1 --max-output-tokens 1 --max-cost 1 --record t --model-validation strict --repair-turns 1 \
            --until true --max-rounds 1 --ask Bash --deadline 1 --emit-thoughts --extract-json --diffs --cache \
            --retries 1 --fallback-model m2 --retry-after-changes --effort high";
        let CliCommand::Run(args) = Cli::parse_from(typed.split_whitespace()).command else { panic!() };
        let table = args.table();
        for key in keys().iter().filter(|key| key.flag.is_some()) {
            assert!(table.contains_key(key.name), "{} is missing", key.name);
        }
        assert_eq!(table["sandbox"], "true");
    }
}
