//! A waiter's place in a wait queue, as memory: of a fiber it lies in its header, beside all else that a waker touches.
//! The queue itself, its lock and its protocol are `sync/wait_queue`.

use std::cell::Cell;
use std::ptr;

/// Where in a list a waiter enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Behind all others.
    Back,
    /// Before all others: it has been granted a look already, and lost.
    Front,
}

/// A waiter's place. Touched under the wait queue's lock, and by the waiter while it is in no list.
///
/// Of one that the list knows as alone `queued` is false, for nobody comes to change it when it is taken off: it is in
/// the list as long as it is the first. `after` is null and `place` right, for when it is joined.
pub(crate) struct Waiter {
    pub(crate) before: Cell<*const Waiter>,
    pub(crate) after: Cell<*const Waiter>,
    pub(crate) place: Cell<Place>,
    pub(crate) queued: Cell<bool>,
    /// It is a [`ThreadWaiter`]'s; else it is in a fiber's header.
    pub(crate) on_thread: bool,
}

impl Waiter {
    /// In no list.
    pub(crate) fn of_fiber() -> Self {
        Self {
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
            place: Cell::new(Place::Back),
            queued: Cell::new(false),
            on_thread: false,
        }
    }
}
