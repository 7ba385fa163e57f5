//! The watchers of a source: selects that wait for it, among other things, and what they lend to a peer.
//!
//! A list is part of the source's state and used under the source's lock; the selects that it returns are woken
//! outside it. A watcher of a rendezvous channel carries a value: a sender's is there when it enters and is taken by
//! the receiver that claims it; a receiver's is put there by the sender that claims it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::atomics::claim::Claim;
use crate::sched::wait::Waker;

/// One wait of a select; shared with the lists that it is in. `W` wakes the waiter.
#[derive(Debug)]
pub(crate) struct Selector<W = Waker> {
    pub(super) claim: Claim,
    pub(super) waker: W,
}

struct Watcher<T, W> {
    selector: Arc<Selector<W>>,
    /// Which of the select's operations it is.
    branch: usize,
    value: Option<T>,
}

/// A list of watchers, in the order in which they entered.
pub(crate) struct Watchers<T = (), W = Waker>(VecDeque<Watcher<T, W>>);

/// Watchers taken off their list, to be notified outside the lock.
#[must_use]
pub(crate) struct Notices<T = (), W = Waker>(VecDeque<Watcher<T, W>>);

impl<W> Selector<W> {
    pub(super) fn new(waker: W) -> Self {
        Self { claim: Claim::new(), waker }
    }
}

impl Selector {
    /// Wakes the waiter, whose wait the caller has ended.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

impl<T, W> Watchers<T, W> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds operation `branch` of a select.
    pub(crate) fn enter(&mut self, selector: &Arc<Selector<W>>, branch: usize, value: Option<T>) {
        self.0.push_back(Watcher { selector: selector.clone(), branch, value });
    }

    /// Removes it, if it is still there, and returns its value.
    pub(crate) fn leave(&mut self, selector: &Arc<Selector<W>>, branch: usize) -> Option<T> {
        let is_it = |w: &Watcher<T, W>| w.branch == branch && Arc::ptr_eq(&w.selector, selector);
        let place = self.0.iter().position(is_it)?;
        self.0.remove(place)?.value
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all off, because something has changed: each must look, for whoever looks first may not take it.
    #[inline]
    pub(crate) fn take(&mut self) -> Notices<T, W> {
        Notices(std::mem::take(&mut self.0))
    }

    /// Ends the wait of one watcher whose value must stay, and returns it for its waking; `None` after all. Called
    /// until then, under a lock of its own each time.
    pub(crate) fn notify_one(&mut self) -> Option<Arc<Selector<W>>> {
        self.0.iter().find(|w| w.selector.claim.notify()).map(|w| w.selector.clone())
    }

    /// Returns whether a select other than `selector` waits here.
    pub(crate) fn any_other(&self, selector: &Arc<Selector<W>>) -> bool {
        self.0.iter().any(|w| !Arc::ptr_eq(&w.selector, selector) && w.selector.claim.is_open())
    }

    /// Claims the first that waits, to receive `value`, and returns it for its waking.
    pub(crate) fn give(&mut self, value: &mut Option<T>) -> Option<Arc<Selector<W>>> {
        let watcher = self.claim_first()?;
        watcher.value = value.take();
        Some(watcher.selector.clone())
    }

    /// Claims the first that waits, takes its value, and returns it for its waking.
    pub(crate) fn receive(&mut self) -> Option<(T, Arc<Selector<W>>)> {
        let watcher = self.claim_first()?;
        let value = watcher.value.take()?;
        Some((value, watcher.selector.clone()))
    }

    fn claim_first(&mut self) -> Option<&mut Watcher<T, W>> {
        self.0.iter_mut().find(|w| w.selector.claim.claim(w.branch))
    }
}

impl<T, W> Notices<T, W> {
    /// Ends the waits of all that still wait, and calls `wake` for these.
    pub(super) fn end(self, wake: impl Fn(&Selector<W>)) {
        for watcher in self.0 {
            if watcher.selector.claim.notify() {
                wake(&watcher.selector);
            }
        }
    }
}

impl<T> Notices<T> {
    /// Has all of them look again.
    #[inline]
    pub(crate) fn give(self) {
        if !self.0.is_empty() {
            self.end(Selector::wake);
        }
    }
}
