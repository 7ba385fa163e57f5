//! The building block of every primitive here: a small state under a spin lock, and lists of
//! waiters for it to change.
//!
//! # Concepts
//! A caller that cannot go on enters a list in the very critical section in which it saw that. A
//! caller that changes the state takes the first waiter off its list, leaves the section, and
//! *gives* it a [`Grant`]. The primitive defines what a grant means: "the permit is yours" (a
//! semaphore) or "try again" (a channel). A waiter may enter with a *tag*, a number for the
//! granter: how many permits it wants. A granter that takes off all waiters at once may leave them
//! another tag, which each finds with its grant: the semaphore is closed.
//!
//! # Why it is hard
//! A place in a list is memory of the waiter, so waiting allocates nothing and a list has no bound.
//! A fiber's place is in its header, beside everything else that a waker touches, because each
//! cache line that another core has changed costs as much as a switch; a thread's place is in its
//! frame. The place must outlast its time in the list. But a waiter may also be cancelled, run into
//! its deadline or wake for no reason, all while a granter is using the place.
//!
//! # Protocol
//! Waiter: 1. In the section: cannot go on, enters the list. 2. Waits for its grant. 3. Cancelled
//! or late: enters the section again. If it is still in the list, it takes itself off and fails; in
//! the same section the primitive undoes what the waiter did to the state when it entered.
//! Otherwise a grant is on its way; it **waits for it**, and has succeeded.
//!
//! Granter: 4. In the section: takes the first waiter off, or all of them, whose places stay
//! linked. 5. Outside: gives the grant (one of several after it has read the link to the next). For
//! a fiber that is the one exchange in its state word (`atomics/state`), after which the granter
//! touches neither the place nor, unless it has won the exchange, the fiber. For a thread it is a
//! store to the place, then a signal to the thread's parker, to which the granter holds a counted
//! reference.
//!
//! So each place that was taken off gets exactly one grant, each waiter leaves with its grant or
//! with its place, and no grant goes to a waiter that has left (`atomics/state`'s model
//! `loom_a_grant_comes_once`; the races in `tests/it/sync.rs`). No reference is counted for a
//! waiting fiber: it lives because it waits. It has one place, because it waits for one thing at a
//! time.
//!
//! *Alone.* Usually there is one waiter, and it is a fiber pinned to its worker. Then the list
//! records it (`home`), and taking it off changes nothing in its place; the granter sends the
//! worker a message (`queue/mpsc`), so the fiber's memory stays with that worker's core. (Not if
//! the granter is a plain thread, or belongs to another runtime, or there is no room for the
//! message: then it wakes the fiber like any other.) The next waiter to enter marks the first one's
//! place as queued; from then on, until the list is empty again, all are taken off in the ordinary
//! way. (The list is plain memory under the lock, so a property test, `tests`, checks it; a waiter
//! that gives up and a granter meet at that lock only.)
//!
//! # Rejected
//! Counted wakers in a `VecDeque`: two more atomic operations per wait, an allocation, and removal
//! from the middle. A `std` mutex around the state: see [`SpinLock`].

#![expect(
    unsafe_code,
    reason = "waiters' places lie in their headers and frames"
)]

#[cfg(all(test, not(loom)))]
mod tests;

use std::ptr::{self, NonNull};

use crate::abort::{Kind, warn_once};
#[cfg(not(all(test, loom)))]
use crate::atomics::spin_lock::SpinLock;
use crate::atomics::state::WakePayload;
use crate::fiber::cancel::Interrupt;
use crate::fiber::note::{Asker, Describe, Note, Object};
use crate::fiber::wait_link::{QueueEnd, Waiter};
use crate::fiber::{self, Header, Reason};
use crate::prefetch::prefetch_write;
use crate::sched::pool::WorkerShared;
use crate::sched::wait::{self, Interrupts, WaitSpec};
use crate::sched::wake;
use crate::shim::atomic::{AtomicBool, Ordering};

#[cfg(all(test, loom))]
use super::models::{self as threads, SpinLock};

/// What a primitive is and how it stands, for dumps. No number counts if it has no words.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) kind: &'static str,
    /// Who took it, as [`holder`] gave it, if it is held.
    pub(super) holder: Option<u32>,
    pub(super) counts: [(usize, &'static str); 3],
    /// The list whose last user is of interest to a waiter.
    pub(super) peers: usize,
}

/// A state that can be described.
pub(super) trait Primitive {
    /// Describes it to a waiter of a list.
    fn facts(&self, list: usize) -> Facts;
}

/// A list that a fiber waits in.
struct Listed<'a, S, const LISTS: usize> {
    queue: &'a WaitQueue<S, LISTS>,
    list: usize,
}

impl<S: Primitive, const LISTS: usize> Describe for Listed<'_, S, LISTS> {
    fn describe(&self, asker: &Asker, object: &mut Object) {
        let facts = |locked: &mut Locked<S, LISTS>| {
            let facts = locked.state.facts(self.list);
            (facts, locked.lists[facts.peers].user)
        };

        let (facts, user) = self.queue.with(facts);
        (object.kind, object.address, object.holder) =
            (facts.kind, ptr::from_ref(self.queue).addr(), facts.holder);
        object.unknown = 1;
        if asker.is_brief {
            return;
        }
        let counts = facts.counts.iter().filter(|(_, what)| !what.is_empty());
        let mut about: Vec<_> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();

        match user {
            _ if facts.holder.is_some() => {}
            NOBODY => {}
            THREAD => about.push("last used by a plain thread".to_owned()),
            fiber => about.push(format!("last used by fiber #{fiber}")),
        }

        object.about = about.join(", ");
    }
}

/// Returns what a lock notes of whoever takes it, for dumps: the lower half of a fiber's number, or
/// 0 for a plain thread. (Its address says less: a guard may be passed on, and the memory of a
/// fiber that has ended is another's.)
#[inline]
pub(super) fn holder() -> u32 {
    fiber::current().map_or(0, |me| me.id() as u32)
}

/// Returns the same of what [`caller`] gave.
pub(super) fn holder_of(caller: usize) -> u32 {
    if caller % 2 == 1 {
        (caller >> 1) as u32
    } else {
        0
    }
}

/// A state and `LISTS` lists of waiters.
pub(super) struct WaitQueue<S, const LISTS: usize = 1>(SpinLock<Locked<S, LISTS>>);

/// What a critical section sees.
pub(super) struct Locked<S, const LISTS: usize> {
    pub(super) state: S,
    lists: [WaitList; LISTS],
}

/// The waiters. The first one's `before` has no meaning, so that taking it off touches no other.
struct WaitList {
    first: *const Waiter,
    last: *const Waiter,
    /// The worker of the only waiter, if that is a pinned fiber that entered an empty list: see
    /// *Alone* above. Null otherwise; without meaning while the list is empty.
    home: *const WorkerShared,
    /// How the only waiter entered, so that its place need not be read.
    place: QueueEnd,
    tag: u32,
    /// The last caller that did what this list waits for without a wait: a fiber's number, or one
    /// of these.
    user: u64,
}

/// Rounds of spinning before a wait, each twice as long: 30 turns in all, about a short critical
/// section.
const SPINS: u32 = 4;

/// Nobody has.
const NOBODY: u64 = 0;
/// A plain thread has.
const THREAD: u64 = u64::MAX;

/// How a caller enters a list.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) list: usize,
    pub(super) place: QueueEnd,
    /// For the granter: see [`Locked::first_tag`].
    pub(super) tag: u32,
}

/// How a wait ended.
pub(super) enum Waited<R> {
    /// There was no wait: this is what the section gave.
    Decided(R),
    /// By a grant, with the waiter's tag, or the one that [`Locked::take_all`] left in its place.
    Granted(u32),
}

/// The caller, with its place.
enum Caller<'a> {
    Fiber(&'a Header),
    Thread(ThreadWaiter),
}

/// A plain thread's place.
#[repr(C)]
struct ThreadWaiter {
    waiter: Waiter,
    granted: AtomicBool,
    entry: threads::Entry,
}

// SAFETY: the pointers are followed under the wait queue's lock only, and lead to places that stay
// until taken off.
unsafe impl Send for WaitList {}

/// The right and the duty to wake one waiter. Without [`Grant::give`] it waits for ever.
#[must_use]
pub(super) struct Grant(Granted);

/// The waiters of a list, taken off together: the duty to give each its grant.
#[must_use]
pub(super) struct Grants {
    next: *const Waiter,
    /// As in the list.
    home: *const WorkerShared,
    count: usize,
}

enum Granted {
    Fiber(NonNull<Header>, *const WorkerShared),
    Thread(NonNull<ThreadWaiter>, threads::Entry),
}

/// Returns a number that no other fiber or plain thread has that runs now: an odd one for a fiber.
pub(super) fn caller() -> usize {
    fiber::current().map_or_else(|| threads::id() << 1, |me| (me.id() as usize) << 1 | 1)
}

impl<S: Primitive, const LISTS: usize> WaitQueue<S, LISTS> {
    pub(super) const fn new(state: S) -> Self {
        Self(SpinLock::new(Locked {
            state,
            lists: [const { WaitList::new() }; LISTS],
        }))
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled(state: S) -> Self {
        Self(SpinLock::modelled(Locked {
            state,
            lists: [const { WaitList::new() }; LISTS],
        }))
    }

    /// Runs a critical section: short, no user code.
    #[inline(always)]
    pub(super) fn with<R>(&self, section: impl FnOnce(&mut Locked<S, LISTS>) -> R) -> R {
        self.0.with(section)
    }

    /// Says so, once a process, if the calling fiber is about to wait for what it has taken itself.
    /// `me`: [`holder`].
    pub(super) fn warn_of_self(&self, me: u32) {
        // 0 is any thread, and no holder.
        if me != 0 && self.with(|locked| locked.state.facts(0).holder == Some(me)) {
            self.warn_of_own();
        }
    }

    #[cold]
    fn warn_of_own(&self) {
        let kind = self.with(|locked| locked.state.facts(0).kind);
        let me = fiber::current().map_or_else(String::new, |me| format!("{me:?}"));
        warn_once(
            Kind::LockedByItself,
            format_args!(
                "{me} waits for a {kind} that it has locked itself, for ever unless another fiber has the guard or \
                 cancels it (PLAINWEAVE_REPORT=deadlocks says where)"
            ),
        );
    }

    /// Returns what `section` gives. If it decides what `list` waits for, the caller is that list's
    /// last user.
    #[inline(always)]
    pub(super) fn decide<R>(
        &self,
        list: usize,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
    ) -> Option<R> {
        let me = fiber::current().map_or(THREAD, Header::id);
        self.with(|locked| {
            let decided = section(locked);
            if decided.is_some() {
                locked.lists[list].user = me;
            }
            decided
        })
    }

    /// Does the same a few times, some turns of a loop apart: a holder that runs on another core
    /// may release soon. With one worker there is none. (Nor in a model, where a late attempt
    /// differs from a first one in nothing.)
    pub(super) fn spin<R>(
        &self,
        list: usize,
        mut section: impl FnMut(&mut Locked<S, LISTS>) -> Option<R>,
    ) -> Option<R> {
        let sole = wait::suspendable().is_some_and(|header| header.worker().pool().regular() == 1);
        if sole || cfg!(all(test, loom)) {
            return None;
        }
        (0..SPINS).find_map(|round| {
            (0..2 << round).for_each(|_| std::hint::spin_loop());
            self.decide(list, &mut section)
        })
    }

    /// Returns what `section` gives, or `None` after a wait in `list` that a grant ended.
    ///
    /// # Errors
    /// An interrupt that is allowed came first.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline(always)]
    pub(super) fn wait_unless<R>(
        &self,
        (list, place): (usize, QueueEnd),
        interrupts: Interrupts,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
    ) -> Result<Option<R>, Interrupt> {
        self.wait_after((list, place), interrupts, section, || ())
    }

    /// Does the same as [`Self::wait_unless`]; `then` runs after entering the list and leaving the
    /// lock, before the wait.
    #[inline(always)]
    pub(super) fn wait_after<R>(
        &self,
        (list, place): (usize, QueueEnd),
        interrupts: Interrupts,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
        then: impl FnOnce(),
    ) -> Result<Option<R>, Interrupt> {
        match self.wait_as(
            Entry {
                list,
                place,
                tag: 0,
            },
            interrupts,
            section,
            then,
            |_| (),
        ) {
            Ok(Waited::Decided(decided)) => Ok(Some(decided)),
            Ok(Waited::Granted(_)) => Ok(None),
            Err((interrupt, ())) => Err(interrupt),
        }
    }

    /// Does the same as [`Self::wait_after`]; an interrupted waiter runs `undo` in the section in
    /// which it leaves the list, and returns what that gives with the interrupt.
    #[inline(always)]
    pub(super) fn wait_as<R, U>(
        &self,
        entry: Entry,
        interrupts: Interrupts,
        section: impl FnOnce(&mut Locked<S, LISTS>) -> Option<R>,
        then: impl FnOnce(),
        undo: impl FnOnce(&mut Locked<S, LISTS>) -> U,
    ) -> Result<Waited<R>, (Interrupt, U)> {
        let caller =
            wait::suspendable().map_or_else(|| Caller::Thread(ThreadWaiter::new()), Caller::Fiber);
        let (waiter, home) = match &caller {
            Caller::Fiber(header) if header.pins() => {
                (header.waiter(), ptr::from_ref(header.worker().shared()))
            }
            Caller::Fiber(header) => (header.waiter(), ptr::null()),
            Caller::Thread(node) => (ptr::from_ref(node).cast(), ptr::null()),
        };
        let me = if let Caller::Fiber(header) = &caller {
            header.id()
        } else {
            THREAD
        };
        let decided = self.with(|locked| {
            let decided = section(locked);
            if decided.is_none() {
                // SAFETY: the caller's own, which stays where it is until it is off the list.
                unsafe { locked.lists[entry.list].enter(waiter, entry, home) };
            } else {
                locked.lists[entry.list].user = me;
            }
            decided
        });
        if let Some(decided) = decided {
            return Ok(Waited::Decided(decided));
        }
        // From here on nothing unwinds until the place is off the list and its grant, if there is
        // one, has come.
        then();
        let listed = Listed {
            queue: self,
            list: entry.list,
        };
        let note = Note::of(&listed);
        let waited = match &caller {
            Caller::Fiber(header) => Self::wait_on_fiber(header, interrupts, &note),
            Caller::Thread(node) => Self::wait_on_thread(node, interrupts),
        };
        if let Err(interrupt) = waited {
            self.give_up(entry.list, waiter, interrupt, undo, || match &caller {
                Caller::Fiber(header) => Self::wait_on_fiber(header, Interrupts::Ignored, &note),
                Caller::Thread(node) => Self::wait_on_thread(node, Interrupts::Ignored),
            })?;
        }
        // SAFETY: the caller's own, off the list and with its grant.
        Ok(Waited::Granted(unsafe { &*waiter }.tag.get()))
    }

    /// Waits in `list` until `attempt`, which learns from where the caller comes, decides. From the
    /// back of the list a caller is woken to try again; if it has lost it enters at the front,
    /// where a grant gives it what it waits for.
    ///
    /// # Errors
    /// An interrupt that is allowed came first; with it comes what `undo` gave, as for
    /// [`Self::wait_as`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub(super) fn wait_and_retry<U>(
        &self,
        (list, tag): (usize, u32),
        interrupts: Interrupts,
        attempt: impl Fn(&mut Locked<S, LISTS>, QueueEnd) -> Option<()>,
        undo: impl Fn(&mut Locked<S, LISTS>) -> U,
    ) -> Result<(), (Interrupt, U)> {
        let mut place = QueueEnd::Back;
        loop {
            let entry = Entry { list, place, tag };
            match self.wait_as(
                entry,
                interrupts,
                |locked| attempt(locked, place),
                || (),
                &undo,
            )? {
                Waited::Granted(_) if place == QueueEnd::Back => place = QueueEnd::Front,
                _ => return Ok(()),
            }
        }
    }

    /// Performs step 2 for a fiber.
    #[inline(always)]
    fn wait_on_fiber(
        header: &Header,
        interrupts: Interrupts,
        note: &Note,
    ) -> Result<(), Interrupt> {
        let granted = || header.take(WakePayload::Grant).then_some(());
        wait::until_on_fiber(
            header,
            WaitSpec::new(Reason::Sync, interrupts).note(note),
            granted,
        )
    }

    #[cold]
    fn wait_on_thread(node: &ThreadWaiter, interrupts: Interrupts) -> Result<(), Interrupt> {
        let granted = || node.granted.load(Ordering::Acquire).then_some(());
        threads::until(interrupts, granted)
    }

    /// Performs step 3. `again` waits for the grant alone.
    #[cold]
    fn give_up<U>(
        &self,
        list: usize,
        waiter: *const Waiter,
        interrupt: Interrupt,
        undo: impl FnOnce(&mut Locked<S, LISTS>) -> U,
        again: impl FnOnce() -> Result<(), Interrupt>,
    ) -> Result<(), (Interrupt, U)> {
        let left = self.with(|locked| {
            // SAFETY: the caller's own; under the lock.
            let waiter = unsafe { &*waiter };
            locked.lists[list].leave(waiter).then(|| undo(locked))
        });
        match left {
            Some(undone) => Err((wait::fail_after_others(interrupt), undone)),
            None => again().map_err(|_| unreachable!("nothing interrupts this wait")),
        }
    }
}

impl<S, const LISTS: usize> Locked<S, LISTS> {
    /// Takes the first waiter off a list; the caller gives the grant after it has left the section.
    #[inline]
    pub(super) fn take_first(&mut self, list: usize) -> Option<Grant> {
        self.lists[list].take_first()
    }

    /// Takes all waiters off a list; the caller gives the grants after it has left the section.
    /// With `tag` each finds this one instead of its own.
    pub(super) fn take_all(&mut self, list: usize, tag: Option<u32>) -> Grants {
        self.lists[list].take_all(tag)
    }

    /// Returns the tag with which the first waiter of a list entered it.
    #[inline]
    pub(super) fn first_tag(&self, list: usize) -> Option<u32> {
        let list = &self.lists[list];
        // SAFETY: in the list, so in place; under the lock.
        let first = unsafe { list.first.as_ref() };
        first.map(|waiter| {
            if list.home.is_null() {
                waiter.tag.get()
            } else {
                list.tag
            }
        })
    }

    /// Returns how the first waiter of a list entered it.
    #[inline]
    pub(super) fn first(&self, list: usize) -> Option<QueueEnd> {
        let list = &self.lists[list];
        // SAFETY: in the list, so in place; under the lock.
        let first = unsafe { list.first.as_ref() };
        first.map(|waiter| {
            if list.home.is_null() {
                waiter.place.get()
            } else {
                list.place
            }
        })
    }
}

impl ThreadWaiter {
    #[cold]
    fn new() -> Self {
        let waiter = Waiter {
            on_thread: true,
            ..Waiter::of_fiber()
        };

        Self {
            waiter,
            granted: AtomicBool::new(false),
            entry: threads::this(),
        }
    }
}

impl WaitList {
    const fn new() -> Self {
        let first = ptr::null();
        let last = ptr::null();
        let home = ptr::null();
        Self {
            first,
            last,
            home,
            place: QueueEnd::Back,
            tag: 0,
            user: NOBODY,
        }
    }

    /// # Safety
    /// The place is in no list, and stays until it is off this one. `home` is null or the worker of
    /// a pinned fiber, whose place it is.
    #[inline]
    unsafe fn enter(&mut self, waiter: *const Waiter, entry: Entry, home: *const WorkerShared) {
        // SAFETY: the caller's promise; under the lock.
        let new = unsafe { &*waiter };
        let Entry { place, tag, .. } = entry;
        new.place.set(place);
        new.tag.set(tag);

        if self.first.is_null() {
            new.queued.set(home.is_null());
            new.after.set(ptr::null());
            (self.first, self.last, self.home) = (waiter, waiter, home);
            (self.place, self.tag) = (place, tag);
            return;
        }

        if !self.home.is_null() {
            self.home = ptr::null();
            // SAFETY: in the list, so in place; under the lock.
            unsafe { &*self.first }.queued.set(true);
        }

        new.queued.set(true);
        let (before, after) = match place {
            QueueEnd::Back => (self.last, ptr::null()),
            QueueEnd::Front => (ptr::null(), self.first),
        };

        new.before.set(before);
        new.after.set(after);
        self.link(before, after, waiter, waiter);
    }

    /// Links what is before and after a place to `next` and `previous`.
    #[inline]
    fn link(
        &mut self,
        before: *const Waiter,
        after: *const Waiter,
        next: *const Waiter,
        previous: *const Waiter,
    ) {
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

    /// Takes a place off; returns false if it is off already.
    fn leave(&mut self, waiter: &Waiter) -> bool {
        if ptr::eq(self.first, waiter) && !self.home.is_null() {
            (self.first, self.last) = (ptr::null(), ptr::null());
            return true;
        }

        let queued = waiter.queued.replace(false);
        if queued {
            let before = if ptr::eq(self.first, waiter) {
                ptr::null()
            } else {
                waiter.before.get()
            };
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
            return Some(Grant(Granted::Fiber(
                unsafe { Header::of_waiter(waiter) },
                self.home,
            )));
        }

        // All fields of the fiber that will change are in the same cache line.
        prefetch_write(waiter);
        // SAFETY: in the list, so in place until its grant has come.
        let first = unsafe { &*waiter };
        first.queued.set(false);
        self.first = first.after.get();
        if self.first.is_null() {
            self.last = ptr::null();
        }

        // SAFETY: off the list, and without its grant.
        Some(unsafe { Grant::of(waiter) })
    }

    fn take_all(&mut self, tag: Option<u32>) -> Grants {
        let first = self.first;
        (self.first, self.last) = (ptr::null(), ptr::null());
        let home = if first.is_null() {
            ptr::null()
        } else {
            self.home
        };

        if !home.is_null() && tag.is_none() {
            return Grants {
                next: first,
                home,
                count: 1,
            };
        }

        let mut next = first;
        let mut count = 0;
        // SAFETY: each was in the list, so it is in place until its grant has come; under the lock.
        while let Some(waiter) = unsafe { next.as_ref() } {
            waiter.queued.set(false);
            if let Some(tag) = tag {
                waiter.tag.set(tag);
            }
            next = waiter.after.get();
            count += 1;
        }

        Grants {
            next: first,
            home,
            count,
        }
    }
}

impl Grants {
    /// Returns how many are left to give.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Gives each waiter its grant.
    ///
    /// Context: outside the section.
    pub(super) fn give(mut self) {
        while !self.next.is_null() {
            let waiter = self.next;
            let grant = if self.home.is_null() {
                // SAFETY: off the list and without its grant, so in place, and linked to the next
                // one like it.
                self.next = unsafe { &*waiter }.after.get();
                // SAFETY: as above.
                unsafe { Grant::of(waiter) }
            } else {
                self.next = ptr::null();
                // SAFETY: a waiting fiber's, which has not ended.
                Grant(Granted::Fiber(
                    unsafe { Header::of_waiter(waiter) },
                    self.home,
                ))
            };
            grant.give();
        }
    }
}

impl Grant {
    /// # Safety
    /// The waiter has been taken off its list, and has not got its grant.
    #[inline]
    unsafe fn of(waiter: *const Waiter) -> Self {
        // SAFETY: the caller's promise.
        Self(if unsafe { &*waiter }.on_thread {
            let node = waiter.cast::<ThreadWaiter>();
            // SAFETY: the first field of one, and entered with the right to all of it.
            Granted::Thread(NonNull::from(unsafe { &*node }), unsafe {
                (*node).entry.clone()
            })
        } else {
            // SAFETY: a waiting fiber's, which has not ended.
            Granted::Fiber(unsafe { Header::of_waiter(waiter) }, ptr::null())
        })
    }

    /// Wakes the waiter.
    ///
    /// Context: outside the section.
    #[inline]
    pub(super) fn give(self) {
        match self.0 {
            // SAFETY: the fiber waits for this grant; if its worker is given, it is pinned there.
            Granted::Fiber(header, home) => unsafe { wake::grant(header, home) },
            Granted::Thread(node, entry) => {
                // SAFETY: the thread waits for this store, the last touch of its place.
                unsafe { node.as_ref() }
                    .granted
                    .store(true, Ordering::Release);
                threads::wake(entry);
            }
        }
    }
}

/// How plain threads wait.
#[cfg(not(all(test, loom)))]
mod threads {
    use std::sync::Arc;

    use super::{Interrupt, Interrupts, Reason, WaitSpec, wait};

    /// What wakes a thread.
    pub(super) type Entry = Arc<wait::ThreadEntry>;

    pub(super) fn this() -> Entry {
        wait::this_thread()
    }

    /// Returns a number that no other thread has that runs now.
    pub(super) fn id() -> usize {
        Arc::as_ptr(&this()).addr()
    }

    pub(super) fn wake(entry: Entry) {
        wait::Waker::Thread(entry).wake();
    }

    pub(super) fn until(
        interrupts: Interrupts,
        granted: impl FnMut() -> Option<()>,
    ) -> Result<(), Interrupt> {
        wait::until(WaitSpec::new(Reason::Sync, interrupts), granted)
    }
}
