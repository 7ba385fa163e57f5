//! What all servers choose of the runtime, and how they say so in their first line.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use plainweave::policy::Choice;
use plainweave::stall::Culprit;
use plainweave::{Movement, Runtime, RuntimeBuilder, Stall, Storage};

use crate::bench_flags;
use crate::console::say;
use crate::mode::Mode;

/// Stalls at least this long are reported, if the server itself caused them.
const STALL: Duration = Duration::from_millis(10);
/// Minimum interval between two reports of stalls.
const QUIET: Duration = Duration::from_secs(1);

/// An I/O driver by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// io_uring
    Uring,
    /// epoll
    Epoll,
}

/// Checks the name of a scheduling policy, perhaps with parameters; the message says what is valid.
pub(crate) fn policy(text: &str) -> Result<String, String> {
    Choice::parse(text).map(|_| text.to_owned())
}

/// What flags say of a runtime; what they leave open is up to the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) name: &'static str,
    pub(crate) workers: Option<NonZeroUsize>,
    pub(crate) io: Option<Io>,
    pub(crate) policy: Option<&'a str>,
    pub(crate) mode: Mode,
    /// Where to write how long fibers wait, for a benchmark.
    pub(crate) waits: Option<&'a Path>,
}

impl Setup<'_> {
    /// Starts it.
    pub(crate) fn start(self) -> anyhow::Result<Runtime> {
        self.build(self.builder())
    }

    /// Starts it, to report stalls on standard error. The names in a report take memory, 30 MB in a debug build, so
    /// this is optional.
    pub(crate) fn start_that_reports(self) -> anyhow::Result<Runtime> {
        let stalls = Stalls::default();
        let tell = move |stall: &Stall| stalls.tell(self.name, stall, |line| say(io::stderr(), line));
        self.build(self.builder().on_stall(tell))
    }

    fn build(self, builder: RuntimeBuilder) -> anyhow::Result<Runtime> {
        match self.waits {
            Some(file) => bench_flags::start_observed(builder, file),
            None => builder.build().context("cannot start the runtime"),
        }
    }

    fn builder(self) -> RuntimeBuilder {
        let builder = match (self.mode.storage, self.mode.movement) {
            (Storage::Own, movement) => Runtime::builder().own_storage().movement(movement),
            // SAFETY: only `bench fairness` asks for this mode. What the servers' fibers hold across a suspension was
            // looked through: they and the HTTP library have no thread-local, `Rc` or `RefCell` (`load` has, and
            // never runs so), and release a lock of `std` before they suspend; sockets, buffers, the store's and the
            // file cache's entries are `Send` and counted atomically. Dependencies use thread-locals within calls
            // that do not suspend: `foldhash` and `RandomState` for seeds, the C library for `errno`, which `rustix`
            // does without. `std` asks for the thread's count of panics when a lock is taken and released, but only
            // while somewhere a panic unwinds, and the load of the benchmark makes nothing panic.
            (_, Movement::Anytime) => unsafe { Runtime::builder().shared_storage().movement_anytime() },
            // SAFETY: the servers' fibers hold no guard of scoped thread-local storage: neither they nor the HTTP
            // library use `tracing`, `scoped-tls` or the like; what `std` and the compressors keep in thread-locals is
            // used within calls that do not suspend. rustls and ring are called without I/O, so no call of theirs
            // suspends either.
            (_, movement) => unsafe { Runtime::builder().shared_storage() }.movement(movement),
        };
        // Reports are a flag's business: names take memory, and standard error is for the operator.
        let builder = builder.thread_name(self.name).report_stalls(false);
        let mut builder = builder.io(match self.io {
            None => plainweave::Io::Auto,
            Some(Io::Uring) => plainweave::Io::Uring,
            Some(Io::Epoll) => plainweave::Io::Epoll,
        });
        if let Some(workers) = self.workers {
            builder = builder.workers(workers.get());
        }
        match self.policy {
            Some(policy) => builder.policy(policy),
            None => builder,
        }
    }
}

/// The reports of stalls so far.
#[derive(Debug, Default)]
struct Stalls(Mutex<Reported>);

#[derive(Debug, Default)]
struct Reported {
    last: Option<Instant>,
    /// Reports since then.
    left_out: u64,
}

impl Stalls {
    /// At most once a second, with the number of those left out. What the machine's other programs have caused, and
    /// what was over before it could be looked at, is in the metrics alone.
    fn tell(&self, name: &str, stall: &Stall, say: impl FnOnce(&str)) {
        let own = stall.held.saturating_sub(stall.starved) >= STALL;
        if !own || !matches!(stall.culprit, Culprit::Fiber { .. } | Culprit::Silent) {
            return;
        }
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.last.is_some_and(|last| last.elapsed() < QUIET) {
            reported.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut reported.left_out);
        reported.last = Some(Instant::now());
        let others = if left_out > 0 { format!("\n    (before it, {left_out} were left out)") } else { String::new() };
        say(&format!("plainweave {name}: {stall}{others}"));
    }
}

/// Returns driver, policy and mode as labels of a metric.
pub(crate) fn labels(runtime: &Runtime) -> String {
    let (driver, policy, mode) = (runtime.driver(), runtime.policy(), Mode::of(runtime));
    format!("driver=\"{driver}\",policy=\"{policy}\",mode=\"{mode}\"")
}

/// Driver, workers, policy and mode in words.
pub(crate) struct Described<'a>(pub(crate) &'a Runtime);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (driver, workers, policy) = (self.0.driver(), self.0.workers(), self.0.policy());
        let (s, mode) = (if workers == 1 { "" } else { "s" }, Mode::of(self.0));
        write!(f, "driver {driver}, {workers} worker{s}, policy {policy}, mode {mode}")?;
        if let Some(why) = Choice::parse(policy).ok().and_then(|choice| choice.experiment()) {
            write!(f, "; this policy is for experiments: {why}")?;
        }
        match self.0.fallback_reason() {
            Some(reason) => write!(f, "; not io_uring: {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn of_many_stalls_one_is_reported() {
        let (send, stalled) = mpsc::channel();
        let (ended, wait) = mpsc::channel::<()>();
        let runtime = Runtime::builder().workers(2).on_stall(move |stall| {
            let _ = send.send(stall.clone());
        });
        let runtime = runtime.build().unwrap();
        let fiber = runtime.spawn(move || wait.recv());
        // Others may be the machine's fault, or over; this one is reported until it ends.
        let stall = stalled.iter().find(|stall| {
            matches!(stall.culprit, Culprit::Fiber { .. }) && stall.held.saturating_sub(stall.starved) >= STALL
        });
        let (stall, stalls, mut lines) = (stall.unwrap(), Stalls::default(), Vec::new());
        (0..3).for_each(|_| stalls.tell("test", &stall, |line| lines.push(line.to_owned())));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("plainweave test: worker "), "{}", lines[0]);
        stalls.0.lock().unwrap().last = None;
        stalls.tell("test", &stall, |line| lines.push(line.to_owned()));
        assert!(lines[1].ends_with("\n    (before it, 2 were left out)"), "{}", lines[1]);
        let mut starved = stall;
        starved.starved = starved.held;
        stalls.0.lock().unwrap().last = None;
        stalls.tell("test", &starved, |line| lines.push(line.to_owned()));
        assert_eq!(lines.len(), 2);
        drop(ended);
        let _ = fiber.join();
    }
}
