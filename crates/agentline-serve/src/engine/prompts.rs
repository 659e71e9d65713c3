//! Opens, continues and closes conversations.

use super::{PROMPT_SHOWN, ServeEngine, new_id, new_run, settings_of};
use crate::{
    clock::now_ms,
    conversation::{ConversationState, PROMPTS, PromptTurn, PromptTurns, TurnPlace},
    ending,
    http_error::ApiError,
    messages::{NextPrompt, ServedConversation, ServedRunState, StartRun, Steer, SteerTime},
    ongoing_run::{OngoingRun, StandingAnswers},
    token_use::TokenSlot,
    tokens::AccessToken,
};
use agentline::host::messages::{SessionClose, SessionOpened, SessionPrompt};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, oneshot};

/// How many closed conversations are known. The ones that were closed first are forgotten.
const CLOSED: usize = 256;

impl ServeEngine {
    /// Opens a conversation whose request was checked. Its token has the slot until the conversation is closed. A caller
    /// that stops waiting leaves an agent behind that nothing closes.
    pub(crate) async fn open(
        &self,
        mut start: StartRun,
        token: &AccessToken,
        slot: TokenSlot,
    ) -> Result<ServedConversation, ApiError> {
        let id = new_id();
        start.params.run = Some(id.clone());
        // It has no effect in a conversation, whose events are always merged only while the server is slow.
        start.params.merge_events = None;
        let host = Arc::clone(self.host()?);
        let settings = settings_of(&start, token);
        let opened: SessionOpened = host.ask("session/open", &start.params).await?;
        let about = &settings.about;
        let info = ServedConversation {
            conversation: id.clone(),
            session_id: opened.session_id,
            agent: about.agent.clone(),
            working_dir: about.working_dir.clone(),
            state: "open".to_owned(),
            opened_at_ms: now_ms(),
            started_by: about.started_by.clone(),
            ..ServedConversation::default()
        };
        let conversation = ConversationState {
            session: opened.session,
            settings,
            info: Mutex::new(info.clone()),
            standing: StandingAnswers::default(),
            places: Arc::new(Semaphore::new(PROMPTS)),
            turns: PromptTurns::new(),
            slot: Mutex::new(Some(slot)),
        };
        self.conversations().insert(id, Arc::new(conversation));
        Ok(info)
    }

    /// Sends a prompt after the earlier ones, or before those that wait.
    pub(crate) async fn prompt(
        self: &Arc<Self>,
        conversation: &Arc<ConversationState>,
        next: NextPrompt,
        place: TurnPlace,
        token: &AccessToken,
    ) -> Result<Arc<OngoingRun>, ApiError> {
        if next.prompt.trim().is_empty() {
            return Err(ApiError::usage("prompt", "is empty", "write a prompt"));
        }
        let turn = self.admit(token, conversation.settings.max_cost).await?;
        let (id, session_id) = {
            let info = conversation.lock_info();
            if info.state != "open" {
                return Err(ApiError::conflict("the conversation is closed"));
            }
            (info.conversation.clone(), info.session_id.clone())
        };
        let is_first = conversation.places.available_permits() == PROMPTS;
        let permit = Arc::clone(&conversation.places)
            .try_acquire_owned()
            .map_err(|_| ApiError::conflict(format!("{PROMPTS} prompts of this conversation are waiting")))?;
        let mut info = new_run(&conversation.settings, token);
        info.prompt = next.prompt.chars().take(PROMPT_SHOWN).collect();
        (info.conversation, info.session_id) = (Some(id), Some(session_id));
        info.state = if is_first { ServedRunState::Running } else { ServedRunState::Queued };
        let (sender, begun) = oneshot::channel();
        let (engine, conversation) = (Arc::clone(self), Arc::clone(conversation));
        // A task of its own: it follows the run to its outcome.
        self.tasks.spawn(async move {
            let standing = Arc::clone(&conversation.standing);
            let run = engine.begin(info, standing, &conversation.settings).await;
            drop(turn);
            conversation.lock_info().runs.push(run.id.clone());
            // The caller may cancel the active prompt next, so this one must be in the queue by then.
            let turn = conversation.turns.enter(Arc::clone(&run), place);
            // The caller may have stopped waiting.
            let _ = sender.send(Arc::clone(&run));
            engine.follow_prompt(&conversation, &run, turn, next).await;
            drop(permit);
        });
        begun.await.map_err(|_| ApiError::unavailable())
    }

    async fn follow_prompt(
        &self,
        conversation: &ConversationState,
        run: &Arc<OngoingRun>,
        turn: oneshot::Receiver<PromptTurn<OngoingRun>>,
        next: NextPrompt,
    ) {
        let turn = tokio::select! {
            biased;
            () = run.cancelled.cancelled() => None,
            // Its sender is in the queue until it is used.
            turn = turn => turn.ok(),
        };
        let Some(_turn) = turn else {
            let outcome = json!(ending::never_sent(&run.info())).to_string();
            return self.finish(run, Ok(outcome)).await;
        };
        let Ok(host) = self.host().cloned() else {
            let outcome = json!(ending::interrupted(&run.info())).to_string();
            return self.finish(run, Ok(outcome)).await;
        };
        self.store.update(run.change(|info| info.state = ServedRunState::Running)).await;
        let mut params = SessionPrompt::default();
        params.session.clone_from(&conversation.session);
        params.prompt = next.prompt;
        params.run = Some(run.id.clone());
        params.messages = next.messages;
        let answer = host.call("session/prompt", &params);
        let answer = self.until_abandoned(run, conversation.settings.grace, answer).await;
        self.finish(run, answer.map(|outcome| outcome.get().to_owned())).await;
    }

    /// Sends a text into the conversation of a run, after its prompts or at once instead of the active one.
    pub(crate) async fn steer(
        self: &Arc<Self>,
        run: &OngoingRun,
        steer: Steer,
        token: &AccessToken,
    ) -> Result<Arc<OngoingRun>, ApiError> {
        let conversation =
            run.info().conversation.and_then(|id| self.conversation(&id)).ok_or_else(|| {
                let error = ApiError::conflict("only a run of a conversation can be steered");
                error.hint("open a conversation with POST /v1/conversations")
            })?;
        let next = NextPrompt { prompt: steer.text, messages: false };
        if steer.when == SteerTime::After {
            return self.prompt(&conversation, next, TurnPlace::Last, token).await;
        }
        let next = self.prompt(&conversation, next, TurnPlace::Next, token).await?;
        // The run that was named may wait for its turn, and the active one may have ended meanwhile.
        if let Some(active) = conversation.active().filter(|active| active.id != next.id) {
            self.cancel(&active, None).await;
        }
        Ok(next)
    }

    /// Ends the agent of a conversation that is marked as closed. Its prompt in progress is cancelled. A caller that stops
    /// waiting leaves the agent behind.
    pub(crate) async fn close(&self, conversation: &ConversationState) -> Result<(), ApiError> {
        for run in self.of_conversation(&conversation.info().conversation) {
            self.cancel(&run, None).await;
        }
        let mut close = SessionClose::default();
        close.session.clone_from(&conversation.session);
        let closed = self.call("session/close", &close).await;
        conversation.free_slot();
        self.forget_closed();
        closed.map(drop)
    }

    /// Forgets conversations that were closed long ago.
    fn forget_closed(&self) {
        let mut conversations = self.conversations();
        let closed_at = |one: &Arc<ConversationState>| one.lock_info().closed_at_ms;
        let closed = conversations.iter().filter_map(|(id, one)| Some((closed_at(one)?, id.clone())));
        for id in earliest(closed.collect(), CLOSED) {
            conversations.remove(&id);
        }
    }

    /// Returns the runs in progress of a conversation.
    fn of_conversation(&self, id: &str) -> impl Iterator<Item = Arc<OngoingRun>> {
        self.all().into_iter().filter(move |run| run.info().conversation.as_deref() == Some(id))
    }
}

/// Returns the earliest of these values, without which as many are left as may be.
fn earliest(mut values: Vec<(u64, String)>, most: usize) -> impl Iterator<Item = String> {
    values.sort();
    let excess = values.len().saturating_sub(most);
    values.into_iter().take(excess).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_that_were_closed_first_are_forgotten() {
        let closed = [(7, "c"), (3, "a"), (9, "d"), (3, "b")].map(|(at, id)| (at, id.to_owned())).to_vec();
        assert_eq!(earliest(closed.clone(), 2).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(earliest(closed, 4).count(), 0);
    }
}
