//! The watchers of a source: selects that wait for it, among other things, and what they lend to a
//! peer.
//!
//! A list is part of the source's state and used under the source's lock; the selects that it
//! returns are woken outside it. A watcher of a rendezvous channel carries a value: a sender's is
//! there when it enters and is taken by the receiver that claims it; a receiver's is put there by
//! the sender that claims it.
//!
//! A watcher whose wait has ended leaves by itself, some time later. Until then it is kept apart
//! from those that wait: if each peer had to pass it, serving N watchers would take N * N steps.
//!
//! Any number of selects may wait for one source (all fibers of a program for its stop, say), and
//! each enters and leaves with every wait. So both take the same few steps however many there are:
//! a watcher keeps its [`Place`] in a slab for as long as it is here, and the two lists are links
//! between places. Rejected: two `VecDeque`s, in which a watcher was searched for. Served in turn
//! each found itself near the front, but a select that watches a source beside 10,000 others passed
//! them all, under the source's lock: a ping-pong of two selects took 13 us in place of .8.

use std::sync::Arc;

use slab::Slab;

use crate::atomics::claim::Claim;
use crate::sched::wait::Waker;

/// No place.
const NONE: u32 = u32::MAX;
/// Places that a list keeps when it is empty.
const KEPT: usize = 64;

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
    list: Which,
    prev: u32,
    next: u32,
}

/// The lists that a watcher may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// In the order in which they entered. The waits of some may have been ended by other sources.
    Waiting,
    /// Those whose waits have ended, with the values that they lend or were given, until they
    /// leave.
    Ended,
}

/// Where a watcher is, for it to leave. Known from when it enters; it may be gone by then, and the
/// place another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u32);

impl Default for Place {
    /// Returns the place of a watcher that has not entered.
    fn default() -> Self {
        Self(NONE)
    }
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

/// Watchers, on two lists.
pub(crate) struct Watchers<T = (), W = Waker> {
    places: Slab<Watcher<T, W>>,
    waiting: Ends,
    ended: Ends,
    /// How many have been looked at.
    #[cfg(test)]
    looks: usize,
}

/// Watchers taken off their list, to be notified outside the lock.
#[must_use]
pub(crate) enum Notices<T = (), W = Waker> {
    /// The only select, and the operation at whose source something has changed. This is the usual
    /// case, in which the list keeps its memory.
    One(Arc<Selector<W>>, usize),
    Several(Watchers<T, W>),
}

impl<W> Selector<W> {
    pub(super) fn new(waker: W) -> Self {
        Self {
            claim: Claim::new(),
            waker,
        }
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
            places: Slab::new(),
            waiting: Ends::EMPTY,
            ended: Ends::EMPTY,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Adds operation `branch` of a select. Returns its place.
    pub(crate) fn enter(
        &mut self,
        selector: &Arc<Selector<W>>,
        branch: usize,
        value: Option<T>,
    ) -> Place {
        let watcher = Watcher {
            selector: selector.clone(),
            branch,
            value,
            list: Which::Waiting,
            prev: NONE,
            next: NONE,
        };

        let place = self.places.insert(watcher) as u32;
        self.append(Which::Waiting, place);
        Place(place)
    }

    /// Removes it, if it is still there, and returns its value.
    pub(crate) fn leave(
        &mut self,
        selector: &Arc<Selector<W>>,
        branch: usize,
        place: Place,
    ) -> Option<T> {
        let is_it = |w: &Watcher<T, W>| w.branch == branch && Arc::ptr_eq(&w.selector, selector);
        self.look();
        self.places
            .get(place.0 as usize)
            .filter(|watcher| is_it(watcher))?;
        let value = self.remove(place.0).value;
        if self.places.is_empty() && self.places.capacity() > KEPT {
            self.places = Slab::new();
        }

        value
    }

    /// Returns whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.first == NONE
    }

    /// Takes all off, because something has changed: each must look, for whoever looks first may
    /// not take it. `None`, which is the usual case: none waits.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Notices<T, W>> {
        if self.is_empty() {
            return None;
        }
        if self.waiting.first == self.waiting.last {
            let only = self.remove(self.waiting.first);
            return Some(Notices::One(only.selector, only.branch));
        }
        Some(Notices::Several(self.take_several()))
    }

    /// Takes several off: all at once, unless some that have ended must stay.
    fn take_several(&mut self) -> Self {
        if self.ended.first == NONE {
            return std::mem::replace(self, Self::new());
        }
        let mut taken = Self::new();
        while self.waiting.first != NONE {
            let Watcher {
                selector,
                branch,
                value,
                ..
            } = self.remove(self.waiting.first);
            taken.enter(&selector, branch, value);
        }

        taken
    }

    fn ends(&mut self, list: Which) -> &mut Ends {
        match list {
            Which::Waiting => &mut self.waiting,
            Which::Ended => &mut self.ended,
        }
    }

    /// Puts a watcher that is on no list at the end of one.
    fn append(&mut self, list: Which, place: u32) {
        let ends = self.ends(list);
        let last = std::mem::replace(&mut ends.last, place);
        if last == NONE {
            ends.first = place;
        } else {
            self.places[last as usize].next = place;
        }

        let watcher = &mut self.places[place as usize];
        (watcher.list, watcher.prev, watcher.next) = (list, last, NONE);
    }

    /// Takes a watcher off its list; it keeps its place.
    fn unlink(&mut self, place: u32) {
        let Watcher {
            list, prev, next, ..
        } = self.places[place as usize];
        match prev {
            NONE => self.ends(list).first = next,
            prev => self.places[prev as usize].next = next,
        }

        match next {
            NONE => self.ends(list).last = prev,
            next => self.places[next as usize].prev = prev,
        }
    }

    fn remove(&mut self, place: u32) -> Watcher<T, W> {
        self.unlink(place);
        self.places.remove(place as usize)
    }

    #[inline]
    fn look(&mut self) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }

    /// Ends the wait of one watcher whose value must stay, and returns it for its waking; `None`
    /// after all. Called until then, under a lock of its own each time.
    pub(crate) fn notify_one(&mut self) -> Option<Arc<Selector<W>>> {
        self.end_first(|w| w.selector.claim.notify(w.branch))
            .map(|w| w.selector.clone())
    }

    /// Returns whether a select other than `selector` waits here.
    pub(crate) fn any_other(&self, selector: &Arc<Selector<W>>) -> bool {
        let mut next = self.waiting.first;
        while let Some(watcher) = self.places.get(next as usize) {
            if !Arc::ptr_eq(&watcher.selector, selector) && watcher.selector.claim.is_open() {
                return true;
            }
            next = watcher.next;
        }
        false
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
        while self.waiting.first != NONE {
            self.look();
            let place = self.waiting.first;
            let ended = end(&self.places[place as usize]);
            self.unlink(place);
            self.append(Which::Ended, place);
            if ended {
                return self.places.get_mut(place as usize);
            }
        }
        None
    }
}

impl<T, W> Notices<T, W> {
    /// Ends the waits of all that still wait, and calls `wake` for these.
    pub(super) fn end(self, wake: impl Fn(&Selector<W>)) {
        let notify = |selector: &Selector<W>, branch| {
            if selector.claim.notify(branch) {
                wake(selector);
            }
        };

        let mut several = match self {
            Notices::One(selector, branch) => return notify(&selector, branch),
            Notices::Several(several) => several,
        };

        while several.waiting.first != NONE {
            let next = several.remove(several.waiting.first);
            notify(&next.selector, next.branch);
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

    type Entered = Vec<(Arc<Selector<()>>, Place)>;

    /// A list, its watchers, and their places.
    fn many() -> (Watchers<u32, ()>, Entered) {
        let mut list = Watchers::new();
        let enter = |n: usize| {
            let selector = Arc::new(Selector::new(()));
            selector.claim.open();
            let place = list.enter(&selector, 7, Some(n as u32));
            (selector, place)
        };

        let selectors = (0..MANY).map(enter).collect();
        (list, selectors)
    }

    #[test]
    fn each_is_looked_at_a_few_times_however_many_are_served() {
        let (mut list, selectors) = many();
        for (n, (selector, _)) in selectors.iter().enumerate() {
            let served = list
                .give(&mut Some(MANY as u32 + n as u32))
                .expect("it waits");
            assert!(
                Arc::ptr_eq(&served, selector),
                "in the order in which they came"
            );
        }

        assert!(list.give(&mut Some(0)).is_none());
        for (n, (selector, place)) in selectors.iter().enumerate() {
            assert_eq!(list.leave(selector, 7, *place), Some((MANY + n) as u32));
        }
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }

    #[test]
    fn those_that_other_sources_have_ended_are_passed_once_and_keep_their_values() {
        let (mut list, selectors) = many();
        let ((last, place_of_last), others) = selectors.split_last().expect("some");
        others
            .iter()
            .for_each(|(selector, _)| assert!(selector.claim.notify(7)));
        let (value, served) = list.receive().expect("the last waits");
        assert!(value == MANY as u32 - 1 && Arc::ptr_eq(&served, last));
        (0..MANY).for_each(|_| assert!(list.receive().is_none()));
        for (n, (selector, place)) in others.iter().enumerate() {
            assert_eq!(list.leave(selector, 7, *place), Some(n as u32));
        }
        assert_eq!(list.leave(last, 7, *place_of_last), None);
        assert!(
            list.leave(last, 7, *place_of_last).is_none()
                && list.places.is_empty()
                && list.is_empty()
        );
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }

    #[test]
    fn all_are_notified_in_as_many_steps() {
        let (mut list, selectors) = many();
        while let Some(notified) = list.notify_one() {
            assert!(!notified.claim.is_open());
        }
        for (n, (selector, place)) in selectors.iter().enumerate() {
            assert_eq!(list.leave(selector, 7, *place), Some(n as u32));
        }
        assert!(list.looks <= 3 * MANY, "{} looks", list.looks);
    }

    /// However they leave: in reverse, and from the middle.
    #[test]
    fn one_leaves_in_one_step_wherever_it_is() {
        for order in [
            (0..MANY).rev().collect::<Vec<_>>(),
            (0..MANY).map(|n| n * 7 % MANY).collect(),
        ] {
            let (mut list, selectors) = many();
            for n in order {
                let (selector, place) = &selectors[n];
                assert_eq!(list.leave(selector, 7, *place), Some(n as u32));
                assert_eq!(list.leave(selector, 7, *place), None, "once");
            }

            assert!(
                list.is_empty() && list.looks == 2 * MANY,
                "{} looks",
                list.looks
            );
            assert!(
                list.places.capacity() <= KEPT,
                "the memory of the fullest moment is given back"
            );
        }
    }

    /// A place that another has by now is not left.
    #[test]
    fn a_place_is_left_by_its_own_watcher_alone() {
        let (mut list, selectors) = many();
        list.take().expect("some wait").end(|_| {});
        let (first, place) = &selectors[0];
        let other = Arc::new(Selector::new(()));
        list.enter(&other, 7, Some(1));
        assert_eq!(list.leave(first, 7, *place), None);
        assert!(!list.is_empty() && list.leave(first, 7, Place::default()).is_none());
    }

    /// Those that have ended stay, with their values, when all others are taken off.
    #[test]
    fn all_that_wait_are_taken_off_beside_those_that_have_ended() {
        let (mut list, selectors) = many();
        assert!(list.give(&mut Some(5000)).is_some());
        let notified = std::cell::Cell::new(0);
        list.take()
            .expect("some wait")
            .end(|_| notified.set(notified.get() + 1));
        assert_eq!(notified.get(), MANY - 1);
        let (first, place) = &selectors[0];

        assert_eq!(list.leave(first, 7, *place), Some(5000));
        assert!(list.places.is_empty());
    }
}
