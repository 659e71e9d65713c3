//! The table of settings: name, aliases, flag, kind, example, and the field that each one sets.

use super::{
    AgentSettings, Config,
    check::{KeyFacts, SettingValue},
    findings::Findings,
    layer::VARIABLES,
    read, tables,
};
use crate::config::parse::show_duration;
use crate::{
    AgentId, AgentOption, Isolation, McpServer, ModelValidation, OptionKind, PermissionMode, PriceTable,
    Rule, Sandbox, Surface, SystemMode, Trust, agents, naming::snake_case, time,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    path::PathBuf,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

/// One setting.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ConfigKey {
    /// The name in files and maps; its `camelCase` form is accepted too.
    pub name: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// The long flag, if it has one.
    pub flag: Option<&'static str>,
    /// A one-sentence description.
    pub doc: &'static str,
    /// An example value, as TOML.
    pub example: &'static str,
    /// Whether only the ACP surface uses the setting.
    pub is_for_acp: bool,
    /// The treatment of the key in the `agentline.toml` of a workspace that the user does not fully trust.
    pub untrusted: UntrustedUse,
    /// Whether problems hide its values.
    pub(super) is_secret: bool,
    /// How deep layers merge the entries of a table. Below this depth, a later layer replaces the whole entry.
    pub(super) depth: usize,
    kind: &'static str,
    storage: Storage,
}

/// Where a configuration stores the value of a setting.
#[derive(Clone, Copy)]
enum Storage {
    /// A field.
    Field {
        set: fn(&mut Config, &SettingValue<'_>, &mut Findings) -> Option<()>,
        get: fn(&Config) -> Value,
        merge: fn(&mut Config, &Config),
        restrict: fn(&mut Config, &Config) -> Restriction,
    },
    /// The options of an agent.
    Option(OptionKind),
}

/// The treatment of a key in the `agentline.toml` of a workspace that the user does not fully trust.
///
/// New keys are ignored there unless their row in the table of keys says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UntrustedUse {
    /// The key is ignored without being parsed.
    #[default]
    Ignore,
    /// The key is applied as in any other file.
    Accept,
    /// The key is applied if it lowers the value of the layers below, where no value means no limit.
    Lower,
    /// The rules are added to those of all other layers and replace none.
    Add,
    /// The key is applied if it is stricter than the value of the layers below.
    Stricter,
}

impl UntrustedUse {
    /// Returns the label for the documentation; empty for a key that is ignored.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Ignore => "",
            Self::Accept => "accepted",
            Self::Lower => "only lower",
            Self::Add => "added",
            Self::Stricter => "only stricter",
        }
    }
}

/// The result of applying a value that may only restrict another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restriction {
    /// The new value is more restrictive, and replaced the previous one or was added to it.
    Applied,
    /// The new value equals the previous one.
    Unchanged,
    /// The new value would have allowed more.
    Refused,
}

impl Restriction {
    /// Replaces a value if the new one is lower.
    fn lower<T: PartialOrd + Clone>(value: &mut T, by: &T) -> Self {
        match by.partial_cmp(value) {
            Some(Ordering::Less) => {
                value.clone_from(by);
                Self::Applied
            }
            Some(Ordering::Equal) => Self::Unchanged,
            _ => Self::Refused,
        }
    }

    /// Replaces a limit if the new one is lower, where `None` means no limit.
    fn lower_limit<T: PartialOrd + Clone>(value: &mut Option<T>, by: &Option<T>) -> Self {
        match (value.as_mut(), by) {
            (Some(value), Some(by)) => Self::lower(value, by),
            (None, Some(_)) => {
                value.clone_from(by);
                Self::Applied
            }
            (None, None) => Self::Unchanged,
            (Some(_), None) => Self::Refused,
        }
    }
}

impl ConfigKey {
    /// Returns the name of the environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{VARIABLES}{}", self.name.to_uppercase())
    }

    /// Creates the setting of an agent's option.
    fn of_option(option: &AgentOption) -> Self {
        let AgentOption { name, aliases, kind, example, doc, flag } = *option;
        let reader = match kind {
            OptionKind::Text => "word",
            OptionKind::List => "words",
            OptionKind::Flag => "flag",
        };
        Self { name, aliases, flag, example, doc, kind: reader, storage: Storage::Option(kind), ..PLAIN }
    }

    /// Returns how messages about its values refer to the key.
    pub(super) fn facts(&self) -> KeyFacts {
        let Self { name, flag, example, is_secret, .. } = *self;
        KeyFacts { name, flag, example, is_secret }
    }

    /// Sets the given value, or records a problem and returns `None`.
    pub(super) fn set(
        &self,
        config: &mut Config,
        setting: &SettingValue<'_>,
        findings: &mut Findings,
    ) -> Option<()> {
        let value = match self.storage {
            Storage::Field { set, .. } => return set(config, setting, findings),
            Storage::Option(OptionKind::Text) => read::word(setting, findings)?.into(),
            Storage::Option(OptionKind::List) => read::words(setting, findings)?.into(),
            Storage::Option(OptionKind::Flag) => read::flag(setting, findings)?.into(),
        };
        config.request.agent_options.insert(self.name.to_owned(), value);
        Some(())
    }

    /// Returns the value of a configuration.
    pub(super) fn get(&self, config: &Config) -> Value {
        match self.storage {
            Storage::Field { get, .. } => get(config),
            Storage::Option(_) => config.request.agent_options.get(self.name).cloned().unwrap_or_default(),
        }
    }

    /// Overrides the value of a configuration with that of a higher layer.
    pub(super) fn merge(&self, below: &mut Config, above: &Config) {
        match self.storage {
            Storage::Field { merge, .. } => merge(below, above),
            Storage::Option(_) => {
                let set = above.request.agent_options.get(self.name).cloned();
                below.request.agent_options.extend(set.map(|value| (self.name.to_owned(), value)));
            }
        }
    }

    /// Applies the value of an untrusted layer if it restricts that of a configuration.
    pub(super) fn restrict(&self, below: &mut Config, by: &Config) -> Restriction {
        match self.storage {
            Storage::Field { restrict, .. } => restrict(below, by),
            Storage::Option(_) => Restriction::Refused,
        }
    }

    /// Describes the accepted values.
    #[must_use]
    pub fn takes(&self) -> &'static str {
        read::KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("text", |(_, description)| description)
    }
}

impl fmt::Debug for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Finds a key by any of its names in any spelling.
#[must_use]
pub fn find(name: &str) -> Option<&'static ConfigKey> {
    static BY_NAME: LazyLock<HashMap<Cow<'static, str>, &ConfigKey>> = LazyLock::new(|| {
        let named = |key: &'static ConfigKey| {
            key.aliases.iter().copied().chain([key.name]).map(move |name| (snake_case(name), key))
        };
        keys().iter().flat_map(named).collect()
    });
    BY_NAME.get(&*snake_case(name)).copied()
}

/// Returns all accepted names.
pub(super) fn names() -> Vec<&'static str> {
    keys().iter().flat_map(|key| [key.name].into_iter().chain(key.aliases.iter().copied())).collect()
}

/// A type that a setting can have: how it is shown, and how a value of a higher layer overrides a lower one.
pub(super) trait KeyPath: Clone + Serialize {
    fn show(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn overlay(&mut self, above: &Self) {
        *self = above.clone();
    }
    /// Applies a value of an untrusted layer if it restricts this one. Types without an order refuse every value.
    fn restrict(&mut self, by: &Self) -> Restriction {
        let _ = by;
        Restriction::Refused
    }
}

impl KeyPath for String {}
impl KeyPath for AgentId {}
impl KeyPath for bool {}
impl KeyPath for usize {}
impl KeyPath for Option<String> {}
impl KeyPath for Option<PathBuf> {}
impl KeyPath for Option<bool> {}
impl KeyPath for Option<Vec<String>> {}
impl KeyPath for Vec<PathBuf> {}
impl KeyPath for Vec<String> {}
impl KeyPath for SystemMode {}
impl KeyPath for ModelValidation {}
impl KeyPath for Trust {}
impl KeyPath for Isolation {}

impl KeyPath for u32 {
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower(self, by)
    }
}

impl KeyPath for Option<u32> {
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower_limit(self, by)
    }
}

impl KeyPath for Option<u64> {
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower_limit(self, by)
    }
}

impl KeyPath for Option<SystemTime> {
    fn show(&self) -> Value {
        self.map(time::seconds).into()
    }
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower_limit(self, by)
    }
}

impl KeyPath for Option<f64> {
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower_limit(self, by)
    }
}

/// For lists of rules, restricting means adding rules.
impl KeyPath for Vec<Rule> {
    fn restrict(&mut self, by: &Self) -> Restriction {
        let mut known: HashSet<&str> = self.iter().map(Rule::as_str).collect();
        let new: Self = by.iter().filter(|rule| known.insert(rule.as_str())).cloned().collect();
        if new.is_empty() {
            return Restriction::Unchanged;
        }
        self.extend(new);
        Restriction::Applied
    }
}

impl KeyPath for PermissionMode {
    fn restrict(&mut self, by: &Self) -> Restriction {
        if self == by {
            return Restriction::Unchanged;
        }
        if !by.is_stricter_than(*self) {
            return Restriction::Refused;
        }
        *self = *by;
        Restriction::Applied
    }
}
impl KeyPath for Duration {
    fn show(&self) -> Value {
        show_duration(*self).into()
    }
    fn restrict(&mut self, by: &Self) -> Restriction {
        Restriction::lower(self, by)
    }
}

impl KeyPath for Option<Duration> {
    fn show(&self) -> Value {
        self.map_or(Value::Null, |time| time.show())
    }
}

impl KeyPath for Option<Surface> {
    fn show(&self) -> Value {
        self.map_or("auto", Surface::name).into()
    }
}

impl KeyPath for Sandbox {
    fn show(&self) -> Value {
        match self {
            Self::Off => false.into(),
            Self::On => true.into(),
            Self::By(maker) => maker.as_str().into(),
        }
    }
}

impl KeyPath for BTreeMap<String, String> {
    fn overlay(&mut self, above: &Self) {
        self.extend(above.clone());
    }
}

impl KeyPath for BTreeMap<String, McpServer> {
    fn overlay(&mut self, above: &Self) {
        self.extend(above.clone());
    }
}

impl KeyPath for BTreeMap<String, AgentSettings> {
    fn overlay(&mut self, above: &Self) {
        for (id, settings) in above {
            self.entry(id.clone()).or_default().overlay(settings);
        }
    }
}

impl KeyPath for PriceTable {
    fn show(&self) -> Value {
        let mut shown = serde_json::json!({ "models": self.models });
        if !self.as_of.is_empty() {
            shown["as_of"] = self.as_of.as_str().into();
        }
        shown
    }
    fn overlay(&mut self, above: &Self) {
        *self = std::mem::take(self).with(above.models.clone());
        if !above.as_of.is_empty() {
            self.as_of.clone_from(&above.as_of);
        }
    }
}

/// Every setting, in the order of the documentation. The options of agents follow the settings for sign-in.
static KEYS: LazyLock<Vec<ConfigKey>> = LazyLock::new(|| {
    let of_agents = agents::options().map(ConfigKey::of_option);
    SETTINGS.iter().copied().chain(of_agents).chain(MORE_SETTINGS.iter().copied()).collect()
});

/// Returns every setting, in the order of the documentation.
#[must_use]
pub fn keys() -> &'static [ConfigKey] {
    &KEYS
}

/// Defines a table of settings. A row has the form
/// `name (aliases) Some("flag"), module::reader "example" => field { overrides } "doc";`, where `overrides` replaces
/// fields of `PLAIN`.
macro_rules! keys {
    ($table:ident: $($name:ident ($($alias:literal),*) $flag:expr, $from:ident::$reader:ident $example:literal
        => $($path:ident).+ { $($field:ident : $value:expr),* } $doc:literal;)*) => {
        static $table: &[ConfigKey] = &[$(ConfigKey {
            name: stringify!($name),
            aliases: &[$($alias),*],
            flag: $flag,
            doc: $doc,
            example: $example,
            kind: stringify!($reader),
            storage: Storage::Field {
                set: |config, setting, findings| {
                    config.$($path).+ = $from::$reader(setting, findings)?.into();
                    Some(())
                },
                get: |config| config.$($path).+.show(),
                merge: |below, above| below.$($path).+.overlay(&above.$($path).+),
                restrict: |below, by| below.$($path).+.restrict(&by.$($path).+),
            },
            ..ConfigKey { $($field: $value,)* ..PLAIN }
        }),*];
    };
}

/// The values that most rows share.
const PLAIN: ConfigKey = ConfigKey {
    name: "",
    aliases: &[],
    flag: None,
    doc: "",
    example: "",
    is_for_acp: false,
    untrusted: UntrustedUse::Ignore,
    is_secret: false,
    depth: 0,
    kind: "",
    storage: Storage::Option(OptionKind::Text),
};

keys! { SETTINGS:
    agent () Some("agent"), read::word r#""claude""# => request.agent { untrusted: UntrustedUse::Accept }
        "The agent, by id or alias.";
    surface () Some("surface"), read::surface r#""json""# => request.surface { untrusted: UntrustedUse::Accept }
        "The interface to the agent; `auto` selects the best one that supports the request.";
    model ("model_id") Some("model"), read::word r#""gemini-2.5-pro""# => request.model { untrusted: UntrustedUse::Accept }
        "The model, by the agent's own name for it.";
    model_validation () Some("model-validation"), read::validation r#""strict""# => request.model_validation {}
        "What happens if the model is not in the agent's own list: `warn` emits a warning, `strict` fails with `unknown_model` before the prompt is sent.";
    prompt () None, read::text r#""fix the failing test""# => request.prompt {}
        "The prompt; for programs.";
    prompt_file () Some("prompt-file"), read::path r#""prompt.md""# => request.prompt_file {}
        "A file with the prompt, which the agent is instructed to read.";
    attachments () Some("attach"), read::paths r#"["picture.png"]"# => request.attachments {}
        "Image, audio or text files sent with the prompt, if the surface supports them.";
    system_prompt () Some("system"), read::text r#""Answer in English.""# => request.system_prompt {}
        "Your instructions for the agent.";
    system_mode () Some("system-mode"), read::system_mode r#""replace""# => request.system_mode {}
        "Whether `system_prompt` is added to the agent's own instructions or replaces them.";
    name () Some("name"), read::word r#""case-17""# => request.name { untrusted: UntrustedUse::Accept }
        "A name for the prompt, repeated in events, errors and the outcome.";
    working_dir ("cwd") Some("cwd"), read::path r#""project""# => request.working_dir {}
        "The workspace; defaults to the current directory.";
    include_directories () Some("include-dir"), read::paths r#"["../shared"]"# => request.include_directories {}
        "Directories outside the workspace that tools may use.";
    permission_mode ("approval_mode", "yolo") Some("permission-mode"), read::mode r#""accept-edits""# => request.permission_mode { untrusted: UntrustedUse::Stricter }
        "What the agent may do without asking. Also accepted: `acceptEdits`, `bypassPermissions`, `auto_edit`, `yolo`, `suggest` (= `default`), `full_auto` (= `bypass`), and for permission requests on a live surface `auto` (allow each once), `deny`, `prompt` (ask on a terminal, otherwise deny). `yolo = true` means `bypass`.";
    allow ("allowed_tools") Some("allow"), read::rules r#"["Write(src/**)"]"# => request.allow {}
        "Rules that allow tool uses, in addition to the mode: by tool, path or command.";
    deny ("disable_tools") Some("deny"), read::rules r#"["Bash(rm *)"]"# => request.deny { untrusted: UntrustedUse::Add }
        "Rules that deny tool uses, in addition to the mode.";
    ask ("ask_tools") Some("ask"), read::rules r#"["Bash(git push*)"]"# => request.ask { untrusted: UntrustedUse::Add }
        "Rules for tool uses that need your approval, in addition to the mode; denied if you cannot be asked.";
    trust () Some("trust"), read::trust r#""full""# => request.trust {}
        "How far the workspace is trusted: with `run`, its own settings, hooks and MCP servers are not loaded and its `agentline.toml` may only choose and restrict; with `full`, all of them apply; with `no`, an agent that requires trust does not run there. If unset, `agentline trust` decides; see docs/security.md.";
    sandbox () Some("sandbox"), read::sandbox r#""docker""# => request.sandbox {}
        "The agent's own sandbox, or the program that provides it; `none` means `false`.";
    sandbox_profile () None, read::word r#""permissive-open""# => request.sandbox_profile {}
        "The profile of the agent's sandbox on macOS.";
    mcp_servers () Some("mcp"), tables::servers r#"{ docs = { url = "https://mcp.example.test/" } }"# => request.mcp_servers { is_secret: true, depth: 1 }
        "MCP servers for the run, by name: `{ url, headers }` or `{ command, args, env }`.";
    mcp_settings_path () None, read::path r#""mcp.json""# => request.mcp_settings_path {}
        "A settings file of the agent whose MCP servers are added.";
    output_schema () Some("schema"), read::path r#""answer.schema.json""# => request.output_schema {}
        "A JSON Schema file that the answer must match.";
    repair_turns () Some("repair-turns"), read::small_count "1" => request.repair_turns { untrusted: UntrustedUse::Lower }
        "How many times the agent may correct a value that does not match the schema.";
    extract_json () Some("extract-json"), read::flag "true" => request.extract_json {}
        "Extract the JSON value from the answer: in a fenced block, bare, or within other text. Without one, the run fails.";
    until () Some("until"), read::word r#""cargo test""# => request.until {}
        "A command that must succeed before the run ends; while it fails, the agent is re-prompted with its output.";
    max_rounds () Some("max-rounds"), read::small_count "3" => request.max_rounds { untrusted: UntrustedUse::Lower }
        "Maximum number of times that the agent is re-prompted.";
    resume () Some("resume"), read::word r#""latest""# => request.resume {}
        "The session to resume: its id, or `latest`.";
    session_id () Some("session-id"), read::word r#""7f1f2bd4-3a43-4b8e-9d0e-6a0f2f1f0c11""# => request.session_id {}
        "The id for a new session.";
    timeout ("timeout_ms") Some("timeout"), read::clock r#""20m""# => request.timeout { untrusted: UntrustedUse::Lower }
        "Maximum duration of the whole run.";
    idle_timeout ("idle_timeout_ms") Some("idle-timeout"), read::clock "45" => request.idle_timeout { untrusted: UntrustedUse::Lower }
        "Maximum time without activity while nothing is pending.";
    tool_timeout ("tool_timeout_ms") Some("tool-timeout"), read::clock r#""1h30m""# => request.tool_timeout { untrusted: UntrustedUse::Lower }
        "Maximum time without activity while a tool runs.";
    startup_timeout ("startup_timeout_s", "startup_timeout_ms") Some("startup-timeout"), read::clock "30" => request.startup_timeout { untrusted: UntrustedUse::Lower }
        "Maximum time until the agent's first response.";
    deadline () Some("deadline"), read::moment r#""2030-01-01T00:00:00Z""# => request.deadline { untrusted: UntrustedUse::Lower }
        "The point in time at which the run must end, whatever it is waiting for.";
    retry_patience ("retry_patience_ms") None, read::clock r#""2m""# => request.retry_patience { untrusted: UntrustedUse::Lower }
        "How long the agent may keep retrying a rejected request.";
    retries () Some("retries"), read::small_count "2" => request.retries {}
        "How many times the run is retried, on each model, after a retryable failure; defaults to 0. See docs/limits.md.";
    fallback_models () Some("fallback-model"), read::words r#"["gemini-2.5-flash"]"# => request.fallback_models {}
        "Models that are tried in order if the model's service refuses the run or all retries failed.";
    retry_after_changes () Some("retry-after-changes"), read::flag "true" => request.retry_after_changes {}
        "Also retry a run that has changed files. Otherwise only a run in a temporary workspace is retried after changes.";
    quiet_period_ms () Some("quiet-period"), read::pause "250" => request.quiet_period { is_for_acp: true }
        "Time without updates after the answer before a turn ends; defaults to 500, or to 0 for agents that send nothing after the answer.";
    max_turns () Some("max-turns"), read::small_count "20" => request.limits.max_turns { untrusted: UntrustedUse::Lower }
        "Maximum number of turns of the model.";
    max_tool_calls () Some("max-tool-calls"), read::small_count "50" => request.limits.max_tool_calls { untrusted: UntrustedUse::Lower }
        "Maximum number of tool calls.";
    max_tokens () Some("max-tokens"), read::count "200000" => request.limits.max_tokens { untrusted: UntrustedUse::Lower }
        "Maximum number of tokens in total.";
    max_output_tokens () Some("max-output-tokens"), read::count "8000" => request.limits.max_output_tokens { untrusted: UntrustedUse::Lower }
        "Maximum number of output tokens, including thoughts.";
    max_cost ("max_budget_usd") Some("max-cost"), read::dollars "0.50" => request.limits.max_cost { untrusted: UntrustedUse::Lower }
        "Maximum cost in US dollars.";
    env () Some("env"), tables::variables r#"{ NODE_ENV = "test" }"# => request.env { is_secret: true, depth: 1 }
        "Variables added to the agent's environment.";
    pass_env () Some("pass-env"), read::variable_names r#"["MY_PROXY"]"# => request.pass_env {}
        "Names of your environment variables that are passed on to the agent; `*` passes on all.";
    file_references () None, read::flag "true" => request.file_references {}
        "The agent resolves words like `@file` in the prompt; otherwise they are sent literally.";
    api_key ("apiKey") None, read::word r#""your-key""# => request.api_key { is_secret: true }
        "The API key for the agent's service; redacted everywhere.";
}

keys! { MORE_SETTINGS:
    diffs () Some("diffs"), read::flag "true" => request.diffs {}
        "Add a unified diff to each changed file of the outcome and to each `file_change`: at most 64 KiB for one file and 1 MiB for all.";
    record () Some("record"), read::path r#""run.tape.jsonl""# => request.record {}
        "Write a tape of the run to this file.";
    cache () Some("cache"), read::flag "true" => request.cache.on {}
        "Reuse the result of an identical earlier run on the same files; store this one. See docs/cache.md.";
    cache_impure () None, read::flag "true" => request.cache.impure {}
        "Also cache runs that use MCP servers, functions or permission handlers of a program, or the web.";
    cache_max_age () None, read::clock r#""7d""# => request.cache.max_age {}
        "Maximum age of a cached run; older ones are run again.";
    cache_path () None, read::path r#""eval-cache""# => request.cache.path {}
        "The cache directory, instead of the default one in agentline's cache directory.";
    cache_max_mb () None, read::count "500" => request.cache.max_mb {}
        "Maximum size of the cache directory in megabytes; defaults to 1024.";
    max_line_bytes () None, read::size "1048576" => request.max_line_bytes {}
        "Maximum length of a line of the agent's output; longer lines are reported as unreadable.";
    agents () None, tables::agents r#"{ gemini = { program = "/opt/gemini/bin/gemini" } }"# => agents { depth: 2 }
        "Settings of individual agents: `[agents.NAME]` with `program`, `env`, `surface` and `args` (the same as `agent_args`); with a `command`, any agent that supports ACP, with what is known about it (see docs/profiles.md).";
    prices () None, tables::prices r#"{ models = { "my-model" = { input = 1.0, output = 4.0 } } }"# => prices { depth: 2 }
        "US dollars per million tokens: `[prices.models.\"ID\"]` with `input`, `output`, `cached`, `cache_write`, `cache_write_long` and `long`; see docs/numbers.md.";
    prices_file () None, read::path r#""prices.toml""# => prices_file {}
        "A TOML file with your own prices, `[models.\"ID\"]`; entries in `prices` take precedence.";
    supervisor () None, tables::program r#""/opt/agentline/bin/agentline""# => supervisor {}
        "The program that ends the agent's processes if the calling process dies; for programs that use the library.";
    isolation () None, read::isolation r#""none""# => isolation {}
        "Whether the agent runs in its own PID namespace (Linux): `auto` for root only, `namespace` for every user, `none`; see docs/limits.md.";
    agent_bin () None, tables::program r#""/opt/gemini/bin/gemini""# => agent_bin {}
        "The program of the run's agent; a short form of `program` in `[agents.NAME]`.";
    agent_args () None, read::words r#"["--acp"]"# => request.agent_args { is_for_acp: true }
        "Arguments for the agent's program, instead of the built-in ones.";
    mode_id () None, read::word r#""plan""# => request.mode_id { is_for_acp: true }
        "The agent's own mode, set when a session is opened; takes precedence over `permission_mode`.";
    emit_thoughts ("emit_thought_chunks") Some("emit-thoughts"), read::flag "true" => request.emit_thoughts {}
        "Show reasoning in addition to the answer; the answer itself never contains it.";
    allow_file_reads () None, read::flag "true" => request.allow_file_reads { is_for_acp: true }
        "The agent may ask agentline to read files in the workspace.";
    allow_file_writes () None, read::flag "true" => request.allow_file_writes { is_for_acp: true }
        "The agent may ask agentline to write files in the workspace.";
    authenticate () None, read::word r#""gemini-api-key""# => request.authenticate { is_for_acp: true }
        "The sign-in method to request, by the agent's own id for it; by default none is requested.";
}
