//! The watchers of a source: selects that wait for it, among other things, and what they lend to a
//! peer.
//!
//! A list is part of the source's state and used under the source's lock; the selects whose waits
//! it ends are woken outside it. A watcher of a rendezvous channel carries a value: a sender's is
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
//!
//! # Why the lists may point to a select's frame
//! A select that waits at four sources would count four references, with two locked instructions
//! each, of which one at most is used. So its [`Selector`] lies in its own frame, uncounted.
//! * [`Selector::wait`] lends it, and does not return before all lists have been left, not even by
//!   a panic. A list is left under its lock, whether the watcher is still there or not.
//! * Others reach it through a list, under its lock, and what they keep for later is a waker, which
//!   is counted. So waits are ended under the lock: ended outside it, by whoever has taken a
//!   watcher off the list, they might be waits of a select that has gone.
//! * A fiber that is leaked at its runtime's end leaves its frame where it is, for good.

#![expect(
    unsafe_code,
    reason = "lists point to selects' frames, and may be sent with the source"
)]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use slab::Slab;

use crate::abort::abort;
use crate::atomics::claim::Claim;
use crate::sched::wait::Waker;

/// No place.
const NONE: u32 = u32::MAX;
/// Places that a list keeps when it is empty.
const KEPT: usize = 64;

/// One wait of a select; the lists that it is in point to it. `W` wakes the waiter.
#[derive(Debug)]
pub(crate) struct Selector<W = Waker> {
    pub(super) claim: Claim,
    pub(super) waker: W,
    /// How many lists it has entered and not left. The waiter's alone.
    entered: AtomicUsize,
}

/// A select, as a list knows it.
struct Waiting<W>(NonNull<Selector<W>>);

// SAFETY: what is reached through it is a shared reference to a selector, whose waker is cloned.
unsafe impl<W: Send + Sync> Send for Waiting<W> {}
// SAFETY: the same.
unsafe impl<W: Send + Sync> Sync for Waiting<W> {}

struct Watcher<T, W> {
    selector: Waiting<W>,
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

/// The wakers of those whose waits have been ended, to be used outside the lock.
#[must_use]
pub(crate) enum Notices<W = Waker> {
    /// Of the only select. This is the usual case.
    One(W),
    Several(Vec<W>),
}

impl<W> Selector<W> {
    fn new(waker: W) -> Self {
        Self {
            claim: Claim::new(),
            waker,
            entered: AtomicUsize::new(0),
        }
    }

    /// Has a wait in `body`, which leaves all lists that it enters; else the process is aborted.
    pub(super) fn wait<R>(waker: W, body: impl FnOnce(&Self) -> R) -> R {
        let selector = Self::new(waker);
        let _leaves = Leaves(&selector.entered);
        body(&selector)
    }

    /// Counts lists. No other thread does, so this takes no locked instruction.
    fn count(&self, change: isize) {
        let entered = self.entered.load(Ordering::Relaxed);
        self.entered
            .store(entered.wrapping_add_signed(change), Ordering::Relaxed);
    }
}

/// Sees to it that a selector goes only when no list leads to it.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let entered = self.0.load(Ordering::Relaxed);
        if entered > 0 {
            abort(format_args!(
                "a select ends while {entered} of its sources still know it"
            ));
        }
    }
}

impl<W> Waiting<W> {
    /// Context: under the list's lock.
    fn get(&self) -> &Selector<W> {
        // SAFETY: it has entered this list and not left it, which takes the lock that the caller
        // holds, and until then `Selector::wait` keeps it where it is.
        unsafe { self.0.as_ref() }
    }

    fn is(&self, selector: &Selector<W>) -> bool {
        ptr::eq(self.0.as_ptr(), selector)
    }
}

impl<T, W: Clone> Watcher<T, W> {
    /// Has the select look again, if it still waits, and returns its waker then.
    fn notify(&self) -> Option<W> {
        self.end(Claim::notify)
    }

    /// Ends the select's wait by its operation, if it still waits, and returns its waker then.
    fn claim(&self) -> Option<W> {
        self.end(Claim::claim)
    }

    /// Ends the select's wait by `ends`, which says whether it still waited.
    fn end(&self, ends: impl FnOnce(&Claim, usize) -> bool) -> Option<W> {
        let selector = self.selector.get();
        ends(&selector.claim, self.branch).then(|| selector.waker.clone())
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
        selector: &Selector<W>,
        branch: usize,
        value: Option<T>,
    ) -> Place {
        selector.count(1);
        let watcher = Watcher {
            selector: Waiting(NonNull::from(selector)),
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
        selector: &Selector<W>,
        branch: usize,
        place: Place,
    ) -> Option<T> {
        if place.0 == NONE {
            return None; // It has not entered.
        }
        selector.count(-1);
        self.look();
        self.places
            .get(place.0 as usize)
            .filter(|watcher| watcher.branch == branch && watcher.selector.is(selector))?;
        let value = self.remove(place.0).value;
        self.trim();

        value
    }

    /// Gives memory back that only the fullest moment has taken.
    fn trim(&mut self) {
        if self.places.is_empty() && self.places.capacity() > KEPT {
            self.places = Slab::new();
        }
    }

    /// Returns whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.first == NONE
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

    /// Returns whether a select other than `selector` waits here.
    pub(crate) fn any_other(&self, selector: &Selector<W>) -> bool {
        let mut next = self.waiting.first;
        while let Some(watcher) = self.places.get(next as usize) {
            if !watcher.selector.is(selector) && watcher.selector.get().claim.is_open() {
                return true;
            }
            next = watcher.next;
        }
        false
    }
}

impl<T, W: Clone> Watchers<T, W> {
    /// Takes all off, because something has changed: each must look, for whoever looks first may
    /// not take it. Returns the wakers of those that still wait; `None`, which is the usual case:
    /// there are none.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Notices<W>> {
        if self.is_empty() {
            return None;
        }
        if self.waiting.first == self.waiting.last {
            // The list keeps its memory. There is no value, which would be dropped under the lock:
            // where watchers lend one, they are notified one by one.
            return self.remove(self.waiting.first).notify().map(Notices::One);
        }
        Some(self.take_several())
    }

    #[cold]
    fn take_several(&mut self) -> Notices<W> {
        let mut wakers = Vec::new();
        while self.waiting.first != NONE {
            wakers.extend(self.remove(self.waiting.first).notify());
        }
        self.trim();

        Notices::Several(wakers)
    }

    /// Ends the wait of one watcher whose value must stay, and returns its waker; `None` after all.
    /// Called until then, under a lock of its own each time.
    pub(crate) fn notify_one(&mut self) -> Option<W> {
        self.end_first(Watcher::notify).map(|(_, waker)| waker)
    }

    /// Claims the first that waits, to receive `value`, and returns its waker.
    pub(crate) fn give(&mut self, value: &mut Option<T>) -> Option<W> {
        let (watcher, waker) = self.end_first(Watcher::claim)?;
        watcher.value = value.take();
        Some(waker)
    }

    /// Claims the first that waits, takes its value, and returns its waker.
    pub(crate) fn receive(&mut self) -> Option<(T, W)> {
        let (watcher, waker) = self.end_first(Watcher::claim)?;
        let value = watcher.value.take()?;
        Some((value, waker))
    }

    /// Ends the wait of the first that waits, by `end`, which fails if the wait is over already.
    fn end_first(
        &mut self,
        end: impl Fn(&Watcher<T, W>) -> Option<W>,
    ) -> Option<(&mut Watcher<T, W>, W)> {
        while self.waiting.first != NONE {
            self.look();
            let place = self.waiting.first;
            let ended = end(&self.places[place as usize]);
            self.unlink(place);
            self.append(Which::Ended, place);
            if let Some(waker) = ended {
                return Some((&mut self.places[place as usize], waker));
            }
        }
        None
    }
}

impl<W> Notices<W> {
    /// Calls `wake` with each.
    pub(super) fn each(self, wake: impl Fn(W)) {
        match self {
            Notices::One(waker) => wake(waker),
            Notices::Several(wakers) => wakers.into_iter().for_each(wake),
        }
    }
}

impl Notices {
    /// Has all of them look again.
    #[inline]
    pub(crate) fn give(self) {
        self.each(Waker::wake_and_drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MANY: usize = 1000;

    /// A list, and its watchers with their places. Their wakers are their numbers.
    struct Many {
        list: Watchers<u32, usize>,
        selectors: Vec<Selector<usize>>,
        places: Vec<Place>,
    }

    impl Many {
        fn new() -> Self {
            let mut list = Watchers::new();
            // Where they are until the end: the list points to them.
            let selectors: Vec<_> = (0..MANY).map(Selector::new).collect();
            let enter = |selector: &Selector<usize>| {
                selector.claim.open();
                list.enter(selector, 7, Some(selector.waker as u32))
            };
            let places = selectors.iter().map(enter).collect();

            Self {
                list,
                selectors,
                places,
            }
        }

        fn leave(&mut self, n: usize) -> Option<u32> {
            self.list.leave(&self.selectors[n], 7, self.places[n])
        }
    }

    #[test]
    fn each_is_looked_at_a_few_times_however_many_are_served() {
        let mut many = Many::new();
        for n in 0..MANY {
            let served = many.list.give(&mut Some((MANY + n) as u32));
            assert_eq!(served, Some(n), "in the order in which they came");
        }

        assert!(many.list.give(&mut Some(0)).is_none());
        for n in 0..MANY {
            assert_eq!(many.leave(n), Some((MANY + n) as u32));
        }
        assert!(many.list.looks <= 3 * MANY, "{} looks", many.list.looks);
    }

    #[test]
    fn those_that_other_sources_have_ended_are_passed_once_and_keep_their_values() {
        let mut many = Many::new();
        let last = MANY - 1;
        many.selectors[..last]
            .iter()
            .for_each(|selector| assert!(selector.claim.notify(7)));
        assert_eq!(many.list.receive(), Some((last as u32, last)));
        (0..MANY).for_each(|_| assert!(many.list.receive().is_none()));
        for n in 0..last {
            assert_eq!(many.leave(n), Some(n as u32));
        }
        assert_eq!(many.leave(last), None);
        assert!(many.list.places.is_empty() && many.list.is_empty());
        assert!(many.list.looks <= 3 * MANY, "{} looks", many.list.looks);
    }

    #[test]
    fn all_are_notified_in_as_many_steps() {
        let mut many = Many::new();
        while let Some(notified) = many.list.notify_one() {
            assert!(!many.selectors[notified].claim.is_open());
        }
        for n in 0..MANY {
            assert_eq!(many.leave(n), Some(n as u32));
        }
        assert!(many.list.looks <= 3 * MANY, "{} looks", many.list.looks);
    }

    /// However they leave: in reverse, and from the middle.
    #[test]
    fn one_leaves_in_one_step_wherever_it_is() {
        for order in [
            (0..MANY).rev().collect::<Vec<_>>(),
            (0..MANY).map(|n| n * 7 % MANY).collect(),
        ] {
            let mut many = Many::new();
            for n in order {
                assert_eq!(many.leave(n), Some(n as u32));
                assert_eq!(many.leave(n), None, "once");
            }

            let Many { list, .. } = &many;
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
        let mut many = Many::new();
        many.list.take().expect("some wait").each(drop);
        let other = Selector::new(MANY);
        many.list.enter(&other, 7, Some(1));
        assert_eq!(many.leave(0), None);
        let nowhere = Place::default();
        assert!(many.list.leave(&many.selectors[0], 7, nowhere).is_none());
        assert!(!many.list.is_empty());
    }

    /// Those that have ended stay, with their values, when all others are taken off.
    #[test]
    fn all_that_wait_are_taken_off_beside_those_that_have_ended() {
        let mut many = Many::new();
        assert_eq!(many.list.give(&mut Some(5000)), Some(0));
        // Another source has ended its wait: nobody is to wake it once more.
        assert!(many.selectors[1].claim.notify(3));
        let notified = std::cell::RefCell::new(Vec::new());
        let note = |n| notified.borrow_mut().push(n);
        many.list.take().expect("some wait").each(note);
        assert_eq!(notified.into_inner(), (2..MANY).collect::<Vec<_>>());

        assert_eq!(many.leave(0), Some(5000));
        assert!(many.list.places.is_empty());
    }

    #[test]
    fn the_lists_that_a_wait_has_left_are_counted() {
        let mut lists = [const { Watchers::<(), ()>::new() }; 2];
        Selector::wait((), |selector| {
            let places = [0, 1].map(|n| lists[n].enter(selector, n, None));
            assert_eq!(selector.entered.load(Ordering::Relaxed), 2);
            // It is off the list by then, and leaves it all the same.
            selector.claim.open();
            lists[0].take().expect("it waits").each(drop);
            for n in [0, 1] {
                lists[n].leave(selector, n, places[n]);
                lists[n].leave(selector, n, Place::default());
            }
            assert_eq!(selector.entered.load(Ordering::Relaxed), 0);
        });
        assert!(lists.iter().all(|list| list.places.is_empty()));
    }
}
