//! A condition variable for [`Mutex`](super::Mutex).

use std::fmt;
use std::io;

use super::mutex::MutexGuard;
use super::wait_queue::{Facts, Primitive, WaitQueue};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// A condition variable: waits for a condition on what a [`Mutex`](super::Mutex) protects; for
/// fibers and plain threads.
///
/// In the shape of [`std::sync::Condvar`], except that the guard is borrowed instead of passed
/// through, because a wait can fail, and then too the lock is held again. Wake-ups are never
/// spurious, but another caller may have changed the data first: use [`Condvar::wait_while`].
///
/// ```
/// use plainweave::sync::{Condvar, Mutex};
/// plainweave::run(|| {
///     let (ready, changed) = (Mutex::new(false), Condvar::new());
///     plainweave::scope(|s| {
///         s.spawn(|| {
///             *ready.lock().unwrap() = true;
///             changed.notify_one();
///         });
///         let mut guard = ready.lock().unwrap();
///         changed.wait_while(&mut guard, |ready| !*ready).unwrap();
///     });
/// });
/// ```
pub struct Condvar(WaitQueue<()>);

impl Primitive for () {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "condition variable",
            ..Facts::default()
        }
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self(WaitQueue::new(()))
    }

    /// Releases the lock, waits for a notification, and takes the lock again, whatever happens.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]); the notification then goes to another waiter. A notification
    /// that has come is not lost to a cancellation: it is `Ok`.
    ///
    /// Context: any thread or fiber; suspends.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) -> io::Result<()> {
        let mutex = guard.mutex();
        let waited = self.0.wait_after(
            (0, QueueEnd::Back),
            Interrupts::Allowed,
            |_| None::<()>,
            || mutex.unlock_for_condvar(),
        );
        // From here on the caller's guard represents this lock.
        std::mem::forget(mutex.lock_always());
        waited?;

        Ok(())
    }

    /// Waits as long as `condition` holds for the data.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> io::Result<()> {
        while condition(guard) {
            self.wait(guard)?;
        }
        Ok(())
    }

    /// Wakes the waiter that has waited longest.
    pub fn notify_one(&self) {
        if let Some(first) = self.0.with(|locked| locked.take_first(0)) {
            first.give();
        }
    }

    /// Wakes all current waiters.
    pub fn notify_all(&self) {
        // Taken in one section, so that callers that start to wait meanwhile are not among them.
        self.0.with(|locked| locked.take_all(0, None)).give();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
