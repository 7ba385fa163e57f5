//! A listener's loop: it accepts, and gives each connection to a fiber or thread of its own.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use plainweave::Builder;
use plainweave::sync::channel;

use crate::accept::{
    Acceptor, ConnectionLimit, ConnectionPermit, FaultHook, LoopGuard, SharedAcceptor,
};
use crate::{Listed, Listener, Listeners};

/// A loop about to run. It is counted, and its listener stands among those that a stop closes,
/// until it has ended.
pub struct Accepting<L> {
    acceptor: Acceptor<Arc<L>>,
    // In this order: who waits for the end of the loop finds the socket closed.
    listed: Listed,
    counted: Arc<LoopGuard>,
}

impl<L: Listener> Accepting<L> {
    /// Prepares a listener. `on_fault` is called whenever connections are not let in: for a lasting
    /// fault, again and again.
    ///
    /// # Errors
    /// The socket cannot be configured.
    pub fn begin(
        listener: L,
        limit: &Arc<ConnectionLimit>,
        listeners: &Arc<Listeners>,
        on_fault: Option<FaultHook>,
    ) -> io::Result<Self> {
        listener.prepare()?;
        let listener = Arc::new(listener);
        let counted = Arc::new(limit.begin_loop());
        let of_loop = counted.clone();
        let listed = listeners.add_loop(listener.clone(), move || of_loop.release());

        Ok(Self {
            acceptor: Acceptor::new(listener, limit.clone()).with_fault_hook(on_fault),
            listed,
            counted,
        })
    }

    /// Accepts until the server stops, the listener is closed, or the caller is cancelled or runs
    /// into its deadline. `serve` runs on a fiber or thread of its own for each connection.
    pub fn run<S>(self, stopping: impl Fn() -> bool + Send + 'static, serve: S)
    where
        S: Fn(L::Stream, ConnectionPermit) + Clone + Send + 'static,
    {
        if !self.waits_without_fiber() {
            return self.run_here(stopping, serve);
        }
        let Self {
            acceptor,
            listed: _listed,
            counted: _counted,
        } = self;
        let listener = acceptor.listener().clone();

        // It is dropped, and with it the sender, when no more is accepted.
        let (running, ended) = channel::bounded::<()>(1);
        accept_beside(acceptor, stopping, serve, running);
        // Or the caller was cancelled, or ran into its deadline.
        let _ = ended.recv();
        listener.close();
    }

    /// Does the same on fresh fibers, or on a fiber or thread beside the caller's, and returns at
    /// once.
    ///
    /// # Errors
    /// There is no stack or no thread for the loop.
    pub fn start<S>(self, stopping: impl Fn() -> bool + Send + 'static, serve: S) -> io::Result<()>
    where
        S: Fn(L::Stream, ConnectionPermit) + Clone + Send + 'static,
    {
        if !self.waits_without_fiber() {
            let listener = self.acceptor.listener().clone();
            return listener.spawn(move || self.run_here(stopping, serve));
        }
        let kept = (self.listed, self.counted);
        accept_beside(self.acceptor, stopping, serve, kept);
        Ok(())
    }

    /// Starts fibers, each of which accepts a connection, serves it by `serve` to its end, and
    /// accepts the next one: their number is that of the connections, too. Returns at once.
    ///
    /// Context: a fiber.
    ///
    /// # Errors
    /// There is no stack for one of them.
    pub fn start_in_turn<S>(
        self,
        fibers: NonZeroUsize,
        stopping: impl Fn() -> bool + Clone + Send + 'static,
        serve: S,
    ) -> io::Result<()>
    where
        S: Fn(L::Stream, ConnectionPermit) + Clone + Send + 'static,
    {
        let kept = (self.listed, self.counted);
        let shared = Arc::new((SharedAcceptor::new(self.acceptor), kept));

        (0..fibers.get()).try_for_each(|_| {
            let shared = shared.clone();
            let stopping = stopping.clone();
            let serve = serve.clone();
            let accept_and_serve = move || {
                while let Some((stream, permit)) = shared.0.next(&stopping) {
                    serve(stream, permit);
                }
            };
            Builder::new().in_turn().spawn(accept_and_serve).map(drop)
        })
    }

    /// Returns whether connections can be waited for without a fiber.
    fn waits_without_fiber(&self) -> bool {
        plainweave::on_fiber() && self.acceptor.listener().idle_socket().is_some()
    }

    fn run_here<S>(mut self, stopping: impl Fn() -> bool, serve: S)
    where
        S: Fn(L::Stream, ConnectionPermit) + Clone + Send + 'static,
    {
        while let Some((stream, permit)) = self.acceptor.next(&stopping) {
            let serve = serve.clone();
            let spawned = self
                .acceptor
                .listener()
                .spawn(move || serve(stream, permit));

            if let Err(error) = spawned
                && !self.acceptor.failed(&error)
            {
                return;
            }

            // Those that are connected come before those that are not; see `accept::backlog`.
            plainweave::yield_now();
        }
    }
}

impl<L> fmt::Debug for Accepting<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting")
            .field("acceptor", &self.acceptor)
            .finish_non_exhaustive()
    }
}

/// Has connections accepted and served, and returns at once. `kept` is dropped at the end.
fn accept_beside<L, S>(
    acceptor: Acceptor<Arc<L>>,
    stopping: impl Fn() -> bool + Send + 'static,
    serve: S,
    kept: impl Send + 'static,
) where
    L: Listener,
    S: Fn(L::Stream, ConnectionPermit) + Clone + Send + 'static,
{
    let listener = acceptor.listener().clone();
    acceptor.each(stopping, move |stream, permit| {
        let _kept = &kept;
        let serve = serve.clone();
        listener.spawn(move || serve(stream, permit))
    });
}
