//! Turns reports of a dialogue into events of a run: fills in known facts, pairs tool calls, redacts secrets.

use crate::connection::{Connection, CurrentLine};
use crate::{
    Event, Millis, Origin, Outputs, Record, RunId, Started,
    run::{RunState, Waiting},
};
use std::collections::VecDeque;

impl Connection {
    /// Handles an event of the agent and emits it.
    pub(super) fn event(&mut self, id: RunId, mut event: Event, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Event::ToolOutput { tool_use_id, text } = event {
            return self.take_tool_output(id, tool_use_id, text, current, out);
        }
        // Redact first, so that a call has the same id in every lookup.
        self.redactor.event(&mut event);
        match &mut event {
            Event::Started(_) if run.session.is_some() => event = duplicate("started", &id.0.to_string()),
            Event::Started(started) => {
                let info = &run.spec.info;
                started.run_id.clone_from(&info.run_id);
                started.agent.clone_from(&info.agent);
                started.cwd.clone_from(&info.cwd);
                started.name.clone_from(&info.name);
                started.surface = info.surface;
                if started.agent_version.is_none() {
                    started.agent_version.clone_from(&info.agent_version);
                }
                if started.model.is_none() {
                    started.model.clone_from(&info.model);
                }
                let version = started.agent_version.clone();
                if let Some(model) = &started.model {
                    run.set_model(model.clone());
                }
                if let Some(session) = &started.session_id {
                    run.session = Some(session.clone());
                    if let Some(total) = self.totals.get(session) {
                        run.usage.start_from(*total);
                    }
                }
                // The version that the agent reports takes precedence over the detected one.
                run.spec.info.agent_version = version;
                if run.has_started() {
                    event = duplicate("started", &id.0.to_string());
                }
            }
            Event::ToolUse(tool) if run.is_open(&tool.id) => event = duplicate("tool_use", &tool.id),
            // Only the first result closes a tool call; later ones are passed on but not counted.
            Event::ToolResult(result) if !run.is_open(&result.tool_use_id) => {
                event = duplicate("tool_result", &result.tool_use_id)
            }
            _ => {}
        }
        match event {
            // These events do not end the text that is held back.
            Event::Warning { .. } | Event::Unreadable { .. } | Event::Usage(_) | Event::Agent { .. } => {
                if !run.waiting.is_empty() {
                    let arrival = (current.at, current.from, current.line);
                    return run.waiting.push_back(Waiting::Event(Box::new(event), arrival));
                }
            }
            Event::Started(_)
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolUse(_)
            | Event::ToolOutput { .. }
            | Event::ToolResult(_)
            | Event::FileChange { .. }
            | Event::Permission(_)
            | Event::Content { .. }
            | Event::Plan { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. }
            | Event::Retry { .. }
            | Event::Outcome { .. } => self.interrupt_text(id, out),
        }
        // The facts from the run's specification may contain a secret too.
        self.emit(id, event, current, out);
    }

    /// Handles a piece of text or thought, and emits the part that cannot be the start of a secret.
    pub(super) fn take_piece(
        &mut self,
        id: RunId,
        is_thought: bool,
        text: String,
        current: CurrentLine,
        out: &mut dyn Outputs,
    ) {
        let Some(run) = self.runs.get_mut(&id).filter(|_| !text.is_empty()) else { return };
        run.touch(current.at);
        run.begin_turn();
        let arrival = (current.at, current.from, current.line);
        run.waiting.push_back(Waiting::Piece { is_thought, arrival, shown: None });
        let redactor = if is_thought { &mut run.thought_redactor } else { &mut run.text_redactor };
        let shown = redactor.push(self.redactor.patterns(), text);
        self.learned.extend(redactor.take_learned());
        fill(&mut run.waiting, is_thought, shown);
        run.buffered_since = Some(current.at);
        self.put_waiting(id, out);
    }

    /// Handles a piece of a running tool's output, and emits the part that cannot be the start of a secret. The rest is
    /// not lost: the result of the call has the complete output.
    fn take_tool_output(
        &mut self,
        id: RunId,
        mut call: String,
        text: String,
        current: CurrentLine,
        out: &mut dyn Outputs,
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        self.redactor.own(&mut call);
        run.touch(current.at);
        let Some(redactor) = run.output_redactor(&call) else { return };
        let mut shown = redactor.push(self.redactor.patterns(), text);
        self.learned.extend(redactor.take_learned());
        shown.retain(|text| !text.is_empty());
        if !shown.is_empty() {
            self.interrupt_text(id, out);
        }
        for text in shown {
            self.put(id, Event::ToolOutput { tool_use_id: call.clone(), text }, current, out);
        }
    }

    /// Emits held-back text up to a possible start of a secret, after a short silence.
    pub(super) fn show_after_silence(&mut self, at: Millis, out: &mut dyn Outputs) {
        let due = |run: &&mut RunState| run.buffer_deadline().is_some_and(|when| at >= when);
        let mut shown = Vec::new();
        for run in self.runs.values_mut().filter(due) {
            run.buffered_since = None;
            for (is_thought, redactor) in [(true, &mut run.thought_redactor), (false, &mut run.text_redactor)]
            {
                if let Some((piece, texts)) = redactor.divide(self.redactor.patterns()) {
                    divide(&mut run.waiting, is_thought, piece);
                    fill(&mut run.waiting, is_thought, texts);
                }
            }
            shown.push(run.id);
        }
        shown.into_iter().for_each(|id| self.put_waiting(id, out));
    }

    /// Emits held-back text before another event; a secret that has started may continue after that event.
    pub(super) fn interrupt_text(&mut self, id: RunId, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let patterns = self.redactor.patterns();
        let (thought, text) =
            (run.thought_redactor.interrupt(patterns), run.text_redactor.interrupt(patterns));
        self.put_buffered(id, thought, text, out);
    }

    /// Emits all held-back text; no more text follows.
    pub(super) fn finish_text(&mut self, id: RunId, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let patterns = self.redactor.patterns();
        let (thought, text) = (run.thought_redactor.finish(patterns), run.text_redactor.finish(patterns));
        self.put_buffered(id, thought, text, out);
    }

    fn put_buffered(&mut self, id: RunId, thought: Vec<String>, text: Vec<String>, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        self.learned
            .extend(run.thought_redactor.take_learned().into_iter().chain(run.text_redactor.take_learned()));
        fill(&mut run.waiting, true, thought);
        fill(&mut run.waiting, false, text);
        self.put_waiting(id, out);
    }

    /// Emits queued events whose redacted form is known, each with the line it came from.
    fn put_waiting(&mut self, id: RunId, out: &mut dyn Outputs) {
        let is_ready = |waiting: &Waiting| !matches!(waiting, Waiting::Piece { shown: None, .. });
        while let Some(run) = self.runs.get_mut(&id)
            && run.waiting.front().is_some_and(is_ready)
            && let Some(waiting) = run.waiting.pop_front()
        {
            let current = |(at, from, line)| CurrentLine { at, from, line };
            match waiting {
                Waiting::Event(event, arrival) => self.put(id, *event, current(arrival), out),
                Waiting::Piece { is_thought, arrival, shown } => {
                    let text = shown.unwrap_or_default();
                    if !text.is_empty() {
                        let event = if is_thought { Event::Thinking { text } } else { Event::Text { text } };
                        self.put(id, event, current(arrival), out);
                    }
                }
            }
        }
    }

    /// Redacts secrets in an event and emits it.
    pub(super) fn emit(&mut self, id: RunId, mut event: Event, current: CurrentLine, out: &mut dyn Outputs) {
        if let Event::ToolUse(tool) = &mut event {
            tool.keep_canonical_arguments();
        }
        self.redactor.event(&mut event);
        self.put(id, event, current, out);
    }

    fn put(&mut self, id: RunId, event: Event, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let is_start = matches!(event, Event::Started(_));
        if !is_start && !run.has_started() {
            if event.may_precede_start() && run.may_hold_back() {
                return run.hold_back(event, (current.at, current.from, current.line));
            }
            self.ensure_started(id, current, out);
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        let (seq, since) = run.note(&event, current.at);
        if let Event::Unreadable { sample, .. } = &event {
            run.note_unreadable(sample, current.from, current.line);
            // Unreadable lines count as activity, except on stderr.
            if current.from != Origin::Stderr {
                run.touch(current.at);
            }
        }
        out.event(id, Record::new(seq, since, current.from, current.line, event));
        if is_start {
            self.put_early(id, current.at, out);
        }
    }

    /// Emits `started` with what is known about the run, if the agent has not reported its start.
    pub(super) fn ensure_started(&mut self, id: RunId, current: CurrentLine, out: &mut dyn Outputs) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.has_started()) else { return };
        let (seq, since) = run.start(current.at);
        let mut event = Event::from(Started::from(&run.spec.info));
        self.redactor.event(&mut event);
        out.event(id, Record::new(seq, since, Origin::Agentline, None, event));
        self.put_early(id, current.at, out);
    }

    /// Emits the events that arrived before the start of the run.
    fn put_early(&mut self, id: RunId, at: Millis, out: &mut dyn Outputs) {
        let early = self.runs.get_mut(&id).map(|run| std::mem::take(&mut run.early)).unwrap_or_default();
        for (event, (_, from, line)) in early {
            self.put(id, event, CurrentLine { at, from, line }, out);
        }
    }
}

/// Returns whether this is a piece of the given kind (thoughts or text) whose redacted form is not known yet.
fn is_pending(waiting: &Waiting, thoughts: bool) -> bool {
    matches!(waiting, Waiting::Piece { is_thought, shown: None, .. } if *is_thought == thoughts)
}

/// Assigns redacted forms to the first waiting pieces.
fn fill(waiting: &mut VecDeque<Waiting>, thoughts: bool, texts: Vec<String>) {
    let pending = waiting.iter_mut().filter(|waiting| is_pending(waiting, thoughts));
    for (waiting, text) in pending.zip(texts) {
        if let Waiting::Piece { shown, .. } = waiting {
            *shown = Some(text);
        }
    }
}

/// Splits a waiting piece in two.
fn divide(waiting: &mut VecDeque<Waiting>, thoughts: bool, piece: usize) {
    let pending = waiting.iter().enumerate().filter(|(_, waiting)| is_pending(waiting, thoughts));
    if let Some((at, half)) = pending.map(|(at, pending)| (at, pending.clone())).nth(piece) {
        waiting.insert(at, half);
    }
}

/// Returns the event for something that the agent has reported twice.
fn duplicate(kind: &str, id: &str) -> Event {
    Event::agent(&format!(
        "{{\"again\":\"{kind}\",\"id\":{}}}",
        serde_json::to_string(id).unwrap_or_default()
    ))
}
