//! Whether a wake-up is on its way to a worker, and which way it is to take: the eventfd that the
//! worker's driver waits on or, when the worker *dozes* without its driver, a futex. `io/eventfd`
//! makes the system calls.
//!
//! # Why it is hard
//! A wake-up is a system call, so of several that come before the worker notices, only the first
//! may cost one. But a waker that leaves it to the first must be sure that the worker will look
//! again, and the first must choose the way while the worker may be changing from one to the other.
//!
//! # Protocol
//! 1. A waker, after what it wakes the worker for: swaps `pending` for 1. If it was 1 already,
//!    another waker's call is on its way. Otherwise: fence **(A)**, load `dozing`: if it is set,
//!    wake the futex; otherwise write the eventfd.
//! 2. A worker that dozes: sets `dozing`, fence **(B)**, waits in the kernel while `pending` is 0.
//!    Afterwards it clears `dozing`, **then** `pending`.
//! 3. A worker that its driver has woken by the eventfd: clears `pending`. In either case it looks
//!    for work only now.
//!
//! # Why it is safe
//! * *No doze is missed:* each side writes, fences, and then reads what the other has written. So
//!   the waker sees `dozing`, or the kernel sees `pending`.
//! * *No eventfd is missed:* `pending` is cleared after `dozing`, so a waker that sets it again
//!   sees that the worker no longer dozes. A waker that comes in between leaves it to the earlier
//!   call, or makes a futile call of the futex; the worker is about to look anyway.
//! * *The worker sees what it was woken for:* `pending` changes by read-modify-writes only, so the
//!   clearing acquires what every waker has released, also those that found 1. (Model:
//!   `loom_every_wake_up_is_seen`.)

use crate::shim::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// The two words.
#[derive(Debug)]
pub(crate) struct WakeFlag {
    /// 1: a wake-up is on its way.
    pending: AtomicU32,
    dozing: AtomicBool,
}

/// What a waker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Call {
    /// Nothing.
    None,
    /// Wake [`WakeFlag::futex`].
    Futex,
    /// Write the eventfd.
    Eventfd,
}

impl WakeFlag {
    pub(crate) fn new() -> Self {
        Self {
            pending: AtomicU32::new(0),
            dozing: AtomicBool::new(false),
        }
    }

    /// Performs step 1 up to the call.
    pub(crate) fn raise(&self) -> Call {
        if self.pending.swap(1, Ordering::AcqRel) != 0 {
            return Call::None;
        }
        fence(Ordering::SeqCst);
        if self.dozing.load(Ordering::Relaxed) {
            Call::Futex
        } else {
            Call::Eventfd
        }
    }

    /// Performs step 2. `wait` sleeps in the kernel while the word is 0; it may return early.
    ///
    /// Context: the worker.
    pub(crate) fn doze(&self, wait: impl FnOnce(&AtomicU32)) {
        self.dozing.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        wait(&self.pending);
        self.dozing.store(false, Ordering::Release);
        self.lower();
    }

    /// Performs step 3.
    ///
    /// Context: the worker.
    pub(crate) fn lower(&self) {
        self.pending.swap(0, Ordering::AcqRel);
    }

    /// Returns the word that a dozing worker waits for.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.pending
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};

    /// The kernel, as far as the two ways need it: it compares and queues a futex's waiter under
    /// one lock; an eventfd stays readable until it is read.
    #[derive(Default)]
    struct Kernel {
        futex: Mutex<()>,
        called: Condvar,
        counter: Mutex<bool>,
        written: Condvar,
    }

    impl Kernel {
        fn futex_wait(&self, word: &AtomicU32) {
            let queue = self.futex.lock().unwrap();
            if word.load(Ordering::Relaxed) == 0 {
                drop(self.called.wait(queue).unwrap());
            }
        }

        fn futex_wake(&self) {
            let _queue = self.futex.lock().unwrap();
            self.called.notify_one();
        }

        fn read(&self) {
            let mut counter = self.counter.lock().unwrap();
            while !*counter {
                counter = self.written.wait(counter).unwrap();
            }
            *counter = false;
        }

        fn write(&self) {
            *self.counter.lock().unwrap() = true;
            self.written.notify_one();
        }
    }

    struct Model {
        flag: WakeFlag,
        kernel: Kernel,
        /// What the worker is woken for, written relaxed: the flag alone makes it visible.
        work: [AtomicU32; 2],
    }

    /// Two wakers, and a worker that sleeps in its driver and by the futex in turn. (Loom reports a
    /// deadlock if it sleeps for ever.)
    fn check(dozes_first: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let model = Arc::new(Model {
                flag: WakeFlag::new(),
                kernel: Kernel::default(),
                work: [AtomicU32::new(0), AtomicU32::new(0)],
            });

            let wakers = [0, 1].map(|n| {
                let model = model.clone();
                loom::thread::spawn(move || {
                    model.work[n].store(1, Ordering::Relaxed);
                    match model.flag.raise() {
                        Call::None => {}
                        Call::Futex => model.kernel.futex_wake(),
                        Call::Eventfd => model.kernel.write(),
                    }
                })
            });

            let mut dozes = dozes_first;
            while model
                .work
                .iter()
                .map(|work| work.load(Ordering::Relaxed))
                .sum::<u32>()
                < 2
            {
                if dozes {
                    model.flag.doze(|word| model.kernel.futex_wait(word));
                } else {
                    model.kernel.read();
                    model.flag.lower();
                }
                dozes = !dozes;
            }
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
        });
    }

    #[test]
    fn loom_every_wake_up_is_seen() {
        check(false);
    }

    #[test]
    fn loom_every_wake_up_is_seen_by_one_that_dozes_first() {
        check(true);
    }
}
