//! The distribution of a quantity over runs.

/// The distribution of cost, tokens or time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// The number of values.
    pub count: usize,
    /// The sum.
    pub sum: f64,
    /// The median.
    pub p50: f64,
    /// The smallest value that at least 95 % of the values do not exceed; with fewer than 20 values, the largest.
    pub p95: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Distribution {
    /// Describes the values, or returns `None` if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            count: values.len(),
            sum: values.iter().sum(),
            p50: quantile(&values, 0.5)?,
            p95: *values.get((values.len() * 95).div_ceil(100).saturating_sub(1))?,
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

/// Returns a quantile of sorted values, with linear interpolation between neighbors. `None` if there are none.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let at = p.clamp(0.0, 1.0) * (sorted.len().checked_sub(1)?) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0], 0.95), Some(3.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        let found = Distribution::of((1..=101).map(f64::from)).unwrap();
        assert_eq!((found.p50, found.p95, found.min, found.max, found.count), (51.0, 96.0, 1.0, 101.0, 101));
        assert_eq!(Distribution::of((1..=10).map(f64::from)).unwrap().p95, 10.0);
        assert_eq!(Distribution::of((1..=20).map(f64::from)).unwrap().p95, 19.0);
        assert_eq!(Distribution::of([f64::NAN]), None);
    }
}
