//! The queue of the blocking pool, and the rule for starting another thread.
//!
//! A thread is *free* from its start, and from the end of a job, until it takes a job from the
//! queue. Only the thread itself knows when it wakes up, so one that was notified, or has not begun
//! to run yet, is still free. Every queued job therefore counts on its own free thread. 1. `submit`
//! queues the job. If there are no more jobs than free threads it notifies a waiting one; otherwise
//! it starts another, up to the limit. 2. A thread that finds the queue empty, under the lock,
//! waits.
//!
//! No job waits while a thread could take it: either as many free threads are on their way to the
//! queue as jobs are in it, or no thread waits. Each job that step 1 adds comes with a
//! notification, and no two notifications reach the same waiting thread; taking a job takes one of
//! each; and a thread waits only when there is no job. With more jobs than free threads none of
//! these waits, so there is nothing to notify (`loom_jobs_that_wait_for_each_other_end`).
//!
//! Rejected: checking whether any thread is idle, where a thread stops being idle only when it
//! wakes up. All jobs of a burst then count on the same thread, and run one after the other.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::shim::{Condvar, Mutex, MutexGuard};

/// How long an idle thread lives.
const IDLE: Duration = Duration::from_secs(10);

/// The queue and its threads. `J` is a job; `W` wakes a caller that waits for room.
pub(crate) struct Jobs<J, W> {
    max_threads: usize,
    max_queued: usize,
    state: Mutex<State<J, W>>,
    work: Condvar,
}

struct State<J, W> {
    queue: VecDeque<J>,
    threads: usize,
    /// Free threads: waiting, or about to check the queue.
    free: usize,
    /// Callers that found the queue full.
    waiting: Vec<W>,
    closed: bool,
}

/// How much there is of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobCounts {
    pub(crate) threads: usize,
    /// Threads that have a job.
    pub(crate) busy: usize,
    /// Jobs in the queue.
    pub(crate) queued: usize,
    /// Callers that found the queue full.
    pub(crate) refused: usize,
}

/// What became of a job.
#[derive(Debug)]
pub(crate) enum Submission<J> {
    /// A thread will run it.
    Queued,
    /// There is no room; the caller's waker is called when there is.
    Full(J),
    /// There is no thread and none can be started: the caller runs the job.
    Yours(J),
}

impl<J, W> Jobs<J, W> {
    pub(crate) fn new(max_threads: usize, max_queued: usize) -> Self {
        let state = State {
            queue: VecDeque::new(),
            threads: 0,
            free: 0,
            waiting: Vec::new(),
            closed: false,
        };

        Self {
            max_threads,
            max_queued,
            state: Mutex::new(state),
            work: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the queue: idle threads end at once, busy ones when no job is left.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Queues the job if there is room; otherwise keeps the waker that `waker` makes. `start`
    /// starts a thread that calls [`Self::next`], and [`Self::done`] after each job, until `next`
    /// returns `None`; it returns whether it could.
    pub(crate) fn submit(
        &self,
        job: J,
        waker: impl FnOnce() -> W,
        start: impl FnOnce() -> bool,
    ) -> Submission<J> {
        let mut state = self.lock();
        if state.queue.len() >= self.max_queued {
            state.waiting.push(waker());
            return Submission::Full(job);
        }

        state.queue.push_back(job);
        if state.queue.len() <= state.free {
            self.work.notify_one();
        } else if state.threads < self.max_threads {
            if start() {
                state.threads += 1;
                state.free += 1;
            } else if state.threads == 0
                && let Some(job) = state.queue.pop_back()
            {
                return Submission::Yours(job);
            }
            // With a thread at work the job waits for that thread.
        }

        Submission::Queued
    }

    /// Waits for a job. Returns `None` if the thread is to end. `wake` wakes the callers that found
    /// no room.
    ///
    /// Context: a free thread of the pool.
    pub(crate) fn next(&self, wake: impl Fn(&W)) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.free -= 1;
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.into_iter().for_each(|waker| wake(&waker));
                return Some(job);
            }

            if state.closed {
                break;
            }
            let (next, waited) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() && state.queue.is_empty() {
                break;
            }
        }

        state.free -= 1;
        state.threads -= 1;
        None
    }

    /// Marks the calling thread as free again, after its job.
    pub(crate) fn done(&self) {
        self.lock().free += 1;
    }

    /// Returns how much there is of what.
    pub(crate) fn counts(&self) -> JobCounts {
        let state = self.lock();
        JobCounts {
            threads: state.threads,
            busy: state.threads - state.free,
            queued: state.queue.len(),
            refused: state.waiting.len(),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Notify;
    use loom::sync::{Arc, Mutex};

    type Model = Jobs<Box<dyn FnOnce() + Send>, Arc<Notify>>;

    /// The model's threads, joined at its end.
    #[derive(Default)]
    struct Threads(Mutex<Vec<loom::thread::JoinHandle<()>>>);

    fn submit(jobs: &Arc<Model>, threads: &Threads, job: impl FnOnce() + Send + 'static) {
        let room = Arc::new(Notify::new());
        let mut job: Box<dyn FnOnce() + Send> = Box::new(job);
        let start = || {
            let theirs = jobs.clone();
            let thread = loom::thread::spawn(move || {
                while let Some(job) = theirs.next(|room| room.notify()) {
                    job();
                    theirs.done();
                }
            });

            threads.0.lock().unwrap().push(thread);
            true
        };

        while let Submission::Full(back) = jobs.submit(job, || room.clone(), start) {
            job = back;
            room.wait();
        }
    }

    fn end(jobs: &Model, threads: Threads) {
        jobs.close();
        threads
            .0
            .into_inner()
            .unwrap()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    /// Two threads are allowed, one of which may be at its first job, idle, or about to be. The
    /// first of two jobs submitted together waits for the second. (Loom reports a deadlock if
    /// nobody runs it.)
    #[test]
    fn loom_jobs_that_wait_for_each_other_end() {
        loom::model(|| {
            let jobs = Arc::new(Model::new(2, 8));
            let threads = Threads::default();
            submit(&jobs, &threads, || ());
            let ready = Arc::new(Notify::new());
            let waits = ready.clone();
            submit(&jobs, &threads, move || waits.wait());
            submit(&jobs, &threads, move || ready.notify());
            end(&jobs, threads);
        });
    }

    /// Two submitters, one thread, room for one job: a submitter that finds no room is notified of
    /// it later, and each job runs exactly once.
    #[test]
    fn loom_callers_are_notified_of_room() {
        loom::model(|| {
            let jobs = Arc::new(Model::new(1, 1));
            let threads = Arc::new(Threads::default());
            let count = Arc::new(Mutex::new(0));
            let theirs = jobs.clone();
            let them = threads.clone();
            let counted = count.clone();
            let other = loom::thread::spawn(move || {
                submit(&theirs, &them, move || *counted.lock().unwrap() += 1)
            });
            let counted = count.clone();

            submit(&jobs, &threads, move || *counted.lock().unwrap() += 1);
            other.join().unwrap();
            end(
                &jobs,
                Arc::try_unwrap(threads).ok().expect("the other has ended"),
            );
            assert_eq!(*count.lock().unwrap(), 2);
        });
    }
}
