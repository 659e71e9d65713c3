//! Reads the messages of a run from the session that the agent saved.

use super::Completer;
use crate::sessions::SessionFilter;
use agentline_core::{
    Block, BlockOrder, Entry, Message, Outcome, Role, SavedSession, Transcript, View, claude_messages,
    error_chain, unified_message,
};
use std::{borrow::Cow, collections::BTreeSet, path::Path};

impl Completer {
    /// Returns the messages that the agent saved for this run.
    pub(super) fn saved(
        &self,
        transcript: &Transcript,
        outcome: &Outcome,
    ) -> Result<Vec<Message<'static>>, String> {
        let redactor = self.redactor.as_ref().ok_or("only another process knows the secrets to redact")?;
        let id = outcome.session_id.as_deref().ok_or("the agent reported no session")?;
        let store = self.agentline.sessions().unredacted().no_index();
        let found = store
            .find_of(id, Path::new(&outcome.cwd), &SessionFilter::new().agent(&*outcome.agent))
            .map_err(|_| format!("the agent saved no session `{id}`"))?;
        let mut session = store.load(&found).map_err(|error| error_chain(&error))?;
        let of_run = self.of_run(&session);
        redactor.session(&mut session);
        let entries = of_run.into_iter().map(|at| &session.entries[at]);
        let messages = entries.flat_map(|entry| match self.view {
            View::Unified => vec![unified_message(&session.info, entry, BlockOrder::Grouped)],
            _ => claude_messages(&session.info, entry),
        });
        let mut messages: Vec<Message<'static>> = messages.map(Message::into_owned).collect();
        if let Some(call) = calls(transcript.messages()).difference(&calls(&messages)).next() {
            return Err(format!("the session does not contain the call `{call}`"));
        }
        if messages.iter().all(|message| message.role != Role::Assistant) {
            return Err("the session does not contain the answer".into());
        }
        // The stop reason comes from the end of the run, because few agents store it.
        if let Some(last) = messages.last_mut().filter(|last| last.role == Role::Assistant) {
            last.stop_reason =
                last.stop_reason.take().or_else(|| outcome.stop_reason.clone().map(Cow::Owned));
        }
        messages.iter_mut().for_each(|message| redactor.message(message));
        Ok(messages)
    }

    /// Returns the entries after the prompt of this run, without later prompts. An agent may change the times of
    /// earlier entries when it resumes a session, so times are used only if the prompt is not found.
    fn of_run(&self, session: &SavedSession) -> Vec<usize> {
        let is_ours = |entry: &Entry| entry.is_prompt() && entry.text().contains(&self.prompt);
        let prompt = session.entries.iter().rposition(is_ours);
        let is_output = |at: usize, entry: &Entry| {
            let in_time = prompt.map_or(entry.timestamp >= Some(self.began), |prompt| at >= prompt);
            in_time && !entry.context && entry.role != Role::User
        };
        let entries = session.entries.iter().enumerate();
        entries.filter(|(at, entry)| is_output(*at, entry)).map(|(at, _)| at).collect()
    }
}

/// Returns the ids of the tool calls in the messages.
fn calls(messages: &[Message<'static>]) -> BTreeSet<String> {
    let blocks = messages.iter().flat_map(Message::blocks);
    let ids = blocks.filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.to_string()),
        _ => None,
    });
    ids.collect()
}
