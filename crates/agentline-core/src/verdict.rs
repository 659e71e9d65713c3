//! The one judge: from the few facts of a run to its verdict, for every agent and surface.

use crate::{End, Failure, Kind};
use serde::{Deserialize, Serialize};

/// Whether a run worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The agent finished and answered, and nothing that it tried was refused.
    Done,
    /// The agent or its model failed.
    Failed,
    /// The agent's program is not here.
    NotInstalled,
    /// No sign-in, or one that was refused.
    NotAuthenticated,
    /// It answered, but tools that it wanted were refused or not offered.
    DoneWithDenials,
    /// No answer, or it was blocked.
    Empty,
    /// A limit stopped it.
    LimitReached,
    /// A clock stopped it.
    TimedOut,
    /// Quota or load.
    RateLimited,
    /// The value does not fit the schema.
    InvalidOutput,
    /// The folder is not trusted.
    Untrusted,
    /// The caller stopped it.
    Cancelled,
}

impl Verdict {
    /// The word for it in outputs.
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
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Until the agent first answers.
    Startup,
    /// Silence with nothing pending.
    Idle,
    /// Silence while a tool runs.
    IdleTool,
    /// The whole run.
    Run,
    /// The caller's deadline.
    Deadline,
    /// The agent went on retrying.
    Patience,
    /// Until the host has answered.
    Answer,
    /// Until the agent has obeyed our stop.
    Cancel,
    /// Silence after the answer.
    Quiet,
    /// Until a process that said its last word has ended.
    Linger,
}

/// Which limit was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Turns.
    Turns,
    /// Tool calls.
    ToolCalls,
    /// Tokens.
    Tokens,
    /// Tokens of the answers.
    OutputTokens,
    /// Cost.
    Cost,
}

/// Why we ourselves stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The caller wanted it, by this signal.
    Cancel(i32),
    /// A clock ran out; the text says how long it was and what was seen last.
    Clock(Clock, String),
    /// A limit was passed; the text says which and by how much.
    Limit(Limit, String),
}

/// All that the verdict may look at. Every surface fills the same few fields.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Seen {
    /// The agent said something.
    pub spoke: bool,
    /// The agent's last word.
    pub end: Option<End>,
    /// The most telling failure on the way.
    pub hint: Option<Failure>,
    /// The agent is trying this again, and nothing has come since.
    pub retrying: Option<Failure>,
    /// There is text or a structured value.
    pub answer: bool,
    /// Tools refused.
    pub denied: u32,
    /// The agent's exit code.
    pub exit: Option<i32>,
    /// A signal ended it.
    pub signal: Option<i32>,
    /// How it ended is not known: its supervisor was killed.
    pub is_lost: bool,
    /// Why we stopped it.
    pub stop: Option<Stop>,
    /// Whether the value fits the schema.
    pub fits_schema: Option<bool>,
    /// A file that safety rests on was changed while the agent ran: which one, and how.
    pub tampered: Option<String>,
}

/// Judges a run. Nothing else does.
#[must_use]
pub fn verdict(seen: &Seen) -> (Verdict, Option<Failure>) {
    match &seen.stop {
        Some(Stop::Cancel(signal)) => {
            let by = if *signal == 15 { "SIGTERM" } else { "SIGINT" };
            return (
                Verdict::Cancelled,
                Some(Failure::new(Kind::Cancelled, format!("stopped by the caller ({by})"))),
            );
        }
        Some(Stop::Limit(limit, why)) => {
            let kind = match limit {
                Limit::Turns => Kind::MaxTurns,
                Limit::ToolCalls => Kind::MaxToolCalls,
                Limit::Tokens => Kind::MaxTokens,
                Limit::OutputTokens => Kind::MaxOutputTokens,
                Limit::Cost => Kind::MaxCost,
            };
            return (Verdict::LimitReached, Some(Failure::new(kind, why.clone())));
        }
        Some(Stop::Clock(clock, why)) => return on_clock(seen, *clock, why),
        None => {}
    }
    if let Some(change) = &seen.tampered {
        return (Verdict::Failed, Some(Failure::tampered(change)));
    }
    if let Some(end) = &seen.end
        && end.ok
    {
        let verdict = match () {
            () if seen.fits_schema == Some(false) => Verdict::InvalidOutput,
            () if !seen.answer => Verdict::Empty,
            () if seen.denied > 0 => Verdict::DoneWithDenials,
            () => Verdict::Done,
        };
        let failure = match verdict {
            Verdict::Empty if seen.denied > 0 => Some(
                Failure::new(Kind::Empty, "the agent finished without an answer after a tool was refused")
                    .hint(crate::hint::PERMIT),
            ),
            Verdict::Empty => Some(Failure::new(Kind::Empty, "the agent finished without an answer")),
            Verdict::InvalidOutput => {
                Some(Failure::new(Kind::InvalidOutput, "the value does not fit the schema"))
            }
            _ => None,
        };
        return (verdict, failure);
    }
    let failure = most_telling(seen);
    (verdict_of(failure.kind), Some(failure))
}

/// A clock ran out. Where the agent was being refused, that is the reason, not the silence.
fn on_clock(seen: &Seen, clock: Clock, why: &str) -> (Verdict, Option<Failure>) {
    if let Some(retrying) = &seen.retrying
        && (clock == Clock::Patience || retrying.kind == Kind::RateLimited)
    {
        let failure = Failure { message: format!("{}; {why}", retrying.message), ..retrying.clone() };
        return (verdict_of(failure.kind), Some(failure));
    }
    let kind = match clock {
        Clock::Startup => Kind::TimeoutStartup,
        Clock::Run | Clock::Deadline => Kind::TimeoutRun,
        _ => Kind::TimeoutIdle,
    };
    // What was seen before the silence may tell more than the silence: an agent that says that it is not signed in
    // and then hangs is not signed in.
    match &seen.hint {
        Some(hint) if matches!(hint.kind, Kind::NotAuthenticated | Kind::Untrusted) => {
            (verdict_of(hint.kind), Some(hint.clone()))
        }
        _ => (Verdict::TimedOut, Some(Failure::new(kind, why))),
    }
}

/// The run failed: the more telling of the agent's own word and of what was seen on the way.
fn most_telling(seen: &Seen) -> Failure {
    let own = seen.end.as_ref().and_then(|end| end.failure.clone());
    // A refusal that the agent was trying to get over counts where it had no last word of its own.
    let hint = match (seen.hint.clone(), seen.retrying.clone().filter(|_| own.is_none())) {
        (Some(hint), Some(retrying)) => Some(hint.or_more_telling(retrying)),
        (hint, retrying) => hint.or(retrying),
    };
    match (own, hint) {
        (Some(own), Some(hint)) => own.or_more_telling(hint),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) if seen.end.is_some() => {
            Failure::new(Kind::ApiError, "the agent said that it failed, but not why")
        }
        (None, None) if seen.is_lost => Failure::new(
            Kind::Crashed,
            "lost the agent: its supervisor was killed, and the agent was killed with it",
        ),
        (None, None) => match (seen.signal, seen.exit) {
            (Some(signal), _) => {
                Failure::new(Kind::Crashed, format!("the agent was ended by signal {signal}"))
            }
            (None, Some(code)) => Failure::new(
                Kind::NoResult,
                format!(
                    "the agent ended without its final word (exit code {code}); its output may be cut off"
                ),
            ),
            (None, None) => Failure::new(Kind::NoResult, "the agent ended without its final word"),
        },
    }
}

fn verdict_of(kind: Kind) -> Verdict {
    match kind {
        Kind::NotAuthenticated => Verdict::NotAuthenticated,
        Kind::NotInstalled => Verdict::NotInstalled,
        Kind::RateLimited => Verdict::RateLimited,
        Kind::Untrusted => Verdict::Untrusted,
        Kind::AgentTurns | Kind::MaxRounds => Verdict::LimitReached,
        Kind::Empty | Kind::Blocked => Verdict::Empty,
        Kind::TimeoutIdle | Kind::TimeoutRun | Kind::TimeoutStartup => Verdict::TimedOut,
        Kind::Cancelled => Verdict::Cancelled,
        Kind::InvalidOutput => Verdict::InvalidOutput,
        _ => Verdict::Failed,
    }
}
