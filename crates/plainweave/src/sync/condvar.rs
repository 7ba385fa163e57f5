//! A condition variable for [`Mutex`](super::Mutex).

use std::fmt;
use std::io;

use super::mutex::MutexGuard;
use super::wait_queue::{Grant, WaitQueue};
use crate::fiber::wait_link::Place;

/// Waits for a condition on what a [`Mutex`](super::Mutex) protects; for fibers and plain threads.
///
/// In the shape of [`std::sync::Condvar`], with the guard lent instead of passed through, because a wait can fail and
/// the lock is held again all the same. Wake-ups are never spurious, but another may have been quicker: use
/// [`Condvar::wait_while`].
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

impl Condvar {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(WaitQueue::new(()))
    }

    /// Any thread or fiber; suspends. Releases the lock, waits for a notification, and takes the lock again, whatever
    /// happens.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline ([`io::ErrorKind::TimedOut`]); the
    /// notification then goes to another. A notification that has come is not lost to a cancellation: it is `Ok`.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) -> io::Result<()> {
        let mutex = guard.mutex();
        let waited = self.0.wait_after((0, Place::Back), true, |_| None::<()>, || mutex.unlock_for_condvar());
        // The guard in the caller's hands stands for this lock from here on.
        std::mem::forget(mutex.lock_always());
        waited?;
        Ok(())
    }

    /// Any thread or fiber; may suspend. Waits as long as `condition` holds of the data.
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

    /// Any thread. Lets the one that has waited longest go on.
    pub fn notify_one(&self) {
        if let Some(first) = self.0.with(|locked| locked.take_first(0)) {
            first.give();
        }
    }

    /// Any thread. Lets all that wait now go on.
    pub fn notify_all(&self) {
        // Taken in one section: those that wait again meanwhile are not among them.
        let all: Vec<Grant> = self.0.with(|locked| std::iter::from_fn(|| locked.take_first(0)).collect());
        all.into_iter().for_each(Grant::give);
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
