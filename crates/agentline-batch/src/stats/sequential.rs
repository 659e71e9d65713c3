//! Tests that stay valid when checked after every pair, for an early stop.

use super::{Interval, math::ln_beta};

/// The evidence at which a comparison is decided: an error probability of 5 %.
const DECIDED: f64 = 20.0;

/// The evidence from pairs of single runs that differ: a mixture e-process. Without a difference between the variants,
/// it ever reaches 20 with a probability of at most 5 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscordantPairs {
    /// Pairs in which only the first variant passed.
    pub first_only: u64,
    /// Pairs in which only the second variant passed.
    pub second_only: u64,
}

impl DiscordantPairs {
    /// Adds a pair.
    pub fn add(&mut self, first: bool, second: bool) {
        self.first_only += u64::from(first && !second);
        self.second_only += u64::from(second && !first);
    }

    /// Returns the evidence against equal variants: B(a+½, b+½) / B(½, ½) · 2^(a+b).
    #[must_use]
    pub fn evidence(self) -> f64 {
        let (a, b) = (self.first_only as f64, self.second_only as f64);
        (ln_beta(a + 0.5, b + 0.5) - ln_beta(0.5, 0.5) + (a + b) * std::f64::consts::LN_2).exp()
    }

    /// Returns whether the comparison is decided.
    #[must_use]
    pub fn is_decided(self) -> bool {
        self.evidence() >= DECIDED
    }
}

/// A confidence sequence of the mean difference between two variants by betting: an interval that is valid after every
/// case at once. The differences of the cases are between −1 and 1.
#[derive(Clone, Debug)]
pub struct ConfidenceSequence {
    /// For each candidate of the mean, the logarithms of the capital of a bet that the mean is larger, and of one that
    /// it is smaller.
    capital: Vec<(f64, f64)>,
    count: f64,
    sum: f64,
    squares: f64,
}

/// The number of candidates of the mean, on both sides of 0.
const STEPS: usize = 400;

impl Default for ConfidenceSequence {
    fn default() -> Self {
        Self { capital: vec![(0.0, 0.0); STEPS + 1], count: 0.0, sum: 0.5, squares: 0.25 }
    }
}

impl ConfidenceSequence {
    /// Adds the difference of one case. Values outside of −1 to 1 count as these.
    pub fn add(&mut self, difference: f64) {
        // The bets are placed before the value is known, on values from 0 to 1.
        let x = (difference.clamp(-1.0, 1.0) + 1.0) / 2.0;
        let variance = (self.squares / (self.count + 1.0)).max(1e-4);
        let next = self.count + 1.0;
        let size = (2.0 * (2.0 / 0.05_f64).ln() / (variance * next * (next + 1.0).ln())).sqrt();
        for (i, (up, down)) in self.capital.iter_mut().enumerate() {
            let mean = i as f64 / STEPS as f64;
            // A bet of at most half of what could be lost keeps the capital positive.
            let larger = size.min(0.5 / mean.max(1e-9));
            let smaller = size.min(0.5 / (1.0 - mean).max(1e-9));
            *up += (1.0 + larger * (x - mean)).ln();
            *down += (1.0 - smaller * (x - mean)).ln();
        }
        self.count = next;
        self.sum += x;
        let mean = self.sum / (self.count + 1.0);
        self.squares += (x - mean).powi(2);
    }

    /// Returns the interval of the mean difference so far.
    #[must_use]
    pub fn interval(&self) -> Interval {
        let open = |(up, down): &&(f64, f64)| (0.5 * up.exp() + 0.5 * down.exp()) < DECIDED;
        let first = self.capital.iter().position(|capital| open(&capital));
        let last = self.capital.iter().rposition(|capital| open(&capital));
        let difference = |i: usize| 2.0 * i as f64 / STEPS as f64 - 1.0;
        match first.zip(last) {
            // One step wider: the mean may lie between two candidates.
            Some((first, last)) => {
                Interval { low: difference(first.saturating_sub(1)), high: difference((last + 1).min(STEPS)) }
            }
            None => Interval { low: -1.0, high: 1.0 },
        }
    }

    /// Returns whether the comparison is decided: equal variants are excluded.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let (up, down) = self.capital[STEPS / 2];
        0.5 * up.exp() + 0.5 * down.exp() >= DECIDED
    }
}

#[cfg(test)]
mod tests {
    use super::{super::SplitMix64, *};

    #[test]
    fn evidence_has_its_known_values() {
        assert!((DiscordantPairs::default().evidence() - 1.0).abs() < 1e-9);
        let one = DiscordantPairs { first_only: 1, second_only: 0 };
        assert!((one.evidence() - 1.0).abs() < 1e-9, "one pair says nothing: {}", one.evidence());
        let clear = DiscordantPairs { first_only: 0, second_only: 9 };
        assert!(clear.is_decided(), "{}", clear.evidence());
        assert!(!DiscordantPairs { first_only: 4, second_only: 9 }.is_decided());
    }

    #[test]
    fn early_stop_is_wrong_in_at_most_five_percent_of_experiments() {
        let mut random = SplitMix64::new(3);
        let wrong = (0..2_000).filter(|_| {
            let mut pairs = DiscordantPairs::default();
            (0..500).any(|_| {
                let first = random.unit() < 0.5;
                pairs.add(first, !first);
                pairs.is_decided()
            })
        });
        let wrong = wrong.count();
        assert!((20..=100).contains(&wrong), "{wrong} of 2,000");
    }

    #[test]
    fn early_stop_finds_a_difference() {
        let mut random = SplitMix64::new(4);
        let needed: f64 = (0..500)
            .map(|_| {
                let mut pairs = DiscordantPairs::default();
                let mut n = 0.0;
                while !pairs.is_decided() {
                    let first = random.unit() < 0.75;
                    pairs.add(first, !first);
                    n += 1.0;
                }
                n
            })
            .sum();
        assert!((25.0..50.0).contains(&(needed / 500.0)), "{}", needed / 500.0);
    }

    /// Draws the difference of a case with four runs of each variant.
    fn difference(random: &mut SplitMix64, effect: f64) -> f64 {
        let rate = random.unit();
        let mut passed = |rate: f64| (0..4).filter(|_| random.unit() < rate).count() as f64 / 4.0;
        let first = passed(rate);
        passed((rate + effect).min(1.0)) - first
    }

    #[test]
    fn confidence_sequence_always_contains_the_truth_in_most_experiments() {
        let mut random = SplitMix64::new(5);
        let wrong = (0..2_000).filter(|_| {
            let mut sequence = ConfidenceSequence::default();
            (0..100).any(|_| {
                sequence.add(difference(&mut random, 0.0));
                sequence.is_decided()
            })
        });
        let wrong = wrong.count();
        assert!(wrong <= 100, "{wrong} of 2,000");
    }

    #[test]
    fn confidence_sequence_excludes_zero_if_there_is_a_difference() {
        let mut random = SplitMix64::new(6);
        let mut sequence = ConfidenceSequence::default();
        assert_eq!(sequence.interval(), Interval { low: -1.0, high: 1.0 });
        for _ in 0..300 {
            sequence.add(difference(&mut random, 0.5));
        }
        let found = sequence.interval();
        assert!(sequence.is_decided() && found.low > 0.0 && found.high < 0.7, "{found:?}");
        // Half of the cases have a rate above 0.5, so the true mean is 3/8.
        assert!(found.contains(0.375), "{found:?}");
    }
}
