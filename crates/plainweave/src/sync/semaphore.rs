//! A counting semaphore, first come, first served.

use std::fmt;
use std::io;

use super::wait_queue::WaitQueue;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// A number of permits to take and give back; taking waits while there is none.
///
/// Strictly fair: a released permit goes to the longest waiter, and no later caller can take it. So it suits limits
/// (connections, memory), and is slower than a [`Mutex`](super::Mutex) where each holder comes back at once. Works
/// between fibers and plain threads.
///
/// ```
/// plainweave::run(|| {
///     let two = plainweave::sync::Semaphore::new(2);
///     let permit = two.acquire().unwrap();
///     assert_eq!(two.available(), 1);
///     drop(permit);
///     assert_eq!(two.available(), 2);
/// });
/// ```
pub struct Semaphore(WaitQueue<usize>);

/// One permit; dropping it gives it back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// Creates a semaphore with `permits` permits.
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        Self(WaitQueue::new(permits))
    }

    /// Takes a permit; waits while there is none.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline ([`io::ErrorKind::TimedOut`]) while
    /// it waited. A cancelled caller still gets a permit that is available at once.
    ///
    /// Context: any thread or fiber; may suspend.
    // Inlined into the caller's own frame: see `block`.
    #[inline(always)]
    pub fn acquire(&self) -> io::Result<Permit<'_>> {
        // The list is empty whenever there are permits: `release` ensures it.
        self.0.wait_unless((0, QueueEnd::Back), Interrupts::Allowed, |locked| {
            locked.state = locked.state.checked_sub(1)?;
            Some(())
        })?;
        Ok(Permit(self))
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.0.with(|locked| {
            locked.state = locked.state.checked_sub(1)?;
            Some(Permit(self))
        })
    }

    /// Adds a permit, or gives back one that was [forgotten](Permit::forget).
    ///
    /// # Panics
    /// There are `usize::MAX` permits.
    #[inline]
    pub fn release(&self) {
        let first = self.0.with(|locked| {
            let first = locked.take_first(0);
            if first.is_none() {
                locked.state = locked.state.checked_add(1).expect("a semaphore counts to usize::MAX");
            }
            first
        });
        if let Some(grant) = first {
            grant.give();
        }
    }

    /// Returns the number of permits that nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.with(|locked| locked.state)
    }
}

impl Permit<'_> {
    /// Drops the guard without giving the permit back: [`Semaphore::release`] may do so, later and elsewhere.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}
