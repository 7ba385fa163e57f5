//! A lock that many readers or one writer hold, across suspensions if need be.
//!
//! **Fairness: phases.** Phases of readers and single writers alternate while both wait. 1. A
//! reader enters while no writer holds the lock or waits for it. 2. A writer that leaves hands the
//! lock to *all* readers that wait then.
//! 3. If none do, and when the last reader leaves, it is the first writer's turn.
//!
//! **Fair or fast?** As in a [`Mutex`](super::Mutex): a lock that is reserved for a writer is idle
//! until that writer is scheduled, and everybody who comes meanwhile must wait, be scheduled in
//! turn, and keep the next ones waiting. So the lock stays free when it is a writer's turn; the
//! writer is woken to try again (`retrying`), and those that run, of either kind, may take the lock
//! first. But only once: a writer that lost goes back to the front of its list, keeps readers out,
//! and is handed the lock after at most one more phase. Readers that wait are let in after
//! whichever writer was first. So for each writer before a waiter, and for the waiter itself if it
//! writes, it may be passed once by those that run, and by one phase of waiting readers: nobody
//! starves.
//!
//! *A writer that gives up.* Readers may wait only because a writer does. If the last such writer
//! is interrupted while readers hold the lock, it lets the waiting readers in, in the section in
//! which it leaves its list. If another writer waits, that one is next, also before readers that
//! came earlier; they are let in after it.
//!
//! So while anyone waits, the lock is held, or a writer is on its way to try again. That writer
//! cannot give up before it has tried.

#![expect(
    unsafe_code,
    reason = "the data that readers share and one writer at a time reaches"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::wait_queue::{self, Facts, Grant, Grants, Primitive, WaitQueue, holder};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::thread::preemption_point;

/// The lists of waiters.
const READERS: usize = 0;
const WRITERS: usize = 1;

struct LockState {
    /// How many hold the lock to read.
    readers: usize,
    /// One holds it to write.
    written: bool,
    /// A writer was woken to try again and has not yet done so.
    retrying: bool,
    /// Who took it to write last, for dumps. (Readers are only counted.)
    writer: u32,
}

impl Primitive for LockState {
    fn facts(&self, _: usize) -> Facts {
        let counts = [(self.readers, "readers hold it"), (0, ""), (0, "")];
        Facts {
            kind: "readers-writer lock",
            holder: self.written.then_some(self.writer),
            counts,
            peers: READERS,
        }
    }
}

type Locked = wait_queue::Locked<LockState, 2>;

/// A lock for many readers or one writer, in the shape of [`std::sync::RwLock`], for fibers and
/// plain threads.
///
/// It may be held across suspensions: waiting for it gives the worker to other fibers. There is no
/// poisoning: when a holder panics, the lock is released and the data is as the holder left it.
///
/// It is fair: a reader waits for a writer that waits already, and a writer that leaves lets in all
/// readers that wait. Neither kind can keep the other out. When it is a waiting writer's turn,
/// callers that run already may take the lock before it, but only once. Hence **a reader that reads
/// again deadlocks if a writer has come in between**: the writer waits for the first guard, the
/// second call waits for the writer. Pass the guard on instead. A holder that writes while it holds
/// any guard of the same lock deadlocks too. A deadline or a cancellation ends either.
///
/// ```
/// plainweave::run(|| {
///     let names = plainweave::sync::RwLock::new(vec!["one"]);
///     plainweave::scope(|s| {
///         s.spawn(|| names.write().unwrap().push("two"));
///         s.spawn(|| assert!(!names.read().unwrap().is_empty()));
///     });
///     assert_eq!(names.into_inner(), ["one", "two"]);
/// });
/// ```
pub struct RwLock<T: ?Sized> {
    word: WaitQueue<LockState, 2>,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives the data to one thread at a time, or shares it.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above; readers of several threads share the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The data, shared with other readers; dropping it releases the lock.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct RwLockReadGuard<'a, T: ?Sized>(&'a RwLock<T>);

/// The data, locked for one writer; dropping it releases the lock.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized>(&'a RwLock<T>);

/// A read guard that keeps the lock alive, for fibers and structures that cannot borrow.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct OwnedRwLockReadGuard<T: ?Sized>(Arc<RwLock<T>>);

/// A write guard that keeps the lock alive, for fibers and structures that cannot borrow.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct OwnedRwLockWriteGuard<T: ?Sized>(Arc<RwLock<T>>);

impl LockState {
    const FREE: Self = Self {
        readers: 0,
        written: false,
        retrying: false,
        writer: 0,
    };
}

impl<T> RwLock<T> {
    /// Creates a free lock.
    #[must_use]
    pub const fn new(data: T) -> Self {
        Self {
            word: WaitQueue::new(LockState::FREE),
            data: UnsafeCell::new(data),
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled(data: T) -> Self {
        Self {
            word: WaitQueue::modelled(LockState::FREE),
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the data.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until it may read, beside other readers. Waits for writers that hold the lock, and for
    /// one that waits. So a reader that reads once more before it has dropped its first guard waits
    /// for ever where a writer has come between: pass the guard on instead, or ask by
    /// [`try_read`](Self::try_read).
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited. A cancelled caller still gets a lock that is
    /// free for it.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn read(&self) -> io::Result<RwLockReadGuard<'_, T>> {
        preemption_point();
        self.lock_to_read(Interrupts::Allowed)?;
        Ok(RwLockReadGuard(self))
    }

    /// Waits until it may write, alone.
    ///
    /// # Errors
    /// As for [`Self::read`].
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn write(&self) -> io::Result<RwLockWriteGuard<'_, T>> {
        preemption_point();
        self.lock_to_write(Interrupts::Allowed)?;
        Ok(RwLockWriteGuard(self))
    }

    /// Waits like [`Self::read`], but ignores cancellation and deadlines: for clean-up that must
    /// happen.
    ///
    /// # Panics
    /// Never; but a *panicking* fiber that waits longer than ten seconds ends the process, as any
    /// of its waits does.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn read_always(&self) -> RwLockReadGuard<'_, T> {
        self.lock_to_read(Interrupts::Ignored)
            .unwrap_or_else(|_| unreachable!("nothing interrupts this wait"));
        RwLockReadGuard(self)
    }

    /// Waits like [`Self::write`], but ignores cancellation and deadlines: for clean-up that must
    /// happen.
    ///
    /// # Panics
    /// As for [`Self::read_always`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn write_always(&self) -> RwLockWriteGuard<'_, T> {
        self.lock_to_write(Interrupts::Ignored)
            .unwrap_or_else(|_| unreachable!("nothing interrupts this wait"));
        RwLockWriteGuard(self)
    }

    /// Locks to read if no writer holds the lock or waits for it (but for one that has been woken
    /// to try again).
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.word.with(enter_to_read)?;
        Some(RwLockReadGuard(self))
    }

    /// Locks to write if nobody holds the lock.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.take_to_write()?;
        Some(RwLockWriteGuard(self))
    }

    /// Waits like [`Self::read`], for a guard that keeps the lock alive.
    ///
    /// # Errors
    /// As for [`Self::read`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn read_owned(self: &Arc<Self>) -> io::Result<OwnedRwLockReadGuard<T>> {
        self.lock_to_read(Interrupts::Allowed)?;
        Ok(OwnedRwLockReadGuard(self.clone()))
    }

    /// Waits like [`Self::write`], for a guard that keeps the lock alive.
    ///
    /// # Errors
    /// As for [`Self::read`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn write_owned(self: &Arc<Self>) -> io::Result<OwnedRwLockWriteGuard<T>> {
        self.lock_to_write(Interrupts::Allowed)?;
        Ok(OwnedRwLockWriteGuard(self.clone()))
    }

    /// Does what [`Self::try_read`] does, for a guard that keeps the lock alive.
    pub fn try_read_owned(self: &Arc<Self>) -> Option<OwnedRwLockReadGuard<T>> {
        self.word.with(enter_to_read)?;
        Some(OwnedRwLockReadGuard(self.clone()))
    }

    /// Does what [`Self::try_write`] does, for a guard that keeps the lock alive.
    pub fn try_write_owned(self: &Arc<Self>) -> Option<OwnedRwLockWriteGuard<T>> {
        self.take_to_write()?;
        Some(OwnedRwLockWriteGuard(self.clone()))
    }

    /// Returns the data without locking: the exclusive borrow shows that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    #[inline]
    fn lock_to_read(&self, interrupts: Interrupts) -> Result<(), Interrupt> {
        if self.word.decide(READERS, enter_to_read).is_none()
            && self.word.spin(READERS, enter_to_read).is_none()
        {
            self.word.warn_of_self(holder());
            self.word
                .wait_unless((READERS, QueueEnd::Back), interrupts, enter_to_read)?;
        }
        Ok(())
    }

    /// Takes the lock to write if nobody holds it.
    #[inline]
    fn take_to_write(&self) -> Option<()> {
        let me = holder();
        self.word.with(|locked| enter_to_write(locked, me))
    }

    #[inline]
    fn lock_to_write(&self, interrupts: Interrupts) -> Result<(), Interrupt> {
        let me = holder();
        match self
            .word
            .decide(WRITERS, |locked| enter_to_write(locked, me))
        {
            Some(()) => Ok(()),
            None => self.lock_to_write_slowly(me, interrupts),
        }
    }

    fn lock_to_write_slowly(&self, me: u32, interrupts: Interrupts) -> Result<(), Interrupt> {
        if self
            .word
            .spin(WRITERS, |locked| enter_to_write(locked, me))
            .is_some()
        {
            return Ok(());
        }
        self.word.warn_of_self(me);
        let attempt = |locked: &mut Locked, from| {
            if from == QueueEnd::Front {
                locked.state.retrying = false;
            }
            enter_to_write(locked, me)
        };
        let waited =
            self.word
                .wait_and_retry((WRITERS, me), interrupts, attempt, after_a_writer_gave_up);
        waited.map_err(|(interrupt, readers)| {
            readers.into_iter().for_each(Grants::give);
            interrupt
        })
    }

    #[inline]
    fn unlock_read(&self) {
        let writer = self.word.with(|locked| {
            locked.state.readers -= 1;
            turn_of_writer(locked)
        });

        if let Some(writer) = writer {
            writer.give();
        }
    }

    fn unlock_write(&self) {
        let (readers, writer) = self.word.with(|locked| {
            locked.state.written = false;
            let readers = admit_readers(locked);
            (readers, turn_of_writer(locked))
        });

        readers.give();
        if let Some(writer) = writer {
            writer.give();
        }
    }

    /// Turns a write lock into a read lock, which the waiting readers share.
    fn downgrade(&self) {
        let readers = self.word.with(|locked| {
            (locked.state.readers, locked.state.written) = (1, false);
            admit_readers(locked)
        });
        readers.give();
    }
}

#[inline]
fn enter_to_read(locked: &mut Locked) -> Option<()> {
    let writer_next = locked.first(WRITERS).is_some() && !locked.state.retrying;
    if locked.state.written || writer_next {
        return None;
    }
    locked.state.readers += 1;
    Some(())
}

#[inline]
fn enter_to_write(locked: &mut Locked, me: u32) -> Option<()> {
    let free = locked.state.readers == 0 && !locked.state.written;
    if free {
        (locked.state.written, locked.state.writer) = (true, me);
    }
    free.then_some(())
}

/// Unless readers hold the lock, wakes the first writer that waits, to try again; gives it the lock
/// if it has tried before.
#[inline]
fn turn_of_writer(locked: &mut Locked) -> Option<Grant> {
    if locked.state.readers > 0 {
        return None;
    }
    match locked.first(WRITERS)? {
        QueueEnd::Front => {
            locked.state.written = true;
            locked.state.writer = locked.first_tag(WRITERS).unwrap_or(0);
        }
        QueueEnd::Back if locked.state.retrying => return None,
        QueueEnd::Back => locked.state.retrying = true,
    }
    locked.take_first(WRITERS)
}

/// Gives the lock to all readers that wait.
fn admit_readers(locked: &mut Locked) -> Grants {
    let readers = locked.take_all(READERS, None);
    locked.state.readers += readers.count();
    readers
}

/// Lets in the readers that waited for nobody but the writer that has just left the list.
fn after_a_writer_gave_up(locked: &mut Locked) -> Option<Grants> {
    let alone = !locked.state.written && locked.first(WRITERS).is_none();
    alone.then(|| admit_readers(locked))
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns the guard into one that reads, without letting another writer in between. Readers that
    /// wait enter too.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T> {
        let lock = this.0;
        // The lock stays held: the new guard stands for it.
        std::mem::forget(this);
        lock.downgrade();
        RwLockReadGuard(lock)
    }
}

macro_rules! guard {
    ($name:ident<$($life:lifetime,)? T>, $unlock:ident) => {
        impl<T: ?Sized> Deref for $name<$($life,)? T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard holds the lock.
                unsafe { &*self.0.data.get() }
            }
        }

        impl<T: ?Sized> Drop for $name<$($life,)? T> {
            #[inline]
            fn drop(&mut self) {
                self.0.$unlock();
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $name<$($life,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard!(RwLockReadGuard<'_, T>, unlock_read);
guard!(RwLockWriteGuard<'_, T>, unlock_write);
guard!(OwnedRwLockReadGuard<T>, unlock_read);
guard!(OwnedRwLockWriteGuard<T>, unlock_write);

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock alone, and is borrowed exclusively.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnedRwLockWriteGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock alone, and is borrowed exclusively.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Some(guard) => f.debug_tuple("RwLock").field(&&*guard).finish(),
            None => f.write_str("RwLock(locked)"),
        }
    }
}
