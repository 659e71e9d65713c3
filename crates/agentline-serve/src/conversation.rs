//! Conversations: one agent, several prompts, each of them a run.

use crate::{
    messages::{ServedConversation, StartRun},
    ongoing_run::{OngoingRun, StandingAnswers},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open or closed conversation.
#[derive(Debug)]
pub(crate) struct ConversationState {
    /// The name of the conversation in the host protocol.
    pub(crate) session: String,
    /// The request that opened it.
    pub(crate) start: StartRun,
    pub(crate) info: Mutex<ServedConversation>,
    pub(crate) active: Mutex<Option<Arc<OngoingRun>>>,
    pub(crate) standing: StandingAnswers,
    /// Prompts take turns in the order in which they arrived.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

impl ConversationState {
    /// Returns what is known about the conversation.
    pub(crate) fn info(&self) -> ServedConversation {
        let mut info = self.lock_info().clone();
        info.active = self.active().map(|run| run.id.clone());
        info
    }

    /// Returns the prompt in progress.
    pub(crate) fn active(&self) -> Option<Arc<OngoingRun>> {
        self.lock_active().clone()
    }

    pub(crate) fn lock_active(&self) -> MutexGuard<'_, Option<Arc<OngoingRun>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_info(&self) -> MutexGuard<'_, ServedConversation> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
