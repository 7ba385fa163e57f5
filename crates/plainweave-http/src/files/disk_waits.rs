//! Responses that wait for a disk: how many there are, and whether another one may begin.
//!
//! A disk that is asked for more than it can read makes all who wait for it wait longer, until each
//! gives up before it is served. The queue's bound is a time, as for connections that are to be
//! accepted: responses that need the disk are refused while more wait than it has served lately in
//! 100 ms. A burst is let in. Those that have begun go on. A response waits only while the disk
//! reads for it, not while its client does.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::clock::{Millis, coarse_millis};

/// How long a response may wait, for each of its reads.
const LONG: Millis = 100;
/// The number that may always wait.
const FEW: usize = 16;
/// The number that may wait, for this long after nobody did: how fast the disk is, is not known yet.
const BURST: (usize, Millis) = (256, 100);
/// For how long, at least, those who are served are counted.
const WINDOW: Millis = 50;
/// For how long after a read from the disk pages are taken to leave memory as fast as others come.
const BUSY: Millis = 1000;

/// The responses that wait for a disk, counted and limited. See [`StaticFiles::with_disk_waits`].
///
/// [`StaticFiles::with_disk_waits`]: super::StaticFiles::with_disk_waits
pub struct DiskWaits {
    now: AtomicUsize,
    /// When the disk was last needed, in [`Millis`].
    asked: AtomicU64,
    /// When somebody last came while nobody waited.
    began: AtomicU64,
    /// Since when those who are served are counted, and how many they are.
    window: AtomicU64,
    served: AtomicUsize,
    /// How many were served in [`LONG`] by the last count.
    pace: AtomicUsize,
    refused: AtomicU64,
    on_refused: Box<dyn Fn() + Send + Sync>,
}

/// One of them, until dropped.
pub(super) struct DiskWait<'a>(&'a DiskWaits);

impl DiskWaits {
    /// Calls `hook` for each response that is refused.
    pub fn new(on_refused: impl Fn() + Send + Sync + 'static) -> Self {
        let [asked, began, window, refused] = [const { AtomicU64::new(0) }; 4];
        let [now, served, pace] = [const { AtomicUsize::new(0) }; 3];
        Self {
            now,
            asked,
            began,
            window,
            served,
            pace,
            refused,
            on_refused: Box::new(on_refused),
        }
    }

    /// Returns how many wait now.
    pub fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    /// Returns how many were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns whether more wait than always may.
    pub(super) fn are_many(&self) -> bool {
        self.now() > FEW
    }

    /// Returns whether responses that would have to wait are to be refused.
    pub(super) fn are_long(&self, now: Millis) -> bool {
        let bursts = now.saturating_sub(self.began.load(Relaxed)) <= BURST.1;
        self.now()
            >= self
                .pace
                .load(Relaxed)
                .max(if bursts { BURST.0 } else { FEW })
    }

    /// Counts a refused response.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
        (self.on_refused)();
    }

    /// Counts a response while it waits.
    pub(super) fn begin(&self, now: Millis) -> DiskWait<'_> {
        self.asked.store(now, Relaxed);
        if self.now.fetch_add(1, Relaxed) == 0 {
            self.began.store(now, Relaxed);
        }
        DiskWait(self)
    }

    fn count_served(&self, now: Millis) {
        self.served.fetch_add(1, Relaxed);
        let since = self.window.load(Relaxed);
        let took = now.saturating_sub(since);
        if took >= WINDOW
            && self
                .window
                .compare_exchange(since, now, Relaxed, Relaxed)
                .is_ok()
        {
            let served = self.served.swap(0, Relaxed) as u64;
            self.pace.store((served * LONG / took) as usize, Relaxed);
        }
    }

    /// Returns whether the disk has been needed just before `now`.
    pub(super) fn were_there(&self, now: Millis) -> bool {
        // The clock begins with the machine: a server that starts within its first second is
        // careful for nothing.
        now.saturating_sub(self.asked.load(Relaxed)) < BUSY
    }
}

impl Default for DiskWaits {
    fn default() -> Self {
        Self::new(|| ())
    }
}

impl fmt::Debug for DiskWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskWaits")
            .field("now", &self.now)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl Drop for DiskWait<'_> {
    fn drop(&mut self) {
        self.0.count_served(coarse_millis());
        self.0.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_in_and_a_queue_that_lasts_is_not() {
        let waits = DiskWaits::default();
        let start = coarse_millis();
        assert!(!waits.were_there(start));
        let mut queue: Vec<_> = (1..BURST.0).map(|_| waits.begin(start)).collect();
        assert!(
            !waits.are_long(start)
                && !waits.are_long(start + BURST.1)
                && waits.were_there(start + BURST.1)
        );
        let later = start + BURST.1 + 1;

        assert!(waits.are_long(later), "no burst takes that long");
        queue.push(waits.begin(start));
        assert!(waits.are_long(start), "no burst is that large");
        queue.truncate(FEW);
        assert!(!waits.are_long(start) && waits.are_long(later));
        queue.pop();
        assert!(!waits.are_long(later), "there are few");
        queue.push(waits.begin(later));
        assert!(
            waits.are_long(later),
            "somebody waited, so the burst goes on"
        );
        queue.clear();
        queue.resize_with(FEW, || waits.begin(later));
        assert!(!waits.are_long(later), "another burst");
    }

    #[test]
    fn as_many_may_wait_as_are_served_in_time() {
        let waits = DiskWaits::default();
        let start = coarse_millis();
        let mut queue = vec![waits.begin(start)];

        // No clock that anybody else reads comes near this time.
        let later = start + 1_000_000;

        for (served, longest) in [(FEW * 3, FEW * 3), (1, FEW), (FEW * 10, FEW * 10)] {
            waits.served.store(served - 1, Relaxed);
            waits.window.store(later - LONG, Relaxed);
            waits.count_served(later);
            queue.resize_with(longest - 1, || waits.begin(start));
            assert!(!waits.are_long(later), "{served}");
            queue.push(waits.begin(start));
            assert!(waits.are_long(later), "{served}");
        }
    }
}
