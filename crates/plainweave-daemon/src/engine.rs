//! What all servers choose of the runtime, and how they say so in their first line.

#![expect(
    unsafe_code,
    reason = "promises the contract of shared storage for the servers that choose it"
)]

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use anyhow::Context;
use clap::ValueEnum;
use plainweave::policy::Choice;
use plainweave::pools::{PoolSpec, Pools};
use plainweave::{Runtime, RuntimeBuilder, Stall, Storage};

use crate::console::say;
use crate::hooks::Hooks;
use crate::mode::Mode;
use crate::stalls::Stalls;

/// The policy unless a flag says another: the library's, with room for as many fibers as become
/// ready at once where many connections do. With its 256 the older half then goes to a queue of all
/// workers, and has to wait for those that come after it (docs/fairness.md).
const POLICY: &str = "fifo:capacity=16384";

/// Events that each worker records for `--trace`: 1 MiB.
const TRACED_EVENTS: usize = 1 << 16;

/// An I/O driver by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// io_uring
    Uring,
    /// epoll
    Epoll,
}

/// Checks the name of a scheduling policy, perhaps with parameters; the message says what is valid.
pub fn policy(text: &str) -> Result<String, String> {
    Choice::parse(text).map(|_| text.to_owned())
}

/// What `--pools` describes: a pool for the connections, and one in which files are looked up and
/// read.
#[derive(Clone, Debug)]
pub struct TwoPools {
    /// Where connections are served.
    pub connections: PoolSpec,
    /// Where files are looked up and read.
    pub files: PoolSpec,
}

impl TwoPools {
    /// Reads them; the message says what is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        // SAFETY: as for `Setup::builder`.
        let specs = unsafe { PoolSpec::parse_with_shared_storage(text) }
            .map_err(|error| error.to_string())?;
        let number = specs.len();
        let [connections, files] = <[PoolSpec; 2]>::try_from(specs).map_err(|_| {
            format!(
                "it takes two pools, one for connections and one for files, as in web:fifo/1,files:lifo/4; here {}",
                if number == 1 { "is 1".to_owned() } else { format!("are {number}") }
            )
        })?;
        Ok(Self { connections, files })
    }
}

/// What flags say of a runtime; what they leave open is up to the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Of its threads, and in reports.
    pub name: &'static str,
    /// One for each processor, unless set.
    pub workers: Option<NonZeroUsize>,
    /// io_uring where it may be used, unless set.
    pub io: Option<Io>,
    /// A scheduling policy by its name, perhaps with parameters.
    pub policy: Option<&'a str>,
    /// When fibers move, and whose thread-local storage they see.
    pub mode: Mode,
    /// What starts it, if not its builder.
    pub hooks: &'a Hooks,
    /// Where stalls are reported, and on standard error. The names in a report take memory, 30 MB
    /// in a debug build, so this is optional.
    pub stalls: Option<&'a Arc<Stalls>>,
    /// Whether its workers record what they do.
    pub traced: bool,
}

impl Setup<'_> {
    /// Returns how many workers it will have.
    pub(crate) fn count(self) -> usize {
        self.workers
            .or(available_parallelism().ok())
            .map_or(1, NonZeroUsize::get)
    }

    /// Starts it.
    pub fn start(self) -> anyhow::Result<Runtime> {
        self.start_with(self.builder())
    }

    /// Starts the runtime of these settings, of which driver, reports, recording and observation
    /// are as this says.
    pub fn start_with(self, builder: RuntimeBuilder) -> anyhow::Result<Runtime> {
        let builder = self.on(builder);
        match &self.hooks.start {
            Some(start) => start(builder),
            None => builder.build().context("cannot start the runtime"),
        }
    }

    /// Starts a pool that takes at most `most` fibers.
    pub fn start_pool(self, spec: PoolSpec, most: usize) -> anyhow::Result<Pools> {
        let builder = self.on(spec.builder().clone());
        Pools::build([spec.runtime(builder).max_fibers(most)]).context("cannot start the pool")
    }

    /// Sets driver, reports and recording.
    fn on(self, builder: RuntimeBuilder) -> RuntimeBuilder {
        // Reports are a flag's business: names take memory, and standard error is for the operator.
        let builder = builder.report_stalls(false).io(match self.io {
            None => plainweave::Io::Auto,
            Some(Io::Uring) => plainweave::Io::Uring,
            Some(Io::Epoll) => plainweave::Io::Epoll,
        });

        let builder = if self.traced {
            builder.trace_capacity(TRACED_EVENTS)
        } else {
            builder
        };

        match self.stalls.cloned() {
            Some(stalls) => builder.on_stall(move |stall: &Stall| {
                stalls.note(self.name, stall, |line| say(io::stderr(), line))
            }),
            None => builder,
        }
    }

    /// Returns storage, movement, workers and policy as settings.
    pub fn builder(self) -> RuntimeBuilder {
        let builder = match (self.mode.storage, self.mode.movement) {
            (Storage::Own, movement) => Runtime::builder().own_storage().movement(movement),
            // SAFETY: the servers' fibers hold no guard of scoped thread-local storage: neither
            // they nor the HTTP library use `tracing`, `scoped-tls` or the like; what `std` and the
            // compressors keep in thread-locals is used within calls that do not suspend. rustls
            // and ring are called without I/O, so no call of theirs suspends either.
            (_, movement) => unsafe { Runtime::builder().shared_storage() }.movement(movement),
        };

        let mut builder = builder.thread_name(self.name);
        if let Some(workers) = self.workers {
            builder = builder.workers(workers.get());
        }
        builder.policy(self.policy.unwrap_or(POLICY))
    }
}

/// Returns driver, policy and mode as labels of a metric.
pub fn labels(runtime: &Runtime) -> String {
    let driver = runtime.driver();
    let policy = runtime.policy();
    let mode = Mode::of(runtime);
    format!("driver=\"{driver}\",policy=\"{policy}\",mode=\"{mode}\"")
}

/// Driver, workers, policy and mode in words.
pub struct Described<'a>(pub &'a Runtime);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.0.driver();
        let workers = self.0.workers();
        let policy = self.0.policy();
        let s = if workers == 1 { "" } else { "s" };
        let mode = Mode::of(self.0);
        write!(
            f,
            "driver {driver}, {workers} worker{s}, policy {policy}, mode {mode}"
        )?;
        if let Some(why) = Choice::parse(policy)
            .ok()
            .and_then(|choice| choice.experiment())
        {
            write!(f, "; this policy is for experiments: {why}")?;
        }

        if let Some(reason) = self.0.fallback_reason() {
            write!(f, "; not io_uring: {reason}")?;
        }
        match (mode.storage, Storage::Own.supported()) {
            (Storage::Shared, Err(why)) => write!(f, "; {why}"),
            _ => Ok(()),
        }
    }
}
