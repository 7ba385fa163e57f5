//! Runs work that would block a worker, on the threads of `sched/blocking_pool`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fiber::Reason;
use crate::sched::blocking_pool::{BlockingPool, BlockingPools, Job};
use crate::sched::wait::{self, Interrupts, WaitSpec, Waker};

/// How long a fiber on virtual time waits for its job on the spot, in real time.
const ON_THE_SPOT: Duration = Duration::from_millis(100);

/// What caller and job share.
struct SharedJob<T> {
    state: Mutex<JobState<T>>,
    /// The job has ended, and its caller waits on the spot.
    ended: Condvar,
    waiter: Waker,
}

enum JobState<T> {
    /// Queued or running; its end wakes the caller.
    Pending,
    /// The same, and its caller waits on the spot: a wake-up would come too late, and change what
    /// is ready then.
    Watched,
    Ended(std::thread::Result<T>),
    /// The caller has its result, or has left: a job that has not begun then does not.
    Left,
}

impl<T> SharedJob<T> {
    fn state(&self) -> MutexGuard<'_, JobState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the job, unless nobody waits for it any more.
    ///
    /// Context: a thread of the pool.
    fn run(&self, f: impl FnOnce() -> T) {
        if matches!(*self.state(), JobState::Left) {
            return;
        }

        let result = catch_unwind(AssertUnwindSafe(f));
        let mut state = self.state();
        if matches!(*state, JobState::Left) {
            // Nobody wants the value. It is dropped without the lock.
            drop(state);
            return drop(result);
        }

        let before = std::mem::replace(&mut *state, JobState::Ended(result));
        drop(state);
        match before {
            JobState::Watched => self.ended.notify_one(),
            _ => self.waiter.wake(),
        }
    }

    /// Takes the result out.
    fn take(&self) -> Option<std::thread::Result<T>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, JobState::Left) {
            JobState::Ended(result) => Some(result),
            pending => {
                *state = pending;
                None
            }
        }
    }

    /// Blocks the worker until the job has ended, for a while: on virtual time, where nothing else
    /// is to go on meanwhile, or it would be a matter of real time what does.
    fn wait_on_the_spot(&self) {
        let goes_on = |state: &mut JobState<T>| matches!(state, JobState::Watched);
        let state = self.state();
        let waited = self.ended.wait_timeout_while(state, ON_THE_SPOT, goes_on);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);

        // From here on the fiber waits as it does elsewhere.
        if matches!(*state, JobState::Watched) {
            *state = JobState::Pending;
        }
    }
}

/// Tells the job that its caller has left.
struct Caller<T>(Arc<SharedJob<T>>);

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        // A value that comes meanwhile is dropped without the lock.
        let before = std::mem::replace(&mut *self.0.state(), JobState::Left);
        drop(before);
    }
}

/// Runs `f` on a thread of the runtime's blocking pool and waits for its value; other fibers of the
/// worker go on meanwhile. On a plain thread `f` runs directly.
///
/// # Errors
/// The caller was cancelled or ran into its deadline. If `f` had begun by then, it runs to its end,
/// and its value is dropped on the pool's thread; otherwise it does not run.
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
    let is_virtual = header.worker().pool().virtual_time;
    let caller = Caller(Arc::new(SharedJob {
        state: Mutex::new(match is_virtual {
            true => JobState::Watched,
            false => JobState::Pending,
        }),
        ended: Condvar::new(),
        waiter: Waker::current(),
    }));
    let shared = Arc::clone(&caller.0);
    let mut job: Option<Job> = Some(Box::new(move || shared.run(f)));
    wait::until(wait, || match job.take().map(|j| pool.submit(j)) {
        None | Some(Ok(())) => Some(()),
        Some(Err(back)) => {
            job = Some(back);
            None
        }
    })?;

    if is_virtual {
        caller.0.wait_on_the_spot();
    }
    let result = match wait::until(wait, || caller.0.take()) {
        Ok(result) => result,
        // What has ended meanwhile is delivered.
        Err(interrupt) => caller.0.take().ok_or(interrupt)?,
    };
    match result {
        Ok(value) => Ok(value),
        Err(panic) => resume_unwind(panic),
    }
}
