//! The logs of workers.

use std::{
    collections::HashMap,
    fmt,
    io::{BufRead as _, BufReader},
    path::Path,
    time::Duration,
};

/// The beginnings of lines about a job that a worker no longer has.
const ENDINGS: [&str; 4] = ["abandoned", "committed", "duplicate", "lost"];

/// The beginning of a line about another date.
pub(super) const DATE_CHANGED: &str = "date-changed";

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEntry<W = &'static str> {
    /// What happened.
    pub(super) word: W,
    /// The name of the job.
    pub(super) job: String,
    /// The token of the claim.
    pub(super) token: u64,
    /// When it happened, by the clock of the machine.
    pub(super) at: Duration,
}

impl<W: fmt::Display> fmt::Display for LogEntry<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.word, self.job, self.token, self.at.as_micros())
    }
}

/// Reads a log. A line that a killed worker has not finished is left out, and so are errors.
fn read(path: &Path) -> impl Iterator<Item = LogEntry<String>> {
    let file = std::fs::File::open(path).into_iter();
    file.flat_map(|file| BufReader::new(file).lines().map_while(Result::ok)).filter_map(|line| {
        let [word, job, token, at] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let at = Duration::from_micros(at.parse().ok()?);
        Some(LogEntry { word: word.into(), job: job.into(), token: token.parse().ok()?, at })
    })
}

/// A claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Its token.
    pub(super) token: u64,
    /// When the worker had it.
    pub(super) at: Duration,
}

/// What the logs of all workers say.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// How often a job was done.
    pub(super) executions: usize,
    /// How many claims ended in each way.
    pub(super) endings: HashMap<String, usize>,
    /// How often a worker noticed another date.
    pub(super) date_changes: usize,
    claims: HashMap<String, Vec<Claim>>,
}

impl Logs {
    /// Adds the log of a worker, and returns the jobs that it still has.
    pub(super) fn add(&mut self, path: &Path) -> HashMap<String, Claim> {
        let mut open = HashMap::new();
        for entry in read(path) {
            let claim = Claim { token: entry.token, at: entry.at };
            if entry.word == "claimed" {
                self.claims.entry(entry.job.clone()).or_default().push(claim);
                open.insert(entry.job, claim);
            } else if entry.word == "executed" {
                self.executions += 1;
            } else if entry.word == DATE_CHANGED {
                self.date_changes += 1;
            } else if ENDINGS.contains(&entry.word.as_str()) {
                open.remove(&entry.job);
                *self.endings.entry(entry.word).or_default() += 1;
            }
        }
        open
    }

    /// Returns the jobs that a worker had at a moment.
    pub(super) fn held_at(path: &Path, at: Duration) -> HashMap<String, Claim> {
        let mut open = HashMap::new();
        for entry in read(path).take_while(|entry| entry.at <= at) {
            if entry.word == "claimed" {
                open.insert(entry.job, Claim { token: entry.token, at: entry.at });
            } else if ENDINGS.contains(&entry.word.as_str()) {
                open.remove(&entry.job);
            }
        }
        open
    }

    /// Returns the next claim of a job after this one.
    pub(super) fn next_claim(&self, job: &str, claim: Claim) -> Option<Claim> {
        let claims = self.claims.get(job)?.iter();
        claims.filter(|next| next.token > claim.token).min_by_key(|next| next.token).copied()
    }
}

/// Returns whether a worker has no job.
pub(super) fn is_idle(path: &Path) -> bool {
    Logs::default().add(path).is_empty()
}
