//! Whether workers are watched for stalls, and who is told.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Runtime, RuntimeBuilder, invalid};
use crate::fiber::Movement;
use crate::io::driver::Access;
use crate::sched::pool::PoolShared;
use crate::sched::worker;
use crate::watchdog::report::Stall;
use crate::watchdog::{self, OnStall, Reporter, Watchdog};

pub(super) const STALL_AFTER: Duration = Duration::from_millis(10);
/// For the report that is on its way when a runtime ends.
const LAST_REPORT: Duration = Duration::from_secs(1);
const STALL_LIMITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

impl RuntimeBuilder {
    /// How long a worker may be held up by a fiber that computes before the others look after what waits with it: a
    /// watchdog thread then listens at its driver, so idle connections ([`crate::net::on_readable`]) and fibers that
    /// may move at any time go on elsewhere. (Started fibers that do not move wait.) 1 ms to 60 s; `None` for no
    /// watchdog, and there is none on virtual time, nor with one worker (unless [`Self::on_stall`] is to be told).
    /// Default: 10 ms. [`Metrics::stalls`] counts, [`Self::on_stall`] tells what it was.
    ///
    /// A worker that is held up in a computation lets others go first (sched_setattr(2), from Linux 6.12 on) until it
    /// goes on. Threads and programs that it starts meanwhile inherit that.
    ///
    /// On io_uring with fibers that may move, completions interrupt system calls that block a worker's thread past this
    /// library: a few fail with `EINTR` although no signal came (`epoll_wait`, `recv` with a time-out of the socket's
    /// own; signal(7) lists them).
    pub fn stall_after(mut self, limit: Option<Duration>) -> Self {
        self.stall_after = limit;
        self
    }

    /// Has `f` told of each stall ([`Self::stall_after`]): which worker, which fiber, and where in its code it is; and
    /// again when it lasts ten times as long, a hundred times, and so on. `f` runs on a thread for this alone and may
    /// take its time; reports that it was too busy for are counted in the next [`Stall::missed`]. A panic of `f` ends
    /// that call only. The runtime's end waits for a call in progress, at most a second. Default: nobody is told, and
    /// no signal is sent; nor on virtual time.
    ///
    /// The worker is asked by SIGURG; [`crate::stall`] says what that means for the program, and what it takes to see
    /// callers and lines.
    pub fn on_stall(mut self, f: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall = Some(OnStall(Arc::new(f)));
        self
    }

    /// Whether the settings are in range and go together.
    pub(super) fn check_stalls(&self) -> io::Result<()> {
        if self.stall_after.is_some_and(|limit| !STALL_LIMITS.contains(&limit)) {
            return Err(invalid(format!("stall_after: {:?} is out of range, 1 ms to 60 s", self.stall_after)));
        }
        if self.on_stall.is_some() && self.stall_after.is_none() {
            return Err(invalid("on_stall: without a limit (stall_after) there are no stalls to tell of".to_owned()));
        }
        Ok(())
    }

    /// Who calls the workers' drivers: the watchdog as well, if it can give to others what it finds there, and
    /// interrupt a worker so that there is something to be found.
    pub(super) fn access_to_drivers(&self, pool: &PoolShared) -> Access {
        let rescues = pool.movement == Movement::Anytime && pool.workers.len() > 1 && self.stall_after.is_some();
        if rescues && worker::can_interrupt() { Access::AnyThread } else { Access::OwnerThread }
    }

    /// The watchdog, if somebody has use for it: other workers, or who wants to be told.
    pub(super) fn start_watchdog(self, runtime: &mut Runtime) -> io::Result<()> {
        let told = self.on_stall.is_some();
        let Some(limit) = self.stall_after.filter(|_| told || runtime.workers() > 1) else { return Ok(()) };
        let thread = |role: &str| std::thread::Builder::new().name(format!("{}-{role}", self.name));
        let mut notes = None;
        if let Some(on_stall) = self.on_stall {
            watchdog::install()?;
            let (sender, reporter) = Reporter::new(runtime.pool.clone(), on_stall);
            runtime.reporter = Some(thread("stalls").spawn(|| reporter.run())?);
            notes = Some(sender);
        }
        let watchdog = Watchdog::new(runtime.pool.clone(), limit, notes);
        runtime.watchdog = Some(thread("watchdog").spawn(|| watchdog.run())?);
        Ok(())
    }
}

/// When all workers have ended. A report may be on its way; one that takes too long is left to itself.
pub(super) fn end_reports(thread: &JoinHandle<()>) {
    let deadline = Instant::now() + LAST_REPORT;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
