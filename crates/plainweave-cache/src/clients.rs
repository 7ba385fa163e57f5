//! The connections there are: who they are, and which of them are cut. How many there may be is
//! their [`ConnectionLimit`](plainweave_serve::accept::ConnectionLimit)'s business.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plainweave::net::TcpStream;
use plainweave_serve::accept::ConnectionPermit;
use slab::Slab;

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) total: AtomicU64,
    pub(crate) rejected: AtomicU64,
    /// Those that were closed because too many others were being served.
    pub(crate) shed: AtomicU64,
    /// Lines that were longer than is allowed.
    pub(crate) long_lines: AtomicU64,
    /// Connections that were closed because they left too many long replies unread.
    pub(crate) cut: AtomicU64,
    list: Mutex<Slab<Arc<Client>>>,
}

/// One connection, as others see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    /// The client's address; a Unix socket has none.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    /// Second of the last command.
    pub(crate) last: AtomicU32,
    /// Bytes of replies that it was sent and has no room for.
    pub(crate) unread: AtomicUsize,
    stream: TcpStream,
}

/// A connection's place in the list; its drop frees it.
#[derive(Debug)]
pub(crate) struct Place {
    clients: Arc<Clients>,
    pub(crate) client: Arc<Client>,
    /// The client's, here too: a turn then need not look there.
    pub(crate) id: u64,
    key: usize,
    _permit: ConnectionPermit,
}

impl Clients {
    /// Gives a new connection its place.
    pub(crate) fn enter(
        self: &Arc<Self>,
        stream: &TcpStream,
        permit: ConnectionPermit,
        now: u32,
    ) -> std::io::Result<Place> {
        let id = self.total.fetch_add(1, Relaxed) + 1;
        let client = Client {
            id,
            peer: stream.peer_addr().ok(),
            local: stream.local_addr().ok(),
            last: AtomicU32::new(now),
            unread: AtomicUsize::new(0),
            stream: stream.try_clone()?,
        };

        let client = Arc::new(client);
        let key = self.lock().insert(client.clone());
        Ok(Place {
            clients: self.clone(),
            client,
            id,
            key,
            _permit: permit,
        })
    }

    /// Calls `each` for all connections, under a lock.
    pub(crate) fn each(&self, mut each: impl FnMut(&Client)) {
        self.lock().iter().for_each(|(_, client)| each(client));
    }

    /// Ends all connections as the server stops. What has been received is still answered.
    pub(crate) fn end(&self) {
        self.lock()
            .iter()
            .for_each(|(_, client)| drop(client.stream.shutdown(Shutdown::Read)));
    }

    /// Returns what messages call a client.
    pub(crate) fn name_of(&self, id: u64) -> String {
        let client = self.find(id);
        client.map_or_else(
            || "that has left".to_owned(),
            |client| client.peer_address(),
        )
    }

    /// Returns a client's address, unless it comes by a Unix socket.
    pub(crate) fn peer_of(&self, id: u64) -> Option<SocketAddr> {
        self.find(id)?.peer
    }

    fn find(&self, id: u64) -> Option<Arc<Client>> {
        let list = self.lock();
        let client = list.iter().find(|(_, client)| client.id == id);
        client.map(|(_, client)| client.clone())
    }

    /// Returns who has not taken all replies, and how many bytes each has left.
    pub(crate) fn unread(&self) -> Vec<(u64, usize)> {
        let list = self.lock();
        let unread = list
            .iter()
            .map(|(_, client)| (client.id, client.unread.load(Relaxed)));
        unread.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Ends the connections that have taken nothing since they were in this list.
    pub(crate) fn cut_those_that_still_are(&self, unread: &[(u64, usize)]) {
        for (_, client) in &*self.lock() {
            if unread.contains(&(client.id, client.unread.load(Relaxed))) {
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Client>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.lock().remove(self.key);
    }
}

impl Client {
    /// Returns a handle of its socket, without timeouts.
    pub(crate) fn handle(&self) -> io::Result<TcpStream> {
        let handle = self.stream.try_clone()?;
        handle.set_read_timeout(None)?;
        Ok(handle)
    }

    /// For messages.
    pub(crate) fn peer_address(&self) -> String {
        self.peer
            .map_or_else(|| "the Unix socket".to_owned(), |peer| peer.to_string())
    }

    /// For `watch`, as memcached words it.
    pub(crate) fn peer_words(&self) -> String {
        match self.peer {
            Some(peer) => format!("rip={} rport={} transport=tcp", peer.ip(), peer.port()),
            None => "rip=unix rport=0 transport=local".to_owned(),
        }
    }
}
