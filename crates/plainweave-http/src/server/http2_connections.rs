//! The connections of a server that speak HTTP/2: those that a stop wakes, and how many are idle.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use slab::Slab;

use crate::transport::non_blocking::Wakeups;

/// The connections of a server: those that have a turn, which a stop wakes, and how many have none.
#[derive(Default)]
pub(crate) struct Connections {
    busy: Mutex<Slab<Arc<Wakeups>>>,
    idle: Arc<AtomicUsize>,
}

/// A connection without a turn.
pub(crate) struct Idle(Arc<AtomicUsize>);

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Connections {
    pub(crate) fn add(&self, wakeups: Arc<Wakeups>) -> Listed<'_> {
        Listed {
            list: self,
            key: lock(&self.busy).insert(wakeups),
        }
    }

    /// Counts a connection that is to have no turn, unless there are `most` of them; 0: any number.
    pub(crate) fn begin_idle(&self, most: usize) -> Option<Idle> {
        let one_more = |now| (most == 0 || now < most).then_some(now + 1);
        self.idle
            .fetch_update(Relaxed, Relaxed, one_more)
            .ok()
            .map(|_| Idle(self.idle.clone()))
    }

    /// Wakes all of them.
    pub(crate) fn wake(&self) {
        lock(&self.busy)
            .iter()
            .for_each(|(_, wakeups)| wakeups.wake_by_ref());
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// A connection on the list, until it is dropped.
pub(crate) struct Listed<'a> {
    list: &'a Connections,
    key: usize,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.list.busy).remove(self.key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
