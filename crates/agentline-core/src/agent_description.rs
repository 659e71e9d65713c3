//! The description of an agent: its names, options, tools and the abilities of its surfaces.

use crate::{AgentOption, AgentSettings, Surface, ToolTable, Version};
use serde::Serialize;
use serde_json::Value;

/// The description of an agent: what is known about it before anything is started.
///
/// Only [`AgentDescription::info`] is required. The defaults describe an agent that speaks ACP and of which nothing
/// else is known.
pub trait AgentDescription: Sync + Send {
    /// Returns the names of the agent and the source of its program.
    fn info(&self) -> AgentInfo<'_>;

    /// Returns the default settings, as TOML, that one of the agent's names implies.
    fn preset(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// Returns the options that only this agent has. A request with any other such option is refused.
    fn options(&self) -> &'static [AgentOption] {
        &[]
    }

    /// Returns the settings from which [`AgentRegistry::of`](crate::agents::AgentRegistry::of) creates this agent in
    /// another process. By default, there are none.
    fn settings(&self) -> Option<AgentSettings> {
        None
    }

    /// Returns the abilities of a surface at a version. By default, ACP has what the protocol itself provides, and
    /// other surfaces have nothing.
    fn abilities(&self, surface: Surface, version: Option<Version>) -> SurfaceFeatures {
        let _ = version;
        SurfaceFeatures::of_protocol(surface)
    }

    /// Returns the abilities of [`AgentDescription::abilities`], by their names in JSON, that the protocol leaves to the agent and
    /// that are not known. None by default.
    fn unknown_abilities(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the known deviations of a version from the protocol of a surface, a sentence or two for each. agentline
    /// compensates for them. None by default.
    fn quirks(&self, surface: Surface, version: Option<Version>) -> Vec<&'static str> {
        let _ = (surface, version);
        Vec::new()
    }

    /// Returns whether the agent stays alive between prompts on this surface and asks the host while it works.
    fn is_live(&self, surface: Surface) -> bool {
        surface.is_live()
    }

    /// Returns how many sessions one process on this surface can have, if that is limited.
    fn sessions_per_process(&self, surface: Surface) -> Option<u32> {
        let _ = surface;
        None
    }

    /// Returns whether the agent itself checks its answers against this schema on this surface. It then gets the schema
    /// in [`RunRequest::answer_schema`](crate::RunRequest::answer_schema), and reports the value of its answer.
    fn takes_schema(&self, surface: Surface, schema: &Value) -> bool {
        let _ = (surface, schema);
        false
    }

    /// Returns whether the agent passes the reason of a denial to the model on this surface.
    fn passes_denial_reasons(&self, surface: Surface) -> bool {
        let _ = surface;
        false
    }

    /// Returns whether the launch itself finds the session that `latest` stands for. Otherwise it gets the id.
    fn resolves_latest(&self) -> bool {
        false
    }

    /// Returns the arguments that the agent adds to every tool call for its own purposes and sends on to the tool's
    /// server. A tool that does not know them would refuse the call or treat them as part of the answer.
    fn added_arguments(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the agent's tools, with their canonical names and arguments.
    fn tools(&self) -> &'static ToolTable {
        ToolTable::EMPTY
    }

    /// Returns whether the agent never reports a cost of its own, so that a cost is known only by the price of its
    /// model.
    fn needs_prices(&self) -> bool {
        false
    }

    /// Returns the features of the agent that are known without starting it.
    fn features(&self) -> Features {
        Features::default()
    }

    /// Returns the agent's own name for a canonical tool.
    fn native_tool(&self, tool: &str) -> Option<&'static str> {
        self.tools().natives(tool).next()
    }
}

/// The names of an agent and the source of its program.
///
/// ```
/// use agentline_core::AgentInfo;
///
/// let mut info = AgentInfo::new("mine");
/// info.title = "My Agent";
/// info.program = "my-agent";
/// assert_eq!((info.id, info.provider), ("mine", "mine"));
/// ```
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct AgentInfo<'a> {
    /// The id.
    pub id: &'a str,
    /// Other accepted names.
    pub aliases: &'a [&'a str],
    /// The display name.
    pub title: &'a str,
    /// The name of its program: the agent's own CLI.
    pub program: &'a str,
    /// The environment variable that overrides the path of the program.
    pub path_variable: &'a str,
    /// The directory in the user's home in which the program installs itself, if it does.
    #[serde(skip)]
    pub program_dir: Option<&'a str>,
    /// The npm package, or [`PYPI`] with the package from PyPI.
    pub package: &'a str,
    /// The version that agentline is tested with and installs.
    pub pinned: &'a str,
    /// The oldest supported major version of Node.js.
    pub min_node: u32,
    /// How to sign in.
    pub sign_in_hint: &'a str,
    /// The environment variables that the agent documents. A trailing `*` marks a prefix.
    pub variables: &'a [&'a str],
    /// The supported surfaces, in the order in which their programs are preferred.
    pub surfaces: &'a [Surface],
    /// The longest accepted prompt, in bytes.
    pub max_prompt_bytes: Option<usize>,
    /// The provider name that workflow engines use for it.
    pub provider: &'a str,
    /// The page with installation instructions.
    pub home_page: &'a str,
    /// Whether the package needs its install script, which puts the program in place.
    pub install_script: bool,
    /// The instruction files that it reads in the workspace and its parent directories.
    pub instructions: &'a [&'a str],
    /// The project files and directories that can change its settings or make it run something, in the
    /// workspace and its parent directories. Instruction files are not included, because they are only text.
    #[serde(skip)]
    pub project_files: &'a [&'a str],
    /// The name prefixes of the directories that it creates in the temporary directory for each command. They remain
    /// when the agent is killed.
    #[serde(skip)]
    pub command_dirs: &'a [&'a str],
    /// The program that speaks ACP for the agent, if the agent's own CLI does not.
    pub adapter: Option<AdapterInfo<'a>>,
}

/// The program that speaks ACP for an agent whose own CLI does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterInfo<'a> {
    /// The name of the program.
    pub program: &'a str,
    /// The environment variable that overrides the path of the program.
    pub path_variable: &'a str,
    /// The npm package.
    pub package: &'a str,
    /// The version that agentline is tested with and installs.
    pub pinned: &'a str,
    /// The oldest supported major version of Node.js.
    pub min_node: u32,
    /// The page with installation instructions.
    pub home_page: &'a str,
}

impl<'a> AdapterInfo<'a> {
    /// Creates the description of an adapter by its program and npm package.
    #[must_use]
    pub const fn new(program: &'a str, package: &'a str) -> Self {
        Self { program, path_variable: "", package, pinned: "", min_node: 0, home_page: "" }
    }
}

/// The prefix of packages from PyPI. All others are from npm.
pub const PYPI: &str = "pypi:";

impl<'a> AgentInfo<'a> {
    /// Creates the description of an agent with this id, which is also its title, program and provider name. It speaks
    /// ACP, and nothing else is known about it.
    #[must_use]
    pub const fn new(id: &'a str) -> Self {
        Self {
            id,
            aliases: &[],
            title: id,
            program: id,
            path_variable: "",
            program_dir: None,
            package: "",
            pinned: "",
            min_node: 0,
            sign_in_hint: "",
            variables: &[],
            surfaces: &[Surface::Acp],
            max_prompt_bytes: None,
            provider: id,
            home_page: "",
            install_script: false,
            instructions: &[],
            project_files: &[],
            command_dirs: &[],
            adapter: None,
        }
    }

    /// Returns the description with the program that provides a surface: the adapter for ACP, if the agent has one.
    #[must_use]
    pub const fn for_surface(self, surface: Surface) -> Self {
        match (surface, self.adapter) {
            (
                Surface::Acp,
                Some(AdapterInfo { program, path_variable, package, pinned, min_node, home_page }),
            ) => Self {
                program,
                path_variable,
                program_dir: None,
                package,
                pinned,
                min_node,
                home_page,
                install_script: false,
                ..self
            },
            _ => self,
        }
    }

    /// Returns the description with the agent's preferred program.
    #[must_use]
    pub fn preferred(self) -> Self {
        self.surfaces.first().map_or(self, |surface| self.for_surface(*surface))
    }

    /// Returns the preferred surface of each program of the agent, the preferred program first.
    pub fn surfaces_by_program(self) -> impl Iterator<Item = Surface> {
        let is_adapter = move |surface| surface == Surface::Acp && self.adapter.is_some();
        let first_of =
            move |adapter| self.surfaces.iter().copied().find(|surface| is_adapter(*surface) == adapter);
        let first = self.surfaces.first().is_some_and(|surface| is_adapter(*surface));
        [first_of(first), first_of(!first)].into_iter().flatten()
    }

    /// Returns the id and the aliases.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        std::iter::once(self.id).chain(self.aliases.iter().copied())
    }
}

/// The features that an agent offers to its users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// Whether it has slash commands.
    pub slash_commands: bool,
    /// Whether it searches the web.
    pub web_search: bool,
    /// Whether it reports its reasoning, live or in saved sessions.
    pub thinking: bool,
    /// Commonly used models, by id and name. The list is not complete.
    pub models: &'static [(&'static str, &'static str)],
}

impl Features {
    /// Creates the features of an agent with slash commands, web search and reasoning, and these models.
    #[must_use]
    pub const fn full(models: &'static [(&'static str, &'static str)]) -> Self {
        Self { slash_commands: true, web_search: true, thinking: true, models }
    }
}

/// The abilities of a surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurfaceFeatures {
    /// Works in this version of agentline.
    pub works: bool,
    /// Streams text while the model writes it.
    pub streams_text: bool,
    /// Reports reasoning.
    pub thinking: bool,
    /// Reports tool calls while they happen.
    pub tool_events: bool,
    /// Asks the host for permission.
    pub asks_permission: bool,
    /// Cancels a run with a message, not only with a signal.
    pub cancels_in_band: bool,
    /// Resumes a stored session.
    pub resumes: bool,
    /// Accepts MCP servers.
    pub mcp: bool,
    /// Accepts images and other files.
    pub attachments: bool,
    /// Accepts several prompts in one process.
    pub multi_turn: bool,
    /// Reports why a turn ended.
    pub stop_reason: bool,
    /// Reports token usage during the run.
    pub live_usage: bool,
    /// Calls tools that the calling program implements.
    pub hosted_tools: bool,
    /// Supports a schema for the answer.
    pub schema: bool,
    /// Can be kept warm between runs.
    pub warm: bool,
}

impl SurfaceFeatures {
    /// Returns the abilities that the protocol of a surface itself provides.
    pub(crate) fn of_protocol(surface: Surface) -> Self {
        match surface {
            Surface::Acp => Self { live_usage: false, ..Self::live() },
            _ => Self::default(),
        }
    }

    /// Returns the abilities of a surface with one prompt per process.
    pub(crate) fn headless() -> Self {
        Self { works: true, tool_events: true, resumes: true, mcp: true, live_usage: true, ..Self::default() }
    }

    /// Returns the abilities of a surface with messages in both directions.
    pub(crate) fn live() -> Self {
        Self {
            works: true,
            streams_text: true,
            thinking: true,
            tool_events: true,
            asks_permission: true,
            cancels_in_band: true,
            resumes: true,
            mcp: true,
            attachments: true,
            multi_turn: true,
            stop_reason: true,
            hosted_tools: true,
            schema: true,
            warm: true,
            live_usage: true,
        }
    }
}
