//! The report as JSON.

use super::{ExperimentReport, REPORT_SCHEMA, VariantReport};
use crate::stats::{Decision, Distribution, Interval};
use serde_json::{Map, Value, json};

impl ExperimentReport {
    /// Returns the report as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let variants: Map<String, Value> =
            self.variants.iter().map(|variant| (variant.id.clone(), variant_json(variant))).collect();
        let cases: Vec<Value> =
            self.cases.iter().map(|case| json!({"id": case.id, "runs": case.runs})).collect();
        let comparisons: Vec<Value> = self
            .comparisons
            .iter()
            .map(|row| {
                json!({
                    "first": row.first, "second": row.second, "pairs": row.pairs, "difference": row.difference,
                    "interval": row.interval.map(pair), "p_value": row.p_value, "decision": decision_json(&row.decision),
                })
            })
            .collect();
        json!({
            "schema": REPORT_SCHEMA, "name": self.name, "description": self.description, "variants": variants,
            "comparisons": if self.sequential.is_some() { Vec::new() } else { comparisons },
            "sequential": self.sequential.map(|row| json!({
                "pairs": row.pairs, "difference": row.difference, "interval": pair(row.interval),
                "decision": decision_json(&row.decision),
            })),
            "changes": self.changes, "cases": cases, "left_out": self.left_out, "warnings": self.warnings,
        })
    }
}

fn pair(interval: Interval) -> [f64; 2] {
    [interval.low, interval.high]
}

fn decision_json(decision: &Decision) -> Value {
    match decision {
        Decision::First => json!({"better": "first"}),
        Decision::Second => json!({"better": "second"}),
        Decision::Undecided { further_cases } => json!({"better": null, "further_cases": further_cases}),
    }
}

fn distribution_json(values: Option<&Distribution>) -> Value {
    values.map_or(Value::Null, |values| {
        json!({"p50": values.p50, "p95": values.p95, "min": values.min, "max": values.max, "sum": values.sum})
    })
}

fn variant_json(variant: &VariantReport) -> Value {
    json!({
        "settings": variant.settings,
        "runs": variant.runs(),
        "passed": variant.passed,
        "failed": variant.failed,
        "infrastructure": variant.infrastructure,
        "pass_rate": variant.pass_rate(),
        "interval": variant.interval.map(pair),
        "bounds": variant.bounds.map(pair),
        "pass_at_k": variant.pass_k,
        "cost_usd": variant.total_cost_usd,
        "judge_cost_usd": variant.judge_cost_usd,
        "cost_per_run_usd": distribution_json(variant.cost_usd.as_ref()),
        "tokens": distribution_json(variant.tokens.as_ref()),
        "duration_ms": distribution_json(variant.duration_ms.as_ref()),
        "agents": variant.agents,
        "models": variant.models,
    })
}
