//! Replays every stored tape of a real agent and compares what the caller of the run sees with the stored expectation.

use agentline_tests::tapes::{TapeFiles, event_lines, replay, scenarios, stored, unified_difference};
use std::{collections::BTreeSet, fs};

#[test]
fn every_tape_gives_the_stored_events_and_outcome() {
    let different: Vec<String> = stored()
        .iter()
        .filter_map(|name| {
            let expected = fs::read_to_string(TapeFiles::of(name).expected).expect("an expectation");
            let expected = expected.replace("\r\n", "\n");
            let (_, events) = expected.split_once('\n').expect("facts and events");
            unified_difference(name, events, &event_lines(&replay(name).run))
        })
        .collect();
    let hint = "after an intended change: cargo run -p agentline-tests --bin record-tapes -- --replay";
    assert!(different.is_empty(), "{}\n{hint}", different.join("\n"));
}

#[test]
fn every_scenario_has_a_tape_and_every_tape_a_scenario() {
    let scenarios = scenarios();
    let named: BTreeSet<String> = scenarios
        .iter()
        .flat_map(|scenario| scenario.surfaces.iter().map(|surface| scenario.tape_name(*surface)))
        .collect();
    assert_eq!(named, stored().into_iter().collect());
}
