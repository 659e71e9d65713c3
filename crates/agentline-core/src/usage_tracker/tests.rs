//! Tests how reported token counts are combined.

use super::*;
use crate::{Failure, FailureKind, LongPrice, Outcome, Price, PriceTable, RunInfo, UsageTotals, Verdict};

fn tokens(input: u64, output: u64) -> Tokens {
    Tokens { input: Some(input), output: Some(output), ..Tokens::default() }
}

fn call(source: UsageSource, id: &str, model: &str, tokens: Tokens) -> TokenCount {
    let mut count = TokenCount::new(source, CountScope::Call(id.into()), tokens);
    count.model = Some(model.into());
    count
}

fn prices() -> PriceTable {
    let long = LongPrice { above: 1_000, input: 4.0, output: 20.0, ..LongPrice::default() };
    let price = Price { input: 2.0, output: 10.0, long: Some(long), ..Price::default() };
    PriceTable::default().with([("m".to_owned(), price)].into())
}

#[test]
fn cumulative_counter_yields_the_difference_unless_it_restarted() {
    assert_eq!(tokens(300, 30).since(tokens(100, 10)), tokens(200, 20));
    assert_eq!(tokens(50, 5).since(tokens(100, 10)), tokens(50, 5));
    let mut usage = UsageTracker::default();
    usage.start_from(tokens(100, 10));
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Session, tokens(250, 40)));
    assert_eq!(usage.total(), tokens(150, 30));
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Session, tokens(400, 50)));
    assert_eq!(usage.total(), tokens(300, 40), "the last total counts, not the sum");
}

#[test]
fn each_number_names_its_source() {
    let mut usage = UsageTracker::default();
    let reported = Tokens { total: Some(137), ..tokens(100, 30) };
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Run, reported));
    usage.take(call(UsageSource::SessionFile, "1", "m", Tokens { cached: Some(40), ..tokens(100, 30) }));
    let usage = usage.usage();
    let from: Vec<_> = usage.origins.iter().map(|(name, source)| (name.as_str(), *source)).collect();
    assert_eq!(
        from,
        [
            ("cached_tokens", UsageSource::SessionFile),
            ("input_tokens", UsageSource::Stream),
            ("output_tokens", UsageSource::Stream),
            ("thought_tokens", UsageSource::Derived),
            ("total_tokens", UsageSource::Stream),
        ]
    );
    assert_eq!(usage.tokens.thoughts, Some(7));
}

#[test]
fn turns_keep_their_order_and_repeats_replace_them() {
    let mut usage = UsageTracker::default();
    usage.take(call(UsageSource::SessionFile, "z", "m", tokens(1, 1)));
    usage.take(call(UsageSource::SessionFile, "a", "n", tokens(2, 2)));
    usage.take(call(UsageSource::SessionFile, "z", "m", tokens(9, 9)));
    let usage = usage.usage();
    let turns: Vec<_> =
        usage.turns.iter().map(|t| (t.turn, t.model.as_deref().unwrap(), t.tokens.input, t.source)).collect();
    assert_eq!(
        turns,
        [(1, "m", Some(9), UsageSource::SessionFile), (2, "n", Some(2), UsageSource::SessionFile)]
    );
    assert_eq!((usage.tokens.input, usage.requests), (Some(11), Some(2)));
}

#[test]
fn usage_reported_by_two_sources_is_counted_once() {
    let mut usage = UsageTracker::default();
    usage.take(call(UsageSource::Stream, "1", "m", tokens(10, 1)));
    usage.take(call(UsageSource::SessionFile, "x", "m", tokens(10, 1)));
    usage.take(call(UsageSource::SessionFile, "y", "m", tokens(20, 2)));
    let usage = usage.usage();
    assert_eq!((usage.by_model["m"].input, usage.turns.len()), (Some(30), 2));
}

#[test]
fn disagreeing_sources_are_reported() {
    let mut usage = UsageTracker::default();
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Run, tokens(100, 30)));
    usage.take(call(UsageSource::SessionFile, "1", "m", tokens(100, 31)));
    assert_eq!(usage.disagreements(), ["`output_tokens`: 30 in the agent's output, 31 in its session file"]);
    // The file covers other requests: it lacks a helper's, or contains an earlier turn.
    usage.take(call(UsageSource::SessionFile, "2", "m", tokens(50, 5)));
    assert_eq!(usage.disagreements(), [""; 0]);

    let mut usage = UsageTracker::default();
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Run, tokens(100, 30)));
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Model("m".into()), tokens(60, 10)));
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Model("n".into()), tokens(40, 10)));
    assert_eq!(
        usage.disagreements(),
        ["`output_tokens`: 30 in the agent's total, 20 in the sum of its models"]
    );
    // One source counts as thoughts what the other counts as answer tokens.
    usage.take(TokenCount::new(
        UsageSource::Stream,
        CountScope::Run,
        Tokens { thoughts: Some(5), ..tokens(100, 15) },
    ));
    assert_eq!(usage.disagreements(), [""; 0]);
    // The models include requests of a helper that the total does not.
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Model("n".into()), tokens(90, 10)));
    assert_eq!(usage.disagreements(), [""; 0]);
}

#[test]
fn run_is_priced_per_call_if_all_calls_are_known() {
    let micros = |charge: Option<crate::Charge>| charge.map(|c| ((c.usd * 1e6).round(), c.estimated));
    let mut usage = UsageTracker::default();
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Model("m".into()), tokens(2_000, 0)));
    // The number of requests is not known.
    assert_eq!(micros(usage.charge(&prices(), None)), Some((4_000.0, true)));
    usage.take(call(UsageSource::SessionFile, "1", "m", tokens(900, 0)));
    assert_eq!(micros(usage.charge(&prices(), None)), Some((4_000.0, true)), "not all calls are known");
    usage.take(call(UsageSource::SessionFile, "2", "m", tokens(1_100, 0)));
    // 900 × 2 + 1,100 × 4
    assert_eq!(micros(usage.charge(&prices(), None)), Some((6_200.0, false)));
    usage.take(TokenCount::new(UsageSource::Stream, CountScope::Model("other".into()), tokens(1, 0)));
    assert_eq!(micros(usage.charge(&prices(), None)), None);

    let mut unnamed = UsageTracker::default();
    unnamed.take(TokenCount::new(UsageSource::Stream, CountScope::Run, tokens(500, 100)));
    assert_eq!(micros(unnamed.charge(&prices(), None)), None);
    assert_eq!(micros(unnamed.charge(&prices(), Some("m"))), Some((2_000.0, false)));
    assert_eq!(micros(UsageTracker::default().charge(&prices(), Some("m"))), None);
}

#[test]
fn conversation_usage_is_the_sum_of_its_runs() {
    let mut outcome =
        Outcome::not_started(&RunInfo::default(), Verdict::Done, Failure::new(FailureKind::NoResult, ""));
    let mut spent = UsageTotals::default();
    spent.add(&outcome);
    assert_eq!((spent.runs, spent.cost_usd), (1, None));
    outcome.usage.tokens = tokens(100, 10);
    outcome.usage.by_model = [("m".to_owned(), tokens(100, 10))].into();
    (outcome.usage.requests, outcome.cost_usd) = (Some(2), Some(0.5));
    spent.add(&outcome);
    spent.add(&outcome);
    assert_eq!((spent.runs, spent.requests, spent.cost_usd), (3, 4, Some(1.0)));
    assert_eq!((spent.tokens.input, spent.by_model["m"].output), (Some(200), Some(20)));
    outcome.cost_usd = None;
    spent.add(&outcome);
    outcome.cost_usd = Some(0.25);
    spent.add(&outcome);
    assert_eq!((spent.cost_usd, spent.known_cost_usd), (None, 1.25));
}

#[test]
fn amounts_have_at_most_six_significant_digits() {
    for (usd, shown) in [
        (0.000_232_900_000_000_000_02, "0.0002329"),
        (0.1 + 0.2, "0.3"),
        (1_234.567_89, "1234.57"),
        (0.0, "0"),
    ] {
        assert_eq!(crate::round_usd(usd).to_string(), shown);
        // A rounded amount stays the same, however often it is stored and read.
        assert_eq!(crate::round_usd(crate::round_usd(usd)).to_string(), shown);
    }
}
