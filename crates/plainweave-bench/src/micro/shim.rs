//! The systems under test behind one small trait, so that each workload is written once.

use plainweave::{Io, Runtime};

use crate::mode::Mode;

type Job = Box<dyn FnOnce() + Send>;

/// A system as a workload sees it.
pub(super) struct Calls {
    /// Runs the job as the system's main thread and returns when it has ended.
    pub(super) run: Box<dyn Fn(Job)>,
    pub(super) kind: Kind,
}

/// Which calls a workload makes. A match on it is predicted, and the calls are inlined as they are in a program:
/// through a function pointer each switch would cost a mispredicted return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fibers,
    Threads,
}

/// A system to measure.
pub(super) trait System {
    fn name(&self) -> &'static str;
    fn erased(&self) -> Calls;
}

/// Fibers.
pub(super) struct Plainweave(std::sync::Arc<Runtime>, Mode);

impl Plainweave {
    pub(super) fn new(mode: Mode, workers: usize, policy: &str) -> anyhow::Result<Self> {
        let runtime = mode.builder().workers(workers).io(Io::Auto).policy(policy).max_fibers(2_000_000).build()?;
        Ok(Self(runtime.into(), mode))
    }
}

impl System for Plainweave {
    fn name(&self) -> &'static str {
        self.1.system()
    }

    fn erased(&self) -> Calls {
        let runtime = self.0.clone();
        Calls { run: Box::new(move |job| runtime.run(job)), kind: Kind::Fibers }
    }
}

/// The kernel's threads.
pub(super) struct Threads;

impl System for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn erased(&self) -> Calls {
        Calls { run: Box::new(|job| job()), kind: Kind::Threads }
    }
}

/// A thread of either kind, to be joined or woken.
pub(super) enum Handle {
    Fiber(plainweave::JoinHandle<()>),
    Thread(std::thread::JoinHandle<()>),
}

impl Kind {
    /// # Errors
    /// No more threads are to be had.
    #[inline]
    pub(super) fn spawn(self, f: impl FnOnce() + Send + 'static) -> anyhow::Result<Handle> {
        Ok(match self {
            Kind::Fibers => Handle::Fiber(plainweave::spawn(f)),
            Kind::Threads => Handle::Thread(std::thread::Builder::new().stack_size(64 * 1024).spawn(f)?),
        })
    }

    #[inline(always)]
    pub(super) fn yield_now(self) {
        match self {
            Kind::Fibers => plainweave::yield_now(),
            Kind::Threads => std::thread::yield_now(),
        }
    }

    pub(super) fn park(self) {
        match self {
            Kind::Fibers => drop(plainweave::park()),
            Kind::Threads => std::thread::park(),
        }
    }

    /// How much less of a workload the system gets, because an operation of its costs so much more.
    pub(super) fn share(self) -> usize {
        if self == Kind::Threads { 100 } else { 1 }
    }
}

impl Handle {
    /// # Errors
    /// The thread panicked.
    #[inline]
    pub(super) fn join(self) -> anyhow::Result<()> {
        match self {
            Handle::Fiber(handle) => handle.join().map_err(Into::into),
            Handle::Thread(handle) => handle.join().map_err(|_| anyhow::anyhow!("a thread panicked")),
        }
    }

    pub(super) fn unpark(&self) {
        match self {
            Handle::Fiber(handle) => handle.fiber().unpark(),
            Handle::Thread(handle) => handle.thread().unpark(),
        }
    }
}
