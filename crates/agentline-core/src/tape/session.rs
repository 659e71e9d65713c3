//! The conversation on a tape, in the form of a saved session.

use super::{Entry as TapeEntry, TapeHeader, TapePlayer};
use crate::{
    Entry, EntryPart, Event, InputKind, Millis, Outcome, Problem, Record, Role, SavedResult, SavedSession,
    SavedTool, ToolResult,
};

/// Builds a saved session from the lines of a tape, so that a recorded run can be shown like one.
///
/// ```no_run
/// # use agentline_core::{Problem, TapeSession};
/// # fn count(lines: Vec<String>) -> Result<usize, Problem> {
/// let mut lines = lines.iter();
/// let mut session = TapeSession::new(lines.next().map_or("", String::as_str))?;
/// lines.try_for_each(|line| session.line(line))?;
/// Ok(session.finish()?.entries.len())
/// # }
/// ```
#[derive(Debug)]
pub struct TapeSession {
    player: TapePlayer,
    session: SavedSession,
    /// The time of the recording, in milliseconds since 1970.
    recorded_at: Millis,
    /// Whether the next text begins a new answer.
    is_new_turn: bool,
}

impl TapeSession {
    /// Starts with the first line of a tape.
    ///
    /// # Errors
    /// Returns a problem if the line is not the header of a tape, or if the format is newer.
    pub fn new(first_line: &str) -> Result<Self, Problem> {
        let header = TapeHeader::read(first_line)?;
        let recorded_at = header.recorded_at.saturating_mul(1000);
        let mut session = SavedSession::default();
        let info = &mut session.info;
        (info.agent, info.project) = (header.agent.clone(), Some(header.cwd.clone()));
        info.agent_version = header.agent_version.as_ref().map(ToString::to_string);
        (info.started, info.updated) = (Some(recorded_at), Some(recorded_at));
        Ok(Self { player: TapePlayer::new(first_line)?, session, recorded_at, is_new_turn: true })
    }

    /// Adds the next line. An invalid line is skipped.
    ///
    /// # Errors
    /// Returns a problem if the agent of the tape is not known.
    pub fn line(&mut self, line: &str) -> Result<(), Problem> {
        let input = serde_json::from_str::<TapeEntry<'_>>(line).ok().and_then(TapeEntry::into_input);
        if let Some(InputKind::Prompt { spec, .. }) = input.as_ref().map(|input| &input.kind) {
            let at = input.as_ref().map_or(0, |input| input.at);
            self.add(Role::User, at).parts.push(EntryPart::text(&spec.prompt));
        }
        for record in self.player.line(line)? {
            self.record(&record);
        }
        Ok(())
    }

    /// Returns the session.
    ///
    /// # Errors
    /// Returns a problem if the agent of the tape is not known.
    pub fn finish(mut self) -> Result<SavedSession, Problem> {
        for record in self.player.finish()? {
            record_in(&mut self.session, &mut self.is_new_turn, self.recorded_at, &record);
        }
        Ok(self.session)
    }

    fn record(&mut self, record: &Record) {
        record_in(&mut self.session, &mut self.is_new_turn, self.recorded_at, record);
    }

    fn add(&mut self, role: Role, at: Millis) -> &mut Entry {
        add(&mut self.session, role, self.recorded_at + at)
    }
}

/// Adds an event.
fn record_in(session: &mut SavedSession, is_new_turn: &mut bool, recorded_at: Millis, record: &Record) {
    let at = recorded_at + record.at_ms;
    match &record.event {
        Event::Started(started) => {
            session.info.id = started.session_id.clone().unwrap_or_else(|| started.run_id.clone());
            session.info.model.clone_from(&started.model);
        }
        Event::Text { text } => match answer(session, is_new_turn, at).parts.last_mut() {
            Some(EntryPart::Text { text: so_far }) => so_far.push_str(text),
            _ => answer(session, is_new_turn, at).parts.push(EntryPart::text(text)),
        },
        Event::Thinking { text } => match answer(session, is_new_turn, at).parts.last_mut() {
            Some(EntryPart::Thinking { text: so_far, .. }) => so_far.push_str(text),
            _ => answer(session, is_new_turn, at).parts.push(EntryPart::thinking(text)),
        },
        Event::ToolUse(call) => {
            let tool = SavedTool::new(call.clone());
            answer(session, is_new_turn, at).parts.push(EntryPart::Tool(Box::new(tool)));
        }
        Event::ToolResult(ToolResult { tool_use_id, status, content, reason, diffs, .. }) => {
            let parts = session.entries.iter_mut().rev().flat_map(|entry| entry.parts.iter_mut().rev());
            let mut tools = parts.filter_map(|part| match part {
                EntryPart::Tool(tool) => Some(tool),
                _ => None,
            });
            if let Some(tool) = tools.find(|tool| tool.call.id == *tool_use_id) {
                let text = content.as_ref().or(reason.as_ref()).cloned().unwrap_or_default();
                tool.result = Some(SavedResult::new(*status, text));
                if !diffs.is_empty() {
                    tool.call.diffs.clone_from(diffs);
                }
            }
            *is_new_turn = true;
        }
        Event::Warning { message, .. } => add(session, Role::System, at).parts.push(EntryPart::text(message)),
        Event::Outcome { outcome } => end(session, outcome, at),
        _ => {}
    }
}

/// Adds the numbers and the failure of a run.
fn end(session: &mut SavedSession, outcome: &Outcome, at: Millis) {
    session.info.updated = Some(at);
    session.info.cost_usd = outcome.cost_usd;
    let last = session.entries.iter_mut().rfind(|entry| entry.role == Role::Assistant);
    if let Some(last) = last {
        last.model.clone_from(&outcome.model);
        (last.usage, last.requests) = (Some(outcome.usage.tokens), outcome.usage.requests);
    }
    if let Some(error) = &outcome.error {
        let text = format!("{}: {}", outcome.verdict.name(), error.message);
        add(session, Role::System, at).parts.push(EntryPart::text(&text));
    }
}

/// Returns the current answer.
fn answer<'a>(session: &'a mut SavedSession, is_new_turn: &mut bool, at: Millis) -> &'a mut Entry {
    let is_answer = session.entries.last().is_some_and(|entry| entry.role == Role::Assistant);
    if std::mem::take(is_new_turn) || !is_answer {
        let model = session.info.model.clone();
        add(session, Role::Assistant, at).model = model;
    }
    let last = session.entries.len() - 1;
    &mut session.entries[last]
}

fn add(session: &mut SavedSession, role: Role, at: Millis) -> &mut Entry {
    let mut entry = Entry::new(format!("{}", session.entries.len()), role);
    entry.timestamp = Some(at);
    session.entries.push(entry);
    let last = session.entries.len() - 1;
    &mut session.entries[last]
}
