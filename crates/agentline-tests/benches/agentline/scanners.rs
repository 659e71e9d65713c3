//! Hostile text against ordinary text of the same size, for every scanner that a run goes through. A text of many lines is
//! compared with an ordinary one that has as many, because each line is work of its own.

use agentline_tests::scanners::{SCANNERS, hostile_texts, plain_text_with_lines_of};

const BYTES: usize = 1 << 20;
const RUNS: usize = 5;

pub(crate) fn run() {
    println!(
        "{:<24} {:>12} {:>14} {:>8} {:>10}   slowest text",
        "scanner", "plain MB/s", "hostile MB/s", "ratio", "4n / n"
    );
    for scanner in SCANNERS {
        let plain = scanner.time(&scanner.plain_text(BYTES), RUNS);
        let times = hostile_texts(BYTES).map(|(part, text)| {
            let lines = scanner.time(&plain_text_with_lines_of(&text), RUNS);
            let took = scanner.time(&text, RUNS);
            (took / plain.max(lines), took, part)
        });
        let Some((ratio, slowest, part)) = times.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        let times_four = hostile_texts(4 * BYTES).find(|(other, _)| *other == part);
        let growth = times_four.map_or(f64::NAN, |(_, text)| scanner.time(&text, RUNS) / slowest);
        let speed = |seconds: f64| BYTES as f64 / seconds / 1e6;
        println!(
            "{:<24} {:>12.0} {:>14.0} {:>8.2} {growth:>10.2}   {part:?}",
            scanner.name,
            speed(plain),
            speed(slowest),
            ratio
        );
    }
}
