//! What every primitive here is made of: a small state under a spin lock, and lists of those who wait for it to change.
//!
//! # Concepts
//! Who cannot go on enters a list in the very critical section in which it saw that it cannot. Who changes the state
//! takes the first off its list, leaves the section, and *gives* it a [`Grant`]. What a grant means is the primitive's
//! business: "the permit is yours" (a semaphore) or "look again" (a channel).
//!
//! # Why it is hard
//! A place in a list is memory in the waiter's own frame, so waiting allocates nothing and a list has no bound. The
//! frame must outlast the place. But a waiter may also be cancelled, run into its deadline or wake for no reason, all
//! while a granter has it in its hands.
//!
//! # Protocol
//! Waiter: 1. in the section: cannot go on, enters the list. 2. Waits for its grant. 3. Cancelled or late: enters the
//! section again. Still in the list: it takes itself off and fails. Not in the list any more: a grant is on its way; it
//! **waits for it**, and has succeeded.
//!
//! Granter: 4. in the section: takes the first off. 5. Outside: gives the grant. For a fiber that is the one exchange
//! in its state word (`fiber/state`), after which the granter touches neither the place nor, unless it has won it, the
//! fiber. For a thread it is a store to the place, then a signal to the thread's parker, which the granter holds a
//! counted reference to.
//!
//! So each place that was taken off gets exactly one grant, each waiter leaves with its grant or with its place, and
//! nothing is given to someone who has left (`fiber/state`'s model `loom_a_grant_comes_once`; the races in
//! `tests/sync.rs`). No reference is counted for a waiting fiber: it lives because it waits.
//!
//! # Rejected
//! Counted wakers in a `VecDeque`: two more atomic operations a wait, an allocation, and removal from the middle. A
//! `std` mutex around the state: see [`Spin`].

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::pin::{Pin, pin};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::spin::Spin;
use crate::block::{self, ThreadEntry};
use crate::cancel::Interrupt;
use crate::fiber::state::Brings;
use crate::fiber::{self, Header, Reason};

/// A state and `LISTS` lists of waiters.
pub(super) struct Monitor<S, const LISTS: usize = 1>(Spin<Inside<S, LISTS>>);

/// What a critical section sees.
pub(super) struct Inside<S, const LISTS: usize> {
    pub(super) state: S,
    lists: [List; LISTS],
}

/// Where in a list a waiter enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind all others.
    Back,
    /// Before all others: it has been granted a look already, and lost.
    Front,
}

struct List {
    first: *const Node,
    last: *const Node,
}

/// A waiter's place. All but `granted` is written under the monitor's lock, by whoever has it.
struct Node {
    who: Who,
    place: Place,
    before: Cell<*const Node>,
    after: Cell<*const Node>,
    queued: Cell<bool>,
    /// A thread's grant.
    granted: AtomicBool,
    _in_place: PhantomPinned,
}

enum Who {
    Fiber(NonNull<Header>),
    Thread(Arc<ThreadEntry>),
}

// SAFETY: the pointers are followed under the monitor's lock only, and lead to places that stay until taken off.
unsafe impl Send for List {}

/// The right and the duty to let one waiter go on. Without [`Grant::give`] it waits for ever.
#[must_use]
pub(super) struct Grant(Granted);

enum Granted {
    Fiber(NonNull<Header>),
    Thread(NonNull<Node>, Arc<ThreadEntry>),
}

impl<S, const LISTS: usize> Monitor<S, LISTS> {
    pub(super) const fn new(state: S) -> Self {
        let lists = [const { List { first: ptr::null(), last: ptr::null() } }; LISTS];
        Self(Spin::new(Inside { state, lists }))
    }

    /// Any thread. A critical section: short, no user code.
    #[inline]
    pub(super) fn with<R>(&self, section: impl FnOnce(&mut Inside<S, LISTS>) -> R) -> R {
        self.0.with(section)
    }

    /// Any thread or fiber; may suspend. What `section` gives, or `None` after a wait in `list` that a grant ended.
    /// With `heed`, cancellation and deadline end the wait too.
    #[inline(always)]
    pub(super) fn wait_unless<R>(
        &self,
        (list, place): (usize, Place),
        heed: bool,
        section: impl FnOnce(&mut Inside<S, LISTS>) -> Option<R>,
    ) -> Result<Option<R>, Interrupt> {
        self.wait_after((list, place), heed, section, || ())
    }

    /// [`Self::wait_unless`]; `then` runs when the place is taken and the lock left, before the wait.
    #[inline(always)]
    pub(super) fn wait_after<R>(
        &self,
        (list, place): (usize, Place),
        heed: bool,
        section: impl FnOnce(&mut Inside<S, LISTS>) -> Option<R>,
        then: impl FnOnce(),
    ) -> Result<Option<R>, Interrupt> {
        let fiber = block::suspendable();
        let who = fiber.map_or_else(|| Who::Thread(block::this_thread()), |header| Who::Fiber(header.into()));
        let node = pin!(Node::new(who, place));
        let node = node.as_ref();
        let decided = self.with(|inside| {
            let decided = section(inside);
            if decided.is_none() {
                inside.lists[list].enter(node);
            }
            decided
        });
        if decided.is_some() {
            return Ok(decided);
        }
        // From here on nothing unwinds until the place is off the list and its grant, if there is one, has come.
        then();
        self.wait(list, node, fiber, heed).map(|()| None)
    }

    /// Steps 2 and 3.
    #[inline(always)]
    fn wait(&self, list: usize, node: Pin<&Node>, fiber: Option<&Header>, heed: bool) -> Result<(), Interrupt> {
        let waited = match fiber {
            Some(header) => {
                let granted = || header.take(Brings::Grant).then_some(());
                block::until_on_fiber(header, Reason::Sync, heed, None, granted)
            }
            None => Self::wait_on_thread(node, heed),
        };
        match waited {
            Ok(()) => Ok(()),
            Err(interrupt) => self.give_up(list, node, fiber, interrupt),
        }
    }

    #[cold]
    fn wait_on_thread(node: Pin<&Node>, heed: bool) -> Result<(), Interrupt> {
        let granted = || node.granted.load(Ordering::Acquire).then_some(());
        block::until(Reason::Sync, None, heed, None, granted)
    }

    /// Step 3.
    #[cold]
    fn give_up(
        &self,
        list: usize,
        node: Pin<&Node>,
        fiber: Option<&Header>,
        interrupt: Interrupt,
    ) -> Result<(), Interrupt> {
        if self.with(|inside| inside.lists[list].leave(node)) {
            return Err(interrupt);
        }
        match fiber {
            Some(header) => {
                let granted = || header.take(Brings::Grant).then_some(());
                block::until_on_fiber(header, Reason::Sync, false, None, granted)
            }
            None => Self::wait_on_thread(node, false),
        }
    }
}

impl<S, const LISTS: usize> Inside<S, LISTS> {
    /// The first waiter of a list, taken off it: the caller gives the grant when it has left the section.
    #[inline]
    pub(super) fn take_first(&mut self, list: usize) -> Option<Grant> {
        self.lists[list].take_first()
    }

    /// How the first waiter of a list came to be there.
    #[inline]
    pub(super) fn first(&self, list: usize) -> Option<Place> {
        // SAFETY: in the list, so in place; under the lock.
        unsafe { self.lists[list].first.as_ref() }.map(|node| node.place)
    }
}

impl Node {
    fn new(who: Who, place: Place) -> Self {
        Self {
            who,
            place,
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
            queued: Cell::new(false),
            granted: AtomicBool::new(false),
            _in_place: PhantomPinned,
        }
    }
}

impl List {
    #[inline]
    fn enter(&mut self, node: Pin<&Node>) {
        let (before, after) = match node.place {
            Place::Back => (self.last, ptr::null()),
            Place::Front => (ptr::null(), self.first),
        };
        node.before.set(before);
        node.after.set(after);
        node.queued.set(true);
        self.link(before, after, &raw const *node, &raw const *node);
    }

    /// Makes what is before and after a place point to these.
    #[inline]
    fn link(&mut self, before: *const Node, after: *const Node, next: *const Node, previous: *const Node) {
        // SAFETY: neighbours are in the list, so in place; under the lock.
        match unsafe { before.as_ref() } {
            Some(before) => before.after.set(next),
            None => self.first = next,
        }
        // SAFETY: as above.
        match unsafe { after.as_ref() } {
            Some(after) => after.before.set(previous),
            None => self.last = previous,
        }
    }

    /// Takes a place off; false if it is off already.
    #[inline]
    fn leave(&mut self, node: Pin<&Node>) -> bool {
        let queued = node.queued.replace(false);
        if queued {
            self.link(node.before.get(), node.after.get(), node.after.get(), node.before.get());
        }
        queued
    }

    #[inline]
    fn take_first(&mut self) -> Option<Grant> {
        let first = NonNull::new(self.first.cast_mut())?;
        // SAFETY: in the list, so in place until its grant has come.
        let node = unsafe { Pin::new_unchecked(first.as_ref()) };
        self.leave(node);
        Some(Grant(match &node.who {
            Who::Fiber(header) => Granted::Fiber(*header),
            Who::Thread(entry) => Granted::Thread(first, entry.clone()),
        }))
    }
}

impl Grant {
    /// Any thread, outside the section.
    #[inline]
    pub(super) fn give(self) {
        match self.0 {
            Granted::Fiber(header) => {
                // SAFETY: the fiber waits for this grant, so it is alive until `wake_with` has given it.
                let header = unsafe { header.as_ref() };
                fiber::wake_with(header, Brings::Grant, fiber::current_worker());
            }
            Granted::Thread(node, entry) => {
                // SAFETY: the thread waits for this store, the last touch of its place.
                unsafe { node.as_ref() }.granted.store(true, Ordering::Release);
                block::Waker::Thread(entry).wake();
            }
        }
    }
}
