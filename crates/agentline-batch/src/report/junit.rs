//! The report as JUnit XML: a test suite per variant, a test case per run. Infrastructure failures are errors, not
//! failures.

use super::ExperimentReport;
use crate::class::Class;
use crate::result::RunResult;
use std::fmt::Write;

pub(super) fn render(report: &ExperimentReport) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"{}\">", escaped(&report.name));
    for variant in &report.variants {
        let runs = || report.cases.iter().flat_map(|case| &case.runs).filter(|run| run.variant == variant.id);
        let seconds: u64 = runs().map(|run| run.duration_ms).sum();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{}\">",
            escaped(&variant.id),
            variant.runs(),
            variant.failed,
            variant.infrastructure,
            time(seconds),
        );
        runs().for_each(|run| test_case(&mut xml, run));
        xml += "  </testsuite>\n";
    }
    xml += "</testsuites>\n";
    xml
}

fn test_case(xml: &mut String, run: &RunResult) {
    let name = if run.attempt == 0 { run.case.clone() } else { format!("{} #{}", run.case, run.attempt + 1) };
    let _ = write!(
        xml,
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{}\"",
        escaped(&name),
        escaped(&run.variant),
        time(run.duration_ms)
    );
    let element = match run.class {
        Class::Passed => {
            xml.push_str("/>\n");
            return;
        }
        Class::Failed => "failure",
        Class::Infrastructure => "error",
    };
    let failed = run.checks.iter().filter(|check| !check.passed);
    let mut lines: Vec<String> = failed.map(|check| format!("{}: {}", check.check, check.detail)).collect();
    lines.extend(run.message.clone());
    let message = lines.first().map_or_else(|| run.verdict.name().to_owned(), Clone::clone);
    let _ = writeln!(
        xml,
        ">\n      <{element} message=\"{}\" type=\"{}\">{}</{element}>\n    </testcase>",
        escaped(&message),
        run.verdict.name(),
        escaped(&lines.join("\n")),
    );
}

fn time(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// Escapes text for XML. Characters that XML forbids are replaced.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => xml += "&amp;",
            '<' => xml += "&lt;",
            '>' => xml += "&gt;",
            '"' => xml += "&quot;",
            '\n' => xml += "&#10;",
            '\t' => xml += "&#9;",
            '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            character if character.is_control() => xml.push('\u{fffd}'),
            character => xml.push(character),
        }
    }
    xml
}
