//! A lock for a dozen instructions: one exchange to enter, one store to leave.
//!
//! `std`'s mutex leaves by an exchange too, since it must see whether somebody sleeps on it; on a machine where an
//! atomic read-modify-write costs as much as half a switch of fibers that is a third of what a semaphore costs. Nobody
//! sleeps on this one: whoever finds it taken spins, and after 64 turns asks the kernel to run somebody else, so a
//! holder that lost its CPU gets it back.
//!
//! Only for critical sections that suspend nowhere and run no user code; [`SpinLock::with`] takes a closure, so that
//! none is left open. A panic in it leaves the lock, with the state as it is.
//!
//! Protocol: 1. enter: compare-and-exchange `held` from false to true (Acquire), looking (Relaxed) between the tries.
//! 2. leave: store false (Release). Each section therefore happens before the next
//! (`loom_sections_exclude_each_other`).

use crate::shim::atomic::AtomicBool;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::{UnsafeCell, relax};

/// A state that one thread at a time looks at and changes.
pub(crate) struct SpinLock<S> {
    held: AtomicBool,
    state: UnsafeCell<S>,
}

// SAFETY: the state is reached between enter and leave only, by one thread at a time, each seeing what the one before
// did; so it is sent from thread to thread and never shared.
unsafe impl<S: Send> Sync for SpinLock<S> {}

impl<S> SpinLock<S> {
    #[cfg(not(loom))]
    pub(crate) const fn new(state: S) -> Self {
        Self { held: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Compiles; loom's words cannot be made at compile time, so a model makes its lock with [`Self::modelled`].
    #[cfg(loom)]
    pub(crate) const fn new(state: S) -> Self {
        let _ = std::mem::ManuallyDrop::new(state);
        panic!("a model makes its lock with `modelled`")
    }

    #[cfg(loom)]
    pub(crate) fn modelled(state: S) -> Self {
        Self { held: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Any thread. Runs `section` alone. It must be short, suspend nowhere and not come back here.
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

    /// Step 1, tried once.
    #[inline]
    fn enter(&self) -> Option<Leave<'_>> {
        // Not `then_some`: what is made is dropped.
        let free = self.held.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        free.then(|| Leave(&self.held))
    }
}

/// Leaves, also when the section panics.
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
                    // SAFETY: what the model is to show: between enter and leave nobody else is here.
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
