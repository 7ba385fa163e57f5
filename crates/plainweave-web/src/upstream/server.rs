//! One server: its connections, and whether it is up.
//!
//! A server is down once as many requests in a row as its limits say have failed there. When the
//! time for that is over, one request at a time is let through; an answer ends it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::UpstreamAddress;
use super::connection::{UpstreamConnection, UpstreamStream, coarse_now};
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
    health: Mutex<Health>,
    /// The health is as it should be, so nobody need look.
    is_well: AtomicBool,
    is_retired: AtomicBool,
}

/// What requests have shown of a server.
#[derive(Debug, Default)]
struct Health {
    /// Failures in a row.
    fails: u32,
    /// Until when it is down, if it is.
    down_until: Option<Duration>,
    /// A request has been let through while it is down, and is in progress.
    is_probed: bool,
}

/// The right to have a request in progress at a server.
pub(super) struct ServerPlace {
    server: Arc<UpstreamServer>,
    /// It is the one that is let through while the server is down.
    is_probe: bool,
}

impl UpstreamServer {
    pub(super) fn new(address: UpstreamAddress, limits: UpstreamLimits) -> Self {
        Self {
            address,
            limits,
            idle: Mutex::default(),
            in_progress: AtomicUsize::new(0),
            health: Mutex::default(),
            is_well: AtomicBool::new(true),
            is_retired: AtomicBool::new(false),
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
        lock(&self.idle).len()
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_well.load(Relaxed) || lock(&self.health).down_until.is_none()
    }

    /// Returns the right to a request, if the server is up and has not as many as it may.
    pub(super) fn enter(self: &Arc<Self>) -> Option<ServerPlace> {
        let before = self.in_progress.fetch_add(1, Relaxed);
        // Given back where it is not used.
        let mut place = ServerPlace {
            server: self.clone(),
            is_probe: false,
        };
        if before >= self.limits.max_connections {
            return None;
        }
        if self.is_well.load(Relaxed) {
            return Some(place);
        }

        let mut health = lock(&self.health);
        match health.down_until {
            None => {}
            Some(until) if health.is_probed || coarse_now() < until => return None,
            Some(_) => {
                health.is_probed = true;
                place.is_probe = true;
            }
        }
        drop(health);
        Some(place)
    }

    /// Notes an answer.
    pub(super) fn succeeded(&self) {
        if !self.is_well.load(Relaxed) {
            let mut health = lock(&self.health);
            health.fails = 0;
            health.down_until = None;
            self.is_well.store(true, Relaxed);
        }
    }

    /// Notes that there was none.
    pub(super) fn failed(&self) {
        let mut health = lock(&self.health);
        self.is_well.store(false, Relaxed);
        health.fails = health.fails.saturating_add(1);
        if health.fails >= self.limits.max_fails {
            health.down_until = Some(coarse_now() + self.limits.fail_time);
        }
    }

    /// Returns what an error of a connection there says of a request.
    pub(super) fn lost(&self, error: &io::Error) -> Failed {
        Failed::of(error, &self.address)
    }

    /// Closes the idle connections, and keeps none any more.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
        let kept = std::mem::take(&mut *lock(&self.idle));
        drop(kept);
    }

    /// Closes idle connections that have grown old, or that the server has closed.
    pub(super) fn sweep(&self) {
        let now = coarse_now();
        let mut closed = Vec::new();
        let mut kept = lock(&self.idle);
        let mut n = 0;
        while n < kept.len() {
            let is_stale = now.saturating_sub(kept[n].idle_since) > STALE;
            match is_stale || !kept[n].is_fresh() {
                true => closed.push(kept.remove(n)),
                false => n += 1,
            }
        }
        drop(kept);
        drop(closed);
    }

    /// Returns an idle connection that is as good as new, if there is one.
    pub(super) fn kept_connection(&self) -> Option<UpstreamConnection> {
        let now = coarse_now();
        loop {
            let last = lock(&self.idle).pop()?;
            // The others are older.
            if now.saturating_sub(last.idle_since) > STALE {
                let stale = std::mem::take(&mut *lock(&self.idle));
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
        let mut kept = lock(&self.idle);
        // Looked at with the lock: whoever retires the server takes it behind that.
        if self.is_retired.load(Relaxed) {
            return;
        }
        let now = connection.idle_since;
        let is_stale = |kept: &UpstreamConnection| now.saturating_sub(kept.idle_since) > STALE;
        if kept.first().is_some_and(is_stale) {
            kept.remove(0);
        }
        if kept.len() < self.limits.keep_alive {
            kept.push(connection);
        }
    }
}

impl ServerPlace {
    pub(super) fn server(&self) -> &Arc<UpstreamServer> {
        &self.server
    }
}

impl Drop for ServerPlace {
    fn drop(&mut self) {
        self.server.in_progress.fetch_sub(1, Relaxed);
        if self.is_probe {
            lock(&self.server.health).is_probed = false;
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
