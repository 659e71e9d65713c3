//! Limits how many tests of one program use real agents or browsers at the same time.
//!
//! Tests with fake agents mostly wait, so more of them run at once than there are cores. Real agents and browsers compute
//! while they start, and too many of them at once would miss their timeouts.

use std::{
    cell::RefCell,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

/// As many as two cores can start within the timeouts of the tests. With fewer, the cores are idle while agents wait.
const SLOTS: usize = 5;
/// After this time a test starts without a slot, and its own limits apply.
const LIMIT: Duration = Duration::from_secs(600);

static USED: Mutex<usize> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();

thread_local! {
    static OWN: RefCell<Weak<RealSlot>> = const { RefCell::new(Weak::new()) };
}

/// The right to use real agents or a browser. It ends with the last clone.
#[derive(Debug)]
pub struct RealSlot(());

impl RealSlot {
    /// Waits for a slot. A test that has one on this thread gets the same slot again.
    ///
    /// Test environments take one themselves.
    #[must_use]
    pub fn take() -> Arc<Self> {
        OWN.with_borrow_mut(|own| {
            own.upgrade().unwrap_or_else(|| {
                let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
                let wait = RELEASED.wait_timeout_while(used, LIMIT, |used| *used >= SLOTS);
                *wait.unwrap_or_else(PoisonError::into_inner).0 += 1;
                let slot = Arc::new(Self(()));
                *own = Arc::downgrade(&slot);
                slot
            })
        })
    }
}

impl Drop for RealSlot {
    fn drop(&mut self) {
        *USED.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RELEASED.notify_one();
    }
}
