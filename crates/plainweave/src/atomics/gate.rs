//! Lets threads in until it is closed, and lets the closer wait for those that are inside.
//!
//! One word: a count of those inside, and a bit for "closed". Whoever enters adds one and sees in
//! the same operation whether the gate was closed. So each entry either comes before the closing,
//! and the closer waits for its end, or is refused. Between an entry and its end some dozens of
//! instructions run, and the push of a policy, so the closer spins.

use crate::shim::atomic::{AtomicUsize, Ordering};
use crate::shim::relax;

/// The gate is closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A gate; open at first.
#[derive(Debug)]
pub(crate) struct Gate(AtomicUsize);

/// The right to be inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a>(&'a Gate);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Enters, unless the gate is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let pass = Pass(self);
        // Dropping `pass` takes the one back.
        (self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0).then_some(pass)
    }

    /// Closes the gate, and waits until nobody is inside: what they did is visible to the caller.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
        let mut turn = 0;
        while self.0.load(Ordering::Acquire) != CLOSED {
            relax(turn);
            turn = turn.saturating_add(1);
        }
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;

    /// Two threads enter while a third closes: each is refused, or its work is done when `close`
    /// returns.
    #[test]
    fn loom_a_closed_gate_has_nobody_inside() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicUsize::new(0), AtomicUsize::new(0)));
            let enter =
                |(gate, done, refused): &(Gate, AtomicUsize, AtomicUsize)| match gate.enter() {
                    Some(_pass) => done.fetch_add(1, Ordering::Relaxed),
                    None => refused.fetch_add(1, Ordering::Relaxed),
                };

            let threads = [0; 2].map(|_| {
                let shared = shared.clone();
                loom::thread::spawn(move || enter(&shared))
            });

            shared.0.close();
            let done = shared.1.load(Ordering::Relaxed);
            let ended = threads.map(|thread| thread.join().unwrap());
            assert_eq!(
                done,
                shared.1.load(Ordering::Relaxed),
                "work after the closing"
            );
            assert_eq!(done + shared.2.load(Ordering::Relaxed), ended.len());
        });
    }
}
