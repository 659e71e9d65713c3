//! Hostile text against ordinary text, for every scanner that a run goes through.
//!
//! A hostile text is compared with an ordinary one of the same length. Where a scanner hands something out for each line,
//! the ordinary text has as many lines, because a text of empty lines is more work than one long line for any reader; the
//! time for one empty line is printed next to it. The slowest text is the one with the highest ratio.

use agentline_tests::scanners::{SCANNERS, Scanner, hostile_texts};

const BYTES: usize = 1 << 20;
const RUNS: usize = 5;

pub(crate) fn run() {
    println!(
        "{:<24} {:>8} {:>11} {:>13} {:>6} {:>8} {:>7}   slowest text",
        "scanner", "bytes", "plain MB/s", "hostile MB/s", "ratio", "ns/line", "4n / n"
    );
    SCANNERS.iter().for_each(measure);
}

fn measure(scanner: &Scanner) {
    let bytes = BYTES / scanner.share;
    let plain = scanner.time(&scanner.plain_text(bytes), RUNS);
    let ratio = |(part, text): (&'static str, String)| {
        let time = scanner.time(&text, RUNS);
        let other = scanner.lines(&text).map_or(plain, |_| scanner.time(&scanner.counterpart(&text), RUNS));
        (time / other, time, part)
    };
    let Some((ratio, slowest, part)) = hostile_texts(bytes).map(ratio).max_by(|a, b| a.0.total_cmp(&b.0))
    else {
        return;
    };
    let blank = "\n".repeat(bytes);
    let per_line = scanner.lines(&blank).map(|lines| scanner.time(&blank, RUNS) / lines as f64 * 1e9);
    let times_four = hostile_texts(4 * bytes).find(|(other, _)| *other == part);
    let growth = times_four.map_or(f64::NAN, |(_, text)| scanner.time(&text, RUNS) / slowest);
    let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
    println!(
        "{:<24} {bytes:>8} {:>11.0} {:>13.0} {ratio:>6.2} {:>8} {growth:>7.2}   {part:?}",
        scanner.name,
        speed(plain),
        speed(slowest),
        per_line.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}")),
    );
}
