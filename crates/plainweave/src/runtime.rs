//! Building a runtime, running code on it, and ending it.

mod machine;
mod mode;
mod watch;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle as OsJoinHandle;
use std::time::{Duration, Instant};

use crate::abort::no_unwind;
use crate::fiber::{FiberTask, Movement};
use crate::fiber_local::Storage;
use crate::io::probe::{self, Choice as Io};
use crate::metrics::Metrics;
use crate::policy::{Choice, PRESETS, Policy, Visitor};
use crate::sched::pool::{PoolConfig, PoolShared};
use crate::sched::wait::Waker;
use crate::sched::worker::{self, Worker, current_worker};
use crate::scope::{Scope, scope_on};
use crate::stack::StackConfig;
use crate::thread::{Builder as FiberBuilder, JoinHandle};
use crate::watchdog::OnStall;
use machine::{available_cpus, topology};

/// The most threads that serve `blocking` calls, by default.
const BLOCKING_THREADS: usize = 64;
/// The most workers.
const MAX_WORKERS: usize = 1024;
/// How long a dropped runtime waits for its fibers after cancelling them.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Settings of a runtime to be built. See [`Runtime::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    io: Io,
    policy: String,
    movement: Movement,
    storage: Storage,
    /// Whether the caller has promised the contract of `movement_anytime`.
    movement_promised: bool,
    stack: StackConfig,
    blocking_threads: usize,
    shutdown: Duration,
    stall_after: Option<Duration>,
    on_stall: Option<OnStall>,
    seed: u64,
    name: String,
}

impl RuntimeBuilder {
    fn new() -> Self {
        Self {
            workers: None,
            io: Io::Auto,
            policy: PRESETS[0].name.to_owned(),
            movement: Movement::BeforeStart,
            storage: Storage::Own,
            movement_promised: false,
            stack: StackConfig::default(),
            blocking_threads: BLOCKING_THREADS,
            shutdown: SHUTDOWN,
            stall_after: Some(watch::STALL_AFTER),
            on_stall: None,
            seed: 0,
            name: "plainweave".to_owned(),
        }
    }

    /// Sets the number of OS threads that run fibers, 1 to 1,024. Default: the CPUs that this process may use (affinity
    /// mask and cgroup quota).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets the I/O driver.
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Sets the scheduling policy, by one of the names in [`PRESETS`], optionally with parameters: `"fifo"`,
    /// `"lifo:capacity=128,victim=near:13"`. For an unknown name, an unknown parameter or a value out of range `build`
    /// returns an error that lists what is valid. [`Self::build_with`] takes policies by type.
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.policy = name.into();
        self
    }

    /// Sets the bytes of stack for each fiber, 32 KiB (enough for a panic with its backtrace) to 1 GiB. This is virtual
    /// memory, committed page by page as it is used. Default: 256 KiB, 1 MiB in debug builds.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack.size = bytes;
        self
    }

    /// Sets the most fibers that may have a stack at once; a fiber that starts beyond it fails, and its `join` returns
    /// the error. Default: 1,048,576.
    pub fn max_fibers(mut self, fibers: usize) -> Self {
        self.stack.max_stacks = fibers;
        self
    }

    /// Sets the most threads that serve [`crate::blocking`], at least 1. Default: 64.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = threads;
        self
    }

    /// Sets how long a dropped runtime waits for its cancelled fibers before it leaves them behind. Default: 10 s.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown = limit;
        self
    }

    /// Seeds the policies' random choices.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the name of the workers' threads. Default: `plainweave`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Builds and starts the runtime with the policy named.
    ///
    /// # Errors
    /// A setting is out of range (the message says which and what is valid); a driver requested by name is unavailable;
    /// threads, descriptors or memory are exhausted; [`Self::on_stall`] is set and SIGURG already has a handler.
    pub fn build(self) -> io::Result<Runtime> {
        let choice = Choice::parse(&self.policy).map_err(invalid)?;
        choice.visit(Named(self))
    }

    /// Builds and starts the runtime with a policy by its type: your own, or a composition. [`Runtime::policy`] then
    /// returns `custom`.
    ///
    /// # Errors
    /// As for [`Self::build`].
    pub fn build_with<P: Policy<FiberTask>>(mut self, params: P::Params) -> io::Result<Runtime> {
        "custom".clone_into(&mut self.policy);
        self.build_as::<P>(params)
    }

    fn build_as<P: Policy<FiberTask>>(self, params: P::Params) -> io::Result<Runtime> {
        let choice = self.io.or_forced_by_environment()?;
        let workers = self.checked_workers(choice)?;
        self.check_storage()?;
        let seed = self.seed ^ if let Io::Sim { seed } = choice { seed } else { 0 };
        let policy = Arc::new(P::new(params, &topology(workers)));
        let config = PoolConfig {
            workers,
            movement: self.movement,
            storage: self.storage,
            stack: self.stack.clone(),
            blocking_threads: self.blocking_threads,
            seed,
            virtual_time: matches!(choice, Io::Sim { .. }),
        };
        let pool = PoolShared::new(&config, policy.clone())?;
        let mut runtime = Runtime {
            pool,
            threads: Vec::with_capacity(workers),
            watchdog: None,
            reporter: None,
            shutdown: self.shutdown,
            driver: "none",
            fallback: None,
            policy: self.policy.clone(),
        };
        self.start_workers(&mut runtime, choice, seed, &policy)?;
        if !config.virtual_time {
            self.start_watchdog(&mut runtime)?;
        }
        Ok(runtime)
    }

    fn checked_workers(&self, choice: Io) -> io::Result<usize> {
        let sim = matches!(choice, Io::Sim { .. });
        let default = if sim { 1 } else { available_cpus() };
        let workers = self.workers.unwrap_or(default);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(invalid(format!("workers: {workers} is out of range, 1 to {MAX_WORKERS}")));
        }
        if sim && workers != 1 {
            return Err(invalid(format!("workers: the simulated driver runs one worker, not {workers}")));
        }
        self.check_stalls()?;
        if self.blocking_threads == 0 {
            return Err(invalid("blocking_threads: at least 1".to_owned()));
        }
        Ok(workers)
    }

    /// Starts the workers. Each opens its driver on its own thread (a ring requires its single issuer) and reports
    /// back. On any failure the dropped `runtime` stops those that have started.
    fn start_workers<P: Policy<FiberTask>>(
        &self,
        runtime: &mut Runtime,
        choice: Io,
        seed: u64,
        policy: &Arc<P>,
    ) -> io::Result<()> {
        static NEXT_TAG: AtomicUsize = AtomicUsize::new(0);
        let (report, reports) = mpsc::channel();
        let access = self.access_to_drivers(&runtime.pool);
        for id in 0..runtime.pool.workers.len() {
            let (pool, policy, report) = (runtime.pool.clone(), policy.clone(), report.clone());
            let body = move || {
                let tag = NEXT_TAG.fetch_add(1, Ordering::Relaxed);
                let opened = worker::prepare_thread()
                    .and_then(|alt| Ok((alt, probe::open(choice, pool.epoch, tag, access)?)))
                    .and_then(|(alt, (driver, fallback))| {
                        let name = driver.name();
                        Ok((alt, Worker::new(id, pool, policy, driver, tag, seed)?, name, fallback))
                    });
                match opened {
                    Ok((_alt_stack, worker, name, fallback)) => {
                        let _ = report.send(Ok((name, fallback)));
                        drop(report);
                        no_unwind("a worker has panicked, and its fibers would wait for ever", || worker.run())
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        0
                    }
                }
            };
            runtime.threads.push(std::thread::Builder::new().name(format!("{}-{id}", self.name)).spawn(body)?);
        }
        drop(report);
        for _ in 0..runtime.pool.workers.len() {
            let panicked = |_| io::Error::other("a worker panicked before it started: see Policy::attach");
            let (name, fallback) = reports.recv().map_err(panicked)??;
            runtime.driver = name;
            runtime.fallback = runtime.fallback.take().or(fallback);
        }
        Ok(())
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// A builder that waits for the type of its policy.
struct Named(RuntimeBuilder);

impl Visitor<FiberTask> for Named {
    type Output = io::Result<Runtime>;

    fn visit<P: Policy<FiberTask>>(self, params: P::Params) -> io::Result<Runtime> {
        self.0.build_as::<P>(params)
    }
}

/// A pool of workers that run fibers.
///
/// Dropping it cancels every fiber, waits for them (ten seconds, or [`RuntimeBuilder::shutdown_timeout`]) and ends the
/// workers; [`Runtime::shutdown`] does the same and returns what was left behind.
///
/// # Panics
/// Dropping a runtime on one of its own fibers panics: the fiber would wait for its own end.
#[derive(Debug)]
pub struct Runtime {
    pool: Arc<PoolShared>,
    threads: Vec<OsJoinHandle<usize>>,
    watchdog: Option<OsJoinHandle<()>>,
    /// Ends after the watchdog.
    reporter: Option<OsJoinHandle<()>>,
    shutdown: Duration,
    driver: &'static str,
    fallback: Option<String>,
    policy: String,
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
    /// Returns a builder with default settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Builds a runtime with default settings.
    ///
    /// # Errors
    /// As for [`RuntimeBuilder::build`].
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Runs `f` on a fiber and waits for its value; `f` may borrow.
    ///
    /// # Panics
    /// With `f`'s panic, or if the fiber could not start. Also, without running `f`, on a thread that is ending, in a
    /// destructor of a thread-local that was first used before this crate's thread-local.
    pub fn run<T: Send, F: FnOnce() -> T + Send>(&self, f: F) -> T {
        // Panics if the calling thread cannot wait: before the fiber gets what `f` borrows.
        drop(Waker::current());
        let ended = no_unwind("Runtime::run cannot leave its fiber alone with what that borrows", || {
            // SAFETY: this section ends when the fiber has ended, or not at all.
            unsafe { FiberBuilder::new().name("main").spawn_unchecked(&self.pool, f) }.join_always()
        });
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
    pub fn scope<'env, T>(&self, f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
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

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pool.workers.len()
    }

    /// Returns the runtime's current metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.pool)
    }

    /// Closes every idle connection ([`crate::net::on_readable`]), present and future: each gets an error that
    /// [`crate::is_cancelled`] recognises. Fibers go on. This is the first step of a graceful stop.
    pub fn close_idle_connections(&self) {
        self.pool.close_idle_connections();
    }

    /// Waits, for at most `limit`, until no fiber and no idle connection is left, and returns whether that is so.
    /// Cancels nothing.
    ///
    /// Context: blocks the calling thread, so call it outside the runtime's own fibers.
    #[must_use]
    pub fn wait_idle(&self, limit: Duration) -> bool {
        self.pool.wait_until_empty(Instant::now() + limit) == 0
    }

    /// Cancels every fiber and waits for them until `limit` has passed; then ends the workers. Whatever has not ended
    /// by then is left behind, with its stack and its ring, and counted.
    ///
    /// # Panics
    /// If called on one of the runtime's own fibers.
    pub fn shutdown(mut self, limit: Duration) -> Shutdown {
        self.end(limit)
    }

    fn on_own_fiber(&self) -> bool {
        current_worker().is_some_and(|ctx| std::ptr::eq(ctx.pool(), &*self.pool))
    }

    fn end(&mut self, limit: Duration) -> Shutdown {
        assert!(
            !self.on_own_fiber(),
            "a runtime was dropped by one of its own fibers, which it would have to wait for"
        );
        let deadline = Instant::now() + limit;
        self.pool.cancel_all();
        let mut left = Shutdown { leaked_fibers: self.pool.wait_until_empty(deadline), ..Shutdown::default() };
        self.pool.stop();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // If it has panicked, the panic message is already out.
            let _ = watchdog.join();
        }
        self.pool.blocking.close();
        for thread in self.threads.drain(..) {
            // Once all fibers have ended, the workers are about to exit; otherwise give stuck workers no more time.
            while left.leaked_fibers > 0
                && !thread.is_finished()
                && Instant::now() < deadline + Duration::from_millis(100)
            {
                self.pool.stop();
                std::thread::sleep(Duration::from_millis(1));
            }
            if left.leaked_fibers > 0 && !thread.is_finished() {
                left.leaked_workers += 1;
            } else {
                left.leaked_operations += thread.join().unwrap_or(0);
            }
        }
        if let Some(reporter) = self.reporter.take() {
            watch::end_reports(&reporter);
        }
        if left.leaked_fibers > 0 {
            // Fibers left behind point to it.
            std::mem::forget(self.pool.clone());
        }
        left
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // If this fiber is already panicking, perhaps because of this very mistake in `shutdown`, leave the workers to
        // themselves: a second panic would end the process.
        let second_panic = std::thread::panicking() && self.on_own_fiber();
        if !self.threads.is_empty() && !second_panic {
            self.end(self.shutdown);
        }
    }
}

/// Builds a runtime with default settings, runs `f` on a fiber of it, and shuts it down.
///
/// # Panics
/// With `f`'s panic; if the runtime cannot be built, with a message that says why.
pub fn run<T: Send, F: FnOnce() -> T + Send>(f: F) -> T {
    match Runtime::new() {
        Ok(runtime) => runtime.run(f),
        Err(error) => panic!("cannot start a runtime: {error}"),
    }
}
