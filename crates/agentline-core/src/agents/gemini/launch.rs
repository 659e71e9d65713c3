//! Builds the launch of Gemini CLI from a plan: arguments, environment, files and stdin.

use super::{
    INFO,
    environment::{self, LaunchPaths},
    guard, live, options,
    overlay::{self, OverlayFiles},
    policy,
    prompt::{self, Delivery},
    settings::{self, RequestedSignIn, UserSettings},
    sign_in, store,
    user::UserConfig,
    versions::{self, has},
};
use crate::{
    DialogueConfig, FileSystem, Launch, LaunchContext, NewFile, Notice, PermissionMode, Plan, PolicyAck,
    Problem, PromptText, RunRequest, Sandbox, Surface, SystemMode, Trust, Version,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The names of sandboxes that the CLI supports.
const SANDBOXES: &[&str] = &["docker", "podman", "sandbox-exec", "runsc", "lxc"];

/// Checks a request, before anything is looked up.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let mut problems = live::check(request, surface);
    if let Sandbox::By(name) = &request.sandbox
        && !SANDBOXES.contains(&name.as_str())
    {
        problems.push(
            Problem::new("sandbox", format!("Gemini CLI has no sandbox `{name}`"))
                .hint(format!("use `true`, `false` or one of: {}", SANDBOXES.join(", "))),
        );
    }
    let options =
        [("model", &request.model), ("session_id", &request.session_id), ("resume", &request.resume)];
    for (key, value) in options {
        if let Some(value) = value
            && (value.trim().is_empty() || value.starts_with('-'))
        {
            problems.push(Problem::new(key, format!("`{value}` cannot be passed to Gemini CLI")));
        }
    }
    if let Some(id) = &request.session_id
        && !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    {
        problems.push(
            Problem::new(
                "session_id",
                format!("`{id}` contains characters other than letters, digits, `-` and `_`"),
            )
            .hint("use a UUID"),
        );
    }
    if options::extensions(request).iter().flatten().any(|e| e.is_empty() || e.starts_with('-')) {
        problems.push(Problem::new("extensions", "contains a name that cannot be passed to Gemini CLI"));
    }
    problems.extend(policy::compile(request, surface).err().unwrap_or_default());
    problems
}

/// Builds the launch of a checked plan.
pub(super) fn launch(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let version = context.program.version;
    let user =
        UserConfig::new(&context.cwd, &context.env, &context.home, fs).trusting(request.trust == Trust::Full);
    let is_live = plan.surface == Surface::Acp;
    let mut problems = too_old(plan, version);
    let mut keep = |problem: Problem| problems.push(problem);

    let include = include_directories(request, &context.cwd, fs).unwrap_or_else(|found| {
        found.into_iter().for_each(&mut keep);
        Vec::new()
    });
    let text = text(plan, &context.cwd, fs).map_err(&mut keep).unwrap_or_default();
    let mut servers = settings::servers(plan, &context.cwd, fs).map_err(&mut keep).unwrap_or_default();
    let policy = policy::compile(request, plan.surface)
        .map_err(|found| found.into_iter().for_each(&mut keep))
        .unwrap_or_default();
    let policy = policy.and_then(|p| p.to_toml().map_err(&mut keep).ok());
    let resumed = request.resume.as_ref().and_then(|session_id| {
        if !has(version, versions::SLUGS) {
            return Some(session_id.clone());
        }
        store::resolve(session_id, user.home(), &context.cwd, fs).map_err(&mut keep).ok()
    });
    let chosen = request.session_id.as_deref();
    problems.extend(chosen.and_then(|id| store::taken(id, user.home(), &context.cwd, fs)));
    if !problems.is_empty() {
        return Err(problems);
    }

    let mut launch =
        Launch { program: context.program.path.clone(), cwd: context.cwd.clone(), ..Launch::default() };
    launch.dialogue = DialogueConfig::new(plan.surface, version);
    let has_home = has(version, versions::HOME);
    let home = has_home.then(|| context.private.join("home"));
    let generated = context.private.join("given");
    let pieces = generated.join("prompt");
    let commands = generated.join("commands");
    launch.dirs.extend([generated.clone(), commands.clone()]);
    launch.read_only.push(generated.clone());
    let name = format!("agentline-{}", context.session_id.replace('-', ""));
    let mut delivery = if is_live {
        let prompt = live::prompt_text(text.clone());
        launch.warnings.extend(prompt.warnings);
        Delivery { stdin: prompt.text, ..Delivery::default() }
    } else {
        prompt::deliver(&text, plan, &name, &pieces)
    };
    if context.cwd.to_string_lossy().contains(char::is_control) {
        launch.warnings.push(Notice::new(
            "workspace_path",
            "the path of the workspace contains a control character, such as a newline; the tools of Gemini CLI do not work there",
        ));
    }
    launch.warnings.extend(plan.request.sandbox_profile.as_deref().and_then(environment::profile_warning));
    if delivery.command.is_some() && !has_home {
        launch.warnings.push(Notice::new(
            "prompt_not_verbatim",
            format!("Gemini CLI before {} may rewrite a prompt with `@` or a leading `/`", versions::HOME),
        ));
        delivery = Delivery { stdin: text, ..Delivery::default() };
    }
    let paths = LaunchPaths { home: home.as_deref(), users: user.home(), generated: &generated };
    environment::fill(&mut launch, plan, context, &paths);
    let mut include = include;
    if !delivery.pieces.is_empty() {
        include.push(pieces.clone());
        launch.dirs.push(pieces);
        launch.files.extend(delivery.pieces);
    }
    launch.stdin = delivery.stdin;

    if is_live {
        live::fill(&mut launch, plan, version);
        let is_trusted = |server: &Value| server.get("trust") == Some(&Value::Bool(true));
        let trusted = servers.iter().filter(|(_, server)| is_trusted(server));
        launch.trusted_servers = trusted.map(|(name, _)| name.clone()).collect();
        (launch.servers, servers) = live::divide_servers(servers);
        launch.not_before =
            resumed.as_deref().and_then(|id| store::not_before(id, user.home(), &context.cwd, fs));
        launch.abandoned = has(version, versions::SESSION_ID).then(|| context.session_id.clone());
    }
    let users = UserSettings::read(&user.own("settings.json"), fs);
    guard::fill(&mut launch, plan, &generated, &users, &user, fs);
    let policies = policy.map(|text| {
        let path = generated.join(policy::FILE);
        launch.files.push(NewFile::new(&path, text));
        // Over ACP the CLI holds back its stderr until it exits.
        launch.proof = (!is_live).then(|| PolicyAck::new(policy::PROOF, policy::BROKEN));
        policy_paths(path, &users, &user)
    });
    if let (Some(system), SystemMode::Replace) = (&request.system_prompt, request.system_mode) {
        let path = generated.join("system.md");
        launch.env.insert("GEMINI_SYSTEM_MD".into(), path.to_string_lossy().into_owned());
        launch.files.push(NewFile::new(path, system.as_str()));
    }
    let sign_in = RequestedSignIn {
        has_key: request.api_key.is_some(),
        missed: sign_in::method_to_name(&user.with_env(&launch.env)),
        vertex: options::use_vertex_ai(request) == Some(true),
    };
    launch.dialogue.agent_max_turns = settings::max_turns(&users, request);
    launch.dialogue.users_home = has_home.then(|| user.home().to_string_lossy().into_owned());
    let bounds = guard::bounds(request.trust, &users, &user, fs);
    let settings = settings::compose(&users, plan, sign_in, servers, user.home(), bounds);
    launch.secrets = environment::secrets(&launch, plan, context, &user, &settings.value);
    // For a given session id, the CLI reads every stored session to check that the id is new, which is slow if there
    // are many. So an id is generated only on the surface that does not report it before the end.
    let own_id = || (plan.surface == Surface::Json).then(|| context.session_id.clone());
    launch.session_id = resumed.clone().or_else(|| {
        let chosen = request.session_id.clone().or_else(own_id);
        chosen.filter(|_| has(version, versions::SESSION_ID))
    });
    launch.args = context.program.args.clone();
    launch.args.extend(arguments(
        plan,
        version,
        &include,
        &policies.unwrap_or_default(),
        resumed.as_deref(),
        &launch,
    ));
    launch.agent_home = home.clone().unwrap_or_else(|| user.home().to_path_buf());
    if let Some(home) = home {
        overlay::fill(
            &mut launch,
            &home,
            OverlayFiles { settings: settings.text, command: delivery.command, commands },
            &user,
            fs,
        );
    }
    Ok(launch)
}

/// Returns the prompt text for ACP.
pub(super) fn prompt_text(plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
    text(plan, cwd, fs).map(live::prompt_text)
}

/// Returns the complete prompt text, or a problem if it is too long for the CLI.
fn text(plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<String, Problem> {
    let text = prompt::text(plan, cwd, fs)?;
    match INFO.max_prompt_bytes {
        Some(most) if text.len() > most => Err(Problem::new(
            "prompt",
            format!("is {} bytes long; Gemini CLI accepts at most {most}", text.len()),
        )
        .hint("shorten it, or move text to a file that the agent can read")),
        _ => Ok(text),
    }
}

fn arguments(
    plan: &Plan,
    version: Option<Version>,
    include: &[PathBuf],
    policies: &[String],
    resumed: Option<&str>,
    launch: &Launch,
) -> Vec<String> {
    let request = &plan.request;
    let mut args = match plan.surface {
        Surface::Acp => live::arguments(plan, version),
        _ => headless(plan),
    };
    let mut add = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    for folder in include {
        add("--include-directories", &folder.to_string_lossy());
    }
    for path in policies {
        add("--policy", path);
    }
    match options::extensions(request) {
        None => {}
        Some(none) if none.is_empty() => add("-e", "none"),
        Some(some) => some.into_iter().for_each(|name| add("-e", name)),
    }
    match (resumed, &launch.session_id) {
        // Over ACP the session is loaded by a request. The session that the CLI creates at its start is discarded.
        _ if plan.surface == Surface::Acp => {
            launch.abandoned.iter().for_each(|id| add("--session-id", id));
        }
        (Some(id), _) => add("--resume", id),
        (None, Some(id)) => add("--session-id", id),
        (None, None) => {}
    }
    if request.trust == Trust::Run && has(version, versions::SKIP_TRUST) {
        args.push("--skip-trust".to_owned());
    }
    if request.sandbox == Sandbox::On {
        args.push("-s".to_owned());
    }
    args
}

/// Returns the arguments of a headless run, which is configured entirely by its command line.
fn headless(plan: &Plan) -> Vec<String> {
    let mut args = vec!["-o".to_owned(), plan.surface.name().to_owned()];
    let mut add = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    if let Some(model) = &plan.request.model {
        add("-m", model);
    }
    match plan.request.permission_mode {
        PermissionMode::Default | PermissionMode::Deny | PermissionMode::Prompt => {}
        PermissionMode::AcceptEdits => add("--approval-mode", "auto_edit"),
        // There are no permission requests on this surface, so everything that would be allowed is allowed in advance.
        PermissionMode::Bypass | PermissionMode::Auto => add("--approval-mode", "yolo"),
        PermissionMode::Plan => add("--approval-mode", "plan"),
    }
    args
}

/// Returns the directories that tools may use besides the workspace. The CLI crashes if one of them does not exist.
fn include_directories(
    request: &RunRequest,
    cwd: &Path,
    fs: &dyn FileSystem,
) -> Result<Vec<PathBuf>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut found = Vec::new();
    for folder in &request.include_directories {
        let path = cwd.join(folder);
        if !fs.exists(&path) {
            problems.push(
                Problem::new("include_directories", format!("`{}` does not exist", path.display()))
                    .hint("create the directory, or remove it from the list"),
            );
        } else if path.to_string_lossy().contains(',') {
            let wrong =
                format!("`{}` contains a comma, which Gemini CLI treats as a separator", path.display());
            problems.push(Problem::new("include_directories", wrong).hint("use a path without a comma"));
        } else {
            found.push(path);
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Returns the paths of the generated policy file and of the user's own, which the CLI ignores if `--policy` is given.
fn policy_paths(ours: PathBuf, users: &UserSettings, user: &UserConfig<'_>) -> Vec<String> {
    let own = users.get("/policyPaths").and_then(Value::as_array).filter(|paths| !paths.is_empty());
    let mut paths = vec![ours.to_string_lossy().into_owned()];
    match own {
        Some(own) => paths.extend(
            own.iter()
                .filter_map(Value::as_str)
                .map(|path| settings::expand_home(path, user.home()).unwrap_or_else(|| path.to_owned())),
        ),
        None => paths.push(user.own("policies").to_string_lossy().into_owned()),
    }
    paths
}

/// Returns a problem for each requested feature that this version does not have.
fn too_old(plan: &Plan, version: Option<Version>) -> Vec<Problem> {
    let request = &plan.request;
    let limits = &request.limits;
    let resume = if plan.surface == Surface::Acp { versions::ACP_RESUME } else { versions::RESUME };
    let is_silent = plan.surface == Surface::Json;
    let session_file = versions::session_file(plan.surface);
    let options = [
        ("allow", !request.allow.is_empty(), versions::POLICY),
        ("deny", !request.deny.is_empty(), versions::POLICY),
        ("ask", !request.ask.is_empty(), versions::POLICY),
        (
            "permission_mode",
            request.permission_mode == PermissionMode::Plan,
            versions::PLAN.max(versions::POLICY),
        ),
        ("resume", request.resume.is_some(), resume),
        ("session_id", request.session_id.is_some(), versions::SESSION_ID),
        ("mcp_servers", !request.mcp_servers.is_empty(), versions::HOME),
        ("mcp_settings_path", request.mcp_settings_path.is_some(), versions::HOME),
        // Only this surface reports where a turn ends. The settings have a limit for the others.
        ("max_turns", plan.surface != Surface::StreamJson && limits.max_turns.is_some(), versions::HOME),
        ("max_tool_calls", is_silent && limits.max_tool_calls.is_some(), session_file),
        // Only the session file has tokens during a run.
        ("max_tokens", limits.max_tokens.is_some(), session_file),
        ("max_output_tokens", limits.max_output_tokens.is_some(), session_file),
        ("max_cost", limits.max_cost.is_some(), session_file),
    ];
    let missing = options.into_iter().filter(|(_, is_set, since)| *is_set && !has(version, *since));
    missing
        .map(|(key, _, since)| {
            let found = version.map(|v| v.to_string()).unwrap_or_default();
            Problem::new(key, format!("needs Gemini CLI {since} or newer; found {found}"))
                .hint(format!("run `npm install -g {}`", INFO.package))
        })
        .collect()
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "live_tests.rs"]
mod live_tests;
