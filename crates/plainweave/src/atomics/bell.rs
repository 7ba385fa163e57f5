//! Lets the watchdog sleep while all workers sleep, until the first of them wakes it.
//!
//! This is Dekker's protocol. The watchdog sets `asleep`, then checks whether a worker is awake. A
//! worker that wakes clears its bit in `atomics/sleepers`, then checks `asleep`. Each side has a
//! full fence in between, so at least one of them sees the other
//! (`loom_the_first_to_wake_is_heard`). Whoever clears `asleep` must unpark the watchdog. An unpark
//! that arrives before the watchdog has gone to sleep is kept as its token.

use std::sync::OnceLock;
use std::thread::Thread;
use std::time::Instant;

use crate::shim::atomic::{AtomicBool, Ordering, fence};

/// The watchdog's sleep flag, and the thread to unpark.
#[derive(Debug)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    watchdog: OnceLock<Thread>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            asleep: AtomicBool::new(false),
            watchdog: OnceLock::new(),
        }
    }

    /// Wakes the watchdog if it sleeps. A worker calls this after it has cleared its bit in
    /// `Sleepers`; any thread, after it has changed something else that `quiet` looks at.
    #[inline]
    pub(crate) fn notice(&self) {
        if self.owes_call()
            && let Some(watchdog) = self.watchdog.get()
        {
            watchdog.unpark();
        }
    }

    #[inline]
    fn owes_call(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }

    /// Makes the calling thread the watchdog.
    pub(crate) fn attach(&self) {
        let _ = self.watchdog.set(std::thread::current());
    }

    /// Ends the watchdog's present pause or sleep, or the next one if there is none.
    pub(crate) fn ring(&self) {
        self.asleep.store(false, Ordering::Release);
        if let Some(watchdog) = self.watchdog.get() {
            watchdog.unpark();
        }
    }

    /// Sleeps until a worker wakes it. Returns at once unless `quiet()`, and checks `quiet()` again
    /// after every unpark.
    ///
    /// Context: the watchdog, attached.
    pub(crate) fn sleep(&self, quiet: impl Fn() -> bool) {
        self.sleep_by(quiet, std::thread::park);
    }

    /// Does the same until `end` at the latest.
    ///
    /// Context: the watchdog, attached.
    pub(crate) fn sleep_until(&self, end: Instant, quiet: impl Fn() -> bool) {
        let left = || end.saturating_duration_since(Instant::now());
        self.sleep_by(
            || quiet() && !left().is_zero(),
            || std::thread::park_timeout(left()),
        );
    }

    fn sleep_by(&self, quiet: impl Fn() -> bool, park: impl Fn()) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while quiet() && self.asleep.load(Ordering::Acquire) {
            park();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};

    /// Two workers wake while the watchdog goes to sleep: it does not stay asleep. (Loom reports a
    /// deadlock if it does.)
    #[test]
    fn loom_the_first_to_wake_is_heard() {
        loom::model(|| {
            let shared = Arc::new((
                Bell::new(),
                AtomicUsize::new(2),
                Mutex::new(false),
                Condvar::new(),
            ));
            let wake =
                |(bell, sleepers, token, called): &(Bell, AtomicUsize, Mutex<bool>, Condvar)| {
                    sleepers.fetch_sub(1, Ordering::SeqCst);
                    if bell.owes_call() {
                        *token.lock().unwrap() = true;
                        called.notify_one();
                    }
                };

            let worker = {
                let shared = shared.clone();
                loom::thread::spawn(move || wake(&shared))
            };

            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || wake(&shared))
            };

            let (bell, sleepers, token, called) = &*shared;
            bell.sleep_by(
                || sleepers.load(Ordering::SeqCst) == 2,
                || {
                    let mut token = token.lock().unwrap();
                    while !*token {
                        token = called.wait(token).unwrap();
                    }
                    *token = false;
                },
            );
            worker.join().unwrap();
            other.join().unwrap();
        });
    }
}
