//! The interface of an agent. Each folder under `agents` implements it; no other module knows facts about an agent.

use crate::DialogueConfig;
use crate::{
    Dialogue, Failure, FileSystem, Launch, LaunchContext, Millis, NativeDecision, Plan, Problem, ProjectRef,
    PromptText, RunRequest, SessionFile, SessionFormat, SessionReader, SessionRoot, Surface, ToolTable,
    ToolUseContext, Version,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A coding agent that agentline can drive.
pub trait Agent: Sync + Send {
    /// Returns the names of the agent and the source of its program.
    fn info(&self) -> &'static AgentInfo;

    /// Returns the default settings, as TOML, that one of the agent's names implies.
    fn preset(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// Returns the abilities of a surface at a version. By default, ACP has what the protocol itself provides, and
    /// other surfaces have nothing.
    fn abilities(&self, surface: Surface, version: Option<Version>) -> SurfaceFeatures {
        let _ = version;
        SurfaceFeatures::of_protocol(surface)
    }

    /// Chooses the best surface for a request that names none.
    ///
    /// # Errors
    /// Returns a problem with the reason if no surface fits the request.
    fn choose(&self, request: &crate::RunRequest) -> Result<Surface, Problem> {
        let _ = request;
        Ok(Surface::Acp)
    }

    /// Returns the surface for conversations and warm processes, if the agent has one.
    fn live_surface(&self) -> Option<Surface> {
        self.info().surfaces.iter().copied().find(|surface| surface.is_live())
    }

    /// Checks a request for this agent, before anything is looked up or started.
    fn check(&self, request: &crate::RunRequest, surface: Surface) -> Vec<Problem>;

    /// Builds the launch of a checked plan.
    ///
    /// # Errors
    /// Returns all problems together. Nothing has been changed on disk.
    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>>;

    /// Returns why no session may be opened in a workspace that is not fully trusted: it contains a file that the agent
    /// would act on, and the agent cannot be kept from reading it. Returns `None` if there are no such files or if the
    /// agent ignores them.
    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let _ = (plan, context, fs);
        None
    }

    /// Returns the prompt text for ACP, as in [`Agent::launch`]. Nothing else in a launch may depend on the prompt or
    /// the prompt file of a plan, so that a running process can serve other prompts.
    ///
    /// # Errors
    /// Returns the same problems as the launch.
    fn words(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem>;

    /// Creates the translator for one live connection.
    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue>;

    /// Returns a problem for each rule of `prompt` that the agent cannot enforce in an open session, because it accepts
    /// such rules only when its process starts. `opened` is the request that opened the session.
    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        let _ = (opened, prompt);
        Vec::new()
    }

    /// Returns whether a run of this plan may share a process with other runs. It may if it cannot start processes,
    /// because those could not be told apart from the processes of other runs.
    fn shares(&self, plan: &Plan) -> bool {
        let _ = plan;
        false
    }

    /// Returns how the agent itself decides on a tool use, before it asks for permission.
    fn native_decision(
        &self,
        request: &crate::RunRequest,
        surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        let _ = (request, surface, prospect);
        NativeDecision::Unknown
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

    /// Returns the features of the agent that are known without starting it.
    fn features(&self) -> Features {
        Features::default()
    }

    /// Returns the agent's own name for a canonical tool.
    fn native_tool(&self, tool: &str) -> Option<&'static str> {
        self.tools().natives(tool).next()
    }

    /// Returns the folder in which the agent writes the session files of this workspace, if it is known.
    fn session_folder(&self, agent_home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
        let _ = (agent_home, cwd, fs);
        None
    }

    /// Returns the pattern of a session's files in that folder.
    fn session_file_pattern(&self, folder: PathBuf, session: &str) -> SessionFilePattern {
        SessionFilePattern::new(folder, session.to_owned())
    }

    /// Returns the name of the session file that the agent creates at this time, in milliseconds since 1970, if the
    /// name depends only on the time.
    fn session_file_made(&self, spot: &SessionFilePattern, at: Millis) -> Option<String> {
        let _ = (spot, at);
        None
    }

    /// Returns files that a finished run left behind and that would harm the user's data.
    fn leftovers(
        &self,
        spot: &SessionFilePattern,
        existed_before: &[PathBuf],
        fs: &dyn FileSystem,
    ) -> Vec<PathBuf> {
        let _ = (spot, existed_before, fs);
        Vec::new()
    }

    /// Returns the files of a session that the agent created at its start without a request, if they contain no
    /// messages.
    fn abandoned(&self, spot: &SessionFilePattern, fs: &dyn FileSystem) -> Vec<PathBuf> {
        let _ = (spot, fs);
        Vec::new()
    }

    /// Returns the empty session files in a folder that a killed run left behind and that would harm the user's data.
    /// Each is paired with the other file that holds the same session.
    fn empty_duplicates(&self, folder: &Path, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
        let _ = (folder, fs);
        Vec::new()
    }

    /// Returns the secrets in the agent's own files for this home and environment: keys, tokens and passwords of tool
    /// servers.
    fn stored_secrets(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<String> {
        let _ = (env, home, fs);
        Vec::new()
    }

    /// Returns the folders that hold the saved sessions of a user with this home and environment.
    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SessionRoot> {
        let _ = (env, home, fs);
        Vec::new()
    }

    /// Describes a session file by its `path` below a root. Returns `None` if it is not a session.
    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        let _ = path;
        None
    }

    /// Returns the project that a file below a root belongs to, if its location shows it.
    fn session_project(&self, root: &Path, path: &Path, fs: &dyn FileSystem) -> Option<ProjectRef> {
        let _ = (root, path, fs);
        None
    }

    /// Detects the storage format from the beginning of a file. Returns `None` if it is not a session of this agent.
    fn session_format(&self, head: &[u8]) -> Option<SessionFormat> {
        let _ = head;
        None
    }

    /// Returns the titles of sessions by session id, if the agent stores them in a separate file.
    fn session_titles(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> BTreeMap<String, String> {
        let _ = (env, home, fs);
        BTreeMap::new()
    }

    /// Returns whether a later file of a session continues an earlier one. If so, one reader reads all of them in the
    /// order of their names; otherwise each file is read separately.
    fn session_files_go_on(&self) -> bool {
        false
    }

    /// Creates a reader for saved sessions of this form.
    fn session_reader(&self, form: SessionFormat) -> Option<Box<dyn SessionReader>> {
        let _ = form;
        None
    }

    /// Returns every sign-in method that was checked, in the order in which the agent prefers them for a run in `cwd`.
    fn sign_in(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SignIn>;

    /// Returns problems in the user's own settings of this agent, such as a file that is not JSON.
    fn settings_problems(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<Problem> {
        let _ = (cwd, env, home, fs);
        Vec::new()
    }

    /// Returns whether the agent trusts a folder by default, if known.
    fn trusts(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Option<bool> {
        let _ = (cwd, env, home, fs);
        None
    }
}

/// The static description of an agent: its names and the source of its program.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct AgentInfo {
    /// The id.
    pub id: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// The display name.
    pub title: &'static str,
    /// The name of its program.
    pub program: &'static str,
    /// The environment variable that overrides the path of the program.
    pub path_variable: &'static str,
    /// The npm package.
    pub package: &'static str,
    /// The version that agentline is tested with and installs.
    pub pinned: &'static str,
    /// The oldest supported major version of Node.js.
    pub min_node: u32,
    /// How to sign in.
    pub sign_in_hint: &'static str,
    /// The environment variables that the agent documents. A trailing `*` marks a prefix.
    pub variables: &'static [&'static str],
    /// The supported surfaces.
    pub surfaces: &'static [Surface],
    /// The longest accepted prompt, in bytes.
    pub max_prompt_bytes: Option<usize>,
    /// The provider name that workflow engines use for it.
    pub provider: &'static str,
    /// The page with installation instructions.
    pub home_page: &'static str,
    /// Whether the package needs its install script, which puts the program in place.
    pub install_script: bool,
    /// The instruction files that it reads in the workspace and its parent folders.
    pub instructions: &'static [&'static str],
    /// The project files and folders that can change its settings or make it run something, in the workspace and its
    /// parent folders. Instruction files are not included, because they are only text.
    #[serde(skip)]
    pub project_files: &'static [&'static str],
    /// The name prefixes of the directories that it creates in the temporary directory for each command. They remain
    /// when the agent is killed.
    #[serde(skip)]
    pub command_dirs: &'static [&'static str],
}

impl AgentInfo {
    /// Creates a description from its required fields.
    #[must_use]
    #[expect(
        clippy::too_many_arguments,
        reason = "a table row: each value stands once, in the agent's folder"
    )]
    pub const fn new(
        id: &'static str,
        aliases: &'static [&'static str],
        title: &'static str,
        program: &'static str,
        path_variable: &'static str,
        package: &'static str,
        pinned: &'static str,
        min_node: u32,
        sign_in_hint: &'static str,
        variables: &'static [&'static str],
        surfaces: &'static [Surface],
        max_prompt_bytes: Option<usize>,
    ) -> Self {
        Self {
            id,
            aliases,
            title,
            program,
            path_variable,
            package,
            pinned,
            min_node,
            sign_in_hint,
            variables,
            surfaces,
            max_prompt_bytes,
            provider: id,
            home_page: "",
            install_script: false,
            instructions: &[],
            project_files: &[],
            command_dirs: &[],
        }
    }

    /// Sets the provider name for workflow engines, if it differs from the id.
    #[must_use]
    pub const fn provider(mut self, name: &'static str) -> Self {
        self.provider = name;
        self
    }

    /// Sets the instruction files that the agent reads by itself.
    #[must_use]
    pub const fn instructions(mut self, names: &'static [&'static str]) -> Self {
        self.instructions = names;
        self
    }

    /// Sets the project files and folders that can change the agent's settings or make it run something.
    #[must_use]
    pub const fn project_files(mut self, names: &'static [&'static str]) -> Self {
        self.project_files = names;
        self
    }

    /// Sets the name prefixes of the directories that the agent creates in the temporary directory for each command.
    #[must_use]
    pub const fn command_dirs(mut self, prefixes: &'static [&'static str]) -> Self {
        self.command_dirs = prefixes;
        self
    }

    /// Marks the package as one that needs its install script.
    #[must_use]
    pub const fn install_script(mut self) -> Self {
        self.install_script = true;
        self
    }

    /// Sets the page with installation instructions.
    #[must_use]
    pub const fn home_page(mut self, url: &'static str) -> Self {
        self.home_page = url;
        self
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

    /// Removes web search.
    #[must_use]
    pub const fn without_web_search(mut self) -> Self {
        self.web_search = false;
        self
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
    /// Returns the abilities that the protocol itself provides.
    fn of_protocol(surface: Surface) -> Self {
        if surface != Surface::Acp {
            return Self::default();
        }
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
            live_usage: false,
        }
    }
}

/// The location and file name pattern of a session's files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFilePattern {
    /// The folder.
    pub folder: PathBuf,
    /// The suffix of every file name of the session.
    pub suffix: String,
}

impl SessionFilePattern {
    /// Creates a pattern for the files in this folder with this suffix.
    #[must_use]
    pub fn new(folder: PathBuf, suffix: String) -> Self {
        Self { folder, suffix }
    }
}

/// One sign-in method, and whether it is available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SignIn {
    /// A setting, a variable or a file.
    pub source: String,
    /// Whether it was found. The value of a secret is never shown.
    pub found: bool,
    /// Whether the agent will use this one.
    pub wins: bool,
    /// Additional information.
    pub note: Option<String>,
    /// How to make it usable for the agent.
    pub fix: Option<String>,
}

impl SignIn {
    /// Creates a sign-in method that was checked.
    #[must_use]
    pub fn new(source: impl Into<String>, found: bool) -> Self {
        Self { source: source.into(), found, wins: false, note: None, fix: None }
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}
