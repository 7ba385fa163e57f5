//! Admission under overload: the kernel's queue of connections is kept as short as it can be served in good time.
//!
//! When more clients come than can be served, some must fail. Whoever accepts them all spends its time on accepting,
//! and those it serves have left meanwhile; so does a long queue in front of a slow server, where each one reaches the
//! end of the queue and of its patience at once. Clients that find the queue full cost the server nothing: the kernel
//! ignores them, and they try again a second later.
//!
//! So the bound of that queue is a time, [`BEARABLE`], times the rate of the last connections accepted (Little's law).
//! As in CoDel (Nichols and Jacobson, 2012) a queue that is too long for a moment is no overload, it is a burst: the
//! bound shrinks when two looks in a row find it too long. When a look finds the queue less than half full the bound
//! doubles, up to [`MOST`]. `listen(2)` sets it on a socket that listens already.
//!
//! The page `docs/overload.md` has what was rejected and what was measured.

use std::time::{Duration, Instant};

use plainweave::net::TcpListener;

/// How long a connection may wait to be accepted while the server is overloaded. Longer than the 100 ms for which a
/// cgroup that has used up its quota stands still; far below the second after which a client tries again.
const BEARABLE: Duration = Duration::from_millis(200);
/// Connections that may wait when there is no overload; the kernel cuts this to `net.core.somaxconn`.
pub(super) const MOST: u32 = 4096;
/// And at least: the rate is known only roughly.
const LEAST: u32 = 64;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Looks further apart tell nothing of a rate: meanwhile nobody came.
const QUIET: Duration = Duration::from_secs(1);

/// Of one listener; its accepting fiber has it.
#[derive(Debug)]
pub(super) struct Backlog {
    limit: u32,
    /// Since the last look.
    accepted: u32,
    looked: Instant,
    /// Connections a second, smoothed.
    rate: Option<f64>,
    /// The last look found the queue too long.
    long: bool,
}

impl Backlog {
    /// Gives the listener the longest queue.
    pub(super) fn new(listener: &TcpListener) -> Self {
        // What it has is a bound too.
        let _ = listener.set_backlog(MOST);
        Self::starting(plainweave::time::now())
    }

    fn starting(now: Instant) -> Self {
        Self { limit: MOST, accepted: 0, looked: now, rate: None, long: false }
    }

    /// A connection was accepted. Gives the new bound if it has changed.
    pub(super) fn accepted(&mut self, listener: &TcpListener) -> Option<u32> {
        self.accepted += 1;
        let now = plainweave::time::now();
        if now < self.looked + LOOK {
            return None;
        }
        let limit = self.look(now, listener.queued().ok()?)?;
        listener.set_backlog(limit).ok().map(|()| limit)
    }

    /// Judges a queue of so many. Gives the new bound if it has changed.
    fn look(&mut self, now: Instant, queued: u32) -> Option<u32> {
        let (length, count) = (now - std::mem::replace(&mut self.looked, now), std::mem::take(&mut self.accepted));
        if length > QUIET {
            (self.rate, self.long) = (None, false);
            return self.change(MOST);
        }
        let fresh = f64::from(count) / length.as_secs_f64();
        let rate = self.rate.map_or(fresh, |rate| (rate + fresh) / 2.0);
        self.rate = Some(rate);
        let bearable = ((rate * BEARABLE.as_secs_f64()) as u32).clamp(LEAST, MOST);
        let long = std::mem::replace(&mut self.long, queued >= bearable);
        match self.long {
            true if long => self.change(bearable),
            false if queued < self.limit / 2 => self.change(self.limit.saturating_mul(2).min(MOST)),
            _ => None,
        }
    }

    fn change(&mut self, limit: u32) -> Option<u32> {
        (std::mem::replace(&mut self.limit, limit) != limit).then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that accepts `rate` a second and is looked at every 100 ms, with these queues.
    fn limits(rate: u32, queues: &[u32]) -> Vec<u32> {
        let mut now = Instant::now();
        let mut backlog = Backlog::starting(now);
        let look = |queued: &u32| {
            now += LOOK;
            backlog.accepted = rate / 10;
            backlog.look(now, *queued);
            backlog.limit
        };
        queues.iter().map(look).collect()
    }

    #[test]
    fn a_queue_that_stays_is_cut_to_what_is_bearable() {
        assert_eq!(limits(1000, &[3000, 3000, 2900]), [MOST, 200, 200]);
    }

    #[test]
    fn a_burst_is_borne() {
        assert_eq!(limits(1000, &[0, 3000, 100, 0, 3000]), [MOST; 5]);
    }

    #[test]
    fn the_bound_comes_back() {
        assert_eq!(
            limits(1000, &[300, 300, 150, 90, 150, 250, 0, 0, 0, 0]),
            [MOST, 200, 200, 400, 800, 800, 1600, 3200, MOST, MOST]
        );
    }

    #[test]
    fn a_slow_server_keeps_a_short_queue() {
        assert_eq!(limits(10, &[500, 500, 500])[2], LEAST);
    }

    #[test]
    fn after_a_pause_all_is_as_at_first() {
        let start = Instant::now();
        let mut backlog = Backlog::starting(start);
        for tenth in 1..=3 {
            backlog.accepted = 100;
            backlog.look(start + LOOK * tenth, 4000);
        }
        assert_eq!((backlog.limit, backlog.rate.is_some()), (200, true));
        assert_eq!(backlog.look(start + QUIET * 9, 4000), Some(MOST));
        assert!(backlog.rate.is_none() && !backlog.long);
    }
}
