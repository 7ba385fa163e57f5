//! The thread that samples a stalled worker and reports to the program.
//!
//! It is separate from the watchdog, which has to do the stalled worker's I/O in the meantime.
//! Reporting takes long: it waits for the worker's answer, reads debug information (20 ms the first
//! time, for one of our programs) and runs the program's function. The watchdog only leaves a note
//! in a bounded queue; notes that find it full are only counted.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::delay::Delays;
use super::report::{Culprit, Frame, NoSpare, Stall};
use super::sample;
use super::unwind::Tables;
use crate::policy::WorkerId;
use crate::sched::pool::{Beat, PoolShared};
use crate::sys;

/// Capacity of the queue; one note per worker if there are more workers.
const NOTES: usize = 16;
/// Memory for a report without names, 32 KiB of it for the copy of a stack.
const REPORT: usize = 96 << 10;
/// Memory for the tables and the debug information of a program, some of which are large.
pub(super) const NAMES: usize = 64 << 20;
/// How long to wait for the answer of a worker.
const ANSWER_WAIT: Duration = Duration::from_millis(100);

/// The program's function.
#[derive(Clone)]
pub(crate) struct OnStall(pub(crate) Arc<dyn Fn(&Stall) + Send + Sync>);

impl fmt::Debug for OnStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

/// A stall, as the watchdog saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) worker: WorkerId,
    /// Its counts, which stand still as long as the stall lasts.
    pub(crate) beat: Beat,
    /// When they were first seen; they have not changed since.
    pub(crate) since: Instant,
    /// What [`Notes::delay`] returned then.
    pub(crate) delay: Duration,
    /// As in the report.
    pub(crate) no_spare: Option<NoSpare>,
}

/// The watchdog's end of the queue.
pub(crate) struct Notes {
    queue: SyncSender<Note>,
    missed: Arc<AtomicU64>,
    delays: Arc<Delays>,
}

impl Notes {
    /// Returns how long the worker has waited for a processor so far.
    pub(crate) fn delay(&self, worker: WorkerId) -> Duration {
        self.delays.now(worker)
    }

    pub(crate) fn leave(&self, note: Note) {
        if self.queue.try_send(note).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The reporter's end of the queue.
pub(crate) struct Reporter {
    pool: Arc<PoolShared>,
    queue: Receiver<Note>,
    missed: Arc<AtomicU64>,
    delays: Arc<Delays>,
    on_stall: OnStall,
    tables: Tables,
}

impl Reporter {
    /// Creates the two ends. The workers must have started.
    pub(crate) fn new(pool: Arc<PoolShared>, on_stall: OnStall) -> (Notes, Self) {
        let (sender, queue) = sync_channel(pool.workers.made().max(NOTES));
        let missed = Arc::<AtomicU64>::default();
        let delays = Arc::new(Delays::of(&pool));
        let notes = Notes {
            queue: sender,
            missed: missed.clone(),
            delays: delays.clone(),
        };

        (
            notes,
            Self {
                pool,
                queue,
                missed,
                delays,
                on_stall,
                tables: Tables::default(),
            },
        )
    }

    /// Reports stalls until the watchdog has ended.
    pub(crate) fn run(mut self) {
        while let Ok(note) = self.queue.recv() {
            if self.pool.is_stopping() {
                return;
            }
            if !sys::has_memory(REPORT) {
                self.missed.fetch_add(1, Ordering::Relaxed);
                continue;
            }

            // The panic hook has reported a panic. The next stall may well be another one.
            let on_stall = self.on_stall.clone();
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (on_stall.0)(&self.look(&note))))
            {
                crate::sched::closure::drop_contained(payload);
            }
        }
    }

    fn look(&mut self, note: &Note) -> Stall {
        let worker = &self.pool.workers[note.worker];
        let sample = sample::ask(worker.thread(), ANSWER_WAIT);
        let held = note.since.elapsed();
        let starved = self
            .delays
            .now(note.worker)
            .saturating_sub(note.delay)
            .min(held);

        // The counts only grow: if they are the same, the sample was taken in between.
        let culprit = match sample {
            _ if worker.beat() != note.beat => Culprit::Gone,
            None => Culprit::Silent,
            Some(sample) => {
                let mut frames = frames(&self.tables.addresses(&sample), true);
                cut_nameless_end(&mut frames);
                match sample.fiber {
                    Some((id, name)) => Culprit::Fiber { id, name, frames },
                    None => Culprit::Elsewhere { frames },
                }
            }
        };

        let no_spare = note.no_spare;
        let missed = self.missed.swap(0, Ordering::Relaxed);
        Stall {
            worker: note.worker,
            held,
            starved,
            culprit,
            no_spare,
            missed,
        }
    }
}

/// Resolves the functions at these addresses, including inlined ones. `first` says whether the
/// first is that of an instruction; all others are return addresses. Without memory for that they
/// have no names.
pub(crate) fn frames(addresses: &[usize], first: bool) -> Vec<Frame> {
    let nameless = |address| Frame {
        address,
        function: None,
        file: None,
        line: None,
    };

    if !sys::has_memory(NAMES) {
        return addresses.iter().copied().map(nameless).collect();
    }
    let mut frames = Vec::new();
    for (at, &address) in addresses.iter().enumerate() {
        // The lookup takes a return address, and goes back by one, into the call.
        let looked_up = std::ptr::without_provenance_mut(address + usize::from(first && at == 0));
        let known = frames.len();
        backtrace::resolve(looked_up, |symbol| {
            frames.push(Frame {
                address,
                function: symbol.name().map(|name| format!("{name:#}")),
                file: symbol.filename().map(ToOwned::to_owned),
                line: symbol.lineno(),
            });
        });
        if frames.len() == known {
            frames.push(nameless(address));
        }
    }

    frames
}

/// Removes the last frame of a fiber, the code that switches to it, which has no name; unless no
/// frame has one.
pub(crate) fn cut_nameless_end(frames: &mut Vec<Frame>) {
    if frames.iter().any(|frame| frame.function.is_some()) {
        while frames.last().is_some_and(|frame| frame.function.is_none()) {
            frames.pop();
        }
    }
}
