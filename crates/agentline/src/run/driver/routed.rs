//! The outputs of a connection, on their way to the runs and to the loop.

use crate::{process::Sweeper, resolve::integrity::Integrity, run::active_run::ActiveRun};
use agentline_core::{ConnectionOutput, Event, Outputs, Record, RunId, Started};
use std::collections::BTreeMap;

/// Passes events on to their runs, and keeps the other outputs.
pub(super) struct RoutedOutputs<'a> {
    pub(super) active_runs: &'a mut BTreeMap<RunId, ActiveRun>,
    pub(super) sweeper: Option<&'a Sweeper>,
    pub(super) integrity: &'a Integrity,
    pub(super) pending: &'a mut Vec<ConnectionOutput>,
}

impl Outputs for RoutedOutputs<'_> {
    fn push(&mut self, output: ConnectionOutput) {
        self.pending.push(output);
    }

    fn event(&mut self, run: RunId, record: Record) {
        let Some(active_run) = self.active_runs.get_mut(&run) else { return };
        // The start of a run that failed before its session was open is reported at its end.
        let has_session = |started: &Started| started.session_id.is_some();
        if matches!(&record.event, Event::Started(started) if has_session(started) || self.sweeper.is_none())
        {
            // Processes that exist before the prompt belong to the agent, not to this run.
            active_run.processes = self.sweeper.map(Sweeper::processes);
            self.integrity.freeze();
        }
        active_run.span.event(&record.event);
        active_run.pending.push(record);
    }
}
