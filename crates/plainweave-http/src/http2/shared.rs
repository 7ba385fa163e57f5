//! What the requests of a connection share with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use http::HeaderValue;
use plainweave_serve::accept::{self, InProgress};

use crate::message::encode::DateCache;
use crate::transport::non_blocking::Wakeups;
use crate::transport::session::TlsSession;

/// What [`Server::with_requests_in_progress`](crate::Server::with_requests_in_progress) gave;
/// nothing without a bound.
pub(super) type Permit = Option<accept::Permit<Arc<InProgress>>>;

/// Of one connection.
pub(super) struct Shared {
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) tls: Option<Arc<TlsSession>>,
    permits: Mutex<Permits>,
    /// Requests answered.
    served: AtomicU32,
    /// An answer has asked for it to be the last.
    last: AtomicBool,
    /// For how much room answers wait: see `meter`.
    least_piece: AtomicUsize,
    /// Streams whose fibers have ended.
    ended: Mutex<Vec<u32>>,
    dates: Mutex<DateCache>,
}

impl Shared {
    pub(super) fn new(peer: Option<SocketAddr>, tls: Option<Arc<TlsSession>>) -> Self {
        Self {
            wakeups: Wakeups::new(),
            peer,
            tls,
            permits: Mutex::default(),
            served: AtomicU32::new(0),
            last: AtomicBool::new(false),
            least_piece: AtomicUsize::new(1),
            ended: Mutex::default(),
            dates: Mutex::default(),
        }
    }

    pub(super) fn served(&self) -> u32 {
        self.served.load(Relaxed)
    }

    pub(super) fn count(&self) {
        self.served.fetch_add(1, Relaxed);
    }

    pub(super) fn is_last(&self) -> bool {
        self.last.load(Relaxed)
    }

    pub(super) fn ask_for_end(&self) {
        self.last.store(true, Relaxed);
    }

    /// Returns for how many bytes of room an answer waits that has more to send.
    pub(super) fn least_piece(&self) -> usize {
        self.least_piece.load(Relaxed)
    }

    pub(super) fn set_least_piece(&self, bytes: usize) {
        self.least_piece.store(bytes, Relaxed);
    }

    /// Returns the streams that have ended since the last call.
    pub(super) fn take_ended(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.ended))
    }

    /// Returns a permit for a request: the one that the connection has waited with, or a new one,
    /// by `ask`.
    pub(super) fn admit(&self, ask: impl FnOnce() -> Option<Permit>) -> Option<Lent<'_>> {
        let spare = lock(&self.permits).spare.take();
        let permit = spare.or_else(ask)?;
        lock(&self.permits).lent += 1;
        Some(Lent {
            shared: self,
            _permit: permit,
        })
    }

    /// Sees to it that the connection has a permit, be it a request's: it has a stack and buffers
    /// while it waits for its client; `ask` gets a new one. False: it must not wait.
    pub(super) fn may_wait(&self, ask: impl FnOnce() -> Option<Permit>) -> bool {
        let held = lock(&self.permits);
        if held.lent > 0 || held.spare.is_some() || held.denied {
            return !held.denied;
        }
        drop(held);

        // The server's code, which may take its time.
        let spare = ask();
        let mut held = lock(&self.permits);
        held.denied = spare.is_none();
        held.spare = spare;

        !held.denied
    }

    /// Takes back what [`Self::may_wait`] has given, for the connection waits no more.
    pub(super) fn take_spare(&self) -> Option<Permit> {
        lock(&self.permits).spare.take()
    }

    /// Returns the value of `Date`.
    pub(super) fn date(&self) -> HeaderValue {
        lock(&self.dates).value()
    }
}

/// What a connection in its turn has of the server's permits: one for each request that is handled,
/// and one for itself if it has to wait while none is.
#[derive(Default)]
struct Permits {
    lent: usize,
    spare: Option<Permit>,
    /// There was none for the connection itself, so it ends.
    denied: bool,
}

/// A request's permit, until its fiber ends.
pub(super) struct Lent<'a> {
    shared: &'a Shared,
    _permit: Permit,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.shared.permits).lent -= 1;
    }
}

/// A stream's fiber, until it ends; also if it could not be started.
pub(super) struct Alive<'a> {
    pub(super) shared: &'a Shared,
    pub(super) id: u32,
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        lock(&self.shared.ended).push(self.id);
        self.shared.wakeups.wake_by_ref();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
