//! How many connections there may be, in all and from one address.
//!
//! A connection has a seat for as long as it lives. With all seats taken nothing more is accepted: who comes waits in
//! the kernel's queue, and nobody who is served already suffers. An address that has all of its own is turned away at
//! once, for it would hold up the others in that queue.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plainweave::Fiber;

/// All seats of a server.
#[derive(Debug)]
pub(super) struct Seats {
    taken: AtomicUsize,
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
    /// Times that all seats were taken.
    pub(super) full: AtomicU64,
    /// By listener, how many the kernel may hold until they are accepted; see `backlog`.
    backlogs: Mutex<BTreeMap<SocketAddr, u32>>,
}

/// One connection's; given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    address: Option<IpAddr>,
}

impl Seats {
    pub(super) fn new(max: usize, max_each: usize) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            taken: AtomicUsize::new(0),
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

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn are_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) >= self.max
    }

    /// A fiber. Waits until there is a free seat. An error: the fiber was cancelled, or ran into its deadline.
    pub(super) fn wait_for_one(&self) -> io::Result<()> {
        while self.are_taken() {
            let fiber = plainweave::current();
            let id = fiber.id();
            lock(&self.waiting).push(fiber);
            // One may have been given back before we stood on the list.
            let parked = if self.are_taken() { plainweave::park() } else { Ok(()) };
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

    /// A seat for a connection that was accepted. Several listeners may meanwhile have found the same one free: then
    /// there are so many connections more.
    pub(super) fn take(self: &Arc<Self>) -> Seat {
        self.taken.fetch_add(1, Ordering::SeqCst);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Seat { seats: Arc::clone(self), address: None }
    }
}

impl Seat {
    /// Counts the seat for its address. False: the address has all it may have.
    pub(super) fn assign(&mut self, peer: SocketAddr) -> bool {
        if self.seats.max_each == 0 {
            return true;
        }
        let address = peer.ip().to_canonical();
        let mut by_address = lock(&self.seats.by_address);
        let count = by_address.entry(address).or_default();
        if *count >= self.seats.max_each {
            self.seats.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *count += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let seats = &self.seats;
        if let Some(address) = self.address {
            let mut by_address = lock(&seats.by_address);
            if let Some(count) = by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    by_address.remove(&address);
                }
            }
        }
        // Only with all seats taken can somebody wait.
        if seats.taken.fetch_sub(1, Ordering::SeqCst) >= seats.max {
            let waiting = std::mem::take(&mut *lock(&seats.waiting));
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
    fn an_address_gets_its_share() {
        let seats = Seats::new(10, 2);
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut held: Vec<Seat> = (0..4).map(|_| seats.take()).collect();
        let expected = [("1.2.3.4:1", true), ("[::ffff:1.2.3.4]:2", true), ("1.2.3.4:3", false), ("1.2.3.5:1", true)];
        for (seat, (address, allowed)) in held.iter_mut().zip(expected) {
            assert_eq!(seat.assign(peer(address)), allowed, "{address}");
        }
        assert_eq!((seats.taken(), seats.refused.load(Ordering::Relaxed)), (4, 1));
        held.clear();
        assert_eq!(seats.taken(), 0);
        assert!(lock(&seats.by_address).is_empty());
    }

    #[test]
    fn who_finds_no_seat_waits_for_one() {
        let seats = Seats::new(1, 0);
        let first = seats.take();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| seats.wait_for_one());
            while lock(&seats.waiting).is_empty() {
                std::thread::yield_now();
            }
            drop(first);
            second.join().unwrap().unwrap();
        });
        assert!(seats.taken() == 0 && lock(&seats.waiting).is_empty());
    }
}
