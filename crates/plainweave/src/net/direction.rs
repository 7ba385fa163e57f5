//! One direction of a socket, as async code waits for it.
//!
//! A call is tried first. If it would block, a fiber waits for the descriptor in the poller's
//! place, and its end wakes the task (see docs/async.md for what that costs, and the rejected
//! ways). So a wait has all that a blocking call has: both drivers, the watchdog, the end of the
//! runtime. Dropping the wait cancels that fiber.

use std::io;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use crate::fiber;
use crate::future::Joining;
use crate::io::op::Interest;
use crate::sched::io_call::{Descriptor, wait_ready};
use crate::sched::pool::{self, PoolShared};
use crate::thread;

/// A fiber that waits for a descriptor, cancelled on drop.
#[derive(Debug)]
struct Waiting {
    end: Joining<io::Result<()>>,
    /// The runtime that it runs on. While there is a reference, no other has its address.
    runtime: Weak<PoolShared>,
}

impl Waiting {
    fn start(source: &Arc<Descriptor>, interest: Interest) -> io::Result<Self> {
        let source = source.clone();
        let fiber = thread::spawn_waiting(move || wait_ready(&source, interest, None));
        let outside = || {
            let why = "an async call on a socket of plainweave has to wait, and can do so only on a fiber";
            io::Error::new(io::ErrorKind::Unsupported, why)
        };

        let (fiber, runtime) = fiber.zip(pool::try_current_pool()).ok_or_else(outside)?;
        Ok(Self {
            end: fiber.into_future(),
            runtime: Arc::downgrade(&runtime),
        })
    }

    /// Returns whether the caller is a fiber of another runtime, which must not depend on that
    /// one's life.
    fn is_elsewhere(&self) -> bool {
        let runtime = self.runtime.as_ptr();
        fiber::current().is_some_and(|me| !ptr::eq(me.worker().pool(), runtime))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Harmless if it has ended.
        self.end.fiber().cancel();
    }
}

/// One direction, and who waits for it. At most one task does: the last one that polled.
#[derive(Debug)]
pub(super) struct Direction {
    interest: Interest,
    waiting: Option<Waiting>,
}

impl Direction {
    pub(super) fn new(interest: Interest) -> Self {
        Self {
            interest,
            waiting: None,
        }
    }

    /// Makes a call that does not block, once more each time that it may succeed. A wait that an
    /// earlier poll began is continued, by this task; on another runtime it starts over.
    ///
    /// # Errors
    /// The call fails; the socket was closed; the runtime ends while the call has to wait, or the
    /// caller is no fiber.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        source: &Arc<Descriptor>,
        mut call: impl FnMut() -> rustix::io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut waited = Ok(());
        if self.waiting.as_ref().is_some_and(Waiting::is_elsewhere) {
            self.waiting = None;
        }
        loop {
            if let Some(waiting) = &mut self.waiting {
                let joined = ready!(Pin::new(&mut waiting.end).poll(cx));
                self.waiting = None;
                waited = joined.unwrap_or_else(|error| Err(error.into_io()));
            }

            source.check_open()?;
            match call() {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }

            // Only now: what has arrived is delivered, also when the wait has failed.
            std::mem::replace(&mut waited, Ok(()))?;
            self.waiting = Some(Waiting::start(source, self.interest)?);
        }
    }
}
