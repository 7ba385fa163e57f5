//! Sleeping and deadlines. Times are [`std::time::Instant`]s on the runtime's clock, which is a
//! virtual one under the simulated driver: use [`now`] rather than `Instant::now`.

use std::io;
use std::time::{Duration, Instant};

use crate::fiber::cancel::Interrupt;
use crate::fiber::{self, NEVER, Reason};
use crate::sched::wait::{self, Interrupts, WaitSpec};

/// Returns the time on the caller's clock.
///
/// ```
/// # use std::time::Duration;
/// use plainweave::{Io, Runtime, time};
///
/// let runtime = Runtime::builder().io(Io::Sim { seed: 1 }).build()?;
/// runtime.run(|| {
///     let start = time::now();
///     time::sleep(Duration::from_secs(3600))?; // Virtual time: this takes no hour.
///     assert!(time::now() - start >= Duration::from_secs(3600));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn now() -> Instant {
    match fiber::current() {
        Some(header) => {
            let ctx = header.worker();
            ctx.pool().epoch + Duration::from_nanos(ctx.now())
        }
        None => Instant::now(),
    }
}

/// Returns the time `duration` after `time`, or one that does not come where a clock could not tell
/// it: the sum for durations that users choose, of which [`Duration::MAX`] is a usual one. The `+`
/// of std panics.
///
/// ```
/// # use std::time::Duration;
/// use plainweave::time::{now, saturating_add};
///
/// assert!(saturating_add(now(), Duration::MAX) > now() + Duration::from_secs(1_000_000_000));
/// ```
#[must_use]
pub fn saturating_add(time: Instant, duration: Duration) -> Instant {
    // A thousand years, on Linux far from what an Instant holds.
    const FAR: Duration = Duration::from_secs(1000 * 365 * 86_400);
    time.checked_add(duration)
        .or_else(|| time.checked_add(FAR))
        .unwrap_or(time)
}

/// Waits for at least `duration`; for ever if no clock could tell the end, as of [`Duration::MAX`].
///
/// # Errors
/// The caller was cancelled, or its deadline came first.
///
/// ```
/// # use std::time::{Duration, Instant};
/// plainweave::run(|| {
///     let start = Instant::now();
///     plainweave::time::sleep(Duration::from_millis(2)).unwrap();
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
pub fn sleep(duration: Duration) -> io::Result<()> {
    sleep_until(saturating_add(now(), duration))
}

/// Waits until `time` or later.
///
/// # Errors
/// As for [`sleep`].
///
/// ```
/// # use std::time::Duration;
/// use plainweave::time::{now, sleep_until};
///
/// plainweave::run(|| {
///     let next = now() + Duration::from_millis(2);
///     sleep_until(next).unwrap();
///     assert!(now() >= next);
/// });
/// ```
pub fn sleep_until(time: Instant) -> io::Result<()> {
    let Some(header) = wait::suspendable() else {
        let woken = || (Instant::now() >= time).then_some(());
        let left = time.saturating_duration_since(Instant::now());
        return match wait::until(
            WaitSpec::new(Reason::Sleep, Interrupts::Allowed).timeout(Some(left)),
            woken,
        ) {
            Err(Interrupt::TimedOut) if Instant::now() >= time => Ok(()),
            other => Ok(other?),
        };
    };

    let target = to_ns(header.worker().pool().epoch, time);
    let own = header.own.deadline.get();
    let mut has_waited = false;
    let interrupt = loop {
        if let Some(interrupt) = header.cancelled() {
            break interrupt;
        }
        let now = header.worker().now();
        if now >= target {
            return Ok(());
        }
        if now >= own {
            break Interrupt::TimedOut;
        }
        wait::suspend(header, Reason::Sleep, target.min(own));
        has_waited = true;
    };

    let error = interrupt.into();
    Err(if has_waited {
        error
    } else {
        wait::failed_at_once(error)
    })
}

/// Runs `f` under a deadline: every blocking call in it, and in the fibers that it spawns into
/// scopes, fails with [`io::ErrorKind::TimedOut`] once `deadline` has passed. Deadlines nest; the
/// nearest counts.
///
/// ```
/// # use std::{io::ErrorKind, time::Duration};
/// use plainweave::time::{now, sleep, with_deadline};
///
/// plainweave::run(|| {
///     let deadline = now() + Duration::from_millis(2);
///     // Both calls together have until then.
///     let late = with_deadline(deadline, || {
///         sleep(Duration::from_millis(1))?;
///         sleep(Duration::from_secs(60))
///     });
///     assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
/// });
/// ```
pub fn with_deadline<T>(deadline: Instant, f: impl FnOnce() -> T) -> T {
    let _restore = Restore::set(deadline);
    f()
}

/// Runs `f` like [`with_deadline`], with a deadline `limit` from now.
///
/// ```
/// # use std::{io::ErrorKind, time::Duration};
/// use plainweave::time::{sleep, with_timeout};
///
/// plainweave::run(|| {
///     let late = with_timeout(Duration::from_millis(2), || sleep(Duration::from_secs(60)));
///     assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
/// });
/// ```
pub fn with_timeout<T>(limit: Duration, f: impl FnOnce() -> T) -> T {
    match now().checked_add(limit) {
        Some(deadline) => with_deadline(deadline, f),
        None => f(),
    }
}

/// Times that are `period` apart, for what is to be done again and again; see [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
}

/// Returns an interval whose first time is `period` from now. Unlike sleeps of that length, its
/// times do not drift by what is done between them. Those that have passed when the caller comes
/// late are left out, all but one, so that late work does not come in bursts.
///
/// ```
/// use std::time::Duration;
///
/// plainweave::run(|| {
///     let mut ticks = plainweave::time::interval(Duration::from_millis(2));
///     let (first, second) = (ticks.tick().unwrap(), ticks.tick().unwrap());
///     assert_eq!((second - first).as_millis() % 2, 0, "more than 2 ms where one was left out");
/// });
/// ```
///
/// # Panics
/// `period` is zero.
#[must_use]
pub fn interval(period: Duration) -> Interval {
    interval_at(saturating_add(now(), period), period)
}

/// Returns an interval whose first time is `start`, which may have passed.
///
/// # Panics
/// `period` is zero.
#[must_use]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(
        !period.is_zero(),
        "an interval without a period would have all its times at once"
    );
    Interval {
        next: start,
        period,
    }
}

impl Interval {
    /// Waits for the next time, and returns it. It has passed already if the caller is late.
    ///
    /// # Errors
    /// The caller was cancelled or ran into its deadline. The time is still the next one.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn tick(&mut self) -> io::Result<Instant> {
        sleep_until(self.next)?;
        Ok(self.pass())
    }

    /// Moves on to the next time that has not passed, and returns the one that had come.
    pub(crate) fn pass(&mut self) -> Instant {
        let come = self.next;
        self.next = saturating_add(come, self.period);

        let late = now().saturating_duration_since(self.next).as_nanos();
        let missed = late.div_ceil(self.period.as_nanos());
        if missed > 0 {
            let skipped =
                u64::try_from(missed.saturating_mul(self.period.as_nanos())).unwrap_or(u64::MAX);
            self.next = saturating_add(self.next, Duration::from_nanos(skipped));
        }

        come
    }

    /// Returns the next time.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }
}

/// The previous deadline, restored on drop.
pub(crate) enum Restore {
    Fiber(u64),
    Thread(Option<Instant>),
}

impl Restore {
    /// Sets the caller's deadline, unless it has a nearer one.
    pub(crate) fn set(deadline: Instant) -> Self {
        Self::change(deadline, true)
    }

    /// Sets the caller's deadline in place of the one that it has.
    pub(crate) fn replace(deadline: Instant) -> Self {
        Self::change(deadline, false)
    }

    #[inline]
    fn change(deadline: Instant, nearest: bool) -> Self {
        let Some(header) = fiber::current() else {
            let before = wait::set_thread_deadline(Some(deadline));
            if nearest {
                wait::set_thread_deadline(wait::earliest(before, Some(deadline)));
            }
            return Restore::Thread(before);
        };

        let new = to_ns(header.worker().pool().epoch, deadline);
        let own = &header.own.deadline;
        let before = own.get();
        own.set(if nearest { before.min(new) } else { new });

        Restore::Fiber(before)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        match self {
            Restore::Fiber(before) => fiber::current()
                .into_iter()
                .for_each(|h| h.own.deadline.set(*before)),
            Restore::Thread(before) => {
                wait::set_thread_deadline(*before);
            }
        }
    }
}

fn to_ns(epoch: Instant, time: Instant) -> u64 {
    wait::nanos(time.saturating_duration_since(epoch)).min(NEVER - 1)
}
