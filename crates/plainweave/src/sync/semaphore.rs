//! A counting semaphore, first come, first served.
//!
//! A waiter's tag is the number of permits that it wants. The first waiter is served as soon as
//! there are that many, and nobody before it: so permits may lie idle while it waits for more of
//! them, and one that wants many is not passed over for ever by those that want few. A caller that
//! adds permits, or gives up its place, serves the next ones.
//!
//! *Selects* have no place in the wait queue: they watch (`sync/select`). While selects and others
//! wait, they are served alternately, each kind in its own order. So neither keeps the other out,
//! and one that wants many loses one permit at most before its turn. A select is served by a claim:
//! its wait ends with the permit, or it has ended already and the next one is served. So no permit
//! is ever given to a select that took another branch.

mod branch; // A permit as a branch of a select.

use std::fmt;
use std::io;
use std::sync::Arc;

pub use self::branch::AcquireBranch;
use super::select::Watchers;
use super::wait_queue::{self, Entry, Facts, Grant, Primitive, WaitQueue, Waited};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::{Interrupts, Waker};
use crate::thread::preemption_point;

/// The tag that a waiter finds when the semaphore was closed. Nobody waits for 0 permits.
const CLOSED: u32 = 0;

struct State {
    permits: usize,
    closed: bool,
    /// The last permit went to a waiter in the queue.
    selects_next: bool,
    /// `None` until a select waits: few semaphores are in one, and these few words fit a cache
    /// line.
    watchers: Option<Box<Watchers>>,
}

/// A waiter or a select that has got what it wants, to be woken outside the section.
#[must_use]
enum Served {
    Waiter(Grant),
    Select(Waker),
}

impl Primitive for State {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "semaphore",
            counts: [(self.permits, "permits"), (0, ""), (0, "")],
            ..Facts::default()
        }
    }
}

type Locked = wait_queue::Locked<State, 1>;

/// Why a caller need not wait, and gets nothing.
struct Closed;

/// A number of permits to take and give back; taking waits while there are not enough.
///
/// Strictly fair: a released permit goes to the longest waiter, and no later caller can take it. So
/// it suits limits (connections, memory), and is slower than a [`Mutex`](super::Mutex) where each
/// holder comes back at once. Callers of [`select!`](super::select!) are a line of their own,
/// served alternately with the other; while only these wait, one of several permits that are
/// released at once may go to a later caller. Works between fibers and plain threads.
///
/// ```
/// plainweave::run(|| {
///     let two = plainweave::sync::Semaphore::new(2);
///     let permit = two.acquire().unwrap();
///     assert_eq!(two.available(), 1);
///     drop(permit);
///     assert_eq!(two.available(), 2);
/// });
/// ```
pub struct Semaphore(WaitQueue<State>);

/// Permits that were taken together; dropping it gives them back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: u32,
}

/// Permits that keep their semaphore alive, for fibers and structures that cannot borrow; dropping
/// it gives them back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct OwnedPermit {
    semaphore: Arc<Semaphore>,
    count: u32,
}

impl State {
    const fn new(permits: usize) -> Self {
        Self {
            permits,
            closed: false,
            selects_next: false,
            watchers: None,
        }
    }
}

impl Semaphore {
    /// Creates a semaphore with `permits` permits.
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        Self(WaitQueue::new(State::new(permits)))
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled(permits: usize) -> Self {
        Self(WaitQueue::modelled(State::new(permits)))
    }

    /// Takes a permit; waits while there is none.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. A cancelled caller still gets a permit that
    /// is available at once. The semaphore is or was [closed](Self::close)
    /// ([`io::ErrorKind::BrokenPipe`]).
    ///
    /// Context: any thread or fiber; may suspend.
    // Inlined into the caller's own frame: see the head of `sched/wait`.
    #[inline(always)]
    pub fn acquire(&self) -> io::Result<Permit<'_>> {
        preemption_point();
        self.take(1)?;
        Ok(Permit {
            semaphore: self,
            count: 1,
        })
    }

    /// Takes `count` permits together; waits while there are fewer, and meanwhile nobody who comes
    /// later is served. Waits for ever for more permits than there will ever be.
    ///
    /// # Errors
    /// As for [`Self::acquire`]. A caller that fails has taken none.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn acquire_many(&self, count: u32) -> io::Result<Permit<'_>> {
        preemption_point();
        self.take(count)?;
        Ok(Permit {
            semaphore: self,
            count,
        })
    }

    /// Takes a permit if there is one and nobody waits.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits if there are that many and nobody waits.
    pub fn try_acquire_many(&self, count: u32) -> Option<Permit<'_>> {
        self.0.with(|locked| try_take(locked, count))?.ok()?;
        Some(Permit {
            semaphore: self,
            count,
        })
    }

    /// Does what [`Self::acquire`] does, for a permit that keeps the semaphore alive.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn acquire_owned(self: &Arc<Self>) -> io::Result<OwnedPermit> {
        self.acquire_many_owned(1)
    }

    /// Does what [`Self::acquire_many`] does, for permits that keep the semaphore alive.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn acquire_many_owned(self: &Arc<Self>, count: u32) -> io::Result<OwnedPermit> {
        self.take(count)?;
        Ok(OwnedPermit {
            semaphore: self.clone(),
            count,
        })
    }

    /// Does what [`Self::try_acquire`] does, for a permit that keeps the semaphore alive.
    pub fn try_acquire_owned(self: &Arc<Self>) -> Option<OwnedPermit> {
        self.0.with(|locked| try_take(locked, 1))?.ok()?;
        Some(OwnedPermit {
            semaphore: self.clone(),
            count: 1,
        })
    }

    /// Adds a permit, or gives back one that was [forgotten](Permit::forget).
    ///
    /// # Panics
    /// There are `usize::MAX` permits.
    #[inline]
    pub fn release(&self) {
        // One more permit serves one waiter at most: the first, if it lacked one.
        let first = self.0.with(|locked| {
            add(locked, 1);
            serve_first(locked)
        });

        if let Some(served) = first {
            served.wake();
        }
    }

    /// Adds permits, or gives back some that were [forgotten](Permit::forget).
    ///
    /// # Panics
    /// There would be more than `usize::MAX` permits.
    pub fn add_permits(&self, count: usize) {
        self.0.with(|locked| add(locked, count));
        self.serve();
    }

    /// Ends the semaphore: all who wait and all who come later get an error. Permits that are held
    /// stay valid.
    pub fn close(&self) {
        let (waiters, selects) = self.0.with(|locked| {
            locked.state.closed = true;
            let selects = locked
                .state
                .watchers
                .as_mut()
                .and_then(|watchers| watchers.take());
            (locked.take_all(0, Some(CLOSED)), selects)
        });

        waiters.give();
        if let Some(selects) = selects {
            selects.give();
        }
    }

    /// Returns whether the semaphore was [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.with(|locked| locked.state.closed)
    }

    /// Returns the number of permits that nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.with(|locked| locked.state.permits)
    }

    #[inline(always)]
    fn take(&self, count: u32) -> io::Result<()> {
        let entry = Entry {
            list: 0,
            place: QueueEnd::Back,
            tag: count,
        };

        let section = |locked: &mut Locked| try_take(locked, count);
        match self
            .0
            .wait_as(entry, Interrupts::Allowed, section, || (), |_| ())
        {
            Ok(Waited::Decided(Err(Closed)) | Waited::Granted(CLOSED)) => Err(closed()),
            Ok(Waited::Decided(Ok(())) | Waited::Granted(_)) => Ok(()),
            Err((interrupt, ())) => {
                // The next in line may want less than there is.
                self.serve();
                Err(interrupt.into())
            }
        }
    }

    /// Serves waiters while there are enough permits for the first, one per critical section.
    #[cold]
    fn serve(&self) {
        while let Some(served) = self.0.with(serve_first) {
            served.wake();
        }
    }

    #[inline]
    fn give_back(&self, count: u32) {
        match count {
            0 => {}
            1 => self.release(),
            _ => self.add_permits(count as usize),
        }
    }
}

/// Takes permits if nobody waits who came before. `None`: the caller must wait.
#[inline]
fn try_take(locked: &mut Locked, count: u32) -> Option<Result<(), Closed>> {
    if locked.state.closed {
        return Some(Err(Closed));
    }
    if count > 0 && locked.first_tag(0).is_some() {
        return None;
    }
    locked.state.permits = locked.state.permits.checked_sub(count as usize)?;
    Some(Ok(()))
}

/// Serves the first waiter if there are enough permits for it.
#[inline]
fn serve_first(locked: &mut Locked) -> Option<Served> {
    if locked.state.watchers.is_some() {
        return serve_either(locked);
    }
    serve_waiter(locked)
}

/// Takes the first waiter off the queue if there are enough permits for it, and these with it.
#[inline]
fn serve_waiter(locked: &mut Locked) -> Option<Served> {
    let wanted = locked.first_tag(0)?;
    locked.state.permits = locked.state.permits.checked_sub(wanted as usize)?;
    locked.take_first(0).map(Served::Waiter)
}

/// Serves a waiter in the queue or a select: where both wait, whichever was not served last.
#[cold]
fn serve_either(locked: &mut Locked) -> Option<Served> {
    let queued = locked.first_tag(0).is_some();
    let state = &mut locked.state;
    if state.permits > 0 && (state.selects_next || !queued) {
        let watchers = state.watchers.as_mut()?;
        // A select that looks for itself at this moment waits no more, and is passed over.
        if let Some(select) = watchers.give(&mut Some(())) {
            state.permits -= 1;
            state.selects_next = false;
            return Some(Served::Select(select));
        }
    }

    let served = serve_waiter(locked)?;
    locked.state.selects_next = true;
    Some(served)
}

#[inline]
fn add(locked: &mut Locked, count: usize) {
    locked.state.permits = locked
        .state
        .permits
        .checked_add(count)
        .expect("a semaphore counts to usize::MAX");
}

#[cold]
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the semaphore is closed")
}

impl Served {
    /// Context: outside the section.
    #[inline]
    fn wake(self) {
        match self {
            Served::Waiter(grant) => grant.give(),
            Served::Select(waker) => waker.wake_and_drop(),
        }
    }
}

impl Permit<'_> {
    /// Returns how many permits it stands for.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Drops the guard without giving the permits back: [`Semaphore::add_permits`] may do so, later
    /// and elsewhere.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl OwnedPermit {
    /// Returns how many permits it stands for.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Drops the guard without giving the permits back: [`Semaphore::add_permits`] may do so, later
    /// and elsewhere.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.give_back(self.count);
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        self.semaphore.give_back(self.count);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available", &self.available())
            .finish()
    }
}
