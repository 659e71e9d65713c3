//! Conversations: one agent, several prompts, each of them a run.

mod turns;

pub(crate) use turns::{PromptTurn, PromptTurns, TurnPlace};

use crate::{
    clock::now_ms,
    messages::{ServedConversation, ServedRun, ServedRunState},
    ongoing_run::{OngoingRun, StandingAnswers},
    token_use::TokenSlot,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;

/// What all runs of a request or conversation have in common.
#[derive(Clone, Debug)]
pub(crate) struct RunSettings {
    /// The run before it starts.
    pub(crate) about: ServedRun,
    /// The time limit for the answer to a permission request.
    pub(crate) answer_time: Duration,
    /// How long a run without clients lives if it is cancelled on disconnect.
    pub(crate) grace: Duration,
    /// The most that a run may cost.
    pub(crate) max_cost: Option<f64>,
}

/// How many prompts of a conversation may be in progress or wait.
pub(crate) const PROMPTS: usize = 32;

/// An open or closed conversation.
#[derive(Debug)]
pub(crate) struct ConversationState {
    /// The name of the conversation in the host protocol.
    pub(crate) session: String,
    pub(crate) settings: RunSettings,
    pub(crate) info: Mutex<ServedConversation>,
    pub(crate) standing: StandingAnswers,
    /// The places for prompts that are in progress or wait.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) turns: Arc<PromptTurns<OngoingRun>>,
    /// Held until the conversation is closed.
    pub(crate) slot: Mutex<Option<TokenSlot>>,
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
        self.turns.active().filter(|run| run.info().state != ServedRunState::Ended)
    }

    /// Marks the conversation as closed. Returns whether it was open.
    pub(crate) fn mark_closed(&self) -> bool {
        let mut info = self.lock_info();
        if info.state == "closed" {
            return false;
        }
        info.state = "closed".to_owned();
        info.closed_at_ms = Some(now_ms());
        true
    }

    /// Frees the slot of the conversation.
    pub(crate) fn free_slot(&self) {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn lock_info(&self) -> MutexGuard<'_, ServedConversation> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
