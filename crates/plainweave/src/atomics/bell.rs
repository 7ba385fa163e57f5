//! How the watchdog sleeps while all workers do, and how the first of them to wake calls it.
//!
//! It is Dekker's once more: the watchdog says that it sleeps and then looks whether a worker is awake; a worker that
//! has woken says so (its bit in `park` is clear) and then looks whether the watchdog sleeps. Each has a full fence in
//! between, so one of them sees the other (`loom_the_first_to_wake_is_heard`). Whoever takes `asleep` back owes the
//! watchdog the call; a call that comes before it has gone to sleep is kept, as `unpark` keeps it.

use std::sync::OnceLock;
use std::thread::Thread;

use crate::shim::atomic::{AtomicBool, Ordering, fence};

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    watchdog: OnceLock<Thread>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { asleep: AtomicBool::new(false), watchdog: OnceLock::new() }
    }

    /// A worker that has slept, or has been about to, after it has cleared its bit.
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

    /// The watchdog. Until a worker calls; not at all unless `quiet` is true of them all, which is asked after every
    /// call of `unpark` as well.
    pub(crate) fn sleep(&self, quiet: impl Fn() -> bool) {
        let _ = self.watchdog.set(std::thread::current());
        self.sleep_by(quiet, std::thread::park);
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

    /// Two workers wake while the watchdog goes to sleep: it does not sleep on. (Loom reports a deadlock if it does.)
    #[test]
    fn loom_the_first_to_wake_is_heard() {
        loom::model(|| {
            let shared = Arc::new((Bell::new(), AtomicUsize::new(2), Mutex::new(false), Condvar::new()));
            let wake = |(bell, sleepers, token, called): &(Bell, AtomicUsize, Mutex<bool>, Condvar)| {
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
