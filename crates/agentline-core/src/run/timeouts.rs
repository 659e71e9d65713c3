//! The timeouts of a run, and the messages for expired ones.

use super::{RunStage, RunState};
use crate::{Millis, StopReason, Timeout};

/// How long an open tool may take to report its result after the answer.
const TOOL_QUIET: Millis = 500;
/// The maximum total wait for silence after an answer.
const QUIET_CAP: Millis = 30_000;
/// The time limit for inspecting the workspace.
const COLLECTION: Millis = 30_000;
/// The time limit for inspecting the workspace after the caller cancelled the run.
const HURRIED_COLLECTION: Millis = 5_000;
/// The silence after which held text is shown up to a possible secret.
const BUFFERED_TEXT_DELAY: Millis = 1_000;

impl RunState {
    /// Records activity: the idle timeout restarts.
    pub(super) fn activity(&mut self, kind: &'static str, at: Millis) {
        self.touched = at;
        self.last.kind = kind;
        self.last.at = at;
    }

    /// Records progress: activity after which a pending retry has succeeded.
    pub(super) fn progress(&mut self, kind: &'static str, at: Millis) {
        self.activity(kind, at);
        if self.retry_since.take().is_some() {
            self.facts.retrying = None;
        }
    }

    /// Returns the time at which held text is shown as far as possible.
    pub(crate) fn buffer_deadline(&self) -> Option<Millis> {
        self.buffered_since.filter(|_| !self.waiting.is_empty()).map(|since| since + BUFFERED_TEXT_DELAY)
    }

    /// Returns the time and kind of the next timeout.
    pub(crate) fn deadline(&self) -> Option<(Millis, Timeout)> {
        let soonest = self.deadline_of_stage();
        let callers = self.spec.timeouts.deadline.map(|after| (self.started_at + after, Timeout::Deadline));
        match (self.stage, soonest, callers) {
            (RunStage::Starting | RunStage::Running | RunStage::Validating, Some(soonest), Some(callers))
                if callers.0 < soonest.0 =>
            {
                Some(callers)
            }
            // The deadline also ends the wait for silence.
            (RunStage::Ended(_), Some(soonest), Some(callers)) => Some((soonest.0.min(callers.0), soonest.1)),
            _ => soonest,
        }
    }

    fn deadline_of_stage(&self) -> Option<(Millis, Timeout)> {
        let timeouts = &self.spec.timeouts;
        let run = timeouts.run.saturating_sub(timeouts.spent).max(1);
        let whole = (self.started_at + run + self.waited, Timeout::Run);
        let earlier = |a: (Millis, Timeout), b: (Millis, Timeout)| if b.0 < a.0 { b } else { a };
        match self.stage {
            RunStage::Starting | RunStage::Running if self.asked_at.is_some() => {
                self.asked_at.map(|since| (since + timeouts.answer, Timeout::Answer))
            }
            RunStage::Starting | RunStage::Running if self.silent => Some(self.with_patience(whole)),
            RunStage::Starting => {
                let first =
                    earlier(whole, (self.started_at + timeouts.startup + self.waited, Timeout::Startup));
                Some(self.with_patience(first))
            }
            RunStage::Running => {
                let (silence, clock) = if self.open.is_empty() {
                    (timeouts.idle, Timeout::Idle)
                } else {
                    (timeouts.idle_tool, Timeout::IdleTool)
                };
                Some(self.with_patience(earlier(whole, (self.touched + silence, clock))))
            }
            RunStage::Stopping(until) => Some((until, Timeout::Cancel)),
            RunStage::Ended(since) => {
                // After a stop, a tool may never report, so the run does not wait for it. It still waits for other
                // output, which belongs to this run and not to the next prompt in the session.
                let stopped = self.facts.stop.is_some();
                let tools = if self.open.is_empty() || stopped { 0 } else { TOOL_QUIET };
                let quiet = if self.skip_quiet_period { 0 } else { timeouts.quiet.max(tools) };
                let most = if stopped { timeouts.shutdown_step } else { QUIET_CAP };
                let silent_since = since.max(self.touched);
                Some(((silent_since + quiet).min(since + most), Timeout::Quiet))
            }
            RunStage::Validating => Some(whole),
            RunStage::CollectingChanges(since) => {
                let is_cancelled =
                    self.cancelled_while_collecting || matches!(self.facts.stop, Some(StopReason::Cancel(_)));
                let limit = if is_cancelled { HURRIED_COLLECTION } else { COLLECTION };
                Some((since + limit, Timeout::Answer))
            }
            RunStage::Over => None,
        }
    }

    fn with_patience(&self, other: (Millis, Timeout)) -> (Millis, Timeout) {
        match self.retry_since {
            Some(since) if since + self.spec.timeouts.patience < other.0 => {
                (since + self.spec.timeouts.patience, Timeout::Patience)
            }
            _ => other,
        }
    }

    /// Returns a message with the expired timeout, its length and the last activity.
    pub(crate) fn clock_text(&self, clock: Timeout, at: Millis) -> String {
        let timeouts = &self.spec.timeouts;
        let (message, long) = match clock {
            Timeout::Startup => ("the agent did not respond within the startup timeout of", timeouts.startup),
            Timeout::Idle => ("no activity within the idle timeout of", timeouts.idle),
            Timeout::IdleTool => ("a tool showed no activity within the tool timeout of", timeouts.idle_tool),
            Timeout::Patience => {
                ("the agent kept retrying for longer than the retry patience of", timeouts.patience)
            }
            Timeout::Deadline => ("the deadline passed after", timeouts.deadline.unwrap_or(timeouts.run)),
            _ => ("the run exceeded the timeout of", timeouts.run),
        };
        let mut text = format!("{message} {}", seconds(long));
        if self.last.kind.is_empty() {
            text.push_str("; no earlier activity");
        } else {
            let tool =
                if self.last.kind == "tool_use" { format!(" {}", self.last.tool) } else { String::new() };
            let ago = seconds(at.saturating_sub(self.last.at));
            text.push_str(&format!("; last activity: {}{tool}, {ago} earlier", self.last.kind));
        }
        text
    }
}

/// Formats a duration in seconds.
fn seconds(ms: Millis) -> String {
    if ms.is_multiple_of(1000) {
        format!("{} s", ms / 1000)
    } else {
        format!("{}.{} s", ms / 1000, ms % 1000 / 100)
    }
}
