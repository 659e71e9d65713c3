//! Tests the cost limit of an experiment across workers.

use crate::cli::batch::{lines, suite};
use crate::cli::fleet::Fleet;
use agentline_tests::engines::EngineKind;
use serde_json::Value;

/// Returns a suite whose runs cost a quarter of a dollar each.
fn cases(limits: &str, settings: &str) -> String {
    let prompt = "used 10 100 0.25\\nsay hi";
    format!("{limits}cases: [{{id: a, prompt: \"{prompt}\", overrides: {{{settings}}}}}]\nrepeat: 12\n")
}

fn dollars(status: &Value, key: &str) -> f64 {
    status[key].as_f64().unwrap()
}

#[test]
fn cost_limit_holds_across_workers() {
    let Some(fleet) = Fleet::start(EngineKind::Nats) else { return };
    let workers = [fleet.worker(&["-j", "2"]), fleet.worker(&["-j", "2"])];
    suite(&fleet.user, &cases("limits: {cost: 1.1}\n", "max_cost: 0.3"));
    let done = fleet.submit("exp", &[]).end();
    assert_eq!(done.code, 7, "{}", done.err);
    assert!(done.err.contains("limit `cost`"), "{}", done.err);
    let status = fleet.status("exp");
    let (spent, results) = (dollars(&status, "spent_usd"), lines(&done).len());
    // Four runs are in progress at a time, for which at most 0.3 each are reserved.
    assert!((1.1..1.1 + 4.0 * 0.3).contains(&spent), "{status:#}");
    assert!((spent - 0.25 * f64::from(u32::try_from(results).unwrap())).abs() < 1e-6, "{status:#}");
    assert_eq!(dollars(&status, "reserved_usd"), 0.0);
    let text = fleet.agentline(&["batch", "status", "exp"]).out;
    assert!(text.contains("spent and $0.0000 reserved of $1.10"), "{text}");

    let strict = "max_cost: 0.3, model: gemini-2.5-flash";
    suite(&fleet.user, &cases("limits: {cost: 2}\n", strict));
    let done = fleet.submit("strict", &["--strict-budget"]).end();
    assert_eq!(done.code, 7, "{}", done.err);
    let status = fleet.status("strict");
    let spent = dollars(&status, "spent_usd");
    assert!((0.5..=2.0).contains(&spent), "{status:#}");
    for worker in workers {
        worker.end();
    }
}

#[test]
fn strict_budget_needs_a_limit_and_the_cost_of_each_run() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    for (limits, settings, key) in [
        ("", "max_cost: 0.3, model: gemini-2.5-flash", "`--strict-budget`"),
        ("limits: {cost: 2}\n", "model: gemini-2.5-flash", "`max_cost`"),
        ("limits: {cost: 2}\n", "max_cost: 0.3, model: unheard-of", "`model`"),
        ("limits: {cost: 2}\n", "max_cost: 0.3", "`model`"),
        ("limits: {cost: 2}\n", "max_cost: 1.9, model: gemini-2.5-flash", "`limits.cost`"),
    ] {
        suite(&fleet.user, &cases(limits, settings));
        let done = fleet.submit("exp", &["--strict-budget"]).end();
        assert_eq!((done.code, done.err.matches("error:").count()), (2, 1), "{}", done.err);
        assert!(done.err.contains(key), "{key}: {}", done.err);
    }
    let stored = fleet.agentline(&["batch", "status"]);
    assert!(stored.out.is_empty(), "{}", stored.out);
}
