//! How a driver learns that a source it keeps state for is gone when the source was last used on another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Sources that are gone, to be forgotten by one worker's driver when it next drains the list.
#[derive(Debug, Default)]
pub(crate) struct Released {
    some: AtomicBool,
    sources: Mutex<Vec<u64>>,
}

impl Released {
    fn post(&self, source: u64) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source);
        self.some.store(true, Ordering::Release);
    }

    /// Calls `forget` for each posted source.
    ///
    /// Context: the worker only.
    #[inline]
    pub(crate) fn drain(&self, mut forget: impl FnMut(u64)) {
        if self.some.load(Ordering::Relaxed) && self.some.swap(false, Ordering::AcqRel) {
            let sources = std::mem::take(&mut *self.sources.lock().unwrap_or_else(PoisonError::into_inner));
            sources.into_iter().for_each(&mut forget);
        }
    }
}

/// Every live driver's list, with the driver's tag.
static LISTS: Mutex<Vec<(usize, Weak<Released>)>> = Mutex::new(Vec::new());

/// Adds a worker's list, once its driver is open.
pub(crate) fn register(tag: usize, list: &Arc<Released>) {
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    lists.retain(|(_, l)| l.strong_count() > 0);
    lists.push((tag, Arc::downgrade(list)));
}

/// Posts the source to the drivers whose tag is in `tags` (a bit for each tag modulo 64).
pub(crate) fn post(source: u64, tags: u64) {
    let lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let marked = lists.iter().filter(|(tag, _)| tags & (1 << (tag % 64)) != 0);
    marked.filter_map(|(_, list)| list.upgrade()).for_each(|list| list.post(source));
}
