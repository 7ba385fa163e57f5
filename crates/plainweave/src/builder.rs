//! The settings of a runtime, and how it is built.

// What a runtime is sized by: processors, and the cores, caches and sockets they share.
mod machine;
mod stalls; // The settings of the watchdog.
mod storage; // The builder's settings of movement and thread-local storage.

use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::abort::no_unwind;
use crate::fiber::{FiberTask, Movement};
use crate::fiber_local::Storage;
use crate::io::no_driver::NoDriver;
use crate::io::probe::{self, Io};
use crate::io::release::Tag;
use crate::io::sim::Held;
use crate::policy::{
    Choice, Numbered, Observed, ObservedParams, Observer, PRESETS, Policy, Visitor,
};
use crate::runtime::Runtime;
use crate::sched::pool::{Numbers, PoolConfig, PoolShared};
use crate::sched::recorder::Recorder;
use crate::sched::spare::Spare;
use crate::sched::worker::{self, Worker};
use crate::stack::StackConfig;
use crate::sys;
use crate::watchdog::{self, OnDeadlock, OnStall, Starting};
use machine::{available_cpus, topology};

/// The most threads that serve `blocking` calls, by default.
const BLOCKING_THREADS: usize = 64;
/// The most workers.
const MAX_WORKERS: usize = 1024;
/// The most workers with spare ones, and by default.
const MAX_WITH_SPARES: usize = 16_384;
const MOST_WORKERS: usize = 4096;
/// Bytes of stack of a worker without a driver, of which there may be thousands: fibers have their
/// own.
const STACK_WITHOUT_DRIVER: usize = 256 << 10;
/// Events that a worker may keep.
const TRACE_CAPACITY: RangeInclusive<usize> = 64..=1 << 24;
/// How long a dropped runtime waits for its fibers after cancelling them.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Settings of a runtime to be built. See [`Runtime::builder`].
///
/// ```
/// let runtime = plainweave::Runtime::builder().workers(2).policy("lifo-slot").stack_size(128 << 10).build()?;
/// assert_eq!((runtime.workers(), runtime.policy()), (2, "lifo-slot"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    max_workers: Option<usize>,
    io: Io,
    policy: String,
    /// What was asked for; otherwise what suits the storage.
    movement: Option<Movement>,
    storage: Storage,
    /// Whether the caller has promised the contract of `movement_anytime`.
    movement_promised: bool,
    stack: StackConfig,
    blocking_threads: usize,
    shutdown: Duration,
    stall_after: Option<Duration>,
    on_stall: Option<OnStall>,
    on_deadlock: Option<OnDeadlock>,
    report_stalls: Option<bool>,
    seed: u64,
    name: String,
    trace_capacity: Option<usize>,
}

impl Runtime {
    /// Returns a builder with default settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }
}

impl RuntimeBuilder {
    fn new() -> Self {
        Self {
            workers: None,
            max_workers: None,
            io: Io::Auto,
            policy: PRESETS[0].name.to_owned(),
            movement: None,
            storage: Storage::Own,
            movement_promised: false,
            stack: StackConfig::default(),
            blocking_threads: BLOCKING_THREADS,
            shutdown: SHUTDOWN,
            stall_after: Some(stalls::STALL_AFTER),
            on_stall: None,
            on_deadlock: None,
            report_stalls: None,
            seed: 0,
            name: "plainweave".to_owned(),
            trace_capacity: None,
        }
    }

    /// Sets the number of OS threads that run fibers, 1 to 1,024. Default: the CPUs that this
    /// process may use (affinity mask and cgroup quota).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets the most OS threads that run fibers at once, spare ones included: from
    /// [`Self::workers`] to 16,384. Default: 4,096. Where the system leaves fewer threads, there
    /// are fewer.
    ///
    /// Code that blocks its thread without this library's knowledge (a lock of `std`, a socket of
    /// `std::net`) takes a worker from the other fibers. While it does, a spare worker runs what is
    /// ready, if fibers may migrate at any time ([`Movement::Anytime`]), stalls are detected
    /// ([`Self::stall_after`]) and the policy has tasks that others may take; those of `local-*`
    /// have none. A spare worker costs a thread; it ends when it is not needed any more.
    ///
    /// When many are held up, fibers that have started run before fresh ones, and one more worker
    /// than this, four at most, is there for them alone: whoever holds what the others block for
    /// gets a worker. But more fibers than these that have started and block each other wait for
    /// ever.
    pub fn max_workers(mut self, workers: usize) -> Self {
        self.max_workers = Some(workers);
        self
    }

    /// Sets the I/O driver.
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Sets the scheduling policy, by one of the names in [`PRESETS`], optionally with parameters:
    /// `"fifo"`, `"lifo:capacity=128,victim=near:13"`. For an unknown name, an unknown parameter or
    /// a value out of range `build` returns an error that lists what is valid. [`Self::build_with`]
    /// takes policies by type.
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.policy = name.into();
        self
    }

    /// Sets the bytes of stack for each fiber, 32 KiB (enough for a panic with its backtrace) to 1
    /// GiB. This is virtual memory, committed page by page as it is used. Default: 256 KiB, 1 MiB
    /// in debug builds.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack.size = bytes;
        self
    }

    /// Sets the most fibers that may have a stack at once; a fiber that starts beyond it fails, and
    /// its `join` returns the error. Default: 1,048,576. (At a pool's limit,
    /// [`PoolSpec::max_fibers`](crate::pools::PoolSpec::max_fibers), spawners wait.)
    pub fn max_fibers(mut self, fibers: usize) -> Self {
        self.stack.max_stacks = fibers;
        self
    }

    /// Returns whether it is for virtual time.
    pub(crate) fn is_virtual(&self) -> bool {
        self.virtual_seed().is_some()
    }

    /// Returns the seed of a runtime on virtual time.
    pub(crate) fn virtual_seed(&self) -> Option<u64> {
        match self.io {
            Io::Sim { seed } => Some(seed),
            _ => None,
        }
    }

    /// Makes room for the stacks of that many fibers at least.
    pub(crate) fn stacks_for(mut self, fibers: usize) -> Self {
        // A fiber gives its stack back after its place; each worker may be about to.
        self.stack.max_stacks = self
            .stack
            .max_stacks
            .max(fibers.saturating_add(MAX_WORKERS));
        self
    }

    /// Sets the most threads that serve [`crate::blocking`], at least 1; names are looked up by as
    /// many others. Default: 64.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = threads;
        self
    }

    /// Sets how long a dropped runtime waits for its cancelled fibers before it leaves them behind.
    /// Default: 10 s.
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

    /// Makes each worker keep its last events, this many of them or up to twice as many, for a
    /// trace: 64 to 16,777,216. [`Runtime::tracer`] writes it. An event takes 16 bytes; running a
    /// fiber until it waits takes two, a wake-up one. Default: no trace.
    pub fn trace_capacity(mut self, events: usize) -> Self {
        self.trace_capacity = Some(events);
        self
    }

    /// Builds and starts the runtime with the policy named.
    ///
    /// # Errors
    /// A setting is out of range (the message says which and what is valid); a driver requested by
    /// name is unavailable; threads, descriptors or memory are exhausted; [`Self::on_stall`] or
    /// [`Self::report_stalls`] is set and SIGURG already has a handler.
    pub fn build(self) -> io::Result<Runtime> {
        let choice = Choice::parse(&self.policy).map_err(invalid)?;
        choice.visit(Named(self))
    }

    /// Builds and starts the runtime with a policy by its type: your own, or a composition.
    /// [`Runtime::policy`] then returns `custom`.
    ///
    /// # Errors
    /// As for [`Self::build`].
    pub fn build_with<P: Policy<FiberTask>>(mut self, params: P::Params) -> io::Result<Runtime> {
        "custom".clone_into(&mut self.policy);
        self.build_as::<P>(params)
    }

    /// Builds and starts the runtime with the policy named, observed. [`Runtime::policy`] then
    /// returns `custom`.
    ///
    /// # Errors
    /// As for [`Self::build`].
    pub fn build_observed(self, observer: Observer) -> io::Result<Runtime> {
        let choice = Choice::parse(&self.policy).map_err(invalid)?;
        choice.visit(Watched {
            builder: self,
            observer,
        })
    }

    fn build_as<P: Policy<FiberTask>>(self, params: P::Params) -> io::Result<Runtime> {
        let choice = self.io.or_forced_by_environment()?;
        let workers = self.checked_workers(choice)?;
        self.check_storage()?;
        let seed = self.seed
            ^ if let Io::Sim { seed } = choice {
                seed
            } else {
                0
            };

        let spares = self.checked_spares::<P>(workers, choice)?;
        let policy = Arc::new(P::new(params, &topology(workers, spares > 0)));
        let config = PoolConfig {
            workers,
            spares,
            movement: self.chosen_movement(),
            storage: self.storage,
            stack: self.stack.clone(),
            blocking_threads: self.blocking_threads,
            seed,
            virtual_time: matches!(choice, Io::Sim { .. }),
            recorder: self.recorder(
                Numbers {
                    regular: workers,
                    spares,
                }
                .all(),
            )?,
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
        let start = self.starter_of_spares(&runtime.pool, choice, seed, policy);
        self.start_watchdog(&mut runtime, start)?;

        Ok(runtime)
    }

    fn recorder(&self, workers: usize) -> io::Result<Option<Arc<Recorder>>> {
        let Some(events) = self.trace_capacity else {
            return Ok(None);
        };
        if !TRACE_CAPACITY.contains(&events) {
            let (least, most) = TRACE_CAPACITY.into_inner();
            return Err(invalid(format!(
                "trace_capacity: {events} events are out of range, {least} to {most}"
            )));
        }
        Ok(Some(Recorder::new(self.name.clone(), workers, events)))
    }

    /// Returns the most spare workers.
    fn checked_spares<P: Policy<FiberTask>>(
        &self,
        workers: usize,
        choice: Io,
    ) -> io::Result<usize> {
        let most = self.max_workers.unwrap_or(MOST_WORKERS.max(workers));
        if !(workers..=MAX_WITH_SPARES).contains(&most) {
            let text = format!(
                "max_workers: {most} is out of range, {workers} (the workers) to {MAX_WITH_SPARES}"
            );
            return Err(invalid(text));
        }

        let useful =
            P::SPARES && self.chosen_movement() == Movement::Anytime && self.stall_after.is_some();
        Ok(if useful && !matches!(choice, Io::Sim { .. }) {
            most - workers
        } else {
            0
        })
    }

    fn checked_workers(&self, choice: Io) -> io::Result<usize> {
        let sim = matches!(choice, Io::Sim { .. });
        let default = if sim { 1 } else { available_cpus() };
        let workers = self.workers.unwrap_or(default);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(invalid(format!(
                "workers: {workers} is out of range, 1 to {MAX_WORKERS}"
            )));
        }

        if sim && workers != 1 {
            return Err(invalid(format!(
                "workers: the simulated driver runs one worker, not {workers}"
            )));
        }

        self.check_stalls()?;
        if self.name.contains('\0') {
            return Err(invalid(format!(
                "thread_name: {:?} has a zero byte, which no thread's name may",
                self.name
            )));
        }

        if self.blocking_threads == 0 {
            return Err(invalid("blocking_threads: at least 1".to_owned()));
        }
        Ok(workers)
    }

    /// Starts the workers. Each opens its driver on its own thread (a ring requires its single
    /// issuer) and reports back. On any failure the dropped `runtime` stops those that have
    /// started.
    fn start_workers<P: Policy<FiberTask>>(
        &self,
        runtime: &mut Runtime,
        choice: Io,
        seed: u64,
        policy: &Arc<P>,
    ) -> io::Result<()> {
        let (report, reports) = mpsc::channel();
        let access = self.access_to_drivers(&runtime.pool, choice);
        for id in 0..runtime.pool.regular() {
            let pool = runtime.pool.clone();
            let policy = policy.clone();
            let report = report.clone();
            let body = move || {
                let tag = Tag::take();
                let opened = worker::prepare_thread()
                    .and_then(|alt| {
                        let held = held_by_jobs(&pool);
                        let driver = probe::open(choice, pool.epoch, tag.number(), access, held)?;
                        Ok((alt, driver))
                    })
                    .and_then(|(alt, (driver, fallback))| {
                        let name = driver.name();
                        Ok((
                            alt,
                            Worker::new(id, pool, policy, driver, Some(tag), seed)?,
                            name,
                            fallback,
                        ))
                    });

                match opened {
                    Ok((_alt_stack, worker, name, fallback)) => {
                        let _ = report.send(Ok((name, fallback)));
                        drop(report);
                        no_unwind(
                            "a worker has panicked, and its fibers would wait for ever",
                            || worker.run(),
                        )
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        0
                    }
                }
            };

            let thread = std::thread::Builder::new().name(format!("{}-{id}", self.name));
            let thread = sys::start_thread(thread, body)?;
            runtime.threads.push((id, thread));
        }

        drop(report);
        for _ in 0..runtime.pool.regular() {
            let panicked =
                |_| io::Error::other("a worker panicked before it started: see Policy::attach");
            let (name, fallback) = reports.recv().map_err(panicked)??;
            runtime.driver = name;
            runtime.fallback = runtime.fallback.take().or(fallback);
        }

        Ok(())
    }

    /// Returns what starts the thread of a spare worker, with a driver if it is to have one. A
    /// driver that cannot be opened there ends the thread.
    fn starter_of_spares<P: Policy<FiberTask>>(
        &self,
        pool: &Arc<PoolShared>,
        choice: Io,
        seed: u64,
        policy: Arc<P>,
    ) -> watchdog::Start {
        let (pool, name, access) = (
            pool.clone(),
            self.name.clone(),
            self.access_to_drivers(pool, choice),
        );
        let policy = Arc::new(Spare(policy));
        Box::new(move |id| {
            let pool = pool.clone();
            let policy = policy.clone();
            let (report, opened) = mpsc::channel();
            let has_driver = pool.numbers.has_driver(id);
            let body = move || {
                let worker = worker::prepare_thread().and_then(|alt| {
                    if !has_driver {
                        let driver =
                            Box::new(NoDriver::new(pool.epoch, pool.workers[id].own_wakeup()));
                        return Ok((alt, Worker::new(id, pool, policy, driver, None, seed)?));
                    }

                    let tag = Tag::take();
                    let held = held_by_jobs(&pool);
                    let (driver, _) = probe::open(choice, pool.epoch, tag.number(), access, held)?;
                    Ok((alt, Worker::new(id, pool, policy, driver, Some(tag), seed)?))
                });

                match worker {
                    Ok((_alt_stack, worker)) => {
                        let _ = report.send(Ok(()));
                        no_unwind(
                            "a worker has panicked, and its fibers would wait for ever",
                            || worker.run_spare(),
                        )
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        0
                    }
                }
            };

            let mut thread = std::thread::Builder::new().name(format!("{name}-{id}"));
            if !has_driver {
                thread = thread.stack_size(STACK_WITHOUT_DRIVER);
            }

            Ok(Starting {
                thread: sys::start_thread(thread, body)?,
                opened,
            })
        })
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

/// The same, for a policy that is observed.
struct Watched {
    builder: RuntimeBuilder,
    observer: Observer,
}

impl Visitor<Numbered<FiberTask>> for Watched {
    type Output = io::Result<Runtime>;

    fn visit<P: Policy<Numbered<FiberTask>>>(self, policy: P::Params) -> io::Result<Runtime> {
        self.builder.build_with::<Observed<P>>(ObservedParams {
            policy,
            observer: self.observer,
        })
    }
}
/// Returns what holds a virtual clock: jobs of the blocking pool, which take real time.
fn held_by_jobs(pool: &Arc<PoolShared>) -> Held {
    let pool = Arc::clone(pool);
    Box::new(move || pool.blocking.is_busy())
}
