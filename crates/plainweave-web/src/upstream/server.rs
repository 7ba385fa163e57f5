//! One server: its connections, and whether it is up.
//!
//! A server is down once as many requests in a row as its limits say have failed there. When the
//! time for that is over, one request is let through, which moves the time on for all others; an
//! answer ends it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::address::UpstreamAddress;
use super::connection::{UpstreamConnection, UpstreamStream};
use super::failure::{Failed, UpstreamFailure};
use super::plan::UpstreamLimits;

/// An idle connection is not used again after this: the server may be about to close it.
const STALE: Duration = Duration::from_secs(50);

/// One server.
pub(super) struct UpstreamServer {
    address: UpstreamAddress,
    pub(super) limits: UpstreamLimits,
    /// The last one that became idle is used first, so the others end by their age.
    idle: Mutex<Vec<UpstreamConnection>>,
    in_progress: AtomicUsize,
    /// Failures in a row.
    fails: AtomicU32,
    /// Until when it is down, in milliseconds since `start`; 0: it is up.
    down_until: AtomicU64,
    start: Instant,
}

/// The right to have a request in progress at a server.
pub(super) struct ServerPlace(Arc<UpstreamServer>);

impl UpstreamServer {
    pub(super) fn new(address: UpstreamAddress, limits: UpstreamLimits) -> Self {
        Self {
            address,
            limits,
            idle: Mutex::default(),
            in_progress: AtomicUsize::new(0),
            fails: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    pub(super) fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    pub(super) fn in_progress(&self) -> usize {
        self.in_progress.load(Relaxed)
    }

    /// Returns how many idle connections are kept.
    pub(super) fn idle(&self) -> usize {
        self.kept().len()
    }

    pub(super) fn is_up(&self) -> bool {
        self.down_until.load(Relaxed) == 0
    }

    /// Returns the right to a request, if the server is up and has not as many as it may.
    pub(super) fn enter(self: &Arc<Self>) -> Option<ServerPlace> {
        if !self.lets_through() {
            return None;
        }
        // Given back where it was one too many.
        let place = ServerPlace(self.clone());
        let before = self.in_progress.fetch_add(1, Relaxed);
        (before < self.limits.max_connections).then_some(place)
    }

    /// Returns whether a request may go there: one of them may when the time is over.
    fn lets_through(&self) -> bool {
        let until = self.down_until.load(Relaxed);
        let now = self.now();
        let next = now + millis(self.limits.fail_time);
        until == 0
            || (until <= now
                && self
                    .down_until
                    .compare_exchange(until, next, Relaxed, Relaxed)
                    .is_ok())
    }

    /// Notes an answer.
    pub(super) fn succeeded(&self) {
        // Read first: nobody writes while all is well.
        if self.fails.load(Relaxed) > 0 {
            self.fails.store(0, Relaxed);
            self.down_until.store(0, Relaxed);
        }
    }

    /// Notes that there was none.
    pub(super) fn failed(&self) {
        if self.fails.fetch_add(1, Relaxed) + 1 >= self.limits.max_fails {
            let until = self.now() + millis(self.limits.fail_time);
            self.down_until.store(until, Relaxed);
        }
    }

    /// Milliseconds since the start, and one: 0 is another thing.
    fn now(&self) -> u64 {
        millis(self.start.elapsed()) + 1
    }

    /// Returns an idle connection that is as good as new, if there is one.
    pub(super) fn kept_connection(&self) -> Option<UpstreamConnection> {
        loop {
            let last = self.kept().pop()?;
            // The others are older.
            if last.idle_since.elapsed() > STALE {
                let stale = std::mem::take(&mut *self.kept());
                drop(stale);
                return None;
            }
            if last.is_fresh() {
                return Some(last);
            }
        }
    }

    /// Makes a new one.
    pub(super) fn new_connection(&self) -> Result<UpstreamConnection, Failed> {
        let made = UpstreamStream::connect(&self.address, self.limits.connect_timeout);
        let made = made.and_then(|stream| UpstreamConnection::new(stream, &self.limits));
        made.map_err(|error: io::Error| {
            let why = format!("{} cannot be reached: {error}", self.address);
            Failed::new(UpstreamFailure::Connect, why)
        })
    }

    /// Keeps a connection whose answer is over.
    pub(super) fn keep(&self, mut connection: UpstreamConnection) {
        if !connection.input().is_empty() {
            return; // What is there belongs to no request.
        }
        connection.rest();
        let mut kept = self.kept();
        let is_stale = |kept: &UpstreamConnection| kept.idle_since.elapsed() > STALE;
        if kept.first().is_some_and(is_stale) {
            kept.remove(0);
        }
        if kept.len() < self.limits.keep_alive {
            kept.push(connection);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<UpstreamConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerPlace {
    pub(super) fn server(&self) -> &Arc<UpstreamServer> {
        &self.0
    }
}

impl Drop for ServerPlace {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for UpstreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamServer")
            .field("address", &self.address)
            .field("in_progress", &self.in_progress)
            .finish_non_exhaustive()
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX / 2)
}
