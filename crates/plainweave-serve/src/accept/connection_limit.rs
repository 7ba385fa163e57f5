//! How many connections there may be, in all and from one address.
//!
//! A connection holds a permit for as long as it lives. At the limit nothing more is accepted: new
//! clients wait in the kernel's queue, and established connections are not affected. A client whose
//! address is at its own limit is refused at once; in the queue it would hold up the others. By one
//! connection of HTTP/2 a client can have many requests in progress, so these are counted by
//! address too.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plainweave::Fiber;
use plainweave::time::{now, with_timeout};
use rustix::process::{Resource, getrlimit};

use super::per_address::{Counted, PerAddress};
use crate::listener::Address;

/// Descriptors that are not connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Returns how many connections there are descriptors for, with as many for `each`.
pub fn affordable(each: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let left =
        usize::try_from(descriptors - OTHER_DESCRIPTORS.min(descriptors / 2)).unwrap_or(usize::MAX);
    (left / each.max(1)).max(1)
}

/// Connections of a server, counted and limited.
#[derive(Debug)]
pub struct ConnectionLimit {
    open: AtomicUsize,
    /// Accept loops that have not ended.
    loops: AtomicUsize,
    max: AtomicUsize,
    /// Connections by address.
    by_address: Arc<PerAddress>,
    /// Requests in progress by address, of those that do not have a connection each.
    requests_by_address: Arc<PerAddress>,
    refused_requests: AtomicU64,
    /// Fibers and threads that would accept, or that wait for the end.
    waiting: Mutex<Waiting>,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    pauses: AtomicU64,
    paused_us: AtomicU64,
    /// By listener, how many the kernel may hold until they are accepted; see `backlog`.
    backlogs: Mutex<BTreeMap<Address, u32>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Each with a number of its own: all plain threads have the same `Fiber::id`.
    list: Vec<(u64, Fiber)>,
    next: u64,
}

impl Waiting {
    fn add(&mut self, fiber: Fiber) -> u64 {
        self.next += 1;
        self.list.push((self.next, fiber));
        self.next
    }

    fn remove(&mut self, number: u64) {
        self.list.retain(|(other, _)| *other != number);
    }
}

/// What has become of the connections that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Connections now.
    pub open: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Of these, connections closed at once because their address had its share.
    pub refused: u64,
    /// Failed attempts to accept, each with a pause.
    pub failed: u64,
    /// Times that the limit was reached.
    pub pauses: u64,
    /// For how long no more was accepted then, added up over the listeners.
    pub paused: Duration,
    /// Requests of HTTP/2 that were answered 503 because their address had its share in progress.
    pub refused_requests: u64,
}

/// The right of one connection to be open; returned on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// For its address.
    counted: Option<Counted>,
}

impl ConnectionLimit {
    /// Makes a limit of `max` connections, of which `max_each` may be from one address, and as many
    /// requests in progress where a connection can have several; 0: any number.
    pub fn new(max: usize, max_each: usize) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            open: AtomicUsize::new(0),
            loops: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            by_address: PerAddress::new(max_each),
            requests_by_address: PerAddress::new(max_each),
            refused_requests: zero(),
            waiting: Mutex::default(),
            accepted: zero(),
            refused: zero(),
            failed: zero(),
            pauses: zero(),
            paused_us: zero(),
            backlogs: Mutex::default(),
        })
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how many there may be.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::SeqCst)
    }

    /// Allows no more than this from now on. Before a fiber waits for fewer than that.
    pub fn lower(&self, max: usize) {
        self.max.fetch_min(max, Ordering::SeqCst);
    }

    /// Returns all counts. They need not be of one moment.
    pub fn counts(&self) -> ConnectionCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let accepted = of(&self.accepted);
        let refused = of(&self.refused);
        let failed = of(&self.failed);
        let pauses = of(&self.pauses);
        let paused = Duration::from_micros(of(&self.paused_us));
        let refused_requests = of(&self.refused_requests);

        ConnectionCounts {
            open: self.connections(),
            accepted,
            refused,
            failed,
            pauses,
            paused,
            refused_requests,
        }
    }

    /// Counts a request in progress for its client's address; `None`: that has its share.
    pub fn begin_request(&self, peer: Option<SocketAddr>) -> Option<Counted> {
        let counted = self.requests_by_address.begin(peer);
        if counted.is_none() {
            self.refused_requests.fetch_add(1, Ordering::Relaxed);
        }
        counted
    }

    /// Returns, by listener, how many connections the kernel may hold until they are accepted. Less
    /// than [`MOST`](super::MOST): overload.
    pub fn backlogs(&self) -> BTreeMap<Address, u32> {
        lock(&self.backlogs).clone()
    }

    pub(super) fn is_reached(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.max()
    }

    pub(super) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a time for which nothing is accepted, until the guard is dropped.
    pub(super) fn begin_pause(self: &Arc<Self>) -> Pause {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        Pause {
            limit: self.clone(),
            start: now(),
        }
    }

    /// Waits until there are fewer connections than allowed, or the server stops. Fails if the
    /// caller is cancelled or its deadline passes.
    pub(super) fn wait(&self, stopping: impl Fn() -> bool) -> io::Result<()> {
        self.wait_until(|| !self.is_reached() || stopping())
    }

    /// Waits until no connection and no accept loop is left. Returns false if that takes longer
    /// than `limit`, or the caller is cancelled.
    pub fn wait_ended(&self, limit: Duration) -> bool {
        with_timeout(limit, || self.wait_until(|| self.has_ended())).is_ok()
    }

    /// Loops first: one that is seen to have ended has counted its last connection.
    fn has_ended(&self) -> bool {
        self.loops.load(Ordering::SeqCst) == 0 && self.open.load(Ordering::SeqCst) == 0
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) -> io::Result<()> {
        while !is_so() {
            let number = lock(&self.waiting).add(plainweave::current());
            // What is waited for may have come before this fiber was on the list.
            let parked = if is_so() { Ok(()) } else { plainweave::park() };
            lock(&self.waiting).remove(number);
            parked?;
        }
        Ok(())
    }

    /// Has those that wait look again.
    pub fn wake(&self) {
        let waiting = std::mem::take(&mut lock(&self.waiting).list);
        waiting.iter().for_each(|(_, fiber)| fiber.unpark());
    }

    /// Notes how many connections the kernel may hold at a listener. An
    /// [`Acceptor`](super::Acceptor) does so; a program that shows [`Self::backlogs`] before it
    /// accepts can begin with [`MOST`](super::MOST).
    pub fn set_backlog(&self, listener: Address, connections: u32) {
        lock(&self.backlogs).insert(listener, connections);
    }

    /// Counts an accept loop until the guard is dropped or released.
    pub(crate) fn begin_loop(self: &Arc<Self>) -> LoopGuard {
        self.loops.fetch_add(1, Ordering::SeqCst);
        LoopGuard {
            limit: Arc::clone(self),
            is_counted: AtomicBool::new(true),
        }
    }

    /// Counts a connection that another process has accepted, whatever the limit.
    pub fn adopt(self: &Arc<Self>) -> ConnectionPermit {
        let permit = self.acquire();
        permit.accepted();
        permit
    }

    /// Counts a connection that was accepted, or is about to be. Listeners that saw the same last
    /// permit free may exceed the limit, by one connection each.
    pub(super) fn acquire(self: &Arc<Self>) -> ConnectionPermit {
        self.open.fetch_add(1, Ordering::SeqCst);
        ConnectionPermit {
            limit: Arc::clone(self),
            counted: None,
        }
    }
}

/// A time at the limit, until it is dropped.
#[derive(Debug)]
pub(super) struct Pause {
    limit: Arc<ConnectionLimit>,
    start: Instant,
}

impl Drop for Pause {
    fn drop(&mut self) {
        let micros = (now() - self.start).as_micros() as u64;
        self.limit.paused_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// An accept loop, until it is dropped or released.
#[derive(Debug)]
pub(crate) struct LoopGuard {
    limit: Arc<ConnectionLimit>,
    is_counted: AtomicBool,
}

impl LoopGuard {
    /// Has nobody wait for the loop any longer.
    pub(crate) fn release(&self) {
        if self.is_counted.swap(false, Ordering::SeqCst) {
            self.limit.loops.fetch_sub(1, Ordering::SeqCst);
            self.limit.wake();
        }
    }
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        self.release();
    }
}

impl ConnectionPermit {
    /// Notes that the connection was accepted.
    pub(super) fn accepted(&self) {
        self.limit.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the connection for its address. Returns `false` if the address is at its limit.
    pub(super) fn charge(&mut self, peer: SocketAddr) -> bool {
        self.counted = self.limit.by_address.begin(Some(peer));
        if self.counted.is_none() {
            self.limit.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.counted.is_some()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let limit = &self.limit;
        // Fibers wait only at the limit, and for the last one to go.
        let before = limit.open.fetch_sub(1, Ordering::SeqCst);
        if before >= limit.max() || before == 1 {
            limit.wake();
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
        let expected = [
            ("1.2.3.4:1", true),
            ("[::ffff:1.2.3.4]:2", true),
            ("1.2.3.4:3", false),
            ("1.2.3.5:1", true),
        ];
        for (permit, (address, allowed)) in held.iter_mut().zip(expected) {
            assert_eq!(permit.charge(peer(address)), allowed, "{address}");
        }
        assert_eq!((limit.connections(), limit.counts().refused), (4, 1));
        held.clear();
        assert_eq!(limit.connections(), 0);
        assert!(limit.by_address.is_empty());
    }

    #[test]
    fn a_listener_at_the_limit_waits_for_a_permit() {
        let limit = ConnectionLimit::new(1, 0);
        let first = limit.acquire();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| limit.wait(|| false));
            while lock(&limit.waiting).list.is_empty() {
                std::thread::yield_now();
            }
            drop(first);
            second.join().unwrap().unwrap();
        });

        assert!(limit.connections() == 0 && lock(&limit.waiting).list.is_empty());
    }

    /// A loop ends right after its last accept: one of the two is there all the time.
    #[test]
    fn a_last_connection_is_not_overlooked() {
        const ROUNDS: usize = 10_000;
        let limit = ConnectionLimit::new(9, 0);
        let accept_and_end = |phase: &AtomicUsize| {
            let counted = limit.begin_loop();
            phase.fetch_add(1, Ordering::SeqCst);
            let permit = limit.acquire();
            drop(counted);
            phase.fetch_add(1, Ordering::SeqCst);
            drop(permit);
        };

        // Two threads soon fall into step, so there are many.
        for _ in 0..100 {
            // Odd: something is there.
            let phase = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..ROUNDS).for_each(|_| accept_and_end(&phase)));
                let mut before = 0;
                while before < 2 * ROUNDS {
                    before = phase.load(Ordering::SeqCst);
                    let ended = limit.has_ended();
                    let steady = phase.load(Ordering::SeqCst) == before;
                    assert!(!(ended && steady && before % 2 == 1), "in step {before}");
                }
            });
        }
    }

    /// One thread that gives up takes nobody else off the list.
    #[test]
    fn several_threads_wait() {
        let limit = ConnectionLimit::new(1, 0);
        let only = limit.acquire();
        std::thread::scope(|scope| {
            let end = scope.spawn(|| limit.wait_ended(Duration::from_secs(60)));
            while lock(&limit.waiting).list.is_empty() {
                std::thread::yield_now();
            }
            let late = with_timeout(Duration::from_millis(1), || limit.wait(|| false));
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(lock(&limit.waiting).list.len(), 1);
            drop(only);
            assert!(end.join().unwrap());
        });
    }
}
