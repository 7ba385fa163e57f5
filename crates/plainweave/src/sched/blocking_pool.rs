//! A bounded pool of OS threads, for work that would hold up a worker.
//!
//! Up to [`BlockingPool::new`]'s number of threads are started when needed, and end after ten idle
//! seconds. When all are busy, up to [`QUEUE`] jobs are queued. A fiber that finds the queue full
//! waits for room (back-pressure), as it later waits for its result; cancellation and deadlines end
//! either wait. A running job is not stopped: it owns what it uses and ends detached.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::wait::Waker;
use crate::atomics::job_queue::{Jobs, Submission};
use crate::sys;

/// Limit on jobs that wait for a thread.
pub(crate) const QUEUE: usize = 4096;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The pools of a runtime.
pub(crate) struct BlockingPools {
    /// For [`crate::blocking`], and for files.
    pub(crate) jobs: BlockingPool,
    /// For looking up names: a server of names that does not answer holds up nothing else.
    pub(crate) names: BlockingPool,
}

impl BlockingPools {
    /// Creates them; each has at most that many threads.
    pub(crate) fn new(max_threads: usize) -> Self {
        Self {
            jobs: BlockingPool::new(max_threads),
            names: BlockingPool::new(max_threads),
        }
    }

    /// Closes them: idle threads end at once, busy ones when no job is left.
    pub(crate) fn close(&self) {
        self.jobs.close();
        self.names.close();
    }

    /// Returns whether a job runs or waits to.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs.is_busy() || self.names.is_busy()
    }

    /// Returns the number of their threads.
    pub(crate) fn threads(&self) -> usize {
        self.jobs.threads() + self.names.threads()
    }

    /// Returns how many jobs wait for a thread, those included that found no room in a queue.
    pub(crate) fn waiting(&self) -> usize {
        self.jobs.waiting() + self.names.waiting()
    }
}

/// One pool. Clones share it.
#[derive(Clone)]
pub(crate) struct BlockingPool(Arc<Jobs<Job, Waker>>);

impl BlockingPool {
    fn new(max_threads: usize) -> Self {
        Self(Arc::new(Jobs::new(max_threads, QUEUE)))
    }

    fn close(&self) {
        self.0.close();
    }

    fn is_busy(&self) -> bool {
        let now = self.0.counts();
        now.busy > 0 || now.queued > 0
    }

    fn threads(&self) -> usize {
        self.0.counts().threads
    }

    fn waiting(&self) -> usize {
        let now = self.0.counts();
        now.queued + now.refused
    }

    /// Queues the job if there is room; otherwise returns it, and the caller is woken when there is
    /// room.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let start = || {
            let jobs = self.0.clone();
            let thread = std::thread::Builder::new().name("plainweave-blocking".into());
            sys::start_thread(thread, move || serve(&jobs)).is_ok()
        };
        match self.0.submit(job, Waker::current, start) {
            Submission::Queued => {}
            Submission::Full(job) => return Err(job),
            Submission::Yours(job) => job(),
        }
        Ok(())
    }
}

/// Runs jobs on a thread of the pool.
fn serve(jobs: &Jobs<Job, Waker>) {
    sys::forget_inherited_slice();
    while let Some(job) = jobs.next(Waker::wake) {
        // A result that nobody waits for any more is dropped in the job, and its destructor may
        // panic.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            std::mem::forget(panic);
        }
        jobs.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::look_up;
    use crate::{Runtime, blocking};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Names whose server does not answer hold up neither files nor jobs.
    #[test]
    fn names_are_bounded_apart() {
        let runtime = Runtime::builder()
            .workers(1)
            .blocking_threads(1)
            .build()
            .expect("a runtime");
        let (answer, answered) = mpsc::channel::<()>();
        let asks = runtime.spawn(move || look_up(move || Ok(answered.recv().is_err())));
        let deadline = Instant::now() + Duration::from_secs(20);
        while runtime.metrics().blocking_threads == 0 {
            assert!(Instant::now() < deadline, "it has a thread");
            std::thread::sleep(Duration::from_millis(1));
        }

        let read = runtime.run(|| blocking(|| 1).and_then(|_| crate::fs::metadata("/proc")));
        assert!(read.expect("a directory").is_dir());
        assert_eq!(runtime.metrics().blocking_threads, 2);
        drop(answer);
        assert!(asks.join().expect("no panic").expect("not cancelled"));
    }

    /// Callers that find the queue full wait, are woken when there is room, and each has its job
    /// run.
    #[test]
    fn callers_that_found_the_queue_full_are_notified_of_room() {
        const MORE: usize = 100;
        let runtime = Runtime::builder()
            .workers(1)
            .blocking_threads(1)
            .stack_size(64 << 10)
            .build()
            .expect("a runtime");
        let (finish, finished) = mpsc::channel::<()>();
        let mut finished = Some(finished);
        let (ran, report) = mpsc::channel();

        // The first job holds up the only thread, QUEUE jobs fill the queue, and the other callers
        // wait.
        let callers: Vec<_> = (0..1 + QUEUE + MORE)
            .map(|_| {
                let finished = finished.take();
                let ran = ran.clone();
                runtime.spawn(move || {
                    blocking(move || {
                        let _ = finished.map(|finished| finished.recv());
                        ran.send(()).expect("the test waits");
                    })
                })
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let pool = runtime.run(|| {
            crate::sched::pool::current_pool("blocking")
                .blocking
                .jobs
                .clone()
        });

        while pool.0.counts().refused < MORE {
            assert!(Instant::now() < deadline, "they find the queue full");
            std::thread::sleep(Duration::from_millis(1));
        }

        assert_eq!(pool.0.counts().queued, QUEUE);
        drop(finish);
        for n in 0..callers.len() {
            report
                .recv_timeout(Duration::from_secs(20))
                .unwrap_or_else(|_| panic!("only {n} jobs have run"));
        }

        callers
            .into_iter()
            .for_each(|caller| caller.join().expect("no panic").expect("not cancelled"));
    }
}
