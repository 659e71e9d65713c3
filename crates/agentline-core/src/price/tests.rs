//! Tests every pricing rule against a result calculated by hand.

use super::*;

/// Returns simple prices: input 2, output 10, cached 0.5, written 2.5 and 4; twice that above 1,000 tokens.
fn price() -> Price {
    let long = LongPrice {
        above: 1_000,
        input: 4.0,
        output: 20.0,
        cached: Some(1.0),
        cache_write: Some(5.0),
        cache_write_long: Some(8.0),
    };
    Price {
        input: 2.0,
        output: 10.0,
        cached: Some(0.5),
        cache_write: Some(2.5),
        cache_write_long: Some(4.0),
        long: Some(long),
    }
}

fn tokens(input: u64, output: u64) -> Tokens {
    Tokens { input: Some(input), output: Some(output), ..Tokens::default() }
}

/// Returns the cost in millionths of a dollar, so that the expected results are whole numbers.
fn micros(charge: Option<Charge>) -> (f64, bool) {
    let charge = charge.unwrap();
    ((charge.usd * 1e9).round() / 1e3, charge.estimated)
}

#[test]
fn tokens_are_priced_by_kind() {
    // 500 × 2 + 100 × 10
    assert_eq!(micros(price().charge(&tokens(500, 100), Some(1))), (2_000.0, false));
}

#[test]
fn thoughts_are_priced_as_output_and_tools_as_input() {
    let used = Tokens { thoughts: Some(40), tool: Some(30), ..tokens(500, 100) };
    // (500 + 30) × 2 + (100 + 40) × 10
    assert_eq!(micros(price().charge(&used, Some(1))), (2_460.0, false));
}

#[test]
fn cached_tokens_are_part_of_the_prompt_with_their_own_price() {
    let used = Tokens { cached: Some(400), ..tokens(500, 0) };
    // 100 × 2 + 400 × 0.5
    assert_eq!(micros(price().charge(&used, Some(1))), (400.0, false));
    let same = Price { cached: None, ..price() };
    assert_eq!(micros(same.charge(&used, Some(1))), (1_000.0, false));
    // If an agent reports more cached tokens than prompt tokens, the excess is not billed.
    let odd = Tokens { cached: Some(900), ..tokens(500, 0) };
    assert_eq!(micros(price().charge(&odd, Some(1))), (250.0, false));
}

#[test]
fn cache_writes_are_priced_by_retention() {
    let used =
        Tokens { cached: Some(100), cache_write: Some(300), cache_write_long: Some(200), ..tokens(500, 0) };
    // 100 fresh × 2 + 100 cached × 0.5 + 100 for minutes × 2.5 + 200 for an hour × 4
    assert_eq!(micros(price().charge(&used, Some(1))), (1_300.0, false));
    let no_hour = Price { cache_write_long: None, ..price() };
    // 200 + 50 + 300 × 2.5
    assert_eq!(micros(no_hour.charge(&used, Some(1))), (1_000.0, false));
    let neither = Price { cache_write: None, cache_write_long: None, ..price() };
    // 400 × 2 + 100 × 0.5
    assert_eq!(micros(neither.charge(&used, Some(1))), (850.0, false));
}

#[test]
fn long_prompt_raises_the_price_of_the_whole_request() {
    // At the threshold, the low price still applies.
    assert_eq!(micros(price().charge(&tokens(1_000, 10), Some(1))), (2_100.0, false));
    // 1,001 × 4 + 10 × 20. Cached tokens count towards the length: 1 × 4 + 1,000 × 1 + 10 × 20.
    assert_eq!(micros(price().charge(&tokens(1_001, 10), Some(1))), (4_204.0, false));
    let cached = Tokens { cached: Some(1_000), ..tokens(1_001, 10) };
    assert_eq!(micros(price().charge(&cached, Some(1))), (1_204.0, false));
    // Written for an hour: 1 × 4 + 500 × 5 + 500 × 8
    let written = Tokens { cache_write: Some(1_000), cache_write_long: Some(500), ..tokens(1_001, 0) };
    assert_eq!(micros(price().charge(&written, Some(1))), (6_504.0, false));
}

#[test]
fn several_requests_are_not_one_long_prompt() {
    // Ten prompts of 150 tokens on average: 1,500 × 2. One of them may have been long, so this is an estimate.
    assert_eq!(micros(price().charge(&tokens(1_500, 0), Some(10))), (3_000.0, true));
    // The mean is 1,500 tokens, so the price of long prompts applies.
    assert_eq!(micros(price().charge(&tokens(3_000, 0), Some(2))), (12_000.0, true));
    // The number of requests is not known: the lower price applies, as an estimate.
    assert_eq!(micros(price().charge(&tokens(3_000, 0), None)), (6_000.0, true));
    // The sum is below the threshold, so each prompt is.
    assert_eq!(micros(price().charge(&tokens(900, 0), None)), (1_800.0, false));
}

#[test]
fn unknown_values_have_no_cost() {
    let table = PriceTable::default().with([("m".to_owned(), price())].into());
    assert_eq!(table.charge("other", &tokens(1, 1), Some(1)), None);
    assert_eq!(table.charge("m", &Tokens { output: Some(1), ..Tokens::default() }, Some(1)), None);
    assert_eq!(table.charge("m", &Tokens { input: Some(1), ..Tokens::default() }, Some(1)), None);
    assert_eq!(table.charge("m", &Tokens::default(), Some(1)), None);
    assert_eq!(table.cost(&BTreeMap::new()), None);
    // An unused model without a known price does not affect the cost.
    let both = [("m".to_owned(), tokens(500, 100)), ("other".to_owned(), tokens(0, 0))].into();
    assert_eq!(table.cost(&both).map(|usd| (usd * 1e6).round()), Some(2_000.0));
    let unknown = [("m".to_owned(), tokens(500, 100)), ("other".to_owned(), tokens(1, 0))].into();
    assert_eq!(table.cost(&unknown), None);
}

#[test]
fn dated_release_has_the_price_of_its_model() {
    let names = ["m", "m-lite", "claude-opus-4", "claude-opus-4-1", "m-preview"];
    let table = PriceTable::default().with(names.map(|n| (n.to_owned(), price())).into());
    let row = |model| table.row(model).map(|(row, _)| row);
    for release in
        ["m", "m-001", "m-latest", "m-exp-0827", "m-2025-08-07", "models/m", "google/m-001", "m[1m]"]
    {
        assert_eq!(row(release), Some("m"), "{release}");
    }
    for release in ["m-preview-05-06", "m-preview-09-2025"] {
        assert_eq!(row(release), Some("m-preview"), "{release}");
    }
    assert_eq!(row("m-lite-001"), Some("m-lite"));
    assert_eq!(row("claude-opus-4-1-20250805"), Some("claude-opus-4-1"));
    assert_eq!(row("claude-opus-4-20250514"), Some("claude-opus-4"));
    for other in ["m-flash", "m-5", "m-", "mm", "claude-opus-4-9", "acme/m", "m-lite-tts", ""] {
        assert_eq!(row(other), None, "{other}");
    }
}

#[test]
fn user_prices_override_built_in_prices() {
    let table = PriceTable::built_in();
    let (model, source) = table.sources.iter().find_map(|s| Some((s.models.first()?.clone(), s))).unwrap();
    assert!(!source.maker.is_empty() && !table.is_yours(&model));
    let mine = table.clone().with([(model.clone(), price()), ("new".to_owned(), price())].into());
    assert_eq!((mine.of(&model), mine.of("new")), (Some(price()), Some(price())));
    assert!(mine.is_yours(&model) && mine.is_yours("new") && !mine.is_yours("unlisted"));
    assert_eq!(mine.models.len(), table.models.len() + 1);
    let line = serde_json::to_string(&mine).unwrap();
    assert_eq!(serde_json::from_str::<PriceTable>(&line).unwrap(), mine, "the table round-trips");
}

#[test]
fn built_in_table_is_complete() {
    let sheet: Sheet = toml::from_str(BUILT_IN).unwrap();
    let table = PriceTable::built_in();
    assert_eq!(
        table.models.len(),
        sheet.maker.iter().map(|m| m.models.len()).sum::<usize>(),
        "no model has two rows"
    );
    for source in &table.sources {
        assert_eq!(source.as_of.len(), 10, "{source:?}");
        assert!(source.source.contains("http") && source.models.len() > 5, "{source:?}");
        assert!(table.as_of <= source.as_of);
    }
    for (id, price) in &table.models {
        let rates = [*price].into_iter().chain(price.long.map(LongPrice::rates));
        for rate in rates {
            assert!(rate.input > 0.0 && rate.output > rate.input, "{id}");
            assert!(rate.cached.is_none_or(|c| c > 0.0 && c < rate.input), "{id}");
            assert!(rate.cache_write.is_none_or(|c| c > rate.input), "{id}");
            assert!(rate.cache_write_long.is_none_or(|c| Some(c) > rate.cache_write), "{id}");
        }
        if let Some(long) = price.long {
            assert!(long.above >= 100_000 && long.input > price.input, "{id}");
            assert_eq!(long.cached.is_some(), price.cached.is_some(), "{id}");
            assert_eq!(long.cache_write.is_some(), price.cache_write.is_some(), "{id}");
        }
    }
}
