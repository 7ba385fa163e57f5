//! What one turn of a system is, and what systems share.

use plainweave::{Io, Runtime};
use rustix::time::{ClockId, clock_gettime};

/// A system's figures of one turn: metric, unit, value. The first is what ratios are of.
pub(super) type Turn = Vec<(&'static str, &'static str, f64)>;

/// What measures one turn of a system.
pub(super) type Measure<'a> = Box<dyn Fn() -> anyhow::Result<Turn> + 'a>;

/// The systems of a case; the limit comes last.
pub(super) type Systems<'a> = Vec<(&'static str, Measure<'a>)>;

/// The default runtime with one worker, and the same on epoll.
pub(super) const RUNTIMES: [(&str, Io); 2] =
    [("plainweave", Io::Auto), ("plainweave-epoll", Io::Epoll)];

pub(super) fn runtime(io: Io) -> anyhow::Result<Runtime> {
    Ok(Runtime::builder().workers(1).io(io).build()?)
}

/// The CPU time of this process in nanoseconds, with that of threads that have ended.
pub(super) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
