//! From what was asked to what is started: the ground an agent stands on, and the finished launch.

use crate::{McpServer, Millis, ModeWish, ModelWish, RunRequest, Surface, Talk, Version};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A look at files that belong to the user. The core has no file system; the shell lends it this.
pub trait Look {
    /// The content of a file, or `None` when it cannot be read.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
    /// The names in a folder, or `None` when it cannot be listed.
    fn list(&self, path: &Path) -> Option<Vec<String>>;
    /// Whether something is there.
    fn exists(&self, path: &Path) -> bool;

    /// The path with all links resolved, or `None` when nothing is there. Where there are no links, the path itself.
    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.exists(path).then(|| path.to_path_buf())
    }

    /// Whether it is a file that this user may start.
    fn runnable(&self, path: &Path) -> bool {
        self.exists(path)
    }

    /// Whether the file and every folder above it belong to the administrator and nobody else may write there.
    fn guarded(&self, _path: &Path) -> bool {
        false
    }

    /// The content of a file that is no longer than `most` bytes.
    fn small(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        self.read(path).filter(|bytes| bytes.len() <= most)
    }

    /// The content of a file as text.
    fn text(&self, path: &Path) -> Option<String> {
        String::from_utf8(self.read(path)?).ok()
    }
}

/// A request that was checked for one agent and surface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// What was asked, with the agent's own id and a prompt that is not empty.
    pub request: RunRequest,
    /// The surface that will be used.
    pub surface: Surface,
}

impl Plan {
    /// A plan for a surface that the agent has. The agent's own checks come at the launch.
    #[must_use]
    pub fn new(request: RunRequest, surface: Surface) -> Self {
        Self { request, surface }
    }
}

/// What the shell found on this machine before a launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ground {
    /// The program to start.
    pub program: Program,
    /// The workspace, absolute, links resolved.
    pub cwd: PathBuf,
    /// The user's home.
    pub home: PathBuf,
    /// An empty private folder of this run; it is removed afterwards.
    pub private: PathBuf,
    /// The caller's whole environment.
    pub env: BTreeMap<String, String>,
    /// A fresh id for a new session.
    pub session_id: String,
}

impl Ground {
    /// The ground of one run.
    #[must_use]
    pub fn new(program: Program, cwd: PathBuf, home: PathBuf, private: PathBuf) -> Self {
        Self { program, cwd, home, private, env: BTreeMap::new(), session_id: String::new() }
    }
}

/// How an agent's program is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The executable: the agent itself, or the interpreter of its script.
    pub path: PathBuf,
    /// Arguments that come before the agent's own, such as the script.
    pub args: Vec<String>,
    /// Its version, where it could be read.
    pub version: Option<Version>,
}

/// Everything that is needed to start an agent, ready to be carried out.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Launch {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Further arguments that only spare its sessions a request each: a process that was started with others here does
    /// as well.
    pub preset: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// What goes to its standard input first.
    pub stdin: String,
    /// Files to write before the start.
    pub files: Vec<NewFile>,
    /// Links to make before the start: where, and to what.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Folders to make before the start if they are not there.
    pub folders: Vec<PathBuf>,
    /// Private folders that the agent only reads. They are made read-only, and a change in one of them fails the run.
    pub read_only: Vec<PathBuf>,
    /// Files that the agent may replace by renaming another over our link: where a file of its own stands after the
    /// run, its content belongs at the second path.
    pub copy_back: Vec<(PathBuf, PathBuf)>,
    /// How it can be told, before the first turn, that the agent holds the rules that it was given.
    pub proof: Option<Proof>,
    /// Files of the workspace that configure the agent and that it must not load. It must confirm that before the run begins.
    pub must_ignore: Vec<String>,
    /// Folder that stands for the agent's home in this run.
    pub agent_home: PathBuf,
    /// The session that this run will write, where we can know it.
    pub session_id: Option<String>,
    /// Names of the caller's variables that the agent does not see.
    pub withheld: Vec<String>,
    /// Values that must not leave in any output.
    pub secrets: Vec<String>,
    /// Things the caller should hear about before the run.
    pub warnings: Vec<Notice>,
    /// How we talk with the agent.
    pub talk: Talk,
    /// The mode that the session shall be in, where the surface sets it for each session.
    pub mode: Option<ModeWish>,
    /// The model, where the surface sets it for each session.
    pub model: Option<ModelWish>,
    /// MCP servers that the session is opened with, where the surface takes them for each session.
    pub servers: BTreeMap<String, McpServer>,
    /// Silence after the answer before a turn is over, where the agent has one.
    pub quiet: Millis,
    /// What the session is opened with beyond the protocol, as JSON, where the agent takes such a thing.
    pub meta: Option<String>,
    /// The workspace as the session is opened with it, where the agent needs another spelling of the same directory.
    pub session_cwd: Option<String>,
    /// Milliseconds since 1970 before which the stored session must not be opened: the agent would spoil it.
    pub not_before: Option<Millis>,
    /// A session that the agent makes at its start though nobody asked for it, by the id that we gave it. What of it
    /// says nothing is to be removed after the process has ended; [`Agent::litter`](crate::Agent::litter) finds it.
    pub litter: Option<String>,
}

impl Launch {
    /// All arguments that the program is started with.
    pub fn arguments(&self) -> impl Iterator<Item = &String> {
        self.args.iter().chain(&self.preset)
    }
}

/// What the model is told in a conversation: the one part of a launch over ACP that another prompt changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Words {
    /// The whole text.
    pub text: String,
    /// Things the caller should hear about it.
    pub warnings: Vec<Notice>,
}

impl Words {
    /// This text, and nothing to be said about it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), warnings: Vec::new() }
    }
}

/// What an agent puts on stderr, before its first turn, about rules that it was given. A turn without `read`, or with
/// `dropped`, means that the rules are not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Proof {
    /// Begins a line when the rules were read.
    pub read: String,
    /// Begins a line when a rule was dropped.
    pub dropped: String,
}

impl Proof {
    /// These two beginnings of lines.
    #[must_use]
    pub fn new(read: impl Into<String>, dropped: impl Into<String>) -> Self {
        Self { read: read.into(), dropped: dropped.into() }
    }
}

/// A file that a launch writes, in a private folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewFile {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub content: Vec<u8>,
    /// It is a copy of a file of the user's as it stands now. A launch that differs in nothing else is the same launch.
    pub copied: bool,
    /// Safety rests on it, though the agent may rewrite it while it starts: once its first session is open, a change
    /// fails the run.
    pub guarded: bool,
}

impl NewFile {
    /// A file with this content.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into(), copied: false, guarded: false }
    }

    /// A copy of a file of the user's.
    #[must_use]
    pub fn copy(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self { copied: true, ..Self::new(path, content) }
    }

    /// The same file, with safety resting on it.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { guarded: true, ..self }
    }
}

/// A warning with a stable word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// A stable word.
    pub code: String,
    /// A sentence.
    pub message: String,
}

impl Notice {
    /// A warning.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
