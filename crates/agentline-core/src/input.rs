//! All that can happen to a connection. The tape is the list of these.

use crate::{AskId, DiskChange, Limits, Millis, Notice, PriceTable, Proof, RunId, Surface, Tokens};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// Something happened, and when.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// When, since the connection began.
    pub at: Millis,
    /// What.
    pub what: What<'a>,
}

/// What can happen to a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum What<'a> {
    /// The process runs.
    Up,
    /// A whole line came.
    Line {
        /// From where.
        stream: Stream,
        /// The line, without its end.
        text: Cow<'a, str>,
    },
    /// A line came that is longer than the cap; the rest goes on.
    TooLong {
        /// From where.
        stream: Stream,
        /// Its beginning.
        text: Cow<'a, str>,
        /// Its whole length in bytes.
        length: u64,
    },
    /// Bytes came, but no whole line yet.
    Pulse {
        /// From where.
        stream: Stream,
    },
    /// A run begins.
    Prompt {
        /// Its number.
        run: RunId,
        /// What it wants.
        order: Box<Order>,
    },
    /// The host answered a question.
    Answer {
        /// Which one.
        ask: AskId,
        /// With what.
        answer: Answer,
    },
    /// The caller wants a run stopped.
    Cancel {
        /// Which one.
        run: RunId,
        /// By which signal: 2 or 15.
        signal: i32,
    },
    /// The caller should know something about a run.
    Notice {
        /// Which run.
        run: RunId,
        /// What.
        notice: Notice,
    },
    /// No more runs: say goodbye and stop.
    Retire,
    /// Time passed.
    Tick,
    /// The process ended and everything it wrote has been handed in.
    Exit(Exit),
}

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
    /// Something beside the process that belongs to one run.
    Side(RunId, Side),
}

/// What lies beside the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Side {
    /// The session file that the agent writes.
    SessionFile,
    /// The host's own tools.
    ToolHost,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody knows.
    Lost,
}

/// What one run wants.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Order {
    /// The words that go to the agent.
    pub prompt: String,
    /// In which session.
    pub session: Want,
    /// Who runs what where: told in events and outcome.
    pub who: Who,
    /// How long each wait may take.
    pub clocks: Clocks,
    /// What stops it.
    pub limits: Limits,
    /// Whether the disk is looked at when it is over.
    pub settle: bool,
    /// Whether the session file is followed.
    pub follow: bool,
    /// What the session had used before.
    pub before: Tokens,
    /// What a million tokens cost.
    pub prices: PriceTable,
    /// How the agent shows that it holds the rules that it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// Who runs what where.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Who {
    /// The id of this run.
    pub run_id: String,
    /// Which agent.
    pub agent: String,
    /// Its version.
    pub agent_version: Option<String>,
    /// Over which surface.
    pub surface: Option<Surface>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// What to type when the sign-in is missing or refused.
    pub sign_in_hint: Option<String>,
    /// Where the tape is written.
    pub tape: Option<String>,
}

/// In which session a run wants to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Want {
    /// A new one.
    #[default]
    New,
    /// A new one with this id.
    Named(String),
    /// One that is open on this connection.
    Open(String),
    /// One that is stored.
    Load(String),
}

/// How long each wait may take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Clocks {
    /// Until the agent first answers.
    pub startup: Millis,
    /// Silence with nothing pending.
    pub idle: Millis,
    /// Silence while a tool runs.
    pub idle_tool: Millis,
    /// The whole run, waiting for the host's answers left out.
    pub run: Millis,
    /// Until the host has answered a question.
    pub answer: Millis,
    /// Silence after the answer before a turn is over.
    pub quiet: Millis,
    /// Until a process that said its last word has ended.
    pub linger: Millis,
    /// One step of the closing ladder.
    pub rung: Millis,
    /// How long an agent may go on retrying.
    pub patience: Millis,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            startup: 60_000,
            idle: 120_000,
            idle_tool: 600_000,
            run: 600_000,
            answer: 3_600_000,
            quiet: 500,
            linger: 5_000,
            rung: 2_000,
            patience: 90_000,
        }
    }
}

/// A question to the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ask {
    /// May this tool run?
    Permission {
        /// Canonical name.
        tool: String,
        /// The agent's id of the call.
        id: String,
        /// What the agent calls it.
        title: String,
        /// Its arguments.
        input: Option<Box<serde_json::value::RawValue>>,
    },
    /// Read a file for the agent.
    ReadFile {
        /// Which.
        path: String,
    },
    /// Write a file for the agent.
    WriteFile {
        /// Which.
        path: String,
        /// With what.
        text: String,
    },
    /// The run is over: drain its side files into lines, compare the workspace, then answer.
    Settle {
        /// Paths that tools reported, which are looked at wherever they lie.
        reported: Vec<String>,
    },
}

/// The host's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It may.
    Allow,
    /// It may not, and why.
    Deny(String),
    /// Here is the text.
    Text(String),
    /// It is done.
    Done,
    /// It could not be done.
    Error(String),
    /// What is different on the disk.
    Settled(Disk),
}

/// What the shell found on the disk when a run was over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Disk {
    /// The differences.
    pub changes: Vec<DiskChange>,
    /// How the disk spells the paths that tools reported, where links or `..` make a difference.
    pub spelled: BTreeMap<String, String>,
    /// Another run was active in the same workspace, so nobody can say who did what.
    pub shared: bool,
    /// The disk could not be compared at all.
    pub unknown: bool,
}
