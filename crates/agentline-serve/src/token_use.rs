//! What a token has in use: slots for its runs, conversations and ACP connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// What the tokens of one name have in use.
#[derive(Debug, Default)]
pub(crate) struct TokenUse {
    slots: Mutex<usize>,
    starts: Arc<tokio::sync::Mutex<()>>,
}

/// A slot of a token. It is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct TokenSlot {
    token: Arc<TokenUse>,
}

/// The right to start the next run of a token. The check of its budget and the start are one step.
pub(crate) type StartTurn = OwnedMutexGuard<()>;

impl TokenUse {
    /// Takes a slot, unless as many as allowed are in use. `more` counts what is in use without a slot.
    pub(crate) fn take(
        self: &Arc<Self>,
        most: Option<usize>,
        more: impl FnOnce() -> usize,
    ) -> Option<TokenSlot> {
        let mut slots = self.slots();
        if most.is_some_and(|most| *slots + more() >= most) {
            return None;
        }
        *slots += 1;
        Some(TokenSlot { token: Arc::clone(self) })
    }

    /// Returns whether what is in use is allowed.
    pub(crate) fn is_within(&self, most: Option<usize>, more: impl FnOnce() -> usize) -> bool {
        let slots = self.slots();
        most.is_none_or(|most| *slots + more() <= most)
    }

    /// Waits until no other run of the token is being started.
    pub(crate) async fn start_turn(&self) -> StartTurn {
        Arc::clone(&self.starts).lock_owned().await
    }

    fn slots(&self) -> MutexGuard<'_, usize> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TokenSlot {
    fn drop(&mut self) {
        let mut slots = self.token.slots();
        *slots = slots.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_and_return() {
        let token = Arc::new(TokenUse::default());
        let first = token.take(Some(2), || 0).unwrap();
        assert!(token.take(Some(2), || 1).is_none(), "one more is in use without a slot");
        let second = token.take(Some(2), || 0);
        assert!(second.is_some() && token.take(Some(2), || 0).is_none());
        assert!(token.is_within(Some(2), || 0) && !token.is_within(Some(2), || 1));
        assert!(token.take(None, || 9).is_some());
        drop(first);
        assert!(token.take(Some(2), || 0).is_some());
    }
}
