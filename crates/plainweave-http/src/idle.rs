//! Connections that wait for their next request, on a fiber or thread or without one, so that a stop can end these
//! waits, and no others.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use crate::Transport;
use crate::transport::Closer;

/// The wait of a connection that is idle when the server stops: what its peer has sent by then is still answered.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// The connections of a server.
#[derive(Default)]
pub(crate) struct IdleConnections(Mutex<State>);

#[derive(Default)]
struct State {
    connections: Slab<Connection>,
    stopping: bool,
    /// Requests of connections that have ended.
    requests: u64,
}

struct Connection {
    close: Option<Closer>,
    waits: bool,
    /// Requests when it last waited.
    requests: u32,
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub(crate) fn add<S: Transport>(self: &Arc<Self>, stream: &S) -> Added {
        let connection = Connection { close: stream.closer(), waits: false, requests: 0 };
        Added { list: self.clone(), key: self.lock().connections.insert(connection) }
    }

    /// Ends all waits, now and from now on, where that is possible.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.stopping = true;
        let idle = state.connections.iter().filter(|(_, connection)| connection.waits);
        idle.for_each(|(_, connection)| connection.close(Shutdown::Read));
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.lock().connections.iter().for_each(|(_, connection)| connection.close(Shutdown::Both));
    }

    /// Returns how many requests were answered.
    pub(crate) fn requests(&self) -> u64 {
        let state = self.lock();
        state.requests + state.connections.iter().map(|(_, connection)| u64::from(connection.requests)).sum::<u64>()
    }
}

impl Connection {
    fn close(&self, how: Shutdown) {
        if let Some(close) = &self.close {
            close(how);
        }
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

/// A connection on the list, until it is dropped.
pub(crate) struct Added {
    list: Arc<IdleConnections>,
    key: usize,
}

impl Added {
    /// Waits until the stream is readable. False: too long. `requests`: how many it has had.
    pub(crate) fn wait<S: Transport>(&self, stream: &mut S, timeout: Duration, requests: u32) -> io::Result<bool> {
        let readable = stream.wait_readable(self.begin_wait(timeout, requests));
        self.end_wait(requests);
        readable
    }

    /// Notes that it begins to wait for `timeout` at most. Returns how long it may: not for long if the server stops.
    pub(crate) fn begin_wait(&self, timeout: Duration, requests: u32) -> Duration {
        if self.set(true, requests) { LAST_LOOK.min(timeout) } else { timeout }
    }

    /// Notes that it does not wait (any longer), and how many requests it has had.
    pub(crate) fn end_wait(&self, requests: u32) {
        self.set(false, requests);
    }

    /// Returns whether the server stops.
    fn set(&self, waits: bool, requests: u32) -> bool {
        let mut state = self.list.lock();
        if let Some(connection) = state.connections.get_mut(self.key) {
            (connection.waits, connection.requests) = (waits, requests);
        }
        state.stopping
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        let mut state = self.list.lock();
        if let Some(connection) = state.connections.try_remove(self.key) {
            state.requests += u64::from(connection.requests);
            // The closer's descriptor is closed outside.
            drop(state);
        }
    }
}
