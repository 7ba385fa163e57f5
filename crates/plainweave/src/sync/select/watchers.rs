//! The watchers of a source: selects that wait for it, among other things, and what they lend to a peer.
//!
//! A list is part of the source's state and used under the source's lock; the selects that it returns are woken
//! outside it. A watcher of a rendezvous channel carries a value: a sender's is there when it enters and is taken by
//! the receiver that claims it; a receiver's is put there by the sender that claims it.
//!
//! A watcher whose wait has ended leaves by itself, some time later. Until then it is kept apart from those that wait:
//! if each peer had to pass it, serving N watchers would take N * N steps. They leave about in the order in which they
//! were served, so each finds itself near the front.

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

/// A list of watchers.
pub(crate) struct Watchers<T = (), W = Waker> {
    /// In the order in which they entered. The waits of some may have been ended by other sources.
    waiting: VecDeque<Watcher<T, W>>,
    /// Those whose waits have ended, with the values that they lend or were given, until they leave.
    ended: VecDeque<Watcher<T, W>>,
    /// How many have been looked at.
    #[cfg(test)]
    looks: usize,
}

/// Watchers taken off their list, to be notified outside the lock.
#[must_use]
pub(crate) struct Notices<T = (), W = Waker> {
    /// The only one, which is the usual case. The list keeps its memory then.
    only: Option<Notice<W>>,
    /// All of them, if there are several.
    several: VecDeque<Watcher<T, W>>,
}

/// A select, and the operation at whose source something has changed.
struct Notice<W> {
    selector: Arc<Selector<W>>,
    branch: usize,
}

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
        Self {
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Adds operation `branch` of a select.
    pub(crate) fn enter(&mut self, selector: &Arc<Selector<W>>, branch: usize, value: Option<T>) {
        self.waiting.push_back(Watcher { selector: selector.clone(), branch, value });
    }

    /// Removes it, if it is still there, and returns its value.
    pub(crate) fn leave(&mut self, selector: &Arc<Selector<W>>, branch: usize) -> Option<T> {
        // Its wait is over, so most likely it was ended here.
        let is_it = |w: &Watcher<T, W>| w.branch == branch && Arc::ptr_eq(&w.selector, selector);
        for list in [&mut self.ended, &mut self.waiting] {
            let place = list.iter().position(is_it);
            #[cfg(test)]
            {
                self.looks += place.map_or(list.len(), |place| place + 1);
            }
            if let Some(place) = place {
                return list.remove(place)?.value;
            }
        }
        None
    }

    /// Returns whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes all off, because something has changed: each must look, for whoever looks first may not take it.
    #[inline]
    pub(crate) fn take(&mut self) -> Notices<T, W> {
        if self.waiting.len() > 1 {
            return Notices { only: None, several: std::mem::take(&mut self.waiting) };
        }
        let notice = |Watcher { selector, branch, .. }| Notice { selector, branch };
        Notices { only: self.waiting.pop_front().map(notice), several: VecDeque::new() }
    }

    /// Ends the wait of one watcher whose value must stay, and returns it for its waking; `None` after all. Called
    /// until then, under a lock of its own each time.
    pub(crate) fn notify_one(&mut self) -> Option<Arc<Selector<W>>> {
        self.end_first(|w| w.selector.claim.notify(w.branch)).map(|w| w.selector.clone())
    }

    /// Returns whether a select other than `selector` waits here.
    pub(crate) fn any_other(&self, selector: &Arc<Selector<W>>) -> bool {
        self.waiting.iter().any(|w| !Arc::ptr_eq(&w.selector, selector) && w.selector.claim.is_open())
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
        self.end_first(|w| w.selector.claim.claim(w.branch))
    }

    /// Ends the wait of the first that waits, by `end`, which fails if the wait is over already.
    fn end_first(&mut self, end: impl Fn(&Watcher<T, W>) -> bool) -> Option<&mut Watcher<T, W>> {
        while let Some(watcher) = self.waiting.pop_front() {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let ended = end(&watcher);
            self.ended.push_back(watcher);
            if ended {
                return self.ended.back_mut();
            }
        }
        None
    }
}

impl<T, W> Notices<T, W> {
    /// Ends the waits of all that still wait, and calls `wake` for these.
    pub(super) fn end(self, wake: impl Fn(&Selector<W>)) {
        let several = self.several.into_iter().map(|Watcher { selector, branch, .. }| Notice { selector, branch });
        for Notice { selector, branch } in self.only.into_iter().chain(several) {
            if selector.claim.notify(branch) {
                wake(&selector);
            }
        }
    }
}

impl<T> Notices<T> {
    /// Has all of them look again.
    #[inline]
    pub(crate) fn give(self) {
        self.end(Selector::wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MANY: usize = 1000;

    fn many() -> (Watchers<u32, ()>, Vec<Arc<Selector<()>>>) {
        let mut list = Watchers::new();
        let selectors: Vec<_> = (0..MANY).map(|_| Arc::new(Selector::new(()))).collect();
        for (n, selector) in selectors.iter().enumerate() {
            selector.claim.open();
            list.enter(selector, 7, Some(n as u32));
        }
        (list, selectors)
    }

    #[test]
    fn each_is_looked_at_a_few_times_however_many_are_served() {
        let (mut list, selectors) = many();
        for (n, selector) in selectors.iter().enumerate() {
            let served = list.give(&mut Some(MANY as u32 + n as u32)).expect("it waits");
            assert!(Arc::ptr_eq(&served, selector), "in the order in which they came");
        }
        assert!(list.give(&mut Some(0)).is_none());
        for (n, selector) in selectors.iter().enumerate() {
            assert_eq!(list.leave(selector, 7), Some((MANY + n) as u32));
        }
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }

    #[test]
    fn those_that_other_sources_have_ended_are_passed_once_and_keep_their_values() {
        let (mut list, selectors) = many();
        let (last, others) = selectors.split_last().expect("some");
        others.iter().for_each(|selector| assert!(selector.claim.notify(7)));
        let (value, served) = list.receive().expect("the last waits");
        assert!(value == MANY as u32 - 1 && Arc::ptr_eq(&served, last));
        (0..MANY).for_each(|_| assert!(list.receive().is_none()));
        for (n, selector) in others.iter().enumerate() {
            assert_eq!(list.leave(selector, 7), Some(n as u32));
        }
        assert_eq!(list.leave(last, 7), None);
        assert!(list.leave(last, 7).is_none() && list.ended.is_empty() && list.waiting.is_empty());
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }

    #[test]
    fn all_are_notified_in_as_many_steps() {
        let (mut list, selectors) = many();
        while let Some(notified) = list.notify_one() {
            assert!(!notified.claim.is_open());
        }
        for (n, selector) in selectors.iter().enumerate() {
            assert_eq!(list.leave(selector, 7), Some(n as u32));
        }
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }
}
