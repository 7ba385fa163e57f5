//! A runtime: running code on it, and ending it.

#![expect(unsafe_code, reason = "`run` promises to outlive its fiber")]

mod added_workers; // Workers that a program adds while it runs.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle as OsJoinHandle;
use std::time::{Duration, Instant};

use crate::abort::{no_unwind, warn};
use crate::fiber::Movement;
use crate::fiber_local::Storage;
use crate::metrics::Metrics;
use crate::sched::pool::{Awaited, PoolShared};
use crate::sched::wait::Waker;
use crate::sched::worker::current_worker;
use crate::scope::{Scope, scope_on};
use crate::thread::{Builder as FiberBuilder, JoinHandle};
use crate::time::saturating_add;
use crate::watchdog::Threads;

pub use added_workers::AddedWorkers;

/// How long a runtime that is dropped waits for its fibers without a word.
const SILENCE: Duration = Duration::from_secs(1);
/// How long an ending runtime waits for a report in progress.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// A pool of workers that run fibers.
///
/// Dropping it cancels every fiber, waits for them (ten seconds, or
/// [`RuntimeBuilder::shutdown_timeout`](crate::RuntimeBuilder::shutdown_timeout)) and ends the
/// workers; [`Runtime::shutdown`] does the same and returns what was left behind. Fibers that take
/// more than a second are named on standard error.
///
/// # Panics
/// Dropping a runtime on one of its own fibers panics: the fiber would wait for its own end.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = plainweave::Runtime::builder().workers(2).build()?;
/// let fiber = runtime.spawn(|| plainweave::time::sleep(Duration::from_millis(1)));
/// fiber.join().unwrap()?;
/// assert_eq!(runtime.shutdown(Duration::from_secs(1)).leaked_fibers, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    pub(crate) pool: Arc<PoolShared>,
    /// By the worker's number.
    pub(crate) threads: Threads,
    /// Returns the threads of spare workers.
    pub(crate) watchdog: Option<OsJoinHandle<Threads>>,
    /// Ends after the watchdog.
    pub(crate) reporter: Option<OsJoinHandle<()>>,
    pub(crate) shutdown: Duration,
    pub(crate) driver: &'static str,
    pub(crate) fallback: Option<String>,
    pub(crate) policy: String,
}

/// What a shutdown left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Fibers (and idle connections) that had not ended by the deadline. Their stacks are leaked.
    pub leaked_fibers: u64,
    /// Workers that were stuck in a fiber; their threads go on.
    pub leaked_workers: usize,
    /// I/O operations that were in flight on workers that ended; their rings are leaked.
    pub leaked_operations: usize,
}

impl Runtime {
    /// Builds a runtime with default settings.
    ///
    /// # Errors
    /// As for [`RuntimeBuilder::build`](crate::RuntimeBuilder::build).
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Runs `f` on a fiber and waits for its value; `f` may borrow.
    ///
    /// # Panics
    /// With `f`'s panic, or if the fiber could not start. Also, without running `f`, on a thread
    /// that is ending, in a destructor of a thread-local that was first used before this crate's.
    pub fn run<T: Send, F: FnOnce() -> T + Send>(&self, f: F) -> T {
        // Panics if the calling thread cannot wait: before the fiber gets what `f` borrows.
        drop(Waker::current());
        let ended = no_unwind(
            "Runtime::run cannot leave its fiber alone with what that borrows",
            || {
                // SAFETY: this section ends when the fiber has ended, or not at all.
                let main = unsafe {
                    FiberBuilder::new()
                        .name("main")
                        .spawn_unchecked(&self.pool, f)
                };
                let _waits = self.pool.caller_waits(|| Awaited::Fiber(main.handle()));
                main.join_always()
            },
        );
        match ended {
            Ok(value) => value,
            Err(error) => match error.into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => panic!("{error}"),
            },
        }
    }

    /// Spawns a fiber on this runtime; see [`crate::spawn`].
    pub fn spawn<T, F>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: 'static and Send.
        unsafe { FiberBuilder::new().spawn_unchecked(&self.pool, f) }
    }

    /// Spawns a fiber as `builder` describes it.
    ///
    /// # Errors
    /// The stack size or the weight is out of range.
    pub fn spawn_with<T, F>(&self, builder: FiberBuilder, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        builder.spawn_on(&self.pool, f)
    }

    /// Runs `f` with a scope whose fibers run on this runtime; see [`crate::scope`].
    pub fn scope<'env, T>(
        &self,
        f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    ) -> T {
        scope_on(self.pool.clone(), f)
    }

    /// Returns the name of the I/O driver: `uring`, `epoll` or `sim`.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// Returns why the driver is not io_uring, if that was tried and refused.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Returns the policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns whose thread-local storage the runtime's fibers use.
    #[must_use]
    pub fn storage(&self) -> Storage {
        self.pool.storage
    }

    /// Returns when its fibers may change their worker.
    #[must_use]
    pub fn movement(&self) -> Movement {
        self.pool.movement
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pool.regular()
    }

    /// Returns the workers that have a thread, spare ones last: the worker's number, and the
    /// kernel's number of the thread (gettid(2)), by which `/proc/self/task` and profilers know it.
    #[must_use]
    pub fn worker_threads(&self) -> Vec<(usize, u32)> {
        let threads = self
            .pool
            .workers
            .iter()
            .map(|worker| worker.thread())
            .enumerate();
        threads.filter(|(_, thread)| *thread != 0).collect()
    }

    /// Returns the runtime's current metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.pool)
    }

    /// Closes every idle connection ([`crate::net::on_readable`]), present and future: each gets an
    /// error that [`crate::is_cancelled`] recognises. Fibers go on. This is the first step of a
    /// graceful stop.
    pub fn close_idle_connections(&self) {
        self.pool.close_idle_connections();
    }

    /// Waits, for at most `limit`, until no fiber and no idle connection is left, and returns
    /// whether that is so. Cancels nothing.
    ///
    /// Context: blocks the calling thread, so call it outside the runtime's own fibers.
    #[must_use]
    pub fn wait_idle(&self, limit: Duration) -> bool {
        self.pool
            .wait_until_empty(saturating_add(Instant::now(), limit))
            == 0
    }

    /// Cancels every fiber and waits for them until `limit` has passed; then ends the workers.
    /// Whatever has not ended by then is left behind, with its stack and its ring, and counted.
    ///
    /// # Panics
    /// If called on one of the runtime's own fibers.
    pub fn shutdown(mut self, limit: Duration) -> Shutdown {
        self.end(limit)
    }

    /// Cancels every fiber and waits a second for them; then says on standard error which have not
    /// ended, and that the runtime goes on waiting.
    fn say_what_does_not_end(&self) {
        if self.shutdown <= SILENCE || self.on_own_fiber() {
            return;
        }
        self.pool.cancel_all();

        let left = self.pool.wait_until_empty(Instant::now() + SILENCE);
        if left > 0 {
            let names = self.pool.some_alive().join(", ");
            let limit = self.shutdown;
            let names = if names.is_empty() {
                names
            } else {
                format!(": {names}")
            };

            warn(format_args!(
                "{left} fibers and idle connections have been cancelled and do not end; the runtime waits for up to \
                 {limit:?}, then leaves them behind{names}"
            ));
        }
    }

    pub(crate) fn on_own_fiber(&self) -> bool {
        current_worker().is_some_and(|ctx| std::ptr::eq(ctx.pool(), &*self.pool))
    }

    fn end(&mut self, limit: Duration) -> Shutdown {
        assert!(
            !self.on_own_fiber(),
            "a runtime was dropped by one of its own fibers, which it would have to wait for"
        );
        let deadline = saturating_add(Instant::now(), limit);
        self.pool.cancel_all();
        let mut left = Shutdown {
            leaked_fibers: self.pool.wait_until_empty(deadline),
            ..Shutdown::default()
        };

        self.pool.stop();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // If it has panicked, the panic message is already out.
            self.threads.extend(watchdog.join().unwrap_or_default());
        }

        self.pool.blocking.close();
        let mut gone = Vec::new();
        for (worker, thread) in self.threads.drain(..) {
            // Once all fibers have ended, the workers are about to exit; otherwise give stuck
            // workers no more time.
            while left.leaked_fibers > 0
                && !thread.is_finished()
                && Instant::now() < saturating_add(deadline, Duration::from_millis(100))
            {
                self.pool.stop();
                std::thread::sleep(Duration::from_millis(1));
            }
            if left.leaked_fibers > 0 && !thread.is_finished() {
                left.leaked_workers += 1;
            } else {
                left.leaked_operations += thread.join().unwrap_or(0);
                gone.push(worker);
            }
        }

        if let Some(reporter) = self.reporter.take() {
            end_reports(&reporter);
        }
        if left.leaked_fibers > 0 {
            self.pool.refuse_held_back();
            gone.into_iter()
                .for_each(|worker| self.pool.refuse_late(worker));
            // Fibers left behind point to it.
            std::mem::forget(self.pool.clone());
        }

        left
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // If this fiber is already panicking, perhaps because of this very mistake in `shutdown`,
        // leave the workers to themselves: a second panic would end the process.
        let second_panic = std::thread::panicking() && self.on_own_fiber();
        if !self.threads.is_empty() && !second_panic {
            self.say_what_does_not_end();
            self.end(self.shutdown);
        }
    }
}

/// Builds a runtime with default settings, runs `f` on a fiber of it, and shuts it down.
///
/// # Panics
/// With `f`'s panic; if the runtime cannot be built, with a message that says why.
///
/// ```
/// assert_eq!(plainweave::run(|| plainweave::spawn(|| 6 * 7).join().unwrap()), 42);
/// ```
pub fn run<T: Send, F: FnOnce() -> T + Send>(f: F) -> T {
    match Runtime::new() {
        Ok(runtime) => runtime.run(f),
        Err(error) => panic!("cannot start a runtime: {error}"),
    }
}

/// Waits for a report in progress after all workers have ended; leaves one that takes too long to
/// itself.
fn end_reports(thread: &OsJoinHandle<()>) {
    let deadline = Instant::now() + LAST_REPORT;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fiber;
    use crate::thread::{park, spawn_waiting};

    /// A deadlock is reported to those who wait. A thread is not among them when its fiber has
    /// ended, though it may not have had a processor since.
    #[test]
    fn a_thread_whose_fiber_has_ended_waits_for_nothing() {
        let runtime = Runtime::builder()
            .workers(1)
            .max_workers(1)
            .report_stalls(false)
            .build()
            .expect("a runtime");
        let waits = runtime.spawn(|| park().is_ok());
        {
            let _caller = runtime.pool.caller_waits(|| Awaited::Fiber(waits.handle()));
            assert!(runtime.pool.is_awaited());
            waits.fiber().unpark();
            let deadline = Instant::now() + Duration::from_secs(30);
            while runtime.pool.is_awaited() {
                assert!(Instant::now() < deadline, "the fiber does not end");
                std::thread::yield_now();
            }

            assert_eq!(
                runtime
                    .pool
                    .callers
                    .load(std::sync::atomic::Ordering::Relaxed),
                1
            );
        }
        assert!(!runtime.pool.is_awaited() && waits.join().expect("no panic"));

        assert_eq!(
            runtime
                .pool
                .callers
                .load(std::sync::atomic::Ordering::Relaxed),
            0
        );
    }

    #[test]
    fn a_fiber_that_waits_for_another_is_as_urgent() {
        let runtime = Runtime::builder()
            .workers(1)
            .policy("priority")
            .build()
            .expect("a runtime");
        let urgent = FiberBuilder::new().priority(200).weight(7);
        let waits = || {
            let waiting = spawn_waiting(|| {
                fiber::current().map(|me| (me.urgency().priority, me.urgency().weight))
            });
            waiting.expect("on a fiber").join().expect("no panic")
        };

        let seen = runtime
            .spawn_with(urgent, waits)
            .expect("in range")
            .join()
            .expect("no panic");
        assert_eq!(seen, Some((200, 7)));
    }
}
