//! No text takes longer to scan than its length allows.

use agentline_tests::scanners::{SCANNERS, hostile_texts, plain_text_with_lines_of};

/// The sizes that are compared. A scanner that reads a text once takes four times as long for the second, a quadratic one
/// sixteen times.
const SIZES: [usize; 2] = [8_000, 32_000];
const MOST_GROWTH: f64 = 8.0;
/// How much longer a hostile text may take than an ordinary one. This is generous, because nothing is optimised here. The
/// benchmark `scanners` prints the true ratios.
const MOST_RATIO: f64 = 25.0;

#[test]
fn time_grows_with_the_length_of_the_text_alone() {
    let mut slow = Vec::new();
    for scanner in SCANNERS {
        let plain = scanner.time(&scanner.plain_text(SIZES[1]), 3);
        let texts = hostile_texts(SIZES[0]).zip(hostile_texts(SIZES[1]));
        for ((part, short), (_, long)) in texts {
            // A text of many lines is compared with an ordinary one that has as many.
            let plain = plain.max(scanner.time(&plain_text_with_lines_of(&long), 2));
            // A busy machine can disturb one measurement, but not all of them.
            let fits = (1..=3).any(|runs| {
                let (first, second) = (scanner.time(&short, runs), scanner.time(&long, runs));
                // What takes no longer than ordinary text is fast enough, whatever a busy machine did to the shorter one.
                let grows = second > MOST_GROWTH * first.max(0.001) && second > plain;
                !grows && second < MOST_RATIO * plain.max(0.002)
            });
            if !fits {
                let took = (scanner.time(&short, 3), scanner.time(&long, 3));
                slow.push(format!("{}: {part:?} takes {took:?} s, ordinary text {plain} s", scanner.name));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
