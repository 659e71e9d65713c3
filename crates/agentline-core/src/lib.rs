//! The core of agentline: turns lines into events, requests and frames, without I/O, clock or runtime.
//!
//! ```text
//! bytes ─▶ line ─▶ Input ─▶ Connection ─▶ Output ─▶ events, frames, questions, outcome
//!                              │  ▲
//!                    Dialogue ─┘  └─ Run: clocks, limits, ledger, usage, verdict
//! ```
//!
//! A [`Connection`] is one agent process as a state machine. A [`Dialogue`] translates one surface of one agent; it is
//! defined in that agent's directory under [`agents`]. A tape is the list of [`Input`]s. The crate `agentline` is the
//! shell around the core.

mod acp;
mod agent;
pub mod agents;
mod cache;
mod change;
mod claude;
pub mod config;
mod connection;
pub mod detect;
mod dialogue;
mod environment;
mod event;
mod event_line;
mod extract;
mod failure;
mod hint;
mod id;
mod input;
mod isolation;
mod launch;
mod ledger;
mod line;
mod line_veil;
#[cfg(test)]
mod map_look;
mod message;
mod moment;
mod naming;
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
mod redactor;
mod request;
mod rpc;
mod run;
mod saved;
mod session_ledger;
mod tape;
mod tool;
mod tool_table;
mod transcript;
mod usage;
mod verdict;
mod view;
mod wire;

pub use acp::acp_dialogue;
pub use agent::{Agent, AgentInfo, DialogueConfig, Features, SessionFilePattern, SignIn, SurfaceFeatures};
pub use cache::{CachePolicy, CacheStatus};
pub use change::{ChangeSource, DiskChange, FileChangeKind, FileRow};
pub use claude::ClaudeLines;
pub use config::{Config, Layer};
pub use connection::Connection;
pub use dialogue::{Concurrency, Dialogue, InputLine, Sink, ToolFact, TurnEnd};
pub use environment::{FilteredEnv, Secrets, filter_env};
pub use event::{Event, ModelInfo, Origin, Record, Started, ToolUse, sample};
pub use extract::{extract_json, extract_json_text, json_candidates};
pub use failure::{Failure, FailureKind, Phase};
pub use id::{HostRequestId, Millis, RunId, Surface, Version};
pub use input::{
    Attachment, AttachmentContent, Diff, DiskReport, ExitReason, HostRequest, HostResponse, Input, InputKind,
    PermissionDecision, PermissionRequest, RequestedMode, RequestedModel, RunInfo, SessionTarget,
    SideChannel, Stream, Timeouts, TurnSpec,
};
pub use isolation::Isolation;
pub use launch::{FileSystem, Launch, LaunchContext, NewFile, Notice, Plan, PolicyAck, Program, PromptText};
pub use line::{LineSplitter, SplitItem};
pub use line_veil::LineRedactor;
pub use message::{Block, BlockDiff, Content, ImageSource, Message, Original, Role, StreamLines, View};
pub use naming::looks_secret;
pub use outcome::{Denial, OUTCOME_SCHEMA, Outcome, RunError};
pub use output::{ConnectionOutput, ShutdownStep};
pub use permission::Rule;
pub use policy::{
    Explanation, NativeDecision, OUTSIDE_WORKSPACE, Policy, PolicyDecision, ResolvedPath, ToolUseContext,
    UNDETERMINABLE_COMMAND,
};
pub use price::{Charge, LongPrice, Price, PriceSource, PriceTable};
pub use problem::{Problem, Problems, nearest};
pub use promptfoo::promptfoo_view;
pub use raw_json::RawJson;
pub use redact::SessionRedactor;
pub use redactor::{MARK, Redactor, SHORTEST_SECRET};
pub use request::{
    Limits, McpServer, ModelValidation, PermissionMode, RunRequest, Sandbox, SystemMode, Trust,
};
pub use saved::{
    ContentStore, Entry, EntryPart, HELD_CONTENT, Media, ProjectRef, ReadError, RootFormat, SavedDiff,
    SavedResult, SavedSession, SavedTool, SessionFile, SessionFormat, SessionInfo, SessionReader,
    SessionRoot,
};
pub use session_ledger::{
    CostSource, SessionUsage, SessionUsageReader, UsageCell, UsageEntry, UsageTurn, day_of, session_usage,
};
pub use tape::{TAPE_SCHEMA, Tape, TapeAction, TapeHeader, TapePlayer, tape_frame, tape_line};
pub use tool::{ToolKind, ToolStatus};
pub use tool_table::{Items, McpNames, ToolRow, ToolTable};
pub use transcript::{Blocks, Transcript};
pub use usage::{CountScope, TokenCount, Tokens, TurnUsage, Usage, UsageSource, UsageTotals, UsageTracker};
pub use verdict::{Limit, RunFacts, StopReason, Timeout, Verdict, verdict};
pub use view::{BlockOrder, claude_messages, claude_view, unified_message, unified_view};
