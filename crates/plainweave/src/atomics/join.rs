//! The handoff of a fiber's result: one finisher, at most one joiner.
//!
//! 1. Finisher: writes the result, then adds `DONE` (release). If it finds `WAITING` it takes the
//!    waker from the cell and wakes the joiner; if it finds `ABANDONED` it drops the result, which
//!    is its own.
//! 2. Joiner: puts its waker into the cell, then `fetch_or(WAITING)`. If it finds `DONE` it need
//!    not wait.
//! 3. A joiner that gives up removes `WAITING` by a compare-exchange. If that fails the finisher is
//!    using the waker: the joiner leaves the cell alone and sees `DONE`.
//! 4. Dropping the handle does `fetch_or(ABANDONED)`; if it finds `DONE` the dropper owns the
//!    result. A finisher that sees `ABANDONED` beforehand drops the result and touches the word no
//!    more.
//!
//! Both sides make one read-modify-write on one word, so one of them comes second and sees the
//! other's bit: no wake-up is lost, and the result has exactly one owner (models below).

#![expect(unsafe_code, reason = "the cell that joiner and finisher hand over")]

use crate::shim::UnsafeCell;
use crate::shim::atomic::{AtomicU32, Ordering};

/// The result has been written.
const DONE: u32 = 1;
/// The cell holds the joiner's waker.
const WAITING: u32 = 2;
/// The handle has been dropped.
const ABANDONED: u32 = 4;
/// Somebody wants the result, and waits elsewhere.
const WANTED: u32 = 8;

/// The word and the cell that finisher and joiner share; `W` wakes a joiner.
#[derive(Debug)]
pub(crate) struct Join<W> {
    bits: AtomicU32,
    waiter: UnsafeCell<Option<W>>,
}

// SAFETY: the cell is accessed by the joiner before WAITING is set or after it was taken back, and
// by the finisher after it has seen WAITING with DONE: never at once (steps 1 to 3).
unsafe impl<W: Send> Sync for Join<W> {}
// SAFETY: plain ownership.
unsafe impl<W: Send> Send for Join<W> {}

/// What the finisher must do.
#[derive(Debug)]
pub(crate) enum Finished<W> {
    /// Somebody may join later.
    Kept,
    /// Wake this joiner.
    Wake(W),
    /// Nobody will ask: drop the result.
    Abandoned,
}

impl<W> Join<W> {
    pub(crate) fn new() -> Self {
        Self {
            bits: AtomicU32::new(0),
            waiter: UnsafeCell::new(None),
        }
    }

    /// Creates the word of a fiber that has no handle.
    pub(crate) fn abandoned() -> Self {
        Self {
            bits: AtomicU32::new(ABANDONED),
            waiter: UnsafeCell::new(None),
        }
    }

    /// Returns whether the result can be read.
    pub(crate) fn is_done(&self) -> bool {
        self.bits.load(Ordering::Acquire) & DONE != 0
    }

    /// Returns whether the result is known to be abandoned; a hint for the finisher.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & ABANDONED != 0
    }

    /// Returns whether somebody waits for the result, here or elsewhere.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & (WAITING | WANTED) != 0
    }

    /// Notes that the one that has the handle waits for the result elsewhere, from now on.
    pub(crate) fn want(&self) {
        if self.bits.load(Ordering::Relaxed) & (WANTED | DONE) == 0 {
            self.bits.fetch_or(WANTED, Ordering::SeqCst);
        }
    }

    /// Registers the joiner. Returns false if the result is there already; otherwise the joiner
    /// will be woken.
    pub(crate) fn wait(&self, waiter: W) -> bool {
        debug_assert_eq!(
            self.bits.load(Ordering::Relaxed) & WAITING,
            0,
            "two joiners"
        );
        if self.is_done() {
            return false;
        }
        // SAFETY: WAITING is not set, so the finisher leaves the cell alone.
        self.waiter.with_mut(|w| unsafe { *w = Some(waiter) });
        if self.bits.fetch_or(WAITING, Ordering::AcqRel) & DONE == 0 {
            return true;
        }

        // SAFETY: DONE came before WAITING, so the finisher leaves the cell alone.
        drop(self.waiter.with_mut(|w| unsafe { (*w).take() }));
        false
    }

    /// Unregisters a joiner that gives up. Returns false if the result is there.
    pub(crate) fn retract(&self) -> bool {
        let without = |bits| (bits & DONE == 0).then_some(bits & !WAITING);
        let is_taken_back = self
            .bits
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, without);
        if is_taken_back.is_err() {
            return false;
        }

        // SAFETY: WAITING has been taken back before DONE came, so the finisher will not read the
        // cell.
        drop(self.waiter.with_mut(|w| unsafe { (*w).take() }));
        true
    }

    /// Publishes the result. The finisher calls this once, after writing the result.
    pub(crate) fn finish(&self) -> Finished<W> {
        if self.is_abandoned() {
            // Nobody looks at the word again, so it need not change.
            return Finished::Abandoned;
        }

        // `DONE` is set once, so it can be added: one instruction. An "or" whose old value is
        // tested for two bits compiles to a loop.
        let before = self.bits.fetch_add(DONE, Ordering::AcqRel);
        if before & ABANDONED != 0 {
            return Finished::Abandoned;
        }
        if before & WAITING == 0 {
            return Finished::Kept;
        }

        // SAFETY: WAITING was set before DONE: the joiner wrote the cell before and no longer
        // touches it.
        self.waiter
            .with_mut(|w| unsafe { (*w).take() })
            .map_or(Finished::Kept, Finished::Wake)
    }

    /// Gives up the result; the handle's drop calls this once. Returns true if the result is there
    /// and the caller must drop it.
    pub(crate) fn abandon(&self) -> bool {
        // After DONE the finisher does not read the word again.
        self.is_done() || self.bits.fetch_or(ABANDONED, Ordering::AcqRel) & DONE != 0
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    struct Model {
        join: Join<()>,
        result: UnsafeCell<u32>,
        woken: AtomicUsize,
    }

    // SAFETY: the model itself checks that accesses to the result are ordered.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    fn start(drops: &Arc<AtomicUsize>) -> (Arc<Model>, loom::thread::JoinHandle<()>) {
        let m = Arc::new(Model {
            join: Join::new(),
            result: UnsafeCell::new(0),
            woken: AtomicUsize::new(0),
        });

        let other = m.clone();
        let drops = drops.clone();
        let t = loom::thread::spawn(move || {
            // SAFETY: nobody reads before DONE.
            other.result.with_mut(|r| unsafe { *r = 7 });
            match other.join.finish() {
                Finished::Kept => {}
                Finished::Wake(()) => {
                    other.woken.fetch_add(1, Ordering::Release);
                }
                Finished::Abandoned => {
                    other.drop_result();
                    drops.fetch_add(1, Ordering::Relaxed);
                }
            }
        });

        (m, t)
    }

    impl Model {
        fn drop_result(&self) {
            // SAFETY: what the model checks: the result has one owner.
            self.result
                .with_mut(|r| assert_eq!(unsafe { std::mem::take(&mut *r) }, 7));
        }
    }

    #[test]
    fn loom_join_gets_the_result_or_is_woken() {
        loom::model(|| {
            let (m, t) = start(&Arc::new(AtomicUsize::new(0)));
            let registered = m.join.wait(());
            if !registered {
                // SAFETY: DONE was seen.
                assert_eq!(m.result.with(|r| unsafe { *r }), 7);
            }

            t.join().unwrap();
            assert_eq!(m.woken.load(Ordering::Acquire), usize::from(registered));
        });
    }

    #[test]
    fn loom_retract_against_finish() {
        loom::model(|| {
            let (m, t) = start(&Arc::new(AtomicUsize::new(0)));
            if m.join.wait(()) && m.join.retract() && m.join.wait(()) {
                m.join.retract();
            }
            if m.join.is_done() {
                // SAFETY: DONE was seen.
                assert_eq!(m.result.with(|r| unsafe { *r }), 7);
            }

            t.join().unwrap();
            assert!(m.join.is_done());
        });
    }

    #[test]
    fn loom_result_has_one_owner() {
        loom::model(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let (m, t) = start(&drops);
            if m.join.abandon() {
                m.drop_result();
                drops.fetch_add(1, Ordering::Relaxed);
            }

            t.join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 1);
        });
    }
}
