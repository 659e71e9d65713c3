//! What a caller wants of a run: the keys of the contract, typed. Whether an agent can do it is asked later, in `plan`.

use crate::{CacheWish, Notice, Problems, Surface, config::redacted};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// One prompt for one agent, with everything that the contract lets a caller say about it.
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
    /// What the agent is asked to do.
    pub prompt: String,
    /// Agent id or one of its aliases.
    pub agent: String,
    /// `None`: the best surface that can do what was asked.
    pub surface: Option<Surface>,
    /// Model id, as the agent spells it.
    pub model: Option<String>,
    /// The workspace; `None` is the current directory of the caller.
    pub working_dir: Option<PathBuf>,
    /// The agent is told to read this file.
    pub prompt_file: Option<PathBuf>,
    /// Files sent with the prompt, where the surface can.
    pub attachments: Vec<PathBuf>,
    /// Instructions of the caller.
    pub system_prompt: Option<String>,
    /// Whether `system_prompt` comes on top of the agent's own or replaces it.
    pub system_mode: SystemMode,
    /// The caller's name for this prompt, echoed in events, errors and outcome.
    pub name: Option<String>,
    /// What the agent may do without asking.
    pub permission_mode: PermissionMode,
    /// Rules that permit, on top of the mode.
    pub allow: Vec<String>,
    /// Rules that refuse, on top of the mode.
    pub deny: Vec<String>,
    /// Rules for what is asked of the host, on top of the mode.
    pub ask: Vec<String>,
    /// Folders outside the workspace that tools may use.
    pub include_directories: Vec<PathBuf>,
    /// The agent's own sandbox.
    pub sandbox: Sandbox,
    /// MCP servers for this run, by name.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// A settings file of the agent whose MCP servers are added.
    pub mcp_settings_path: Option<PathBuf>,
    /// JSON Schema file: the answer must be a value of it.
    pub output_schema: Option<PathBuf>,
    /// A session id or `latest`.
    pub resume: Option<String>,
    /// The id that a new session shall have.
    pub session_id: Option<String>,
    /// Whole run.
    pub timeout: Duration,
    /// Silence with nothing pending.
    pub idle_timeout: Duration,
    /// Silence while a tool runs.
    pub tool_timeout: Duration,
    /// Until the agent first answers.
    pub startup_timeout: Duration,
    /// How long an agent may go on retrying a refused request.
    pub retry_patience: Duration,
    /// Silence after the answer before a turn is over, over ACP; `None`: what suits the agent.
    pub quiet_period: Option<Duration>,
    /// Hard limits.
    pub limits: Limits,
    /// Variables added to the agent's environment.
    pub env: BTreeMap<String, String>,
    /// Names of the caller's variables that the agent sees too; `*` is all.
    pub pass_env: Vec<String>,
    /// How far the workspace is trusted.
    pub trust: Trust,
    /// Words like `@file` in the prompt are resolved by the agent instead of being sent as they stand.
    pub file_references: bool,
    /// Which of the agent's extensions are loaded; `None`: as the user set up.
    pub extensions: Option<Vec<String>>,
    /// Key for the agent's service; redacted everywhere.
    pub api_key: Option<String>,
    /// Cloud project for sign-in by Vertex AI.
    pub google_cloud_project: Option<String>,
    /// Sign in by Vertex AI.
    pub use_vertex_ai: Option<bool>,
    /// Whether a model outside the agent's own list is a warning or an error.
    pub model_validation: ModelValidation,
    /// Seconds since 1970, with fractions, at which the run must be over whatever it waits for.
    pub deadline: Option<f64>,
    /// A command that must succeed before the run is over; while it fails the agent is sent on.
    pub until: Option<String>,
    /// How often the agent is sent on at most.
    pub max_rounds: u32,
    /// How often the agent may mend a value that does not fit the schema.
    pub repair_turns: u32,
    /// The JSON value in the answer is what the run is for: it is found, and an answer without one is invalid.
    pub extract_json: bool,
    /// Arguments of the agent's program over ACP, instead of those that we know.
    pub agent_args: Option<Vec<String>>,
    /// The agent's own mode, set when a session is opened over ACP.
    pub mode_id: Option<String>,
    /// Reasoning is shown beside the answer.
    pub emit_thoughts: bool,
    /// The agent may ask us to read files in the workspace, over ACP.
    pub allow_file_reads: bool,
    /// The agent may ask us to write files in the workspace, over ACP.
    pub allow_file_writes: bool,
    /// The agent's way of signing in that is asked for over ACP; it may change the user's settings.
    pub authenticate: Option<String>,
    /// The profile of the agent's sandbox on macOS.
    pub sandbox_profile: Option<String>,
    /// What the caller wants needs an agent that stays alive: hosted tools, somebody to be asked, several prompts.
    #[serde(skip)]
    pub needs_live: bool,
    /// Tools of the calling program, as `mcp__server__tool`; they need no permission in any mode.
    #[serde(skip)]
    pub own_tools: Vec<String>,
    /// The run gets an empty workspace of its own, which is removed afterwards.
    pub temporary_workspace: bool,
    /// The tape of the run is written here.
    pub record: Option<PathBuf>,
    /// Lines longer than this many bytes are reported as unreadable.
    pub max_line_bytes: usize,
    /// Whether an outcome that is known already does as well.
    pub cache: CacheWish,
    /// Warnings about the settings that this request came from; the outcome repeats them.
    #[serde(skip)]
    pub notices: Vec<Notice>,
}

impl RunRequest {
    /// A run of the default agent with the defaults of the contract.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }

    /// A run with the defaults that a name such as `gemini_acp` stands for.
    ///
    /// ```
    /// use agentline_core::{PermissionMode, RunRequest, Surface};
    /// let request = RunRequest::preset("gemini_acp", "fix the failing test")?;
    /// assert_eq!((request.surface, request.permission_mode), (Some(Surface::Acp), PermissionMode::Auto));
    /// # Ok::<(), agentline_core::Problems>(())
    /// ```
    ///
    /// # Errors
    /// The name is not that of an agent.
    pub fn preset(name: &str, prompt: impl Into<String>) -> Result<Self, Problems> {
        crate::agents::find(name)?;
        let map = serde_json::Map::from_iter([("agent".to_owned(), name.into())]);
        Ok(Self { prompt: prompt.into(), ..crate::Config::from_map(map)?.request })
    }

    /// Checks what can be checked without knowing the agent.
    ///
    /// # Errors
    /// All problems together: an empty prompt, one with NUL, clocks of zero, a prompt and a prompt file at once.
    pub fn check(&self) -> Result<(), Problems> {
        crate::plan::check(self)
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
            quiet_period: None,
            limits: Limits::default(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            trust: Trust::Run,
            file_references: false,
            extensions: None,
            api_key: None,
            google_cloud_project: None,
            use_vertex_ai: None,
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
            temporary_workspace: false,
            record: None,
            max_line_bytes: 256 << 20,
            cache: CacheWish::default(),
            notices: Vec::new(),
        }
    }
}

/// Setters that take what is set; each returns the request, so that calls chain.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident : $from:ty => |$value:ident| $into:expr;)*) => {
        impl RunRequest { $($(#[$doc])* #[must_use] pub fn $name(mut self, $value: $from) -> Self { self.$name = $into; self })* }
    };
}
setters! {
    /// Which agent, by id or alias.
    agent: impl Into<String> => |v| v.into();
    /// Which surface; without it the best one is chosen.
    surface: Surface => |v| Some(v);
    /// Which model.
    model: impl Into<String> => |v| Some(v.into());
    /// The workspace.
    working_dir: impl Into<PathBuf> => |v| Some(v.into());
    /// The file that holds the prompt.
    prompt_file: impl Into<PathBuf> => |v| Some(v.into());
    /// Instructions of the caller.
    system_prompt: impl Into<String> => |v| Some(v.into());
    /// On top of the agent's own instructions, or instead of them.
    system_mode: SystemMode => |v| v;
    /// The caller's name for this prompt.
    name: impl Into<String> => |v| Some(v.into());
    /// What the agent may do without asking.
    permission_mode: PermissionMode => |v| v;
    /// The agent's own sandbox.
    sandbox: Sandbox => |v| v;
    /// A session to go on with: its id, or `latest`.
    resume: impl Into<String> => |v| Some(v.into());
    /// The id that a new session shall have.
    session_id: impl Into<String> => |v| Some(v.into());
    /// Clock of the whole run.
    timeout: Duration => |v| v;
    /// Clock of silence with nothing pending.
    idle_timeout: Duration => |v| v;
    /// Clock of silence while a tool runs.
    tool_timeout: Duration => |v| v;
    /// Clock until the agent first answers.
    startup_timeout: Duration => |v| v;
    /// How long an agent may go on retrying.
    retry_patience: Duration => |v| v;
    /// Silence after the answer before a turn is over, over ACP.
    quiet_period: Duration => |v| Some(v);
    /// Hard limits.
    limits: Limits => |v| v;
    /// How far the workspace is trusted.
    trust: Trust => |v| v;
    /// Lets the agent resolve `@file` words.
    file_references: bool => |v| v;
    /// Key for the agent's service.
    api_key: impl Into<String> => |v| Some(v.into());
    /// What a model outside the agent's own list means.
    model_validation: ModelValidation => |v| v;
    /// A command that must succeed before the run is over.
    until: impl Into<String> => |v| Some(v.into());
    /// How often the agent is sent on at most.
    max_rounds: u32 => |v| v;
    /// How often the agent may mend a value that does not fit the schema.
    repair_turns: u32 => |v| v;
    /// The agent's own mode, over ACP.
    mode_id: impl Into<String> => |v| Some(v.into());
    /// Lets the agent ask us to read files in the workspace, over ACP.
    allow_file_reads: bool => |v| v;
    /// Lets the agent ask us to write files in the workspace, over ACP.
    allow_file_writes: bool => |v| v;
    /// An empty workspace of the run's own, removed afterwards.
    temporary_workspace: bool => |v| v;
    /// Says that the caller brings what only a live conversation can do.
    needs_live: bool => |v| v;
    /// Writes the tape here.
    record: impl Into<PathBuf> => |v| Some(v.into());
    /// Whether an outcome that is known already does as well.
    cache: CacheWish => |v| v;
}

impl RunRequest {
    /// Adds a rule that permits.
    #[must_use]
    pub fn allow(mut self, rule: impl Into<String>) -> Self {
        self.allow.push(rule.into());
        self
    }

    /// Adds a rule that refuses.
    #[must_use]
    pub fn deny(mut self, rule: impl Into<String>) -> Self {
        self.deny.push(rule.into());
        self
    }

    /// Adds a rule for what is asked of the host.
    #[must_use]
    pub fn ask(mut self, rule: impl Into<String>) -> Self {
        self.ask.push(rule.into());
        self
    }

    /// Adds a folder outside the workspace.
    #[must_use]
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_directories.push(dir.into());
        self
    }

    /// Adds a variable to the agent's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Lets one more variable of the caller through to the agent.
    #[must_use]
    pub fn pass_env(mut self, name: impl Into<String>) -> Self {
        self.pass_env.push(name.into());
        self
    }

    /// Adds an MCP server.
    #[must_use]
    pub fn mcp_server(mut self, name: impl Into<String>, server: McpServer) -> Self {
        self.mcp_servers.insert(name.into(), server);
        self
    }
}

/// A request ends in logs sooner or later, so its secrets are not shown.
impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_without_secrets(self, f)
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_without_secrets(self, f)
    }
}

fn debug_without_secrets(value: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown = serde_json::to_value(value).map(|value| redacted("", value)).unwrap_or_default();
    f.write_str(&shown.to_string())
}

/// Whether the caller's instructions come on top of the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SystemMode {
    /// On top; put before the prompt with a blank line where the agent has no such flag.
    #[default]
    Append,
    /// Instead of the agent's own.
    Replace,
}

/// What the agent may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PermissionMode {
    /// What would have to be asked is refused where nobody can be asked.
    #[default]
    Default,
    /// Edits in the workspace are permitted.
    AcceptEdits,
    /// Everything is permitted.
    Bypass,
    /// Only reading and planning.
    Plan,
    /// Whatever the agent asks for is permitted, once each time.
    Auto,
    /// Whatever the agent asks for is refused.
    Deny,
    /// Whatever the agent asks for is asked of the user on a terminal, and refused where there is none.
    Prompt,
}

impl PermissionMode {
    /// The words of the contract, in its order.
    pub const NAMES: &[&str] = &["default", "accept-edits", "bypass", "plan", "auto", "deny", "prompt"];

    /// The word of the contract.
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

    /// Returns whether everything that this mode permits is permitted by the other one too, and not the other way round.
    ///
    /// `plan` and `deny` are the strictest; `default`, `accept-edits`, `auto` and `bypass` permit more and more. `prompt`
    /// is only stricter than `auto` and `bypass`: the user may permit what `default` and `accept-edits` refuse. Modes that
    /// cannot be compared (`plan` and `deny`, `prompt` and `default`) are not stricter than each other.
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

    /// Reads the contract's word or one of the accepted others: Claude's, Gemini's, and the ACP adapter's `auto`,
    /// `deny` and `prompt`.
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

/// What a model outside the agent's own list means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelValidation {
    /// A warning: agents run models that they do not list.
    #[default]
    Warn,
    /// The run fails before anything is asked of the model.
    Strict,
}

/// The agent's own sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Sandbox {
    /// None.
    #[default]
    Off,
    /// Whichever the agent finds.
    On,
    /// This one: `docker`, `podman`, `sandbox-exec`.
    By(String),
}

/// An MCP server that the agent is given for one run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum McpServer {
    /// A program that speaks on its standard input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Variables added to its environment.
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// A server reached over HTTP.
    Url {
        /// Its address.
        url: String,
        /// Headers sent with each request; their values are secrets.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
}

/// How far the workspace is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trust {
    /// The agent may work here, but the workspace's own settings, hooks and MCP servers are not loaded.
    #[default]
    Run,
    /// They are loaded; a hostile repository can then run commands.
    Full,
    /// Neither: the verdict is `untrusted` where the agent insists.
    No,
}

/// Limits that stop a run; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// Turns of the model.
    pub max_turns: Option<u32>,
    /// Calls of tools.
    pub max_tool_calls: Option<u32>,
    /// Tokens in all.
    pub max_tokens: Option<u64>,
    /// Tokens of the answers, thoughts included.
    pub max_output_tokens: Option<u64>,
    /// US dollars.
    pub max_cost: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_in_the_debug_text() {
        let server = McpServer::Url {
            url: "https://u:hunter2hunter2@mcp.test/?token=hunter2hunter2".into(),
            headers: [("X-Anything".to_owned(), "hunter2hunter2".to_owned())].into(),
        };
        let mut request =
            RunRequest::new("hello").api_key("hunter2hunter2").env("MY_TOKEN", "hunter2hunter2");
        request = request.mcp_server("docs", server.clone());
        for text in [format!("{request:?}"), format!("{server:?}")] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(format!("{request:?}").contains("hello"));
    }
}
