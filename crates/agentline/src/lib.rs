//! Drives coding-agent command-line tools and reports what they did: the answer, the files that changed, the cost, and
//! whether the run succeeded.
//!
//! ```no_run
//! use agentline::{Agentline, Event, PermissionMode, RunRequest, Verdict};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), agentline::Error> {
//!     agentline::init();
//!     let request = RunRequest::new("Fix the failing test")
//!         .working_dir("/srv/project")
//!         .permission_mode(PermissionMode::AcceptEdits);
//!     let mut run = Agentline::from_env()?.run(request).await?;
//!     while let Some(record) = run.next().await {
//!         if let Event::Text { text } = record.event {
//!             print!("{text}");
//!         } else if let Event::Outcome { outcome } = record.event {
//!             assert_eq!(outcome.verdict, Verdict::Done);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! An invalid request returns its [`Problems`] together; files and directories are checked once it is valid. This example
//! needs no agent:
//!
//! ```
//! use agentline::{Agentline, Error, HostEnv, RunRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let agentline = Agentline::new(HostEnv::new(Default::default(), "/home/user", "/"));
//! let request = RunRequest::new("Name a prime").agent("gemni");
//! let Err(Error::Usage(problems)) = agentline.run(request).await else { unreachable!() };
//! assert_eq!(problems.0[0].message, "`gemni` is not a known agent");
//! # }
//! ```
//!
//! # Where things are
//!
//! - [`Agentline`] starts a [`Run`], a [`Session`] of several prompts, or a [`Pool`] of warm agents. [`RunRequest`] is
//!   what a caller can configure, and [`RunOptions`] adds functions of the program: tools, callbacks and checks.
//! - [`Run`] is a stream of [`Record`]s, each with an [`Event`]; the last one has the [`Outcome`] with its [`Verdict`].
//! - The modules below have the rest, by subject.
//!
//! # Features
//!
//! All are on by default. With none of them, the library still drives agents, with half of the dependencies.
//!
//! - `blocking`: [`blocking::run`](https://docs.rs/agentline/latest/agentline/blocking/), for programs without a runtime.
//! - `diffs`: unified diffs of changed files.
//! - `host`: the protocol for programs in other languages, and the daemon that keeps a pool between programs. Implies
//!   `schema`.
//! - `schema`: answers that match a JSON Schema or a Rust type. Implies `tools`.
//! - `sessions`: the saved sessions of the user's agents.
//! - `tools`: functions of the program as tools, and relayed MCP servers.
//!
//! # Killed programs
//!
//! Nothing that an agent started outlives its run. If the program itself is killed, a *supervisor* ends the run: a second
//! process of the same program. In that process, [`init`] runs the supervisor and does not return, so call it first in
//! `main`.
//!
//! # Tracing
//!
//! The library emits `tracing` spans and events at the boundaries of a run, and nothing without a subscriber. See
//! [the guide](https://docs.rs/crate/agentline/latest/source/docs/library.md).
//!
//! The [guides](https://docs.rs/crate/agentline/latest/source/docs) explain conversations, tools, the pool and the
//! configuration. The crate `agentline-core` has the state machine without I/O, and `agentline-cli` the program.

pub mod admission;
mod agentline;
mod answer_error;
mod api;
#[cfg(feature = "blocking")]
pub mod blocking;
mod blocking_work;
pub mod cache;
pub mod compare;
mod compat;
pub mod detect;
pub mod doctor;
mod error;
mod fs;
#[cfg(feature = "host")]
pub mod host;
pub mod install;
mod isolated;
mod pool;
mod process;
mod resolve;
mod run;
#[cfg(feature = "schema")]
pub mod schema;
#[cfg(not(feature = "schema"))]
#[path = "no_schema.rs"]
mod schema;
#[cfg(feature = "sessions")]
pub mod sessions;
mod settings;
mod text;
#[cfg(feature = "tools")]
pub mod tools;
#[cfg(not(feature = "tools"))]
#[path = "no_tools.rs"]
mod tools;
mod trace;
mod workspace;

pub use crate::agentline::Agentline;
pub use crate::compat::{agent_cli, provider};
pub use crate::detect::HostEnv;
pub use crate::error::Error;
pub use crate::pool::{Pool, PoolOptions};
pub use crate::process::init;
pub use crate::run::acp_process::{AcpProcess, AcpPrompts};
pub use crate::run::options::RunOptions;
pub use crate::run::permission_handler::{Permission, PermissionHandler};
pub use crate::run::session::Session;
#[cfg(feature = "schema")]
pub use crate::run::typed::{Typed, TypedError};
pub use crate::run::{Canceller, Run, completion};
#[cfg(feature = "schema")]
pub use crate::schema::Schema;
#[cfg(feature = "tools")]
pub use crate::tools::{Tool, ToolHost};
pub use crate::workspace::trust;
pub use agentline_core::agents::AgentRegistry;
pub use agentline_core::{
    Agent, AgentId, Event, FailureKind, FileRow, Limits, McpServer, Message, Outcome, PermissionEvent,
    PermissionMode, PermissionRequest, Policy, PriceTable, Problem, Problems, Record, Rule, RunError,
    RunRequest, Signal, Surface, Tokens, ToolKind, ToolResult, ToolStatus, ToolUse, Trust, Usage, Verdict,
};

/// The agents that can be driven, what is known about each, and the interface of an agent of your own.
///
/// A program implements [`Agent`] and [`AgentDescription`](agents::AgentDescription), and registers the agent with
/// [`AgentRegistry::with_agent`].
pub mod agents {
    pub use agentline_core::agents::{AgentRegistry, built_in, find};
    pub use agentline_core::{
        AdapterInfo, Agent, AgentDescription, AgentId, AgentInfo, AgentOption, AgentSettings, Dialogue,
        DialogueConfig, Features, FileSystem, Launch, LaunchContext, NativeDecision, OptionKind, Plan,
        Program, PromptText, SessionSource, SetupProbe, SignIn, SurfaceFeatures, ToolTable, Version,
        acp_dialogue,
    };
}

/// The configuration: its layers, files, keys and defaults.
pub mod config {
    pub use crate::settings::{
        ChangedTrust, Settings, USER_FILE_VARIABLE, WORKSPACE_FILE, build, find_layers, user_file,
        workspace_file,
    };
    pub use agentline_core::config::{ConfigKey, ConfigRow, DEFAULTS, UntrustedUse, WORKSPACE_CONFIG, keys};
    pub use agentline_core::{AgentSettings, Config, Layer};
}

/// The events of a run.
pub mod events {
    pub use agentline_core::{
        Diff, EVENTS_SCHEMA, Event, Millis, ModelInfo, Notice, Origin, Record, Started, ToolKind,
        ToolLocation, ToolStatus, ToolUse,
    };
}

/// Copies of workspaces, in which agents work without touching the original.
pub mod isolate {
    pub use crate::isolated::IsolatedWorkspace;
    pub use crate::workspace::change_in_copy::ChangeInCopy;
    pub use crate::workspace::copy::{ApplyError, StoredChanges, WorkspaceCopy};
    pub use crate::workspace::git::{git, git_with_remote};
    pub use crate::workspace::overlay::{
        IsolationMethod, OverlayPlace, OverlayRoot, enter_namespace, fits_overlay,
    };
    #[cfg(feature = "diffs")]
    pub use crate::workspace::patch::CopyPatch;
    pub use crate::workspace::restore::restore;
    pub use crate::workspace::worktree;
}

/// Messages in one format for all agents, from runs and from saved sessions.
pub mod messages {
    pub use crate::run::messages::{Completer, MessageSource, RunMessages};
    pub use agentline_core::{
        Block, BlockDiff, BlockOrder, ClaudeLines, Content, ImageSource, Message, Original, Role,
        StreamLines, View, claude_messages, claude_view, unified_message, unified_view,
    };
}

/// The outcome of a run: verdict, failure, changed files and denied tools.
pub mod outcome {
    pub use crate::run::Launched;
    pub use agentline_core::{
        CacheStatus, ChangeSource, Denial, DiskChange, Failure, FailureKind, FileChangeKind, FileRow, Limit,
        OUTCOME_SCHEMA, Outcome, Phase, RunError, StopReason, Timeout, Verdict, promptfoo_view,
    };
}

/// The rules that decide which tools an agent may use.
pub mod policy {
    pub use agentline_core::{
        Explanation, PermissionMode, PermissionRequest, Policy, PolicyDecision, ResolvedPath, Rule,
        RuleError, ToolUseContext,
    };
}

/// The status of a pool and its processes.
pub mod pool_status {
    pub use crate::pool::{PoolStatus, ProcessStatus};
}

/// Token prices and the cost of a run.
pub mod prices {
    pub use agentline_core::{Charge, CostSource, LongPrice, Price, PriceSource, PriceTable};
}

/// The settings of a run.
pub mod request {
    pub use agentline_core::{
        CachePolicy, Isolation, Limits, McpServer, ModelValidation, PermissionMode, RunRequest, Sandbox,
        SystemMode, Trust,
    };
}

/// The content of saved sessions.
pub mod saved {
    pub use agentline_core::{
        Entry, EntryPart, Media, ProjectRef, ReadError, SavedDiff, SavedResult, SavedSession, SavedTool,
        SessionFormat, SessionInfo, Transcript,
    };
}

/// The process that ends a run if the program is killed.
///
/// Without a supervisor, the program itself ends what its runs started, at the end of each run and on drop. That covers
/// all but two cases: the sudden death of the program (SIGKILL or an unhandled signal), and a daemon that both left its
/// parent and cleared its environment.
pub mod supervisor {
    pub use crate::process::{Isolation, KillDeadline, Supervisor, adopt_orphans};
}

/// Recorded runs and their replay.
pub mod tape {
    pub use agentline_core::{
        ConnectionOutput, RunInfo, TAPE_SCHEMA, Tape, TapeAction, TapeHeader, TapePlayer, tape_frame,
        tape_line,
    };
}

/// Token counts of runs and sessions.
pub mod usage {
    pub use agentline_core::{
        ContextWindow, CountScope, SessionUsage, TokenCount, Tokens, TurnUsage, Usage, UsageEntry,
        UsageSource, UsageTotals, session_usage,
    };
}

/// Parts of the library that the tests of this workspace use. Not part of the public interface: anything here may
/// change or disappear.
#[doc(hidden)]
pub mod internals {
    pub use crate::fs::disk_fs;
    pub use crate::resolve::attachments;
    pub use crate::run::requests::{HandledRequest, RequestHandler};
    pub use crate::run::validate;
    pub use crate::workspace::{files, snapshot};

    pub mod process {
        pub use crate::process::*;
    }
}

/// Compiles the examples of the README and the documentation pages.
#[cfg(all(doctest, feature = "host", feature = "sessions"))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/conversations.md")]
#[doc = include_str!("../../../docs/library.md")]
#[doc = include_str!("../../../docs/tools.md")]
#[doc = include_str!("../../../docs/pool.md")]
#[doc = include_str!("../../../docs/coming-from.md")]
struct PagesDoctests;
