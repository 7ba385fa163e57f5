//! Stalls: what held up a worker.
//!
//! A fiber that computes, or blocks its thread, holds up everything else on its worker. A runtime notices this
//! ([`RuntimeBuilder::stall_after`](crate::RuntimeBuilder::stall_after)), and can tell who it was:
//!
//! ```
//! use std::sync::mpsc;
//! use plainweave::{Builder, Runtime};
//!
//! let (tell, told) = mpsc::channel();
//! let runtime = Runtime::builder().workers(2).on_stall(move |stall| {
//!     let _ = tell.send(stall.to_string());
//! });
//! let runtime = runtime.build().unwrap();
//! let report = runtime.spawn_with(Builder::new().name("checkout"), move || {
//!     // It blocks the thread, not the fiber alone: nothing of plainweave waits here.
//!     told.recv().unwrap()
//! });
//! assert!(report.unwrap().join().unwrap().contains("worker"));
//! ```
//!
//! # What is needed
//! The worker is asked by a signal, SIGURG, once for each report; without `on_stall` there is none. It interrupts
//! system calls of the fiber as any signal does: most go on by themselves (`SA_RESTART`), some return `EINTR` whatever
//! one does (`nanosleep`, `poll`, `epoll_wait`; signal(7) lists them), which `std` and this crate heed.
//!
//! Functions are found by the program's symbols, lines by its debugging information (`debug = "line-tables-only"` in
//! the profile), callers by frame pointers: `RUSTFLAGS="-C force-frame-pointers=yes"`. Without them the innermost
//! function is right, and its callers are missing, in part or altogether.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A worker that was held up, and by what. [`RuntimeBuilder::on_stall`](crate::RuntimeBuilder::on_stall) is told.
///
/// `Display` gives a report of several lines.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// Which worker, from 0.
    pub worker: usize,
    /// For how long at least, when it was looked at.
    pub held: Duration,
    /// For how much of that it was ready and had no processor, because others ran on the machine: that is no fault of
    /// a fiber's. 0 if the kernel does not count (`schedstat` in proc(5)).
    pub starved: Duration,
    /// What it was doing then.
    pub culprit: Culprit,
    /// Reports since the last one that were left out, because your function was busy.
    pub missed: u64,
}

/// What a worker was doing that had been held up for a while.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Culprit {
    /// It ran a fiber. (For the whole time, or several, each for a part of it: a worker that switches among a few
    /// fibers that compute looks at its driver only now and then.)
    Fiber {
        /// The fiber's number, [`Fiber::id`](crate::Fiber::id).
        id: u64,
        /// Its name, if it has one; at most 128 bytes of it.
        name: Option<String>,
        /// Where it was, innermost function first; 64 calls at most, and those inlined into them.
        frames: Vec<Frame>,
    },
    /// It was in code of its own, or on a stack that is no fiber's: then it is the machine that gave it no processor,
    /// or the program switches stacks itself.
    Elsewhere {
        /// Where it was: one function, and those inlined into it.
        frames: Vec<Frame>,
    },
    /// It had gone on when it was looked at.
    Gone,
    /// It did not answer within 100 ms: it is in a part of the kernel that no signal interrupts (a disk), has SIGURG
    /// blocked, or somebody has put another handler in place of ours.
    Silent,
}

/// A function that a worker was in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The address: of an instruction for the innermost, else the one that the call returns to.
    pub address: usize,
    /// The function, if the program has symbols.
    pub function: Option<String>,
    /// Where that is, if it has debugging information:
    pub file: Option<PathBuf>,
    /// file and line, from 1.
    pub line: Option<u32>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.culprit, Culprit::Gone) {
            return write!(f, "worker {} was held up for a while, and has gone on", self.worker);
        }
        write!(f, "worker {} has been held up for {} ms", self.worker, self.held.as_millis())?;
        if self.starved >= Duration::from_millis(1) {
            write!(f, " ({} of them without a processor)", self.starved.as_millis())?;
        }
        let frames: &[Frame] = match &self.culprit {
            Culprit::Fiber { id, name: Some(name), frames } => {
                write!(f, ", by fiber #{id} {name:?}")?;
                frames
            }
            Culprit::Fiber { id, name: None, frames } => {
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
        frames.iter().try_for_each(|frame| write!(f, "\n    {frame}"))
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
