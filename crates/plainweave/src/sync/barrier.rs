//! A point that a number of callers pass together.
//!
//! The last to arrive takes all others off the list in its own section, so the barrier is ready for
//! the next round before the first of them runs on. One that is interrupted takes its arrival back
//! in the section in which it leaves the list: a round is never completed by one that has gone.

use std::fmt;
use std::io;

use super::wait_queue::{Entry, Facts, Primitive, WaitQueue, Waited};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// Lets a number of fibers and plain threads wait for each other, round after round, in the shape
/// of [`std::sync::Barrier`].
///
/// ```
/// plainweave::run(|| {
///     let all_here = plainweave::sync::Barrier::new(3);
///     plainweave::scope(|s| {
///         for _ in 0..2 {
///             s.spawn(|| all_here.wait().map(drop));
///         }
///         all_here.wait().unwrap();
///     });
/// });
/// ```
pub struct Barrier {
    arrived: WaitQueue<Arrived>,
    size: usize,
}

/// The result of a round for one caller.
#[derive(Clone, Copy, Debug)]
pub struct BarrierWaitResult(bool);

/// How many callers have arrived.
struct Arrived(usize);

impl Primitive for Arrived {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "barrier",
            counts: [(self.0, "have arrived"), (0, ""), (0, "")],
            ..Facts::default()
        }
    }
}

impl Barrier {
    /// Creates a barrier for `size` callers. With 0 or 1 nobody waits.
    #[must_use]
    pub const fn new(size: usize) -> Self {
        Self {
            arrived: WaitQueue::new(Arrived(0)),
            size,
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled(size: usize) -> Self {
        Self {
            arrived: WaitQueue::modelled(Arrived(0)),
            size,
        }
    }

    /// Waits until all have called it. One of them, the last to arrive, is the leader.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. It counts as not arrived: the others go on
    /// waiting for one more.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&self) -> io::Result<BarrierWaitResult> {
        let entry = Entry {
            list: 0,
            place: QueueEnd::Back,
            tag: 0,
        };

        let waited = self.arrived.wait_as(
            entry,
            Interrupts::Allowed,
            |locked| {
                if locked.state.0 + 1 < self.size {
                    locked.state.0 += 1;
                    return None;
                }

                locked.state.0 = 0;
                Some(locked.take_all(0, None))
            },
            || (),
            |locked| locked.state.0 -= 1,
        );
        match waited {
            Ok(Waited::Decided(others)) => {
                others.give();
                Ok(BarrierWaitResult(true))
            }
            Ok(Waited::Granted(_)) => Ok(BarrierWaitResult(false)),
            Err((interrupt, ())) => Err(interrupt.into()),
        }
    }
}

impl BarrierWaitResult {
    /// Returns whether the caller is the leader of its round.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
