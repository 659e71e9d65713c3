//! What every agent tells about itself. One folder under `agents` implements it; nobody else knows an agent's facts.

use crate::{
    Dialogue, Failure, Ground, Launch, Look, Millis, Plan, Problem, ProjectRef, Prospect, RunRequest,
    SavedForm, SessionFile, SessionFold, SessionRoot, Stance, Surface, ToolTable, Version, Words,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A coding agent that we can drive.
pub trait Agent: Sync + Send {
    /// Its names and where its program is to be had.
    fn card(&self) -> &'static Card;

    /// The defaults, as TOML, that one of its names stands for besides the agent itself.
    fn preset(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// What a surface of it can do at a version: over ACP what the protocol can, unless it says otherwise.
    fn abilities(&self, surface: Surface, version: Option<Version>) -> Abilities {
        let _ = version;
        Abilities::of_protocol(surface)
    }

    /// The surface that fits what was asked best, when the caller did not choose.
    ///
    /// # Errors
    /// What was asked fits no surface, with the reason.
    fn choose(&self, request: &crate::RunRequest) -> Result<Surface, Problem> {
        let _ = request;
        Ok(Surface::Acp)
    }

    /// What is wrong with a request for this agent, before anything is looked up or started.
    fn check(&self, request: &crate::RunRequest, surface: Surface) -> Vec<Problem>;

    /// Turns a checked plan into what is to be started.
    ///
    /// # Errors
    /// All problems together; nothing has been touched.
    fn launch(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Result<Launch, Vec<Problem>>;

    /// Why no session may be opened in a workspace that the user has not trusted in full: it holds a file that the agent
    /// would act on, and nothing keeps the agent from it. `None` where the agent is kept from such files, or there are none.
    fn refuses_workspace(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Option<Failure> {
        let _ = (plan, ground, look);
        None
    }

    /// What the model is told over ACP, as [`Agent::launch`] has it: nothing else in a launch may follow from the prompt
    /// and the prompt file of a plan, so that a process that lives already serves others.
    ///
    /// # Errors
    /// As the launch.
    fn words(&self, plan: &Plan, cwd: &Path, look: &dyn Look) -> Result<Words, Problem>;

    /// A translator for one live connection.
    fn dialogue(&self, talk: &Talk) -> Box<dyn Dialogue>;

    /// The rules of a prompt in an open session that cannot be enforced, because the agent is told of such rules when its
    /// process starts. `opened` is what the session was opened with.
    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        let _ = (opened, prompt);
        Vec::new()
    }

    /// Whether a run of this plan may be on a process beside others: it can start no process of its own there, which
    /// nobody could tell from those of the others.
    fn shares(&self, plan: &Plan) -> bool {
        let _ = plan;
        false
    }

    /// What it does by itself with a use of a tool, before we are asked.
    fn stance(&self, request: &crate::RunRequest, surface: Surface, prospect: &Prospect<'_>) -> Stance {
        let _ = (request, surface, prospect);
        Stance::Unknown
    }

    /// Arguments that it adds to the calls of every tool for purposes of its own, and sends on to the tool's server. A tool
    /// that does not know them would refuse the call, or take them for a part of the answer.
    fn added_arguments(&self) -> &'static [&'static str] {
        &[]
    }

    /// Its tools, with their canonical names and arguments.
    fn tools(&self) -> &'static ToolTable {
        ToolTable::EMPTY
    }

    /// What it offers to whoever uses it, as far as it is known without asking it.
    fn repertoire(&self) -> Repertoire {
        Repertoire::default()
    }

    /// Its own name of a canonical tool.
    fn native_tool(&self, tool: &str) -> Option<&'static str> {
        self.tools().natives(tool).next()
    }

    /// The folder in which the files of this workspace's sessions grow while runs go on, once it can be known.
    fn session_folder(&self, agent_home: &Path, cwd: &Path, look: &dyn Look) -> Option<PathBuf> {
        let _ = (agent_home, cwd, look);
        None
    }

    /// Where the file of a session grows in that folder.
    fn session_spot(&self, folder: PathBuf, session: &str) -> SessionSpot {
        SessionSpot::new(folder, session.to_owned())
    }

    /// What the file of a session is called that the agent makes at this moment, in milliseconds since 1970, where the name
    /// follows from the moment alone.
    fn session_file_made(&self, spot: &SessionSpot, at: Millis) -> Option<String> {
        let _ = (spot, at);
        None
    }

    /// Files that a finished run left behind and that would harm the user's data if they stayed.
    fn leftovers(&self, spot: &SessionSpot, existed_before: &[PathBuf], look: &dyn Look) -> Vec<PathBuf> {
        let _ = (spot, existed_before, look);
        Vec::new()
    }

    /// Files of a session that the agent made at its start though nobody asked for it, as far as they say nothing.
    fn litter(&self, spot: &SessionSpot, look: &dyn Look) -> Vec<PathBuf> {
        let _ = (spot, look);
        Vec::new()
    }

    /// Files in a folder of sessions that a killed run left behind and that would harm the user's data if they stayed: each
    /// says nothing and belongs to a session that another file holds. Pairs of the duplicate and that other file.
    fn empty_duplicates(&self, folder: &Path, look: &dyn Look) -> Vec<(PathBuf, PathBuf)> {
        let _ = (folder, look);
        Vec::new()
    }

    /// Secrets in the agent's own files of a user with this home and environment: keys, tokens, passwords of tool servers.
    fn stored_secrets(&self, env: &BTreeMap<String, String>, home: &Path, look: &dyn Look) -> Vec<String> {
        let _ = (env, home, look);
        Vec::new()
    }

    /// Where it keeps the sessions of a user with this home and environment.
    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<SessionRoot> {
        let _ = (env, home, look);
        Vec::new()
    }

    /// What the name of a file below one of its roots says about it; `None` when it is no session. `path` is below the
    /// root.
    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        let _ = path;
        None
    }

    /// The project that a file below a root belongs to, as far as its place tells.
    fn session_project(&self, root: &Path, path: &Path, look: &dyn Look) -> Option<ProjectRef> {
        let _ = (root, path, look);
        None
    }

    /// How a file is stored whose beginning this is, wherever it lies; `None` when it is no session of this agent.
    fn session_form(&self, head: &[u8]) -> Option<SavedForm> {
        let _ = head;
        None
    }

    /// Titles of sessions by their ids, where the agent keeps them in a file of their own.
    fn session_titles(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> BTreeMap<String, String> {
        let _ = (env, home, look);
        BTreeMap::new()
    }

    /// Whether a later file of a session goes on where an earlier one ended, so that one reader takes them all, in the order
    /// of their names; else each is read by itself.
    fn session_files_go_on(&self) -> bool {
        false
    }

    /// A reader for a session of it.
    fn session_fold(&self, form: SavedForm) -> Option<Box<dyn SessionFold>> {
        let _ = form;
        None
    }

    /// Every way of signing in that was looked for, in the order in which the agent takes them in a run in `cwd`.
    fn sign_in(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<SignIn>;

    /// What is wrong with the user's own settings of this agent, such as a file that is not JSON.
    fn settings_problems(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<Problem> {
        let _ = (cwd, env, home, look);
        Vec::new()
    }

    /// Whether the agent would trust a folder without being told to.
    fn trusts(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Option<bool> {
        let _ = (cwd, env, home, look);
        None
    }
}

/// How we talk with one live agent: all that its translator must know before the first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Talk {
    /// Over which surface.
    pub surface: Surface,
    /// The agent's version, where it is known before the start.
    pub version: Option<Version>,
    /// We read files for the agent.
    pub read_files: bool,
    /// We write files for the agent.
    pub write_files: bool,
    /// The agent's way of signing in that is asked for, by its own id.
    pub authenticate: Option<String>,
}

impl Talk {
    /// Over this surface, with nothing special.
    #[must_use]
    pub fn new(surface: Surface, version: Option<Version>) -> Self {
        Self { surface, version, ..Self::default() }
    }
}

/// An agent's names and where its program is to be had.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Card {
    /// The id.
    pub id: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// What people call it.
    pub title: &'static str,
    /// Its program's name.
    pub program: &'static str,
    /// The variable that names its program.
    pub path_variable: &'static str,
    /// Its npm package.
    pub package: &'static str,
    /// The version that we test with and install.
    pub pinned: &'static str,
    /// The oldest major version of Node.js that it runs on.
    pub min_node: u32,
    /// How to sign in.
    pub sign_in_hint: &'static str,
    /// Variables that the agent documents; a trailing `*` is a prefix.
    pub variables: &'static [&'static str],
    /// The surfaces it has.
    pub surfaces: &'static [Surface],
    /// The longest prompt that it takes, in bytes.
    pub max_prompt_bytes: Option<usize>,
    /// What workflow engines call the provider that drives it.
    pub provider: &'static str,
    /// Where people read how to install it.
    pub home_page: &'static str,
    /// Its package puts its program in place by a script that must run at the installation.
    pub install_script: bool,
    /// Files of instructions that it reads by itself in the workspace and in the folders above it.
    pub instructions: &'static [&'static str],
    /// Files and folders of a project that can change its settings or make it run something. They are looked for in the
    /// workspace and in the folders above it. Files of instructions are not among them: they are only text.
    #[serde(skip)]
    pub project_files: &'static [&'static str],
    /// How the directories begin that it makes in the temporary directory for each command, and leaves there when it is
    /// killed.
    #[serde(skip)]
    pub command_dirs: &'static [&'static str],
}

impl Card {
    /// A card with every field.
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

    /// What workflow engines call its provider, where that is not the id.
    #[must_use]
    pub const fn provider(mut self, name: &'static str) -> Self {
        self.provider = name;
        self
    }

    /// Which files of instructions it reads by itself.
    #[must_use]
    pub const fn instructions(mut self, names: &'static [&'static str]) -> Self {
        self.instructions = names;
        self
    }

    /// Which files and folders of a project can change its settings or make it run something.
    #[must_use]
    pub const fn project_files(mut self, names: &'static [&'static str]) -> Self {
        self.project_files = names;
        self
    }

    /// With the directories that it makes in the temporary directory for each command.
    #[must_use]
    pub const fn command_dirs(mut self, prefixes: &'static [&'static str]) -> Self {
        self.command_dirs = prefixes;
        self
    }

    /// Its package needs its script at the installation.
    #[must_use]
    pub const fn install_script(mut self) -> Self {
        self.install_script = true;
        self
    }

    /// Where people read how to install it.
    #[must_use]
    pub const fn home_page(mut self, url: &'static str) -> Self {
        self.home_page = url;
        self
    }
}

/// What an agent offers to whoever uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repertoire {
    /// It has commands that begin with a slash.
    pub slash_commands: bool,
    /// It searches the web.
    pub web_search: bool,
    /// It tells its reasoning, live or in what it saves.
    pub thinking: bool,
    /// Models that it is used with, by id and name; the agent itself knows more.
    pub models: &'static [(&'static str, &'static str)],
}

impl Repertoire {
    /// An agent with commands, web search and reasoning, used with these models.
    #[must_use]
    pub const fn full(models: &'static [(&'static str, &'static str)]) -> Self {
        Self { slash_commands: true, web_search: true, thinking: true, models }
    }

    /// Without a search of the web of its own.
    #[must_use]
    pub const fn without_web_search(mut self) -> Self {
        self.web_search = false;
        self
    }
}

/// What a surface can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Abilities {
    /// Works in this version of agentline.
    pub works: bool,
    /// Text arrives while it is written.
    pub streams_text: bool,
    /// Reasoning is told.
    pub thinking: bool,
    /// Tool calls are told while they happen.
    pub tool_events: bool,
    /// The host can be asked for permission.
    pub asks_permission: bool,
    /// A run can be stopped with words, not only with signals.
    pub cancels_in_band: bool,
    /// A stored session can be gone on with.
    pub resumes: bool,
    /// MCP servers can be given.
    pub mcp: bool,
    /// Images and other files can be sent.
    pub attachments: bool,
    /// Several prompts over one process.
    pub multi_turn: bool,
    /// Why a turn ended is told.
    pub stop_reason: bool,
    /// Tokens are told while the run goes on.
    pub live_usage: bool,
    /// Functions of the calling program can be its tools.
    pub hosted_tools: bool,
    /// The answer can be held to a schema.
    pub schema: bool,
    /// It can be kept warm between runs.
    pub warm: bool,
}

impl Abilities {
    /// What can be done as far as the protocol goes.
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

/// Where a session's file grows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSpot {
    /// The folder.
    pub folder: PathBuf,
    /// Every file of the session ends with this.
    pub suffix: String,
}

impl SessionSpot {
    /// Files in this folder that end so.
    #[must_use]
    pub fn new(folder: PathBuf, suffix: String) -> Self {
        Self { folder, suffix }
    }
}

/// One way of signing in, and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SignIn {
    /// A setting, a variable or a file.
    pub source: String,
    /// Whether it was found; a secret's value is never shown.
    pub found: bool,
    /// Whether it is the one that the agent will use.
    pub wins: bool,
    /// More about it.
    pub note: Option<String>,
    /// What to do so that the agent can use it.
    pub fix: Option<String>,
}

impl SignIn {
    /// A way of signing in that was looked for.
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
