//! Checks that no text takes longer to scan than its length allows.
//!
//! Two properties are checked for every scanner and every adversarial text. The time grows linearly: four times the
//! text takes less than eight times as long, where a quadratic scanner takes sixteen times as long. And no text costs
//! many times as much as an ordinary one of the same structure, measured next to each other. This build is not
//! optimized, so the bound is looser than the true ratios, which the benchmark `scanners` prints.

use agentline_tests::scanners::{SCANNERS, ScannerUnderTest, hostile_texts};

const SIZES: [usize; 2] = [8_000, 32_000];
const MOST_GROWTH: f64 = 8.0;
const MOST_RATIO: f64 = 8.0;
/// Shorter times are too uncertain to be compared, in seconds.
const SHORTEST: f64 = 0.002;
/// A busy machine can disturb some measurements, but not all of them.
const ATTEMPTS: usize = 3;

#[test]
fn scanner_time_is_linear_in_the_text_length() {
    let mut slow = Vec::new();
    for scanner in SCANNERS {
        let [short, long] = SIZES.map(hostile_texts);
        for ((part, short), (_, long)) in short.zip(long) {
            let problems = (0..ATTEMPTS).map_while(|_| problem(scanner, &short, &long)).collect::<Vec<_>>();
            if problems.len() == ATTEMPTS {
                slow.push(format!("{}: {part:?} {}", scanner.name, problems.join(", ")));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// Returns what is wrong with the times of these texts.
fn problem(scanner: &ScannerUnderTest, short: &str, long: &str) -> Option<String> {
    let (first, second, plain) = (scanner.time(short, 1), scanner.time(long, 1), scanner.plain_time(long, 1));
    let (growth, ratio) = (second / first.max(SHORTEST), second / plain.max(SHORTEST));
    (growth > MOST_GROWTH || ratio > MOST_RATIO).then(|| format!("grows {growth:.1} times, ratio {ratio:.1}"))
}
