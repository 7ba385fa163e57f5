//! Dumps: what every fiber of a runtime does at the moment, as text or JSON.
//!
//! ```
//! use plainweave::sync::Mutex;
//! use plainweave::{Builder, Runtime};
//!
//! let runtime = Runtime::new().unwrap();
//! runtime.run(|| {
//!     let account = Mutex::new(100);
//!     let guard = account.lock().unwrap();
//!     plainweave::scope(|s| {
//!         s.spawn(|| *account.lock().unwrap() -= 1);
//!         plainweave::yield_now();
//!         // `fiber #2: waiting for a mutex at 0x7f1c..., held by fiber #1`
//!         println!("{}", plainweave::dump().unwrap());
//!         drop(guard);
//!     });
//! });
//! ```
//!
//! # How exact it is
//! Nothing stops for a dump: each fiber is described as it is when its turn comes, so a dump is no
//! snapshot of one moment. It is complete for fibers that wait all the time. It ends at a limit
//! ([`Options::limit`]), and then says in [`Dump::missing`] what is not in it. A worker that a
//! fiber holds up cannot describe the fibers that are pinned to it.
//!
//! Which fiber a worker *runs* is found out by a signal, SIGURG, under the conditions of
//! [`crate::stall`]; where that is not possible, fibers that run are shown as ready.
//!
//! Not in it: fibers that have not started (they are counted); fibers that have ended, whether
//! joined or not, since all that is left of them is their result; and since when a fiber has
//! waited, which would cost each suspension a reading of the clock.
//!
//! # Cost
//! About a microsecond a fiber on the calling thread, 10 to 100 with its stack, and 64 fibers at a
//! time on workers that have pinned fibers. A fiber that is just being described and becomes ready
//! is queued a microsecond later.

mod collect; // How a dump is put together.
mod json; // A dump as JSON.
mod text; // A dump as text.

use std::time::Duration;

use crate::fiber::Reason;
pub use crate::fiber::note::Object;
use crate::runtime::Runtime;
use crate::sched::pool;
pub use crate::watchdog::report::Frame;
pub use json::Json;

/// How long a dump takes at most, by default.
const LIMIT: Duration = Duration::from_secs(1);

/// What is to be in a dump.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    stacks: bool,
    signals: bool,
    limit: Duration,
}

/// What the fibers of a runtime do.
///
/// `Display` writes text for people, [`Dump::json`] JSON. A writer's error is that of `write!`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Dump {
    /// The fibers that have started, by number.
    pub fibers: Vec<FiberState>,
    /// The workers that take part, by number.
    pub workers: Vec<WorkerState>,
    /// Fibers that were spawned and have not started.
    pub not_started: u64,
    /// What is not in the dump, and why: a sentence each.
    pub missing: Vec<String>,
    /// How long the dump took.
    pub took: Duration,
}

/// A fiber in a dump.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FiberState {
    /// Its number, as returned by [`Fiber::id`](crate::Fiber::id).
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What it does.
    pub activity: Activity,
    /// The worker that it runs on, is pinned to, or ran on last.
    pub worker: Option<usize>,
    /// The time since it started.
    pub age: Duration,
    /// Whether its handle has cancelled it.
    pub cancelled: bool,
    /// Where it is, innermost function first: with [`Options::stacks`], and not for the fiber that
    /// asks.
    pub frames: Vec<Frame>,
}

/// What a fiber does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It runs on its worker.
    Running,
    /// It waits for a worker.
    Ready,
    /// It is suspended.
    Waiting {
        /// Why.
        reason: Reason,
        /// Whether a timer ends the wait: its own, or that of a deadline.
        timed: bool,
        /// The object that it waits for, if that is one of this library's and it is not a select.
        object: Option<Object>,
    },
    /// Its closure has returned, and its worker is about to free it.
    Ended,
}

/// A worker in a dump.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerState {
    /// Its number.
    pub id: usize,
    /// Whether it is asleep.
    pub asleep: bool,
    /// The number of the fiber that it runs, if that could be found out.
    pub runs: Option<u64>,
    /// How long that fiber has held it up, if the watchdog has noticed it
    /// (`RuntimeBuilder::stall_after`).
    pub held: Option<Duration>,
}

impl Options {
    /// Creates the default: no stacks, and a second's time.
    pub fn new() -> Self {
        Self {
            stacks: false,
            signals: true,
            limit: LIMIT,
        }
    }

    /// Sets whether fibers are shown with their stacks, up to 64 calls of each. This takes 10 to
    /// 100 times as long; the names are read from the program's file the first time.
    pub fn stacks(mut self, on: bool) -> Self {
        self.stacks = on;
        self
    }

    /// Sets whether workers are asked by SIGURG which fiber they run; they are by default. (A few
    /// system calls of these fibers fail with `EINTR`: see [`crate::stall`].)
    pub fn signals(mut self, on: bool) -> Self {
        self.signals = on;
        self
    }

    /// Sets how long the dump takes at most, but for a few workers that do not answer a signal, 20
    /// ms each. Default: a second.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Dump {
    /// Returns the dump as JSON, by `Display`.
    #[must_use]
    pub fn json(&self) -> Json<'_> {
        Json(self)
    }

    /// Removes what tells of the process's memory: addresses and stacks. For readers who may know
    /// the fibers, but not that.
    #[must_use]
    pub fn without_addresses(mut self) -> Self {
        for fiber in &mut self.fibers {
            fiber.frames.clear();
            if let Activity::Waiting {
                object: Some(object),
                ..
            } = &mut fiber.activity
            {
                object.address = 0;
            }
        }
        self
    }
}

impl Runtime {
    /// Returns what each of the runtime's fibers does now, without their stacks: see
    /// [`crate::dump()`].
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.dump_with(&Options::new())
    }

    /// Returns what each of the runtime's fibers does now.
    ///
    /// Context: any thread or fiber; a fiber yields meanwhile.
    #[must_use]
    pub fn dump_with(&self, options: &Options) -> Dump {
        Dump::of(&self.pool, options)
    }
}

/// Returns what each fiber of the calling fiber's runtime does now, without their stacks; `None` on
/// a plain thread, which can use [`Runtime::dump`].
///
/// ```
/// plainweave::run(|| {
///     let dump = plainweave::dump().expect("on a fiber");
///     assert_eq!(dump.fibers.len(), 1);
///     println!("{dump}");
/// });
/// ```
#[must_use]
pub fn dump() -> Option<Dump> {
    dump_with(&Options::new())
}

/// Returns what each fiber of the calling fiber's runtime does now; `None` on a plain thread.
///
/// ```
/// # use std::time::Duration;
/// use plainweave::dump::{Options, dump_with};
///
/// plainweave::run(|| {
///     let dump = dump_with(&Options::new().limit(Duration::from_millis(100))).expect("on a fiber");
///     println!("{}", dump.json());
/// });
/// ```
///
/// Context: a fiber, which yields meanwhile.
#[must_use]
pub fn dump_with(options: &Options) -> Option<Dump> {
    pool::try_current_pool().map(|pool| Dump::of(&pool, options))
}
