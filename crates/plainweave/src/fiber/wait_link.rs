//! A waiter's place in a wait queue. A fiber's place lies in its header, beside all else that a
//! waker touches. The queue itself, its lock and its protocol are in `sync/wait_queue`.

#![deny(unsafe_code)]

use std::cell::Cell;
use std::ptr;

/// Where a waiter enters a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// Behind all others.
    Back,
    /// Before all others: it was woken before, and another took what it was woken for.
    Front,
}

/// A waiter's place. Touched under the wait queue's lock, by the waiter while it is in no list, and
/// by a granter that has taken it off a list until it gives the grant.
///
/// For a waiter that the list knows to be alone, `queued` is false, because nothing updates it when
/// the waiter is taken off: it is in the list as long as it is the first. `after` is null and
/// `place` is right, for when another waiter joins.
pub(crate) struct Waiter {
    pub(crate) before: Cell<*const Waiter>,
    pub(crate) after: Cell<*const Waiter>,
    pub(crate) place: Cell<QueueEnd>,
    /// What the primitive wants to know of the waiter, or the waiter of its grant.
    pub(crate) tag: Cell<u32>,
    pub(crate) queued: Cell<bool>,
    /// Whether it belongs to a thread (`sync/wait_queue`); otherwise it is in a fiber's header.
    pub(crate) on_thread: bool,
}

impl Waiter {
    /// Creates a fiber's place, in no list.
    pub(crate) fn of_fiber() -> Self {
        Self {
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
            place: Cell::new(QueueEnd::Back),
            tag: Cell::new(0),
            queued: Cell::new(false),
            on_thread: false,
        }
    }
}
