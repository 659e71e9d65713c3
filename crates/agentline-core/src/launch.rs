//! The types between a plan and a started process: the launch context and the finished launch.

use crate::{DialogueConfig, McpServer, Millis, RequestedMode, RequestedModel, Version};
use crate::{Notice, PolicyAck};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// The facts about the machine that a launch needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LaunchContext {
    /// The program to start.
    pub program: Program,
    /// The workspace: absolute, with links resolved.
    pub cwd: PathBuf,
    /// The user's home directory.
    pub home: PathBuf,
    /// An empty private directory for this run, which is removed afterwards.
    pub private: PathBuf,
    /// The caller's complete environment.
    pub env: BTreeMap<String, String>,
    /// A new id for a new session.
    pub session_id: String,
}

impl LaunchContext {
    /// Creates a context with an empty environment.
    #[must_use]
    pub fn new(program: Program, cwd: PathBuf, home: PathBuf, private: PathBuf) -> Self {
        Self { program, cwd, home, private, env: BTreeMap::new(), session_id: String::new() }
    }
}

/// The command that starts an agent's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The executable: the agent itself, or the interpreter of its script.
    pub path: PathBuf,
    /// Arguments before the agent's own, such as the script.
    pub args: Vec<String>,
    /// The version, if it could be read.
    pub version: Option<Version>,
}

/// Everything needed to start an agent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Launch {
    /// The executable.
    pub program: PathBuf,
    /// The arguments.
    pub args: Vec<String>,
    /// Additional arguments that set a default for new sessions and so avoid one request per session. They do not
    /// affect whether a process can serve a run.
    pub preset: Vec<String>,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The first text for standard input.
    pub stdin: String,
    /// How to reach the agent, if it serves HTTP and does not read its standard input.
    pub api: Option<LoopbackApi>,
    /// Files to write before the start.
    pub files: Vec<NewFile>,
    /// Links to create before the start: the path and its target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Directories to create before the start if they do not exist.
    pub dirs: Vec<PathBuf>,
    /// Private directories that the agent only reads. They are made read-only, and a change in one of them fails the
    /// run.
    pub read_only: Vec<PathBuf>,
    /// Links that the agent may replace with a file by renaming. If the first path is a regular file after the run, its
    /// content is copied to the second path.
    pub copy_back: Vec<(PathBuf, PathBuf)>,
    /// How to detect, before the first turn, that the agent's rules are in force.
    pub proof: Option<PolicyAck>,
    /// Files of the workspace that configure the agent and that it must not load. It must confirm that before the run
    /// starts.
    pub must_ignore: Vec<String>,
    /// The directory below which the agent stores its sessions in this run.
    pub agent_home: PathBuf,
    /// The session that this run will write, if known.
    pub session_id: Option<String>,
    /// Names of the caller's variables that the agent does not see.
    pub withheld: Vec<String>,
    /// Values that must not appear in any output.
    pub secrets: Vec<String>,
    /// Warnings for the caller.
    pub warnings: Vec<Notice>,
    /// The configuration of the dialogue.
    pub dialogue: DialogueConfig,
    /// The mode of the session, if the surface sets it per session.
    pub mode: Option<RequestedMode>,
    /// The model, if the surface sets it per session.
    pub model: Option<RequestedModel>,
    /// MCP servers of the session, if the surface accepts them per session.
    pub servers: BTreeMap<String, McpServer>,
    /// The MCP servers of the request whose tools need no permission where no rule decides.
    pub trusted_servers: Vec<String>,
    /// Silence after the answer before a turn ends, if the agent needs it.
    pub quiet: Millis,
    /// Extensions of the protocol for opening the session, as JSON, if the agent supports any.
    pub meta: Option<String>,
    /// The workspace path for opening the session, if the agent needs another spelling of the same directory.
    pub session_cwd: Option<String>,
    /// Milliseconds since 1970 before which the stored session must not be opened, because the agent would damage it.
    pub not_before: Option<Millis>,
    /// The assigned id of a session that the agent creates on startup without a request. If it stays empty, it is
    /// removed after the process has exited; [`SessionSource::abandoned`](crate::SessionSource::abandoned) finds it.
    pub abandoned: Option<String>,
}

/// How to reach an agent that serves HTTP on the loopback interface.
///
/// The shell starts the agent with a new password and reads its address from its output. A frame of the dialogue is then
/// a request, as a JSON object with `id`, `method`, `path` and `body`. A line of its standard output is a message:
/// `{"stream":"open"}` when the event stream is open (again), `{"event":…}`, `{"id":…,"status":200,"body":…}`,
/// `{"id":…,"error":"…"}`, or `{"stream":"closed","error":"…"}` at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopbackApi {
    /// The text at the start of the line with which the agent prints its address, before the address.
    pub announcement: String,
    /// The path of the stream of server-sent events.
    pub events: String,
    /// The user name for the password.
    pub user: String,
    /// The environment variable for the password.
    pub password_variable: String,
}

impl LoopbackApi {
    /// Creates the description of an API.
    #[must_use]
    pub fn new(announcement: &str, events: &str, user: &str, password_variable: &str) -> Self {
        Self {
            announcement: announcement.into(),
            events: events.into(),
            user: user.into(),
            password_variable: password_variable.into(),
        }
    }
}

impl Launch {
    /// Returns all arguments of the program.
    pub fn arguments(&self) -> impl Iterator<Item = &String> {
        self.args.iter().chain(&self.preset)
    }
}

/// The text for the model in a conversation: the only part of a launch over ACP that depends on the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptText {
    /// The complete text.
    pub text: String,
    /// Warnings for the caller.
    pub warnings: Vec<Notice>,
}

impl PromptText {
    /// Creates a text without warnings.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), warnings: Vec::new() }
    }
}

/// A file that a launch writes to a private directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewFile {
    /// The path.
    pub path: PathBuf,
    /// The content.
    pub content: Vec<u8>,
    /// Whether the file is a copy of a user's file. Launches that differ only in such files count as identical.
    pub copied: bool,
    /// Whether security depends on the file, although the agent may rewrite it during startup. A change after the first
    /// session is open fails the run.
    pub guarded: bool,
}

impl NewFile {
    /// Creates a file with this content.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into(), copied: false, guarded: false }
    }

    /// Creates a copy of a user's file.
    #[must_use]
    pub fn copy(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self { copied: true, ..Self::new(path, content) }
    }

    /// Marks the file as guarded.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { guarded: true, ..self }
    }
}
