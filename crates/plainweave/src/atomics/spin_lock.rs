//! A lock for a dozen instructions: one exchange to lock, one store to unlock.
//!
//! The mutex of `std` unlocks by an exchange too, since it must check for sleeping waiters. On a
//! machine where an atomic read-modify-write costs half a fiber switch, that is a third of the cost
//! of a semaphore. No thread sleeps on this lock: a thread that finds it taken spins, and after 64
//! turns yields to the kernel, so a holder that lost its CPU gets it back.
//!
//! Use it only for critical sections that never suspend and run no user code. [`SpinLock::with`]
//! takes a closure, so no section is left open. A panic in it unlocks, and leaves the state as it
//! is.
//!
//! Protocol: 1. lock: compare-and-exchange `held` from false to true (Acquire), loading it
//! (Relaxed) between the attempts. 2. unlock: store false (Release). Each section therefore happens
//! before the next (`loom_sections_exclude_each_other`).

#![expect(unsafe_code, reason = "the state that one thread at a time reaches")]

use crate::shim::atomic::AtomicBool;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::{UnsafeCell, relax};

/// A state that one thread at a time reads and changes.
pub(crate) struct SpinLock<S> {
    held: AtomicBool,
    state: UnsafeCell<S>,
}

// SAFETY: the state is accessed between enter and leave only, by one thread at a time, each seeing
// the writes of the one before; so it is sent from thread to thread and never shared.
unsafe impl<S: Send> Sync for SpinLock<S> {}

impl<S> SpinLock<S> {
    #[cfg(not(loom))]
    pub(crate) const fn new(state: S) -> Self {
        Self {
            held: AtomicBool::new(false),
            state: UnsafeCell::new(state),
        }
    }

    /// Compiles; loom's words cannot be made at compile time, so a model makes its lock with
    /// [`Self::modelled`].
    #[cfg(all(loom, not(test)))]
    pub(crate) const fn new(state: S) -> Self {
        let _ = std::mem::ManuallyDrop::new(state);
        panic!("a model makes its lock with `modelled`")
    }

    #[cfg(loom)]
    pub(crate) fn modelled(state: S) -> Self {
        Self {
            held: AtomicBool::new(false),
            state: UnsafeCell::new(state),
        }
    }

    /// Runs `section` under the lock. It must be short, must not suspend and must not lock again.
    #[inline(always)]
    pub(crate) fn with<R>(&self, section: impl FnOnce(&mut S) -> R) -> R {
        let mut turn = 0;
        let _leave = loop {
            if let Some(leave) = self.enter() {
                break leave;
            }
            while self.held.load(Relaxed) {
                relax(turn);
                turn += 1;
            }
        };
        // SAFETY: between enter and leave.
        self.state.with_mut(|state| section(unsafe { &mut *state }))
    }

    /// Tries step 1 once.
    #[inline]
    fn enter(&self) -> Option<Leave<'_>> {
        // Not `then_some`: that would make a `Leave` in either case, and drop it.
        let free = self
            .held
            .compare_exchange(false, true, Acquire, Relaxed)
            .is_ok();
        free.then(|| Leave(&self.held))
    }
}

/// Unlocks when dropped, also when the section panics.
struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;

    #[test]
    fn loom_sections_exclude_each_other() {
        loom::model(|| {
            let lock = loom::sync::Arc::new(SpinLock::modelled((0, 0)));
            let other = lock.clone();
            // Each tries once: loom cannot bound a loop that waits for another thread.
            let count = |lock: &SpinLock<(u32, u32)>| {
                lock.enter().is_some_and(|_leave| {
                    // SAFETY: what the model checks: between enter and leave no other thread has
                    // access.
                    lock.state.with_mut(|state| unsafe {
                        (*state).0 += 1;
                        assert_eq!((*state).0, (*state).1 + 1);
                        (*state).1 += 1;
                    });
                    true
                })
            };

            let thread = loom::thread::spawn(move || count(&other));
            let entered = u32::from(count(&lock)) + u32::from(thread.join().unwrap());
            assert!(entered > 0, "one of two finds it free");
            assert_eq!(lock.with(|(a, b)| (*a, *b)), (entered, entered));
        });
    }
}
