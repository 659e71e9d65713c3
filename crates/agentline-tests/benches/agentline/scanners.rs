//! Compares adversarial text with ordinary text for every scanner that a run uses.
//!
//! An adversarial text is compared with an ordinary one of the same length. If each line is work, an ordinary text with
//! as many lines is measured too, and the slower one counts: empty lines are more work than one long line for any
//! reader. The slowest text is the one with the highest ratio.

use agentline_tests::scanners::{SCANNERS, ScannerUnderTest, WORKSPACE_SCANNERS, hostile_texts};

const BYTES: usize = 1 << 20;
const RUNS: usize = 5;

pub(crate) fn run() {
    println!(
        "{:<24} {:>8} {:>10} {:>12} {:>6} {:>7}   slowest text",
        "scanner", "bytes", "plain ms", "hostile ms", "ratio", "4n / n"
    );
    SCANNERS.iter().chain(WORKSPACE_SCANNERS).for_each(measure);
}

fn measure(scanner: &ScannerUnderTest) {
    let bytes = BYTES / scanner.share;
    let ratio = |(part, text): (&'static str, String)| {
        let (hostile, plain) = (scanner.time(&text, RUNS), scanner.plain_time(&text, RUNS));
        (hostile / plain, hostile, plain, part)
    };
    let slowest = hostile_texts(bytes).map(ratio).max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((ratio, hostile, plain, part)) = slowest else { return };
    let times_four = hostile_texts(4 * bytes).find(|(other, _)| *other == part);
    let growth = times_four.map_or(f64::NAN, |(_, text)| scanner.time(&text, RUNS) / hostile);
    println!(
        "{:<24} {bytes:>8} {:>10.2} {:>12.2} {ratio:>6.2} {growth:>7.2}   {part:?}",
        scanner.name,
        plain * 1e3,
        hostile * 1e3,
    );
}
