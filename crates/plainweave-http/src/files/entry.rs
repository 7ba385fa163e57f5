//! An entry of the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::look::{Content, Found};

/// What an entry takes beside its content and its path, roughly.
const OVERHEAD: usize = 320;

/// A path, and what was found behind it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) found: Found,
    /// Under which generation of the root.
    pub(super) generation: u64,
    /// When it was last known to hold: milliseconds of the coarse monotonic clock.
    pub(super) checked: AtomicU64,
    /// Asked for since the queue last looked it over.
    pub(super) used: AtomicBool,
}

impl Entry {
    pub(super) fn new(found: Found, generation: u64, checked: u64) -> Arc<Self> {
        Arc::new(Self {
            found,
            generation,
            checked: AtomicU64::new(checked),
            used: AtomicBool::new(false),
        })
    }

    /// Returns a copy that shares nothing with it; `None`: an open file.
    pub(super) fn copied(&self) -> Option<Self> {
        let checked = AtomicU64::new(self.checked.load(Ordering::Relaxed));
        Some(Self {
            found: self.found.copied()?,
            generation: self.generation,
            checked,
            used: AtomicBool::new(false),
        })
    }

    pub(super) fn weight(&self, key: &[u8]) -> usize {
        let file = if let Found::File(file) = &self.found {
            file.weight()
        } else {
            0
        };
        OVERHEAD + 2 * key.len() + file
    }

    /// Returns whether the file that it keeps open has fewer bytes by now than its answers
    /// announce. What has been added since is not announced either, so that answer is whole.
    pub(super) fn has_shrunk(&self) -> bool {
        let Some(file) = self.found.file() else {
            return false;
        };
        let Content::Open(opened) = &file.content else {
            return false;
        };
        opened
            .size_now()
            .is_some_and(|size| size < file.version().size)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(&self.found, Found::File(file) if matches!(file.content, Content::Open(_)))
    }
}
