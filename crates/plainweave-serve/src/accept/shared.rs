//! An acceptor for many fibers, which accept in turn: if all of them waited at the socket, one
//! connection would wake them all.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use plainweave::sync::Mutex;
use plainweave::time::now;

use super::{Acceptor, ConnectionPermit};
use crate::listener::Listener;

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedAcceptor<L> {
    turn: Mutex<Turn<L>>,
    /// Fibers that wait for a connection or for their turn.
    free: AtomicUsize,
}

#[derive(Debug)]
struct Turn<L> {
    acceptor: Acceptor<L>,
    /// Since when all of them have been serving.
    all_serve: Option<Instant>,
}

impl<L: Listener> SharedAcceptor<L> {
    /// Shares an acceptor among fibers.
    pub(crate) fn new(acceptor: Acceptor<L>) -> Self {
        Self {
            turn: Mutex::new(Turn {
                acceptor,
                all_serve: None,
            }),
            free: AtomicUsize::new(0),
        }
    }

    /// As [`Acceptor::next`].
    pub(crate) fn next(
        &self,
        stopping: impl Fn() -> bool,
    ) -> Option<(L::Stream, ConnectionPermit)> {
        self.free.fetch_add(1, Relaxed);
        let mut turn = self.turn.lock().ok()?;

        // Nobody was there to accept: the queue says nothing of the CPU then.
        if let Some(since) = turn.all_serve.take() {
            turn.acceptor.was_away(now() - since);
        }
        let next = turn.acceptor.next(stopping);
        if self.free.fetch_sub(1, Relaxed) == 1 {
            turn.all_serve = Some(now());
        }

        next
    }
}
