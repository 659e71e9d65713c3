//! Opens, continues and closes conversations.

use super::{GRACE, PROMPT_SHOWN, ServeEngine, described, new_id};
use crate::{
    clock::now_ms,
    conversation::ConversationState,
    ending,
    http_error::ApiError,
    messages::{NextPrompt, ServedConversation, ServedRunState, StartRun, Steer, SteerTime},
    ongoing_run::{OngoingRun, StandingAnswers},
    tokens::AccessToken,
};
use agentline::host::messages::{SessionClose, SessionOpened, SessionPrompt};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How many prompts of a conversation may wait.
const QUEUE: usize = 32;

impl ServeEngine {
    /// Opens a conversation whose request was checked.
    pub(crate) async fn open(
        self: &Arc<Self>,
        mut start: StartRun,
        token: &AccessToken,
    ) -> Result<ServedConversation, ApiError> {
        let id = new_id();
        start.params.run = Some(id.clone());
        // It has no effect in a conversation, whose events are always merged only while the server is slow.
        start.params.merge_events = None;
        let host = Arc::clone(self.host()?);
        let opened: SessionOpened = host.ask("session/open", &start.params).await?;
        let about = described(&start, token);
        let info = ServedConversation {
            conversation: id.clone(),
            session_id: opened.session_id,
            agent: about.agent,
            working_dir: about.working_dir,
            state: "open".to_owned(),
            opened_at_ms: now_ms(),
            started_by: token.name.clone(),
            ..ServedConversation::default()
        };
        let conversation = ConversationState {
            session: opened.session,
            start,
            info: Mutex::new(info.clone()),
            active: Mutex::default(),
            standing: StandingAnswers::default(),
            turn: Arc::default(),
        };
        self.conversations().insert(id, Arc::new(conversation));
        Ok(info)
    }

    /// Sends a prompt after the earlier ones.
    pub(crate) async fn prompt(
        self: &Arc<Self>,
        conversation: &Arc<ConversationState>,
        next: NextPrompt,
        token: &AccessToken,
    ) -> Result<Arc<OngoingRun>, ApiError> {
        if next.prompt.trim().is_empty() {
            return Err(ApiError::usage("prompt", "is empty", "write a prompt"));
        }
        let (id, session_id) = {
            let info = conversation.lock_info();
            if info.state != "open" {
                return Err(ApiError::conflict("the conversation is closed"));
            }
            (info.conversation.clone(), info.session_id.clone())
        };
        let waiting = self.all().iter().filter(|run| run.info().conversation.as_ref() == Some(&id)).count();
        if waiting >= QUEUE {
            return Err(ApiError::conflict(format!("{QUEUE} prompts of this conversation are waiting")));
        }
        let mut info = described(&conversation.start, token);
        info.prompt = next.prompt.chars().take(PROMPT_SHOWN).collect();
        (info.conversation, info.session_id) = (Some(id), Some(session_id));
        info.state = if waiting == 0 { ServedRunState::Running } else { ServedRunState::Queued };
        let run = self.begin(info, Arc::clone(&conversation.standing), &conversation.start).await;
        conversation.lock_info().runs.push(run.id.clone());
        let (engine, conversation, following) =
            (Arc::clone(self), Arc::clone(conversation), Arc::clone(&run));
        self.spawn(async move { engine.follow_prompt(&conversation, &following, next).await });
        Ok(run)
    }

    async fn follow_prompt(&self, conversation: &ConversationState, run: &Arc<OngoingRun>, next: NextPrompt) {
        let _turn = tokio::select! {
            turn = conversation.turn.lock() => turn,
            () = run.cancelled.cancelled() => {
                let outcome = json!(ending::never_sent(&run.info())).to_string();
                return self.finish(run, Ok(outcome)).await;
            }
        };
        let Ok(host) = self.host().cloned() else {
            let outcome = json!(ending::interrupted(&run.info())).to_string();
            return self.finish(run, Ok(outcome)).await;
        };
        *conversation.lock_active() = Some(Arc::clone(run));
        self.store.update(run.change(|info| info.state = ServedRunState::Running)).await;
        let mut params = SessionPrompt::default();
        params.session.clone_from(&conversation.session);
        params.prompt = next.prompt;
        params.run = Some(run.id.clone());
        params.messages = next.messages;
        let grace = conversation.start.disconnect_grace_ms.map_or(GRACE, Duration::from_millis);
        let answer = self.until_abandoned(run, grace, host.call("session/prompt", &params)).await;
        *conversation.lock_active() = None;
        self.finish(run, answer.map(|outcome| outcome.get().to_owned())).await;
    }

    /// Sends a text into a conversation, after the prompt in progress or instead of it.
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
        let next = self.prompt(&conversation, next, token).await?;
        if steer.when == SteerTime::Now {
            self.cancel(run, None).await;
        }
        Ok(next)
    }

    /// Closes a conversation. Its prompt in progress is cancelled.
    pub(crate) async fn close(&self, conversation: &ConversationState) -> Result<(), ApiError> {
        {
            let mut info = conversation.lock_info();
            if info.state == "closed" {
                return Ok(());
            }
            info.state = "closed".to_owned();
            info.closed_at_ms = Some(now_ms());
        }
        let id = conversation.info().conversation;
        for run in self.all().iter().filter(|run| run.info().conversation.as_ref() == Some(&id)) {
            self.cancel(run, None).await;
        }
        let mut close = SessionClose::default();
        close.session.clone_from(&conversation.session);
        let _: Value = self.call("session/close", &close).await?;
        Ok(())
    }
}
