//! The plots of a report, as SVG.

use super::{escaped, percent};
use crate::class::Class;
use crate::report::{ExperimentReport, VariantReport};
use std::fmt::Write;

/// The width of a plot.
const WIDTH: f64 = 640.0;
/// The space for the names of variants.
const NAMES: f64 = 150.0;
/// The height of a row.
const ROW: f64 = 28.0;
/// The number of cases in the grid; more would not be readable.
const GRID_CASES: usize = 2_000;

pub(super) fn render(report: &ExperimentReport) -> String {
    let mut plots = String::from("<section class=\"plots\"><h2>Plots</h2>\n");
    plots += &figure("Pass rate with its 95 % interval", &rates(&report.variants));
    if report.variants.iter().any(|variant| variant.cost_usd.is_some()) {
        plots += &figure("Cost per run (to the right) and pass rate (upwards)", &costs(&report.variants));
    }
    let times = |variant: &VariantReport| values(report, &variant.id, |run| Some(run.duration_ms));
    plots += &figure("Time per run in seconds", &distribution(report, times, 1000.0));
    let tokens = |variant: &VariantReport| values(report, &variant.id, |run| run.tokens);
    plots += &figure("Tokens per run", &distribution(report, tokens, 1.0));
    plots += &grid(report);
    plots += "</section>\n";
    plots
}

fn figure(title: &str, svg: &str) -> String {
    if svg.is_empty() {
        return String::new();
    }
    format!("<figure><figcaption>{title}</figcaption>\n{svg}</figure>\n")
}

fn svg(height: f64, content: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n{content}</svg>\n")
}

fn name(y: f64, id: &str) -> String {
    const LONGEST: usize = 16;
    let mut short: String = id.chars().take(LONGEST).collect();
    if short.len() < id.len() {
        short.pop();
        short.push('…');
    }
    format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{}</title></text>\n",
        NAMES - 8.0,
        y + 4.0,
        escaped(&short),
        escaped(id)
    )
}

/// Draws the axis of a plot: lines and labels at fractions of the width.
fn axis(height: f64, label: impl Fn(f64) -> String) -> String {
    let mut content = String::new();
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let x = at(part);
        // The last label must not leave the plot.
        let (label_x, anchor) = if step == 4 { (WIDTH - 1.0, "end") } else { (x, "middle") };
        let _ = writeln!(
            content,
            "<line class=\"axis\" x1=\"{x}\" x2=\"{x}\" y1=\"4\" y2=\"{y}\"/>\
             <text class=\"label\" x=\"{label_x}\" y=\"{text}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(&label(part)),
            y = height - 20.0,
            text = height - 6.0,
        );
    }
    content
}

/// Returns the position of a fraction of the width.
fn at(part: f64) -> f64 {
    NAMES + part.clamp(0.0, 1.0) * (WIDTH - NAMES - 30.0)
}

fn rates(variants: &[VariantReport]) -> String {
    let height = count(variants.len()) * ROW + 32.0;
    let mut content = axis(height, |part| format!("{:.0} %", part * 100.0));
    for (index, variant) in variants.iter().enumerate() {
        let y = (count(index) + 0.5) * ROW + 4.0;
        content += &name(y, &variant.id);
        if let Some(interval) = variant.interval {
            let _ = writeln!(
                content,
                "<line class=\"interval\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
                at(interval.low),
                at(interval.high)
            );
        }
        if let Some(rate) = variant.pass_rate() {
            let title = format!("{}: {}", variant.id, percent(rate));
            let _ = writeln!(
                content,
                "<circle class=\"point\" cx=\"{}\" cy=\"{y}\" r=\"5\"><title>{}</title></circle>",
                at(rate),
                escaped(&title)
            );
        }
    }
    svg(height, &content)
}

fn costs(variants: &[VariantReport]) -> String {
    const HEIGHT: f64 = 240.0;
    let points: Vec<(&str, f64, f64)> = variants
        .iter()
        .filter_map(|variant| {
            let cost = variant.cost_usd?;
            Some((variant.id.as_str(), cost.sum / count(cost.count.max(1)), variant.pass_rate()?))
        })
        .collect();
    let most = points.iter().map(|(_, cost, _)| *cost).fold(f64::MIN_POSITIVE, f64::max);
    // Enough digits to tell the labels apart.
    let digits = (1.0 - (most / 4.0).log10().floor()).clamp(2.0, 9.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number from 2 to 9")]
    let digits = digits as usize;
    let mut content = axis(HEIGHT, |part| format!("${:.digits$}", part * most));
    for (id, cost, rate) in points {
        let (x, y) = (at(cost / most), 12.0 + (1.0 - rate) * (HEIGHT - 48.0));
        let _ = writeln!(
            content,
            "<circle class=\"point\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/><text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{} {}</text>",
            if x > WIDTH / 2.0 { x - 9.0 } else { x + 9.0 },
            y + 4.0,
            if x > WIDTH / 2.0 { "end" } else { "start" },
            escaped(id),
            percent(rate)
        );
    }
    svg(HEIGHT, &content)
}

/// Draws the smallest and largest value, the middle half and the median of each variant.
fn distribution(report: &ExperimentReport, values: impl Fn(&VariantReport) -> Vec<f64>, unit: f64) -> String {
    let rows: Vec<(&str, Vec<f64>)> =
        report.variants.iter().map(|variant| (variant.id.as_str(), values(variant))).collect();
    let most = rows.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let height = count(rows.len()) * ROW + 32.0;
    let mut content = axis(height, |part| short(part * most / unit));
    for (index, (id, values)) in rows.iter().enumerate() {
        let y = (count(index) + 0.5) * ROW + 4.0;
        content += &name(y, id);
        let quantile = |p: f64| crate::stats::quantile(values, p).unwrap_or(0.0) / most;
        if values.is_empty() {
            continue;
        }
        let _ = writeln!(
            content,
            "<line class=\"range\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\
             <rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"12\"/>\
             <line class=\"median\" x1=\"{m}\" x2=\"{m}\" y1=\"{}\" y2=\"{}\"><title>median {}</title></line>",
            at(quantile(0.0)),
            at(quantile(1.0)),
            at(quantile(0.25)),
            y - 6.0,
            (at(quantile(0.75)) - at(quantile(0.25))).max(1.0),
            y - 8.0,
            y + 8.0,
            short(quantile(0.5) * most / unit),
            m = at(quantile(0.5)),
        );
    }
    svg(height, &content)
}

fn values(
    report: &ExperimentReport,
    variant: &str,
    value: impl Fn(&crate::result::RunResult) -> Option<u64>,
) -> Vec<f64> {
    let runs = report.cases.iter().flat_map(|case| &case.runs);
    #[expect(clippy::cast_precision_loss, reason = "tokens and milliseconds are far below 2^53")]
    let values = runs
        .filter(|run| run.variant == variant && run.is_valid())
        .filter_map(value)
        .map(|value| value as f64);
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Shows each run as a square: cases in rows, variants and attempts in columns.
fn grid(report: &ExperimentReport) -> String {
    let variants: Vec<String> = report.variants.iter().map(|variant| escaped(&variant.id)).collect();
    let mut html = format!(
        "<figure><figcaption>Runs by case</figcaption>\n<p class=\"note\">From left to right: {}. ✓ passed, ✗ failed, \
         ? infrastructure.</p>\n<div class=\"grid\">\n",
        variants.join(", ")
    );
    for case in report.cases.iter().take(GRID_CASES) {
        let _ = write!(html, "<div class=\"row\"><span class=\"id\">{}</span>", escaped(&case.id));
        for variant in &report.variants {
            html += "<span class=\"cells\">";
            for run in case.runs.iter().filter(|run| run.variant == variant.id) {
                let (class, sign) = match run.class {
                    Class::Passed => ("passed", "✓"),
                    Class::Failed => ("failed", "✗"),
                    Class::Infrastructure => ("infrastructure", "?"),
                };
                let title = format!("{} · {} · attempt {}: {class}", run.case, run.variant, run.attempt);
                let _ =
                    write!(html, "<span class=\"cell {class}\" title=\"{}\">{sign}</span>", escaped(&title));
            }
            html += "</span>";
        }
        html += "</div>\n";
    }
    if report.cases.len() > GRID_CASES {
        let _ = writeln!(html, "<p>and {} more cases</p>", report.cases.len() - GRID_CASES);
    }
    html += "</div></figure>\n";
    html
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[expect(clippy::cast_precision_loss, reason = "there are few variants")]
fn count(number: usize) -> f64 {
    number as f64
}
