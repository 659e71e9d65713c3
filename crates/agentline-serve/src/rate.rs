//! Counts requests per minute.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const WINDOW: Duration = Duration::from_secs(60);
/// How many keys are counted. When there are more, those whose minute is over are forgotten.
const KEYS: usize = 4_096;

/// Counts what happened per key in the current minute of that key.
#[derive(Debug)]
pub(crate) struct RateLimit<K> {
    limit: u32,
    counts: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K: Eq + Hash> RateLimit<K> {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, counts: Mutex::default() }
    }

    /// Counts one. Returns false if there were too many.
    pub(crate) fn take(&self, key: K) -> bool {
        self.take_many(key, 1)
    }

    /// Counts several. Returns false if there were too many.
    pub(crate) fn take_many(&self, key: K, amount: u32) -> bool {
        let now = Instant::now();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= KEYS {
            counts.retain(|_, (start, _)| now.duration_since(*start) < WINDOW);
        }
        if counts.len() >= KEYS && !counts.contains_key(&key) {
            return false;
        }
        let (start, count) = counts.entry(key).or_insert((now, 0));
        if now.duration_since(*start) >= WINDOW {
            (*start, *count) = (now, 0);
        }
        *count = count.saturating_add(amount);
        *count <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit() {
        let rate = RateLimit::new(2);
        assert!(rate.take("a") && rate.take("a") && !rate.take("a"));
        assert!(rate.take_many("b", 2) && !rate.take("b"));
        assert!(!rate.take_many("c", 3) && !rate.take_many("c", u32::MAX));
    }
}
