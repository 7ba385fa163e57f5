//! Cells that are written once, by an initialiser that may wait.
//!
//! The value lies in a cell of `std`, which is read without a lock. Beside it is the *turn* to set
//! it: 1. A caller that finds no value takes the turn, or waits for it. 2. It runs its initialiser
//! without a lock. 3. It sets the value, if there is one, and gives the turn back. 4. If there is a
//! value it wakes all, otherwise one that tries in its place. Only the holder of the turn sets the
//! value, so the cell of `std` never has to wait.
//!
//! **No poisoning.** `std`'s `Once` is poisoned by a panic. Here an initialiser may also fail
//! because its fiber was cancelled, which says nothing about the next one: in either case the next
//! one tries.

use std::fmt;
use std::io;
#[cfg(not(all(test, loom)))]
use std::sync::OnceLock as Cell;

#[cfg(all(test, loom))]
use super::models::OnceCell as Cell;
use super::wait_queue::{Facts, Primitive, WaitQueue, caller, holder_of};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// The lists of waiters: those that would initialise, and those that only wait.
const TRYING: usize = 0;
const WATCHING: usize = 1;

/// A cell that is written once, in the shape of [`std::sync::OnceLock`], whose initialiser may
/// wait: for fibers and plain threads.
///
/// If an initialiser panics or fails, the cell stays empty and the next caller tries. An
/// initialiser that needs the value of its own cell panics; if it waits for *another* fiber that
/// needs it, both wait until they are cancelled or late.
///
/// ```
/// static CONFIG: plainweave::sync::OnceLock<Vec<u8>> = plainweave::sync::OnceLock::new();
/// plainweave::run(|| {
///     let config = CONFIG.get_or_try_init(|| plainweave::fs::read("/proc/self/comm")).unwrap();
///     assert_eq!(CONFIG.get(), Some(config));
/// });
/// ```
pub struct OnceLock<T> {
    value: Cell<T>,
    /// Who initialises now.
    turn: WaitQueue<Option<usize>, 2>,
}

/// Runs something once, in the shape of [`std::sync::Once`], for fibers and plain threads. What
/// panics is run again by the next caller.
pub struct Once(OnceLock<()>);

/// The right to set the value. Dropping it without a value lets the next one try.
struct Turn<'a, T>(&'a OnceLock<T>);

/// Why a caller need not wait for the turn.
enum Found {
    Turn,
    Value,
    /// The caller has the turn already.
    Itself,
}

type Locked = super::wait_queue::Locked<Option<usize>, 2>;

impl Primitive for Option<usize> {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "once cell",
            holder: self.map(holder_of),
            ..Facts::default()
        }
    }
}

impl<T> OnceLock<T> {
    /// Creates an empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            value: Cell::new(),
            turn: WaitQueue::new(None),
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn modelled() -> Self {
        Self {
            value: Cell::modelled(),
            turn: WaitQueue::modelled(None),
        }
    }

    /// Returns the value, if it is set. Never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value, if it is set.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Sets the value. If an initialiser runs now, waits for it, whatever happens to the caller.
    ///
    /// # Errors
    /// The cell had a value; the error holds the new one.
    ///
    /// # Panics
    /// The caller is this cell's initialiser.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn set(&self, value: T) -> Result<(), T> {
        match self.claim(Interrupts::Ignored) {
            Ok(Some(turn)) => {
                turn.complete(value);
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Returns the value; sets it first to what `init` returns if there is none. Of several callers
    /// one initialises, the others wait.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited for another's initialiser. Its own runs in any
    /// case, and sees a cancellation in its own calls.
    ///
    /// # Panics
    /// `init` panicked, or needs the value of this cell.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> io::Result<&T> {
        self.get_or_try_init(|| Ok(init()))
    }

    /// Returns the value; sets it first to what `init` returns if there is none and `init`
    /// succeeds.
    ///
    /// # Errors
    /// Those of `init`, in which case the next caller tries; and those of [`Self::get_or_init`].
    ///
    /// # Panics
    /// As for [`Self::get_or_init`].
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn get_or_try_init<E: From<io::Error>>(
        &self,
        init: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self
                .init(Interrupts::Allowed, init)
                .map_err(io::Error::from)?,
        }
    }

    /// Waits until the value is set.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]).
    ///
    /// # Panics
    /// The caller is this cell's initialiser.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&self) -> io::Result<&T> {
        let me = caller();
        let look = |locked: &mut Locked| self.look(locked, me);
        if let Some(Found::Itself) =
            self.turn
                .wait_unless((WATCHING, QueueEnd::Back), Interrupts::Allowed, look)?
        {
            recursion()
        }
        Ok(self.value())
    }

    /// Returns the value and leaves the cell empty.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    /// Returns the value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// Initialises with a function that cannot fail, and lets nothing end the wait for another that
    /// does.
    pub(super) fn init_always(&self, init: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.init(Interrupts::Ignored, || {
            Ok::<_, std::convert::Infallible>(init())
        }) else {
            unreachable!("nothing interrupts this wait")
        };
        value.unwrap_or_else(|never| match never {})
    }

    #[cold]
    fn init<E>(
        &self,
        interrupts: Interrupts,
        init: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&T, E>, Interrupt> {
        Ok(match self.claim(interrupts)? {
            Some(turn) => init().map(|value| turn.complete(value)),
            None => Ok(self.value()),
        })
    }

    /// Waits for the turn. `None`: there is a value.
    fn claim(&self, interrupts: Interrupts) -> Result<Option<Turn<'_, T>>, Interrupt> {
        let me = caller();
        let mut place = QueueEnd::Back;
        loop {
            let found = self
                .turn
                .wait_unless((TRYING, place), interrupts, |locked| {
                    let free = locked.state.is_none();
                    self.look(locked, me).or_else(|| {
                        locked.state.get_or_insert(me);
                        free.then_some(Found::Turn)
                    })
                })?;
            match found {
                Some(Found::Turn) => return Ok(Some(Turn(self))),
                Some(Found::Value) => return Ok(None),
                Some(Found::Itself) => recursion(),
                // There is a value, or the turn was free: look again.
                None => place = QueueEnd::Front,
            }
        }
    }

    fn look(&self, locked: &Locked, me: usize) -> Option<Found> {
        if self.get().is_some() {
            return Some(Found::Value);
        }
        (locked.state == Some(me)).then_some(Found::Itself)
    }

    fn value(&self) -> &T {
        self.get().expect("it is set before waiters are woken")
    }
}

#[cold]
fn recursion() -> ! {
    panic!("an initialiser needs the value that it is to return")
}

impl<'a, T> Turn<'a, T> {
    fn complete(self, value: T) -> &'a T {
        let cell = self.0;
        let set = cell.value.set(value);
        debug_assert!(set.is_ok(), "only the holder of the turn sets the value");
        drop(self);
        cell.value()
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let OnceLock { value, turn } = self.0;
        if value.get().is_none() {
            let next = turn.with(|locked| {
                locked.state = None;
                locked.take_first(TRYING)
            });
            return next.into_iter().for_each(super::wait_queue::Grant::give);
        }

        let (trying, watching) = turn.with(|locked| {
            locked.state = None;
            (
                locked.take_all(TRYING, None),
                locked.take_all(WATCHING, None),
            )
        });

        trying.give();
        watching.give();
    }
}

impl Once {
    /// Creates one that has not run yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Runs `f`, unless that has been done; when it returns, one call's `f` has returned.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited for another's `f`. Its own runs in any case.
    ///
    /// # Panics
    /// `f` panicked, or calls this itself.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) -> io::Result<()> {
        self.0.get_or_init(f).copied()
    }

    /// Returns whether a call's `f` has returned.
    #[must_use]
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.0.get().is_some()
    }

    /// Waits until a call's `f` has returned.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]).
    ///
    /// # Panics
    /// The caller is in its own `f`.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&self) -> io::Result<()> {
        self.0.wait().copied()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self {
            value: value.into(),
            turn: WaitQueue::new(None),
        }
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => f.debug_tuple("OnceLock").field(value).finish(),
            None => f.write_str("OnceLock(empty)"),
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("completed", &self.is_completed())
            .finish()
    }
}
