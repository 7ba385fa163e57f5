//! Connections that wait for their next request, on a fiber or thread or without one, so that a
//! stop can end these waits, and no others.
//!
//! Whether a connection waits and whether its waits have ended stand in one word: either the stop
//! finds that it waits, and closes it, or its next wait finds that the server stops. Each has a
//! word of its own, and the lock is that of the list alone: a request writes nothing that other
//! connections write.

use std::fmt;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

/// Ends calls on a stream from another thread: with [`Shutdown::Read`] a wait for input, with
/// [`Shutdown::Both`] reads and writes too.
pub type Closer = Box<dyn Fn(Shutdown) + Send>;

/// The wait of a connection that is idle when the server stops: what its peer has sent by then is
/// still answered.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// The connection waits for its next request.
const WAITS: u32 = 1;
/// The server stops.
const ENDED: u32 = 2;

/// The connections of a server.
#[derive(Default)]
pub struct IdleConnections(Mutex<List>);

#[derive(Default)]
struct List {
    connections: Slab<Connection>,
    stopping: bool,
    /// Requests of connections that have ended.
    requests: u64,
}

struct Connection {
    close: Option<Closer>,
    shared: Arc<Shared>,
}

/// What the list and the connection both look at. Its neighbours may belong to connections that
/// other workers serve, so it is as long as a cache line. It is not aligned to one, for that is
/// dearer to allocate, and a connection may have one request only.
#[derive(Debug)]
struct Shared {
    /// `WAITS`, `ENDED`, both or neither.
    state: AtomicU32,
    /// Requests when it last began or ended a wait.
    requests: AtomicU32,
    _apart: [u64; 7],
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and what ends its wait; `None`: nothing does.
    pub fn add(self: &Arc<Self>, close: Option<Closer>) -> Idle {
        let mut list = self.lock();
        let state = AtomicU32::new(if list.stopping { ENDED } else { 0 });
        let shared = Arc::new(Shared {
            state,
            requests: AtomicU32::new(0),
            _apart: [0; 7],
        });

        let key = list.connections.insert(Connection {
            close,
            shared: shared.clone(),
        });

        Idle {
            list: self.clone(),
            key,
            shared,
        }
    }

    /// Ends all waits, now and from now on, where that is possible.
    pub fn end(&self) {
        let mut list = self.lock();
        list.stopping = true;
        for (_, connection) in &list.connections {
            if connection.shared.state.fetch_or(ENDED, Ordering::AcqRel) & WAITS != 0 {
                connection.close(Shutdown::Read);
            }
        }
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.lock()
            .connections
            .iter()
            .for_each(|(_, connection)| connection.close(Shutdown::Both));
    }

    /// Returns how many requests were answered.
    pub fn requests(&self) -> u64 {
        let list = self.lock();
        let open = list
            .connections
            .iter()
            .map(|(_, connection)| connection.shared.requests());
        list.requests + open.sum::<u64>()
    }
}

impl Connection {
    fn close(&self, how: Shutdown) {
        if let Some(close) = &self.close {
            close(how);
        }
    }
}

impl Shared {
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed).into()
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

/// A connection on the list, until it is dropped.
#[derive(Debug)]
pub struct Idle {
    list: Arc<IdleConnections>,
    key: usize,
    shared: Arc<Shared>,
}

impl Idle {
    /// Notes that it begins to wait for `timeout` at most. Returns how long it may: not for long if
    /// the server stops.
    pub fn begin_wait(&self, timeout: Duration, requests: u32) -> Duration {
        self.shared.requests.store(requests, Ordering::Relaxed);
        let ended = self.shared.state.fetch_or(WAITS, Ordering::AcqRel) & ENDED != 0;
        if ended {
            LAST_LOOK.min(timeout)
        } else {
            timeout
        }
    }

    /// Notes that it does not wait (any longer), and how many requests it has had.
    pub fn end_wait(&self, requests: u32) {
        self.shared.requests.store(requests, Ordering::Relaxed);
        self.shared.state.fetch_and(!WAITS, Ordering::AcqRel);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let mut list = self.list.lock();
        let removed = list.connections.try_remove(self.key);
        list.requests += self.shared.requests();

        // The closer's descriptor is closed outside.
        drop(list);
        drop(removed);
    }
}
