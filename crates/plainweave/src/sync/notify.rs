//! A notification without data.

use std::fmt;
use std::io;

use super::select::{NoticeBranch, Notices, Watched, Watchers};
use super::wait_queue::{self, Facts, Primitive, WaitQueue};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::thread::preemption_point;

struct State {
    /// A notification that found no waiter.
    permit: bool,
    /// How many times all were notified.
    round: u64,
    /// Selects that wait.
    watchers: Watchers,
}

impl State {
    const fn new() -> Self {
        Self {
            permit: false,
            round: 0,
            watchers: Watchers::new(),
        }
    }
}

impl Primitive for State {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "notification",
            ..Facts::default()
        }
    }
}

type Locked = wait_queue::Locked<State, 1>;

/// Wakes fibers and plain threads, one or all of them, without a lock and without data.
///
/// [`Notify::notify_one`] is remembered if nobody waits, once: the next wait returns at once. What
/// may be notified for must be looked at *before* each wait. [`Notify::notify_waiters`] is not
/// remembered; a caller that looks at something first asks for a [`Notified`] before that, which
/// notices all that comes after it.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// plainweave::run(|| {
///     let (ready, changed) = (AtomicBool::new(false), plainweave::sync::Notify::new());
///     plainweave::scope(|s| {
///         s.spawn(|| {
///             ready.store(true, Ordering::Release);
///             changed.notify_one();
///         });
///         while !ready.load(Ordering::Acquire) {
///             changed.wait().unwrap();
///         }
///     });
/// });
/// ```
pub struct Notify(WaitQueue<State>);

/// A wait that has not begun but notices [`Notify::notify_waiters`] already.
#[derive(Debug)]
#[must_use = "it waits only when it is asked to"]
pub struct Notified<'a> {
    notify: &'a Notify,
    round: u64,
}

impl Notify {
    /// Creates one without a notification.
    #[must_use]
    pub const fn new() -> Self {
        Self(WaitQueue::new(State::new()))
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled() -> Self {
        Self(WaitQueue::modelled(State::new()))
    }

    /// Waits for a notification.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]); a notification then goes to another waiter, or is remembered.
    /// One that has come is not lost to a cancellation: it is `Ok`.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&self) -> io::Result<()> {
        preemption_point();
        self.0
            .wait_unless((0, QueueEnd::Back), Interrupts::Allowed, take_permit)?;
        Ok(())
    }

    /// Begins to notice [`Self::notify_waiters`], for a later [`Notified::wait`].
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            notify: self,
            round: self.0.with(|locked| locked.state.round),
        }
    }

    /// Wakes the waiter that has waited longest. If there is none, the next wait returns at once;
    /// several calls are remembered as one.
    pub fn notify_one(&self) {
        let (first, selects) = self.0.with(|locked| match locked.take_first(0) {
            Some(first) => (Some(first), None),
            // Whichever select looks first takes it.
            None => {
                locked.state.permit = true;
                (None, locked.state.watchers.take())
            }
        });

        if let Some(grant) = first {
            grant.give();
        }
        selects.into_iter().for_each(Notices::give);
    }

    /// Wakes all current waiters, and ends the wait of each present [`Notified`]. Later waits do
    /// not notice it.
    pub fn notify_waiters(&self) {
        let (all, selects) = self.0.with(|locked| {
            locked.state.round += 1;
            (locked.take_all(0, None), locked.state.watchers.take())
        });

        all.give();
        selects.into_iter().for_each(Notices::give);
    }

    /// Returns a notification as a branch of a select, which notices [`Self::notify_waiters`] from
    /// here on.
    #[doc(hidden)]
    pub fn select_branch(&self) -> NoticeBranch<'_, ()> {
        NoticeBranch::new(self.notified())
    }
}

fn take_permit(locked: &mut Locked) -> Option<()> {
    std::mem::take(&mut locked.state.permit).then_some(())
}

impl<'a> Notified<'a> {
    /// Returns whether all were notified since this was created, or a notification for it, which
    /// that takes.
    fn has_come(&self, locked: &mut Locked) -> Option<()> {
        if locked.state.round != self.round {
            Some(())
        } else {
            take_permit(locked)
        }
    }

    /// Returns the notification as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&self) -> NoticeBranch<'a, ()> {
        NoticeBranch::new(Notified {
            notify: self.notify,
            round: self.round,
        })
    }

    /// Waits for a notification; returns at once if all were notified since this was created.
    ///
    /// # Errors
    /// As for [`Notify::wait`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(self) -> io::Result<()> {
        preemption_point();
        self.notify
            .0
            .wait_unless((0, QueueEnd::Back), Interrupts::Allowed, |locked| {
                self.has_come(locked)
            })?;
        Ok(())
    }
}

impl Watched for Notified<'_> {
    type Output = ();

    fn attempt(&mut self) -> Option<()> {
        self.notify.0.with(|locked| self.has_come(locked))
    }

    fn look(&self, f: &mut dyn FnMut(&mut Watchers, bool)) {
        self.notify.0.with(|locked| {
            let come = locked.state.permit || locked.state.round != self.round;
            f(&mut locked.state.watchers, come);
        });
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("notified", &self.0.with(|locked| locked.state.permit))
            .finish()
    }
}
