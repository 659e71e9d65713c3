//! Tests that stay valid when checked after every pair, for an early stop.

use super::{Decision, Interval, math::ln_beta};
use std::cmp::Ordering;

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

    /// Returns the evidence that the second variant is better, and that the first one is. Each is one half of the
    /// mixture, so both together are [`Self::evidence`], up to the steps of the sum that approximates the integral.
    ///
    /// A bet on one direction wins nothing on average as long as the truth is 0 or lies in the other direction, so the
    /// first is evidence against every such difference, and the second likewise.
    fn directions(self) -> (f64, f64) {
        let (a, b) = (self.first_only as f64, self.second_only as f64);
        let (mut second, mut first) = (0.0, 0.0);
        for i in 0..MIXTURE {
            // The values of the Beta(½, ½) distribution above ½, all with the same weight.
            let angle = std::f64::consts::FRAC_PI_4 * (1.0 + (f64::from(i) + 0.5) / f64::from(MIXTURE));
            let (won, lost) = ((2.0 * angle.sin().powi(2)).ln(), (2.0 * angle.cos().powi(2)).ln());
            second += (b * won + a * lost).exp();
            first += (a * won + b * lost).exp();
        }
        let half = 0.5 / f64::from(MIXTURE);
        (second * half, first * half)
    }
}

/// A confidence sequence of the mean difference between two variants by betting: an interval that is valid after every
/// case at once. The differences of the cases are between −1 and 1.
///
/// The interval decides: one variant is better as soon as 0 and everything on one side of it are excluded.
#[derive(Clone, Debug)]
pub struct ConfidenceSequence {
    /// The pairs of single runs. Without repeats, they add evidence about the direction.
    discordant: Option<DiscordantPairs>,
    /// For each candidate of the mean, the logarithms of the capital of a bet that the mean is larger, and of one that
    /// it is smaller.
    capital: Vec<(f64, f64)>,
    count: f64,
    sum: f64,
    squares: f64,
}

/// The number of candidates of the mean, on both sides of 0.
const STEPS: usize = 400;
/// The candidate 0.
const ZERO: usize = STEPS / 2;
/// The number of terms of each half of the mixture.
const MIXTURE: u32 = 256;

impl Default for ConfidenceSequence {
    fn default() -> Self {
        Self { discordant: None, capital: vec![(0.0, 0.0); STEPS + 1], count: 0.0, sum: 0.5, squares: 0.25 }
    }
}

impl ConfidenceSequence {
    /// Adds a case with one run of each variant.
    pub fn add_pair(&mut self, first: bool, second: bool) {
        self.discordant.get_or_insert_default().add(first, second);
        self.add(f64::from(u8::from(second)) - f64::from(u8::from(first)));
    }

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

    /// Returns the first and the last candidate of the mean that is not excluded.
    fn remaining(&self) -> Option<(usize, usize)> {
        let (second, first) = self.discordant.unwrap_or_default().directions();
        let is_open = |i: usize| {
            let (up, down) = self.capital[i];
            let bets = 0.5 * up.exp() + 0.5 * down.exp();
            // Each is the mean of two bets that win nothing on average if the candidate is the truth.
            let evidence = match (self.discordant, i.cmp(&ZERO)) {
                (None, _) => bets,
                (Some(_), Ordering::Less) => 0.5 * bets + second,
                (Some(_), Ordering::Equal) => second + first,
                (Some(_), Ordering::Greater) => 0.5 * bets + first,
            };
            evidence < DECIDED
        };
        (0..=STEPS).find(|i| is_open(*i)).zip((0..=STEPS).rev().find(|i| is_open(*i)))
    }

    /// Returns the interval of the mean difference so far. If it begins or ends at 0, a decision says whether 0 itself is
    /// excluded.
    #[must_use]
    pub fn interval(&self) -> Interval {
        let difference = |i: usize| 2.0 * i as f64 / STEPS as f64 - 1.0;
        match self.remaining() {
            // One step wider: the mean may lie between two candidates.
            Some((first, last)) => {
                Interval { low: difference(first.saturating_sub(1)), high: difference((last + 1).min(STEPS)) }
            }
            None => Interval { low: -1.0, high: 1.0 },
        }
    }

    /// Returns which variant is better, if the interval decides it.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        match self.remaining()? {
            (first, _) if first > ZERO => Some(Decision::Second),
            (_, last) if last < ZERO => Some(Decision::First),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::SplitMix64, *};

    fn pairs(first_only: u64, second_only: u64) -> DiscordantPairs {
        DiscordantPairs { first_only, second_only }
    }

    fn sequence(first_only: usize, second_only: usize, equal: usize) -> ConfidenceSequence {
        let mut sequence = ConfidenceSequence::default();
        (0..first_only).for_each(|_| sequence.add_pair(true, false));
        (0..second_only).for_each(|_| sequence.add_pair(false, true));
        (0..equal).for_each(|_| sequence.add_pair(true, true));
        sequence
    }

    /// Returns whether the decision is what the interval says.
    fn agrees(sequence: &ConfidenceSequence) -> bool {
        let Interval { low, high } = sequence.interval();
        match sequence.decision() {
            Some(Decision::Second) => low >= 0.0 && high > 0.0,
            Some(Decision::First) => high <= 0.0 && low < 0.0,
            _ => low <= 0.0 && high >= 0.0,
        }
    }

    #[test]
    fn evidence_has_its_known_values() {
        assert!((pairs(0, 0).evidence() - 1.0).abs() < 1e-9);
        assert!((pairs(1, 0).evidence() - 1.0).abs() < 1e-9, "one pair says nothing");
        for (a, b) in [(0, 0), (0, 7), (4, 9), (30, 50), (300, 220)] {
            let ((second, first), all) = (pairs(a, b).directions(), pairs(a, b).evidence());
            assert!(((second + first) / all - 1.0).abs() < 0.01, "{a}:{b} {second} + {first} = {all}");
        }
    }

    #[test]
    fn decision_follows_from_the_interval() {
        for (first, second, equal, decision) in [
            (0, 6, 0, None),
            (0, 7, 0, Some(Decision::Second)),
            (7, 0, 0, Some(Decision::First)),
            (0, 7, 30, Some(Decision::Second)),
            (4, 9, 10, None),
        ] {
            let sequence = sequence(first, second, equal);
            assert_eq!(sequence.decision(), decision, "{first}:{second}, {:?}", sequence.interval());
            assert!(agrees(&sequence), "{first}:{second}, {:?}", sequence.interval());
        }
        let clear = sequence(0, 30, 0).interval();
        assert!(clear.low > 0.2, "{clear:?}");
    }

    /// Returns how many of 2,000 experiments with single runs decide wrongly, and in how many the interval misses the
    /// truth when the experiment stops. Each rate is the share of cases in which only that variant passes.
    fn stopped_early(seed: u64, first_rate: f64, second_rate: f64) -> (usize, usize) {
        let mut random = SplitMix64::new(seed);
        let truth = second_rate - first_rate;
        let (mut wrong, mut missed) = (0, 0);
        for _ in 0..2_000 {
            let mut sequence = ConfidenceSequence::default();
            for _ in 0..40 {
                let drawn = random.unit();
                let first = drawn < first_rate;
                sequence.add_pair(first, !first && drawn < first_rate + second_rate);
                // Most of the time, a look at 0 is enough.
                if sequence.discordant.unwrap_or_default().evidence() >= 0.9 * DECIDED
                    && sequence.decision().is_some()
                {
                    break;
                }
            }
            assert!(agrees(&sequence), "{sequence:?}");
            wrong += usize::from(match sequence.decision() {
                Some(Decision::Second) => truth <= 0.0,
                Some(Decision::First) => truth >= 0.0,
                _ => false,
            });
            missed += usize::from(!sequence.interval().contains(truth));
        }
        (wrong, missed)
    }

    #[test]
    fn early_stop_is_wrong_in_at_most_five_percent_and_its_interval_agrees() {
        std::thread::scope(|scope| {
            for (seed, first, second) in [(3, 0.5, 0.5), (7, 0.1, 0.1), (8, 0.15, 0.45)] {
                scope.spawn(move || {
                    let (wrong, missed) = stopped_early(seed, first, second);
                    assert!(wrong <= 100 && missed <= 100, "{first} {second}: {wrong}, {missed} of 2,000");
                });
            }
        });
    }

    #[test]
    fn early_stop_finds_a_difference() {
        let mut random = SplitMix64::new(4);
        let needed: usize = (0..200)
            .map(|_| {
                let mut sequence = ConfidenceSequence::default();
                let found = (1..500).find(|_| {
                    let first = random.unit() < 0.75;
                    sequence.add_pair(first, !first);
                    sequence.discordant.unwrap_or_default().evidence() >= 0.9 * DECIDED
                        && sequence.decision().is_some()
                });
                found.unwrap_or(500)
            })
            .sum();
        assert!((25..60).contains(&(needed / 200)), "{}", needed / 200);
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
                let (up, down) = sequence.capital[ZERO];
                0.5 * up.exp() + 0.5 * down.exp() >= DECIDED
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
        assert!(
            sequence.decision() == Some(Decision::Second) && found.low > 0.0 && found.high < 0.7,
            "{found:?}"
        );
        // Half of the cases have a rate above 0.5, so the true mean is 3/8.
        assert!(found.contains(0.375), "{found:?}");
    }
}
