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
mod veil;
mod verdict;
mod view;
mod wire;

pub use acp::acp_dialogue;
pub use agent::{Abilities, Agent, Card, Repertoire, SessionSpot, SignIn, Talk};
pub use cache::{CacheMark, CacheWish};
pub use change::{Change, ChangeSource, DiskChange, FileRow};
pub use claude::ClaudeLines;
pub use config::{Config, Layer};
pub use connection::Connection;
pub use dialogue::{Dialogue, End, Line, Room, Say, ToolFact};
pub use environment::{Divided, Secrets, divide_environment};
pub use event::{Event, ModelInfo, Origin, Record, Started, ToolUse, sample};
pub use extract::{extract_json, extract_json_text, json_candidates};
pub use failure::{Failure, Kind, Phase};
pub use id::{AskId, Millis, RunId, Surface, Version};
pub use input::{
    Answer, Ask, Attachment, AttachmentContent, Clocks, Diff, Disk, Exit, Input, ModeWish, ModelWish, Order,
    PermissionAsk, Ruling, Side, Stream, Want, What, Who,
};
pub use isolation::Isolation;
pub use launch::{Ground, Launch, Look, NewFile, Notice, Plan, Program, Proof, Words};
pub use line::{LineSplitter, Piece};
pub use line_veil::LineVeil;
pub use message::{Block, BlockDiff, Content, ImageSource, Lines, Message, Original, Role, View};
pub use naming::looks_secret;
pub use outcome::{Denial, OUTCOME_SCHEMA, Outcome, RunError};
pub use output::{Output, Rung};
pub use permission::Rule;
pub use policy::{
    Decision, Explained, OUTSIDE_WORKSPACE, Policy, Prospect, Resolved, Stance, UNDETERMINABLE_COMMAND,
};
pub use price::{Charge, LongPrice, Price, PriceSource, PriceTable};
pub use problem::{Problem, Problems, nearest};
pub use promptfoo::promptfoo_view;
pub use raw_json::RawJson;
pub use redact::SessionRedactor;
pub use request::{
    Limits, McpServer, ModelValidation, PermissionMode, RunRequest, Sandbox, SystemMode, Trust,
};
pub use saved::{
    ContentStore, Damage, Entry, HELD_CONTENT, Media, Part, ProjectRef, RootForm, SavedDiff, SavedForm,
    SavedResult, SavedSession, SavedTool, SessionFile, SessionFold, SessionInfo, SessionRoot,
};
pub use session_ledger::{
    CostSource, LedgerCell, LedgerFold, LedgerRow, LedgerTurn, SessionLedger, day_of, ledger,
};
pub use tape::{Act, TAPE_SCHEMA, Tape, TapeHeader, TapePlayer, tape_frame, tape_line};
pub use tool::{ToolKind, ToolStatus};
pub use tool_table::{Items, McpNames, ToolRow, ToolTable};
pub use transcript::{Blocks, Transcript};
pub use usage::{Count, Source, Span, Spent, Tokens, TurnUsage, Usage, UsageBook};
pub use veil::{MARK, SHORTEST_SECRET, Veil};
pub use verdict::{Clock, Limit, Seen, Stop, Verdict, verdict};
pub use view::{BlockOrder, claude_messages, claude_view, unified_message, unified_view};
