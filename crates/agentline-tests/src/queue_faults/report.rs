//! What became of the jobs of a test with faults, and the form in which it is printed.

use crate::engines::EngineKind;
use std::time::Duration;

/// The columns of a row: their names and their widths.
const COLUMNS: [(&str, usize); 17] = [
    ("engine", 15),
    ("jobs", 7),
    ("results", 7),
    ("lost", 4),
    ("repeated", 8),
    ("dropped", 7),
    ("kills", 5),
    ("stops", 5),
    ("restarts", 8),
    ("cuts", 4),
    ("jumps", 5),
    ("reclaims", 8),
    ("slowest", 7),
    ("outage", 6),
    ("stall", 7),
    ("memory", 7),
    ("time", 8),
];

/// What became of the jobs.
#[derive(Clone, Debug, Default)]
pub struct FaultReport {
    /// The number of jobs.
    pub jobs: usize,
    /// The number of committed results.
    pub results: usize,
    /// The jobs without a result.
    pub lost: usize,
    /// How often a job was done again.
    pub duplicates: usize,
    /// The claims that a worker abandoned, lost, or committed too late.
    pub abandoned: usize,
    /// The workers that were killed.
    pub kills: usize,
    /// The workers that were stopped.
    pub stops: usize,
    /// How often the server was killed.
    pub restarts: usize,
    /// The disturbances of connections.
    pub cuts: usize,
    /// The changes of the date that a worker noticed.
    pub clock_jumps: usize,
    /// The jobs that killed or stopped workers had and others claimed.
    pub reclaims: usize,
    /// The jobs of killed or stopped workers that are neither claimed again nor committed by them.
    pub unexplained: usize,
    /// The longest time from a kill or a stop to the next claim of a job that the worker had, without the time for which
    /// there was no server.
    pub slowest_reclaim: Duration,
    /// The longest time without a server.
    pub longest_outage: Duration,
    /// The longest time without a new result.
    pub longest_stall: Duration,
    /// The most memory that a worker had, in kilobytes.
    pub worker_memory_kb: u64,
    /// How long it took until all jobs had results.
    pub time: Duration,
}

impl FaultReport {
    /// Returns the names of the columns of a row.
    #[must_use]
    pub fn header() -> String {
        line(COLUMNS.map(|(name, _)| name.to_owned()))
    }

    /// Returns the report as a row of a table.
    #[must_use]
    pub fn row(&self, kind: EngineKind) -> String {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        line([
            kind.name().to_owned(),
            self.jobs.to_string(),
            self.results.to_string(),
            self.lost.to_string(),
            self.duplicates.to_string(),
            self.abandoned.to_string(),
            self.kills.to_string(),
            self.stops.to_string(),
            self.restarts.to_string(),
            self.cuts.to_string(),
            self.clock_jumps.to_string(),
            self.reclaims.to_string(),
            seconds(self.slowest_reclaim),
            seconds(self.longest_outage),
            seconds(self.longest_stall),
            format!("{} MB", self.worker_memory_kb / 1024),
            seconds(self.time),
        ])
    }

    /// Returns what is wrong: a lost job, or one that was claimed too late after its worker failed.
    #[must_use]
    pub fn problems(&self, lease: Duration) -> Vec<String> {
        let mut problems = Vec::new();
        if self.results != self.jobs || self.lost > 0 {
            problems.push(format!("{} of {} jobs have a result", self.results, self.jobs));
        }
        if self.unexplained > 0 {
            problems.push(format!("{} jobs of failed workers were not claimed again", self.unexplained));
        }
        if self.slowest_reclaim > lease + Duration::from_secs(5) {
            problems.push(format!("a job was claimed again after {:?}", self.slowest_reclaim));
        }
        problems
    }
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let cells = cells.into_iter().zip(COLUMNS);
    cells.map(|(cell, (_, width))| format!("{cell:>width$}")).collect::<Vec<_>>().join("  ")
}
