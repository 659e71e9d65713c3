//! Turns the arguments of a tool into a checked run request. Nothing in the arguments can widen what the settings, the
//! flags of the server or the scope of the caller allow.

use crate::{options::AgentToolOptions, scope::CallerScope, tools::StartRunArgs};
use agentline::{
    Agentline, PermissionMode, Problem, Problems, RunRequest, config::Settings, sessions::SessionFilter,
};
use agentline_core::{Layer, agents::split_version};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A request that may be started.
#[derive(Debug)]
pub(crate) struct CheckedStart {
    pub(crate) agentline: Agentline,
    pub(crate) request: RunRequest,
    pub(crate) workspace: PathBuf,
}

/// Builds the request of a run. Reads files.
///
/// # Errors
/// Returns the problems of the arguments or of the settings.
pub(crate) fn build(
    agentline: &Agentline,
    options: &AgentToolOptions,
    scope: &CallerScope,
    args: &StartRunArgs,
) -> Result<CheckedStart, Problems> {
    let workspace = scope.workspace(args.cwd.as_deref())?;
    let (agentline, mut request) = configured(agentline, options, &workspace)?;
    request.prompt.clone_from(&args.prompt);
    request.working_dir = Some(workspace.clone());
    if let Some(agent) = &args.agent {
        request.agent = agent.as_str().into();
    } else if let Some(first) = options.agents.iter().flatten().next()
        && !is_offered(&agentline, options, &request.agent)
    {
        request.agent = first.as_str().into();
    }
    if args.model.is_some() {
        request.model.clone_from(&args.model);
    }
    let mut problems = Vec::new();
    let mut note = |checked: Result<(), Problem>| problems.extend(checked.err());
    note(check_agent(&agentline, options, args, &request));
    note(mode(args).and_then(|mode| scope.restrict(&mut request, mode)));
    note(lower_time(&mut request, args.timeout_s));
    note(args.max_cost.map_or(Ok(()), check_amount));
    note(check_session(&agentline, scope, &request, &workspace, args));
    if let Err(invalid) = agentline.validate(&request) {
        problems.extend(invalid.0);
    }
    request.resume.clone_from(&args.resume);
    Problems(problems).into_result()?;
    Ok(CheckedStart { agentline, request, workspace })
}

/// Reads the settings for a workspace, as `agentline run` does.
///
/// # Errors
/// Returns all problems of the settings.
pub(crate) fn configured(
    agentline: &Agentline,
    options: &AgentToolOptions,
    workspace: &Path,
) -> Result<(Agentline, RunRequest), Problems> {
    let host_env = agentline.host_env();
    let flags = Layer::flags(options.settings.clone()).base(host_env.cwd.clone());
    let variables = host_env.env.iter().map(|(name, value)| (name.into(), value.into()));
    let settings =
        Settings::find(&host_env.cwd, Some(workspace), Some(&host_env.home), variables, vec![flags]);
    let config = settings.build()?;
    let mut host_env = host_env.clone();
    if let Some(folder) = settings.workspace_file.as_deref().and_then(Path::parent) {
        host_env.project = folder.to_owned();
    }
    Ok(Agentline::new(host_env).with_config(&config))
}

/// Checks that this server offers the agent.
fn check_agent(
    agentline: &Agentline,
    options: &AgentToolOptions,
    args: &StartRunArgs,
    request: &RunRequest,
) -> Result<(), Problem> {
    // An old version of an agent may lack a protection.
    if args.agent.as_deref().is_some_and(|agent| split_version(agent).1.is_some()) {
        return Err(Problem::new("agent", "the version cannot be chosen").hint("name the agent alone"));
    }
    if is_offered(agentline, options, &request.agent) {
        return Ok(());
    }
    let offered = options.agents.as_deref().unwrap_or_default().join(", ");
    let message = format!("this server does not offer `{}`", request.agent);
    Err(Problem::new("agent", message).hint(format!("it offers {offered}")))
}

/// Returns whether this server offers the agent. Names are compared without aliases and versions.
pub(crate) fn is_offered(agentline: &Agentline, options: &AgentToolOptions, agent: &str) -> bool {
    let id = |name: &str| {
        let bare = split_version(name).0;
        agentline.registry().find(bare).map_or_else(|_| bare.to_owned(), |found| found.info().id.to_owned())
    };
    options.agents.as_ref().is_none_or(|offered| offered.iter().any(|name| id(name) == id(agent)))
}

fn mode(args: &StartRunArgs) -> Result<Option<PermissionMode>, Problem> {
    let Some(word) = &args.permission_mode else { return Ok(None) };
    match PermissionMode::parse(word) {
        Some(mode) => Ok(Some(mode)),
        None => Err(Problem::new("permission_mode", format!("`{word}` is not a permission mode"))
            .hint("use plan, default, accept-edits or bypass")),
    }
}

fn lower_time(request: &mut RunRequest, seconds: Option<f64>) -> Result<(), Problem> {
    let Some(seconds) = seconds else { return Ok(()) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => {
            request.timeout = request.timeout.min(time);
            Ok(())
        }
        _ => Err(Problem::new("timeout_s", format!("`{seconds}` is not a time"))
            .hint("use a number of seconds above 0")),
    }
}

fn check_amount(amount: f64) -> Result<(), Problem> {
    if amount.is_finite() && amount > 0.0 {
        return Ok(());
    }
    Err(Problem::new("max_cost", format!("`{amount}` is not an amount in US dollars"))
        .hint("use a number above 0"))
}

/// Checks that the session to resume belongs to the workspace, because an agent shows what is in its session.
fn check_session(
    agentline: &Agentline,
    scope: &CallerScope,
    request: &RunRequest,
    workspace: &Path,
    args: &StartRunArgs,
) -> Result<(), Problem> {
    let Some(id) = &args.resume else { return Ok(()) };
    let unknown = || {
        Problem::new("resume", format!("there is no session `{id}` in `{}`", workspace.display()))
            .hint("use the `session_id` of an earlier run in the same directory")
    };
    if !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Err(unknown());
    }
    let filter = SessionFilter::new().agent(request.agent.clone()).project(workspace);
    let found = agentline.sessions().find_of(id, workspace, &filter).map_err(|_| unknown())?;
    let project = found.info.project.as_deref().map(Path::new);
    if project.is_none_or(|project| scope.contains(project)) { Ok(()) } else { Err(unknown()) }
}
