//! The core of agentline: turns lines into events, requests and frames, without I/O, clock or runtime.
//!
//! ```text
//! bytes ─▶ line ─▶ Input ─▶ Connection ─▶ output ─▶ events, frames, requests, outcome
//!                              │  ▲
//!                    Dialogue ─┘  └─ RunState: timeouts, limits, changes, usage, verdict
//! ```
//!
//! A [`Connection`] is one agent process as a state machine. A [`Dialogue`] translates one surface of one agent; it is
//! defined in that agent's directory under [`agents`]. A tape is the list of [`Input`]s. The crate `agentline` is the
//! shell around the core.

mod acp;
mod agent;
mod agent_description;
mod agent_id;
mod agent_option;
mod agent_settings;
pub mod agents;
mod cache;
mod change;
mod change_tracker;
mod claude;
pub mod config;
mod connection;
pub mod detect;
mod dialogue;
mod environment;
mod event;
mod event_line;
mod explain;
mod extract;
mod failure;
mod filesystem;
mod hint;
mod hosted_tools;
mod id;
mod input;
mod isolation;
mod launch;
mod line;
mod mcp_server;
#[cfg(test)]
mod memory_fs;
mod message;
mod naming;
mod notice;
mod outcome;
mod output;
mod permission;
mod plan;
mod policy;
mod price;
mod problem;
mod promptfoo;
mod raw_json;
mod redact;
mod request;
pub mod rpc;
mod run;
mod saved;
mod saved_diff;
mod secret;
mod session_database;
mod session_source;
mod session_usage;
mod setup_probe;
mod signal;
mod tape;
pub mod terminal_text;
mod time;
mod tool;
mod tool_table;
mod transcript;
mod transplant;
mod usage;
pub(crate) mod usage_tracker;
mod validate;
mod verdict;
mod view;
mod wire;
mod written_keys;

pub use crate::redact::line_redactor::LineRedactor;
pub use crate::redact::redactor::Redactor;
pub use crate::session_usage::{
    PromptTotals, SessionUsage, SessionUsageReader, UsageCell, UsageEntry, day_of, month_of, session_usage,
    week_of,
};
pub use acp::acp_dialogue;
pub use agent::Agent;
pub use agent_description::{AdapterInfo, AgentDescription, AgentInfo, Features, PYPI, SurfaceFeatures};
pub use agent_id::AgentId;
pub use agent_option::{AgentOption, OptionKind};
pub use agent_settings::{
    AgentProfile, AgentSettings, ErrorPattern, ErrorPlace, ProfileMode, RecordedUsage, ReportedUsage,
};
pub use cache::{CachePolicy, CacheStatus};
pub use change::{ChangeSource, DiskChange, FileChangeKind, FileRow};
pub use claude::ClaudeLines;
pub use config::{Config, Layer};
pub use connection::Connection;
pub use dialogue::{ClientSessions, Concurrency, Dialogue, DialogueConfig, InputLine, Sink, ToolFact};
pub use environment::{FilteredEnv, Secrets, filter_env};
pub use event::{
    EVENTS_SCHEMA, Event, ModelInfo, Origin, PermissionEvent, Record, Started, ToolLocation, ToolResult,
    ToolUse,
};
pub use explain::Explanation;
pub use extract::{extract_json, extract_json_text, json_candidates};
pub use failure::{Failure, FailureKind, Phase};
pub use filesystem::FileSystem;
pub use id::{HostRequestId, Millis, RunId, Surface, Version};
pub use input::{
    Attachment, AttachmentContent, Diff, DiskReport, ExitReason, HostRequest, HostResponse, Input, InputKind,
    PermissionDecision, PermissionRequest, PolicyAck, RequestedMode, RequestedModel, RunInfo, SessionTarget,
    SideChannel, Stream, Timeouts, TurnSpec,
};
pub use isolation::Isolation;
pub use launch::{Launch, LaunchContext, LoopbackApi, NewFile, Program, PromptText};
pub use line::{LineSplitter, SplitItem};
pub use mcp_server::McpServer;
pub use message::{Block, BlockDiff, Content, ImageSource, Message, Original, Role, StreamLines, View};
pub use naming::looks_secret;
pub use notice::Notice;
pub use outcome::{Denial, OUTCOME_SCHEMA, Outcome, RunError};
pub use output::{ConnectionOutput, Outputs, ShutdownStep};
pub use permission::{Rule, RuleError};
pub use plan::Plan;
pub use policy::{
    NativeDecision, OUTSIDE_WORKSPACE, Policy, PolicyDecision, ResolvedPath, ToolUseContext,
    UNDETERMINABLE_COMMAND,
};
pub use price::{Charge, CostSource, LongPrice, Price, PriceSource, PriceTable};
pub use problem::{Problem, Problems, error_chain, nearest};
pub use promptfoo::promptfoo_view;
pub use raw_json::{RawJson, sample};
pub use redact::SessionRedactor;
pub use request::{Limits, ModelValidation, PermissionMode, RunRequest, Sandbox, SystemMode, Trust};
pub use saved::{
    ContentStore, Entry, EntryPart, MAX_CONTENT_IN_MEMORY, Media, ProjectRef, ReadError, RootFormat,
    SavedResult, SavedSession, SavedTool, SessionFile, SessionFormat, SessionInfo, SessionReader,
    SessionRoot, SlashCommand,
};
pub use saved_diff::SavedDiff;
pub use secret::{MARK, SHORTEST_SECRET};
pub use session_database::{Readable, SessionDatabase, SessionRow, TableRow, TableSource};
pub use session_source::{SessionFilePattern, SessionSource, SessionWriter};
pub use setup_probe::{SetupContext, SetupProbe, SignIn};
pub use signal::Signal;
pub use tape::{
    TAPE_SCHEMA, Tape, TapeAction, TapeHeader, TapePlayer, TapeSession, tape_client_message, tape_frame,
    tape_line,
};
pub use tool::{ToolKind, ToolStatus};
pub use tool_table::{Items, McpNames, ToolRow, ToolTable};
pub use transcript::{Blocks, Transcript};
pub use transplant::{Loss, LossKind, NewSession, NewSessionStorage, TransplantContext, transplant_losses};
pub use usage::{
    ContextWindow, CountScope, TokenCount, Tokens, TurnUsage, Usage, UsageSource, UsageTotals, round_usd,
};
pub use usage_tracker::UsageTracker;
pub use verdict::{Limit, RunFacts, StopReason, Timeout, TurnEnd, Verdict, verdict};
pub use view::{BlockOrder, claude_messages, claude_view, unified_message, unified_view};
