//! The report as one HTML page without network access.
//!
//! The summary and the plots are rendered here. The runs are data in the page, which its script shows as a table, so
//! that ten thousand of them stay usable.

mod plots;
mod runs;

use super::text::{dollars, sequential};
use super::{ComparisonRow, ExperimentReport, VariantReport};
use crate::stats::{Decision, Interval};
use runs::{cut, runs, shown};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::{Component, Path};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The longest value of a setting in the page.
const LONGEST_SETTING: usize = 1_000;
/// The number of changed results in the page.
const MOST_CHANGES: usize = 2_000;

/// Renders the page. `base` is its directory, from which its links start.
pub(super) fn render(report: &ExperimentReport, base: &Path) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n",
        name = escaped(&report.name)
    );
    if let Some(description) = &report.description {
        let _ = writeln!(page, "<p>{}</p>", escaped(description));
    }
    for warning in &report.warnings {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    // The answer comes first.
    comparisons(&mut page, report);
    changes(&mut page, report);
    variants(&mut page, &report.variants);
    summary(&mut page, report);
    page += &plots::render(report);
    page += "<section id=\"runs\"><h2>Runs</h2>\n\
             <p class=\"note\">Runs that did not pass come first, each with the first check that failed and what was found \
             instead. Open a run for its prompt, answer, messages and changes.</p>\n<div class=\"controls\">\
             <input id=\"search\" type=\"search\" placeholder=\"Search cases, answers and checks\" aria-label=\"Search\">\
             <select id=\"variant\" aria-label=\"Variant\"><option value=\"\">all variants</option></select>\
             <select id=\"class\" aria-label=\"Class\"><option value=\"\">all classes</option>\
             <option>passed</option><option>failed</option><option>infrastructure</option></select>\
             <output id=\"count\"></output></div>\n<div id=\"list\"></div>\
             <button id=\"more\" hidden>Show more</button>\n</section>\n</main>\n";
    let data = json!({ "runs": runs(report), "links": links(report, base) });
    // `<` could end the element.
    let data = data.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028");
    let _ = write!(
        page,
        "<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    );
    page
}

/// Shows what distinguishes the variants.
fn variants(page: &mut String, variants: &[VariantReport]) {
    if variants.iter().all(|variant| variant.settings.is_empty()) {
        return;
    }
    *page += "<section><h2>Variants</h2>\n<ul class=\"comparisons\">\n";
    for variant in variants {
        let setting = |(name, value): (&String, &Value)| {
            let value = cut(&shown(value), LONGEST_SETTING);
            format!("{} <code>{}</code>", escaped(name), escaped(&value))
        };
        let settings: Vec<String> = variant.settings.iter().map(setting).collect();
        let settings = if settings.is_empty() { "the defaults".to_owned() } else { settings.join(", ") };
        let _ = writeln!(page, "<li><b>{}</b>: {settings}</li>", escaped(&variant.id));
    }
    *page += "</ul></section>\n";
}

/// Shows the cases whose results differ between two experiments.
fn changes(page: &mut String, report: &ExperimentReport) {
    if report.changes.is_empty() {
        return;
    }
    *page += "<section><h2>Changed from A to B</h2>\n<div class=\"scroll changes\"><table><thead><tr><th>Case</th>\
              <th>Variant</th><th>Passed in A</th><th>Passed in B</th></tr></thead>\n<tbody>\n";
    for change in report.changes.iter().take(MOST_CHANGES) {
        let (was, is) = (change.before, change.after);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{} of {}</td><td>{} of {}</td></tr>",
            escaped(&change.case),
            escaped(&change.variant),
            was.0,
            was.1,
            is.0,
            is.1
        );
    }
    *page += "</tbody></table></div>\n";
    if report.changes.len() > MOST_CHANGES {
        let _ = writeln!(page, "<p>and {} more cases</p>", report.changes.len() - MOST_CHANGES);
    }
    *page += "</section>\n";
}

fn summary(page: &mut String, report: &ExperimentReport) {
    let has_judges = report.variants.iter().any(|variant| variant.judge_cost_usd.is_some());
    let names = [
        "Variant",
        "Pass rate",
        "95 % interval",
        "Passed",
        "Failed",
        "Infrastructure",
        "Bounds",
        "Cost (total)",
        "Judges (total)",
        "Tokens (median)",
        "Time (median)",
        "Time (p95)",
        "Agent",
    ];
    let is_shown = |name: &str| has_judges || name != "Judges (total)";
    let header: Vec<&str> = names.into_iter().filter(|name| is_shown(name)).collect();
    let _ = writeln!(
        page,
        "<section><h2>Pass rates</h2>\n<div class=\"scroll\"><table class=\"stacked\"><thead><tr><th>{}</th></tr>\
         </thead>\n<tbody>",
        header.join("</th><th>")
    );
    for variant in &report.variants {
        let agents: Vec<&str> = variant.agents.iter().map(String::as_str).collect();
        let seconds =
            |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{:.1} s", ms / 1000.0));
        let bounds = if variant.infrastructure == 0 { "–".to_owned() } else { range(variant.bounds) };
        let cells = [
            escaped(&variant.id),
            variant.pass_rate().map_or_else(|| "–".into(), percent),
            range(variant.interval),
            variant.passed.to_string(),
            variant.failed.to_string(),
            variant.infrastructure.to_string(),
            bounds,
            variant.total_cost_usd.map_or_else(|| "unknown".into(), dollars),
            variant.judge_cost_usd.map_or_else(|| "–".into(), dollars),
            variant.tokens.map_or_else(|| "unknown".into(), |tokens| format!("{:.0}", tokens.p50)),
            seconds(variant.duration_ms.map(|time| time.p50)),
            seconds(variant.duration_ms.map(|time| time.p95)),
            escaped(&agents.join(", ")),
        ];
        *page += "<tr>";
        for (name, cell) in names.iter().zip(cells).filter(|(name, _)| is_shown(name)) {
            let _ = write!(page, "<td data-name=\"{name}\">{cell}</td>");
        }
        *page += "</tr>\n";
    }
    *page += "</tbody></table></div>\n<p class=\"note\">A run that failed because of the infrastructure says nothing about \
              the agent and is in no pass rate. The bounds are the pass rates if all of these runs had \
              failed, and if all had passed. The cost is that of all runs and tries. The p95 is an \
              observed time: with fewer than 20 runs, the longest one.</p>\n";
    pass_k(page, &report.variants);
    *page += "</section>\n";
}

/// Shows pass@k and pass^k where there are repeats.
fn pass_k(page: &mut String, variants: &[VariantReport]) {
    if variants.iter().all(|variant| variant.pass_k.len() < 2) {
        return;
    }
    *page += "<div class=\"scroll\"><table><thead><tr><th>Variant</th><th>k</th><th>pass@k: at least one of k runs \
              passes</th><th>pass^k: all k runs pass</th><th>Cases with too few runs</th></tr></thead>\n<tbody>\n";
    for variant in variants {
        for row in &variant.pass_k {
            let rate = |rate: Option<f64>| rate.map_or_else(|| "–".into(), percent);
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&variant.id),
                row.k,
                rate(row.any),
                rate(row.all),
                row.left_out
            );
        }
    }
    *page += "</tbody></table></div>\n";
}

fn comparisons(page: &mut String, report: &ExperimentReport) {
    if let (Some(row), [first, second]) = (&report.sequential, report.variants.as_slice()) {
        let text = sequential(row, &first.id, &second.id);
        let _ = writeln!(
            page,
            "<section><h2>Comparison</h2>\n<p>{}</p>\n<p class=\"note\">The comparison may have stopped early. Its \
             confidence sequence is valid whenever it stopped.</p></section>",
            escaped(&text)
        );
        return;
    }
    if report.comparisons.is_empty() {
        return;
    }
    *page += "<section><h2>Comparison</h2>\n<ul class=\"comparisons\">\n";
    for row in &report.comparisons {
        let _ = writeln!(page, "<li>{}</li>", comparison(row));
    }
    *page += "</ul>\n<p class=\"note\">Runs of the same case are compared with each other. p is the probability of a \
              difference at least this large if both variants were equally good; below 0.05, the comparison is \
              decided. With several comparisons, it is corrected for their number.</p></section>\n";
}

fn comparison(row: &ComparisonRow) -> String {
    let (first, second) = (escaped(&row.first), escaped(&row.second));
    let Some(difference) = row.difference else {
        return format!("<b>{first}</b> and <b>{second}</b>: no case has valid runs of both");
    };
    let interval = row.interval.map_or_else(String::new, |interval| {
        format!(" (95 % interval: {:+.1} to {:+.1} points)", interval.low * 100.0, interval.high * 100.0)
    });
    let size = format!(
        "{second} − {first} = {:+.1} percentage points{interval}; p = {:.3}; {} cases",
        difference * 100.0,
        row.p_value,
        row.pairs
    );
    match row.decision {
        Decision::First => format!("<b>{first}</b> is better than <b>{second}</b>: {size}"),
        Decision::Second => format!("<b>{second}</b> is better than <b>{first}</b>: {size}"),
        Decision::Undecided { further_cases } => {
            let more = further_cases.map_or_else(
                || "no difference was observed".to_owned(),
                |cases| {
                    format!("about {cases} further cases would decide if the observed difference is real")
                },
            );
            format!("<b>{first}</b> and <b>{second}</b>: <em>not decided</em>: {size}; {more}")
        }
    }
}

/// Returns the address of each variant's experiment, from the directory of the page.
fn links(report: &ExperimentReport, base: &Path) -> Map<String, Value> {
    let mut links = Map::new();
    let Ok(base) = base.canonicalize() else { return links };
    for variant in report.variants.iter().filter(|variant| !variant.dir.as_os_str().is_empty()) {
        if let Ok(dir) = variant.dir.canonicalize() {
            links.insert(variant.id.clone(), link(&base, &dir).into());
        }
    }
    links
}

/// Returns the relative address of a directory from another one. Both are absolute.
fn link(from: &Path, to: &Path) -> String {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let mut address = "../".repeat(from.components().count() - common);
    for part in to.components().skip(common) {
        if let Component::Normal(name) = part {
            for byte in name.as_encoded_bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                        address.push(char::from(*byte));
                    }
                    byte => {
                        let _ = write!(address, "%{byte:02X}");
                    }
                }
            }
            address.push('/');
        }
    }
    if address.is_empty() { "./".into() } else { address }
}

fn range(interval: Option<Interval>) -> String {
    interval.map_or_else(|| "–".into(), |range| format!("{} to {}", percent(range.low), percent(range.high)))
}

fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 100.0)
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            character => html.push(character),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::RunResult;
    use std::time::{Duration, Instant};

    #[test]
    fn links_lead_from_the_page_to_the_experiment() {
        for (from, to, expected) in [
            ("/a/b", "/a/b/exp", "exp/"),
            ("/a/b", "/a/c d/ü", "../c%20d/%C3%BC/"),
            ("/a/b", "/a/b", "./"),
            ("/a/b", "/", "../../"),
        ] {
            assert_eq!(link(Path::new(from), Path::new(to)), expected, "{from} {to}");
        }
    }

    #[test]
    fn page_with_ten_thousand_runs_stays_small() {
        let results = (0..10_000).map(|n| RunResult {
            attempt: n % 5,
            message: Some("the agent stopped".into()),
            cost_usd: Some(0.01),
            ..RunResult::example(
                &format!("{n:024x}"),
                &format!("case-{}", n / 10),
                ["a", "b"][n as usize / 5 % 2],
                "failed",
            )
        });
        let began = Instant::now();
        let report = ExperimentReport::new("many", &[], &[], results.collect());
        let page = report.html(Path::new("."));
        assert!(page.len() < 8 << 20, "{} bytes", page.len());
        // The sign-flip test takes most of it. This is an unoptimized build on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!((report.variants.len(), report.cases.len()), (2, 1_000));
        assert!(page.contains(">$0.0025<") && page.contains(">$0.0075<"), "the labels of the axis differ");
    }

    #[test]
    fn page_says_what_was_compared_and_what_failed_first() {
        let result =
            |key: &str, variant: &str, class: &str| RunResult::example(key, "case-1", variant, class);
        let results = vec![result("00", "a", "passed"), result("01", "b", "failed")];
        let mut report = ExperimentReport::new("x", &[], &[], results);
        report.description = Some("Two <ways>".into());
        report.variants[1].settings = Map::from_iter([("prompt".to_owned(), "<Think>: {{task}}".into())]);
        let page = report.html(Path::new("."));
        for part in [
            "<p>Two &lt;ways&gt;</p>",
            "<li><b>a</b>: the defaults</li>",
            "<li><b>b</b>: prompt <code>&lt;Think&gt;: {{task}}</code></li>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let position = |class: &str| page.find(&format!("\"class\":\"{class}\"")).expect("a run");
        assert!(position("failed") < position("passed"));
        let (before, after) = (report.clone(), report);
        let mut changed = ExperimentReport::compare(&before, &after);
        assert!(!changed.html(Path::new(".")).contains("Changed from A to B"));
        let row = ("case-1".to_owned(), "b".to_owned());
        changed.changes =
            vec![super::super::ChangedResult { case: row.0, variant: row.1, before: (0, 1), after: (1, 1) }];
        let page = changed.html(Path::new("."));
        assert!(page.contains("<tr><td>case-1</td><td>b</td><td>0 of 1</td><td>1 of 1</td></tr>"), "{page}");
        assert!(page.contains("<li><b>B: b</b>: prompt <code>"), "{page}");
    }

    #[test]
    fn judges_are_in_the_summary_only_if_there_are_any() {
        let mut result = RunResult::example("00", "c", "v", "passed");
        let page = |result: &RunResult| {
            ExperimentReport::new("x", &[], &[], vec![result.clone()]).html(Path::new("."))
        };
        assert!(!page(&result).contains("Judges (total)"));
        result.judge_cost_usd = Some(0.5);
        let page = page(&result);
        assert!(page.contains("<td data-name=\"Judges (total)\">$0.5000</td>"), "{page}");
    }
}
