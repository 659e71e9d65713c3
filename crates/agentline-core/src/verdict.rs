//! Decides the verdict of a run from a few facts, for every agent and surface.

use crate::{Failure, FailureKind, Signal};
use serde::{Deserialize, Serialize};

/// The result of a run in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The agent finished with an answer, and no tool was denied.
    Done,
    /// The agent or its model failed.
    Failed,
    /// The agent's program is not installed.
    NotInstalled,
    /// The agent is not signed in, or the sign-in was rejected.
    NotAuthenticated,
    /// The agent finished with an answer, but tools were denied or not offered.
    DoneWithDenials,
    /// There is no answer, or it was blocked.
    Empty,
    /// A limit stopped the run.
    LimitReached,
    /// A timeout stopped the run.
    TimedOut,
    /// The service refused requests because of quota or load.
    RateLimited,
    /// The answer does not match the schema.
    InvalidOutput,
    /// The workspace is not trusted.
    Untrusted,
    /// The caller cancelled the run.
    Cancelled,
}

impl Verdict {
    /// Returns the name used in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::NotInstalled => "not_installed",
            Self::NotAuthenticated => "not_authenticated",
            Self::DoneWithDenials => "done_with_denials",
            Self::Empty => "empty",
            Self::LimitReached => "limit_reached",
            Self::TimedOut => "timed_out",
            Self::RateLimited => "rate_limited",
            Self::InvalidOutput => "invalid_output",
            Self::Untrusted => "untrusted",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the exit code with which the program `agentline` reports the verdict; for a cancelled run, that of SIGINT.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::NotInstalled => 3,
            Self::NotAuthenticated => 4,
            Self::DoneWithDenials => 5,
            Self::Empty => 6,
            Self::LimitReached => 7,
            Self::TimedOut => 8,
            Self::RateLimited => 9,
            Self::InvalidOutput => 10,
            Self::Untrusted => 11,
            Self::Cancelled => 130,
        }
    }
}

/// The kinds of timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timeout {
    /// The time until the agent's first response.
    Startup,
    /// Silence while nothing is pending.
    Idle,
    /// Silence while a tool runs.
    IdleTool,
    /// The time of the whole run.
    Run,
    /// The caller's deadline.
    Deadline,
    /// The time that the agent spends retrying.
    Patience,
    /// The time until the host answers a request.
    Answer,
    /// The time until the agent obeys a request to stop.
    Cancel,
    /// Silence after the answer.
    Quiet,
    /// The time until the process exits after its result.
    Linger,
}

/// The kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The number of turns.
    Turns,
    /// The number of tool calls.
    ToolCalls,
    /// The number of tokens.
    Tokens,
    /// The number of output tokens.
    OutputTokens,
    /// The cost.
    Cost,
}

/// The reason why agentline stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The caller cancelled it, with this signal.
    Cancel(Signal),
    /// A timeout expired. The text has its length and the last activity.
    Clock(Timeout, String),
    /// A limit was exceeded. The text has the limit and the used amount.
    Limit(Limit, String),
}

/// The facts that the verdict depends on. Every surface fills the same fields.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunFacts {
    /// Whether the agent has sent any output.
    pub has_output: bool,
    /// The result that the agent reported.
    pub end: Option<TurnEnd>,
    /// The most specific failure seen during the run.
    pub hint: Option<Failure>,
    /// The meaning of the agent's exit code, if its agent defines one.
    pub by_exit: Option<Failure>,
    /// The failure after which the agent is retrying, if there was no progress since.
    pub retrying: Option<Failure>,
    /// The failure with which the last answer ended that the agent has recorded.
    pub recorded: Option<Failure>,
    /// Whether there is text or a structured value.
    pub answer: bool,
    /// The number of denied tools.
    pub denied: u32,
    /// The agent's exit code.
    pub exit: Option<i32>,
    /// The signal that ended the agent.
    pub signal: Option<i32>,
    /// Whether the exit status is unknown because the supervisor was killed.
    pub is_lost: bool,
    /// Why the run was stopped.
    pub stop: Option<StopReason>,
    /// Whether the value matches the schema.
    pub fits_schema: Option<bool>,
    /// A change, made during the run, to a file that enforces the policy.
    pub tampered: Option<String>,
}

/// Decides the verdict of a run. No other code does.
#[must_use]
pub fn verdict(facts: &RunFacts) -> (Verdict, Option<Failure>) {
    match &facts.stop {
        Some(StopReason::Cancel(signal)) => {
            return (
                Verdict::Cancelled,
                Some(Failure::new(
                    FailureKind::Cancelled,
                    format!("cancelled by the caller ({})", signal.name()),
                )),
            );
        }
        Some(StopReason::Limit(limit, message)) => {
            let kind = match limit {
                Limit::Turns => FailureKind::MaxTurns,
                Limit::ToolCalls => FailureKind::MaxToolCalls,
                Limit::Tokens => FailureKind::MaxTokens,
                Limit::OutputTokens => FailureKind::MaxOutputTokens,
                Limit::Cost => FailureKind::MaxCost,
            };
            return (Verdict::LimitReached, Some(Failure::new(kind, message.clone())));
        }
        Some(StopReason::Clock(clock, message)) => return on_clock(facts, *clock, message),
        None => {}
    }
    if let Some(change) = &facts.tampered {
        return (Verdict::Failed, Some(Failure::tampered(change)));
    }
    if let Some(end) = &facts.end
        && end.ok
    {
        // The agent reports a part of an answer as a whole one; its record says how the answer ended.
        if let Some(recorded) = &facts.recorded {
            return (verdict_of(recorded.kind), Some(recorded.clone()));
        }
        // The agent gave up after a refused request, and reports that as a normal end.
        if let Some(retrying) = facts.retrying.as_ref().filter(|_| !facts.answer) {
            return (verdict_of(retrying.kind), Some(retrying.clone()));
        }
        let verdict = match () {
            () if facts.fits_schema == Some(false) => Verdict::InvalidOutput,
            () if !facts.answer => Verdict::Empty,
            () if facts.denied > 0 => Verdict::DoneWithDenials,
            () => Verdict::Done,
        };
        let failure = match verdict {
            Verdict::Empty if facts.denied > 0 => Some(
                Failure::new(
                    FailureKind::Empty,
                    "the agent finished without an answer after a tool was denied",
                )
                .hint(crate::hint::PERMIT),
            ),
            Verdict::Empty => Some(Failure::new(FailureKind::Empty, "the agent finished without an answer")),
            Verdict::InvalidOutput => {
                Some(Failure::new(FailureKind::InvalidOutput, "the value does not match the schema"))
            }
            _ => None,
        };
        return (verdict, failure);
    }
    let failure = most_specific_failure(facts);
    if facts.exit == Some(INTERRUPTED) {
        return (Verdict::Cancelled, Some(Failure { kind: FailureKind::Cancelled, ..failure }));
    }
    (verdict_of(failure.kind), Some(failure))
}

/// The exit code of a program that was interrupted, by convention of shells.
const INTERRUPTED: i32 = 130;

/// Decides the verdict after a timeout. If the service was refusing requests, that is the reason, not the silence.
fn on_clock(facts: &RunFacts, clock: Timeout, message: &str) -> (Verdict, Option<Failure>) {
    if let Some(retrying) = &facts.retrying
        && (clock == Timeout::Patience || retrying.kind == FailureKind::RateLimited)
    {
        let mut failure = Failure { message: format!("{}; {message}", retrying.message), ..retrying.clone() };
        if clock == Timeout::Patience && failure.hint.is_none() {
            failure.hint = Some("wait and retry, pass another `--model`, or raise `retry_patience`".into());
        }
        return (verdict_of(failure.kind), Some(failure));
    }
    let kind = match clock {
        Timeout::Startup => FailureKind::TimeoutStartup,
        Timeout::Run | Timeout::Deadline => FailureKind::TimeoutRun,
        _ => FailureKind::TimeoutIdle,
    };
    // A failure before the silence may be more specific: an agent that reports a missing sign-in and then
    // hangs is not signed in.
    match &facts.hint {
        Some(hint) if matches!(hint.kind, FailureKind::NotAuthenticated | FailureKind::Untrusted) => {
            (verdict_of(hint.kind), Some(hint.clone()))
        }
        _ => {
            let failure = Failure::new(kind, message);
            (Verdict::TimedOut, Some(Failure { hint: clock_hint(clock).map(str::to_owned), ..failure }))
        }
    }
}

/// Returns how to change a timeout that has no failure kind of its own.
fn clock_hint(clock: Timeout) -> Option<&'static str> {
    match clock {
        Timeout::IdleTool => {
            Some("raise `--tool-timeout`, which limits the silence of a tool separately from `--timeout`")
        }
        Timeout::Deadline => Some("pass a later `--deadline`"),
        _ => None,
    }
}

/// Returns the failure of a run: the more specific of the agent's own report and the failures seen before.
fn most_specific_failure(facts: &RunFacts) -> Failure {
    let own = facts.end.as_ref().and_then(|end| end.failure.clone());
    // A failure that the agent was retrying counts only if the agent reported no failure of its own.
    let hint = match (facts.hint.clone(), facts.retrying.clone().filter(|_| own.is_none())) {
        (Some(hint), Some(retrying)) => Some(hint.or_more_specific(retrying)),
        (hint, retrying) => hint.or(retrying),
    };
    let reported = match (own, hint) {
        (Some(own), Some(hint)) => Some(own.or_more_specific(hint)),
        (one, other) => one.or(other),
    };
    if let Some(by_exit) = facts.by_exit.clone() {
        return by_exit.explained_by(reported);
    }
    reported.unwrap_or_else(|| unreported_failure(facts))
}

/// Returns the failure of an agent that reported none.
fn unreported_failure(facts: &RunFacts) -> Failure {
    let unexplained = |kind, message: String| Failure::new(kind, message).unexplained();
    match (facts.signal, facts.exit) {
        _ if facts.end.is_some() => {
            unexplained(FailureKind::ApiError, "the agent reported a failure without a reason".into())
        }
        _ if facts.is_lost => Failure::new(
            FailureKind::Crashed,
            "lost the agent: its supervisor was killed, which also killed the agent",
        ),
        (Some(signal), _) => {
            unexplained(FailureKind::Crashed, format!("the agent was killed by signal {signal}"))
        }
        (None, Some(INTERRUPTED)) => unexplained(
            FailureKind::Cancelled,
            format!("the agent was interrupted (exit code {INTERRUPTED})"),
        ),
        (None, Some(code)) => unexplained(
            FailureKind::NoResult,
            format!("the agent exited without a result (exit code {code}); its output may be truncated"),
        ),
        (None, None) => unexplained(FailureKind::NoResult, "the agent exited without a result".into()),
    }
}

fn verdict_of(kind: FailureKind) -> Verdict {
    match kind {
        FailureKind::NotAuthenticated => Verdict::NotAuthenticated,
        FailureKind::NotInstalled => Verdict::NotInstalled,
        FailureKind::RateLimited => Verdict::RateLimited,
        FailureKind::Untrusted => Verdict::Untrusted,
        FailureKind::AgentTurns | FailureKind::MaxRounds => Verdict::LimitReached,
        FailureKind::Empty | FailureKind::Blocked => Verdict::Empty,
        FailureKind::TimeoutIdle | FailureKind::TimeoutRun | FailureKind::TimeoutStartup => Verdict::TimedOut,
        FailureKind::Cancelled => Verdict::Cancelled,
        FailureKind::InvalidOutput => Verdict::InvalidOutput,
        _ => Verdict::Failed,
    }
}

/// The agent's own result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnEnd {
    /// Whether the agent reports success.
    pub ok: bool,
    /// Why the turn ended, if the agent reports it.
    pub stop: Option<String>,
    /// The failure, if the turn failed.
    pub failure: Option<Failure>,
}

impl TurnEnd {
    /// Creates the result of a successful turn.
    #[must_use]
    pub fn ok() -> Self {
        Self { ok: true, stop: None, failure: None }
    }

    /// Creates the result of a failed turn.
    #[must_use]
    pub fn failed(failure: Option<Failure>) -> Self {
        Self { ok: false, stop: None, failure }
    }
}
