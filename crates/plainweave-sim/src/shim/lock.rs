//! A lock for simulated workers, whose waiters do as `std`'s do on Linux: they look again for a
//! while, then sleep until a release wakes them. A release wakes one, and whoever comes first has
//! the lock.
//!
//! Waiters that look on without end would do more than burn their own time. Each attempt takes the
//! line from all others, whose next looks queue for it; with 256 workers a shared queue came to a
//! standstill.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use crate::costs::{MICRO, Picos};
use crate::lines::Access;
use crate::meter;

/// How long a thread looks at a lock that is taken before it sleeps: what a hundred turns of
/// `std`'s loop take.
const SPIN_TIME: Picos = MICRO;

const HELD: &str = "a guard holds its lock until it is dropped";

/// A mutex with the interface of `std`'s.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    inner: sync::Mutex<T>,
    /// Actors whose threads sleep, the first first.
    asleep: sync::Mutex<VecDeque<usize>>,
}

/// The right to what a [`Mutex`] protects.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// Until it is released.
    inner: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            inner: sync::Mutex::new(value),
            asleep: sync::Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        loop {
            match self.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => self.wait(),
            }
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        meter::touch(self, Access::Exchange);
        let guard = |inner| MutexGuard {
            lock: self,
            inner: Some(inner),
        };
        match self.inner.try_lock() {
            Ok(inner) => Ok(guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                Err(PoisonError::new(guard(error.into_inner())).into())
            }
        }
    }

    fn asleep(&self) -> sync::MutexGuard<'_, VecDeque<usize>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_taken(&self) -> bool {
        matches!(self.inner.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Waits until the lock looks free, or a release has woken the caller.
    fn wait(&self) {
        let until = meter::now() + SPIN_TIME;
        // Once one sleeps, others do not look any longer.
        while meter::now() < until && self.asleep().is_empty() {
            meter::spin();
            meter::touch(self, Access::Load);
            if !self.is_taken() {
                return;
            }
        }

        meter::touch(self, Access::Exchange);
        if !self.is_taken() {
            return;
        }
        // From the last look to the sleep nobody else runs, so no release is missed.
        if let Some(actor) = meter::actor() {
            self.asleep().push_back(actor);
            meter::sleep(None);
            self.asleep().retain(|other| *other != actor);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        meter::touch(self.lock, Access::Store);
        self.inner = None;
        let sleeper = self.lock.asleep().pop_front();
        if let Some(actor) = sleeper {
            meter::signal();
            meter::wake(actor);
        }
    }
}
