//! Collects the changes of a run when it has ended.

use super::{Driver, Open};
use crate::{run::active_run::lost_answer, workspace::WorkspaceBefore};
use agentline_core::{
    Diff, DiskReport, HostRequest, HostRequestId, HostResponse, InputKind, RunId, SideChannel,
};
use std::sync::Arc;

impl Driver {
    /// Reads the session file to its end, then compares the workspace.
    pub(super) fn collect_changes(
        &mut self,
        run: RunId,
        ask: HostRequestId,
        reported: Vec<String>,
        edits: Vec<Diff>,
    ) {
        let Some(active_run) = self.active_runs.get_mut(&run) else { return };
        let before = active_run.before.take();
        // With several runs on the process, a stray process cannot be attributed; such runs start none.
        let alone = self.active_runs.len() == 1;
        let Some(active_run) = self.active_runs.get_mut(&run) else { return };
        let strays = self.sweeper.clone().zip(active_run.processes.take()).filter(|_| alone);
        for line in active_run.follower.drain() {
            self.side_line(run, SideChannel::SessionFile, line);
        }
        // Checking here that there is nothing to do is cheaper than a blocking task. Processes that the run left behind
        // may still be writing.
        if reported.is_empty()
            && strays.as_ref().is_none_or(|(sweeper, processes)| sweeper.is_clean(processes))
            && before.as_ref().is_none_or(WorkspaceBefore::is_small_and_unchanged)
        {
            let mut disk = before.map_or_else(DiskReport::default, WorkspaceBefore::unchanged);
            disk.tampered = self.integrity.change();
            return self.feed(InputKind::Answer { ask, answer: HostResponse::ChangesCollected(disk) });
        }
        let integrity = Arc::clone(&self.integrity);
        let secrets = self.hidden.clone();
        let compare = move || {
            if let Some((sweeper, processes)) = strays {
                sweeper.sweep(&processes);
            }
            let mut disk =
                before.map_or_else(DiskReport::default, |before| before.compare(&reported, &edits, &secrets));
            disk.tampered = integrity.change();
            (Vec::new(), HostResponse::ChangesCollected(disk))
        };
        let task = self.requests.tasks.spawn_blocking(compare);
        let otherwise = lost_answer(&HostRequest::CollectChanges { reported: Vec::new(), edits: Vec::new() });
        self.requests.open.insert(task.id(), Open { run, ask, otherwise, task });
    }
}
