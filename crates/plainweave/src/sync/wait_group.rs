//! Waiting until all clones are dropped.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::wait_queue::{Facts, Primitive, WaitQueue};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// Waits for a number of fibers and plain threads that need not be known beforehand: each has a
/// clone, and drops it when it is done, also by a panic.
///
/// For fibers that borrow, a [`scope`](crate::scope()) does the same.
///
/// ```
/// plainweave::run(|| {
///     let group = plainweave::sync::WaitGroup::new();
///     for _ in 0..3 {
///         let member = group.clone();
///         plainweave::spawn(move || drop(member));
///     }
///     group.wait().unwrap();
/// });
/// ```
pub struct WaitGroup(Arc<WaitQueue<Members>>);

/// How many clones there are.
struct Members(usize);

impl Primitive for Members {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "wait group",
            counts: [(self.0, "members"), (0, ""), (0, "")],
            ..Facts::default()
        }
    }
}

impl WaitGroup {
    /// Creates a group with one member, the value that it returns.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(WaitQueue::new(Members(1))))
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled() -> Self {
        Self(Arc::new(WaitQueue::modelled(Members(1))))
    }

    /// Drops this member, and waits until all others are dropped or wait too.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. Its member is dropped all the same.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(self) -> io::Result<()> {
        let members = self.0.clone();
        drop(self);
        // Nobody is left to clone at 0, so it stays so.
        let none = |locked: &mut super::wait_queue::Locked<Members, 1>| {
            (locked.state.0 == 0).then_some(())
        };
        members.wait_unless((0, QueueEnd::Back), Interrupts::Allowed, none)?;
        Ok(())
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> Self {
        self.0.with(|locked| locked.state.0 += 1);
        Self(self.0.clone())
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        let waiters = self.0.with(|locked| {
            locked.state.0 -= 1;
            (locked.state.0 == 0).then(|| locked.take_all(0, None))
        });

        if let Some(waiters) = waiters {
            waiters.give();
        }
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("members", &self.0.with(|locked| locked.state.0))
            .finish()
    }
}
