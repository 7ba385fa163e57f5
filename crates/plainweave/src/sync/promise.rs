//! A value that is given once, and that any number of fibers and threads may wait for.
//!
//! The value is written before the critical section that ends the promise, and by the resolver
//! alone. A waiter either finds the promise ended, or is on the list that the resolver empties
//! afterwards.

use std::fmt;
use std::io;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(all(test, loom))]
use super::models::OnceCell as OnceLock;
use super::select::{Case, Notices, Place, Selector, Source, Watchers};
use super::wait_queue::{Facts, Primitive, WaitQueue};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::time::with_timeout;

/// A value that will be given once, by its [`Resolver`]; clones wait for the same value.
///
/// Each waiter gets a reference. (To hand a value that cannot be shared to one receiver, send it
/// through a [`channel`](super::channel) of bound 1.)
///
/// ```
/// plainweave::run(|| {
///     let (resolver, answer) = plainweave::sync::promise();
///     let waiters: Vec<_> = (0..3)
///         .map(|_| {
///             let answer = answer.clone();
///             plainweave::spawn(move || *answer.wait().unwrap())
///         })
///         .collect();
///     resolver.resolve(42).unwrap();
///     waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), 42));
///     assert_eq!(answer.try_get().unwrap(), &42);
/// });
/// ```
pub struct Promise<T>(Arc<Shared<T>>);

/// Gives a [`Promise`] its value. Dropped without that, by a panic for example, it fails those who
/// wait.
#[must_use = "a promise whose resolver is dropped fails"]
pub struct Resolver<T>(Arc<Shared<T>>);

struct Shared<T> {
    queue: WaitQueue<State>,
    /// Written before `ended`, if at all.
    value: OnceLock<T>,
}

struct State {
    /// The resolver is gone.
    ended: bool,
    watchers: Watchers,
}

impl Primitive for State {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "promise",
            ..Facts::default()
        }
    }
}

/// Why there is no value.
#[derive(Debug)]
pub struct PromiseError(Why);

#[derive(Clone, Copy, Debug)]
enum Why {
    Abandoned,
    Pending,
    Interrupted(Interrupt),
}

/// Creates a promise and what resolves it.
///
/// ```
/// use plainweave::sync::promise;
///
/// plainweave::run(|| {
///     let (resolver, promise) = promise();
///     plainweave::spawn(move || resolver.resolve("ready"));
///     assert_eq!(*promise.wait().unwrap(), "ready");
/// });
/// ```
pub fn promise<T>() -> (Resolver<T>, Promise<T>) {
    of(WaitQueue::new(State::pending()), OnceLock::new())
}

#[cfg(all(test, loom))]
pub(super) fn modelled<T>() -> (Resolver<T>, Promise<T>) {
    of(WaitQueue::modelled(State::pending()), OnceLock::modelled())
}

fn of<T>(queue: WaitQueue<State>, value: OnceLock<T>) -> (Resolver<T>, Promise<T>) {
    let shared = Arc::new(Shared { queue, value });
    (Resolver(shared.clone()), Promise(shared))
}

impl State {
    const fn pending() -> Self {
        Self {
            ended: false,
            watchers: Watchers::new(),
        }
    }
}

impl<T> Resolver<T> {
    /// Gives the value, and wakes all that wait for it.
    ///
    /// # Errors
    /// All promises are gone: the value comes back.
    pub fn resolve(self, value: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(value);
        }
        // Dropping the resolver ends the promise.
        self.0.value.set(value)
    }

    /// Returns whether all promises are gone, so that nobody can get the value any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // A promise is cloned from a promise, so none comes back.
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Resolver<T> {
    fn drop(&mut self) {
        let watchers = self.0.queue.with(|locked| {
            locked.state.ended = true;
            locked.state.watchers.take()
        });

        // Nobody enters any more. One per critical section, so that a section allocates nothing.
        while let Some(grant) = self.0.queue.with(|locked| locked.take_first(0)) {
            grant.give();
        }
        watchers.into_iter().for_each(Notices::give);
    }
}

impl<T> Promise<T> {
    /// Waits for the value.
    ///
    /// # Errors
    /// The resolver was dropped without giving one; or, before the value came, the caller was
    /// cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&self) -> Result<&T, PromiseError> {
        if let Some(value) = self.0.value.get() {
            return Ok(value);
        }
        let ended =
            |locked: &mut super::wait_queue::Locked<State, 1>| locked.state.ended.then_some(());
        self.0
            .queue
            .wait_unless((0, QueueEnd::Back), Interrupts::Allowed, ended)
            .map_err(|interrupt| PromiseError(Why::Interrupted(interrupt)))?;
        self.value_at_end()
    }

    /// Waits like [`Self::wait`], for at most `limit`.
    ///
    /// # Errors
    /// As for `wait`; one that [`PromiseError::is_timed_out`] recognises after `limit`.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait_timeout(&self, limit: Duration) -> Result<&T, PromiseError> {
        with_timeout(limit, || self.wait())
    }

    /// Returns the value if it has been given.
    ///
    /// # Errors
    /// There is none yet, or the resolver was dropped without giving one.
    pub fn try_get(&self) -> Result<&T, PromiseError> {
        match self.0.value.get() {
            Some(value) => Ok(value),
            None if self.is_ended() => self.value_at_end(),
            None => Err(PromiseError(Why::Pending)),
        }
    }

    /// Returns whether [`Self::wait`] would return at once: with the value, or because none will
    /// come.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.queue.with(|locked| locked.state.ended)
    }

    /// Returns the value of a promise that has ended.
    fn value_at_end(&self) -> Result<&T, PromiseError> {
        self.0.value.get().ok_or(PromiseError(Why::Abandoned))
    }

    /// Returns the promise as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&self) -> PromiseBranch<'_, T> {
        PromiseBranch {
            promise: self,
            chosen: false,
            place: Place::default(),
        }
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl PromiseError {
    /// Returns whether the resolver was dropped without giving a value.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        matches!(self.0, Why::Abandoned)
    }

    /// Returns whether there is no value yet (`try_get` only).
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self.0, Why::Pending)
    }

    /// Returns whether the caller was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Why::Interrupted(Interrupt::Cancelled(_)))
    }

    /// Returns whether the caller ran into its deadline.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.0, Why::Interrupted(Interrupt::TimedOut))
    }

    fn to_io(&self) -> io::Error {
        match self.0 {
            Why::Abandoned => io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the promise was abandoned by its resolver",
            ),
            Why::Pending => io::Error::new(
                io::ErrorKind::WouldBlock,
                "the promise has not been resolved",
            ),
            Why::Interrupted(interrupt) => interrupt.into(),
        }
    }
}

impl From<PromiseError> for io::Error {
    fn from(error: PromiseError) -> Self {
        error.to_io()
    }
}

impl fmt::Display for PromiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_io().fmt(f)
    }
}

impl std::error::Error for PromiseError {}

impl<T: fmt::Debug> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Promise").field(&self.try_get()).finish()
    }
}

impl<T> fmt::Debug for Resolver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// A promise that is waited for beside others.
pub struct PromiseBranch<'a, T> {
    promise: &'a Promise<T>,
    chosen: bool,
    /// Among the promise's watchers.
    place: Place,
}

impl<'a, T> PromiseBranch<'a, T> {
    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what `wait` would, if it was chosen.
    pub fn output(self) -> Option<Result<&'a T, PromiseError>> {
        self.chosen.then(|| self.promise.value_at_end())
    }
}

impl<T> Source for PromiseBranch<'_, T> {
    fn attempt(&mut self) -> bool {
        self.chosen = self.promise.is_ended();
        self.chosen
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        self.promise.0.queue.with(|locked| {
            if !locked.state.ended {
                self.place = locked.state.watchers.enter(selector, branch, None);
            }
            locked.state.ended
        })
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, _: bool) {
        let place = std::mem::take(&mut self.place);
        self.promise
            .0
            .queue
            .with(|locked| locked.state.watchers.leave(selector, branch, place));
    }
}

impl<T> fmt::Debug for PromiseBranch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromiseBranch")
    }
}
