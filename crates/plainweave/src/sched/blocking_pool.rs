//! Work that would hold up a worker: a bounded pool of OS threads.
//!
//! At most [`BlockingPool::new`]'s number of threads, started when needed, gone after ten idle seconds. Jobs queue when
//! all are busy, [`QUEUE`] of them at most; a fiber that comes then waits for room (back-pressure), like one that waits
//! for its result: cancellation and deadlines end either wait. A job that runs is not stopped: it owns what it uses and
//! ends detached.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wait::Waker;
use crate::sys;

/// Jobs that may wait for a thread.
pub(crate) const QUEUE: usize = 4096;
/// A thread with nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// See the module's page. Clones share the pool.
#[derive(Clone)]
pub(crate) struct BlockingPool(Arc<Inner>);

struct Inner {
    max_threads: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Callers that found the queue full.
    waiting: Vec<Waker>,
    closed: bool,
}

impl BlockingPool {
    pub(crate) fn new(max_threads: usize) -> Self {
        Self(Arc::new(Inner { max_threads, state: Mutex::default(), work: Condvar::new() }))
    }

    /// Idle threads end; those at work end after it.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }

    /// Any thread. Queues the job if there is room; else the waker will be told of room.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut state = self.0.lock();
        if state.jobs.len() >= QUEUE {
            state.waiting.push(Waker::current());
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.idle > 0 {
            self.0.work.notify_one();
        } else if state.threads < self.0.max_threads {
            let inner = self.0.clone();
            let started = std::thread::Builder::new().name("plainweave-blocking".into()).spawn(move || inner.serve());
            match started {
                Ok(_) => state.threads += 1,
                // With a thread at work the job waits for it; with none, the caller does it.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    let job = state.jobs.pop_back();
                    drop(state);
                    job.into_iter().for_each(|job| job());
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        sys::forget_inherited_slice();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.iter().for_each(Waker::wake);
                // A value that nobody waits for any more is dropped in the job, and its destructor may panic.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    std::mem::forget(panic);
                }
                state = self.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}
