//! How many connections there may be, in all and from one address.
//!
//! A connection holds a permit for as long as it lives. At the limit nothing more is accepted: new clients wait in the
//! kernel's queue, and established connections are not affected. A client whose address is at its own limit is refused
//! at once; in the queue it would hold up the others.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plainweave::Fiber;

/// Connections of a server, counted and limited.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    open: AtomicUsize,
    max: usize,
    /// For one address; 0: any number.
    max_each: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    /// Fibers that would accept.
    waiting: Mutex<Vec<Fiber>>,
    /// Connections that came, that were turned away, and attempts to accept that failed.
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Times that the limit was reached.
    pub(super) full: AtomicU64,
    /// By listener, how many the kernel may hold until they are accepted; see `backlog`.
    backlogs: Mutex<BTreeMap<SocketAddr, u32>>,
}

/// The right of one connection to be open; returned on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    address: Option<IpAddr>,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, max_each: usize) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            open: AtomicUsize::new(0),
            max,
            max_each,
            by_address: Mutex::default(),
            waiting: Mutex::default(),
            accepted: zero(),
            refused: zero(),
            failed: zero(),
            full: zero(),
            backlogs: Mutex::default(),
        })
    }

    /// Returns the number of connections.
    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn is_reached(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.max
    }

    /// Waits until there are fewer connections than allowed. Fails if the fiber is cancelled or its deadline passes.
    ///
    /// Context: a fiber.
    pub(super) fn wait(&self) -> io::Result<()> {
        while self.is_reached() {
            let fiber = plainweave::current();
            let id = fiber.id();
            lock(&self.waiting).push(fiber);
            // A permit may have been returned before this fiber was on the list.
            let parked = if self.is_reached() { plainweave::park() } else { Ok(()) };
            lock(&self.waiting).retain(|fiber| fiber.id() != id);
            parked?;
        }
        Ok(())
    }

    pub(super) fn set_backlog(&self, listener: SocketAddr, connections: u32) {
        lock(&self.backlogs).insert(listener, connections);
    }

    pub(super) fn backlogs(&self) -> BTreeMap<SocketAddr, u32> {
        lock(&self.backlogs).clone()
    }

    /// Counts a connection that was accepted. Listeners that saw the same last permit free may exceed the limit, by one
    /// connection each.
    pub(super) fn acquire(self: &Arc<Self>) -> ConnectionPermit {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { limit: Arc::clone(self), address: None }
    }
}

impl ConnectionPermit {
    /// Counts the connection for its address. Returns `false` if the address is at its limit.
    pub(super) fn charge(&mut self, peer: SocketAddr) -> bool {
        if self.limit.max_each == 0 {
            return true;
        }
        let address = peer.ip().to_canonical();
        let mut by_address = lock(&self.limit.by_address);
        let count = by_address.entry(address).or_default();
        if *count >= self.limit.max_each {
            self.limit.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *count += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let limit = &self.limit;
        if let Some(address) = self.address {
            let mut by_address = lock(&limit.by_address);
            if let Some(count) = by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    by_address.remove(&address);
                }
            }
        }
        // Fibers wait only at the limit.
        if limit.open.fetch_sub(1, Ordering::SeqCst) >= limit.max {
            let waiting = std::mem::take(&mut *lock(&limit.waiting));
            waiting.iter().for_each(Fiber::unpark);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_from_one_address_are_limited() {
        let limit = ConnectionLimit::new(10, 2);
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut held: Vec<ConnectionPermit> = (0..4).map(|_| limit.acquire()).collect();
        let expected = [("1.2.3.4:1", true), ("[::ffff:1.2.3.4]:2", true), ("1.2.3.4:3", false), ("1.2.3.5:1", true)];
        for (permit, (address, allowed)) in held.iter_mut().zip(expected) {
            assert_eq!(permit.charge(peer(address)), allowed, "{address}");
        }
        assert_eq!((limit.connections(), limit.refused.load(Ordering::Relaxed)), (4, 1));
        held.clear();
        assert_eq!(limit.connections(), 0);
        assert!(lock(&limit.by_address).is_empty());
    }

    #[test]
    fn a_listener_at_the_limit_waits_for_a_permit() {
        let limit = ConnectionLimit::new(1, 0);
        let first = limit.acquire();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| limit.wait());
            while lock(&limit.waiting).is_empty() {
                std::thread::yield_now();
            }
            drop(first);
            second.join().unwrap().unwrap();
        });
        assert!(limit.connections() == 0 && lock(&limit.waiting).is_empty());
    }
}
