//! The end of a turn: its stop reason and its token usage.

use super::{Acp, Step, Turn, profile::AcpProfile};
use crate::{
    CountScope, Event, Failure, FailureKind, ReportedUsage, RunId, SessionTarget, Sink, TokenCount, Tokens,
    TurnEnd, UsageSource,
    rpc::RpcResult,
    wire::{List, Num, Str, Tolerant as _, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

wire! { struct Answered<'a> { stop: Str<'a> = "stopReason", usage: Option<Usage<'a>> = "usage", meta: Meta<'a> = "_meta" } }
wire! { struct RequestMeta<'a> { usage: Option<Usage<'a>> = "usage" } }
wire! { struct Meta<'a> { quota: Quota<'a> = "quota", usage: Option<Usage<'a>> = "usage" } }
wire! { struct Quota<'a> { count: Option<Usage<'a>> = "token_count", models: List<ModelUsage<'a>> = "model_usage" } }
wire! { struct ModelUsage<'a> { model: Str<'a> = "model", count: Usage<'a> = "token_count" } }
wire! { struct Usage<'a> {
    input: Num = "inputTokens", output: Num = "outputTokens", total: Num = "totalTokens", thoughts: Num = "thoughtTokens",
    cached: Num = "cachedReadTokens", written: Num = "cachedWriteTokens", input2: Num = "input_tokens",
    output2: Num = "output_tokens", total2: Num = "total_tokens", cached2: Num = "cachedInputTokens",
    written2: Num = "cacheWriteInputTokens", thoughts2: Num = "reasoningOutputTokens",
} }

/// The prompt after a denial that ended the turn.
const CONTINUE: &str = "The use of the tool was denied. Continue without it. If the task cannot be completed without it, say \
                        what is missing.";

/// The stop reason of an answer that reached the token limit.
const MAX_TOKENS: &str = "max_tokens";

/// The number of denials after which an agent that ends its turn is not prompted again.
const MAX_CONTINUED: u32 = 10;

/// The total usage of the prompts of one run.
#[derive(Debug, Default)]
pub(super) struct PromptUsage {
    all: Option<Tokens>,
    models: BTreeMap<String, Tokens>,
    /// What the agent reports instead, if some usage was not reported.
    unknown: Option<&'static str>,
}

impl Acp {
    pub(super) fn answered(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step == Step::Working) else { return };
        turn.step = Step::Answered;
        turn.tools.turn_over(run, &*self.profile, sink);
        turn.report_unreported(run, &*self.profile, sink);
        let (answer, failure) = match result {
            Ok(result) => (serde_json::from_str::<Answered<'_>>(result.get()).unwrap_or_default(), None),
            Err(error) if self.profile.is_cut_off(&error) => {
                (Answered::default(), failure_of(MAX_TOKENS, turn))
            }
            Err(error) => {
                let failure = self.profile.failure(&error);
                // The agent may have said more about the failure before.
                let failure = match self.profile.take_failure(run) {
                    Some(reported) => failure.or_more_specific(reported),
                    None => failure,
                };
                // Some agents report an error as text too.
                let _ = turn.held.take_failure(run, sink);
                (Answered::default(), Some(failure))
            }
        };
        if turn.stopping {
            turn.held.restore(run, sink);
        }
        let tools = turn.tools.count() > 0;
        let session = turn.session.as_ref().and_then(|id| self.sessions.get_mut(id));
        turn.spent.add(run, &answer, tools, session.map(|session| &mut session.spent), &*self.profile, sink);
        let gave_up = turn.gave_up.take().filter(|_| !turn.stopping);
        if let Some(failure) = failure {
            turn.held.restore(run, sink);
            return sink.end(run, TurnEnd::failed(gave_up.or(Some(failure))));
        }
        let stop = answer.stop.own();
        let reported = gave_up.or_else(|| self.profile.take_failure(run).filter(|_| !turn.stopping));
        if let Some(failure) = reported {
            let _ = turn.held.take_failure(run, sink);
            return sink.end(run, TurnEnd { ok: false, stop: Some(stop), failure: Some(failure) });
        }
        let refusals = turn.tools.refusals();
        // Some agents report that as a normal end, without a word about the denial.
        let is_silent = turn.denials_before_text < refusals && turn.held.is_empty();
        let is_ended_by_denial = stop == "cancelled" || (stop == "end_turn" && is_silent);
        // A client sees how the agent itself has ended the turn.
        let continues = self.link.is_none()
            && self.profile.quirks().denial_ends_turn
            && is_ended_by_denial
            && !turn.stopping;
        if continues && refusals > turn.continued_after && refusals <= MAX_CONTINUED {
            turn.continued_after = refusals;
            turn.held.restore(run, sink);
            return self.send_prompt(run, CONTINUE, false, sink);
        }
        // Every answer but the last has a call.
        let is_new = matches!(turn.spec.session, SessionTarget::New | SessionTarget::Named(_));
        let most_answers = is_new.then(|| turn.tools.count() + usize::try_from(turn.prompts).unwrap_or(1));
        let failure = match self.profile.stop(&stop, most_answers) {
            Some(failure) => failure,
            None => failure_of(&stop, turn),
        };
        let failure = match failure {
            Some(failure) => {
                turn.held.restore(run, sink);
                Some(failure)
            }
            None => turn.held.take_failure(run, sink),
        };
        sink.end(run, TurnEnd { ok: failure.is_none(), stop: Some(stop).filter(|s| !s.is_empty()), failure });
    }
}

/// Translates the protocol's stop reasons. `None` means success.
fn failure_of(stop: &str, turn: &Turn) -> Option<Failure> {
    let (kind, text) = match stop {
        "end_turn" => return None,
        "max_turn_requests" => (FailureKind::AgentTurns, "the agent reached its own turn limit"),
        MAX_TOKENS if turn.has_text => {
            (FailureKind::ApiError, "the answer was truncated at the model's token limit")
        }
        MAX_TOKENS => (FailureKind::Empty, "the model reached its token limit before it answered"),
        "refusal" => (FailureKind::Blocked, "the model refused to continue"),
        "cancelled" if turn.stopping => (FailureKind::Cancelled, "the agent stopped on request"),
        "cancelled" if turn.tools.refusals() > 0 => {
            let text = "the agent ended the turn because a tool was denied";
            return Some(Failure::new(FailureKind::NoResult, text).hint(crate::hint::PERMIT));
        }
        "cancelled" => {
            (FailureKind::NoResult, "the agent reported the turn as cancelled without a request to cancel it")
        }
        "" => (FailureKind::NoResult, "the agent ended the turn without a stop reason"),
        other => {
            let text = format!("the agent ended the turn with an unknown stop reason: `{other}`");
            return Some(Failure::new(FailureKind::NoResult, text));
        }
    };
    Some(Failure::new(kind, text))
}

impl PromptUsage {
    /// Adds the tokens of one request, from the `_meta` of an update.
    pub(super) fn add_request(
        &mut self,
        run: RunId,
        meta: &RawValue,
        profile: &dyn AcpProfile,
        sink: &mut Sink,
    ) {
        let usage = serde_json::from_str::<RequestMeta<'_>>(meta.get()).unwrap_or_default().usage;
        let usage = usage.filter(|usage| usage.is_object());
        let Some(reported) = usage.map(|usage| counted(&usage, profile)) else { return };
        if reported == Tokens::default() {
            return;
        }
        let all = self.all.map_or(reported, |before| before.plus(reported));
        self.all = Some(all);
        sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Run, all));
    }

    /// Returns a warning if some usage was not reported.
    pub(super) fn doubt(&self) -> Option<Event> {
        let text = format!("the agent reports {}, so the usage of this run is unknown", self.unknown?);
        Some(Event::warning("usage_unknown", text))
    }

    fn add(
        &mut self,
        run: RunId,
        answer: &Answered<'_>,
        tools: bool,
        session_total: Option<&mut Option<Tokens>>,
        profile: &dyn AcpProfile,
        sink: &mut Sink,
    ) {
        let reported = [answer.usage.as_ref(), answer.meta.quota.count.as_ref(), answer.meta.usage.as_ref()];
        let reported = reported.into_iter().flatten().find(|usage| usage.is_object());
        let reported = reported.map(|usage| counted(usage, profile));
        let Some(mut reported) = reported.filter(|t| *t != Tokens::default()) else { return };
        let unknown = match profile.quirks().usage {
            ReportedUsage::None | ReportedUsage::PerRequest => return,
            ReportedUsage::PerTurn => None,
            ReportedUsage::LastRequest if !tools => None,
            ReportedUsage::LastRequest => Some("only the tokens of its last request"),
            ReportedUsage::Cumulative => {
                let before = session_total.and_then(|total| total.replace(reported));
                if let Some(before) = before {
                    reported = reported.since(before);
                }
                before.is_none().then_some("the tokens of the whole session, which was not new")
            }
        };
        self.unknown = self.unknown.or(unknown);
        if self.unknown.is_some() {
            return;
        }
        let all = self.all.map_or(reported, |before| before.plus(reported));
        self.all = Some(all);
        let models = &answer.meta.quota.models.0;
        if models.iter().all(|m| !m.model.is_empty() && profile.is_model(&m.model)) {
            for used in models {
                let sum = self.models.entry(used.model.to_string()).or_default();
                *sum = sum.plus(counted(&used.count, profile));
                sink.count(
                    run,
                    TokenCount::new(UsageSource::Stream, CountScope::Model(used.model.to_string()), *sum),
                );
            }
        }
        sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Run, all));
    }
}

/// Returns the tokens that an agent reports. For an agent whose output includes thoughts, 0 of them are unknown ones.
fn counted(usage: &Usage<'_>, profile: &dyn AcpProfile) -> Tokens {
    let all = tokens(usage);
    let is_known = |thoughts: &u64| *thoughts > 0 || !profile.quirks().thoughts_in_output;
    Tokens { thoughts: all.thoughts.filter(is_known), ..all }
}

/// Normalizes token counts: the input includes its cached part, the output excludes thoughts. Agents add them up in
/// different ways; the agent's own total shows which one applies.
fn tokens(usage: &Usage<'_>) -> Tokens {
    let input = usage.input.0.or(usage.input2.0);
    let output = usage.output.0.or(usage.output2.0);
    let cached = usage.cached.0.or(usage.cached2.0);
    let written = usage.written.0.or(usage.written2.0);
    let thoughts = usage.thoughts.0.or(usage.thoughts2.0);
    let total = usage.total.0.or(usage.total2.0);
    let (i, o, t) = (input.unwrap_or(0), output.unwrap_or(0), thoughts.unwrap_or(0));
    let c = cached.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let sum = |parts: &[u64]| Some(parts.iter().fold(0u64, |sum, n| sum.saturating_add(*n)));
    let (cached_apart, thoughts_apart) = match total {
        total if total == sum(&[i, c, o, t]) => (true, true),
        total if total == sum(&[i, c, o]) => (true, false),
        total if total == sum(&[i, o, t]) => (false, true),
        total if total == sum(&[i, o]) => (false, false),
        _ => (true, true),
    };
    Tokens {
        input: input.map(|i| if cached_apart { i.saturating_add(c) } else { i }),
        output: output.map(|o| if thoughts_apart { o } else { o.saturating_sub(t) }),
        cached,
        cache_write: written.filter(|n| *n > 0),
        thoughts,
        total,
        ..Tokens::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> [Option<u64>; 5] {
        let t = tokens(&serde_json::from_str::<Usage<'_>>(raw).unwrap());
        [t.input, t.output, t.cached, t.thoughts, t.total]
    }

    #[test]
    fn total_reveals_whether_cached_tokens_are_included() {
        let n = |n| Some(n);
        assert_eq!(
            read(
                r#"{"inputTokens":85,"outputTokens":25,"totalTokens":135,"thoughtTokens":5,"cachedReadTokens":20}"#
            ),
            [n(105), n(25), n(20), n(5), n(135)]
        );
        assert_eq!(
            read(
                r#"{"totalTokens":795,"inputTokens":495,"cachedReadTokens":120,"cachedWriteTokens":0,"outputTokens":180,"thoughtTokens":30}"#
            ),
            [n(615), n(150), n(120), n(30), n(795)]
        );
        assert_eq!(
            read(
                r#"{"inputTokens":615,"outputTokens":180,"cachedReadTokens":120,"cachedWriteTokens":60,"totalTokens":975}"#
            ),
            [n(795), n(180), n(120), None, n(975)]
        );
        assert_eq!(read(r#"{"input_tokens":400,"output_tokens":80}"#), [n(400), n(80), None, None, None]);
        assert_eq!(
            read(r#"{"inputTokens":100,"outputTokens":30,"cachedReadTokens":40,"totalTokens":130}"#),
            [n(100), n(30), n(40), None, n(130)]
        );
    }
}
