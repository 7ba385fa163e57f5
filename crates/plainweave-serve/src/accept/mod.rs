//! Admission: accepts one listener's connections, each with a permit, and reports when too many
//! come.
//!
//! A fiber that waits in an accept has started, and where started fibers stay with their workers it
//! is held up with its worker, and all new connections with it. So the connections of
//! [`Acceptor::each`], which [`Accepting`](crate::Accepting) uses, are taken by fresh fibers.
//! [`Acceptor::next`] is for threads, and for a program's own loop.
//!
//! Two things may delay a new connection, and they are distinguished: the connection limit, or a
//! busy accepting fiber. The second one is overload, and shortens the kernel's queue; see
//! `backlog`.

mod backlog; // Admission under overload.
mod connection_limit; // How many connections there may be, in all and from one address.
mod in_progress; // How many requests, or steps of handshakes, there may be at a time.
mod per_address; // How many of something each address has.
mod shared; // An acceptor for many fibers, which accept in turn.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave::net::{self, HasSocket, SocketRef};
use plainweave::time::{now, sleep, with_timeout};
use rustix::io::Errno;

use crate::listener::{Address, Listener};
use backlog::{Backlog, Finding};

pub use backlog::MOST;
pub(crate) use connection_limit::LoopGuard;
pub use connection_limit::{ConnectionCounts, ConnectionLimit, ConnectionPermit, affordable};
pub use in_progress::{InProgress, Permit};
pub use per_address::Counted;
pub(crate) use shared::SharedAcceptor;

/// Pause after an accept that failed for lack of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Interval between two looks at the queue while the connection limit is reached.
const FULL_LOOK: Duration = Duration::from_secs(1);

/// Why connections are not let in, or requests refused, for an operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault<'a> {
    /// A connection could not be accepted, or given a fiber or thread: no descriptors or no memory
    /// is left. Another attempt follows after a pause.
    Failed(&'a io::Error),
    /// More clients come than can be served: at most this many may wait from now on.
    Overload {
        /// Connections that the kernel may hold.
        backlog: u32,
    },
    /// The connection limit is reached, and more clients wait.
    AtConnectionLimit {
        /// Connections that there may be.
        max: usize,
        /// Connections that wait in the kernel.
        waiting: u32,
    },
    /// As many requests are in progress as may be, and another one is refused.
    TooManyRequests {
        /// Requests that there may be.
        max: usize,
    },
    /// As many steps of TLS handshakes are in progress as may be, and a connection is closed.
    TooManyHandshakes {
        /// Steps that there may be.
        max: usize,
    },
}

/// What hears of faults.
pub type FaultHook = Arc<dyn Fn(&Fault<'_>) + Send + Sync>;

/// Accepts one listener's connections; its accepting fiber or thread has it.
pub struct Acceptor<L> {
    listener: L,
    address: Option<Address>,
    connection_limit: Arc<ConnectionLimit>,
    on_fault: Option<FaultHook>,
    backlog: Backlog,
}

impl<L: Listener> Acceptor<L> {
    /// Gives the listener the longest queue.
    pub fn new(listener: L, connection_limit: Arc<ConnectionLimit>) -> Self {
        let backlog = Backlog::new(now());
        let address = listener.address();
        let acceptor = Self {
            listener,
            address,
            connection_limit,
            on_fault: None,
            backlog,
        };

        acceptor.set_backlog();
        acceptor
    }

    /// Calls `hook` whenever connections are not let in: for a lasting fault, again and again.
    pub fn on_fault(self, hook: impl Fn(&Fault<'_>) + Send + Sync + 'static) -> Self {
        self.with_fault_hook(Some(Arc::new(hook)))
    }

    pub(crate) fn listener(&self) -> &L {
        &self.listener
    }

    pub(crate) fn with_fault_hook(self, on_fault: Option<FaultHook>) -> Self {
        Self { on_fault, ..self }
    }

    /// Waits for a connection and returns it. `None`: the server stops, the listener was closed, or
    /// the caller was cancelled or ran into its deadline; the listener is closed then.
    pub fn next(&mut self, stopping: impl Fn() -> bool) -> Option<(L::Stream, ConnectionPermit)> {
        while !stopping() {
            match self.wait(&stopping) {
                Ok(Some(accepted)) => {
                    let permit = self.connection_limit.acquire();
                    let admitted = self.admit(accepted, permit);
                    if admitted.is_some() {
                        return admitted;
                    }
                    // Established connections come before those that are refused, too.
                    plainweave::yield_now();
                }
                Ok(None) => self.look(now()),
                Err(error) if !self.goes_on(&error, &stopping) => break,
                Err(_) => {}
            }
        }

        // A look may have had it listen again after it was closed.
        self.listener.close();
        None
    }

    /// Gives each connection to `take`, on a fresh fiber for each, until the server stops, the
    /// listener is closed or the runtime ends. Returns at once. What `take` fails with is reported,
    /// and followed by a pause. `stopping` reads in sequentially consistent order what was written
    /// so.
    ///
    /// Context: a fiber.
    ///
    /// # Panics
    /// The listener has no [`Listener::idle_socket`].
    pub fn each(
        self,
        stopping: impl Fn() -> bool + Send + 'static,
        take: impl FnMut(L::Stream, ConnectionPermit) -> io::Result<()> + Send + 'static,
    ) {
        let acceptor = self;
        each(Each {
            acceptor,
            stopping,
            take,
        });
    }

    /// Gives an accepted connection its permit; not if its address has as many as it may have.
    fn admit(
        &mut self,
        (stream, peer): (L::Stream, Option<SocketAddr>),
        mut permit: ConnectionPermit,
    ) -> Option<(L::Stream, ConnectionPermit)> {
        let now = now();
        if self.backlog.accepted(now) {
            self.look(now);
        }
        permit.accepted();
        let admitted = peer.is_none_or(|peer| permit.charge(peer));
        admitted.then_some((stream, permit))
    }

    /// Returns whether accepting goes on after this error, and pauses if something is lacking.
    fn goes_on(&self, error: &io::Error, stopping: impl Fn() -> bool) -> bool {
        match error.kind() {
            _ if stopping() || is_end(error) => false,
            // That client has left.
            io::ErrorKind::ConnectionAborted => true,
            _ => self.failed(error),
        }
    }

    /// Notes that a connection could not be accepted or served for lack of means, and waits a
    /// little. Returns false if the caller was cancelled meanwhile.
    pub fn failed(&self, error: &io::Error) -> bool {
        self.connection_limit.count_failed();
        self.report(&Fault::Failed(error));
        sleep(BACK_OFF).is_ok()
    }

    /// Notes that for this time nobody was there to accept.
    fn was_away(&mut self, time: Duration) {
        self.backlog.waited_for_permit(time);
    }

    /// Waits for a connection. `None`: it is time for a look.
    fn wait(
        &mut self,
        stopping: impl Fn() -> bool,
    ) -> io::Result<Option<(L::Stream, Option<SocketAddr>)>> {
        self.wait_for_permit(stopping)?;
        let patience = self.backlog.patience().map(|limit| (now(), limit));
        match self.listener.accept(patience.map(|(_, limit)| limit)) {
            Err(error)
                if patience.is_some_and(|(start, limit)| is_over(&error, now() - start, limit)) =>
            {
                Ok(None)
            }
            accepted => accepted.map(Some),
        }
    }

    /// Waits while the connection limit is reached.
    fn wait_for_permit(&mut self, stopping: impl Fn() -> bool) -> io::Result<()> {
        if !self.connection_limit.is_reached() {
            return Ok(());
        }
        let _pause = self.connection_limit.begin_pause();
        loop {
            let start = now();
            let waited = with_timeout(FULL_LOOK, || self.connection_limit.wait(&stopping));
            let now = now();
            self.backlog.waited_for_permit(now - start);

            match waited {
                Err(error) if is_over(&error, now - start, FULL_LOOK) => self.look(now),
                Ok(()) if stopping() => return Err(io::ErrorKind::NotConnected.into()),
                waited => return waited,
            }
        }
    }

    fn look(&mut self, now: Instant) {
        let Ok(queued) = self.listener.queued() else {
            return;
        };
        let before = self.backlog.limit();
        let finding = self.backlog.look(now, queued);
        if self.backlog.limit() != before {
            self.set_backlog();
        }

        match finding {
            Finding::Nothing => {}
            Finding::Overload => self.report(&Fault::Overload {
                backlog: self.backlog.limit(),
            }),
            Finding::AtConnectionLimit => {
                self.report(&Fault::AtConnectionLimit {
                    max: self.connection_limit.max(),
                    waiting: queued,
                });
            }
        }
    }

    fn report(&self, fault: &Fault<'_>) {
        if let Some(hook) = &self.on_fault {
            hook(fault);
        }
    }

    fn set_backlog(&self) {
        let limit = self.backlog.limit();
        // What the listener has is a bound too.
        if self.listener.set_backlog(limit).is_ok()
            && let Some(address) = &self.address
        {
            self.connection_limit.set_backlog(address.clone(), limit);
        }
    }
}

/// An acceptor that waits without a fiber.
struct Each<L, S, T> {
    acceptor: Acceptor<L>,
    stopping: S,
    take: T,
}

impl<L, S, T> Each<L, S, T>
where
    L: Listener,
    S: Fn() -> bool,
    T: FnMut(L::Stream, ConnectionPermit) -> io::Result<()>,
{
    /// Takes a connection. Those that are connected come before the next one, for which another
    /// fiber stands behind theirs; see `backlog`. Returns whether to go on.
    fn turn(&mut self, outcome: io::Result<()>) -> bool {
        match outcome {
            _ if (self.stopping)() => return false,
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.acceptor.look(now());
                return true;
            }
            // The runtime ends.
            Err(_) => return false,
        }

        match self.try_next() {
            Ok(Some((stream, permit))) => {
                let taken = (self.take)(stream, permit);
                taken.map_or_else(|error| self.acceptor.failed(&error), |()| true)
            }
            Ok(None) => true,
            // Another process, or another handle, was faster.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => self.acceptor.goes_on(&error, &self.stopping),
        }
    }

    fn try_next(&mut self) -> io::Result<Option<(L::Stream, ConnectionPermit)>> {
        self.acceptor.wait_for_permit(&self.stopping)?;
        // Counted before `stopping` is asked: at a socket that others share nobody waits for the
        // end of this loop, and so either the stop sees the permit, or this sees the stop.
        let permit = self.acceptor.connection_limit.acquire();
        if (self.stopping)() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let accepted = self.acceptor.listener.try_accept()?;
        Ok(self.acceptor.admit(accepted, permit))
    }
}

/// Waits for connections without a fiber; while looks at the queue are due, no longer than until
/// the next one.
fn each<L, S, T>(waiting: Each<L, S, T>)
where
    L: Listener,
    S: Fn() -> bool + Send + 'static,
    T: FnMut(L::Stream, ConnectionPermit) -> io::Result<()> + Send + 'static,
{
    let patience = waiting.acceptor.backlog.patience();
    net::each_readable(Waiting(Some(waiting)), patience, move |waiting, outcome| {
        let Some(each_of) = &mut waiting.0 else {
            return ControlFlow::Break(());
        };
        if !each_of.turn(outcome) {
            // A look may have had it listen again after it was closed.
            each_of.acceptor.listener.close();
            return ControlFlow::Break(());
        }

        if each_of.acceptor.backlog.patience() == patience {
            return ControlFlow::Continue(());
        }
        if let Some(waiting) = waiting.0.take() {
            each(waiting);
        }
        ControlFlow::Break(())
    });
}

/// Taken out when it is to wait with another patience.
struct Waiting<L, S, T>(Option<Each<L, S, T>>);

impl<L: Listener, S, T> HasSocket for Waiting<L, S, T> {
    fn socket(&self) -> SocketRef<'_> {
        let listener = self.0.as_ref().map(|waiting| &waiting.acceptor.listener);
        let socket = listener.and_then(|listener| listener.idle_socket());
        socket.expect("a listener that is waited for without a fiber has a socket")
    }
}

impl<L> std::fmt::Debug for Acceptor<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor")
            .field("address", &self.address)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

/// Returns whether a wait failed because its `limit` has passed, and not the deadline of the
/// caller. That one fails the next wait at once; half of the limit tells them apart, whatever a
/// clock rounds.
fn is_over(error: &io::Error, waited: Duration, limit: Duration) -> bool {
    error.kind() == io::ErrorKind::TimedOut && waited >= limit / 2
}

/// Returns whether every accept from now on fails: the caller was cancelled or its deadline has
/// passed, or someone else has closed the listener. What a single client can cause is none of this.
fn is_end(error: &io::Error) -> bool {
    let closed = match error.raw_os_error() {
        Some(code) => code == Errno::INVAL.raw_os_error(),
        // The word of `plainweave::net`.
        None => error.kind() == io::ErrorKind::NotConnected,
    };
    closed || error.kind() == io::ErrorKind::TimedOut || plainweave::is_cancelled(error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Nobody comes. From the fourth accept on it fails early, as under a deadline of the caller's.
    #[derive(Default)]
    struct Deserted {
        accepts: AtomicU32,
        looks: AtomicU32,
    }

    impl Listener for Deserted {
        type Stream = std::net::TcpStream;

        fn accept(
            &self,
            patience: Option<Duration>,
        ) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
            let patience = patience.expect("looks are due");
            match self.accepts.fetch_add(1, Ordering::Relaxed) {
                0..3 => std::thread::sleep(patience),
                3 => {}
                _ => panic!("accepts on after the deadline"),
            }
            Err(io::ErrorKind::TimedOut.into())
        }

        fn close(&self) {}

        fn address(&self) -> Option<Address> {
            None
        }

        fn set_backlog(&self, _connections: u32) -> io::Result<()> {
            Ok(())
        }

        fn queued(&self) -> io::Result<u32> {
            self.looks.fetch_add(1, Ordering::Relaxed);
            Ok(4000)
        }

        fn spawn(&self, _work: impl FnOnce() + Send + 'static) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn a_deadline_is_no_time_for_a_look() {
        let mut acceptor = Acceptor::new(Deserted::default(), ConnectionLimit::new(1, 0));
        // Overloaded, so that looks are taken.
        let start = now()
            .checked_sub(Duration::from_secs(1))
            .expect("a clock that runs for a second");
        acceptor.backlog = Backlog::new(start);

        for tenth in 1..=2 {
            (0..100).for_each(|_| _ = acceptor.backlog.accepted(start));
            acceptor
                .backlog
                .look(start + Duration::from_millis(100) * tenth, 4000);
        }

        assert!(acceptor.backlog.patience().is_some());
        assert!(acceptor.next(|| false).is_none());
        let Deserted { accepts, looks } = acceptor.listener;
        assert_eq!((accepts.into_inner(), looks.into_inner()), (4, 3));
    }
}
