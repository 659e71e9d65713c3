//! The statistics of an experiment: rates with intervals, comparisons of variants, and an early stop. Pure functions
//! without I/O and without hidden randomness: whatever draws numbers takes a seed.
//!
//! Runs that failed because of the infrastructure are in no denominator. Callers leave them out, and show the
//! [`bounds`] that they allow.

mod compare;
mod math;
mod rate;
mod sequential;
mod summary;

pub use compare::{Decision, PairedCase, PairedComparison, compare, holm, mcnemar, sign_flip};
pub use math::SplitMix64;
pub use rate::{CaseCount, Interval, MeanOverCases, bounds, interval, pass_all_k, pass_at_k, wilson};
pub use sequential::{ConfidenceSequence, DiscordantPairs};
pub use summary::{Distribution, quantile};

/// The confidence level of all intervals.
pub const CONFIDENCE: f64 = 0.95;
