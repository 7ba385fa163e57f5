//! The directory that is served, found by its path: what stands there may be replaced while the
//! server runs.
//!
//! Sites are deployed by rebuilding a directory (`rm -rf dist && build`), by a link that is
//! switched to another one (`current -> releases/2`), or by two renames. An open directory follows
//! none of that: it goes on showing what it was, or nothing. Looking the path up for each request
//! would be a system call for each.
//!
//! 1. A request compares two numbers: when the path was looked up last, and the *generation*, which
//!    counts what has stood there. If that was longer ago than files are believed
//!    ([`Caching::staleness`](super::Caching)), one request looks the path up, and the others go
//!    on.
//! 2. If something else stands there (another inode, or the same number for another directory: the
//!    one that is open has no name any more), it is opened, and the generation is one more. What
//!    was found under an earlier generation is believed no longer, and a request in whose midst
//!    that happens is answered once more, so that no answer is made of both.
//! 3. A file that is not found has the path looked up at once: its directory may be the old one. So
//!    has [`ServedRoot::reopen`], which takes whatever stands there now.
//! 4. Where nothing stands, what is open is served on for [`GAP`], since two renames leave one;
//!    then nothing is.
//!
//! Files are still opened beneath an open directory (`open`), never by the whole path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::clock::{Millis, coarse_millis};
use super::open::Root;
use super::pieces::Blocking;

/// For how long a path may lead nowhere until that is taken for the operator's will.
const GAP: Duration = Duration::from_secs(1);

/// The directory of a [`StaticFiles`](super::StaticFiles).
#[derive(Debug)]
pub struct ServedRoot {
    path: PathBuf,
    /// Without `openat2`: see [`Root::walking`].
    walks: bool,
    open: RwLock<Arc<Root>>,
    seen: Seen,
    /// Since when the path leads nowhere, as `checked`; 0: it does not.
    missing_since: AtomicU64,
    /// For longer than [`GAP`].
    gone: AtomicBool,
}

/// What each request compares, on a cache line that looks do not write to.
#[derive(Debug)]
#[repr(align(64))]
struct Seen {
    /// How often something else was opened, or what was there has gone. Changes under the lock of
    /// `open`.
    generation: AtomicU64,
    /// When the path was looked up last, by [`coarse_millis`].
    checked: AtomicU64,
}

impl ServedRoot {
    /// Opens what stands at `path`.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        // Relative to where the process is, which may be made again as well.
        let path = std::path::absolute(path)?;
        let root = Root::open(&path)?;
        Ok(Self {
            path,
            walks: false,
            open: RwLock::new(Arc::new(root)),
            seen: Seen {
                generation: AtomicU64::new(0),
                checked: AtomicU64::new(coarse_millis()),
            },
            missing_since: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        })
    }

    /// Goes the way that does without `openat2`, now and later.
    pub(super) fn walking(self) -> Self {
        let open = self
            .open
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let open = Arc::try_unwrap(open).map(|root| Arc::new(root.walking()));
        Self {
            walks: true,
            open: RwLock::new(open.unwrap_or_else(|shared| shared)),
            ..self
        }
    }

    /// Returns the number of what stands there.
    pub(super) fn generation(&self) -> u64 {
        self.seen.generation.load(Ordering::Acquire)
    }

    /// Returns the open directory and its generation.
    pub(super) fn current(&self) -> (Arc<Root>, u64) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&open), self.generation())
    }

    /// Returns whether nothing stands at the path, and has not for a while: see [`GAP`].
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Looks the path up if that was `staleness` ago or longer, once in a tick of the clock at the
    /// most. An error: the caller was cancelled.
    pub(super) fn check<B: Blocking>(
        self: &Arc<Self>,
        now: Millis,
        staleness: Duration,
        blocking: &B,
    ) -> io::Result<()> {
        let last = self.seen.checked.load(Ordering::Relaxed);
        let is_due = u128::from(now.saturating_sub(last)) >= staleness.as_millis() && now != last;
        if is_due
            && self
                .seen
                .checked
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.look_up(now, blocking)?;
        }

        Ok(())
    }

    /// Looks the path up, whenever that was done last, for a file that was not found under
    /// `generation`. Returns whether something else stands there by now.
    pub(super) fn has_changed<B: Blocking>(
        self: &Arc<Self>,
        generation: u64,
        blocking: &B,
    ) -> io::Result<bool> {
        let now = coarse_millis();
        self.seen.checked.store(now, Ordering::Relaxed);
        self.look_up(now, blocking)?;
        Ok(self.generation() != generation)
    }

    fn look_up<B: Blocking>(self: &Arc<Self>, now: Millis, blocking: &B) -> io::Result<()> {
        let cached = if B::TRY_FIRST && !self.walks {
            Root::open_cached(&self.path)
        } else {
            None
        };

        match cached {
            Some(found) => self.take(found, now),
            None => {
                let this = self.clone();
                blocking.run(move || this.take(Root::open(&this.path), now))?;
            }
        }

        Ok(())
    }

    /// Goes on with what was found at the path.
    fn take(&self, found: io::Result<Root>, now: Millis) {
        let Ok(found) = found else {
            return self.miss(now);
        };
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.missing_since.store(0, Ordering::Relaxed);
        let was_gone = self.gone.swap(false, Ordering::Relaxed);
        if was_gone || open.is_gone() || !open.is_same(&found) {
            self.replace(&mut open, found);
        }
    }

    fn replace(&self, open: &mut Arc<Root>, found: Root) {
        *open = Arc::new(if self.walks { found.walking() } else { found });
        self.seen.generation.fetch_add(1, Ordering::Release);
    }

    fn miss(&self, now: Millis) {
        let _open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        match self.missing_since.load(Ordering::Relaxed) {
            0 => self.missing_since.store(now.max(1), Ordering::Relaxed),
            since if u128::from(now.saturating_sub(since)) < GAP.as_millis() || self.is_gone() => {}
            _ => {
                self.gone.store(true, Ordering::Relaxed);
                self.seen.generation.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Reopens what stands at the path, and believes nothing that was found before. May wait for
    /// a disk.
    ///
    /// # Errors
    /// There is no directory, or it cannot be opened; what was there before is served on.
    pub fn reopen(&self) -> io::Result<()> {
        let found = Root::open(&self.path)?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.missing_since.store(0, Ordering::Relaxed);
        self.gone.store(false, Ordering::Relaxed);
        self.replace(&mut open, found);
        Ok(())
    }

    /// Returns the directory's path, from the root of the file system on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether there is no directory at the path that could be opened now. May wait for a
    /// disk.
    pub fn is_missing(&self) -> bool {
        Root::open(&self.path).is_err()
    }
}
