//! The list of agents. All other modules look agents up by name.

use crate::{
    Agent, AgentDescription, AgentOption, AgentSettings, FileSystem, Problem, Redactor, Secrets,
    acp::profile::Quirks, nearest,
};
use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Arc, LazyLock},
};

mod adapter;
pub mod claude;
pub mod codex;
mod custom;
pub mod gemini;
mod line_reader;
pub mod opencode;
mod pins;
mod profiles;

pub use custom::CustomAgent;
pub(crate) use custom::configured_dialogue;
pub use pins::{Pin, Pins};
pub use profiles::{profile_names, profiled_agents};

/// The built-in agents.
static BUILT_IN: LazyLock<[Arc<dyn Agent>; 4]> = LazyLock::new(|| {
    [Arc::new(gemini::Gemini), Arc::new(claude::Claude), Arc::new(codex::Codex), Arc::new(opencode::OpenCode)]
});

/// Returns the built-in agents.
#[must_use]
pub fn built_in() -> Vec<Arc<dyn Agent>> {
    BUILT_IN.to_vec()
}

/// Returns the quirks of the built-in agent that introduces itself by a name, for agents that the user configured.
fn builtin_quirks(acp_name: &str) -> Option<Quirks> {
    (acp_name == opencode::acp::ACP_NAME).then_some(opencode::acp::QUIRKS)
}

/// Returns the total that a run reports after each line of a session file.
#[cfg(test)]
fn session_file_totals(
    lines: &[String],
    mut read: impl FnMut(crate::RunId, &str, &mut crate::Sink),
) -> Vec<Option<u64>> {
    let mut usage = crate::UsageTracker::default();
    let mut total = |line: &String| {
        let mut sink = crate::Sink::default();
        read(crate::RunId(1), line, &mut sink);
        for (_, item) in sink.items {
            if let crate::dialogue::SinkItem::Count(count) = item {
                usage.take(*count);
            }
        }
        usage.total().total
    };
    lines.iter().map(&mut total).collect()
}

/// Returns the options of the built-in agents, in the order of the documentation.
pub(crate) fn options() -> impl Iterator<Item = &'static AgentOption> {
    let options = || BUILT_IN.iter().flat_map(|agent| agent.options());
    // Several agents may have an option of the same name and meaning.
    let is_first = move |(at, option): &(usize, &'static AgentOption)| {
        options().position(|other| other.name == option.name) == Some(*at)
    };
    options().enumerate().filter(is_first).map(|(_, option)| option)
}

/// Returns the id of the built-in agent that has an option.
pub(crate) fn owner_of_option(name: &str) -> Option<&'static str> {
    let owner = BUILT_IN.iter().find(|agent| agent.options().iter().any(|option| option.name == name))?;
    Some(owner.info().id)
}

/// Finds a built-in agent by its id or one of its aliases.
///
/// # Errors
/// Returns a problem that lists the known names if the name is unknown.
pub fn find(name: &str) -> Result<Arc<dyn Agent>, Problem> {
    find_among(&*BUILT_IN, name)
}

/// The agents available to a caller: the built-in ones, those of its configuration, and those that it registers.
///
/// ```
/// use agentline_core::agents::{AgentRegistry, CustomAgent};
/// use std::sync::Arc;
///
/// let mut registry = AgentRegistry::default();
/// registry.register(Arc::new(CustomAgent::new("mine", ["my-agent", "--acp"]))).unwrap();
/// assert_eq!(registry.find("mine").unwrap().info().program, "my-agent");
/// let taken = CustomAgent::new("gemini", ["my-agent"]);
/// assert!(registry.register(Arc::new(taken)).is_err());
/// ```
#[derive(Clone)]
pub struct AgentRegistry {
    agents: Vec<Arc<dyn Agent>>,
}

impl Default for AgentRegistry {
    /// Creates a registry of the built-in agents.
    fn default() -> Self {
        Self { agents: built_in() }
    }
}

impl fmt::Debug for AgentRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.agents.iter().map(|agent| agent.info().id)).finish()
    }
}

impl AgentRegistry {
    /// Creates a registry of the built-in agents and every configured agent that has a command, or a shipped profile of
    /// the same name. The names of built-in agents cannot be redefined.
    #[must_use]
    pub fn of(settings: &BTreeMap<String, AgentSettings>) -> Self {
        Self::default().with_settings(settings)
    }

    /// Adds every configured agent that has a command. It replaces a configured agent of the same name, but no other
    /// agent.
    #[must_use]
    pub fn with_settings(mut self, settings: &BTreeMap<String, AgentSettings>) -> Self {
        let agents = settings
            .iter()
            .filter_map(|(name, settings)| CustomAgent::of(name, &profiles::with_profile(name, settings)));
        for agent in agents {
            let is_replaced =
                |known: &Arc<dyn Agent>| known.info().id == agent.info().id && known.settings().is_some();
            self.agents.retain(|known| !is_replaced(known));
            // Settings of a built-in agent define no other one.
            let _ = self.register(Arc::new(agent));
        }
        self
    }

    /// Adds an agent.
    ///
    /// # Errors
    /// Returns a problem if another agent of the registry has its id or one of its aliases.
    pub fn register(&mut self, agent: Arc<dyn Agent>) -> Result<(), Problem> {
        if let Some(taken) = agent.info().names().find(|name| find_among(&self.agents, name).is_ok()) {
            let message = format!("`{taken}` is already the name of an agent");
            return Err(Problem::new("agent", message).hint("choose another id or alias"));
        }
        self.agents.push(agent);
        Ok(())
    }

    /// Adds an agent and returns the registry.
    ///
    /// # Errors
    /// Returns the same problem as [`register`](Self::register).
    pub fn with_agent(mut self, agent: Arc<dyn Agent>) -> Result<Self, Problem> {
        self.register(agent)?;
        Ok(self)
    }

    /// Returns the settings of the configured agents, from which [`of`](Self::of) creates them in another process.
    /// Agents that a program registered itself are not included, because they exist only in its process.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, AgentSettings> {
        let of = |agent: &Arc<dyn Agent>| Some((agent.info().id.to_owned(), agent.settings()?));
        self.agents.iter().filter_map(of).collect()
    }

    /// Returns all agents, built-in ones first.
    #[must_use]
    pub fn all(&self) -> &[Arc<dyn Agent>] {
        &self.agents
    }

    /// Returns all agents, followed by those that are not configured but that agentline has a profile of.
    #[must_use]
    pub fn available(&self) -> Vec<Arc<dyn Agent>> {
        let is_here =
            |agent: &Arc<dyn Agent>| self.agents.iter().any(|known| known.info().id == agent.info().id);
        let shipped = profiles::profiled_agents().iter().filter(|agent| !is_here(agent));
        self.agents.iter().chain(shipped).cloned().collect()
    }

    /// Finds an agent by its id or one of its aliases. A version after the name (`AGENT@VERSION`) is ignored.
    ///
    /// # Errors
    /// Returns a problem that lists the known names if the name is unknown.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Agent>, Problem> {
        find_among(&self.available(), name)
    }

    /// Returns a redactor of a user's secrets: those in the environment and in the agents' own files.
    #[must_use]
    pub fn redactor(&self, env: &BTreeMap<String, String>, home: &Path, files: &dyn FileSystem) -> Redactor {
        let mut secrets = Secrets::default();
        secrets.add_variables(env);
        let stored = self.agents.iter().flat_map(|agent| agent.setup().stored_secrets(env, home, files));
        stored.for_each(|secret| secrets.add(&secret));
        Redactor::new(secrets.into_vec())
    }
}

/// Splits `AGENT@VERSION` into the name of the agent and the version, if there is one.
///
/// ```
/// use agentline_core::agents::split_version;
///
/// assert_eq!(split_version("gemini@0.24.0"), ("gemini", Some("0.24.0")));
/// assert_eq!(split_version("gemini"), ("gemini", None));
/// ```
#[must_use]
pub fn split_version(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((agent, version)) if !agent.is_empty() => (agent, Some(version)),
        _ => (name, None),
    }
}

/// Finds one of these agents by its id or one of its aliases. A version after the name (`AGENT@VERSION`) is ignored.
///
/// # Errors
/// Returns a problem that lists the ids of these agents if none matches.
pub fn find_among(agents: &[Arc<dyn Agent>], name: &str) -> Result<Arc<dyn Agent>, Problem> {
    let (name, _) = split_version(name);
    let matches = |agent: &&Arc<dyn Agent>| agent.info().names().any(|known| known == name);
    agents.iter().find(matches).cloned().ok_or_else(|| {
        let names = agents.iter().flat_map(|agent| agent.info().names());
        let ids: Vec<&str> = agents.iter().map(|agent| agent.info().id).collect();
        let suggestion = nearest(name, names).map(|n| format!("did you mean `{n}`? "));
        Problem::new("agent", format!("`{name}` is not a known agent")).hint(format!(
            "{}known agents: {}",
            suggestion.unwrap_or_default(),
            ids.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LaunchContext, PermissionMode as M, PermissionRequest, Plan, Policy, Program, RunRequest, Surface,
        ToolKind, memory_fs::MemoryFs,
    };
    use std::path::Path;

    /// Describes the decisions over ACP on a write inside the workspace, a write outside, a read, a command and a
    /// fetch: `+` allowed, `-` denied, `?` asked. The agent enforces the decision, unless the sign is followed by `!`
    /// (agentline enforces it) or `~` (nothing does).
    fn row(agent: &str, request: &RunRequest) -> String {
        let on = |tool: &str, kind, path: &str| PermissionRequest {
            tool: tool.into(),
            kind,
            paths: vec![path.into()],
            ..PermissionRequest::default()
        };
        let command = PermissionRequest {
            tool: "Bash".into(),
            kind: ToolKind::Shell,
            command: Some("rm x".into()),
            ..Default::default()
        };
        let fetch = PermissionRequest { tool: "WebFetch".into(), kind: ToolKind::Web, ..Default::default() };
        let uses = [
            on("Write", ToolKind::Write, "a"),
            on("Write", ToolKind::Write, "/etc/a"),
            on("Read", ToolKind::Read, "a"),
            command,
            fetch,
        ];
        let policy = Policy::new(request, Path::new("/ws")).unwrap();
        let word = |ask: PermissionRequest| {
            let explanation = policy
                .explain(&*find(agent).unwrap(), request, Surface::Acp, &ask, &|path| policy.resolve(path));
            let sign = ["+", "-", "?"]
                [["allow", "deny", "ask"].iter().position(|d| *d == explanation.decision).unwrap()];
            let side = ["", "!", "~"]
                [["agent", "agentline", "nobody"].iter().position(|d| *d == explanation.held_by).unwrap()];
            format!("{sign}{side}")
        };
        uses.map(word).join(" ")
    }

    #[test]
    fn native_decisions_of_each_agent() {
        let mode = |mode| RunRequest::new("x").permission_mode(mode);
        for (agent, request, expected) in [
            ("claude", mode(M::Default), "?! -! + ?! ?!"),
            ("claude", mode(M::Default).deny("Bash"), "?! -! + - ?!"),
            ("claude", mode(M::AcceptEdits), "+! -! + ?! ?!"),
            ("codex", mode(M::Default), "?! -! + + ?!"),
            ("codex", mode(M::Deny).deny("Bash(rm *)"), "-! -! +~ +~ -!"),
            ("codex", mode(M::AcceptEdits), "+ -! + + ?!"),
            ("codex", mode(M::Bypass), "+ +~ + + +"),
            ("opencode", mode(M::Default), "?! -! + ?! ?!"),
            ("opencode", mode(M::Default).deny("WebFetch"), "?! -! + ?! -"),
            ("opencode", mode(M::Bypass), "+ +~ + + +"),
            ("opencode", mode(M::Bypass).deny("Bash(rm *)"), "+! -! + -! +!"),
        ] {
            assert_eq!(row(agent, &request), expected, "{agent} {:?}", request.permission_mode);
        }
    }

    #[test]
    fn acp_launch_differs_only_in_the_prompt_text() {
        let fs = MemoryFs::default().plain("/ws/task.md", "the task").plain("/u/elsewhere.md", "the task");
        let custom = AgentSettings { command: Some(vec!["other".into()]), ..AgentSettings::default() };
        let registry = AgentRegistry::of(&[("other".to_owned(), custom)].into());
        let program = Program { path: "/bin/x".into(), args: vec![], version: None };
        let context = LaunchContext::new(program, "/ws".into(), "/u".into(), "/p".into());
        let bare = RunRequest::new("").system_prompt("be brief").deny("Bash(rm *)");
        let requests = ["hi", "/about", "$about me", "read @a {{args}}", "two\nlines"]
            .map(|prompt| RunRequest { prompt: prompt.into(), ..bare.clone() })
            .into_iter()
            .chain(
                ["task.md", "/u/elsewhere.md"]
                    .map(|file| RunRequest { prompt_file: Some(file.into()), ..bare.clone() }),
            );
        for (agent, request) in
            registry.all().iter().flat_map(|agent| requests.clone().map(move |r| (agent, r)))
        {
            let id = agent.info().id;
            let launch = |request| agent.launch(&Plan::new(request, Surface::Acp), &context, &fs).unwrap();
            let (plan, mut with) = (Plan::new(request.clone(), Surface::Acp), launch(request));
            let prompt = agent.prompt_text(&plan, &context.cwd, &fs).unwrap();
            assert_eq!(prompt.text, with.stdin, "{id}");
            let mut without = launch(bare.clone());
            without.warnings.splice(0..0, prompt.warnings);
            (with.stdin, without.stdin) = (String::new(), String::new());
            assert_eq!(format!("{with:#?}"), format!("{without:#?}"), "{id}");
        }
    }
}
