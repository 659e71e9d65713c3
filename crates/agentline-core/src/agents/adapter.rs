//! Shared launch code of the agents that only speak ACP.

use crate::{
    AgentInfo, DialogueConfig, Failure, FailureKind, FileSystem, FilteredEnv, Launch, LaunchContext,
    McpServer, Millis, ModelValidation, Notice, PermissionMode, Plan, Problem, PromptText, RequestedMode,
    RequestedModel, Rule, RunRequest, Sandbox, Secrets, SignIn, Surface, SystemMode, ToolKind, ToolTable,
    ToolUse, Trust,
    acp::{profile::plain_tool, tool_call::AcpToolCall},
    filter_env,
};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The default quiet period after an answer, for agents that may send updates after it.
const QUIET: Millis = 500;

/// The agent-specific part of a launch.
pub(super) struct AdapterLaunch<'a> {
    /// The static description of the agent.
    pub(super) info: AgentInfo<'a>,
    /// The agent's arguments, unless the caller sets others.
    pub(super) args: Vec<String>,
    /// Required environment variables. They override the inherited environment; those of the request override them.
    pub(super) env: Vec<(String, String)>,
    /// The variable for the API key of a request.
    pub(super) key_variable: Option<&'static str>,
    /// The mode of its sessions.
    pub(super) mode: Option<RequestedMode>,
    /// Whether the permission mode is enforced only when the agent asks. Other actions are reported only afterwards.
    pub(super) only_when_asked: bool,
    /// The quiet period after an answer.
    pub(super) quiet: Millis,
    /// The `_meta` of the requests that open sessions.
    pub(super) meta: Option<Value>,
    /// Whether `meta` contains the caller's system prompt.
    pub(super) takes_system: bool,
    /// Whether `meta` contains the included directories.
    pub(super) takes_folders: bool,
    /// The path of the workspace in the requests that open sessions, if it differs.
    pub(super) session_cwd: Option<String>,
}

impl<'a> AdapterLaunch<'a> {
    /// Creates the values of an agent that needs nothing special.
    pub(super) fn new(info: AgentInfo<'a>) -> Self {
        Self {
            info,
            args: Vec::new(),
            env: Vec::new(),
            key_variable: None,
            mode: None,
            only_when_asked: false,
            quiet: QUIET,
            meta: None,
            takes_system: false,
            takes_folders: false,
            session_cwd: None,
        }
    }

    /// Sets an environment variable.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.env.push((name.to_owned(), value.into()));
    }
}

/// Returns a problem for each option that no agent of this kind supports.
pub(super) fn check(request: &RunRequest, info: &AgentInfo<'_>) -> Vec<Problem> {
    let title = info.title;
    let replaces = request.system_prompt.is_some() && request.system_mode == SystemMode::Replace;
    let options: &[(&str, bool, &str)] = &[
        ("sandbox", request.sandbox != Sandbox::Off, "remove it"),
        ("session_id", request.session_id.is_some(), "remove it: the agent chooses session ids itself"),
        ("file_references", request.file_references, "send files with `--attach`"),
        ("system_mode", replaces, "use `append`, which puts your instructions before the prompt"),
    ];
    options
        .iter()
        .filter(|(_, is_set, _)| *is_set)
        .map(|(key, _, way_out)| Problem::new(*key, format!("is not supported by {title}")).hint(*way_out))
        .collect()
}

/// Returns the `deny` and `ask` rules that cannot be enforced. `reason` returns the reason for a rule and what to write
/// instead.
pub(super) fn unenforceable(
    request: &RunRequest,
    surface: Surface,
    reason: impl Fn(&str, &Rule) -> Option<(String, String)>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, rules) in [("ask", &request.ask), ("deny", &request.deny)] {
        for rule in rules {
            if let Some((reason, way_out)) = reason(key, rule) {
                let message = format!("`{rule}` cannot be enforced on the surface `{surface}`: {reason}");
                problems.push(Problem::new(key, message).hint(way_out));
            }
        }
    }
    problems
}

/// Returns a problem for each `deny` or `ask` rule of a prompt that is not a rule of its session and cannot
/// be enforced in an open session. `holds` returns whether a rule can be enforced there.
pub(super) fn unenforced_in_session(
    opened: &RunRequest,
    prompt: &RunRequest,
    holds: impl Fn(&Rule) -> bool,
) -> Vec<Problem> {
    let known: BTreeSet<&Rule> = opened.deny.iter().chain(&opened.ask).collect();
    let lists = [("deny", &prompt.deny), ("ask", &prompt.ask)];
    let rules = lists.into_iter().flat_map(|(key, rules)| rules.iter().map(move |rule| (key, rule)));
    let unknown = rules.filter(|(_, rule)| !known.contains(rule));
    let unheld = unknown.filter(|(_, rule)| !holds(rule));
    let problem = |(key, rule): (&str, &Rule)| {
        let message = format!("`{rule}` cannot be enforced in a session that was opened without this rule");
        Problem::new(key, message).hint("pass the rule when you open the session")
    };
    unheld.map(problem).collect()
}

/// Builds the launch of a checked plan.
pub(super) fn launch(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
    own: AdapterLaunch<'_>,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let title = own.info.title;
    let mut problems = Vec::new();
    let text =
        text(plan, !own.takes_system, &context.cwd, fs).map_err(|p| problems.push(p)).unwrap_or_default();
    let (servers, trusted_servers) =
        servers(request, &context.cwd, fs).map_err(|p| problems.push(p)).unwrap_or_default();
    if request.api_key.is_some() && own.key_variable.is_none() {
        problems.push(
            Problem::new(
                "api_key",
                format!("agentline does not know which variable {title} reads its key from"),
            )
            .hint("pass the key with `--env NAME=VALUE`, with the variable that the agent documents"),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut launch =
        Launch { program: context.program.path.clone(), cwd: context.cwd.clone(), ..Launch::default() };
    launch.args.clone_from(&context.program.args);
    launch.args.extend(request.agent_args.clone().unwrap_or(own.args));
    launch.stdin = text;
    let FilteredEnv { passed, withheld } = filter_env(&context.env, own.info.variables, &request.pass_env);
    launch.env = passed;
    launch.env.insert("NO_COLOR".into(), "1".into());
    launch.env.extend(own.env);
    launch.env.extend(request.env.clone());
    if let (Some(name), Some(key)) = (own.key_variable, &request.api_key) {
        launch.env.insert(name.to_owned(), key.clone());
    }
    launch.withheld = withheld.into_iter().filter(|name| !launch.env.contains_key(name)).collect();
    let mut secrets = Secrets::default();
    secrets.add_variables(&context.env);
    secrets.add_variables(&launch.env);
    secrets.add_servers(servers.values());
    request.api_key.iter().for_each(|key| secrets.add(key));
    launch.secrets = secrets.into_vec();
    if request.trust != Trust::Full {
        restrict_git(&mut launch.env);
    }
    launch.agent_home.clone_from(&context.home);
    launch.session_id.clone_from(&request.resume);
    launch.dialogue = DialogueConfig::new(plan.surface, context.program.version);
    launch.dialogue.read_files = request.allow_file_reads;
    launch.dialogue.write_files = request.allow_file_writes;
    launch.dialogue.authenticate.clone_from(&request.authenticate);
    launch.mode = request.mode_id.as_ref().map(|id| RequestedMode::new(id, false)).or(own.mode);
    launch.model = request
        .model
        .as_ref()
        .map(|id| RequestedModel::new(id, request.model_validation == ModelValidation::Strict));
    (launch.servers, launch.trusted_servers) = (servers, trusted_servers);
    launch.meta = own.meta.map(|meta| meta.to_string());
    launch.session_cwd = own.session_cwd;
    let quiet = request.quiet_period.map(|d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX));
    launch.quiet = quiet.unwrap_or(own.quiet);
    if own.only_when_asked && request.permission_mode == PermissionMode::Plan {
        launch.warnings.push(Notice::new(
            "mode_when_asked",
            format!(
                "the mode is enforced only when {title} asks for permission; other tool calls are reported but not prevented"
            ),
        ));
    }
    if !request.include_directories.is_empty() && !own.takes_folders {
        launch.warnings.push(Notice::new(
            "include_directories",
            format!("{title} has no option for additional directories; they apply only when it asks for permission"),
        ));
    }
    Ok(launch)
}

/// Git settings that override those of the repository. Agents run `git status` and `git log` without asking, and these
/// settings in the workspace's `.git/config` could make them start any program.
const GIT_SETTINGS: &[(&str, &str)] = &[("core.fsmonitor", "false"), ("log.showSignature", "false")];

/// Adds [`GIT_SETTINGS`] to an environment, after any that the caller passes in the same way. Must be called after the
/// secrets of the environment are collected, because the names of these variables look like those of keys.
fn restrict_git(env: &mut BTreeMap<String, String>) {
    let existing = env.get("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    for (at, (name, value)) in (existing..).zip(GIT_SETTINGS) {
        env.insert(format!("GIT_CONFIG_KEY_{at}"), (*name).to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{at}"), (*value).to_owned());
    }
    env.insert("GIT_CONFIG_COUNT".into(), (existing + GIT_SETTINGS.len()).to_string());
}

/// Returns the workspace and its parent directories, from which agents load settings. The home directory is excluded,
/// because its settings are the user's own.
pub(super) fn workspace_dirs<'a>(cwd: &'a Path, home: &'a Path) -> impl Iterator<Item = &'a Path> {
    cwd.ancestors().filter(move |dir| *dir != home)
}

/// The size limit for searching workspace settings. Larger files count as if they contained every word.
const LONGEST_SETTINGS: usize = 1 << 20;

/// Returns whether a JSON file of a workspace exists and may contain one of these words in a key. It may have
/// comments, so it is not parsed. A key can only be spelled literally or with escapes.
pub(super) fn may_mention(path: &Path, names: &[&str], fs: &dyn FileSystem) -> bool {
    let has = |bytes: &[u8], word: &str| bytes.windows(word.len()).any(|found| found == word.as_bytes());
    let text = || fs.small(path, LONGEST_SETTINGS);
    fs.exists(path)
        && text().is_none_or(|bytes| has(&bytes, "\\u") || names.iter().any(|word| has(&bytes, word)))
}

/// Creates the failure for a workspace whose settings cannot be ignored.
pub(super) fn refuses_settings(title: &str, path: &Path) -> Failure {
    let message = format!("{title} would load `{}`, which is not trusted", path.display());
    Failure::new(FailureKind::Settings, message)
        .hint("review it, then run `agentline trust` in the workspace or pass `--trust full`; or remove it")
}

/// Returns the prompt text, which begins with the system prompt if `with_system` is set.
pub(super) fn prompt_text(
    plan: &Plan,
    with_system: bool,
    cwd: &Path,
    fs: &dyn FileSystem,
) -> Result<PromptText, Problem> {
    text(plan, with_system, cwd, fs).map(PromptText::new)
}

/// Returns the complete prompt text.
fn text(plan: &Plan, with_system: bool, cwd: &Path, fs: &dyn FileSystem) -> Result<String, Problem> {
    let request = &plan.request;
    let mut parts: Vec<Cow<'_, str>> = Vec::new();
    if let Some(system) = request.system_prompt.as_ref().filter(|_| with_system) {
        parts.push(system.into());
    }
    if !request.prompt.trim().is_empty() {
        parts.push(request.prompt.as_str().into());
    }
    if let Some(file) = request.prompt_file.as_ref().map(|file| cwd.join(file)) {
        let wrong = |message: &str| {
            Problem::new("prompt_file", format!("`{}` {message}", file.display()))
                .hint("pass an existing text file")
        };
        let content = fs.text(&file).ok_or_else(|| wrong("cannot be read as text"))?;
        if content.trim().is_empty() || content.contains('\0') {
            return Err(wrong("is empty or contains a NUL byte"));
        }
        let real = fs.canonical(&file).unwrap_or_else(|| file.clone());
        let reference = format!("Process the prompt in {}", file.display());
        parts.push(if real.starts_with(cwd) { reference } else { content }.into());
    }
    Ok(parts.join("\n\n"))
}

/// Returns the MCP servers of a request: those of its settings file, then those given by name. The list has the servers
/// that are trusted: all but those for which the file says `"trust": false`.
fn servers(
    request: &RunRequest,
    cwd: &Path,
    fs: &dyn FileSystem,
) -> Result<(BTreeMap<String, McpServer>, Vec<String>), Problem> {
    let mut all = BTreeMap::new();
    let mut untrusted = BTreeSet::new();
    if let Some(path) = request.mcp_settings_path.as_ref().map(|path| cwd.join(path)) {
        let wrong = |message: String| {
            Problem::new("mcp_settings_path", format!("`{}` {message}", path.display()))
                .hint("pass a JSON file with an `mcpServers` object")
        };
        let text = fs.text(&path).ok_or_else(|| wrong("cannot be read".into()))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| wrong(format!("is not JSON: {e}")))?;
        let found = value.get("mcpServers").and_then(Value::as_object);
        for (name, server) in found.ok_or_else(|| wrong("has no `mcpServers` object".into()))? {
            let mut server = server.clone();
            if let Some(table) = server.as_object_mut() {
                if table.remove("trust") == Some(Value::Bool(false)) {
                    untrusted.insert(name.clone());
                }
                if let Some(url) = table.remove("httpUrl") {
                    table.insert("url".into(), url);
                }
            }
            let server = serde_json::from_value(server)
                .map_err(|_| wrong(format!("has a server `{name}` with neither `command` nor `url`")))?;
            all.insert(name.clone(), server);
        }
    }
    all.extend(request.mcp_servers.clone());
    untrusted.retain(|name| !request.mcp_servers.contains_key(name));
    let trusted = all.keys().filter(|name| !untrusted.contains(*name)).cloned().collect();
    Ok((all, trusted))
}

/// Converts a call to a canonical tool use: by its row in the table, else by standard ACP fields. Arguments get their
/// canonical names.
pub(super) fn tool(call: &AcpToolCall, native: &str, table: &ToolTable) -> ToolUse {
    let mut tool = plain_tool(call);
    native.clone_into(&mut tool.native_name);
    let of_server =
        native.starts_with("mcp__") || (call.kind == "other" && table.server_tool(native).is_some());
    if let Some(row) = table.row(native) {
        row.name.clone_into(&mut tool.name);
        tool.kind = row.kind;
    } else if of_server {
        tool.name = table.canonical(native);
        tool.kind = ToolKind::Mcp;
    }
    tool.input = call.raw_input.as_ref().map(|raw| table.canonical_input(native, raw));
    tool.path = matches!(tool.kind, ToolKind::Write | ToolKind::Edit).then(|| call.first_path()).flatten();
    tool
}

/// Returns the directory that a variable names, or else a directory in the user's home.
pub(super) fn home_folder(
    env: &BTreeMap<String, String>,
    home: &Path,
    variable: &str,
    folder: &str,
) -> PathBuf {
    env.get(variable).filter(|v| !v.is_empty()).map_or_else(|| home.join(folder), PathBuf::from)
}

/// Returns sign-in methods that are environment variables.
pub(super) fn variables(env: &BTreeMap<String, String>, names: &[&str]) -> Vec<SignIn> {
    let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    names.iter().map(|name| SignIn::new(*name, is_set(name))).collect()
}

/// Returns a sign-in method that is a file.
pub(super) fn found(path: PathBuf, fs: &dyn FileSystem, note: &str) -> SignIn {
    SignIn::new(path.to_string_lossy(), fs.exists(&path)).note(note)
}

/// Marks the first available method as the one that is used.
pub(super) fn first_wins(mut ways: Vec<SignIn>) -> Vec<SignIn> {
    if let Some(first) = ways.iter_mut().find(|way| way.found) {
        first.wins = true;
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_settings_are_appended_to_the_callers() {
        let restricted = |variables: &[(&str, &str)]| {
            let mut env = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            restrict_git(&mut env);
            env
        };
        let env = restricted(&[]);
        assert_eq!((&*env["GIT_CONFIG_COUNT"], &*env["GIT_CONFIG_KEY_0"]), ("2", "core.fsmonitor"));
        let own =
            [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "user.name"), ("GIT_CONFIG_VALUE_0", "me")];
        let env = restricted(&own);
        assert_eq!((&*env["GIT_CONFIG_COUNT"], &*env["GIT_CONFIG_VALUE_0"]), ("3", "me"));
        assert_eq!((&*env["GIT_CONFIG_KEY_2"], &*env["GIT_CONFIG_VALUE_2"]), ("log.showSignature", "false"));
    }
}
