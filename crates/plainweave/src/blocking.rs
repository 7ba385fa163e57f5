//! Work that would hold up a worker: a bounded pool of OS threads.
//!
//! At most [`BlockingPool::new`]'s number of threads, started when needed, gone after ten idle seconds. Jobs queue when
//! all are busy, [`QUEUE`] of them at most; a fiber that comes then waits for room (back-pressure), like one that waits
//! for its result: cancellation and deadlines end either wait. A job that runs is not stopped: it owns what it uses and
//! ends detached.

mod jobs;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::block::{self, Waker};
use crate::fiber::Reason;
use jobs::{Jobs, Submitted};

/// Jobs that may wait for a thread.
pub(crate) const QUEUE: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

/// See the module's page. Clones share the pool.
#[derive(Clone)]
pub(crate) struct BlockingPool(Arc<Jobs<Job, Waker>>);

impl BlockingPool {
    pub(crate) fn new(max_threads: usize) -> Self {
        Self(Arc::new(Jobs::new(max_threads, QUEUE)))
    }

    /// Idle threads end; those at work end after it.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Any thread. Queues the job if there is room; else the waker will be told of room.
    fn submit(&self, job: Job) -> Result<(), Job> {
        let start = || {
            let jobs = self.0.clone();
            std::thread::Builder::new().name("plainweave-blocking".into()).spawn(move || serve(&jobs)).is_ok()
        };
        match self.0.submit(job, Waker::current, start) {
            Submitted::Queued => {}
            Submitted::Full(job) => return Err(job),
            Submitted::Yours(job) => job(),
        }
        Ok(())
    }
}

/// A thread of the pool.
fn serve(jobs: &Jobs<Job, Waker>) {
    crate::monitor::slice::forget_inherited();
    while let Some(job) = jobs.next(Waker::wake) {
        // A value that nobody waits for any more is dropped in the job, and its destructor may panic.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            std::mem::forget(panic);
        }
        jobs.done();
    }
}

/// Where a job leaves its result.
struct Slot<T> {
    result: Mutex<Option<std::thread::Result<T>>>,
    waiter: Waker,
}

/// Any thread or fiber. Runs `f` on a thread of the runtime's blocking pool and waits for its value; other fibers of
/// the worker go on meanwhile. On a plain thread `f` simply runs.
///
/// # Errors
/// The caller was cancelled or ran into its deadline. If `f` had begun by then it runs to its end, and its value is
/// dropped there.
///
/// # Panics
/// With `f`'s panic.
pub fn blocking<T, F>(f: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(header) = block::suspendable() else { return Ok(f()) };
    if let Some(interrupt) = block::interrupted() {
        return Err(interrupt.into());
    }
    let pool = header.worker().pool().blocking.clone();
    let slot = Arc::new(Slot { result: Mutex::new(None), waiter: Waker::current() });
    let theirs = slot.clone();
    let mut job: Option<Job> = Some(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        *theirs.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        theirs.waiter.wake();
    }));
    block::until(Reason::Blocking, None, true, None, || match job.take().map(|j| pool.submit(j)) {
        None | Some(Ok(())) => Some(()),
        Some(Err(back)) => {
            job = Some(back);
            None
        }
    })?;
    let take = || slot.result.lock().unwrap_or_else(PoisonError::into_inner).take();
    match block::until(Reason::Blocking, None, true, None, take)? {
        Ok(value) => Ok(value),
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Runtime;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Callers that find the queue full wait, are woken when there is room, and each has its job run.
    #[test]
    fn callers_that_found_the_queue_full_are_told_of_room() {
        const MORE: usize = 100;
        let runtime =
            Runtime::builder().workers(1).blocking_threads(1).stack_size(64 << 10).build().expect("a runtime");
        let (finish, told) = mpsc::channel::<()>();
        let mut told = Some(told);
        let (ran, report) = mpsc::channel();
        // The first holds up the only thread, QUEUE fill the queue, and the others wait.
        let callers: Vec<_> = (0..1 + QUEUE + MORE)
            .map(|_| {
                let (told, ran) = (told.take(), ran.clone());
                runtime.spawn(move || {
                    blocking(move || {
                        let _ = told.map(|told| told.recv());
                        ran.send(()).expect("the test waits");
                    })
                })
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let pool = runtime.run(|| crate::runtime::current_pool("blocking").blocking.clone());
        while pool.0.figures().1 < MORE {
            assert!(Instant::now() < deadline, "they find the queue full");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(pool.0.figures(), (QUEUE, MORE));
        drop(finish);
        for n in 0..callers.len() {
            report.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("only {n} jobs have run"));
        }
        callers.into_iter().for_each(|caller| caller.join().expect("no panic").expect("not cancelled"));
    }
}
