//! Admission: accepts one listener's connections, each with a permit, and reports when too many come. The loop around
//! [`Acceptor::next`] is [`Server::serve`](crate::Server::serve), or a program's own.
//!
//! Two things may delay a new connection, and they are distinguished: the connection limit, or a busy accepting fiber.
//! The second one is overload, and shortens the kernel's queue; see `backlog`.

mod backlog;
mod connection_limit;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave::time::{now, sleep, with_timeout};
use rustix::io::Errno;

use crate::{Address, Listener};
use backlog::{Backlog, Finding};

pub use backlog::MOST;
pub(crate) use connection_limit::LoopGuard;
pub use connection_limit::{ConnectionCounts, ConnectionLimit, ConnectionPermit};

/// Pause after an accept that failed for lack of descriptors or memory.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(50);
/// Interval between two looks at the queue while the connection limit is reached.
const FULL_LOOK: Duration = Duration::from_secs(1);

/// Why connections are not let in, for an operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault<'a> {
    /// A connection could not be accepted, or given a fiber or thread: no descriptors or no memory is left. Another
    /// attempt follows after a pause.
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
}

pub(crate) type FaultHook = Arc<dyn Fn(&Fault<'_>) + Send + Sync>;

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
        let (backlog, address) = (Backlog::new(now()), listener.address());
        let acceptor = Self { listener, address, connection_limit, on_fault: None, backlog };
        acceptor.set_backlog();
        acceptor
    }

    /// Calls `hook` whenever connections are not let in: for a lasting fault, again and again.
    pub fn on_fault(self, hook: impl Fn(&Fault<'_>) + Send + Sync + 'static) -> Self {
        self.with_fault_hook(Some(Arc::new(hook)))
    }

    pub(crate) fn with_fault_hook(self, on_fault: Option<FaultHook>) -> Self {
        Self { on_fault, ..self }
    }

    /// Waits for a connection and returns it. `None`: the server stops, the listener was closed, or the caller was
    /// cancelled.
    pub fn next(&mut self, stopping: impl Fn() -> bool) -> Option<(L::Stream, ConnectionPermit)> {
        while !stopping() {
            match self.wait(&stopping) {
                Ok((stream, peer)) => {
                    let now = now();
                    if self.backlog.accepted(now) {
                        self.look(now);
                    }
                    let mut permit = self.connection_limit.acquire();
                    if peer.is_none_or(|peer| permit.charge(peer)) {
                        return Some((stream, permit));
                    }
                    // Established connections come before those that are refused, too.
                    plainweave::yield_now();
                }
                Err(error) if stopping() || plainweave::is_cancelled(&error) => break,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.look(now()),
                // Closed by someone else: an error for ever.
                Err(error) if is_closed(&error) => break,
                // That client has left.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if !self.failed(&error) => break,
                Err(_) => {}
            }
        }
        // A look may have had it listen again after it was closed.
        self.listener.close();
        None
    }

    /// Notes that a connection could not be accepted or served for lack of means, and waits a little. Returns false if
    /// the caller was cancelled meanwhile.
    pub fn failed(&self, error: &io::Error) -> bool {
        self.connection_limit.count_failed();
        self.report(&Fault::Failed(error));
        sleep(BACK_OFF).is_ok()
    }

    /// Notes that for this time nobody was there to accept: the queue says nothing of the CPU then.
    pub fn was_away(&mut self, time: Duration) {
        self.backlog.waited_for_permit(time);
    }

    /// `TimedOut`: it is time for a look.
    fn wait(&mut self, stopping: impl Fn() -> bool) -> io::Result<(L::Stream, Option<std::net::SocketAddr>)> {
        if self.connection_limit.is_reached() {
            self.connection_limit.count_full();
            self.wait_for_permit(stopping)?;
        }
        self.listener.accept(self.backlog.patience())
    }

    fn wait_for_permit(&mut self, stopping: impl Fn() -> bool) -> io::Result<()> {
        loop {
            let start = now();
            let waited = with_timeout(FULL_LOOK, || self.connection_limit.wait(&stopping));
            let now = now();
            self.backlog.waited_for_permit(now - start);
            match waited {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.look(now),
                Ok(()) if stopping() => return Err(io::ErrorKind::NotConnected.into()),
                waited => return waited,
            }
        }
    }

    fn look(&mut self, now: Instant) {
        let Ok(queued) = self.listener.queued() else { return };
        let before = self.backlog.limit();
        let finding = self.backlog.look(now, queued);
        if self.backlog.limit() != before {
            self.set_backlog();
        }
        match finding {
            Finding::Nothing => {}
            Finding::Overload => self.report(&Fault::Overload { backlog: self.backlog.limit() }),
            Finding::AtConnectionLimit => {
                self.report(&Fault::AtConnectionLimit { max: self.connection_limit.max(), waiting: queued });
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

impl<L> std::fmt::Debug for Acceptor<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor")
            .field("address", &self.address)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

/// Returns whether an accept failed because someone else has closed the listener. What a single client can cause is no
/// reason to end.
fn is_closed(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(code) => code == Errno::INVAL.raw_os_error(),
        // The word of `plainweave::net`.
        None => error.kind() == io::ErrorKind::NotConnected,
    }
}
