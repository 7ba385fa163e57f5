//! Work that would hold up a worker: a bounded pool of OS threads.
//!
//! At most [`BlockingPool::new`]'s number of threads, started when needed, gone after ten idle seconds. Jobs queue when
//! all are busy, [`QUEUE`] of them at most; a fiber that comes then waits for room (back-pressure), like one that waits
//! for its result: cancellation and deadlines end either wait. A job that runs is not stopped: it owns what it uses and
//! ends detached.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::wait::Waker;
use crate::atomics::job_queue::{Jobs, Submitted};
use crate::sys;

/// Jobs that may wait for a thread.
pub(crate) const QUEUE: usize = 4096;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

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
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
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
    sys::forget_inherited_slice();
    while let Some(job) = jobs.next(Waker::wake) {
        // A value that nobody waits for any more is dropped in the job, and its destructor may panic.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            std::mem::forget(panic);
        }
        jobs.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, blocking};
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
        let pool = runtime.run(|| crate::sched::pool::current_pool("blocking").blocking.clone());
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
