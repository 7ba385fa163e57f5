//! A value that some set and others watch: receivers see the latest, and may miss those between.
//!
//! Values are kept in [`Arc`]s, so a receiver that looks at one holds up no sender, and a sender no
//! receiver.
//!
//! ```
//! use plainweave::sync::watch;
//! plainweave::run(|| {
//!     let (level, mut seen) = watch::channel(1);
//!     let watcher = plainweave::spawn(move || *seen.wait_for(|level| *level > 2).unwrap());
//!     (2..=3).for_each(|n| level.send(n));
//!     assert_eq!(watcher.join().unwrap(), 3);
//! });
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;

use super::select::{NoticeBranch, Notices, Watched, Watchers};
use super::wait_queue::{Facts, Primitive, WaitQueue};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::thread::preemption_point;

/// The lists of waiters: receivers, and senders that wait for the end of all receivers.
const RECEIVERS: usize = 0;
const SENDERS: usize = 1;

struct State<T> {
    value: Arc<T>,
    /// Counts the values that were sent.
    version: u64,
    senders: usize,
    receivers: usize,
    /// Selects that wait for a value.
    watchers: Watchers,
}

impl<T> State<T> {
    fn new(value: T) -> Self {
        Self {
            value: Arc::new(value),
            version: 0,
            senders: 1,
            receivers: 1,
            watchers: Watchers::new(),
        }
    }

    /// Returns the version of the value, unless it is the one that was seen; `Some(None)` if none
    /// will come.
    fn newer_than(&self, seen: u64) -> Option<Option<u64>> {
        match self.version {
            version if version != seen => Some(Some(version)),
            _ if self.senders == 0 => Some(None),
            _ => None,
        }
    }
}

impl<T> Watched for &mut Receiver<T> {
    type Output = io::Result<()>;

    fn attempt(&mut self) -> Option<io::Result<()>> {
        let found = self
            .shared
            .with(|locked| locked.state.newer_than(self.seen))?;
        Some(self.see(found))
    }

    fn look(&self, f: &mut dyn FnMut(&mut Watchers, bool)) {
        self.shared.with(|locked| {
            let found = locked.state.newer_than(self.seen).is_some();
            f(&mut locked.state.watchers, found);
        });
    }
}

impl<T> Primitive for State<T> {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "watched value",
            counts: [
                (self.senders, "senders"),
                (self.receivers, "receivers"),
                (0, ""),
            ],
            ..Facts::default()
        }
    }
}

type Shared<T> = Arc<WaitQueue<State<T>, 2>>;
type Locked<T> = super::wait_queue::Locked<State<T>, 2>;

/// Sets the value; clones set the same one.
pub struct Sender<T>(Shared<T>);

/// Sees the value. Each receiver remembers which one it has seen; a clone has seen the same.
pub struct Receiver<T> {
    shared: Shared<T>,
    seen: u64,
}

/// Creates a watched value. The receiver has seen this first value.
#[must_use]
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    of(WaitQueue::new(State::new(value)))
}

#[cfg(all(test, loom))]
pub(super) fn modelled<T>(value: T) -> (Sender<T>, Receiver<T>) {
    of(WaitQueue::modelled(State::new(value)))
}

fn of<T>(queue: WaitQueue<State<T>, 2>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(queue);
    (Sender(shared.clone()), Receiver { shared, seen: 0 })
}

impl<T> Sender<T> {
    /// Sets the value, whether there are receivers or not, and wakes those that wait. Never waits.
    pub fn send(&self, value: T) {
        drop(self.send_replace(value));
    }

    /// Does what [`Self::send`] does, and returns the value before.
    pub fn send_replace(&self, value: T) -> Arc<T> {
        let new = Arc::new(value);
        let (old, receivers, selects) = self.0.with(|locked| {
            locked.state.version += 1;
            let old = std::mem::replace(&mut locked.state.value, new);
            (
                old,
                locked.take_all(RECEIVERS, None),
                locked.state.watchers.take(),
            )
        });

        receivers.give();
        selects.into_iter().for_each(Notices::give);
        old
    }

    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.0.with(|locked| locked.state.value.clone())
    }

    /// Creates a receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.with(|locked| {
            locked.state.receivers += 1;
            locked.state.version
        });

        Receiver {
            shared: self.0.clone(),
            seen,
        }
    }

    /// Waits until there is no receiver left. [`Self::subscribe`] may create new ones.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]).
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn closed(&self) -> io::Result<()> {
        let none = |locked: &mut Locked<T>| (locked.state.receivers == 0).then_some(());
        self.0
            .wait_unless((SENDERS, QueueEnd::Back), Interrupts::Allowed, none)?;
        Ok(())
    }

    /// Returns whether there is no receiver.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Returns the number of receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.0.with(|locked| locked.state.receivers)
    }
}

impl<T> Receiver<T> {
    /// Returns the value, and leaves it unseen if it is.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.shared.with(|locked| locked.state.value.clone())
    }

    /// Returns the value, which counts as seen from now on.
    pub fn get_and_update(&mut self) -> Arc<T> {
        let (value, version) = self
            .shared
            .with(|locked| (locked.state.value.clone(), locked.state.version));
        self.seen = version;
        value
    }

    /// Returns whether there is a value that this receiver has not seen.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.shared.with(|locked| locked.state.version != self.seen)
    }

    /// Waits for a value that this receiver has not seen, which counts as seen from then on.
    ///
    /// # Errors
    /// All senders are gone and their last value was seen ([`io::ErrorKind::BrokenPipe`]); or the
    /// caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. The value then stays unseen.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn changed(&mut self) -> io::Result<()> {
        preemption_point();
        let seen = self.seen;
        let look = |locked: &mut Locked<T>| locked.state.newer_than(seen);
        loop {
            // A grant says: look again.
            if let Some(found) =
                self.shared
                    .wait_unless((RECEIVERS, QueueEnd::Back), Interrupts::Allowed, look)?
            {
                return self.see(found);
            }
        }
    }

    /// Notes what [`State::newer_than`] has found. The error is made here: a section allocates
    /// nothing.
    fn see(&mut self, found: Option<u64>) -> io::Result<()> {
        self.seen = found.ok_or_else(no_sender)?;
        Ok(())
    }

    /// Returns a new value's coming as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&mut self) -> NoticeBranch<'_, io::Result<()>> {
        NoticeBranch::new(self)
    }

    /// Waits until the value is one that `wanted` accepts, and returns that; it may be the present
    /// one. Calls `wanted` with no lock held.
    ///
    /// # Errors
    /// As for [`Self::changed`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> io::Result<Arc<T>> {
        loop {
            let value = self.get_and_update();
            if wanted(&value) {
                return Ok(value);
            }
            self.changed()?;
        }
    }
}

fn no_sender() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the watched value has no senders left",
    )
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.with(|locked| locked.state.senders += 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiting = self.0.with(|locked| {
            locked.state.senders -= 1;
            (locked.state.senders == 0).then(|| {
                (
                    locked.take_all(RECEIVERS, None),
                    locked.state.watchers.take(),
                )
            })
        });

        if let Some((receivers, selects)) = waiting {
            receivers.give();
            selects.into_iter().for_each(Notices::give);
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.with(|locked| locked.state.receivers += 1);
        Self {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let senders = self.shared.with(|locked| {
            locked.state.receivers -= 1;
            (locked.state.receivers == 0).then(|| locked.take_all(SENDERS, None))
        });

        if let Some(senders) = senders {
            senders.give();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.get()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.get()).finish()
    }
}
