//! A lock for simulated workers: one that finds it taken looks again until simulated time has brought the release.

use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use crate::meter::{self, Access};

/// A mutex with the interface of `std`'s.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// The right to what a [`Mutex`] protects.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    inner: sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
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
        match self.0.try_lock() {
            Ok(inner) => Ok(MutexGuard { lock: self, inner }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                Err(PoisonError::new(MutexGuard { lock: self, inner: error.into_inner() }).into())
            }
        }
    }

    /// Waits by reading alone, until the lock looks free.
    fn wait(&self) {
        loop {
            meter::spin();
            meter::touch(self, Access::Load);
            if !matches!(self.0.try_lock(), Err(TryLockError::WouldBlock)) {
                return;
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // The lock itself is released after this body.
        meter::touch(self.lock, Access::Store);
    }
}
