//! The end of runs and processes: stops, limits, timeouts, the shutdown ladder, and the last outputs of a run.

use super::{COLLECT_REQUEST, Connection, CurrentLine, ProcessState, VALIDATE_REQUEST};
use crate::{
    Concurrency, ConnectionOutput, Event, ExitReason, Failure, FailureKind, FileRow, HostRequest,
    HostRequestId, HostResponse, Millis, Origin, Outputs, PermissionDecision, Record, RunId, ShutdownStep,
    Signal, StopReason, Timeout, ToolResult, ToolStatus,
    run::{RunStage, RunState},
};

/// How long an agent without runs may take for each step of its shutdown.
const IDLE_STEP: Millis = 250;

impl Connection {
    /// Cancels a run. A run that already has a result keeps it, but ends without further waiting.
    pub(super) fn cancel(&mut self, id: RunId, signal: Signal, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match run.stage {
            RunStage::Ended(_) if self.dialogue.room() == Concurrency::Once => self.close(current.at, out),
            // The answer is complete, but it is no longer validated.
            RunStage::Ended(_) if run.needs_validation() => run.facts.stop = Some(StopReason::Cancel(signal)),
            RunStage::Ended(_) => run.skip_quiet_period = true,
            // The result is known; only the comparison of the disk is cut short.
            RunStage::CollectingChanges(_) => run.cancelled_while_collecting = true,
            _ => self.stop(id, StopReason::Cancel(signal), current, out),
        }
        if signal == Signal::Kill {
            self.kill_for(id, current.at, out);
        }
    }

    /// Kills the process because of one run, unless other runs need it.
    fn kill_for(&mut self, id: RunId, at: Millis, out: &mut dyn Outputs) {
        if let Some(run) = self.runs.get_mut(&id)
            && matches!(run.facts.stop, Some(StopReason::Cancel(_)))
        {
            run.facts.stop = Some(StopReason::Cancel(Signal::Kill));
        }
        let is_over =
            matches!(self.life, ProcessState::Exited | ProcessState::Closing(ShutdownStep::Kill, _));
        let is_killed = |run: &RunState| matches!(run.facts.stop, Some(StopReason::Cancel(Signal::Kill)));
        if !is_over && !self.runs.values().any(|run| run.id != id && run.needs_process() && !is_killed(run)) {
            self.retiring = true;
            self.shut_down(ShutdownStep::Kill, at, out);
        }
    }

    /// Stops a run: through the protocol if the surface supports it, otherwise by the shutdown ladder.
    pub(super) fn stop(
        &mut self,
        id: RunId,
        reason: StopReason,
        current: CurrentLine,
        out: &mut dyn Outputs,
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.stage == RunStage::Validating {
            // The agent is idle, so only the pending validation is withdrawn.
            run.facts.stop = Some(reason);
            run.stage = RunStage::Ended(current.at);
            run.skip_quiet_period = true;
            self.withdraw_all(id, out);
            return;
        }
        if !run.is_live() {
            return;
        }
        run.facts.stop = Some(reason);
        self.halt(id, current, out);
    }

    /// Ends the run now; the reason is already recorded.
    pub(super) fn halt(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.stage = RunStage::Stopping(current.at + run.spec.timeouts.shutdown_step);
        self.withdraw_all(id, out);
        let in_band = self.life != ProcessState::Exited && self.dialogue.cancel(id, &mut self.sink);
        if !in_band {
            self.close_for(id, current.at, out);
        }
    }

    fn withdraw_all(&mut self, id: RunId, out: &mut dyn Outputs) {
        for ask in self.runs.get_mut(&id).map(RunState::take_open_requests).unwrap_or_default() {
            self.requests.remove(&ask);
            out.push(ConnectionOutput::Withdraw(ask));
        }
    }

    /// Closes the process because of one run: immediately, or after the other runs on it are finished.
    fn close_for(&mut self, id: RunId, at: Millis, out: &mut dyn Outputs) {
        if self.runs.values().any(|run| run.id != id && run.needs_process()) {
            self.retiring = true;
        } else {
            self.close(at, out);
        }
    }

    /// Handles a closed stdout: the agent can report nothing more, so the process is closed.
    pub(super) fn stdout_closed(&mut self, at: Millis, out: &mut dyn Outputs) {
        for run in self.runs.values_mut() {
            run.hint(Failure::new(FailureKind::Crashed, "the agent closed its output without exiting"));
        }
        self.close(at, out);
    }

    /// Starts the shutdown ladder, once; later calls leave the current step unchanged.
    pub(super) fn close(&mut self, at: Millis, out: &mut dyn Outputs) {
        self.retiring = true;
        if matches!(self.life, ProcessState::Starting(_) | ProcessState::Ready) {
            let first = if self.stdin_open { ShutdownStep::CloseStdin } else { ShutdownStep::Interrupt };
            self.shut_down(first, at, out);
        }
    }

    /// Returns whether the results of all turns are known. Nothing of the agent may outlive its runs, so their outcomes
    /// wait for its exit, but only briefly.
    fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.dialogue.room() != Concurrency::Once
    }

    fn shut_down(&mut self, shutdown_step: ShutdownStep, at: Millis, out: &mut dyn Outputs) {
        let longest = self.timeouts.shutdown_step;
        let step = if self.is_idle() { IDLE_STEP.min(longest) } else { longest };
        self.life = ProcessState::Closing(shutdown_step, at + step);
        if shutdown_step == ShutdownStep::CloseStdin {
            self.stdin_open = false;
        }
        out.push(ConnectionOutput::Close(shutdown_step));
    }

    /// Checks limits and timeouts. An input that arrives in time is handled before the timeout is checked.
    pub(super) fn watch(&mut self, current: CurrentLine, out: &mut dyn Outputs) {
        self.watch_process(current.at, out);
        let due: Vec<(RunId, Option<StopReason>, Option<Timeout>)> = self
            .runs
            .values()
            .filter_map(|run| {
                let limit = if run.is_live() { run.over_limit() } else { None };
                let clock = self.run_deadline(run).filter(|(when, _)| current.at >= *when).map(|d| d.1);
                (limit.is_some() || clock.is_some()).then_some((run.id, limit, clock))
            })
            .collect();
        for (id, limit, clock) in due {
            match (limit, clock) {
                (Some(limit), _) => self.stop(id, limit, current, out),
                (None, Some(clock)) => self.clock_ran_out(id, clock, current, out),
                (None, None) => {}
            }
        }
        self.route(current, out);
    }

    fn watch_process(&mut self, at: Millis, out: &mut dyn Outputs) {
        match self.life {
            ProcessState::Closing(shutdown_step, until) if at >= until => match shutdown_step {
                // There is nothing to interrupt.
                ShutdownStep::CloseStdin if self.is_idle() => {
                    self.shut_down(ShutdownStep::Terminate, at, out);
                }
                ShutdownStep::CloseStdin => self.shut_down(ShutdownStep::Interrupt, at, out),
                ShutdownStep::Interrupt => self.shut_down(ShutdownStep::Terminate, at, out),
                ShutdownStep::Terminate => self.shut_down(ShutdownStep::Kill, at, out),
                // No exit was reported after the kill, so treat the process as lost.
                ShutdownStep::Kill => self.exited(ExitReason::Lost),
            },
            _ => self.leave_when_empty(at, out),
        }
    }

    /// Closes the process if it has no runs and is either retiring or has exceeded its startup timeout.
    pub(super) fn leave_when_empty(&mut self, at: Millis, out: &mut dyn Outputs) {
        let overdue =
            matches!(self.life, ProcessState::Starting(since) if at >= since + self.timeouts.startup);
        if self.runs.is_empty() && (self.retiring || overdue) {
            self.close(at, out);
        }
    }

    fn clock_ran_out(&mut self, id: RunId, clock: Timeout, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match clock {
            Timeout::Answer if matches!(run.stage, RunStage::CollectingChanges(_)) => {
                run.stage = RunStage::Over;
                let disk = crate::DiskReport { unknown: true, ..crate::DiskReport::default() };
                run.disk = Some(disk);
                self.withdraw_all(id, out);
                self.dialogue.finish(id, &mut self.sink);
            }
            // No answer in time counts as a denial, so the agent does not hang.
            Timeout::Answer => {
                for ask in run.requests.clone() {
                    out.push(ConnectionOutput::Withdraw(ask));
                    let no = HostResponse::PermissionDecided(PermissionDecision::deny(
                        "clock",
                        "no answer in time",
                    ));
                    self.answer(ask, &no, current, out);
                }
            }
            // The agent ignores the cancellation: give up this run on a shared process, otherwise start the shutdown
            // ladder.
            Timeout::Cancel => {
                if self.dialogue.room() != Concurrency::Once {
                    run.stage = RunStage::Ended(current.at);
                    run.skip_quiet_period = true;
                }
                self.close_for(id, current.at, out);
            }
            Timeout::Linger => self.close(current.at, out),
            Timeout::Quiet => {}
            clock => {
                let message = run.clock_text(clock, current.at);
                self.stop(id, StopReason::Clock(clock, message), current, out);
            }
        }
    }

    /// Ends runs that are over: validates the answer, collects changes, and emits the outcome.
    pub(super) fn reap(&mut self, current: CurrentLine, out: &mut dyn Outputs) {
        let has_exited = self.life == ProcessState::Exited;
        let once = self.dialogue.room() == Concurrency::Once;
        for id in self.runs.keys().copied().collect::<Vec<_>>() {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            let ended = match run.stage {
                RunStage::Ended(_) if once => has_exited,
                RunStage::Ended(_) => {
                    has_exited || run.deadline().is_some_and(|(when, _)| current.at >= when)
                }
                RunStage::Validating | RunStage::CollectingChanges(_) | RunStage::Over => false,
                _ => has_exited,
            };
            if ended {
                if run.needs_validation() {
                    self.validate(id, out);
                } else {
                    self.collect_changes(id, current, out);
                }
            }
            if self.runs.get(&id).is_some_and(|run| run.stage == RunStage::Over) {
                self.finish(id, current, out);
            }
        }
    }

    /// Asks the host to validate the answer.
    fn validate(&mut self, id: RunId, out: &mut dyn Outputs) {
        self.finish_text(id, out);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let ask = HostRequestId(id.0 << 8 | VALIDATE_REQUEST);
        let question = HostRequest::Validate {
            text: run.text().to_owned(),
            value: run.value.as_ref().map(|v| v.get().to_owned()),
        };
        run.stage = RunStage::Validating;
        run.requests.insert(ask);
        self.requests.insert(ask, (id, question.clone()));
        out.push(ConnectionOutput::Ask(id, ask, question));
    }

    /// Handles the host's validation of the answer.
    pub(super) fn validated(&mut self, id: RunId, answer: &HostResponse, current: CurrentLine) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.stage == RunStage::Validating) else {
            return;
        };
        match answer {
            HostResponse::Again(_) if self.life == ProcessState::Exited => {
                let failure =
                    Failure::new(FailureKind::Crashed, "the agent exited before it could be re-prompted");
                run.reject(failure, current.at);
            }
            HostResponse::Again(prompt) => {
                run.resume(current.at);
                self.dialogue.reprompt(id, prompt, &mut self.sink);
            }
            HostResponse::Accept { value } => run.accept(value.as_deref(), current.at),
            HostResponse::Reject(failure) => run.reject(failure.clone(), current.at),
            _ => run.accept(None, current.at),
        }
    }

    /// Asks the shell to read side files to their end and to compare the workspace.
    fn collect_changes(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        self.finish_text(id, out);
        self.withdraw_all(id, out);
        let Some(run) = self.runs.get_mut(&id) else { return };
        if !run.spec.collect_changes {
            run.stage = RunStage::Over;
            self.dialogue.finish(id, &mut self.sink);
            return;
        }
        let ask = HostRequestId(id.0 << 8 | COLLECT_REQUEST);
        let question =
            HostRequest::CollectChanges { reported: run.changes.reported(), edits: run.changes.edits() };
        run.stage = RunStage::CollectingChanges(current.at);
        run.requests.insert(ask);
        self.requests.insert(ask, (id, question.clone()));
        out.push(ConnectionOutput::Ask(id, ask, question));
    }

    /// Emits the last outputs of a run.
    fn finish(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        let current = CurrentLine { from: Origin::Agentline, line: None, ..current };
        self.route(current, out);
        self.finish_text(id, out);
        self.ensure_started(id, current, out);
        // Every started tool call is closed exactly once, here at the latest.
        let open = self.runs.get(&id).map(RunState::open_tools).unwrap_or_default();
        for tool in open {
            self.emit(id, Event::from(ToolResult::new(tool, ToolStatus::Cancelled, None)), current, out);
        }
        if self.runs.get_mut(&id).is_some_and(RunState::correct_text) {
            let message = "the agent sent part of its answer more than once; `text` is the version recorded in its session";
            self.emit(id, Event::warning("text_repeated", message), current, out);
        }
        for doubt in self.runs.get(&id).map(RunState::doubts).unwrap_or_default() {
            self.emit(id, Event::warning(doubt.code, doubt.message), current, out);
        }
        self.warn_about_disk(id, current, out);
        self.sink.forget(id);
        self.side_lines.remove(&id);
        let Some(mut run) = self.runs.remove(&id) else { return };
        // The message of an error may quote these texts in another form.
        run.redact_output(&self.redactor);
        let mut outcome = run.outcome(current.at);
        self.redactor.outcome(&mut outcome);
        for file in &outcome.files {
            let (seq, since) = run.note(&file_change(file), current.at);
            out.event(id, Record::new(seq, since, Origin::Disk, None, file_change(file)));
        }
        out.push(ConnectionOutput::Done(id, Box::new(outcome)));
        if self.dialogue.room() == Concurrency::Once {
            self.retiring = true;
        }
    }

    fn warn_about_disk(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(disk) = self.runs.get(&id).and_then(|run| run.disk.clone()) else { return };
        if disk.shared {
            let message =
                "another run was active in this workspace, so changes cannot be attributed to one of them";
            self.emit(id, Event::warning("shared_workspace", message), current, out);
        }
        if disk.unknown {
            let message =
                "the workspace could not be compared; `files` lists only changes that tools reported";
            self.emit(id, Event::warning("workspace_not_compared", message), current, out);
        }
    }
}

fn file_change(file: &FileRow) -> Event {
    Event::FileChange {
        path: file.path.clone(),
        change: file.change,
        source: file.source,
        tool_use_id: file.tool_use_id.clone(),
        verified: file.verified,
        diff: file.diff.clone(),
    }
}
