//! The end of runs and processes: stops, limits, timeouts, the shutdown ladder, and the last outputs of a run.

use super::{Connection, Here, Life, REVIEW_ASK, SETTLE_ASK};
use crate::{
    Answer, Ask, AskId, Clock, Event, Exit, Failure, FileRow, Kind, Millis, Origin, Output, Record, Room,
    Ruling, RunId, Rung, Stop, ToolStatus,
    run::{Run, Stage},
};

impl Connection {
    /// Cancels a run. A run that already has a result keeps it, but ends without further waiting.
    pub(super) fn cancel(&mut self, id: RunId, signal: i32, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match run.stage {
            Stage::Ended(_) if self.talk.room() == Room::Once => self.close(here.at, out),
            // The answer is complete, but it is no longer reviewed.
            Stage::Ended(_) if run.wants_review() => run.seen.stop = Some(Stop::Cancel(signal)),
            Stage::Ended(_) => run.hurried = true,
            // The result is known; only the comparison of the disk is cut short.
            Stage::Settling(_) => run.in_haste = true,
            _ => self.stop(id, Stop::Cancel(signal), here, out),
        }
    }

    /// Stops a run: through the protocol if the surface supports it, otherwise by the shutdown ladder.
    pub(super) fn stop(&mut self, id: RunId, why: Stop, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.stage == Stage::Reviewing {
            // The agent is idle, so only the pending review is withdrawn.
            run.seen.stop = Some(why);
            run.stage = Stage::Ended(here.at);
            run.hurried = true;
            self.withdraw_all(id, out);
            return;
        }
        if !run.is_live() {
            return;
        }
        run.seen.stop = Some(why);
        self.halt(id, here, out);
    }

    /// Ends the run now; the reason is already recorded.
    pub(super) fn halt(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.stage = Stage::Stopping(here.at + run.order.clocks.rung);
        self.withdraw_all(id, out);
        let in_band = self.life != Life::Gone && self.talk.cancel(id, &mut self.say);
        if !in_band {
            self.close_for(id, here.at, out);
        }
    }

    fn withdraw_all(&mut self, id: RunId, out: &mut Vec<Output>) {
        for ask in self.runs.get_mut(&id).map(Run::no_more_asks).unwrap_or_default() {
            self.asks.remove(&ask);
            out.push(Output::Withdraw(ask));
        }
    }

    /// Closes the process because of one run: immediately, or after the other runs on it are finished.
    fn close_for(&mut self, id: RunId, at: Millis, out: &mut Vec<Output>) {
        let needs_it = |run: &Run| !matches!(run.stage, Stage::Settling(_) | Stage::Over);
        if self.runs.values().any(|run| run.id != id && needs_it(run)) {
            self.retiring = true;
        } else {
            self.close(at, out);
        }
    }

    /// Handles a closed stdout: the agent can report nothing more, so the process is closed.
    pub(super) fn mute(&mut self, at: Millis, out: &mut Vec<Output>) {
        for run in self.runs.values_mut() {
            run.hint(Failure::new(Kind::Crashed, "the agent closed its output and lived on"));
        }
        self.close(at, out);
    }

    /// Starts the shutdown ladder, once; later calls leave the current step unchanged.
    pub(super) fn close(&mut self, at: Millis, out: &mut Vec<Output>) {
        self.retiring = true;
        if matches!(self.life, Life::Starting(_) | Life::Ready) {
            let first = if self.stdin_open { Rung::CloseStdin } else { Rung::Interrupt };
            self.climb(first, at, out);
        }
    }

    fn climb(&mut self, rung: Rung, at: Millis, out: &mut Vec<Output>) {
        self.life = Life::Closing(rung, at + self.clocks.rung);
        if rung == Rung::CloseStdin {
            self.stdin_open = false;
        }
        out.push(Output::Close(rung));
    }

    /// Checks limits and timeouts. An input that arrives in time is handled before the timeout is checked.
    pub(super) fn watch(&mut self, here: Here, out: &mut Vec<Output>) {
        self.watch_process(here.at, out);
        let due: Vec<(RunId, Option<Stop>, Option<Clock>)> = self
            .runs
            .values()
            .filter_map(|run| {
                let limit = if run.is_live() { run.over_limit() } else { None };
                let clock = self.run_deadline(run).filter(|(when, _)| here.at >= *when).map(|d| d.1);
                (limit.is_some() || clock.is_some()).then_some((run.id, limit, clock))
            })
            .collect();
        for (id, limit, clock) in due {
            match (limit, clock) {
                (Some(limit), _) => self.stop(id, limit, here, out),
                (None, Some(clock)) => self.clock_ran_out(id, clock, here, out),
                (None, None) => {}
            }
        }
        self.route(here, out);
    }

    fn watch_process(&mut self, at: Millis, out: &mut Vec<Output>) {
        match self.life {
            Life::Closing(rung, until) if at >= until => match rung {
                Rung::CloseStdin => self.climb(Rung::Interrupt, at, out),
                Rung::Interrupt => self.climb(Rung::Terminate, at, out),
                Rung::Terminate => self.climb(Rung::Kill, at, out),
                // No exit was reported after the kill, so treat the process as lost.
                Rung::Kill => self.exited(Exit::Lost),
            },
            _ => self.leave_when_empty(at, out),
        }
    }

    /// Closes the process if it has no runs and is either retiring or has exceeded its startup timeout.
    pub(super) fn leave_when_empty(&mut self, at: Millis, out: &mut Vec<Output>) {
        let overdue = matches!(self.life, Life::Starting(since) if at >= since + self.clocks.startup);
        if self.runs.is_empty() && (self.retiring || overdue) {
            self.close(at, out);
        }
    }

    fn clock_ran_out(&mut self, id: RunId, clock: Clock, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match clock {
            Clock::Answer if matches!(run.stage, Stage::Settling(_)) => {
                run.stage = Stage::Over;
                let disk = crate::Disk { unknown: true, ..crate::Disk::default() };
                run.disk = Some(disk);
                self.withdraw_all(id, out);
                self.talk.settled(id, &mut self.say);
            }
            // No answer in time counts as a denial, so the agent does not hang.
            Clock::Answer => {
                for ask in run.asks.clone() {
                    out.push(Output::Withdraw(ask));
                    let no = Answer::Ruled(Ruling::deny("clock", "no answer in time"));
                    self.answer(ask, &no, here, out);
                }
            }
            // The agent ignores the cancellation: give up this run on a shared process, otherwise start the shutdown
            // ladder.
            Clock::Cancel => {
                if self.talk.room() != Room::Once {
                    run.stage = Stage::Ended(here.at);
                    run.hurried = true;
                }
                self.close_for(id, here.at, out);
            }
            Clock::Linger => self.close(here.at, out),
            Clock::Quiet => {}
            clock => {
                let why = run.clock_text(clock, here.at);
                self.stop(id, Stop::Clock(clock, why), here, out);
            }
        }
    }

    /// Ends runs that are over: reviews the answer, collects changes, and emits the outcome.
    pub(super) fn reap(&mut self, here: Here, out: &mut Vec<Output>) {
        let gone = self.life == Life::Gone;
        let once = self.talk.room() == Room::Once;
        for id in self.runs.keys().copied().collect::<Vec<_>>() {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            let ended = match run.stage {
                Stage::Ended(_) if once => gone,
                Stage::Ended(_) => gone || run.deadline().is_some_and(|(when, _)| here.at >= when),
                Stage::Reviewing | Stage::Settling(_) | Stage::Over => false,
                _ => gone,
            };
            if ended {
                if run.wants_review() {
                    self.review(id, out);
                } else {
                    self.settle(id, here, out);
                }
            }
            if self.runs.get(&id).is_some_and(|run| run.stage == Stage::Over) {
                self.finish(id, here, out);
            }
        }
    }

    /// Asks the host to review the answer.
    fn review(&mut self, id: RunId, out: &mut Vec<Output>) {
        self.finish_text(id, out);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let ask = AskId(id.0 << 8 | REVIEW_ASK);
        let question = Ask::Review {
            text: run.text().to_owned(),
            value: run.value.as_ref().map(|v| v.get().to_owned()),
        };
        run.stage = Stage::Reviewing;
        run.asks.insert(ask);
        self.asks.insert(ask, (id, question.clone()));
        out.push(Output::Ask(id, ask, question));
    }

    /// Handles the host's review of the answer.
    pub(super) fn reviewed(&mut self, id: RunId, answer: &Answer, here: Here) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.stage == Stage::Reviewing) else { return };
        match answer {
            Answer::Again(_) if self.life == Life::Gone => {
                let gone = Failure::new(Kind::Crashed, "the agent ended before it could be sent on");
                run.reject(gone, here.at);
            }
            Answer::Again(prompt) => {
                run.go_on(here.at);
                self.talk.again(id, prompt, &mut self.say);
            }
            Answer::Accept { value } => run.accept(value.as_deref(), here.at),
            Answer::Reject(failure) => run.reject(failure.clone(), here.at),
            _ => run.accept(None, here.at),
        }
    }

    /// Asks the shell to read side files to their end and to compare the workspace.
    fn settle(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        self.finish_text(id, out);
        self.withdraw_all(id, out);
        let Some(run) = self.runs.get_mut(&id) else { return };
        if !run.order.settle {
            run.stage = Stage::Over;
            self.talk.settled(id, &mut self.say);
            return;
        }
        let ask = AskId(id.0 << 8 | SETTLE_ASK);
        let question = Ask::Settle { reported: run.ledger.reported() };
        run.stage = Stage::Settling(here.at);
        run.asks.insert(ask);
        self.asks.insert(ask, (id, question.clone()));
        out.push(Output::Ask(id, ask, question));
    }

    /// Emits the last outputs of a run.
    fn finish(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        let here = Here { from: Origin::Agentline, line: None, ..here };
        self.route(here, out);
        self.finish_text(id, out);
        // Every started tool call is closed exactly once, here at the latest.
        let open = self.runs.get(&id).map(Run::open_tools).unwrap_or_default();
        for tool in open {
            self.emit(id, Event::tool_result(tool, ToolStatus::Cancelled, None), here, out);
        }
        if self.runs.get_mut(&id).is_some_and(Run::correct_text) {
            let message =
                "the agent sent part of its answer more than once; `text` is what it recorded in its session";
            self.emit(id, Event::warning("text_repeated", message), here, out);
        }
        for doubt in self.runs.get(&id).map(Run::doubts).unwrap_or_default() {
            self.emit(id, Event::warning(doubt.code, doubt.message), here, out);
        }
        self.warn_about_disk(id, here, out);
        self.say.forget(id);
        self.side_lines.remove(&id);
        let Some(mut run) = self.runs.remove(&id) else { return };
        let mut outcome = run.outcome(here.at);
        self.veil.outcome(&mut outcome);
        for file in &outcome.files {
            let (seq, since) = run.note(&file_change(file), here.at);
            out.push(Output::Event(id, Record::new(seq, since, Origin::Disk, None, file_change(file))));
        }
        out.push(Output::Done(id, Box::new(outcome)));
        if self.talk.room() == Room::Once {
            self.retiring = true;
        }
    }

    fn warn_about_disk(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        let Some(disk) = self.runs.get(&id).and_then(|run| run.disk.clone()) else { return };
        if disk.shared {
            let message = "another run was active in this workspace, so it cannot be told who changed what";
            self.emit(id, Event::warning("shared_workspace", message), here, out);
        }
        if disk.unknown {
            let message = "the workspace could not be compared; `files` holds only what tools reported";
            self.emit(id, Event::warning("workspace_not_compared", message), here, out);
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
    }
}
