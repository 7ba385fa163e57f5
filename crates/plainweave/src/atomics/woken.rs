//! Whether a future is to be polled again: its wakers note it, the poller takes the note.
//!
//! 1. A waker writes the note (release). If there was none it wakes the poller; otherwise the waker
//!    that wrote it does.
//! 2. The poller takes the note (acquire), **then** polls. With no note it sleeps, and looks again
//!    after every wake-up. A wake-up that comes before the sleep ends it at once: a fiber's state
//!    word promises that, and a thread's parker.
//!
//! A waker that finds a note leaves without a wake-up. That is safe: the poller has not taken that
//! note yet, so a poll follows, and by the exchange on one word the poll sees what this waker's
//! thread wrote before (`loom_no_wake_up_is_lost`).
//!
//! The token of `park` cannot serve as the note. It belongs to the program, and two calls of
//! `block_on` on one fiber, one within the other, would take it from each other.

use crate::shim::atomic::{AtomicBool, Ordering};

/// The note.
#[derive(Debug)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Writes the note. Returns whether the caller must wake the poller.
    pub(crate) fn note(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Takes the note. Returns whether there was one.
    ///
    /// Context: the poller.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};

    #[derive(Default)]
    struct Poller {
        token: Mutex<bool>,
        called: Condvar,
        /// What the future waits for, written relaxed: the note alone makes it visible.
        data: [AtomicUsize; 2],
    }

    /// Two wakers, each of which has written what the future waits for, and a poller that polls
    /// until it has seen both. (Loom reports a deadlock if it sleeps for ever.)
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Woken::new(), Poller::default()));
            let wakers = [0, 1].map(|n| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let (woken, poller) = &*shared;
                    poller.data[n].store(1, Ordering::Relaxed);
                    if woken.note() {
                        *poller.token.lock().unwrap() = true;
                        poller.called.notify_one();
                    }
                })
            });

            let (woken, poller) = &*shared;
            // A poll.
            while poller
                .data
                .iter()
                .map(|d| d.load(Ordering::Relaxed))
                .sum::<usize>()
                < 2
            {
                while !woken.take() {
                    let mut token = poller.token.lock().unwrap();
                    while !*token {
                        token = poller.called.wait(token).unwrap();
                    }
                    *token = false;
                }
            }
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
        });
    }
}
