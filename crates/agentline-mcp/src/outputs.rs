//! The results of the tools as objects with a schema.

use crate::progress::ProgressSummary;
use agentline::{
    Verdict,
    outcome::{FailureKind, FileChangeKind},
};
use schemars::JsonSchema;
use serde::Serialize;

/// A run: its progress, or its result once it is over.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct RunReport {
    /// `starting` and `running`: call agent_wait for the result. `over`: `verdict` and `text` have the result. `refused`:
    /// nothing was started, and `reason` says why.
    pub(crate) status: RunStatus,
    /// The id of the run, for agent_wait, agent_result and agent_cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    /// Why nothing was started, and what to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What to call next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The directory in which the agent works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// The beginning of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// The seconds since the run was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_s: Option<u64>,
    /// What the agent is doing. Only until the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<ProgressSummary>,
    /// The result in one word: `done` and `done_with_denials` (some tools were refused) have an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("enum" = verdicts()))]
    pub(crate) verdict: Option<Verdict>,
    /// The answer of the agent, or a part of it: see `next_offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// If the answer is longer than `text`: the `offset` with which agent_result returns the next part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<usize>,
    /// The files that the agent changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<Vec<ReportedFile>>,
    /// The tools that the agent was not allowed to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denied: Option<Vec<DeniedTool>>,
    /// Why the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<RunFailure>,
    /// The cost in US dollars, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<f64>,
    /// The tokens that the run used, as far as the agent reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<TokenCounts>,
    /// The conversation of the agent: pass it as `resume` to continue it in the same directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    /// The model, as the agent reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The id of the run in logs and saved outcomes of agentline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    /// How many times the agent called its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<u32>,
    /// How many tools the agent used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<u32>,
    /// How long the run took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    /// What the user of the agent should know about this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnings: Option<Vec<String>>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum RunStatus {
    Starting,
    Running,
    Over,
    #[default]
    Refused,
}

impl RunStatus {
    /// Returns the name of the phase.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Over => "over",
            Self::Refused => "refused",
        }
    }
}

/// A file that changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReportedFile {
    /// The path, relative to `cwd` if it is in it.
    pub(crate) path: String,
    /// What happened to the file.
    #[schemars(with = "String", extend("enum" = ["created", "modified", "deleted"]))]
    pub(crate) change: FileChangeKind,
    /// Whether the disk confirms the change.
    pub(crate) verified: bool,
}

/// A tool that was refused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeniedTool {
    /// The name of the tool.
    pub(crate) tool: String,
    /// Why it was refused.
    pub(crate) reason: String,
}

/// An error of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunFailure {
    /// The kind of the error.
    #[schemars(with = "String")]
    pub(crate) kind: FailureKind,
    /// What went wrong.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Whether another attempt can succeed.
    pub(crate) retryable: bool,
}

/// Numbers of tokens.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenCounts {
    /// Prompt tokens, including cached ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<u64>,
    /// Answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<u64>,
    /// The cached part of `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<u64>,
    /// All tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
}

/// The result of `agent_list`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListReport {
    /// The agents that can be started.
    pub(crate) agents: Vec<String>,
    /// The runs of this client, oldest first, without their answers.
    pub(crate) runs: Vec<RunReport>,
    /// The directories in which agents may work. The first one is the default `cwd`.
    pub(crate) directories: Vec<String>,
    /// 0 for a client; for an agent, how many agents above it started one another.
    pub(crate) depth: u32,
    /// The `depth` from which agents cannot start others.
    pub(crate) max_depth: u32,
    /// What all runs have cost so far in US dollars, as far as it is known.
    pub(crate) spent_usd: f64,
    /// What is left of the budget in US dollars. Absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_usd: Option<f64>,
}

/// The result of `sessions_search`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SearchReport {
    /// How many sessions contain the words. `sessions` may be shorter.
    pub(crate) total: usize,
    /// The sessions.
    pub(crate) sessions: Vec<SessionMatch>,
}

/// A saved session that contains the words.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionMatch {
    /// The agent of the session.
    pub(crate) agent: String,
    /// The id of the session: pass it as `resume` to continue it in its directory.
    pub(crate) session_id: String,
    /// The directory of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// The title of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// When the session was last changed, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<u64>,
    /// The first places with the words.
    pub(crate) hits: Vec<SessionHit>,
}

/// A place in a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionHit {
    /// Who wrote it: `user`, `assistant` or `system`.
    pub(crate) role: String,
    /// The line with the words.
    pub(crate) text: String,
}

/// Returns the names of all verdicts.
fn verdicts() -> Vec<&'static str> {
    [
        Verdict::Done,
        Verdict::DoneWithDenials,
        Verdict::Failed,
        Verdict::NotInstalled,
        Verdict::NotAuthenticated,
        Verdict::Empty,
        Verdict::LimitReached,
        Verdict::TimedOut,
        Verdict::RateLimited,
        Verdict::InvalidOutput,
        Verdict::Untrusted,
        Verdict::Cancelled,
    ]
    .map(Verdict::name)
    .into()
}
