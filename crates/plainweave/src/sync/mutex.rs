//! A lock that may be held across suspensions.
//!
//! **Fair or fast?** If a released lock went straight to the longest waiter, it would be idle until
//! that fiber is next scheduled, and under load every acquisition would wait (a convoy). So a
//! released lock is free: the first waiter is woken to try again, and a running fiber may take the
//! lock first. But *only once*: a waiter that lost goes back to the front, and the next release
//! hands the lock to it. So between the release that wakes a waiter and the one that serves it,
//! others pass it only once; nobody starves.
//!
//! At most one waiter at a time is on its way to try again (`retrying`): releases meanwhile need
//! not wake more.

#![expect(unsafe_code, reason = "the data that one holder at a time reaches")]

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::wait_queue::{Facts, Locked, Primitive, WaitQueue, holder};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::thread::preemption_point;

struct LockState {
    locked: bool,
    /// A waiter was woken to try again and has not yet done so.
    retrying: bool,
    /// Who took it last, for dumps.
    holder: u32,
}

impl Primitive for LockState {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "mutex",
            holder: self.locked.then_some(self.holder),
            ..Facts::default()
        }
    }
}

/// Takes the lock for `me` ([`holder`]) if it is free.
#[inline(always)]
fn take(locked: &mut Locked<LockState, 1>, me: u32) -> bool {
    let free = !std::mem::replace(&mut locked.state.locked, true);
    if free {
        locked.state.holder = me;
    }
    free
}

/// Mutual exclusion in the shape of [`std::sync::Mutex`], for fibers and plain threads.
///
/// It may be held across suspensions: waiting for it gives the worker to other fibers. There is no
/// poisoning: when a holder panics, the lock is released and the data is as the holder left it. A
/// running fiber may take a released lock before a waiter does, but passes it over at most once. A
/// fiber that locks it twice deadlocks.
///
/// ```
/// plainweave::run(|| {
///     let total = plainweave::sync::Mutex::new(0);
///     plainweave::scope(|s| {
///         for n in 1..=100 {
///             s.spawn({
///                 let total = &total;
///                 move || *total.lock().unwrap() += n
///             });
///         }
///     });
///     assert_eq!(total.into_inner(), 5050);
/// });
/// ```
pub struct Mutex<T: ?Sized> {
    word: WaitQueue<LockState>,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives the data to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// The locked data; dropping it releases the lock.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct MutexGuard<'a, T: ?Sized>(&'a Mutex<T>);

// SAFETY: a shared guard gives shared access to the data. (Without this line it would be `Sync` for
// any `T: Send`.)
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

/// A guard that keeps its mutex alive, for fibers and structures that cannot borrow; dropping it
/// releases the lock.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct OwnedMutexGuard<T: ?Sized>(Arc<Mutex<T>>);

// SAFETY: as for the guard that borrows.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedMutexGuard<T> {}

impl<T> Mutex<T> {
    /// Creates a free lock.
    #[must_use]
    pub const fn new(data: T) -> Self {
        Self {
            word: WaitQueue::new(LockState {
                locked: false,
                retrying: false,
                holder: 0,
            }),
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the data.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. A cancelled caller still gets a free lock.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn lock(&self) -> io::Result<MutexGuard<'_, T>> {
        preemption_point();
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => Ok(self.lock_slowly(Interrupts::Allowed)?),
        }
    }

    /// Waits for the lock like [`Self::lock`], but ignores cancellation and deadlines: for clean-up
    /// that must happen.
    ///
    /// # Panics
    /// Never; but a *panicking* fiber that waits longer than ten seconds ends the process, as any
    /// of its waits does.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn lock_always(&self) -> MutexGuard<'_, T> {
        self.lock_slowly(Interrupts::Ignored)
            .unwrap_or_else(|_| unreachable!("nothing interrupts this wait"))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Before the section, so that this is done while the lock's cache line arrives.
        let me = holder();
        let free = self.word.with(|locked| take(locked, me));
        // Not `then_some`: that would create a guard in either case, and dropping it releases the
        // lock.
        free.then(|| MutexGuard(self))
    }

    /// Waits for the lock like [`Self::lock`], for a guard that keeps the mutex alive.
    ///
    /// # Errors
    /// As for [`Self::lock`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn lock_owned(self: &Arc<Self>) -> io::Result<OwnedMutexGuard<T>> {
        // From here on the new guard represents the lock.
        std::mem::forget(self.lock()?);
        Ok(OwnedMutexGuard(self.clone()))
    }

    /// Takes the lock if it is free, for a guard that keeps the mutex alive.
    pub fn try_lock_owned(self: &Arc<Self>) -> Option<OwnedMutexGuard<T>> {
        std::mem::forget(self.try_lock()?);
        Some(OwnedMutexGuard(self.clone()))
    }

    /// Returns the data without locking: the exclusive borrow shows that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    fn lock_slowly(&self, interrupts: Interrupts) -> Result<MutexGuard<'_, T>, Interrupt> {
        let me = holder();
        if self
            .word
            .spin(0, |locked| take(locked, me).then_some(()))
            .is_none()
        {
            self.word.warn_of_self(me);
            let attempt = |locked: &mut Locked<LockState, 1>, from| {
                if from == QueueEnd::Front {
                    locked.state.retrying = false;
                }
                take(locked, me).then_some(())
            };
            self.word
                .wait_and_retry((0, me), interrupts, attempt, |_| ())
                .map_err(|(interrupt, ())| interrupt)?;
        }
        Ok(MutexGuard(self))
    }

    #[inline]
    fn unlock(&self) {
        let grant = self.word.with(|locked| match locked.first(0) {
            // It lost before: the lock stays locked, and now belongs to it.
            Some(QueueEnd::Front) => {
                locked.state.holder = locked.first_tag(0).unwrap_or(0);
                locked.take_first(0)
            }
            Some(QueueEnd::Back) if !locked.state.retrying => {
                (locked.state.locked, locked.state.retrying) = (false, true);
                locked.take_first(0)
            }
            _ => {
                locked.state.locked = false;
                None
            }
        });

        if let Some(grant) = grant {
            grant.give();
        }
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Returns the mutex, which `condvar` releases while it waits, without ending the guard.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.0
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Unlocks for [`super::Condvar`], which takes the lock again before it returns the guard.
    pub(super) fn unlock_for_condvar(&self) {
        self.unlock();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.data.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Mutex").field(&&*guard).finish(),
            None => f.write_str("Mutex(locked)"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
