//! From what a dialogue told to the events of a run: our own facts put in, tools kept in pairs, secrets hidden.

use super::{Connection, Here};
use crate::{Event, Origin, Output, Record, RunId, run::PieceOrigin};

impl Connection {
    /// Takes an event of the agent and hands it on.
    pub(super) fn event(&mut self, id: RunId, mut event: Event, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match &mut event {
            Event::Text { text } | Event::Thinking { text } if text.is_empty() => return,
            // Text may hold half a secret whose other half is still to come.
            Event::Text { text } => {
                run.touch(here.at);
                run.begin_turn();
                run.text_origins.push_back((here.at, here.from, here.line));
                let shown = run.held_text.push(self.veil.patterns(), std::mem::take(text));
                self.learned.extend(run.held_text.take_learned());
                return self.put_text(id, shown, here, out);
            }
            Event::Thinking { text } => {
                run.touch(here.at);
                run.begin_turn();
                run.thought_origins.push_back((here.at, here.from, here.line));
                let shown = run.held_thought.push(self.veil.patterns(), std::mem::take(text));
                self.learned.extend(run.held_thought.take_learned());
                return self.put_thought(id, shown, here, out);
            }
            _ => {}
        }
        // Hidden first, so that the same call has the same id wherever it is looked up.
        self.veil.event(&mut event);
        match &mut event {
            Event::Started(_) if run.has_started() => event = again("started", &id.0.to_string()),
            Event::Started(started) => {
                let who = &run.order.who;
                started.run_id.clone_from(&who.run_id);
                started.agent.clone_from(&who.agent);
                started.cwd.clone_from(&who.cwd);
                started.name.clone_from(&who.name);
                started.surface = who.surface;
                if started.agent_version.is_none() {
                    started.agent_version.clone_from(&who.agent_version);
                }
                if started.model.is_none() {
                    started.model.clone_from(&who.model);
                }
                let version = started.agent_version.clone();
                if let Some(model) = &started.model {
                    run.set_model(model.clone());
                }
                if let Some(session) = &started.session_id {
                    run.session = Some(session.clone());
                    if let Some(total) = self.totals.get(session) {
                        run.book.start_from(*total);
                    }
                }
                // What the agent says of itself is the truth, also where its program told nothing.
                run.order.who.agent_version = version;
            }
            Event::ToolUse(tool) if run.is_open(&tool.id) => event = again("tool_use", &tool.id),
            // A tool is closed once; what comes after is passed on, not counted.
            Event::ToolResult { tool_use_id, .. } if !run.is_open(tool_use_id) => {
                event = again("tool_result", tool_use_id)
            }
            _ => {}
        }
        match event {
            // These come in between and do not end the text that is held.
            Event::Warning { .. } | Event::Unreadable { .. } | Event::Usage(_) | Event::Agent { .. } => {}
            _ => self.interrupt_text(id, here, out),
        }
        // What our own order says of the run may hold a secret too.
        self.emit(id, event, here, out);
    }

    /// Tells what was held back because it might have been a secret; what has begun may go on after the next event.
    pub(super) fn interrupt_text(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let patterns = self.veil.patterns();
        let (thought, text) = (run.held_thought.interrupt(patterns), run.held_text.interrupt(patterns));
        self.learned.extend(run.held_thought.take_learned().into_iter().chain(run.held_text.take_learned()));
        self.put_thought(id, thought, here, out);
        self.put_text(id, text, here, out);
    }

    /// Tells what was held back; nothing follows.
    pub(super) fn finish_text(&mut self, id: RunId, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let patterns = self.veil.patterns();
        let (thought, text) = (run.held_thought.finish(patterns), run.held_text.finish(patterns));
        self.learned.extend(run.held_thought.take_learned().into_iter().chain(run.held_text.take_learned()));
        self.put_thought(id, thought, here, out);
        self.put_text(id, text, here, out);
    }

    /// Hands on pieces of thought that were held, each with the line that it came from.
    fn put_thought(&mut self, id: RunId, pieces: Vec<String>, here: Here, out: &mut Vec<Output>) {
        for text in pieces {
            let origin = self.runs.get_mut(&id).and_then(|run| run.thought_origins.pop_front());
            if !text.is_empty() {
                self.put(id, Event::Thinking { text }, came_from(origin, here), out);
            }
        }
    }

    /// Hands on pieces of text that were held, each with the line that it came from.
    fn put_text(&mut self, id: RunId, pieces: Vec<String>, here: Here, out: &mut Vec<Output>) {
        for text in pieces {
            let origin = self.runs.get_mut(&id).and_then(|run| run.text_origins.pop_front());
            if !text.is_empty() {
                self.put(id, Event::Text { text }, came_from(origin, here), out);
            }
        }
    }

    /// Hides secrets in an event and hands it on.
    pub(super) fn emit(&mut self, id: RunId, mut event: Event, here: Here, out: &mut Vec<Output>) {
        self.veil.event(&mut event);
        self.put(id, event, here, out);
    }

    fn put(&mut self, id: RunId, event: Event, here: Here, out: &mut Vec<Output>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let (seq, since) = run.note(&event, here.at);
        if matches!(event, Event::Unreadable { .. }) {
            run.note_unreadable(here.from, here.line);
            // Nonsense shows life where the agent talks, but not where it only complains.
            if here.from != Origin::Stderr {
                run.touch(here.at);
            }
        }
        out.push(Output::Event(id, Record::new(seq, since, here.from, here.line, event)));
    }
}

fn came_from(origin: Option<PieceOrigin>, here: Here) -> Here {
    origin.map_or(here, |(at, from, line)| Here { at, from, line })
}

fn again(what: &str, id: &str) -> Event {
    Event::agent(&format!(
        "{{\"again\":\"{what}\",\"id\":{}}}",
        serde_json::to_string(id).unwrap_or_default()
    ))
}
