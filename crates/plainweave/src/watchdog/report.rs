//! Reports on stalls: what held up a worker.
//!
//! A fiber that computes, or blocks its thread, holds up everything else on its worker. A runtime
//! notices this ([`RuntimeBuilder::stall_after`](crate::RuntimeBuilder::stall_after)), and can
//! report which fiber it was:
//!
//! ```
//! use std::sync::mpsc;
//! use plainweave::{Builder, Runtime};
//!
//! let (sender, receiver) = mpsc::channel();
//! let runtime = Runtime::builder().workers(2).on_stall(move |stall| {
//!     let _ = sender.send(stall.to_string());
//! });
//! let runtime = runtime.build().unwrap();
//! let report = runtime.spawn_with(Builder::new().name("checkout"), move || {
//!     // It blocks the thread, not the fiber alone: nothing of plainweave waits here.
//!     receiver.recv().unwrap()
//! });
//! assert!(report.unwrap().join().unwrap().contains("worker"));
//! ```
//!
//! # Requirements
//! The worker is sampled by a signal, SIGURG, once for each report. (Without reports that signal has
//! another use: see [`RuntimeBuilder::report_stalls`](crate::RuntimeBuilder::report_stalls).) It
//! interrupts system calls of the fiber as any signal does. Most are restarted
//! (`SA_RESTART`); some return `EINTR` in any case (`nanosleep`, `poll`, `epoll_wait`; signal(7)
//! lists them), which `std` and this crate handle.
//!
//! Function names come from the program's symbols, lines from its debug information (`debug =
//! "line-tables-only"` in the profile), callers from the tables that panics use, which `panic =
//! "abort"` keeps too. They reach as far up as 32 KiB of stack do.
//!
//! Without `on_stall`, a build with debug assertions reports each place once on standard error
//! ([`RuntimeBuilder::report_stalls`](crate::RuntimeBuilder::report_stalls)).

pub use super::deadlock::{Deadlock, StuckFiber};

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A worker that was held up, and its cause; passed to
/// [`RuntimeBuilder::on_stall`](crate::RuntimeBuilder::on_stall).
///
/// `Display` writes a report of several lines.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The worker's number, from 0.
    pub worker: usize,
    /// How long it had been held up, at least, when it was sampled.
    pub held: Duration,
    /// How much of that time it was ready but had no processor, because other threads ran: no fiber
    /// is to blame for it. 0 if the kernel does not count it (`schedstat` in proc(5)).
    pub starved: Duration,
    /// What it was doing when it was sampled.
    pub culprit: Culprit,
    /// Why nobody runs what is ready, if that is so: all workers are held up, and there is no spare
    /// one.
    pub no_spare: Option<NoSpare>,
    /// Number of reports left out since the last one, because your function was busy.
    pub missed: u64,
}

/// Why there is no spare worker for fibers that are ready while all workers are held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSpare {
    /// There are as many workers as
    /// [`RuntimeBuilder::max_workers`](crate::RuntimeBuilder::max_workers) allows.
    AtTheLimit {
        /// That number.
        workers: usize,
    },
    /// The system leaves no more threads to spare workers.
    SystemLimit {
        /// The number of workers there are.
        workers: usize,
        /// The limit, as the kernel's documentation calls it.
        limit: &'static str,
    },
    /// The system refused a thread, its memory or its descriptors; the runtime tries again every
    /// second.
    Refused {
        /// The number of workers there are.
        workers: usize,
        /// What the system said.
        error: io::ErrorKind,
    },
}

/// What a stalled worker was doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Culprit {
    /// It ran a fiber. (The fiber may have run for the whole time, or be one of several: a worker
    /// that switches among a few computing fibers polls its driver only now and then.)
    Fiber {
        /// The fiber's number, as returned by [`Fiber::id`](crate::Fiber::id).
        id: u64,
        /// Its name, if it has one; cut after 128 bytes.
        name: Option<String>,
        /// Where it was, innermost function first: up to 64 calls, and the functions inlined into
        /// them; [`Stall::own_frame`] finds the program's own.
        frames: Vec<Frame>,
    },
    /// It ran runtime code, or a stack that is no fiber's: then it had no processor, or the program
    /// switches stacks itself.
    Elsewhere {
        /// Where it was: one function, and those inlined into it.
        frames: Vec<Frame>,
    },
    /// It was running normally again when it was sampled.
    Gone,
    /// It did not answer within 100 ms: it is in a part of the kernel that no signal interrupts (a
    /// disk), has SIGURG blocked, or the program has replaced the signal handler.
    Silent,
}

/// A function that a worker was in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The address: of an instruction for the innermost function, a return address for its callers.
    pub address: usize,
    /// The function, if the program has symbols.
    pub function: Option<String>,
    /// The source file, if the program has debug information.
    pub file: Option<PathBuf>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.culprit, Culprit::Gone) {
            return write!(
                f,
                "worker {} was held up for a while, and has gone on",
                self.worker
            );
        }

        write!(
            f,
            "worker {} has been held up for {} ms",
            self.worker,
            self.held.as_millis()
        )?;
        if self.starved >= Duration::from_millis(1) {
            write!(
                f,
                " ({} of them without a processor)",
                self.starved.as_millis()
            )?;
        }

        let frames: &[Frame] = match &self.culprit {
            Culprit::Fiber {
                id,
                name: Some(name),
                frames,
            } => {
                write!(f, ", by fiber #{id} {name:?}")?;
                frames
            }
            Culprit::Fiber {
                id,
                name: None,
                frames,
            } => {
                write!(f, ", by fiber #{id}")?;
                frames
            }
            Culprit::Elsewhere { frames } => {
                f.write_str(", by no fiber")?;
                frames
            }
            Culprit::Gone | Culprit::Silent => {
                f.write_str(", and does not answer a signal")?;
                &[]
            }
        };

        frames
            .iter()
            .try_for_each(|frame| write!(f, "\n    {frame}"))?;
        self.no_spare
            .map_or(Ok(()), |no_spare| write!(f, "\n{no_spare}"))
    }
}

impl NoSpare {
    /// Returns the sentence that says so when a last worker starts for fibers that have started.
    pub(super) fn sentence(self) -> String {
        let (workers, why, remedy) = match self {
            NoSpare::AtTheLimit { workers } => (
                workers,
                "RuntimeBuilder::max_workers allows no more",
                "raise it",
            ),
            NoSpare::SystemLimit { workers, limit } => (
                workers,
                &*format!("{limit} leaves no more"),
                "raise that limit",
            ),
            NoSpare::Refused { workers, error } => (
                workers,
                &*format!("the system refuses another ({error})"),
                "see why",
            ),
        };

        format!(
            "{workers} workers are held up by fibers that block their threads, and {why}; fibers that have not started \
             wait until some are back. Remedies: {remedy}, or wait with plainweave's own locks, channels and sockets, \
             or in plainweave::blocking (PLAINWEAVE_REPORT=stalls names the places)"
        )
    }
}

impl fmt::Display for NoSpare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSpare::AtTheLimit { workers } => {
                write!(
                    f,
                    "all {workers} workers (RuntimeBuilder::max_workers) are held up, and fibers are ready"
                )
            }
            NoSpare::SystemLimit { workers, limit } => {
                write!(
                    f,
                    "all {workers} workers are held up, fibers are ready, and {limit} leaves no more threads"
                )
            }
            NoSpare::Refused { workers, error } => {
                write!(
                    f,
                    "all {workers} workers are held up, fibers are ready, and no spare worker can start: {error}"
                )
            }
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => f.write_str(function)?,
            None => write!(f, "{:#x}", self.address)?,
        }

        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({}:{line})", file.display()),
            (Some(file), None) => write!(f, " ({})", file.display()),
            _ => Ok(()),
        }
    }
}
