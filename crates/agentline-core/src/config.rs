//! The settings of a run and their origins. Merges layers into one checked configuration.
//!
//! From lowest to highest, the layers are: the built-in `default.toml`, the user's file, `agentline.toml` of the
//! workspace, the environment, the flags. A higher layer wins, whichever name of a key it uses. Tables (`env`,
//! `mcp_servers`, `agents`, `prices`) are merged entry by entry. The caller finds and reads the files.

mod check;
mod docs;
mod findings;
mod key_style;
mod keys;
mod layer;
mod parse;
mod read;
mod show;
mod tables;
mod untrusted;

impl RunRequest {
    /// Creates a request with the defaults of a preset name such as `gemini_acp`.
    ///
    /// ```
    /// use agentline_core::{PermissionMode, RunRequest, Surface};
    /// let request = RunRequest::preset("gemini_acp", "fix the failing test")?;
    /// assert_eq!((request.surface, request.permission_mode), (Some(Surface::Acp), PermissionMode::Auto));
    /// # Ok::<(), agentline_core::Problems>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a problem if no agent has this name.
    pub fn preset(name: &str, prompt: impl Into<String>) -> Result<Self, Problems> {
        agents::find(name)?;
        let map = serde_json::Map::from_iter([("agent".to_owned(), name.into())]);
        Ok(Self { prompt: prompt.into(), ..Config::from_map(map)?.request })
    }
}

#[cfg(test)]
mod tests;

use crate::{
    Isolation, Notice, PermissionMode, PriceTable, Problem, Problems, RunRequest, Trust, agents,
    naming::snake_case, nearest,
};
use check::{SettingValue, disagreement};
use findings::Findings;
use keys::KeyPath;
use layer::LayerKind;
use serde_json::{Map, Value};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::OnceLock,
};
use untrusted::UntrustedReport;

pub use crate::config::parse::{parse_duration, parse_env, parse_mcp, show_duration};
pub use docs::key_table;
pub use findings::{UnknownKeys, one_line};
pub use key_style::{KeyStyle, keys_for_flags};
pub use keys::{ConfigKey, UntrustedUse, find, keys};
pub use layer::Layer;

pub use crate::agent_settings::AgentSettings;
pub use show::ConfigRow;
pub use untrusted::WORKSPACE_CONFIG;

/// The default settings as commented TOML, which can be shown unchanged. A test compares `RunRequest::default` with it.
pub const DEFAULTS: &str = include_str!("config/default.toml");

/// The maximum number of unknown keys reported per layer.
const MAX_UNKNOWN: usize = 20;

/// The name of the built-in layer.
const BUILT_IN: &str = "default";

/// The checked settings of all layers.
///
/// ```
/// use agentline_core::{Config, Layer};
/// let file = Layer::file("agentline.toml", "model = 'gemini-2.5-pro'\ntimeout = '5m'");
/// let environment = Layer::environment([("AGENTLINE_TIMEOUT", "90")]);
/// let config = Config::build(&[file, environment])?;
/// assert_eq!(config.request.timeout.as_secs(), 90);
/// assert_eq!(config.origins["model"], "agentline.toml");
/// # Ok::<(), agentline_core::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The default request of a run.
    pub request: RunRequest,
    /// The settings of individual agents, by id.
    pub agents: BTreeMap<String, AgentSettings>,
    /// The token prices of the layers; see [`Config::prices`].
    pub(crate) prices: PriceTable,
    /// A file with more prices, which the caller reads and passes as [`Layer::prices`].
    pub prices_file: Option<PathBuf>,
    /// The program that ends an agent's processes when the host process dies.
    pub supervisor: Option<PathBuf>,
    /// Whether agents run in their own pid namespace.
    pub isolation: Isolation,
    /// Non-fatal findings: unknown keys, keys that are not allowed in their layer, and keys without effect.
    pub notices: Vec<Notice>,
    /// The layer that each setting comes from, by key. Entries of tables have their own keys (`env.NODE_ENV`).
    pub origins: BTreeMap<String, String>,
    /// The program of the run's agent. It moves into `agents` after all layers are read.
    agent_bin: Option<PathBuf>,
    /// The names of the layers that are files.
    files: BTreeSet<String>,
}

impl Config {
    /// Merges the layers, given lowest first, on top of the built-in one.
    ///
    /// # Errors
    /// Returns the problems of all layers together.
    pub fn build(layers: &[Layer]) -> Result<Self, Problems> {
        let config = Self::build_on(&[], layers)?;
        // An agent's name may imply a set of defaults, which rank below all other layers.
        let name = agents::split_version(&config.request.agent).0.to_owned();
        let Some(preset) = agents::find(&name).ok().and_then(|agent| agent.preset(&name)) else {
            return Ok(config);
        };
        let mut preset = Layer::file(name, preset);
        // A workspace that chooses the name gets no more than if its own file contained these defaults.
        let chosen_by = config.origins.get("agent");
        preset.is_of_workspace =
            layers.iter().any(|layer| layer.is_of_workspace && Some(&layer.name) == chosen_by);
        Self::build_on(&[preset], layers)
    }

    /// Merges the layers on top of the built-in one and the preset.
    fn build_on(preset: &[Layer], layers: &[Layer]) -> Result<Self, Problems> {
        let mut config = Self::built_in().clone();
        let mut findings = Findings::default();
        let has_workspace = preset.iter().chain(layers).any(|layer| layer.is_of_workspace);
        let is_trusted = has_workspace && trusts_workspace(layers);
        let mut reports = Vec::new();
        let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
        for (rank, layer) in (1..).zip(preset.iter().chain(layers)) {
            let mut report = UntrustedReport::new(layer);
            let untrusted = (layer.is_of_workspace && !is_trusted).then_some(&mut report);
            for setting in config.apply_layer(layer, untrusted, &mut findings) {
                config.origins.insert(setting.clone(), layer.name.clone());
                ranks.insert(setting, rank);
            }
            reports.push(report);
        }
        let user_denies = !config.request.deny.is_empty();
        for report in &mut reports {
            report.add_rules(&mut config, user_denies);
        }
        config.files =
            layers.iter().filter(|layer| layer.is_file()).map(|layer| layer.name.clone()).collect();
        config.settle_agent_bin(&ranks, &mut findings);
        config.notices = reports.iter().filter_map(|report| report.notice(&config)).collect();
        config.notices.append(&mut findings.notices);
        if config.origins.get("trust").is_some_and(|origin| origin == BUILT_IN) {
            config.notices.extend(findings.trust_lost);
        }
        config.notices.extend(config.without_effect());
        if !findings.problems.is_empty() {
            findings.problems.extend(config.other_problems(layers));
        }
        Problems(findings.problems).into_result().map(|()| config)
    }

    /// Returns the problems of the valid settings, so that they are reported together with the invalid ones.
    fn other_problems(&self, layers: &[Layer]) -> Vec<Problem> {
        let mut problems = self.request.check().err().unwrap_or_default().0;
        // The command line has the prompt apart from the settings. A program may register agents of its own.
        problems.retain(|problem| problem.key != "prompt");
        if layers.iter().any(|layer| layer.kind == LayerKind::Flags) {
            problems.extend(agents::AgentRegistry::of(&self.agents).find(&self.request.agent).err());
        }
        self.request.as_written(problems)
    }

    /// Returns the built-in layer, which is parsed only once because a program may start thousands of runs.
    fn built_in() -> &'static Self {
        static READ: OnceLock<Config> = OnceLock::new();
        READ.get_or_init(|| {
            let mut config = Self::blank();
            // The built-in text is known to be valid; a test checks it.
            let settings =
                config.apply_layer(&Layer::file(BUILT_IN, DEFAULTS), None, &mut Findings::default());
            config.origins = settings.into_iter().map(|name| (name, BUILT_IN.to_owned())).collect();
            config
        })
    }

    /// Returns the token prices: those of the layers, and the built-in ones of all other models.
    #[must_use]
    pub fn prices(&self) -> PriceTable {
        let mut prices = PriceTable::built_in();
        prices.overlay(&self.prices);
        prices
    }

    /// Returns whether a setting comes from a file and therefore ranks below the environment.
    #[must_use]
    pub fn is_from_file(&self, setting: &str) -> bool {
        self.origins.get(setting).is_some_and(|layer| self.files.contains(layer))
    }

    /// Returns whether the run has full trust because of `agentline trust` rather than a setting of a layer.
    #[must_use]
    pub fn is_trust_stored(&self) -> bool {
        self.request.trust == Trust::Full
            && self.origins.get("trust").is_some_and(|origin| origin == layer::STORED_TRUST)
    }

    /// Reads a configuration from a single map.
    ///
    /// # Errors
    /// Returns all problems of the map together.
    pub fn from_map(map: Map<String, Value>) -> Result<Self, Problems> {
        Self::build(&[Layer::map("configuration", map)])
    }

    /// Returns the configuration before any layer is read.
    fn blank() -> Self {
        Self {
            request: RunRequest::default(),
            agents: BTreeMap::new(),
            prices: PriceTable::default(),
            prices_file: None,
            supervisor: None,
            isolation: Isolation::Auto,
            notices: Vec::new(),
            origins: BTreeMap::new(),
            agent_bin: None,
            files: BTreeSet::new(),
        }
    }

    /// Merges one layer on top and returns the names of the settings it changed.
    ///
    /// With `untrusted`, the layer is not trusted: values it may not set are skipped and reported there.
    fn apply_layer(
        &mut self,
        layer: &Layer,
        mut untrusted: Option<&mut UntrustedReport>,
        findings: &mut Findings,
    ) -> Vec<String> {
        if let (Some(_), Some(notice)) = (&untrusted, &layer.unless_trusted) {
            findings.notices.push((**notice).clone());
            return Vec::new();
        }
        findings.unknown_keys = layer.unknown_keys;
        let opened = layer.open(findings);
        let mut values: BTreeMap<&str, (SettingValue<'_>, Value)> = BTreeMap::new();
        let mut settled = Vec::new();
        let mut not_yolo = None;
        let mut unknown = 0;
        for (spelled, value) in opened.table.iter().filter(|(_, value)| !value.is_null()) {
            let Some(key) = keys::find(spelled) else {
                unknown += 1;
                if unknown <= MAX_UNKNOWN {
                    unknown_key(spelled, layer, opened.lines.get(spelled), findings);
                }
                continue;
            };
            if let Some(report) = &mut untrusted
                && key.untrusted == UntrustedUse::Ignore
            {
                report.ignored(spelled);
                continue;
            }
            let is_loose = layer.kind == LayerKind::Environment;
            let (name, lines) = (spelled.clone(), &opened.lines);
            let setting = SettingValue { name, value, layer, lines, key: key.facts(), is_loose };
            let mut parsed = Self::blank();
            if snake_case(spelled) == "yolo" {
                match read::flag(&setting, findings) {
                    Some(true) => parsed.request.permission_mode = PermissionMode::Bypass,
                    Some(false) => not_yolo = Some((key, setting.clone())),
                    None => {}
                }
                if parsed.request.permission_mode != PermissionMode::Bypass {
                    continue;
                }
            } else if key.set(&mut parsed, &setting, findings).is_none() {
                continue;
            }
            let value = key.get(&parsed);
            match values.get(key.name) {
                Some((other, before)) if *before != value => {
                    findings.problems.push(disagreement(other, &setting))
                }
                _ => {
                    let is_settled = match &mut untrusted {
                        Some(report) => report.apply(self, key, spelled, &parsed),
                        None => {
                            key.merge(self, &parsed);
                            true
                        }
                    };
                    if is_settled {
                        self.request.written.record(key.name, &setting.label());
                    }
                    let names = show::leaves(key.name, &value, key.depth).into_iter().map(|(name, _)| name);
                    settled.extend(names.filter(|_| is_settled));
                    values.insert(key.name, (setting, value));
                }
            }
        }
        if unknown > MAX_UNKNOWN && layer.kind != LayerKind::Environment {
            let more = unknown - MAX_UNKNOWN;
            let message = format!("{more} more unknown keys are ignored (from {})", one_line(&layer.name));
            findings.notices.push(Notice::new("unknown_key", message));
        }
        if let Some((key, setting)) = not_yolo {
            let bypass = PermissionMode::Bypass;
            match values.get(key.name) {
                Some((other, value)) if value == bypass.name() => {
                    findings.problems.push(disagreement(&setting, other));
                }
                None if self.request.permission_mode == bypass => {
                    self.request.permission_mode = PermissionMode::Default;
                    settled.push(key.name.to_owned());
                    if let Some(report) = untrusted {
                        report.changed(key);
                    }
                }
                _ => {}
            }
        }
        settled
    }

    /// Returns notices for valid settings that have no effect: the command of an agent that agentline knows how to
    /// start.
    fn without_effect(&self) -> Vec<Notice> {
        let known = |id: &str| agents::find(id).is_ok();
        let idle = self.agents.iter().filter(|(id, settings)| settings.command.is_some() && known(id));
        idle.map(|(id, _)| {
            let name = format!("agents.{id}.command");
            let origin = self.origins.get(&name).map_or("configuration", String::as_str);
            let message =
                format!("`{name}` has no effect, because `{id}` is a built-in agent (from {origin}); set its `program` instead");
            Notice::new("no_effect", message)
        })
        .collect()
    }

    /// Assigns `agent_bin` to the agent of the run, unless a higher layer names that agent's program.
    fn settle_agent_bin(&mut self, ranks: &BTreeMap<String, usize>, findings: &mut Findings) {
        let Some(program) = self.agent_bin.take() else { return };
        let id = tables::agent_id(&self.request.agent);
        let name = format!("agents.{id}.program");
        let origin = self.origins.remove("agent_bin").unwrap_or_default();
        let settings = self.agents.entry(id).or_default();
        match ranks.get(&name).cmp(&ranks.get("agent_bin")) {
            Ordering::Greater => return,
            Ordering::Equal if settings.program.as_ref() != Some(&program) => findings.problems.push(
                Problem::new("agent_bin", format!("`agent_bin` and `{name}` have different values"))
                    .hint("remove one of them: both set the same option")
                    .source(origin.clone()),
            ),
            _ => {}
        }
        settings.program = Some(program);
        self.origins.insert(name, origin);
    }
}

/// Returns whether the user, and not the workspace itself, trusts the workspace in full.
fn trusts_workspace(layers: &[Layer]) -> bool {
    own_settings(layers, "trust").request.trust == Trust::Full
}

/// Returns the workspace chosen in these layers, as written. Files of the workspace are ignored.
#[must_use]
pub fn chosen_workspace(layers: &[Layer]) -> Option<PathBuf> {
    own_settings(layers, "working_dir").request.working_dir
}

/// Merges the layers that may have this setting and are not part of the workspace.
fn own_settings(layers: &[Layer], setting: &str) -> Config {
    let mut own = Config::blank();
    let is_wanted = |spelled: &str| keys::find(spelled).is_some_and(|key| key.name == setting);
    for layer in layers.iter().filter(|layer| !layer.is_of_workspace && layer.may_have(is_wanted)) {
        own.apply_layer(layer, None, &mut Findings::default());
    }
    own
}

/// Reports an unknown key. Variables that resemble no key are ignored, as they may belong to other programs.
fn unknown_key(spelled: &str, layer: &Layer, line: Option<&usize>, findings: &mut Findings) {
    let others = (layer.other_names)();
    let names = keys::names().into_iter().chain(others.iter().map(String::as_str));
    let suggestion = nearest(&snake_case(spelled), names);
    let source = line.map_or_else(|| layer.name.clone(), |line| format!("{}:{line}", layer.name));
    match (layer.kind, suggestion) {
        (LayerKind::Environment, None) => {}
        (LayerKind::Environment, Some(name)) => {
            let variable = |name: &str| format!("{}{}", layer::VARIABLES, name.to_uppercase());
            findings.unknown(&variable(spelled), &source, Some(variable(name)));
        }
        (_, suggestion) => findings.unknown(spelled, &source, suggestion.map(str::to_owned)),
    }
}
