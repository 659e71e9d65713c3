//! The start of an agent that is spoken to over ACP and in no other way: what all of them share.

use crate::{
    Card, Divided, Failure, Ground, Kind, Launch, Look, McpServer, Millis, ModeWish, ModelValidation,
    ModelWish, Notice, PermissionMode, Plan, Problem, Rule, RunRequest, Sandbox, Secrets, SignIn, Surface,
    SystemMode, Talk, ToolKind, ToolTable, ToolUse, Trust, Words,
    acp::{manners::plain_tool, tools::ToolCall},
    divide_environment,
};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Silence after the answer of an agent of which it is not known that nothing follows.
const QUIET: Millis = 500;

/// What one agent brings to the common start.
pub(super) struct Own<'a> {
    /// Its names.
    pub(super) card: &'a Card,
    /// Its arguments, unless the caller has others.
    pub(super) args: Vec<String>,
    /// Variables that it needs, above those of the caller.
    pub(super) env: Vec<(&'static str, String)>,
    /// The variable that takes the key of a request.
    pub(super) key_variable: Option<&'static str>,
    /// The mode of its sessions.
    pub(super) mode: Option<ModeWish>,
    /// Modes are held only where it asks; what it does without asking is seen when it is done.
    pub(super) only_when_asked: bool,
    /// Silence after its answer.
    pub(super) quiet: Millis,
    /// What its sessions are opened with beyond the protocol.
    pub(super) meta: Option<Value>,
    /// The caller's instructions are in there.
    pub(super) takes_system: bool,
    /// The included folders are in there.
    pub(super) takes_folders: bool,
    /// The workspace as its sessions are opened with it, where that is another spelling.
    pub(super) session_cwd: Option<String>,
}

impl<'a> Own<'a> {
    /// An agent that needs nothing special.
    pub(super) fn new(card: &'a Card) -> Self {
        Self {
            card,
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

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.env.push((name, value.into()));
    }
}

/// What no agent of this kind can do.
pub(super) fn check(request: &RunRequest, _surface: Surface, card: &Card) -> Vec<Problem> {
    let title = card.title;
    let replaces = request.system_prompt.is_some() && request.system_mode == SystemMode::Replace;
    let asked: &[(&str, bool, &str)] = &[
        ("sandbox", request.sandbox != Sandbox::Off, "leave it out"),
        ("session_id", request.session_id.is_some(), "leave it out: the agent names its sessions itself"),
        ("file_references", request.file_references, "send files with `--attach`"),
        ("extensions", request.extensions.is_some(), "leave it out"),
        ("use_vertex_ai", request.use_vertex_ai.is_some(), "leave it out"),
        ("google_cloud_project", request.google_cloud_project.is_some(), "leave it out"),
        ("system_mode", replaces, "use `append`, which puts your instructions before the prompt"),
    ];
    let mut problems: Vec<Problem> = asked
        .iter()
        .filter(|(_, asked, _)| *asked)
        .map(|(key, _, way_out)| Problem::new(*key, format!("cannot be used with {title}")).hint(*way_out))
        .collect();
    if request.resume.as_deref() == Some("latest") {
        problems.push(
            Problem::new("resume", format!("`latest` is not known of {title}"))
                .hint("name the session by its id"),
        );
    }
    problems
}

/// The rules of `deny` and `ask` that an agent cannot be held to. `why` says of one what prevents it, and what to write
/// instead.
pub(super) fn unenforceable(
    request: &RunRequest,
    surface: Surface,
    why: impl Fn(&str, &Rule) -> Option<(String, String)>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, rules) in [("ask", &request.ask), ("deny", &request.deny)] {
        for text in rules {
            let Ok(rule) = Rule::parse(key, text) else { continue };
            if let Some((why, way_out)) = why(key, &rule) {
                let message = format!("`{text}` cannot be enforced on the surface `{surface}`: {why}");
                problems.push(Problem::new(key, message).hint(way_out));
            }
        }
    }
    problems
}

/// The rules of `deny` and `ask` that a prompt has and its session has not, and that cannot be enforced there. `holds` tells
/// whether a rule can.
pub(super) fn unenforced_in_session(
    opened: &RunRequest,
    prompt: &RunRequest,
    holds: impl Fn(&Rule) -> bool,
) -> Vec<Problem> {
    let known: BTreeSet<&String> = opened.deny.iter().chain(&opened.ask).collect();
    let lists = [("deny", &prompt.deny), ("ask", &prompt.ask)];
    let rules = lists.into_iter().flat_map(|(key, rules)| rules.iter().map(move |text| (key, text)));
    let unknown = rules.filter(|(_, text)| !known.contains(text));
    let unheld = unknown.filter(|(key, text)| Rule::parse(key, text).is_ok_and(|rule| !holds(&rule)));
    let problem = |(key, text): (&str, &String)| {
        let message = format!("`{text}` cannot be enforced in a session that was opened without such a rule");
        Problem::new(key, message).hint("give the rule when the session is opened")
    };
    unheld.map(problem).collect()
}

/// Turns a checked plan into what is to be started.
pub(super) fn launch(
    plan: &Plan,
    ground: &Ground,
    look: &dyn Look,
    own: Own<'_>,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let title = own.card.title;
    let mut problems = Vec::new();
    let text =
        text(plan, !own.takes_system, &ground.cwd, look).map_err(|p| problems.push(p)).unwrap_or_default();
    let servers = servers(request, &ground.cwd, look).map_err(|p| problems.push(p)).unwrap_or_default();
    if request.api_key.is_some() && own.key_variable.is_none() {
        problems.push(
            Problem::new("api_key", format!("it is not known which variable takes the key of {title}"))
                .hint("use `--env NAME=VALUE` with the variable that it documents"),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut launch =
        Launch { program: ground.program.path.clone(), cwd: ground.cwd.clone(), ..Launch::default() };
    launch.args.clone_from(&ground.program.args);
    launch.args.extend(request.agent_args.clone().unwrap_or(own.args));
    launch.stdin = text;
    let Divided { passed, withheld } = divide_environment(&ground.env, own.card.variables, &request.pass_env);
    launch.env = passed;
    launch.env.insert("NO_COLOR".into(), "1".into());
    launch.env.extend(own.env.into_iter().map(|(name, value)| (name.to_owned(), value)));
    launch.env.extend(request.env.clone());
    if let (Some(name), Some(key)) = (own.key_variable, &request.api_key) {
        launch.env.insert(name.to_owned(), key.clone());
    }
    launch.withheld = withheld.into_iter().filter(|name| !launch.env.contains_key(name)).collect();
    let mut secrets = Secrets::default();
    secrets.add_variables(&ground.env);
    secrets.add_variables(&launch.env);
    secrets.add_servers(servers.values());
    request.api_key.iter().for_each(|key| secrets.add(key));
    launch.secrets = secrets.into_vec();
    if request.trust != Trust::Full {
        restrict_git(&mut launch.env);
    }
    launch.agent_home.clone_from(&ground.home);
    launch.session_id.clone_from(&request.resume);
    launch.talk = Talk::new(plan.surface, ground.program.version);
    launch.talk.read_files = request.allow_file_reads;
    launch.talk.write_files = request.allow_file_writes;
    launch.talk.authenticate.clone_from(&request.authenticate);
    launch.mode = request.mode_id.as_ref().map(|id| ModeWish::new(id, false)).or(own.mode);
    launch.model = request
        .model
        .as_ref()
        .map(|id| ModelWish::new(id, request.model_validation == ModelValidation::Strict));
    launch.servers = servers;
    launch.meta = own.meta.map(|meta| meta.to_string());
    launch.session_cwd = own.session_cwd;
    let wanted = request.quiet_period.map(|d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX));
    launch.quiet = wanted.unwrap_or(own.quiet);
    if own.only_when_asked && request.permission_mode == PermissionMode::Plan {
        launch.warnings.push(Notice::new(
            "mode_when_asked",
            format!(
                "the mode is held where {title} asks for permission; what it does without asking is only seen"
            ),
        ));
    }
    if !request.include_directories.is_empty() && !own.takes_folders {
        launch.warnings.push(Notice::new(
            "include_directories",
            format!("{title} is not told of the included folders; they count where it asks for permission"),
        ));
    }
    Ok(launch)
}

/// Settings of Git that stand above those of the repository. Agents run `git status` and `git log` without asking, and with
/// these settings a `.git/config` of the workspace would name a program that they start.
const GIT_SETTINGS: &[(&str, &str)] = &[("core.fsmonitor", "false"), ("log.showSignature", "false")];

/// Adds [`GIT_SETTINGS`] to an environment, after those that the caller gives in the same way. Called once the secrets of the
/// environment are known: the names of these variables look like those of keys.
fn restrict_git(env: &mut BTreeMap<String, String>) {
    let given = env.get("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    for (at, (name, value)) in (given..).zip(GIT_SETTINGS) {
        env.insert(format!("GIT_CONFIG_KEY_{at}"), (*name).to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{at}"), (*value).to_owned());
    }
    env.insert("GIT_CONFIG_COUNT".into(), (given + GIT_SETTINGS.len()).to_string());
}

/// The workspace and the directories above it, from which agents take settings. The user's home is not among them: what is
/// there is the user's own.
pub(super) fn workspace_dirs<'a>(cwd: &'a Path, home: &'a Path) -> impl Iterator<Item = &'a Path> {
    cwd.ancestors().filter(move |dir| *dir != home)
}

/// Longer settings of a workspace are not searched: they count as if they held anything.
const LONGEST_SETTINGS: usize = 1 << 20;

/// Whether a JSON file of a workspace is there and may have one of these words in a key. It may have comments, so it is not
/// parsed: a key is spelled as it is or with escapes, and in no other way.
pub(super) fn may_mention(path: &Path, words: &[&str], look: &dyn Look) -> bool {
    let has = |bytes: &[u8], word: &str| bytes.windows(word.len()).any(|found| found == word.as_bytes());
    let text = || look.small(path, LONGEST_SETTINGS);
    look.exists(path)
        && text().is_none_or(|bytes| has(&bytes, "\\u") || words.iter().any(|word| has(&bytes, word)))
}

/// Why a session is refused in a workspace whose settings cannot be kept out.
pub(super) fn refuses_settings(title: &str, path: &Path) -> Failure {
    let message = format!("{title} would load `{}`, which is not trusted", path.display());
    Failure::new(Kind::Settings, message)
        .hint("review it, then type `agentline trust` in the workspace or pass `--trust full`; or remove it")
}

/// What the model is told. The system prompt is said before it, unless the agent takes that by another way.
pub(super) fn words(plan: &Plan, with_system: bool, cwd: &Path, look: &dyn Look) -> Result<Words, Problem> {
    text(plan, with_system, cwd, look).map(Words::new)
}

/// The whole text that the model shall get.
fn text(plan: &Plan, with_system: bool, cwd: &Path, look: &dyn Look) -> Result<String, Problem> {
    let request = &plan.request;
    let mut parts: Vec<Cow<'_, str>> = Vec::new();
    if let Some(system) = request.system_prompt.as_ref().filter(|_| with_system) {
        parts.push(system.into());
    }
    if !request.prompt.trim().is_empty() {
        parts.push(request.prompt.as_str().into());
    }
    if let Some(file) = request.prompt_file.as_ref().map(|file| cwd.join(file)) {
        let wrong = |what: &str| {
            Problem::new("prompt_file", format!("`{}` {what}", file.display()))
                .hint("name a text file that is there")
        };
        let content = look.text(&file).ok_or_else(|| wrong("cannot be read as text"))?;
        if content.trim().is_empty() || content.contains('\0') {
            return Err(wrong("is empty, or holds a NUL byte"));
        }
        let real = look.canonical(&file).unwrap_or_else(|| file.clone());
        let told = format!("Process the prompt in {}", file.display());
        parts.push(if real.starts_with(cwd) { told } else { content }.into());
    }
    Ok(parts.join("\n\n"))
}

/// The servers of a request: those of its settings file, then those given by name.
fn servers(
    request: &RunRequest,
    cwd: &Path,
    look: &dyn Look,
) -> Result<BTreeMap<String, McpServer>, Problem> {
    let mut all = BTreeMap::new();
    if let Some(path) = request.mcp_settings_path.as_ref().map(|path| cwd.join(path)) {
        let wrong = |what: String| {
            Problem::new("mcp_settings_path", format!("`{}` {what}", path.display()))
                .hint("name a JSON file with an object `mcpServers`")
        };
        let text = look.text(&path).ok_or_else(|| wrong("cannot be read".into()))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| wrong(format!("is not JSON: {e}")))?;
        let found = value.get("mcpServers").and_then(Value::as_object);
        for (name, server) in found.ok_or_else(|| wrong("has no object `mcpServers`".into()))? {
            let mut server = server.clone();
            if let Some((table, url)) =
                server.as_object_mut().and_then(|t| t.remove("httpUrl").map(|url| (t, url)))
            {
                table.insert("url".into(), url);
            }
            let server = serde_json::from_value(server)
                .map_err(|_| wrong(format!("has a server `{name}` with neither `command` nor `url`")))?;
            all.insert(name.clone(), server);
        }
    }
    all.extend(request.mcp_servers.clone());
    Ok(all)
}

/// A call in our vocabulary: by the tool's name where the table has it, else by what the protocol says of it. Arguments
/// get the names that they have in the canonical form.
pub(super) fn tool(call: &ToolCall, native: &str, table: &ToolTable) -> ToolUse {
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

/// A folder in the user's home, or where a variable says.
pub(super) fn home_folder(
    env: &BTreeMap<String, String>,
    home: &Path,
    variable: &str,
    folder: &str,
) -> PathBuf {
    env.get(variable).filter(|v| !v.is_empty()).map_or_else(|| home.join(folder), PathBuf::from)
}

/// Ways of signing in that are variables.
pub(super) fn variables(env: &BTreeMap<String, String>, names: &[&str]) -> Vec<SignIn> {
    let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    names.iter().map(|name| SignIn::new(*name, is_set(name))).collect()
}

/// A way of signing in that is a file.
pub(super) fn found(path: PathBuf, look: &dyn Look, note: &str) -> SignIn {
    SignIn::new(path.to_string_lossy(), look.exists(&path)).note(note)
}

/// The first way that is there is the one that counts.
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
    fn settings_of_git_come_after_those_of_the_caller() {
        let restricted = |given: &[(&str, &str)]| {
            let mut env = given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
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
