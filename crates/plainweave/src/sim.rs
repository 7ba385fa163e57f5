//! Programs on simulated time, by the schedule of a seed.
//!
//! Time is exact: it stands while a fiber can run, and jumps to the next timer when all wait. Which
//! fiber that is ready goes on is drawn from the seed, by one of two ways which are drawn first
//! (`policy/local.rs`). In builds with debug assertions or the feature `preemption-points` that is
//! so also before each lock, message, permit and atomic ([`crate::sync::atomic`]). So a run depends
//! on the program and the seed alone, as long as jobs of the blocking pool take less than 100 ms of
//! real time each and no other thread of the program wakes its fibers. There is one worker, and no
//! network. See `docs/testing.md`, and [`#[plainweave::test]`](macro@crate::test), which tries many
//! seeds.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::builder::RuntimeBuilder;
use crate::dump::Options;
use crate::fiber;
use crate::io::probe::Io;
use crate::runtime::Runtime;
use crate::sched::pool::Awaited;
use crate::thread::{Builder, JoinError};
use crate::time;
use crate::watchdog::deadlock::Deadlock;

/// The policy that draws who goes on.
const BY_CHANCE: &str = "local-fifo:order=drawn";
/// Switches that a program may make: some seconds in a release build.
const SWITCHES: u64 = 100_000_000;
/// How often it is looked how many there were.
const LOOK: Duration = Duration::from_millis(20);
/// How long it may take to show the fibers of one that goes on.
const DUMP: Duration = Duration::from_secs(2);
/// How long the fibers of a program that is stuck get to end, once they are cancelled.
const CANCELLED: Duration = Duration::from_secs(1);

/// Runs `f` on a fiber of a simulated runtime, and returns its value. Fibers that are left then are
/// cancelled.
///
/// # Panics
/// With `f`'s panic; if all fibers wait for what cannot come, with a list of them and of where they
/// wait; if it goes on after 100 million switches ([`Simulation::max_switches`]); if the runtime
/// cannot start.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use plainweave::sync::Mutex;
/// use plainweave::{sim, spawn, time};
///
/// let order = |seed| {
///     sim::run(seed, || {
///         let start = time::now();
///         let order = Arc::new(Mutex::new(Vec::new()));
///         for name in ["a", "b", "c"] {
///             let order = order.clone();
///             drop(spawn(move || order.lock().unwrap().push(name)));
///         }
///         time::sleep(Duration::from_secs(3600)).unwrap();
///         assert_eq!(time::now() - start, Duration::from_secs(3600));
///         order.lock().unwrap().clone()
///     })
/// };
/// assert_eq!(order(7), order(7));
/// assert!((0..50).any(|seed| order(seed) != order(7)));
/// ```
pub fn run<T, F>(seed: u64, f: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Simulation::new(seed).run(f)
}

/// How a program is simulated, where [`run`]'s way is not the one that is wanted.
///
/// ```
/// use plainweave::sim::Simulation;
///
/// // In the order in which fibers become ready, as a plain event loop would.
/// let order = Simulation::new(1).policy("local-fifo").run(|| {
///     let fibers: Vec<_> = (0..3).map(|n| plainweave::spawn(move || n)).collect();
///     fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
/// });
/// assert_eq!(order, [0, 1, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    builder: RuntimeBuilder,
    max_switches: u64,
}

impl Simulation {
    /// As [`run`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let builder = Runtime::builder().io(Io::Sim { seed }).policy(BY_CHANCE);
        let max_switches = SWITCHES;
        Self {
            seed,
            builder,
            max_switches,
        }
    }

    /// Bounds how often fibers are switched to; the default is 100 million. A program that goes on
    /// after that many (some more, for it is looked now and then) may never end, and is given up.
    #[must_use]
    pub fn max_switches(mut self, switches: u64) -> Self {
        self.max_switches = switches;
        self
    }

    /// Decides who goes on by another policy: `local-fifo:order=random` draws at each step,
    /// `local-fifo:order=pct,depth=3,steps=4096` draws priorities that change seldom, `local-fifo`
    /// takes turns.
    #[must_use]
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.builder = self.builder.policy(name);
        self
    }

    /// Runs `f` as [`run`] does.
    ///
    /// # Panics
    /// As [`run`]; if there is no such policy.
    pub fn run<T, F>(self, f: F) -> T
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let bound = Bound::Switches(self.max_switches);
        let (runtime, end) = match watch(self.builder, "main", bound, f) {
            Ok(watched) => watched,
            Err(why) => panic!("{why}"),
        };
        match end {
            WatchedEnd::Joined(Ok(value)) => value,
            WatchedEnd::Joined(Err(error)) => match error.into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => panic!("{error}"),
            },
            WatchedEnd::Stuck(deadlock) => {
                let _ = runtime.shutdown(CANCELLED);
                panic!("by seed {}: {deadlock}", self.seed);
            }
            WatchedEnd::Late => {
                let dump = runtime.dump_with(&Options::new().stacks(true).limit(DUMP));
                // It would wait for them.
                std::mem::forget(runtime);
                panic!(
                    "by seed {}: it goes on after {} switches (Simulation::max_switches); its \
                     fibers:\n{dump}",
                    self.seed, self.max_switches
                );
            }
        }
    }
}

/// Waits until every other fiber waits, and no job of the blocking pool is under way: what could
/// happen at this moment has. Takes a nanosecond of simulated time.
///
/// # Errors
/// The caller was cancelled or ran into its deadline; [`io::ErrorKind::Unsupported`] outside of a
/// simulated runtime.
///
/// ```
/// use plainweave::{sim, spawn};
///
/// sim::run(1, || {
///     let fibers: Vec<_> = (0..100).map(|_| spawn(plainweave::yield_now)).collect();
///     sim::wait_quiet().unwrap();
///     assert!(fibers.iter().all(|fiber| fiber.is_finished()));
/// });
/// ```
pub fn wait_quiet() -> io::Result<()> {
    if !fiber::current().is_some_and(|header| header.worker().pool().virtual_time) {
        let text = "wait_quiet: only a fiber of a simulated runtime knows when all others wait";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    time::sleep(Duration::from_nanos(1))
}

/// How a body that was watched has ended.
pub(crate) enum WatchedEnd<T> {
    Joined(Result<T, JoinError>),
    /// All fibers wait, and nothing will wake them: who waits for what.
    Stuck(String),
    /// It has not, within its bound.
    Late,
}

/// How long a body may go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Of real time.
    Time(Duration),
    Switches(u64),
}

/// Runs `f` on a fiber of that name, within that bound, unless fibers wait for what cannot come
/// before. Returns the runtime as well; unless the body was joined it still has fibers,
/// for which its end would wait.
///
/// # Errors
/// The runtime or the fiber cannot start, and why.
pub(crate) fn watch<T: Send + 'static>(
    builder: RuntimeBuilder,
    name: &str,
    bound: Bound,
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<(Runtime, WatchedEnd<T>), String> {
    let (ended, end) = channel::<Option<String>>();
    // Threads that are none of the program's: they wake nobody.
    let before = threads();
    let stuck = ended.clone();
    let is_virtual = builder.is_virtual();
    let on_deadlock = move |deadlock: &Deadlock| {
        if deadlock.is_certain() || is_virtual && is_alone(deadlock, &before) {
            let _ = stuck.send(Some(deadlock.to_string()));
        }
    };

    let runtime = builder.on_deadlock(on_deadlock).build();
    let runtime = runtime.map_err(|error| format!("the runtime cannot start: {error}"))?;
    let fiber = runtime.spawn_with(Builder::new().name(name), move || {
        // At the end, if that is a panic too.
        let _ended = AtEnd(ended);
        f()
    });
    let fiber = fiber.map_err(|error| format!("the fiber \"{name}\" cannot start: {error}"))?;

    let waits = runtime.pool.caller_waits(|| Awaited::Fiber(fiber.handle()));
    let end = match bound {
        // In real time, whatever the driver's is.
        Bound::Time(limit) => end.recv_timeout(limit).ok(),
        Bound::Switches(most) => loop {
            match end.recv_timeout(LOOK) {
                Ok(end) => break Some(end),
                Err(_) if runtime.metrics().switches > most => break None,
                Err(_) => {}
            }
        },
    };
    drop(waits);
    let end = match end {
        Some(None) => WatchedEnd::Joined(fiber.join()),
        Some(Some(deadlock)) => WatchedEnd::Stuck(deadlock),
        None => WatchedEnd::Late,
    };
    Ok((runtime, end))
}

/// Returns whether all threads that have come since are the runtime's: the program has none of its
/// own that could wake a fiber. One of the others waits for the body.
fn is_alone(deadlock: &Deadlock, before: &BTreeSet<OsString>) -> bool {
    let now = threads();
    let new = now.difference(before).count();
    let of_others = deadlock.other_threads.unwrap_or(now.len());
    new + of_others < now.len()
}

/// Returns the threads that the process has, as proc(5) names them.
fn threads() -> BTreeSet<OsString> {
    let all = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    all.flatten().map(|entry| entry.file_name()).collect()
}

/// Says that the body has ended.
struct AtEnd(Sender<Option<String>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let _ = self.0.send(None);
    }
}
