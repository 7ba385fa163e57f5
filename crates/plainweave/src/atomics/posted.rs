//! A list that any thread adds to and one thread empties now and then. Looking at an empty one
//! costs a load.
//!
//! 1. *Post*: add to the list under its lock, **then** set `some` (Release).
//! 2. *Drain*: if `some` is set, clear it (Acquire), **then** take the whole list under its lock.
//!
//! What is added after the list was taken is followed by setting `some` again; what was added
//! before is taken with it, and at worst a later drain finds the flag set and the list empty. So
//! nothing stays behind with the flag clear (`loom_what_is_posted_is_drained_once`).

use std::mem;
use std::sync::PoisonError;

use crate::shim::Mutex;
use crate::shim::atomic::{AtomicBool, Ordering};

/// The list and its flag.
#[derive(Debug)]
pub(crate) struct Posted<T> {
    some: AtomicBool,
    list: Mutex<Vec<T>>,
}

impl<T> Posted<T> {
    pub(crate) fn new() -> Self {
        Self {
            some: AtomicBool::new(false),
            list: Mutex::new(Vec::new()),
        }
    }

    /// Adds to the list.
    ///
    /// Context: any thread.
    pub(crate) fn post(&self, item: T) {
        self.list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(item);
        self.some.store(true, Ordering::Release);
    }

    /// Empties the list into `take`.
    ///
    /// Context: one thread.
    #[inline]
    pub(crate) fn drain(&self, take: impl FnMut(T)) {
        if self.some.load(Ordering::Relaxed) && self.some.swap(false, Ordering::AcqRel) {
            let items = mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner));
            items.into_iter().for_each(take);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn loom_what_is_posted_is_drained_once() {
        loom::model(|| {
            let posted = Arc::new(Posted::new());
            let posters = [1, 2].map(|n| {
                let posted = posted.clone();
                loom::thread::spawn(move || posted.post(n))
            });

            let mut drained = Vec::new();
            posted.drain(|n| drained.push(n));
            posters
                .into_iter()
                .for_each(|poster| poster.join().unwrap());
            posted.drain(|n| drained.push(n));
            drained.sort_unstable();
            assert_eq!(drained, [1, 2]);
        });
    }
}
