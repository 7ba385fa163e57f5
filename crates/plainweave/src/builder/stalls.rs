//! Stall detection settings: whether workers are watched for stalls, and where stalls are reported.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{RuntimeBuilder, invalid};
use crate::abort::{NONE, REPORTS};
use crate::fiber::Movement;
use crate::io::driver::Access;
use crate::io::probe::Io;
use crate::runtime::Runtime;
use crate::sched::pool::PoolShared;
use crate::sched::worker;
use crate::sys;
use crate::watchdog::deadlock::Deadlock;
use crate::watchdog::report::Stall;
use crate::watchdog::{self, OnDeadlock, OnStall, Reporter, Spares, Watchdog};

pub(super) const STALL_AFTER: Duration = Duration::from_millis(10);
const STALL_LIMITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

impl RuntimeBuilder {
    /// Sets how long a fiber may hold up its worker by computing before a watchdog thread steps in
    /// and polls the worker's driver, so that idle connections ([`crate::net::on_readable`]) and
    /// fibers that may migrate at any time go on elsewhere. (Started fibers that do not migrate
    /// wait.) 1 ms to 60 s; `None` for no watchdog. On virtual time there is none, nor with one
    /// worker that may not have spare ones (unless [`Self::on_stall`] is set). Default: 10 ms.
    /// [`Metrics::stalls`](crate::Metrics) counts stalls, [`Self::on_stall`] reports them.
    ///
    /// A worker that is held up in a computation gives way to other threads (sched_setattr(2),
    /// since Linux 6.12) until it goes on. Threads and programs that it starts meanwhile inherit
    /// that.
    ///
    /// If a fiber is ready and no other worker may or will run it, the watchdog adds a spare worker
    /// ([`Self::max_workers`]).
    ///
    /// On io_uring with fibers that may migrate, completions interrupt system calls that block a
    /// worker's thread without this library's knowledge: a few fail with `EINTR` although no signal
    /// came (`epoll_wait`, `recv` with a timeout set on the socket; signal(7) lists them).
    pub fn stall_after(mut self, limit: Option<Duration>) -> Self {
        self.stall_after = limit;
        self
    }

    /// Calls `f` for each stall ([`Self::stall_after`]) with the worker, the fiber, and where in
    /// its code it is, and again when the stall lasts ten times as long, a hundred times, and so
    /// on. `f` runs on a thread of its own and may take its time; reports that it was too busy for
    /// are counted in the next [`Stall::missed`]. A panic of `f` ends that call only. The runtime's
    /// end waits for a call in progress, at most a second. Without it, stalls go to standard error
    /// in some builds ([`Self::report_stalls`]). On virtual time there are none.
    ///
    /// The worker is queried with SIGURG; [`crate::stall`] describes what that means for the
    /// program, and what is needed to see callers and lines.
    pub fn on_stall(mut self, f: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall = Some(OnStall(Arc::new(f)));
        self
    }

    /// Calls `f` when nothing can run any more: all fibers wait for each other, or for something
    /// that only another thread of the program can do ([`crate::stall::Deadlock::is_certain`]),
    /// while a plain thread waits in [`Runtime::run`] or [`Runtime::scope`]. It comes about a
    /// second after the last fiber was suspended, or the thread began to wait, and again only after
    /// fibers have run. A circle of fibers that wait for each other's locks or ends, without a time
    /// limit, is reported once while other fibers run, after some five seconds. A wait that a
    /// timer, I/O, a job of the blocking pool or a future may end is no deadlock. `f` runs on a
    /// thread of its own, which the runtime's end does not wait for; it may cancel fibers. Without
    /// it, circles of fibers that wait for each other go to standard error, and other certain
    /// deadlocks where stalls do ([`Self::report_stalls`]). On virtual time there are none, and `f`
    /// is called again when a thread of the program has ended that might have woken a fiber.
    pub fn on_deadlock(mut self, f: impl Fn(&Deadlock) + Send + Sync + 'static) -> Self {
        self.on_deadlock = Some(OnDeadlock(Arc::new(f)));
        self
    }

    /// Sets whether stalls and certain deadlocks are reported on standard error: the worker, the
    /// fiber and the program's own functions that it was in, each place in the code once. Default:
    /// in builds with debug assertions, if SIGURG has no handler. A function set by
    /// [`Self::on_stall`] gets the reports instead.
    ///
    /// Where the program does not say, the environment may: `PLAINWEAVE_REPORT=stalls,deadlocks`,
    /// or one of them, turns reports on in any build, and `PLAINWEAVE_REPORT=none` turns all off
    /// that this crate prints, also about shutdowns that wait. Otherwise a line in any build, each
    /// kind once, says that there can be no more workers ([`Self::max_workers`]) and that a fiber
    /// waits for a lock which it holds, and a deadlock is reported if fibers wait for each other in
    /// a circle. `false` turns off all but the line about the lock.
    ///
    /// The worker is queried with SIGURG ([`crate::stall`]). Without reports, a signal is sent only
    /// where fibers may move at any time, on io_uring: a worker that is held up while something has
    /// come for its fibers gets SIGURG, unless that has another handler or is blocked.
    pub fn report_stalls(mut self, on: bool) -> Self {
        self.report_stalls = Some(on);
        self
    }

    /// Checks that the settings are in range and go together.
    pub(super) fn check_stalls(&self) -> io::Result<()> {
        if self
            .stall_after
            .is_some_and(|limit| !STALL_LIMITS.contains(&limit))
        {
            return Err(invalid(format!(
                "stall_after: {:?} is out of range, 1 ms to 60 s",
                self.stall_after
            )));
        }
        let reports = match (&self.on_stall, &self.on_deadlock) {
            (Some(_), _) => "on_stall",
            (None, Some(_)) => "on_deadlock",
            (None, None) => "report_stalls",
        };

        let wanted = self.on_stall.is_some()
            || self.on_deadlock.is_some()
            || self.report_stalls == Some(true);
        if wanted && self.stall_after.is_none() {
            return Err(invalid(format!(
                "{reports}: without a limit (stall_after) there are no stalls to report"
            )));
        }

        Reports::wanted(self.report_stalls).map(drop)
    }

    /// Returns which threads call the workers' drivers: the watchdog too, if it can pass what it
    /// finds there to other workers, and can interrupt a worker so that there is something to find.
    pub(super) fn access_to_drivers(&self, pool: &PoolShared, choice: Io) -> Access {
        let rescues = pool.movement == Movement::Anytime
            && pool.workers.most() > 1
            && self.stall_after.is_some();
        if !rescues || !worker::can_interrupt() {
            Access::OwnerThread
        } else if matches!(choice, Io::Uring | Io::Auto) && watchdog::can_signal() {
            Access::OwnerEnters
        } else {
            Access::AnyThread
        }
    }

    /// Starts the watchdog, if it is of use: with other workers, or with a callback for stalls.
    pub(super) fn start_watchdog(
        self,
        runtime: &mut Runtime,
        start: watchdog::Start,
    ) -> io::Result<()> {
        let wanted = Reports::wanted(self.report_stalls)?;
        let on_stall = match self.on_stall {
            Some(on_stall) => watchdog::install().map(|()| Some(on_stall))?,
            None if wanted.stalls && self.stall_after.is_some() => match watchdog::install() {
                Ok(()) => Some(watchdog::once_for_each_place()),
                // Nobody asked for it: where it cannot be had, it is left out.
                Err(_) if !wanted.asked_for => None,
                Err(error) => return Err(error),
            },
            None => None,
        };

        let reports = on_stall.is_some() || self.on_deadlock.is_some() || wanted.deadlocks;
        let silent = self.report_stalls == Some(false);
        let on_deadlock = self
            .on_deadlock
            .or_else(|| (!silent).then(|| watchdog::print_deadlocks(wanted.deadlocks)));
        let most = runtime.pool.workers.most();
        let Some(limit) = self.stall_after.filter(|_| reports || most > 1) else {
            return Ok(());
        };
        let name = &self.name;
        let thread = |role| std::thread::Builder::new().name(format!("{name}-{role}"));
        let mut notes = None;

        if let Some(on_stall) = on_stall {
            let (sender, reporter) = Reporter::new(runtime.pool.clone(), on_stall);
            runtime.reporter = Some(sys::start_thread(thread("stalls"), || reporter.run())?);
            runtime.pool.reporters.store(1, Ordering::Relaxed);
            notes = Some(sender);
        }

        let spares = Spares::new(start, !silent);
        let spares = if runtime.pool.numbers.spares > 0 {
            spares.with_reserve()
        } else {
            spares
        };

        let watchdog = Watchdog::new(runtime.pool.clone(), limit, notes, on_deadlock, spares);
        runtime.watchdog = Some(sys::start_thread(thread("watchdog"), || watchdog.run())?);
        Ok(())
    }
}

/// What goes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reports {
    stalls: bool,
    /// All that are certain, not only circles.
    deadlocks: bool,
    /// By the program or the environment.
    asked_for: bool,
}

impl Reports {
    /// Returns what the program wants, or else the environment, or else the kind of build.
    fn wanted(by_program: Option<bool>) -> io::Result<Self> {
        let all = |on, asked_for| Self {
            stalls: on,
            deadlocks: on,
            asked_for,
        };

        match (by_program, std::env::var_os(REPORTS)) {
            (Some(on), _) => Ok(all(on, true)),
            (None, Some(value)) if !value.is_empty() => Self::of(&value.to_string_lossy()),
            (None, _) => Ok(all(cfg!(debug_assertions), false)),
        }
    }

    fn of(value: &str) -> io::Result<Self> {
        let mut wanted = Self {
            stalls: false,
            deadlocks: false,
            asked_for: true,
        };

        for word in value.split(',').map(str::trim) {
            match word {
                "stalls" => wanted.stalls = true,
                "deadlocks" => wanted.deadlocks = true,
                NONE if value.trim() == NONE => {}
                other => {
                    let valid = format!(
                        "valid: \"stalls\", \"deadlocks\", both with a comma between, or \"{NONE}\""
                    );
                    return Err(invalid(format!(
                        "{REPORTS}={value}: {other:?} is nothing to report; {valid}"
                    )));
                }
            }
        }

        Ok(wanted)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_is_reported() {
        let of = |value| {
            Reports::of(value)
                .map(|wanted| (wanted.stalls, wanted.deadlocks))
                .ok()
        };

        assert_eq!(of("stalls"), Some((true, false)));
        assert_eq!(of(" deadlocks, stalls "), Some((true, true)));
        assert_eq!(of("none"), Some((false, false)));

        for wrong in ["all", "stalls,none", "stalls,,deadlocks"] {
            assert!(
                Reports::of(wrong)
                    .expect_err("wrong")
                    .to_string()
                    .contains("PLAINWEAVE_REPORT=")
            );
        }

        assert_eq!(
            Reports::wanted(Some(true)).expect("valid"),
            Reports {
                stalls: true,
                deadlocks: true,
                asked_for: true
            }
        );
    }
}
