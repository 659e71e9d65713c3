//! The report for a terminal.

use super::{ComparisonRow, ExperimentReport, VariantReport};
use crate::class::Class;
use crate::sequence::SequentialComparison;
use crate::stats::Decision;
use agentline_core::terminal_text::plain;
use std::fmt::Write;

/// The number of runs without success that the report names.
const NAMED: usize = 20;

/// Renders the report. Agents wrote parts of it, so nothing in it controls the terminal.
pub(super) fn render(report: &ExperimentReport) -> String {
    plain(&rendered(report)).into_owned()
}

fn rendered(report: &ExperimentReport) -> String {
    let mut text = format!("{}\n", report.name);
    if let Some(description) = &report.description {
        let _ = writeln!(text, "{description}");
    }
    text.push('\n');
    table(&mut text, &report.variants);
    if let (Some(row), [first, second]) = (&report.sequential, report.variants.as_slice()) {
        let _ = writeln!(text, "\n{}", sequential(row, &first.id, &second.id));
    } else if !report.comparisons.is_empty() {
        text.push('\n');
        for row in &report.comparisons {
            let _ = writeln!(text, "{}", compared(row));
        }
    }
    if !report.changes.is_empty() {
        text += "\nchanged from A to B:\n";
        for change in report.changes.iter().take(NAMED) {
            let (was, is) = (change.before, change.after);
            let _ = writeln!(
                text,
                "  {} · {}: {} of {} passed, now {} of {}",
                change.case, change.variant, was.0, was.1, is.0, is.1
            );
        }
        if report.changes.len() > NAMED {
            let _ = writeln!(text, "  and {} more", report.changes.len() - NAMED);
        }
    }
    let unsuccessful: Vec<_> =
        report.cases.iter().flat_map(|case| &case.runs).filter(|run| run.class != Class::Passed).collect();
    if !unsuccessful.is_empty() {
        text += "\nnot passed:\n";
        for run in unsuccessful.iter().take(NAMED) {
            let reason = run.reason();
            let line = reason.lines().next().unwrap_or_default();
            let _ = writeln!(
                text,
                "  {:<14} {} · {} · attempt {}: {line}",
                run.class.name(),
                run.case,
                run.variant,
                run.attempt
            );
        }
        if unsuccessful.len() > NAMED {
            let _ = writeln!(text, "  and {} more", unsuccessful.len() - NAMED);
        }
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

fn table(text: &mut String, variants: &[VariantReport]) {
    let mut header = vec!["variant", "passed", "95 % interval", "infra", "bounds", "cost"];
    let has_judges = variants.iter().any(|variant| variant.judge_cost_usd.is_some());
    header.extend(has_judges.then_some("judges"));
    header.extend(["median", "p95"]);
    let mut rows: Vec<Vec<String>> = vec![header.iter().map(|&name| name.to_owned()).collect()];
    for variant in variants {
        let range = |interval: Option<crate::stats::Interval>| {
            interval
                .map_or_else(|| "–".into(), |range| format!("{}–{}", percent(range.low), percent(range.high)))
        };
        let rate = variant.pass_rate().map_or_else(|| "–".into(), percent);
        let seconds =
            |value: Option<f64>| value.map_or_else(|| "–".into(), |ms| format!("{:.1} s", ms / 1000.0));
        let bounds = if variant.infrastructure == 0 { "–".into() } else { range(variant.bounds) };
        let mut row = vec![
            variant.id.clone(),
            format!("{}/{} {rate}", variant.passed, variant.passed + variant.failed),
            range(variant.interval),
            variant.infrastructure.to_string(),
            bounds,
            variant.total_cost_usd.map_or_else(|| "unknown".into(), dollars),
        ];
        row.extend(has_judges.then(|| variant.judge_cost_usd.map_or_else(|| "–".into(), dollars)));
        row.push(seconds(variant.duration_ms.as_ref().map(|time| time.p50)));
        row.push(seconds(variant.duration_ms.as_ref().map(|time| time.p95)));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

pub(super) fn dollars(cost: f64) -> String {
    format!("${cost:.4}")
}

fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 100.0)
}

/// Describes a comparison that may have stopped early.
pub(super) fn sequential(row: &SequentialComparison, first: &str, second: &str) -> String {
    let difference = row.difference.unwrap_or(0.0) * 100.0;
    let (low, high) = (row.interval.low * 100.0, row.interval.high * 100.0);
    // A decision excludes 0, even if the interval begins or ends there.
    let range = match row.decision {
        Decision::Second if low <= 0.0 => format!("above 0 to {high:+.1}"),
        Decision::First if high >= 0.0 => format!("{low:+.1} to below 0"),
        _ => format!("{low:+.1} to {high:+.1}"),
    };
    let size = format!("{difference:+.1} points, 95 % confidence sequence {range}, {} pairs", row.pairs);
    match row.decision {
        Decision::First => format!("{first} is better than {second}: {second} is {size}"),
        Decision::Second => format!("{second} is better than {first}: {size}"),
        Decision::Undecided { .. } => format!("{first} and {second}: not decided ({size})"),
    }
}

fn compared(row: &ComparisonRow) -> String {
    let ComparisonRow { first, second, pairs, .. } = row;
    let Some(difference) = row.difference else {
        return format!("{first} and {second}: no case has valid runs of both");
    };
    let range = row.interval.map_or_else(String::new, |range| {
        format!(" (95 % interval {:+.1} to {:+.1} points)", range.low * 100.0, range.high * 100.0)
    });
    let size = format!("{:+.1} points{range}, p = {:.3}, {pairs} pairs", difference * 100.0, row.p_value);
    match row.decision {
        Decision::First => format!("{first} is better than {second}: {second} is {size}"),
        Decision::Second => format!("{second} is better than {first}: {size}"),
        Decision::Undecided { further_cases } => {
            let more = further_cases.map_or_else(
                || "the variants do not differ so far".to_owned(),
                |cases| format!("about {cases} further cases would decide a difference of this size"),
            );
            format!("{first} and {second}: not decided ({size}); {more}")
        }
    }
}
