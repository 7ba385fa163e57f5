//! Admission under overload: the kernel's queue of connections is kept as short as it can be served
//! in good time.
//!
//! When more clients come than can be served, some must fail. A server that accepts them all spends
//! its time on accepting, and those it serves have left meanwhile; so does a long queue in front of
//! a slow server, where each one reaches the end of the queue and of its patience at once. Clients
//! that find the queue full cost the server nothing: the kernel ignores them, and they try again a
//! second later.
//!
//! So the bound of that queue is a time, [`BEARABLE`], times the rate of the last connections
//! accepted (Little's law). As in CoDel (Nichols and Jacobson, 2012) a queue that is too long for a
//! moment is no overload, it is a burst: the bound shrinks when two looks in a row find it too
//! long. When a look finds the queue less than half full the bound doubles, up to [`MOST`]; until
//! it is there again looks are taken whether anybody comes or not. `listen(2)` sets it on a socket
//! that listens already.
//!
//! The rate is that of a server which always had clients waiting. An interval whose connections did
//! not all stand in the queue at its beginning may have been spent waiting for clients: it shows
//! what the server can do at least.
//!
//! A queue in front of a server at its connection limit says nothing of its CPU: while the
//! accepting fiber has waited for a permit for half of the time or more, the bound is left to grow.
//! Clients that gave up in that queue cost an accept each, for which there is time.
//!
//! The page `docs/overload.md` has what was rejected and what was measured.

use std::time::{Duration, Instant};

/// How long a connection may wait to be accepted while the server is overloaded. Longer than the
/// 100 ms for which a cgroup that has used up its quota stands still; far below the second after
/// which a client tries again.
const BEARABLE: Duration = Duration::from_millis(200);
/// Connections that may wait at a listener when there is no overload; the kernel cuts this to
/// `net.core.somaxconn`.
pub const MOST: u32 = 4096;
/// And at least: the rate is known only roughly. A server that accepts fewer than 320 a second lets
/// them wait longer than [`BEARABLE`].
const LEAST: u32 = 64;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// After an interval this long without new connections, earlier measurements are too old.
const QUIET: Duration = Duration::from_secs(1);

/// Of one listener.
#[derive(Debug)]
pub(super) struct Backlog {
    limit: u32,
    looked: Instant,
    /// Since the last look.
    accepted: u32,
    /// How much of the time since the last look was spent waiting at the connection limit.
    at_limit: Duration,
    /// At the last look.
    queued: u32,
    /// Connections a second, smoothed.
    rate: Option<f64>,
    /// The last look found the queue too long.
    long: bool,
}

/// What a look has found, as an operator would put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Nothing,
    /// More come than can be served; the bound was cut.
    Overload,
    /// There would be time for the clients that wait, but the connection limit is reached.
    AtConnectionLimit,
}

impl Backlog {
    pub(super) fn new(now: Instant) -> Self {
        let accepted = 0;
        let at_limit = Duration::ZERO;
        let queued = 0;
        Self {
            limit: MOST,
            looked: now,
            accepted,
            at_limit,
            queued,
            rate: None,
            long: false,
        }
    }

    /// Returns how many connections may wait.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how long to wait for a connection before a look is due; `None`: for any time.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.limit < MOST).then_some(LOOK)
    }

    /// Counts an accepted connection. Returns whether a look is due.
    pub(super) fn accepted(&mut self, now: Instant) -> bool {
        self.accepted += 1;
        now >= self.looked + LOOK
    }

    /// Notes that the accepting fiber has waited at the connection limit.
    pub(super) fn waited_for_permit(&mut self, time: Duration) {
        self.at_limit += time;
    }

    /// Judges a queue of length `queued`, and sets the limit.
    pub(super) fn look(&mut self, now: Instant, queued: u32) -> Finding {
        let length = now - std::mem::replace(&mut self.looked, now);
        let count = std::mem::take(&mut self.accepted);
        let at_limit = std::mem::take(&mut self.at_limit);
        let busy = count <= std::mem::replace(&mut self.queued, queued);

        if at_limit * 2 >= length {
            (self.rate, self.long) = (None, false);
            self.grow();
            return if queued > 0 {
                Finding::AtConnectionLimit
            } else {
                Finding::Nothing
            };
        }

        if length > QUIET && !busy {
            (self.rate, self.long, self.limit) = (None, false, MOST);
            return Finding::Nothing;
        }

        let rate = self.learn(f64::from(count) / length.as_secs_f64(), busy);
        let bearable = ((rate * BEARABLE.as_secs_f64()) as u32).clamp(LEAST, MOST);
        let long = std::mem::replace(&mut self.long, queued >= bearable);
        let before = self.limit;

        match self.long {
            true if long => self.limit = bearable,
            false if queued < self.limit / 2 => self.grow(),
            _ => {}
        }

        if self.limit < before {
            Finding::Overload
        } else {
            Finding::Nothing
        }
    }

    /// Returns the rate, with that of the last interval.
    fn learn(&mut self, fresh: f64, busy: bool) -> f64 {
        let rate = match self.rate {
            Some(rate) if busy => (rate + fresh) / 2.0,
            Some(rate) => rate.max(fresh),
            None => fresh,
        };
        *self.rate.insert(rate)
    }

    fn grow(&mut self) {
        self.limit = self.limit.saturating_mul(2).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that accepts `rate` a second and is looked at every 100 ms, with these queues.
    fn limits(rate: u32, queues: &[u32]) -> Vec<u32> {
        let mut now = Instant::now();
        let mut backlog = Backlog::new(now);
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

    /// Overloaded, with a bound of 200.
    fn overloaded(start: Instant) -> Backlog {
        let mut backlog = Backlog::new(start);
        let mut findings = Vec::new();
        for tenth in 1..=2 {
            backlog.accepted = 100;
            findings.push(backlog.look(start + LOOK * tenth, 4000));
        }

        assert_eq!((backlog.limit, backlog.patience()), (200, Some(LOOK)));
        assert_eq!(findings, [Finding::Nothing, Finding::Overload]);
        backlog
    }

    #[test]
    fn a_bound_that_grows_is_no_overload() {
        let start = Instant::now();
        let mut backlog = overloaded(start);
        let looks = (3..9).map(|tenth| (backlog.look(start + LOOK * tenth, 0), backlog.limit));
        let limits = [400, 800, 1600, 3200, MOST, MOST];
        assert_eq!(
            looks.collect::<Vec<_>>(),
            limits.map(|limit| (Finding::Nothing, limit))
        );
        assert_eq!(backlog.patience(), None);
    }

    #[test]
    fn after_a_pause_all_is_as_at_first() {
        let start = Instant::now();
        let mut backlog = overloaded(start);
        backlog.look(start + LOOK * 3, 0);
        assert!(!backlog.accepted(start + LOOK * 3) && backlog.accepted(start + QUIET * 9));
        assert_eq!(
            (backlog.look(start + QUIET * 9, 4000), backlog.limit),
            (Finding::Nothing, MOST)
        );
        assert!(backlog.rate.is_none() && !backlog.long);
    }

    #[test]
    fn a_server_that_stood_still_had_no_pause() {
        let start = Instant::now();
        let mut backlog = overloaded(start);
        backlog.accepted(start + QUIET * 9);
        backlog.look(start + QUIET * 9, 200);
        assert_eq!(backlog.limit, 100, "half of the rate before");
    }

    #[test]
    fn a_queue_at_the_connection_limit_is_no_overload() {
        let start = Instant::now();
        let mut backlog = overloaded(start);
        for (second, limit) in [(1, 400), (2, 800)] {
            let now = start + LOOK * 2 + QUIET * second;
            assert!(backlog.accepted(now));
            backlog.waited_for_permit(QUIET * 9 / 10);
            assert_eq!(
                (backlog.look(now, 4000), backlog.limit),
                (Finding::AtConnectionLimit, limit)
            );
        }

        backlog.waited_for_permit(LOOK * 4 / 10);
        assert_eq!(
            backlog.look(start + LOOK * 3 + QUIET * 2, 4000),
            Finding::Nothing,
            "less than half of the time"
        );
        assert!(backlog.long);
    }
}
