//! How workers fall asleep and how they are woken. (Policies decide *what* runs; this file knows no
//! fibers.)
//!
//! # Concepts
//! A worker is *running*, *searching* (looking through other workers' queues; few at a time), or
//! *asleep* in its driver. The sleepers are a bitmap: a set bit says "asleep or about to be". A
//! thread that clears another worker's bit must signal that worker (an eventfd write). Waking takes
//! the lowest bit, so load is packed onto few workers.
//!
//! # Why it is hard
//! A pusher that finds nobody to wake, and a worker that finds nothing to run, may miss each other:
//! each looks before the other writes. One full fence on each side prevents that.
//!
//! # Protocol
//! Pusher, after the task is visible in its queue (`wake_any`, `wake_worker`):
//! 1. `fence(SeqCst)` **(A)**.
//! 2. `wake_any`: if a worker is searching, return, because its last look or its `end_search` is
//!    still to come.
//! 3. If no bit is set, return. Otherwise add one to `searching` on behalf of the sleeper, clear
//!    its bit and signal it: a burst of pushes wakes one worker, not all. If another thread cleared
//!    the bit first, subtract again and **start over** after another fence: a pusher may have
//!    trusted the count in between (loom found the lost wake-up). `wake_worker` changes neither bit
//!    nor count: if the bit is set it signals, and the signal is idempotent. Of several pushers to
//!    one inbox, only the one that found it empty does this: a last look that misses a later push
//!    misses the first one too (`loom_the_first_of_several_wakes`). Grants need no bit: in step 7
//!    the worker marks their queue (`queue/mpsc`), and the sender that finds the mark signals.
//!
//! Worker with nothing to do (`begin_sleep`, last look, `cancel_sleep` or sleep and `end_sleep`):
//! 4. Set its bit. 5. If it was searching, subtract itself from `searching`. 6. `fence(SeqCst)`
//!    **(B)**.
//! 7. *Last look* at every queue it may have to serve. If there is something: `cancel_sleep`, and
//!    it counts as searching again, since a pusher that trusted it before step 5 may have pushed
//!    more than the one task it will take.
//! 8. Otherwise sleep in the driver until an event, a timer or a signal. 9. `end_sleep`: clear its
//!    own bit; if a pusher has already cleared it, the worker now counts as searching.
//!
//! Searcher that finds work (`end_search`): subtracts itself; the **last** one then checks for more
//! work and wakes the next worker (the cascade): pushers may have relied on it in step 2.
//!
//! # Proof sketch: no lost wake-up
//! Let a pusher return at 2 or 3 without waking, and a worker find nothing at 7. Either (A)
//! precedes (B) in the single order of fences: then the push is visible at 7: contradiction. Or (B)
//! precedes (A): then at 3 the pusher sees the bit set at 4, unless another pusher cleared it, and
//! that one signals, or the worker itself did: then it is awake and looks again. If the pusher
//! returned at 2, it relied on a searcher. If that one finds work, the last searcher looks again
//! after its subtraction (`end_search` has a fence too). If it does not, it goes through 5, 6 and
//! 7, with its own (B') after the (A) of any pusher that counted it, because that pusher read
//! `searching` before the subtraction. If what it counted was a failed claim (step 3), that one
//! starts over at 1. Models: `loom_push_against_sleep`, `loom_two_pushers_one_sleeper`,
//! `loom_searcher_cascades`, `loom_wake_worker_against_sleep`.

use crate::shim::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The sleeping and searching workers of a pool.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// One bit per worker, 64 in a word.
    asleep: Box<[AtomicU64]>,
    /// How many of these words have bits of workers that have started: only these are searched.
    reached: AtomicUsize,
    /// Otherwise all have started, and nothing more is read.
    has_spares: bool,
    searching: AtomicUsize,
    /// Limit on concurrent searchers, which `begin_search` may exceed: half of the regular workers,
    /// rounded up.
    max_searching: usize,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// No pusher chose this worker.
    Undisturbed,
    /// A pusher chose this worker, which now counts as searching.
    Woken,
}

impl Sleepers {
    /// Creates it for `workers` regular workers, which have the first numbers, and `spares` spare
    /// ones.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        let asleep = (0..(workers + spares).div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        let reached = AtomicUsize::new(workers.div_ceil(64));
        let searching = AtomicUsize::new(0);
        let has_spares = spares > 0;
        let max_searching = workers.div_ceil(2);

        Self {
            asleep,
            reached,
            has_spares,
            searching,
            max_searching,
        }
    }

    /// Notes that this worker, a spare one, is about to start: it may sleep from now on.
    ///
    /// Whoever must see its bit has this number too: the start comes before (B).
    ///
    /// Context: the thread that starts spare workers.
    pub(crate) fn reach(&self, worker: usize) {
        let words = worker / 64 + 1;
        if self.reached.load(Ordering::Relaxed) < words {
            self.reached.store(words, Ordering::Release);
        }
    }

    /// Notes that no worker with a higher number than this has a thread.
    ///
    /// Context: as for [`Self::reach`].
    pub(crate) fn retreat(&self, worker: usize) {
        self.reached.store(worker / 64 + 1, Ordering::Release);
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        if self.has_spares {
            &self.asleep[..self.reached.load(Ordering::Relaxed)]
        } else {
            &self.asleep
        }
    }

    /// Chooses a sleeping worker, if one is needed. The caller must have made its task visible
    /// before, and must signal the worker returned.
    #[must_use]
    #[inline]
    pub(crate) fn wake_any(&self) -> Option<usize> {
        loop {
            fence(Ordering::SeqCst);
            if self.searching.load(Ordering::Relaxed) > 0 {
                return None;
            }
            let worker = self.lowest_sleeper()?;

            // Counted before the bit is cleared: otherwise the sleeper could wake by itself and
            // subtract what was never added.
            self.searching.fetch_add(1, Ordering::SeqCst);
            if self.asleep[worker / 64].fetch_and(!bit(worker), Ordering::SeqCst) & bit(worker) != 0
            {
                return Some(worker);
            }
            self.searching.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn lowest_sleeper(&self) -> Option<usize> {
        self.words().iter().enumerate().find_map(|(i, word)| {
            let bits = word.load(Ordering::Relaxed);
            (bits != 0).then(|| i * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// Returns whether the caller must signal `worker`, after it has queued something that only
    /// `worker` reads.
    #[must_use]
    #[inline]
    pub(crate) fn wake_worker(&self, worker: usize) -> bool {
        fence(Ordering::SeqCst);
        self.asleep[worker / 64].load(Ordering::Relaxed) & bit(worker) != 0
    }

    /// Returns whether the calling worker may search others' queues; if so, it counts as searching.
    pub(crate) fn begin_search(&self) -> bool {
        if self.searching.load(Ordering::Relaxed) >= self.max_searching {
            return false;
        }
        self.searching.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Ends the search of a worker that found work. Returns true if it was the last searcher: it
    /// must then check for more work, and call `wake_any` if there is some.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        fence(Ordering::SeqCst);
        last
    }

    /// Announces the sleep of a worker with nothing to do. The worker must take its last look
    /// afterwards.
    pub(crate) fn begin_sleep(&self, worker: usize, searching: bool) {
        self.asleep[worker / 64].fetch_or(bit(worker), Ordering::SeqCst);
        if searching {
            self.searching.fetch_sub(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement after a last look that found something; the worker counts as
    /// searching. If a pusher has chosen it meanwhile, a signal is on its way and the next sleep
    /// ends early, which is harmless.
    pub(crate) fn cancel_sleep(&self, worker: usize) {
        if self.end_sleep(worker) == Slept::Undisturbed {
            self.searching.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends the sleep and returns how it ended.
    pub(crate) fn end_sleep(&self, worker: usize) -> Slept {
        let own =
            self.asleep[worker / 64].fetch_and(!bit(worker), Ordering::SeqCst) & bit(worker) != 0;
        if own {
            Slept::Undisturbed
        } else {
            Slept::Woken
        }
    }

    /// Returns the number of workers that sleep or are about to.
    pub(crate) fn count(&self) -> usize {
        self.words()
            .iter()
            .map(|w| w.load(Ordering::SeqCst).count_ones() as usize)
            .sum()
    }

    /// Returns whether `worker` sleeps or is about to. The answer may be out of date.
    pub(crate) fn is_asleep(&self, worker: usize) -> bool {
        self.asleep[worker / 64].load(Ordering::Relaxed) & bit(worker) != 0
    }
}

fn bit(worker: usize) -> u64 {
    1 << (worker % 64)
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};

    /// A pool of workers that share one counter of tasks; signals persist as those of an eventfd
    /// do.
    struct Pool {
        sleepers: Sleepers,
        tasks: AtomicUsize,
        signals: Vec<(Mutex<bool>, Condvar)>,
    }

    impl Pool {
        fn new(workers: usize) -> Arc<Self> {
            let signals = (0..workers)
                .map(|_| (Mutex::new(false), Condvar::new()))
                .collect();
            Arc::new(Self {
                sleepers: Sleepers::new(workers, 0),
                tasks: AtomicUsize::new(0),
                signals,
            })
        }

        fn signal(&self, worker: usize) {
            *self.signals[worker].0.lock().unwrap() = true;
            self.signals[worker].1.notify_one();
        }

        fn push(&self) {
            self.tasks.fetch_add(1, Ordering::Release);
            if let Some(w) = self.sleepers.wake_any() {
                self.signal(w);
            }
        }

        fn take(&self) -> bool {
            let n = self.tasks.load(Ordering::Acquire);
            n > 0
                && self
                    .tasks
                    .compare_exchange(n, n - 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        }

        fn sleep(&self, worker: usize) {
            let mut signalled = self.signals[worker].0.lock().unwrap();
            while !*signalled {
                signalled = self.signals[worker].1.wait(signalled).unwrap();
            }
            *signalled = false;
        }

        /// Runs `n` tasks on this worker, sleeping in between; loom reports a deadlock if a wake-up
        /// is lost.
        fn run(&self, worker: usize, n: usize) {
            let mut done = 0;
            let mut searching = false;
            while done < n {
                if self.take() {
                    done += 1;
                    if std::mem::take(&mut searching)
                        && self.sleepers.end_search()
                        && self.tasks.load(Ordering::Acquire) > 0
                    {
                        if let Some(w) = self.sleepers.wake_any() {
                            self.signal(w);
                        }
                    }
                    continue;
                }

                self.sleepers.begin_sleep(worker, searching);
                if self.tasks.load(Ordering::Acquire) > 0 {
                    self.sleepers.cancel_sleep(worker);
                    searching = true;
                    continue;
                }

                self.sleep(worker);
                searching = self.sleepers.end_sleep(worker) == Slept::Woken;
            }

            if searching {
                let _ = self.sleepers.end_search();
            }
        }
    }

    fn bounded(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(f);
    }

    #[test]
    fn loom_push_against_sleep() {
        bounded(|| {
            let pool = Pool::new(1);
            let p = pool.clone();
            let t = loom::thread::spawn(move || p.run(0, 1));
            pool.push();
            t.join().unwrap();
        });
    }

    #[test]
    fn loom_two_pushers_one_sleeper() {
        bounded(|| {
            let pool = Pool::new(1);
            let p = pool.clone();
            let q = pool.clone();
            let worker = loom::thread::spawn(move || p.run(0, 2));
            let pusher = loom::thread::spawn(move || q.push());
            pool.push();
            worker.join().unwrap();
            pusher.join().unwrap();
        });
    }

    /// Two tasks, two workers that run one each: the second task is found although its pusher may
    /// have trusted a searcher.
    #[test]
    fn loom_searcher_cascades() {
        bounded(|| {
            let pool = Pool::new(2);
            let p = pool.clone();
            let q = pool.clone();
            let a = loom::thread::spawn(move || p.run(0, 1));
            let b = loom::thread::spawn(move || q.run(1, 1));
            pool.push();
            pool.push();
            a.join().unwrap();
            b.join().unwrap();
        });
    }

    /// A spare worker beyond the first word starts while a task is pushed: the pusher sees its bit,
    /// or it sees the task.
    #[test]
    fn loom_a_worker_of_another_word_is_found() {
        const WORKER: usize = 64;
        bounded(|| {
            let pool = Arc::new((
                Sleepers::new(1, WORKER),
                AtomicUsize::new(0),
                Mutex::new(false),
                Condvar::new(),
            ));
            let pushes = pool.clone();
            let pusher = loom::thread::spawn(move || {
                let (sleepers, tasks, signal, signalled) = &*pushes;
                tasks.fetch_add(1, Ordering::Release);
                if sleepers.wake_any().is_some() {
                    *signal.lock().unwrap() = true;
                    signalled.notify_one();
                }
            });

            pool.0.reach(WORKER);
            let worker = loom::thread::spawn(move || {
                let (sleepers, tasks, signal, signalled) = &*pool;
                sleepers.begin_sleep(WORKER, false);
                if tasks.load(Ordering::Acquire) == 0 {
                    let mut was = signal.lock().unwrap();
                    while !*was {
                        was = signalled.wait(was).unwrap();
                    }
                }
            });

            pusher.join().unwrap();
            worker.join().unwrap();
        });
    }

    #[test]
    fn loom_wake_worker_against_sleep() {
        bounded(|| {
            let pool = Pool::new(2);
            let p = pool.clone();
            let t = loom::thread::spawn(move || p.run(1, 1));
            pool.tasks.fetch_add(1, Ordering::Release);
            if pool.sleepers.wake_worker(1) {
                pool.signal(1);
            }
            t.join().unwrap();
        });
    }
}
