//! What `agentline batch` shows while it runs: on a terminal a bar with rate and time left, elsewhere plain lines.

use crate::ui::Ui;
use agentline_batch::{BatchEvent, Class, RunIndex, RunResult, Suite};
use agentline_core::terminal_text::duration;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of characters of the bar.
const BAR: usize = 20;

/// How long workers may take to appear before their absence is worth a line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The progress of a batch.
pub(super) struct BatchProgress {
    cases: Vec<String>,
    variants: Vec<String>,
    began_at: Instant,
    runs: usize,
    /// The runs that ended in this batch. Those with a result from an earlier one say nothing about the rate.
    ended: usize,
    passed: usize,
    failed: usize,
    infrastructure: usize,
    tokens: u64,
    cost_usd: f64,
    active: Vec<RunIndex>,
    /// The descriptions of the checks of each case.
    checks: Vec<Vec<String>>,
    /// What was said last about the workers of a queue.
    workers: Option<String>,
}

impl BatchProgress {
    pub(super) fn new(suite: &Suite) -> Self {
        Self {
            cases: suite.cases.iter().map(|case| case.id.clone()).collect(),
            variants: suite.variants.iter().map(|variant| variant.id.clone()).collect(),
            began_at: Instant::now(),
            runs: 0,
            ended: 0,
            passed: 0,
            failed: 0,
            infrastructure: 0,
            tokens: 0,
            cost_usd: 0.0,
            active: Vec::new(),
            workers: None,
            checks: suite
                .cases
                .iter()
                .map(|case| case.checks.iter().map(|check| check.label.clone()).collect())
                .collect(),
        }
    }

    /// Returns how many results are by other checks than those of the suite now.
    fn outdated(&self, results: &[RunResult]) -> usize {
        let checks: HashMap<&String, &Vec<String>> = self.cases.iter().zip(&self.checks).collect();
        let is_outdated = |result: &&RunResult| {
            let was_checked = !result.checks.is_empty() || result.class == Class::Passed;
            let labels = result.checks.iter().map(|row| &row.check);
            was_checked && checks.get(&result.case).is_some_and(|checks| !labels.eq(*checks))
        };
        results.iter().filter(is_outdated).count()
    }

    fn name(&self, run: RunIndex) -> String {
        format!("{} · {} · attempt {}", self.cases[run.case], self.variants[run.variant], run.attempt)
    }

    fn count(&mut self, result: &RunResult) {
        match result.class {
            Class::Passed => self.passed += 1,
            Class::Failed => self.failed += 1,
            Class::Infrastructure => self.infrastructure += 1,
        }
        self.tokens += result.tokens.unwrap_or(0);
        self.cost_usd += result.cost_usd.unwrap_or(0.0);
    }

    /// Shows an event.
    pub(super) fn show(&mut self, ui: &mut Ui, event: BatchEvent) {
        match event {
            BatchEvent::Began { runs, results } => {
                self.runs = runs;
                results.iter().for_each(|result| self.count(result));
                if !results.is_empty() {
                    ui.print_status(format!("{} of {runs} runs have a result already", results.len()));
                    let outdated = self.outdated(&results);
                    if outdated > 0 {
                        let note = "are by other checks than the suite has now; `agentline batch grade` applies these";
                        ui.print_status(format!("{outdated} of them {note}"));
                    }
                }
            }
            BatchEvent::RunBegan(run) => self.active.push(run),
            BatchEvent::Retried { run, message } => {
                ui.print_status(format!("{}: again, because {message}", self.name(run)));
            }
            BatchEvent::RunEnded { run, result } => {
                self.active.retain(|active| *active != run);
                if let Some(result) = result {
                    self.ended += 1;
                    self.count(&result);
                    let line = format!("{}: {}", self.name(run), result.class.name());
                    // A terminal has the bar instead.
                    if ui.shows_progress() {
                        ui.detail(line);
                    } else {
                        ui.print_status(format!("[{}/{}] {line}", self.done(), self.runs));
                    }
                }
            }
            BatchEvent::Workers { count, runs, is_paused } => {
                self.active = runs;
                let state = if is_paused {
                    Some("the experiment is paused; `agentline batch resume` continues it".to_owned())
                } else if count == 0 && self.began_at.elapsed() < PATIENCE {
                    None
                } else if count == 0 {
                    Some("no worker is connected; start one with `agentline worker --queue URL`".to_owned())
                } else {
                    let plural = if count == 1 { "" } else { "s" };
                    Some(format!("{count} worker{plural}")).filter(|_| self.workers.is_some())
                };
                if state != self.workers {
                    if let Some(state) = &state {
                        ui.print_status(state);
                    }
                    self.workers = state;
                }
            }
            BatchEvent::Unreachable(reason) => ui.print_status(format!("{reason}; trying again")),
            BatchEvent::Reconnected => ui.print_status("the queue can be reached again"),
            _ => {}
        }
        let active: Vec<String> = self.active.iter().map(|run| self.name(*run)).collect();
        ui.busy_below(&[self.bar(self.began_at.elapsed())], &active.join(", "));
    }

    fn done(&self) -> usize {
        self.passed + self.failed + self.infrastructure
    }

    /// Returns the bar with the counts, the rate and the time left.
    fn bar(&self, elapsed: Duration) -> String {
        let (done, runs) = (self.done(), self.runs.max(1));
        let filled = BAR * done / runs;
        let mut bar = format!(
            "{}{} {done}/{} · {} passed · {} failed · {} infrastructure · {} tokens · ${:.4}",
            "█".repeat(filled),
            "░".repeat(BAR - filled.min(BAR)),
            self.runs,
            self.passed,
            self.failed,
            self.infrastructure,
            self.tokens,
            self.cost_usd
        );
        let seconds = elapsed.as_secs_f64();
        if self.ended > 0 && seconds > 0.0 {
            let rate = self.ended as f64 / seconds;
            let left_ms = 1e3 * self.runs.saturating_sub(done) as f64 / rate;
            bar += &format!(" · {rate:.1}/s · {} left", duration(left_ms as u64));
        }
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_counts_rate_and_time_left() {
        let mut progress = BatchProgress {
            cases: Vec::new(),
            variants: Vec::new(),
            began_at: Instant::now(),
            runs: 40,
            ended: 0,
            passed: 10,
            failed: 0,
            infrastructure: 0,
            tokens: 1200,
            cost_usd: 0.5,
            active: Vec::new(),
            checks: Vec::new(),
            workers: None,
        };
        // Results of an earlier batch say nothing about the rate.
        let bar =
            "█████░░░░░░░░░░░░░░░ 10/40 · 10 passed · 0 failed · 0 infrastructure · 1200 tokens · $0.5000";
        assert_eq!(progress.bar(Duration::from_secs(5)), bar);
        progress.ended = 10;
        assert_eq!(progress.bar(Duration::from_secs(5)), format!("{bar} · 2.0/s · 15.0 s left"));
    }
}
