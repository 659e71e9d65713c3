//! The turns of the prompts of a conversation: one is active, the others wait.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// Where a prompt enters the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnPlace {
    /// Before all that wait.
    Next,
    /// After all that wait.
    Last,
}

/// The turns of prompts. `R` is a prompt.
#[derive(Debug)]
pub(crate) struct PromptTurns<R> {
    state: Mutex<TurnState<R>>,
}

#[derive(Debug)]
struct TurnState<R> {
    active: Option<Arc<R>>,
    waiting: VecDeque<(Arc<R>, TurnSender<R>)>,
}

type TurnSender<R> = oneshot::Sender<PromptTurn<R>>;

/// The turn of a prompt. The next one gets it when this value is dropped, also while it is on its way to a prompt that
/// does not wait any more.
#[derive(Debug)]
pub(crate) struct PromptTurn<R> {
    turns: Arc<PromptTurns<R>>,
}

impl<R> PromptTurns<R> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(TurnState { active: None, waiting: VecDeque::new() }) })
    }

    /// Returns the prompt that has the turn.
    pub(crate) fn active(&self) -> Option<Arc<R>> {
        self.state().active.clone()
    }

    /// Enters the queue. The prompt gives up its place by dropping the receiver.
    pub(crate) fn enter(
        self: &Arc<Self>,
        prompt: Arc<R>,
        place: TurnPlace,
    ) -> oneshot::Receiver<PromptTurn<R>> {
        let (sender, turn) = oneshot::channel();
        let mut state = self.state();
        match place {
            TurnPlace::Next => state.waiting.push_front((prompt, sender)),
            TurnPlace::Last => state.waiting.push_back((prompt, sender)),
        }
        let next = if state.active.is_none() { state.next() } else { None };
        drop(state);
        self.give(next);
        turn
    }

    fn give(self: &Arc<Self>, to: Option<TurnSender<R>>) {
        if let Some(to) = to {
            // A prompt that does not wait any more returns the turn, whose end passes it on.
            drop(to.send(PromptTurn { turns: Arc::clone(self) }));
        }
    }

    fn state(&self) -> MutexGuard<'_, TurnState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> TurnState<R> {
    /// Makes the first prompt that waits the active one.
    fn next(&mut self) -> Option<TurnSender<R>> {
        let (prompt, sender) = self.waiting.pop_front().unzip();
        self.active = prompt;
        sender
    }
}

impl<R> Drop for PromptTurn<R> {
    fn drop(&mut self) {
        let next = self.turns.state().next();
        self.turns.give(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_prompt_is_before_those_that_wait_and_cancelled_ones_are_skipped() {
        let turns = PromptTurns::new();
        let enter = |prompt: &'static str, place| turns.enter(Arc::new(prompt), place);
        let active = || turns.active().map(|prompt| *prompt);
        let first = enter("first", TurnPlace::Last).try_recv().unwrap();
        let mut second = enter("second", TurnPlace::Last);
        let third = enter("third", TurnPlace::Last);
        let mut fourth = enter("fourth", TurnPlace::Last);
        let mut urgent = enter("urgent", TurnPlace::Next);
        assert_eq!(active(), Some("first"));
        assert!(urgent.try_recv().is_err() && second.try_recv().is_err());
        drop(first);
        let turn = urgent.try_recv().unwrap();
        assert_eq!(active(), Some("urgent"));
        assert!(second.try_recv().is_err());
        drop((turn, third));
        drop(second.try_recv().unwrap());
        assert_eq!(active(), Some("fourth"), "the third does not wait any more");
        drop(fourth.try_recv().unwrap());
        // The turn of a prompt that has given up is not lost.
        drop(enter("fifth", TurnPlace::Last));
        assert_eq!(active(), None);
        assert!(enter("sixth", TurnPlace::Last).try_recv().is_ok());
    }
}
