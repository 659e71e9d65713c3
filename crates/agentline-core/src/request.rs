//! A typed run request. `validate` checks later whether an agent supports it.

mod setters;

use crate::written_keys::WrittenKeys;
use crate::{
    AgentId, CachePolicy, McpServer, Notice, Problem, Rule, RuleError, Surface,
    agent_option::deserialize_options, secret::debug_without_secrets, time,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// A typed run request: everything a caller can configure for one run.
///
/// ```
/// use agentline_core::{PermissionMode, RunRequest, Surface};
/// let request = RunRequest::new("fix the failing test")
///     .surface(Surface::StreamJson)
///     .permission_mode(PermissionMode::AcceptEdits)
///     .working_dir("/srv/project");
/// assert_eq!(request.agent, "gemini");
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunRequest {
    /// The prompt for the agent.
    pub prompt: String,
    /// The id of the agent or one of its aliases.
    pub agent: AgentId,
    /// The surface. `None` selects the best one that supports the request.
    pub surface: Option<Surface>,
    /// The model id, as the agent spells it.
    pub model: Option<String>,
    /// The workspace. `None` is the caller's current directory.
    pub working_dir: Option<PathBuf>,
    /// A file with the prompt, which the agent is instructed to read.
    pub prompt_file: Option<PathBuf>,
    /// Files sent with the prompt, if the surface supports it.
    pub attachments: Vec<PathBuf>,
    /// The caller's system prompt.
    pub system_prompt: Option<String>,
    /// Whether `system_prompt` extends the agent's own or replaces it.
    pub system_mode: SystemMode,
    /// The caller's name for this prompt, repeated in events, errors and outcome.
    pub name: Option<String>,
    /// What the agent may do without asking.
    pub permission_mode: PermissionMode,
    /// Rules that allow tool uses. They take precedence over the mode.
    pub allow: Vec<Rule>,
    /// Rules that deny tool uses. They take precedence over the mode.
    pub deny: Vec<Rule>,
    /// Rules for tool uses that need the host's permission. They take precedence over the mode.
    pub ask: Vec<Rule>,
    /// The texts that were added as rules but are not valid. Validation reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) invalid_rules: Vec<InvalidRule>,
    /// The names with which the caller wrote keys. Problems name these.
    #[serde(skip)]
    pub(crate) written: WrittenKeys,
    /// Directories outside the workspace that tools may use.
    pub include_directories: Vec<PathBuf>,
    /// The agent's own sandbox.
    pub sandbox: Sandbox,
    /// MCP servers for this run, by name.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// A settings file of the agent whose MCP servers are added.
    pub mcp_settings_path: Option<PathBuf>,
    /// A JSON Schema file that the answer must match.
    pub output_schema: Option<PathBuf>,
    /// The session to resume: an id or `latest`.
    pub resume: Option<String>,
    /// The id for a new session.
    pub session_id: Option<String>,
    /// The time limit of the whole run.
    pub timeout: Duration,
    /// The maximum silence while nothing is pending.
    pub idle_timeout: Duration,
    /// The maximum silence while a tool runs.
    pub tool_timeout: Duration,
    /// The maximum time until the agent's first response.
    pub startup_timeout: Duration,
    /// The maximum time for which an agent may retry a failed request.
    pub retry_patience: Duration,
    /// How many times the run is retried on each model after a failure that a retry can help. `None` leaves it to the
    /// caller's default, which is 0 outside of a host.
    pub retries: Option<u32>,
    /// Models that are tried in order if the model's service refuses the run or all retries failed.
    pub fallback_models: Vec<String>,
    /// Whether the run may be retried after it changed files of a workspace that it shares with others.
    pub retry_after_changes: bool,
    /// The silence after the answer that ends a turn over ACP. `None` uses the agent's default.
    pub quiet_period: Option<Duration>,
    /// Limits on turns, tool calls, tokens and cost.
    pub limits: Limits,
    /// Variables added to the agent's environment.
    pub env: BTreeMap<String, String>,
    /// Names of the caller's variables that are passed to the agent. `*` passes all.
    pub pass_env: Vec<String>,
    /// The trust in the workspace.
    pub trust: Trust,
    /// Whether the agent resolves references such as `@file` in the prompt, instead of receiving them as literal text.
    pub file_references: bool,
    /// The API key for the agent's service. It is redacted everywhere.
    pub api_key: Option<String>,
    /// Options that only this agent has, by name. [`AgentDescription::options`](crate::AgentDescription::options) lists them. In JSON, they
    /// are fields of the request itself.
    #[serde(flatten, deserialize_with = "deserialize_options")]
    pub agent_options: BTreeMap<String, Value>,
    /// Whether a model that the agent does not list is a warning or an error.
    pub model_validation: ModelValidation,
    /// The time at which the run must be over. JSON has seconds since 1970, with fractions.
    #[serde(with = "time::epoch_seconds")]
    pub deadline: Option<SystemTime>,
    /// A command that decides whether the task is complete. The agent is re-prompted until it succeeds.
    pub until: Option<String>,
    /// The maximum number of times that the agent is re-prompted.
    pub max_rounds: u32,
    /// How many times the agent may repair a value that does not match the schema.
    pub repair_turns: u32,
    /// Whether to extract a JSON value from the answer. An answer without one is invalid.
    pub extract_json: bool,
    /// Arguments for the agent's program over ACP, which replace the built-in ones.
    pub agent_args: Option<Vec<String>>,
    /// The agent's own mode, set when a session is opened over ACP.
    pub mode_id: Option<String>,
    /// Whether reasoning is shown next to the answer.
    pub emit_thoughts: bool,
    /// Whether the agent may request to read files in the workspace over ACP.
    pub allow_file_reads: bool,
    /// Whether the agent may request to write files in the workspace over ACP.
    pub allow_file_writes: bool,
    /// The agent's sign-in method to request over ACP. It may change the user's settings.
    pub authenticate: Option<String>,
    /// The profile of the agent's sandbox on macOS.
    pub sandbox_profile: Option<String>,
    /// Whether the request needs a live agent, for hosted tools, permission callbacks or several prompts.
    #[serde(skip)]
    pub needs_live: bool,
    /// Tools of the calling program, as `mcp__server__tool`. They need no permission in any mode.
    #[serde(skip)]
    pub own_tools: Vec<String>,
    /// The schema of the answer, for an agent that checks its answers itself.
    #[serde(skip)]
    pub answer_schema: Option<Value>,
    /// Whether the run gets an empty workspace of its own, which is removed afterwards.
    pub temporary_workspace: bool,
    /// Whether the changed files of the outcome have unified diffs.
    pub diffs: bool,
    /// The file to which the tape of the run is written.
    pub record: Option<PathBuf>,
    /// The maximum length of a line in bytes. Longer lines are reported as unreadable.
    pub max_line_bytes: usize,
    /// Whether the result of an identical earlier run may be reused.
    pub cache: CachePolicy,
    /// Warnings about the settings behind this request. The outcome repeats them.
    #[serde(skip)]
    pub notices: Vec<Notice>,
}

impl RunRequest {
    /// Creates a request for the default agent with default settings.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }
}

impl Default for RunRequest {
    fn default() -> Self {
        Self {
            prompt: String::new(),
            agent: "gemini".into(),
            surface: None,
            model: None,
            working_dir: None,
            prompt_file: None,
            attachments: Vec::new(),
            system_prompt: None,
            system_mode: SystemMode::Append,
            name: None,
            permission_mode: PermissionMode::Default,
            allow: Vec::new(),
            deny: Vec::new(),
            ask: Vec::new(),
            invalid_rules: Vec::new(),
            written: WrittenKeys::default(),
            include_directories: Vec::new(),
            sandbox: Sandbox::Off,
            mcp_servers: BTreeMap::new(),
            mcp_settings_path: None,
            output_schema: None,
            resume: None,
            session_id: None,
            timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(600),
            startup_timeout: Duration::from_secs(60),
            retry_patience: Duration::from_secs(90),
            retries: None,
            fallback_models: Vec::new(),
            retry_after_changes: false,
            quiet_period: None,
            limits: Limits::default(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            trust: Trust::Run,
            file_references: false,
            api_key: None,
            agent_options: BTreeMap::new(),
            model_validation: ModelValidation::Warn,
            deadline: None,
            until: None,
            max_rounds: 10,
            repair_turns: 2,
            extract_json: false,
            agent_args: None,
            mode_id: None,
            emit_thoughts: false,
            allow_file_reads: false,
            allow_file_writes: false,
            authenticate: None,
            sandbox_profile: None,
            needs_live: false,
            own_tools: Vec::new(),
            answer_schema: None,
            temporary_workspace: false,
            diffs: false,
            record: None,
            max_line_bytes: 256 << 20,
            cache: CachePolicy::default(),
            notices: Vec::new(),
        }
    }
}

impl RunRequest {
    /// Names the keys in problems as the caller wrote them.
    #[must_use]
    pub fn as_written(&self, problems: Vec<crate::Problem>) -> Vec<crate::Problem> {
        problems.into_iter().map(|problem| self.written.name(problem)).collect()
    }

    /// Sets the name of a key in problems, such as the flag that set it.
    pub fn name_key(&mut self, key: &'static str, written: &str) {
        self.written.record(key, written);
    }

    /// Returns [`as_written`](Self::as_written) as a function that outlives the request.
    pub fn problem_names(&self) -> impl Fn(crate::Problems) -> crate::Problems + Send + use<> {
        let written = self.written.clone();
        move |problems| crate::Problems(problems.0.into_iter().map(|one| written.name(one)).collect())
    }
}

impl RunRequest {
    /// Returns a problem for each text in a list of rules that is not a valid rule.
    pub(crate) fn invalid_rules(&self, list: &str) -> impl Iterator<Item = Problem> {
        self.invalid_rules.iter().filter(move |rule| rule.list == list).map(|rule| rule.error.problem(list))
    }
}

/// Formats the request without its secrets, because requests are often logged.
impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_without_secrets(self, f)
    }
}

/// Whether the caller's system prompt extends or replaces the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SystemMode {
    /// Extends it. For an agent without such a flag, the text is put before the prompt, followed by a blank line.
    #[default]
    Append,
    /// Replaces it.
    Replace,
}

/// What the agent may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PermissionMode {
    /// Uses that need permission are denied if no user can be asked.
    #[default]
    Default,
    /// Edits in the workspace are allowed.
    AcceptEdits,
    /// Everything is allowed.
    Bypass,
    /// Only reading and planning are allowed.
    Plan,
    /// Every permission request from the agent is granted, for that one use only.
    Auto,
    /// Every permission request from the agent is denied.
    Deny,
    /// Every permission request from the agent goes to the user on a terminal, and is denied if there is none.
    Prompt,
}

impl PermissionMode {
    /// The names of all modes.
    pub const NAMES: &[&str] = &["default", "accept-edits", "bypass", "plan", "auto", "deny", "prompt"];

    /// Returns the name of the mode.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "accept-edits",
            Self::Bypass => "bypass",
            Self::Plan => "plan",
            Self::Auto => "auto",
            Self::Deny => "deny",
            Self::Prompt => "prompt",
        }
    }

    /// Returns whether the other mode allows everything that this mode allows, and more.
    ///
    /// `plan` and `deny` are the strictest; `default`, `accept-edits`, `auto` and `bypass` allow increasingly more.
    /// `prompt` is stricter only than `auto` and `bypass`, because the user may allow what `default` and `accept-edits`
    /// deny. Modes that cannot be compared (`plan` and `deny`, `prompt` and `default`) are not stricter than each
    /// other.
    ///
    /// ```
    /// use agentline_core::PermissionMode::{Bypass, Default, Deny, Plan, Prompt};
    /// assert!(Plan.is_stricter_than(Default) && Default.is_stricter_than(Bypass));
    /// assert!(!Plan.is_stricter_than(Deny) && !Prompt.is_stricter_than(Default));
    /// ```
    #[must_use]
    pub fn is_stricter_than(self, other: Self) -> bool {
        use PermissionMode::{AcceptEdits, Auto, Bypass, Default, Deny, Plan, Prompt};
        let looser: &[Self] = match self {
            Plan | Deny => &[Default, Prompt, AcceptEdits, Auto, Bypass],
            Default => &[AcceptEdits, Auto, Bypass],
            Prompt | AcceptEdits => &[Auto, Bypass],
            Auto => &[Bypass],
            Bypass => &[],
        };
        looser.contains(&other)
    }

    /// Parses the name of a mode or an accepted alias, such as the names that Claude Code and Gemini CLI use.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "default" | "suggest" => Self::Default,
            "accept-edits" | "accept_edits" | "acceptEdits" | "auto_edit" | "autoEdit" => Self::AcceptEdits,
            "bypass" | "bypassPermissions" | "bypass_permissions" | "yolo" | "full_auto" => Self::Bypass,
            "plan" => Self::Plan,
            "auto" => Self::Auto,
            "deny" => Self::Deny,
            "prompt" => Self::Prompt,
            _ => return None,
        })
    }
}

/// The handling of a model that the agent does not list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelValidation {
    /// Emits a warning, because agents also run models that they do not list.
    #[default]
    Warn,
    /// Fails the run before anything is sent to the model.
    Strict,
}

/// The agent's own sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Sandbox {
    /// No sandbox.
    #[default]
    Off,
    /// The sandbox that the agent detects.
    On,
    /// A specific sandbox: `docker`, `podman`, `sandbox-exec`.
    By(String),
}

/// The trust in the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trust {
    /// The agent may work in the workspace, but the workspace's own settings, hooks and MCP servers are not loaded.
    #[default]
    Run,
    /// The workspace's settings, hooks and MCP servers are loaded. A hostile repository can then run commands.
    Full,
    /// The workspace is not trusted. If the agent requires trust, the verdict is `untrusted`.
    No,
}

/// Limits that stop a run. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of model turns.
    pub max_turns: Option<u32>,
    /// The maximum number of tool calls.
    pub max_tool_calls: Option<u32>,
    /// The maximum number of tokens in total.
    pub max_tokens: Option<u64>,
    /// The maximum number of output tokens, including thoughts.
    pub max_output_tokens: Option<u64>,
    /// The maximum cost in US dollars.
    pub max_cost: Option<f64>,
}

/// A text that was added to a list of rules but is not a valid rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InvalidRule {
    /// The list: `allow`, `deny` or `ask`.
    list: String,
    error: RuleError,
}

impl InvalidRule {
    fn new(list: &str, error: impl Into<RuleError>) -> Self {
        Self { list: list.to_owned(), error: error.into() }
    }
}

#[cfg(test)]
mod tests;
