//! Pass rates with their intervals, and the probability that one or all of several attempts pass.

use super::{
    CONFIDENCE,
    math::{ln_choose, normal_quantile, t_quantile},
};

/// An interval of rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Returns whether a value is in the interval.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// How many runs of one case passed, of those that are valid: runs that failed because of the infrastructure are not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaseCount {
    /// Runs that passed.
    pub passed: u32,
    /// Runs that passed or failed.
    pub valid: u32,
}

/// Returns the Wilson interval for a rate of `passed` in `n` independent runs, or `None` without runs. Both may be
/// fractions, for an effective sample size.
#[must_use]
pub fn wilson(passed: f64, n: f64) -> Option<Interval> {
    with_quantile(passed, n, normal_quantile(0.5 + CONFIDENCE / 2.0))
}

fn with_quantile(passed: f64, n: f64, z: f64) -> Option<Interval> {
    if n <= 0.0 {
        return None;
    }
    let (p, z2) = (passed / n, z * z);
    let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
    // At the ends, rounding must not exclude the rate itself.
    let low = if passed <= 0.0 { 0.0 } else { (center - half).max(0.0) };
    let high = if passed >= n { 1.0 } else { (center + half).min(1.0) };
    Some(Interval { low, high })
}

/// Returns the interval of the pass rate over all cases, or `None` if no run is valid.
///
/// With at most one run for each case, this is the Wilson interval. Repeated runs of one case are not independent: the
/// variance is then estimated between cases, and the Wilson interval gets the number of independent runs that would
/// have the same variance.
#[must_use]
pub fn interval(cases: &[CaseCount]) -> Option<Interval> {
    let valid = || cases.iter().filter(|case| case.valid > 0);
    let runs: f64 = valid().map(|case| f64::from(case.valid)).sum();
    let passed: f64 = valid().map(|case| f64::from(case.passed)).sum();
    let count = valid().count() as f64;
    if valid().all(|case| case.valid == 1) {
        return wilson(passed, runs);
    }
    if count < 2.0 {
        // One case says nothing about others.
        return Some(Interval { low: 0.0, high: 1.0 });
    }
    let rate = passed / runs;
    let squares: f64 =
        valid().map(|case| (f64::from(case.passed) - f64::from(case.valid) * rate).powi(2)).sum();
    let variance = count / (count - 1.0) * squares / (runs * runs);
    // If all runs agree, nothing is known about the correlation within a case, so each case counts once.
    let effective = if variance > 0.0 { (rate * (1.0 - rate) / variance).min(runs) } else { count };
    with_quantile(rate * effective, effective, t_quantile(0.5 + CONFIDENCE / 2.0, count - 1.0))
}

/// Returns the rates if all runs that failed because of the infrastructure had failed, and if all had passed. `None`
/// without runs.
#[must_use]
pub fn bounds(passed: u32, failed: u32, infrastructure: u32) -> Option<Interval> {
    let all = f64::from(passed) + f64::from(failed) + f64::from(infrastructure);
    (all > 0.0).then(|| Interval {
        low: f64::from(passed) / all,
        high: (f64::from(passed) + f64::from(infrastructure)) / all,
    })
}

/// The mean over the cases with at least `k` valid runs, and how many cases have fewer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanOverCases {
    /// The mean; `None` if no case has enough runs.
    pub mean: Option<f64>,
    /// The number of cases with at least one valid run, but too few.
    pub left_out: usize,
}

fn mean_over(cases: &[CaseCount], k: u32, of: impl Fn(u64, u64, u64) -> f64) -> MeanOverCases {
    let enough: Vec<f64> = cases
        .iter()
        .filter(|case| case.valid >= k)
        .map(|case| of(case.valid.into(), case.passed.into(), k.into()))
        .collect();
    let mean = (!enough.is_empty()).then(|| enough.iter().sum::<f64>() / enough.len() as f64);
    MeanOverCases { mean, left_out: cases.len() - enough.len() }
}

/// Returns the probability that at least one of `k` attempts at a case passes: 1 − C(n−c, k) / C(n, k), averaged over
/// the cases.
#[must_use]
pub fn pass_at_k(cases: &[CaseCount], k: u32) -> MeanOverCases {
    mean_over(
        cases,
        k,
        |n, c, k| if n - c < k { 1.0 } else { 1.0 - (ln_choose(n - c, k) - ln_choose(n, k)).exp() },
    )
}

/// Returns the probability that all of `k` attempts at a case pass: C(c, k) / C(n, k), averaged over the cases.
#[must_use]
pub fn pass_all_k(cases: &[CaseCount], k: u32) -> MeanOverCases {
    mean_over(cases, k, |n, c, k| if c < k { 0.0 } else { (ln_choose(c, k) - ln_choose(n, k)).exp() })
}

#[cfg(test)]
mod tests {
    use super::{super::SplitMix64, *};

    fn case(passed: u32, valid: u32) -> CaseCount {
        CaseCount { passed, valid }
    }

    #[test]
    fn wilson_has_its_known_values() {
        let near = |found: Interval, low: f64, high: f64| {
            assert!((found.low - low).abs() < 5e-4 && (found.high - high).abs() < 5e-4, "{found:?}");
        };
        near(wilson(8.0, 10.0).unwrap(), 0.4902, 0.9433);
        near(wilson(0.0, 10.0).unwrap(), 0.0, 0.2775);
        near(wilson(10.0, 10.0).unwrap(), 0.7225, 1.0);
        near(wilson(50.0, 100.0).unwrap(), 0.4038, 0.5962);
        assert_eq!(wilson(0.0, 0.0), None);
        assert_eq!(interval(&[]), None);
        assert_eq!(interval(&[case(0, 0)]), None);
        assert_eq!(interval(&[case(1, 1), case(0, 1)]), wilson(1.0, 2.0));
        assert_eq!(interval(&[case(3, 5)]), Some(Interval { low: 0.0, high: 1.0 }));
    }

    #[test]
    fn bounds_assume_the_worst_and_the_best() {
        assert_eq!(bounds(6, 2, 2), Some(Interval { low: 0.6, high: 0.8 }));
        assert_eq!(bounds(0, 0, 0), None);
    }

    #[test]
    fn attempts_are_averaged_over_cases_with_enough_runs() {
        let cases = [case(1, 4), case(4, 4), case(0, 4), case(1, 1)];
        let at_2 = pass_at_k(&cases, 2);
        // 1 - C(3,2)/C(4,2) = 1/2; 1; 0.
        assert!((at_2.mean.unwrap() - 0.5).abs() < 1e-9, "{at_2:?}");
        assert_eq!(at_2.left_out, 1);
        let all_2 = pass_all_k(&[case(3, 4), case(4, 4), case(1, 4)], 2);
        // C(3,2)/C(4,2) = 1/2; 1; 0.
        assert!((all_2.mean.unwrap() - 0.5).abs() < 1e-9, "{all_2:?}");
        assert_eq!(pass_at_k(&cases, 9).mean, None);
        // With one attempt, both are the mean of the rates.
        assert!((pass_at_k(&cases[..3], 1).mean.unwrap() - 5.0 / 12.0).abs() < 1e-9);
        assert!((pass_all_k(&cases[..3], 1).mean.unwrap() - 5.0 / 12.0).abs() < 1e-9);
    }

    /// Returns how often the interval contains the true rate in 2,000 experiments whose rate is drawn uniformly.
    fn coverage(seed: u64, mut experiment: impl FnMut(&mut SplitMix64, f64) -> Vec<CaseCount>) -> f64 {
        let mut random = SplitMix64::new(seed);
        let covered = (0..2_000).filter(|_| {
            let rate = random.unit();
            let cases = experiment(&mut random, rate);
            interval(&cases).unwrap().contains(rate)
        });
        covered.count() as f64 / 2_000.0
    }

    #[test]
    fn independent_intervals_cover_the_truth() {
        for (seed, n) in [(1, 20), (2, 50), (3, 200)] {
            let covered = coverage(seed, |random, rate| {
                (0..n).map(|_| case(u32::from(random.unit() < rate), 1)).collect()
            });
            assert!((0.935..=0.965).contains(&covered), "{n} runs: {covered}");
        }
    }

    /// Draws from the beta distribution with mean `rate`: the rate of one case. A small `weight` makes cases very
    /// different.
    fn rate_of_case(random: &mut SplitMix64, rate: f64, weight: f64) -> f64 {
        let (a, b) = (rate * weight, (1.0 - rate) * weight);
        let (x, y) = (gamma(random, a), gamma(random, b));
        if x + y > 0.0 { x / (x + y) } else { f64::from(u8::from(random.unit() < rate)) }
    }

    /// Draws from the gamma distribution (Marsaglia and Tsang).
    fn gamma(random: &mut SplitMix64, shape: f64) -> f64 {
        if shape < 1.0 {
            let u = random.unit().max(1e-300);
            return gamma(random, shape + 1.0) * u.powf(1.0 / shape.max(1e-9));
        }
        let (d, mut result) = (shape - 1.0 / 3.0, None);
        let c = 1.0 / (9.0 * d).sqrt();
        while result.is_none() {
            let normal = (-2.0 * random.unit().max(1e-300).ln()).sqrt()
                * (std::f64::consts::TAU * random.unit()).cos();
            let v = (1.0 + c * normal).powi(3);
            if v > 0.0 && random.unit().max(1e-300).ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
                result = Some(d * v);
            }
        }
        result.unwrap_or_default()
    }

    #[test]
    fn clustered_intervals_cover_the_truth() {
        for (seed, cases, repeat, weight) in
            [(11, 30, 5, 2.0), (12, 30, 3, 8.0), (13, 60, 4, 1.0), (14, 100, 5, 4.0), (15, 30, 5, 1e6)]
        {
            let covered = coverage(seed, |random, rate| {
                (0..cases)
                    .map(|_| {
                        let own = rate_of_case(random, rate, weight);
                        case((0..repeat).filter(|_| random.unit() < own).count() as u32, repeat)
                    })
                    .collect()
            });
            assert!((0.93..=0.97).contains(&covered), "{cases} cases × {repeat}, weight {weight}: {covered}");
        }
    }
}
