//! The paired comparison of two variants.

use super::{
    CaseCount, Interval, SplitMix64,
    math::{ln_choose, normal_quantile, t_quantile},
};

/// The significance level of comparisons.
const ALPHA: f64 = 0.05;
/// The power at which the number of further cases is computed.
const POWER: f64 = 0.8;
/// Random sign changes if there are too many cases to try all.
const FLIPS: u32 = 20_000;
/// The largest number of differing cases for which all sign changes are tried.
const MAX_EXACT: usize = 14;

/// One case with its valid runs of both variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairedCase {
    /// The runs of the first variant.
    pub first: CaseCount,
    /// The runs of the second variant.
    pub second: CaseCount,
}

impl PairedCase {
    /// Returns how much higher the rate of the second variant is, or `None` if one variant has no valid run.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let rate = |case: CaseCount| (case.valid > 0).then(|| f64::from(case.passed) / f64::from(case.valid));
        Some(rate(self.second)? - rate(self.first)?)
    }
}

/// What a comparison decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The first variant passes more often.
    First,
    /// The second variant passes more often.
    Second,
    /// The data do not decide.
    Undecided {
        /// How many further cases would decide with 80 % probability if the observed difference is the true one.
        /// `None` if no difference was observed.
        further_cases: Option<u64>,
    },
}

/// The comparison of two variants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedComparison {
    /// The number of cases with valid runs of both variants.
    pub pairs: usize,
    /// How much higher the pass rate of the second variant is, averaged over the pairs. `None` without pairs.
    pub difference: Option<f64>,
    /// The interval of the difference.
    pub interval: Option<Interval>,
    /// The two-sided p-value, before the correction for several comparisons.
    pub p_value: f64,
    /// The standard deviation of the differences. `None` with fewer than two pairs.
    pub deviation: Option<f64>,
    /// What follows at the 5 % level.
    pub decision: Decision,
}

impl PairedComparison {
    /// Returns the comparison with the decision for a p-value that was corrected for this number of comparisons.
    #[must_use]
    pub fn corrected(self, p_value: f64, comparisons: usize) -> Self {
        let is_decided = p_value <= ALPHA;
        let decision = match self.difference {
            Some(difference) if is_decided && difference < 0.0 => Decision::First,
            Some(difference) if is_decided && difference > 0.0 => Decision::Second,
            _ => Decision::Undecided { further_cases: self.further_cases(comparisons) },
        };
        Self { decision, ..self }
    }

    /// Returns how many further cases would decide if the observed difference is the true one, at the level of the
    /// strictest of several comparisons.
    fn further_cases(&self, comparisons: usize) -> Option<u64> {
        let mean = self.difference.filter(|mean| *mean != 0.0)?;
        let alpha = ALPHA / comparisons.max(1) as f64;
        let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(POWER);
        // The smallest number of pairs that can be significant at all, all in one direction: six at 5 %.
        let least = (2.0 / alpha).log2().ceil();
        let needed = (z * self.deviation.unwrap_or(0.0) / mean).powi(2).ceil().max(least);
        Some((needed - self.pairs as f64).max(1.0) as u64)
    }
}

/// Compares two variants by their cases. Without repeats, this is the exact test of McNemar; with repeats, a sign-flip
/// test over the cases, whose runs are not independent.
#[must_use]
pub fn compare(cases: &[PairedCase], seed: u64) -> PairedComparison {
    let paired: Vec<&PairedCase> = cases.iter().filter(|case| case.difference().is_some()).collect();
    let differences: Vec<f64> = paired.iter().filter_map(|case| case.difference()).collect();
    let has_repeats = paired.iter().any(|case| case.first.valid > 1 || case.second.valid > 1);
    let p_value = if has_repeats {
        sign_flip(&differences, seed)
    } else {
        let count = |sign: f64| differences.iter().filter(|difference| **difference == sign).count() as u64;
        mcnemar(count(-1.0), count(1.0))
    };
    let n = differences.len() as f64;
    let mean = (n > 0.0).then(|| differences.iter().sum::<f64>() / n);
    let deviation = mean.filter(|_| n > 1.0).map(|mean| {
        (differences.iter().map(|difference| (difference - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
    });
    let interval = mean.zip(deviation).map(|(mean, deviation)| {
        let half = if deviation == 0.0 {
            // All pairs agree. A difference that this many pairs show with less than 5 % probability is still possible.
            1.0 - ALPHA.powf(1.0 / n)
        } else {
            t_quantile(1.0 - ALPHA / 2.0, n - 1.0) * deviation / n.sqrt()
        };
        Interval { low: (mean - half).max(-1.0), high: (mean + half).min(1.0) }
    });
    let comparison = PairedComparison {
        pairs: differences.len(),
        difference: mean,
        interval,
        p_value,
        deviation,
        decision: Decision::Undecided { further_cases: None },
    };
    comparison.corrected(p_value, 1)
}

/// Returns the two-sided p-value of McNemar's exact test: a binomial test on the pairs that differ.
#[must_use]
pub fn mcnemar(first_only: u64, second_only: u64) -> f64 {
    let n = first_only + second_only;
    let smaller = first_only.min(second_only);
    let tail: f64 = (0..=smaller).map(|k| (ln_choose(n, k) - n as f64 * std::f64::consts::LN_2).exp()).sum();
    (2.0 * tail).min(1.0)
}

/// Returns the two-sided p-value of the sign-flip test: how often random signs make the sum of the differences at least
/// as large. All signs are tried if there are few.
#[must_use]
pub fn sign_flip(differences: &[f64], seed: u64) -> f64 {
    let nonzero: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    // Sums of fractions such as 1/3 differ in their last digits by the order of the terms.
    let observed = nonzero.iter().sum::<f64>().abs() - 1e-9;
    let is_as_large = |sum: f64| u32::from(sum.abs() >= observed);
    if nonzero.len() <= MAX_EXACT {
        let all = 1_u32 << nonzero.len();
        let sum_of = |signs: u32| -> f64 {
            nonzero.iter().enumerate().map(|(i, d)| if signs >> i & 1 == 1 { -d } else { *d }).sum()
        };
        return f64::from((0..all).map(|signs| is_as_large(sum_of(signs))).sum::<u32>()) / f64::from(all);
    }
    let mut random = SplitMix64::new(seed);
    let as_large: u32 = (0..FLIPS)
        .map(|_| {
            let mut bits = 0;
            let signed = nonzero.iter().enumerate().map(|(i, difference)| {
                if i % 64 == 0 {
                    bits = random.bits();
                }
                if bits >> (i % 64) & 1 == 1 { -difference } else { *difference }
            });
            is_as_large(signed.sum())
        })
        .sum();
    f64::from(as_large + 1) / f64::from(FLIPS + 1)
}

/// Corrects p-values for several comparisons (Holm's method), in the order given.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(p_values[index] * (p_values.len() - rank) as f64).min(1.0);
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(first: bool, second: bool) -> PairedCase {
        let count = |passed| CaseCount { passed: u32::from(passed), valid: 1 };
        PairedCase { first: count(first), second: count(second) }
    }

    #[test]
    fn mcnemar_has_its_known_values() {
        assert!((mcnemar(0, 0) - 1.0).abs() < 1e-12);
        assert!((mcnemar(1, 9) - 0.021_484_375).abs() < 1e-9, "{}", mcnemar(1, 9));
        assert!((mcnemar(0, 6) - 0.031_25).abs() < 1e-9);
        assert!((mcnemar(5, 5) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sign_flip_agrees_with_mcnemar_on_single_runs() {
        let differences: Vec<f64> = std::iter::repeat_n(1.0, 9).chain([-1.0, 0.0, 0.0]).collect();
        assert!((sign_flip(&differences, 1) - mcnemar(1, 9)).abs() < 1e-9);
        let many: Vec<f64> = std::iter::repeat_n(1.0, 30).chain(std::iter::repeat_n(-1.0, 14)).collect();
        assert!((sign_flip(&many, 1) - mcnemar(14, 30)).abs() < 0.005, "{}", sign_flip(&many, 1));
        assert!((sign_flip(&[], 1) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn clear_difference_is_decided_and_a_small_one_says_what_is_missing() {
        let clear: Vec<PairedCase> =
            (0..10).map(|_| once(false, true)).chain((0..10).map(|_| once(true, true))).collect();
        let found = compare(&clear, 1);
        assert_eq!((found.decision, found.pairs, found.difference), (Decision::Second, 20, Some(0.5)));
        let unclear: Vec<PairedCase> = (0..3)
            .map(|_| once(true, false))
            .chain([once(false, true)])
            .chain((0..16).map(|_| once(true, true)))
            .collect();
        let found = compare(&unclear, 1);
        let Decision::Undecided { further_cases: Some(further) } = found.decision else {
            panic!("{found:?}")
        };
        assert!((50..200).contains(&further), "{further}");
        assert!(found.interval.unwrap().contains(0.0));
        let same = compare(&[once(true, true), once(false, false)], 1);
        assert_eq!(same.decision, Decision::Undecided { further_cases: None });
        assert_eq!(compare(&[], 1).difference, None);
    }

    #[test]
    fn pair_without_a_valid_run_is_left_out() {
        let missing = PairedCase { first: CaseCount::default(), second: CaseCount { passed: 1, valid: 1 } };
        let found = compare(&[missing, once(true, true)], 1);
        assert_eq!((found.pairs, found.difference), (1, Some(0.0)));
    }

    #[test]
    fn holm_corrects_from_the_smallest_on() {
        let corrected = holm(&[0.04, 0.01, 0.03]);
        let expected = [0.06, 0.03, 0.06];
        assert!(corrected.iter().zip(expected).all(|(found, p)| (found - p).abs() < 1e-12), "{corrected:?}");
        let mut comparison = compare(&(0..6).map(|_| once(false, true)).collect::<Vec<_>>(), 1);
        assert_eq!(comparison.decision, Decision::Second);
        // With three comparisons, six pairs are not enough, and seven are.
        comparison = comparison.corrected(0.09, 3);
        assert_eq!(comparison.decision, Decision::Undecided { further_cases: Some(1) });
        let some = (0..7).map(|_| once(false, true)).chain((0..14).map(|_| once(true, true)));
        let some = compare(&some.collect::<Vec<_>>(), 1);
        assert_eq!(some.decision, Decision::Second);
        let Decision::Undecided { further_cases: Some(further) } = some.corrected(0.09, 6).decision else {
            panic!("a difference was observed: {some:?}")
        };
        assert!((5..40).contains(&further), "{further}");
        assert_eq!(
            compare(&[once(false, true)], 1).decision,
            Decision::Undecided { further_cases: Some(5) },
            "one pair differs"
        );
    }

    #[test]
    fn comparison_is_wrong_in_at_most_five_percent_of_experiments_without_a_difference() {
        let wrong_experiments = |seed: u64, repeat: u32| {
            let mut random = SplitMix64::new(seed);
            let wrong = (0..500).filter(|_| {
                let cases: Vec<PairedCase> = (0..40)
                    .map(|_| {
                        // Cases differ a lot, and the runs of one case are alike.
                        let rate = random.unit().powi(2);
                        let mut runs = || {
                            let passed = (0..repeat).filter(|_| random.unit() < rate).count() as u32;
                            CaseCount { passed, valid: repeat }
                        };
                        PairedCase { first: runs(), second: runs() }
                    })
                    .collect();
                compare(&cases, 9).p_value <= ALPHA
            });
            wrong.count()
        };
        for repeat in [1, 4] {
            // At the same time, because this takes longer than all other tests of the crate.
            let wrong: usize = std::thread::scope(|scope| {
                let parts = [1, 2, 3, 4].map(|seed| scope.spawn(move || wrong_experiments(seed, repeat)));
                parts.map(|part| part.join().unwrap()).iter().sum()
            });
            assert!(wrong <= 120, "repeat {repeat}: {wrong} of 2,000");
        }
    }
}
