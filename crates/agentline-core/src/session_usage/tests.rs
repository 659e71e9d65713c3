//! Tests with small sessions whose sums were calculated by hand.

use crate::session_usage::*;
use crate::{EntryPart, LongPrice, Price, Role};

const DAY: Millis = 86_400_000;
/// 2026-11-15 at noon.
const NOON: Millis = 20_772 * DAY + DAY / 2;

/// Returns the test prices: `m` costs 2 and 10, and twice that above 1,000 tokens; `n` costs 1 and 1; other models have
/// no price.
fn prices() -> PriceTable {
    let long = LongPrice { above: 1_000, input: 4.0, output: 20.0, ..LongPrice::default() };
    let m = Price { input: 2.0, output: 10.0, long: Some(long), ..Price::default() };
    let n = Price { input: 1.0, output: 1.0, ..Price::default() };
    let mut table = PriceTable::default().with([("m".to_owned(), m), ("n".to_owned(), n)].into());
    // Treat the prices as built-in ones.
    let models = ["m", "n"].map(str::to_owned).into();
    table.sources.push(crate::PriceSource { models, ..crate::PriceSource::default() });
    table
}

fn prompt(id: &str, at: Millis) -> Entry {
    let mut entry = Entry::new(id, Role::User);
    entry.timestamp = Some(at);
    entry.parts.push(EntryPart::text("do it"));
    entry
}

fn answer(model: &str, input: u64, output: u64, at: Millis) -> Entry {
    let mut entry = Entry::new("a", Role::Assistant);
    entry.timestamp = Some(at);
    entry.model = Some(model.to_owned());
    entry.usage = Some(Tokens { input: Some(input), output: Some(output), ..Tokens::default() });
    entry
}

fn session(entries: Vec<Entry>) -> SavedSession {
    SavedSession { entries, ..SavedSession::default() }
}

fn micros(usd: Option<f64>) -> Option<f64> {
    usd.map(|usd| (usd * 1e6).round())
}

#[test]
fn abandoned_entries_are_counted_without_a_prompt() {
    let mut session = session(vec![prompt("p1", NOON), answer("n", 10, 1, NOON)]);
    session.abandoned = vec![prompt("gone", NOON - DAY), answer("n", 300, 50, NOON - DAY)];
    let session_usage = session_usage(&session, &prices());
    assert_eq!((micros(session_usage.total.cost_usd), session_usage.total.requests), (Some(361.0), 2));
    let prompts: Vec<_> =
        session_usage.by_prompt.iter().map(|t| (t.number, t.prompt.as_deref(), t.row.tokens.input)).collect();
    assert_eq!(prompts, [(0, None, Some(300)), (1, Some("p1"), Some(10))]);
    assert_eq!(session_usage.by_day.keys().collect::<Vec<_>>(), ["2026-11-14", "2026-11-15"]);
}

#[test]
fn usage_is_summed_by_prompt_model_and_day() {
    let session = session(vec![
        prompt("p1", NOON),
        answer("m", 500, 100, NOON),
        answer("n", 300, 50, NOON + 1),
        prompt("p2", NOON + DAY),
        answer("m", 600, 10, NOON + DAY),
    ]);
    let session_usage = session_usage(&session, &prices());
    // m: 500 × 2 + 100 × 10 = 2,000; n: 300 + 50 = 350; m: 600 × 2 + 10 × 10 = 1,300
    assert_eq!((micros(session_usage.total.cost_usd), session_usage.total.requests), (Some(3_650.0), 3));
    assert_eq!(
        (session_usage.total.tokens.input, session_usage.total.tokens.output),
        (Some(1_400), Some(160))
    );
    let prompts: Vec<_> = session_usage
        .by_prompt
        .iter()
        .map(|t| (t.number, t.prompt.as_deref().unwrap(), t.row.requests, micros(t.row.cost_usd)))
        .collect();
    assert_eq!(prompts, [(1, "p1", 2, Some(2_350.0)), (2, "p2", 1, Some(1_300.0))]);
    assert_eq!(session_usage.by_prompt[0].by_model.keys().collect::<Vec<_>>(), ["m", "n"]);
    assert_eq!(micros(session_usage.by_model["m"].cost_usd), Some(3_300.0));
    let days: Vec<_> =
        session_usage.by_day.iter().map(|(day, row)| (day.as_str(), micros(row.cost_usd))).collect();
    assert_eq!(days, [("2026-11-15", Some(2_350.0)), ("2026-11-16", Some(1_300.0))]);
    let cells: Vec<_> = session_usage.cells.iter().map(|c| (c.day.as_str(), c.model.as_str())).collect();
    assert_eq!(cells, [("2026-11-15", "m"), ("2026-11-15", "n"), ("2026-11-16", "m")]);
    assert_eq!(
        (session_usage.total.cost_source, session_usage.unpriced.len()),
        (Some(CostSource::Prices), 0)
    );
}

#[test]
fn long_prompt_price_applies_per_request() {
    let session = session(vec![prompt("p", NOON), answer("m", 900, 0, NOON), answer("m", 1_100, 0, NOON)]);
    let session_usage = session_usage(&session, &prices());
    // 900 × 2 + 1,100 × 4
    assert_eq!(
        (micros(session_usage.total.cost_usd), session_usage.total.cost_estimated),
        (Some(6_200.0), false)
    );
}

#[test]
fn merged_requests_give_an_estimated_cost() {
    let mut merged = answer("m", 1_500, 0, NOON);
    merged.requests = Some(3);
    let session_usage = session_usage(&session(vec![prompt("p", NOON), merged]), &prices());
    assert_eq!((micros(session_usage.total.cost_usd), session_usage.total.requests), (Some(3_000.0), 3));
    assert!(session_usage.total.cost_estimated);
}

#[test]
fn unknown_price_makes_the_total_unknown_but_keeps_known_parts() {
    let session =
        session(vec![prompt("p", NOON), answer("m", 500, 100, NOON), answer("mystery", 500, 100, NOON)]);
    let session_usage = session_usage(&session, &prices());
    assert_eq!(session_usage.total.cost_usd, None);
    assert_eq!(micros(Some(session_usage.total.known_cost_usd)), Some(2_000.0));
    assert_eq!(
        (session_usage.unpriced, session_usage.by_model["m"].cost_usd.is_some()),
        (vec!["mystery".to_owned()], true)
    );
}

#[test]
fn agent_cost_overrides_list_price_but_not_user_price() {
    let mut priced = answer("m", 500, 100, NOON);
    priced.cost_usd = Some(0.005);
    let session = session(vec![prompt("p", NOON), priced, answer("m", 500, 100, NOON)]);
    let listed = session_usage(&session, &prices());
    assert_eq!(
        (micros(listed.total.cost_usd), listed.total.cost_source),
        (Some(7_000.0), Some(CostSource::Mixed))
    );
    let price = Price { input: 1.0, output: 1.0, ..Price::default() };
    let yours = session_usage(&session, &prices().with([("m".to_owned(), price)].into()));
    assert_eq!(
        (micros(yours.total.cost_usd), yours.total.cost_source),
        (Some(1_200.0), Some(CostSource::Prices))
    );
}

#[test]
fn agent_session_cost_fills_gaps_and_is_compared_with_its_parts() {
    let mut unknown = session(vec![prompt("p", NOON), answer("mystery", 500, 100, NOON)]);
    unknown.info.cost_usd = Some(0.25);
    let filled = session_usage(&unknown, &prices());
    assert_eq!((filled.total.cost_usd, filled.total.cost_source), (Some(0.25), Some(CostSource::Agent)));
    assert_eq!(filled.warnings, []);
    unknown.entries[1].cost_usd = Some(0.20);
    let warned = session_usage(&unknown, &prices());
    assert_eq!(warned.total.cost_usd, Some(0.20));
    assert_eq!(warned.warnings.len(), 1);
    assert!(warned.warnings[0].message.contains("$0.2500") && warned.warnings[0].message.contains("$0.2000"));
    unknown.entries[1].cost_usd = Some(0.250_01);
    assert_eq!(session_usage(&unknown, &prices()).warnings, [], "a rounding difference is not reported");
    // A reported cost of zero means that the agent does not know the price.
    unknown.info.cost_usd = Some(0.0);
    unknown.entries[1].cost_usd = Some(0.0);
    assert_eq!(session_usage(&unknown, &prices()).total.cost_usd, None);
}

#[test]
fn sidechain_and_untimed_entries_belong_to_the_preceding_prompt() {
    let mut sidechain = prompt("side", NOON);
    sidechain.sidechain = true;
    let mut helper = answer("n", 10, 0, NOON);
    helper.sidechain = true;
    let mut untimed = answer("n", 5, 0, NOON);
    (untimed.timestamp, untimed.model) = (None, None);
    let session = session(vec![answer("n", 1, 0, NOON), prompt("p", NOON), sidechain, helper, untimed]);
    let session_usage = session_usage(&session, &prices());
    let prompts: Vec<_> = session_usage.by_prompt.iter().map(|t| (t.number, t.row.tokens.input)).collect();
    assert_eq!(prompts, [(0, Some(1)), (1, Some(15))]);
    assert_eq!(
        session_usage.by_day.keys().collect::<Vec<_>>(),
        ["2026-11-15"],
        "an entry without a time has the day of the previous one"
    );
    assert_eq!(session_usage.unpriced, ["unknown"]);
}

#[test]
fn requests_with_the_same_id_are_counted_once() {
    let mut entry = answer("n", 10, 0, NOON);
    entry.counted_as = Some("msg_1:req_1".to_owned());
    let session = session(vec![prompt("p", NOON), entry.clone(), entry, answer("n", 10, 0, NOON)]);
    let session_usage = session_usage(&session, &prices());
    assert_eq!((session_usage.total.requests, session_usage.total.tokens.input), (2, Some(20)));
}

#[test]
fn days_start_in_the_local_time_zone() {
    let prices = prices();
    let mut fold = SessionUsageReader::new(&prices).east_of_utc(13 * 3600);
    fold.take(&answer("n", 1, 0, NOON));
    let mut untimed = answer("n", 1, 0, NOON);
    untimed.timestamp = None;
    assert_eq!(fold.finish(&SessionInfo::default()).by_day.keys().collect::<Vec<_>>(), ["2026-11-16"]);
    let mut fold = SessionUsageReader::new(&prices).east_of_utc(-13 * 3600);
    fold.take(&untimed);
    fold.take(&answer("n", 1, 0, NOON));
    assert_eq!(fold.finish(&SessionInfo::default()).by_day.keys().collect::<Vec<_>>(), ["", "2026-11-14"]);
}

#[test]
fn empty_session_has_no_usage() {
    let session_usage = session_usage(&session(vec![prompt("p", NOON)]), &prices());
    assert!(session_usage.total.is_empty() && session_usage.by_prompt[0].row.is_empty());
    assert_eq!(
        (session_usage.total.cost_usd, session_usage.by_prompt.len(), session_usage.cells.len()),
        (None, 1, 0)
    );
    let shown = serde_json::to_value(&session_usage).unwrap();
    assert_eq!((&shown["requests"], &shown["by_prompt"][0]["number"]), (&0.into(), &1.into()));
}
