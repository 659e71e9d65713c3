//! The profile of a configured agent: what agentline must know about it beyond ACP.

use crate::{Failure, FailureKind, Tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known about a configured agent. Every part is optional: without a profile, only ACP itself is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentProfile {
    /// The shipped profile that applies to everything that this one does not set.
    #[serde(rename = "profile", skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Other accepted names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aliases: Option<Vec<String>>,
    /// The npm package, or `pypi:` with the package from PyPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The version that the profile was made for, which `agentline install` installs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The oldest major version of Node.js that its program runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_node: Option<u32>,
    /// The page with installation instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_page: Option<String>,
    /// How to sign in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in_hint: Option<String>,
    /// The environment variables that the agent documents and that a run passes on. A trailing `*` marks a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<Vec<String>>,
    /// The files of a project that can change its settings or make it run something. A run in an untrusted workspace
    /// that has one of them does not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_files: Option<Vec<String>>,
    /// How each permission mode is served, by the name of the mode.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ProfileMode>,
    /// Whether the agent asks before it changes files and runs commands, in the mode that serves `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<bool>,
    /// What the token counts of the agent mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<ReportedUsage>,
    /// The lines of the session file that record an answer of the model, with its tokens. They take the place of `usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_usage: Option<RecordedUsage>,
    /// Texts with which the agent reports errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<ErrorPattern>>,
    /// Messages of error responses that say that an answer was cut off at the token limit. `*` matches anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<Vec<String>>,
    /// Texts of the agent that are not part of the answer. `*` matches anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Vec<String>>,
    /// The number of retries of one request after which a turn is cancelled, if the agent reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Results of tools with which the agent refuses to run them. `*` matches anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denials: Option<Vec<String>>,
    /// The canonical names of tools whose kind the agent does not report, by the first word of their title.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
    /// Whether the agent accepts MCP servers over HTTP. Without them, it has no functions of the caller and no structured
    /// answers either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<bool>,
    /// The title of a call to a tool of an MCP server: a text with `{server}` and `{tool}`. A trailing `*` matches
    /// anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_title: Option<String>,
    /// The tool and its argument that has the text of `mcp_title`, such as `use_tool.tool_name`, if the agent calls the
    /// tools of MCP servers through a tool of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_argument: Option<String>,
    /// Whether the agent lists the tools of MCP servers only when it gets a prompt, so that a run does not wait for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists_tools_late: Option<bool>,
    /// Files for the agent, by name. They are written to the private directory of a run, whose path is `{private}` in
    /// `env`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The silence after an answer that ends a turn, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_period_ms: Option<u64>,
    /// The file that the agent writes for each session: a path with `{id}`, `{cwd}` for the workspace with `-` for
    /// every other character than letters and digits, and `*` for any directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_store: Option<String>,
    /// What a caller should know about the agent, a sentence for each, for `agentline doctor --deep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quirks: Option<Vec<String>>,
}

/// How an agent serves a permission mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ModeForm")]
#[non_exhaustive]
pub struct ProfileMode {
    /// The agent's own mode, set when a session is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// More arguments for the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// More environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The two ways to write a [`ProfileMode`].
#[derive(Deserialize)]
#[serde(untagged)]
enum ModeForm {
    Name(String),
    Table {
        mode: Option<String>,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
}

impl From<ModeForm> for ProfileMode {
    fn from(form: ModeForm) -> Self {
        match form {
            ModeForm::Name(mode) => Self::named(mode),
            ModeForm::Table { mode, args, env } => Self { mode, args, env },
        }
    }
}

impl ProfileMode {
    /// Creates a mode that is only set by its name.
    #[must_use]
    pub fn named(mode: impl Into<String>) -> Self {
        Self { mode: Some(mode.into()), ..Self::default() }
    }
}

/// What the token counts that an agent reports mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReportedUsage {
    /// The count in the answer to a prompt covers all requests of that prompt.
    #[default]
    PerTurn,
    /// The count in the answer to a prompt covers the whole session.
    Cumulative,
    /// The count in the answer to a prompt covers only the last request.
    LastRequest,
    /// Each update with a count in its `_meta` covers one request.
    PerRequest,
    /// There is no count that can be used.
    None,
}

impl ReportedUsage {
    /// All values, with their names.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("per-turn", Self::PerTurn),
        ("cumulative", Self::Cumulative),
        ("last-request", Self::LastRequest),
        ("per-request", Self::PerRequest),
        ("none", Self::None),
    ];
}

/// The lines of a session file that record an answer of the model, and where in them its tokens are. A count is the sum
/// of the numbers at its paths, such as `message.usage.input`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecordedUsage {
    /// The whole line; `*` matches anything.
    pub line: String,
    /// The tokens of the request, including cached ones.
    pub input: Vec<String>,
    /// The part of the request that was read from a cache.
    pub cached: Vec<String>,
    /// The part of the request that was written to a cache.
    pub cache_write: Vec<String>,
    /// The tokens of the answer, including reasoning.
    pub output: Vec<String>,
    /// The tokens of the reasoning.
    pub thoughts: Vec<String>,
}

impl RecordedUsage {
    /// Returns the tokens of the answer that a line records, or `None` if it records none.
    pub(crate) fn tokens(&self, line: &str) -> Option<Tokens> {
        if !matches(&self.line, line.trim()) {
            return None;
        }
        let record: Value = serde_json::from_str(line).ok()?;
        let count = |paths: &[String]| {
            let at = |path: &String| path.split('.').try_fold(&record, |value, key| value.get(key))?.as_u64();
            let found: Vec<u64> = paths.iter().filter_map(at).collect();
            (!found.is_empty()).then(|| found.into_iter().fold(0, u64::saturating_add))
        };
        let (input, output, thoughts) = (count(&self.input), count(&self.output), count(&self.thoughts));
        let whole = input.zip(output).map(|(input, output)| input.saturating_add(output));
        Some(Tokens {
            input,
            output: output.map(|output| output.saturating_sub(thoughts.unwrap_or(0))),
            cached: count(&self.cached),
            cache_write: count(&self.cache_write).filter(|tokens| *tokens > 0),
            thoughts,
            total: whole,
            ..Tokens::default()
        })
    }
}

/// A text with which an agent reports an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorPattern {
    /// The whole text; `*` matches anything.
    pub text: String,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Where the text appears.
    #[serde(default, rename = "in", skip_serializing_if = "ErrorPlace::is_default")]
    pub place: ErrorPlace,
    /// The message of the failure, if the text itself does not say what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where an agent reports an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorPlace {
    /// In the message of an error response.
    #[default]
    Error,
    /// In the text of the answer, as a separate chunk at its end.
    Text,
    /// In a notification that is not part of ACP. The agent retries the request.
    Notification,
    /// In a line of its session file. The agent retries the request or ends the turn.
    Session,
}

impl ErrorPlace {
    /// All values, with their names.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("error", Self::Error),
        ("text", Self::Text),
        ("notification", Self::Notification),
        ("session", Self::Session),
    ];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::Error
    }
}

impl ErrorPattern {
    /// Creates a pattern for texts in this place.
    #[must_use]
    pub fn new(text: impl Into<String>, kind: FailureKind, place: ErrorPlace) -> Self {
        Self { text: text.into(), kind, place, message: None }
    }
}

impl AgentProfile {
    /// Overrides this profile with one of a higher layer.
    pub(crate) fn overlay(&mut self, above: Self) {
        let Self {
            base,
            title,
            aliases,
            package,
            version,
            min_node,
            home_page,
            sign_in_hint,
            variables,
            project_files,
            modes,
            asks,
            usage,
            session_usage,
            errors,
            cut_off,
            noise,
            max_retries,
            denials,
            tools,
            mcp,
            mcp_title,
            mcp_argument,
            lists_tools_late,
            files,
            quiet_period_ms,
            session_store,
            quirks,
        } = above;
        fn put<T>(below: &mut Option<T>, above: Option<T>) {
            if above.is_some() {
                *below = above;
            }
        }
        put(&mut self.base, base);
        put(&mut self.title, title);
        put(&mut self.aliases, aliases);
        put(&mut self.package, package);
        put(&mut self.version, version);
        put(&mut self.min_node, min_node);
        put(&mut self.home_page, home_page);
        put(&mut self.sign_in_hint, sign_in_hint);
        put(&mut self.variables, variables);
        put(&mut self.project_files, project_files);
        put(&mut self.asks, asks);
        put(&mut self.usage, usage);
        put(&mut self.session_usage, session_usage);
        put(&mut self.errors, errors);
        put(&mut self.cut_off, cut_off);
        put(&mut self.noise, noise);
        put(&mut self.max_retries, max_retries);
        put(&mut self.denials, denials);
        put(&mut self.mcp, mcp);
        put(&mut self.mcp_title, mcp_title);
        put(&mut self.mcp_argument, mcp_argument);
        put(&mut self.lists_tools_late, lists_tools_late);
        put(&mut self.quiet_period_ms, quiet_period_ms);
        put(&mut self.session_store, session_store);
        put(&mut self.quirks, quirks);
        self.modes.extend(modes);
        self.tools.extend(tools);
        self.files.extend(files);
    }

    /// Returns how the permission mode with this name is served. Modes that agentline enforces when the agent asks are
    /// served like `default`.
    pub(crate) fn mode(&self, name: &str) -> Option<&ProfileMode> {
        let is_enforced_here = !matches!(name, "bypass" | "plan");
        self.modes.get(name).or_else(|| self.modes.get("default").filter(|_| is_enforced_here))
    }

    /// Returns the failure that a text reports, if it is one of the known errors.
    pub(crate) fn error(&self, place: ErrorPlace, text: &str) -> Option<Failure> {
        let text = text.trim();
        let known = self.errors.iter().flatten().filter(|pattern| pattern.place == place);
        let found = known.into_iter().find(|pattern| matches(&pattern.text, text))?;
        if let Some(message) = &found.message {
            return Some(Failure::new(found.kind, message.clone()));
        }
        let message = match place {
            ErrorPlace::Text | ErrorPlace::Error => text.to_owned(),
            // The text is JSON; one of its strings says what happened.
            _ => serde_json::from_str(text)
                .ok()
                .and_then(|value| message_in(&value))
                .unwrap_or_else(|| text.to_owned()),
        };
        Some(Failure::new(found.kind, message.chars().take(LONGEST_MESSAGE).collect::<String>()))
    }

    /// Returns whether the message of an error response says that an answer was cut off.
    pub(crate) fn is_cut_off(&self, message: &str) -> bool {
        self.cut_off.iter().flatten().any(|pattern| matches(pattern, message.trim()))
    }

    /// Returns whether a text is not part of the answer.
    pub(crate) fn is_noise(&self, text: &str) -> bool {
        self.noise.iter().flatten().any(|pattern| matches(pattern, text.trim()))
    }

    /// Returns whether the result of a tool says that the agent refused to run it.
    pub(crate) fn is_denial(&self, result: &str) -> bool {
        self.denials.iter().flatten().any(|pattern| matches(pattern, result.trim()))
    }

    /// Returns the server and the tool of a call to a tool of an MCP server, by its title.
    pub(crate) fn mcp_tool<'a>(&self, title: &'a str) -> Option<(&'a str, &'a str)> {
        let template = self.mcp_title.as_deref()?;
        let (tool_at, server_at) = (template.find(TOOL)?, template.find(SERVER)?);
        let is_tool_first = tool_at < server_at;
        let (first, second) = if is_tool_first { (TOOL, SERVER) } else { (SERVER, TOOL) };
        let (before, rest) = template.split_once(first)?;
        let (between, after) = rest.split_once(second)?;
        let (one, rest) = title.strip_prefix(before)?.split_once(between)?;
        let other = match after.strip_suffix('*') {
            Some("") => rest,
            Some(after) => rest.split_once(after)?.0,
            None => rest.strip_suffix(after)?,
        };
        let (tool, server) = if is_tool_first { (one, other) } else { (other, one) };
        // Other titles contain texts of the model.
        let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_whitespace);
        (is_name(tool) && is_name(server)).then_some((server, tool))
    }

    /// Returns the path of a session's file for a workspace and a home directory, with `*` for unknown directories.
    pub(crate) fn session_file(&self, home: &str, cwd: &str, id: &str) -> Option<String> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let cwd: String = cwd.chars().map(plain).collect();
        let path = self.session_store.as_ref()?.replace("{cwd}", &cwd).replace("{id}", id);
        Some(match path.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => path,
        })
    }
}

/// What stands for the tool and the server in the title of a call.
const TOOL: &str = "{tool}";
const SERVER: &str = "{server}";

/// The longest message of a failure, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// Returns the first message in a JSON value.
fn message_in(value: &Value) -> Option<String> {
    const NAMES: &[&str] = &["errorMessage", "error_message", "message", "reason", "detail"];
    match value {
        Value::Object(table) => {
            let named = NAMES.iter().find_map(|name| table.get(*name)?.as_str());
            named.map(str::to_owned).or_else(|| table.values().find_map(message_in))
        }
        Value::Array(items) => items.iter().find_map(message_in),
        _ => None,
    }
}

/// Returns whether a pattern matches a whole text. `*` matches any text. Takes linear time.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("Error: *429*", "Error: x 429 y", true),
            ("Error: *429*", "The Error: 429", false),
            ("*b*d", "abcd", true),
            ("a*a", "a", false),
            ("*", "", true),
            ("a*b*c", "axbxbxc", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn message_of_a_session_line_is_the_agents_own() {
        let errors =
            vec![ErrorPattern::new("*\"status\":429*", FailureKind::RateLimited, ErrorPlace::Session)];
        let profile = AgentProfile { errors: Some(errors), ..AgentProfile::default() };
        let line = r#"{"id":7,"event":{"error_message":"429 slow down","status":429}}"#;
        assert_eq!(profile.error(ErrorPlace::Session, line).unwrap().message, "429 slow down");
        assert_eq!(profile.error(ErrorPlace::Text, line), None);
        assert_eq!(profile.error(ErrorPlace::Error, line), None);
    }

    #[test]
    fn session_line_has_the_tokens_of_an_answer() {
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let usage = RecordedUsage {
            line: r#"{"type":"answer"*"#.into(),
            input: paths(&["usage.new", "usage.cached"]),
            cached: paths(&["usage.cached"]),
            output: paths(&["usage.output"]),
            thoughts: paths(&["usage.reasoning"]),
            ..RecordedUsage::default()
        };
        let line = r#"{"type":"answer","usage":{"new":100,"cached":20,"output":30,"reasoning":5}}"#;
        let tokens = usage.tokens(line).unwrap();
        assert_eq!((tokens.input, tokens.cached, tokens.total), (Some(120), Some(20), Some(150)));
        assert_eq!((tokens.output, tokens.thoughts, tokens.cache_write), (Some(25), Some(5), None));
        assert_eq!(usage.tokens(&line.replace("answer", "question")), None);
        let empty = usage.tokens(r#"{"type":"answer","usage":{}}"#).unwrap();
        assert_eq!((empty.input, empty.total), (None, None), "nothing unknown is 0");
    }

    #[test]
    fn pattern_can_have_its_own_message() {
        let mut pattern = ErrorPattern::new("*cut*", FailureKind::ApiError, ErrorPlace::Session);
        pattern.message = Some("the answer was truncated".into());
        let profile = AgentProfile { errors: Some(vec![pattern]), ..AgentProfile::default() };
        let failure = profile.error(ErrorPlace::Session, r#"{"stop":"cut","message":"hello"}"#).unwrap();
        assert_eq!(failure.message, "the answer was truncated");
    }

    #[test]
    fn tool_of_an_mcp_server_is_recognized_by_its_title() {
        for (template, title, expected) in [
            ("{tool} ({server} MCP Server)*", "double (shop MCP Server): {}", Some(("shop", "double"))),
            ("{tool} ({server} MCP Server)*", "double (shop)", None),
            ("{tool} ({server} MCP Server)*", " (shop MCP Server)", None),
            ("{server}: {tool}", "shop: double", Some(("shop", "double"))),
            ("{server}: {tool}", "shell · echo shop: double", None),
            ("{server}: {tool}*", "shop: double", Some(("shop", "double"))),
            ("mcp/{server}/{tool}.", "mcp/shop/double.", Some(("shop", "double"))),
            ("mcp/{server}/{tool}.", "mcp/shop/double", None),
        ] {
            let profile = AgentProfile { mcp_title: Some(template.into()), ..AgentProfile::default() };
            assert_eq!(profile.mcp_tool(title), expected, "{template} {title}");
        }
    }

    #[test]
    fn permission_mode_without_an_own_entry_is_served_like_the_default() {
        let mut profile = AgentProfile::default();
        profile.modes.insert("default".into(), ProfileMode::named("ask"));
        profile.modes.insert("bypass".into(), ProfileMode::named("yolo"));
        let mode = |name| profile.mode(name).and_then(|mode| mode.mode.clone());
        for name in ["default", "accept-edits", "deny"] {
            assert_eq!(mode(name).as_deref(), Some("ask"), "{name}");
        }
        assert_eq!(mode("bypass").as_deref(), Some("yolo"));
        assert_eq!(mode("plan"), None);
    }

    #[test]
    fn session_file_is_found_by_workspace_and_id() {
        let path = |store: &str| {
            let profile = AgentProfile { session_store: Some(store.into()), ..AgentProfile::default() };
            profile.session_file("/home/me", "/ws/my_app", "7").unwrap()
        };
        assert_eq!(path("~/.a/{cwd}/{id}.jsonl"), "/home/me/.a/-ws-my-app/7.jsonl");
        assert_eq!(path("/var/*/{id}"), "/var/*/7");
    }
}
