//! What every primitive here is made of: a small state under a spin lock, and lists of those who wait for it to change.
//!
//! # Concepts
//! Who cannot go on enters a list in the very critical section in which it saw that it cannot. Who changes the state
//! takes the first off its list, leaves the section, and *gives* it a [`Grant`]. What a grant means is the primitive's
//! business: "the permit is yours" (a semaphore) or "look again" (a channel).
//!
//! # Why it is hard
//! A place in a list is memory of the waiter's own, so waiting allocates nothing and a list has no bound: of a fiber
//! it lies in its header, beside all else that a waker touches, for each line of memory that another core has changed
//! takes as long to come as a switch; of a thread it lies in its frame. The place must outlast its time in the list.
//! But a waiter may also be cancelled, run into its deadline or wake for no reason, all while a granter has it in its
//! hands.
//!
//! # Protocol
//! Waiter: 1. in the section: cannot go on, enters the list. 2. Waits for its grant. 3. Cancelled or late: enters the
//! section again. Still in the list: it takes itself off and fails. Not in the list any more: a grant is on its way; it
//! **waits for it**, and has succeeded.
//!
//! Granter: 4. in the section: takes the first off. 5. Outside: gives the grant. For a fiber that is the one exchange
//! in its state word (`atomics/state`), after which the granter touches neither the place nor, unless it has won it,
//! the fiber. For a thread it is a store to the place, then a signal to the thread's parker, which the granter holds a
//! counted reference to.
//!
//! So each place that was taken off gets exactly one grant, each waiter leaves with its grant or with its place, and
//! nothing is given to someone who has left (`atomics/state`'s model `loom_a_grant_comes_once`; the races in
//! `tests/sync.rs`). No reference is counted for a waiting fiber: it lives because it waits. It has one place, for it
//! waits for one thing at a time.
//!
//! *Alone.* Mostly one waits, and it is a fiber that stays with its worker. Then the list says so (`home`), and to take
//! it off changes nothing in its place; the granter sends the worker a message (`queue/mpsc`), so the fiber's memory
//! stays with that worker's core. (Not if the granter is a plain thread, or belongs to another runtime, or there is no
//! room for the message: then it wakes the fiber as any other.) Who enters next tells the first one's place that it is
//! in a list; from then on, until the list is empty again, they are all taken off in the ordinary way.
//!
//! # Rejected
//! Counted wakers in a `VecDeque`: two more atomic operations a wait, an allocation, and removal from the middle. A
//! `std` mutex around the state: see [`SpinLock`].

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::atomics::spin_lock::SpinLock;
use crate::atomics::state::WakePayload;
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::{Place, Waiter};
use crate::fiber::{Header, Reason};
use crate::prefetch::prefetch_write;
use crate::sched::pool::WorkerShared;
use crate::sched::wait::{self, ThreadEntry};
use crate::sched::wake;

/// A state and `LISTS` lists of waiters.
pub(super) struct WaitQueue<S, const LISTS: usize = 1>(SpinLock<Locked<S, LISTS>>);

/// What a critical section sees.
pub(super) struct Locked<S, const LISTS: usize> {
    pub(super) state: S,
    lists: [List; LISTS],
}

/// Who waits. Of the first one `before` means nothing, so that taking it off touches no other.
struct List {
    first: *const Waiter,
    last: *const Waiter,
    /// The worker of who entered an empty list and is still alone in it, if it is a fiber that stays: see *alone*
    /// above. Else null; of an empty list it means nothing.
    home: *const WorkerShared,
    /// How that one came to be there, so that nobody has to ask it.
    place: Place,
}

/// Who calls, with its place.
enum Caller<'a> {
    Fiber(&'a Header),
    Thread(ThreadWaiter),
}

/// A thread's place.
#[repr(C)]
struct ThreadWaiter {
    waiter: Waiter,
    granted: AtomicBool,
    entry: Arc<ThreadEntry>,
}

// SAFETY: the pointers are followed under the wait queue's lock only, and lead to places that stay until taken off.
unsafe impl Send for List {}

/// The right and the duty to let one waiter go on. Without [`Grant::give`] it waits for ever.
#[must_use]
pub(super) struct Grant(Granted);

enum Granted {
    Fiber(NonNull<Header>, *const WorkerShared),
    Thread(NonNull<ThreadWaiter>, Arc<ThreadEntry>),
}

impl<S, const LISTS: usize> WaitQueue<S, LISTS> {
    pub(super) const fn new(state: S) -> Self {
        let lists =
            [const { List { first: ptr::null(), last: ptr::null(), home: ptr::null(), place: Place::Back } }; LISTS];
        Self(SpinLock::new(Locked { state, lists }))
    }

    /// Any thread. A critical section: short, no user code.
    #[inline(always)]
    pub(super) fn with<R>(&self, section: impl FnOnce(&mut Locked<S, LISTS>) -> R) -> R {
        self.0.with(section)
    }

    /// Any thread or fiber; may suspend. What `section` gives, or `None` after a wait in `list` that a grant ended.
    /// With `heed`, cancellation and deadline end the wait too.
    #[inline(always)]
    pub(super) fn wait_unless<R>(
        &self,
        (list, place): (usize, Place),
        heed: bool,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
    ) -> Result<Option<R>, Interrupt> {
        self.wait_after((list, place), heed, section, || ())
    }

    /// [`Self::wait_unless`]; `then` runs when the place is taken and the lock left, before the wait.
    #[inline(always)]
    pub(super) fn wait_after<R>(
        &self,
        (list, place): (usize, Place),
        heed: bool,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
        then: impl FnOnce(),
    ) -> Result<Option<R>, Interrupt> {
        let caller = wait::suspendable().map_or_else(|| Caller::Thread(ThreadWaiter::new()), Caller::Fiber);
        let (waiter, home) = match &caller {
            Caller::Fiber(header) if header.pins() => (header.waiter(), ptr::from_ref(header.worker().shared())),
            Caller::Fiber(header) => (header.waiter(), ptr::null()),
            Caller::Thread(node) => (ptr::from_ref(node).cast(), ptr::null()),
        };
        let decided = self.with(|locked| {
            let decided = section(locked);
            if decided.is_none() {
                // SAFETY: the caller's own, which stays where it is until it is off the list.
                unsafe { locked.lists[list].enter(waiter, place, home) };
            }
            decided
        });
        if decided.is_some() {
            return Ok(decided);
        }
        // From here on nothing unwinds until the place is off the list and its grant, if there is one, has come.
        then();
        let waited = match &caller {
            Caller::Fiber(header) => Self::wait_on_fiber(header, heed),
            Caller::Thread(node) => Self::wait_on_thread(node, heed),
        };
        let Err(interrupt) = waited else { return Ok(None) };
        self.give_up(list, waiter, interrupt, || match &caller {
            Caller::Fiber(header) => Self::wait_on_fiber(header, false),
            Caller::Thread(node) => Self::wait_on_thread(node, false),
        })?;
        Ok(None)
    }

    /// Step 2.
    #[inline(always)]
    fn wait_on_fiber(header: &Header, heed: bool) -> Result<(), Interrupt> {
        let granted = || header.take(WakePayload::Grant).then_some(());
        wait::until_on_fiber(header, Reason::Sync, heed, None, granted)
    }

    #[cold]
    fn wait_on_thread(node: &ThreadWaiter, heed: bool) -> Result<(), Interrupt> {
        let granted = || node.granted.load(Ordering::Acquire).then_some(());
        wait::until(Reason::Sync, None, heed, None, granted)
    }

    /// Step 3. `again` waits for the grant alone.
    #[cold]
    fn give_up(
        &self,
        list: usize,
        waiter: *const Waiter,
        interrupt: Interrupt,
        again: impl FnOnce() -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        // SAFETY: the caller's own; under the lock.
        if self.with(|locked| locked.lists[list].leave(unsafe { &*waiter })) { Err(interrupt) } else { again() }
    }
}

impl<S, const LISTS: usize> Locked<S, LISTS> {
    /// The first waiter of a list, taken off it: the caller gives the grant when it has left the section.
    #[inline]
    pub(super) fn take_first(&mut self, list: usize) -> Option<Grant> {
        self.lists[list].take_first()
    }

    /// How the first waiter of a list came to be there.
    #[inline]
    pub(super) fn first(&self, list: usize) -> Option<Place> {
        let list = &self.lists[list];
        // SAFETY: in the list, so in place; under the lock.
        let first = unsafe { list.first.as_ref() };
        first.map(|waiter| if list.home.is_null() { waiter.place.get() } else { list.place })
    }
}

impl ThreadWaiter {
    #[cold]
    fn new() -> Self {
        let waiter = Waiter { on_thread: true, ..Waiter::of_fiber() };
        Self { waiter, granted: AtomicBool::new(false), entry: wait::this_thread() }
    }
}

impl List {
    /// # Safety
    /// The place is in no list, and stays until it is off this one. `home` is null or the worker of a fiber that stays,
    /// whose place it is.
    #[inline]
    unsafe fn enter(&mut self, waiter: *const Waiter, place: Place, home: *const WorkerShared) {
        // SAFETY: the caller's promise; under the lock.
        let new = unsafe { &*waiter };
        new.place.set(place);
        if self.first.is_null() {
            new.queued.set(home.is_null());
            new.after.set(ptr::null());
            (self.first, self.last, self.home, self.place) = (waiter, waiter, home, place);
            return;
        }
        if !self.home.is_null() {
            self.home = ptr::null();
            // SAFETY: in the list, so in place; under the lock.
            unsafe { &*self.first }.queued.set(true);
        }
        new.queued.set(true);
        let (before, after) = match place {
            Place::Back => (self.last, ptr::null()),
            Place::Front => (ptr::null(), self.first),
        };
        new.before.set(before);
        new.after.set(after);
        self.link(before, after, waiter, waiter);
    }

    /// Makes what is before and after a place point to these.
    #[inline]
    fn link(&mut self, before: *const Waiter, after: *const Waiter, next: *const Waiter, previous: *const Waiter) {
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
    fn leave(&mut self, waiter: &Waiter) -> bool {
        if ptr::eq(self.first, waiter) && !self.home.is_null() {
            (self.first, self.last) = (ptr::null(), ptr::null());
            return true;
        }
        let queued = waiter.queued.replace(false);
        if queued {
            let before = if ptr::eq(self.first, waiter) { ptr::null() } else { waiter.before.get() };
            self.link(before, waiter.after.get(), waiter.after.get(), before);
        }
        queued
    }

    #[inline]
    fn take_first(&mut self) -> Option<Grant> {
        let waiter = self.first;
        if waiter.is_null() {
            return None;
        }
        if !self.home.is_null() {
            (self.first, self.last) = (ptr::null(), ptr::null());
            // SAFETY: a waiting fiber's, which has not ended.
            return Some(Grant(Granted::Fiber(unsafe { Header::of_waiter(waiter) }, self.home)));
        }
        // All that is to be changed of a fiber is in the same line.
        prefetch_write(waiter);
        // SAFETY: in the list, so in place until its grant has come.
        let first = unsafe { &*waiter };
        first.queued.set(false);
        self.first = first.after.get();
        if self.first.is_null() {
            self.last = ptr::null();
        }
        Some(Grant(if first.on_thread {
            let node = waiter.cast::<ThreadWaiter>();
            // SAFETY: the first field of one, and entered with the right to all of it.
            Granted::Thread(NonNull::from(unsafe { &*node }), unsafe { (*node).entry.clone() })
        } else {
            // SAFETY: a waiting fiber's, which has not ended.
            Granted::Fiber(unsafe { Header::of_waiter(waiter) }, ptr::null())
        }))
    }
}

impl Grant {
    /// Any thread, outside the section.
    #[inline]
    pub(super) fn give(self) {
        match self.0 {
            // SAFETY: the fiber waits for this grant; if its worker is given, it stays there.
            Granted::Fiber(header, home) => unsafe { wake::grant(header, home) },
            Granted::Thread(node, entry) => {
                // SAFETY: the thread waits for this store, the last touch of its place.
                unsafe { node.as_ref() }.granted.store(true, Ordering::Release);
                wait::Waker::Thread(entry).wake();
            }
        }
    }
}
