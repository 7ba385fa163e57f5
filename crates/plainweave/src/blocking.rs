//! Runs work that would block a worker, on the threads of `sched/blocking_pool`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fiber::Reason;
use crate::sched::blocking_pool::{BlockingPool, BlockingPools, Job};
use crate::sched::wait::{self, Interrupts, WaitSpec, Waker};

/// Where a job leaves its result.
struct JobResult<T> {
    result: Mutex<Option<std::thread::Result<T>>>,
    waiter: Waker,
}

/// Runs `f` on a thread of the runtime's blocking pool and waits for its value; other fibers of the
/// worker go on meanwhile. On a plain thread `f` runs directly.
///
/// # Errors
/// The caller was cancelled or ran into its deadline. If `f` had begun by then, it runs to its end,
/// and its value is dropped on the pool's thread.
///
/// # Panics
/// With `f`'s panic.
///
/// ```
/// plainweave::run(|| {
///     let digest = plainweave::blocking(|| (1..=1_000_000u64).fold(0, |a, b| a ^ b)).unwrap();
///     assert_eq!(digest, 1_000_000);
/// });
/// ```
pub fn blocking<T, F>(f: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    on(|pools| &pools.jobs, f)
}

/// As [`blocking`], for looking a name up: bounded apart.
pub(crate) fn look_up<T, F>(f: F) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    on(|pools| &pools.names, f)?
}

fn on<T, F>(pool: fn(&BlockingPools) -> &BlockingPool, f: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(header) = wait::suspendable() else {
        return Ok(f());
    };
    if let Some(interrupt) = wait::interrupted() {
        return Err(wait::failed_at_once(interrupt.into()));
    }
    let pool = pool(&header.worker().pool().blocking).clone();
    let wait = WaitSpec::new(Reason::Blocking, Interrupts::Allowed);
    let slot = Arc::new(JobResult {
        result: Mutex::new(None),
        waiter: Waker::current(),
    });
    let theirs = slot.clone();
    let mut job: Option<Job> = Some(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        *theirs.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        theirs.waiter.wake();
    }));
    wait::until(wait, || match job.take().map(|j| pool.submit(j)) {
        None | Some(Ok(())) => Some(()),
        Some(Err(back)) => {
            job = Some(back);
            None
        }
    })?;
    let take = || {
        slot.result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    };
    match wait::until(wait, take)? {
        Ok(value) => Ok(value),
        Err(panic) => resume_unwind(panic),
    }
}
