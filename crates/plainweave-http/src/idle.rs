//! Connections that wait for their next request in [`Server::serve`](crate::Server::serve), so that a stop can end
//! these waits, and no others.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use crate::Transport;

/// The wait of a connection that is idle when the server stops: what its peer has sent by then is still answered.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Ends the reading side of a connection.
type Close = Box<dyn Fn() + Send>;

/// The connections of a server.
#[derive(Default)]
pub(crate) struct IdleConnections(Mutex<State>);

#[derive(Default)]
struct State {
    connections: Slab<Connection>,
    stopping: bool,
}

struct Connection {
    close: Close,
    waits: bool,
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, if its waits can be ended.
    pub(crate) fn add<S: Transport>(&self, stream: &S) -> Option<Added<'_>> {
        let connection = Connection { close: stream.closer()?, waits: false };
        Some(Added { list: self, key: self.lock().connections.insert(connection) })
    }

    /// Ends all waits, now and from now on.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.stopping = true;
        state.connections.iter().filter(|(_, connection)| connection.waits).for_each(|(_, idle)| (idle.close)());
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

/// A connection on the list, until it is dropped.
pub(crate) struct Added<'a> {
    list: &'a IdleConnections,
    key: usize,
}

impl Added<'_> {
    /// Waits until the stream is readable. False: too long.
    pub(crate) fn wait<S: Transport>(&self, stream: &mut S, timeout: Duration) -> io::Result<bool> {
        let stopping = self.set_waits(true);
        let readable = stream.wait_readable(if stopping { LAST_LOOK } else { timeout });
        self.set_waits(false);
        readable
    }

    /// Returns whether the server stops.
    fn set_waits(&self, waits: bool) -> bool {
        let mut state = self.list.lock();
        if let Some(connection) = state.connections.get_mut(self.key) {
            connection.waits = waits;
        }
        state.stopping
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        drop(self.list.lock().connections.try_remove(self.key));
    }
}
