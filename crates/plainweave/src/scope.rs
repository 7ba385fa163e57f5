//! Structured fibers: a scope lends its borrows to fibers and does not end before they do.
//!
//! A child that panics cancels its siblings; a body that panics cancels its children; cancelling the fiber that owns
//! the scope cancels them too. In each case the scope still waits for all of them: cancellation is a request, and their
//! frames may hold borrows.

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::abort::no_unwind;
use crate::block::{self, Waker};
use crate::cancel::{CancelReason, Node};
use crate::fiber::body::{self, RawJoin};
use crate::fiber::{self, FiberHandle, Header, NEVER, Reason};
use crate::pool::PoolShared;
use crate::thread::{Fiber, JoinError};

/// What children share with their scope. Outlives both.
#[derive(Debug)]
pub(crate) struct ScopeData {
    pub(crate) node: Arc<Node>,
    running: AtomicUsize,
    owner: Waker,
    /// The first panic that no handle has taken.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ScopeData {
    /// A child, as its very last act: nothing of `'scope` is used after it.
    pub(crate) fn child_ended(&self) {
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.wake();
        }
    }

    pub(crate) fn keep_panic(&self, payload: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
        if first.is_none() {
            *first = Some(payload);
            return;
        }
        drop(first);
        body::drop_contained(payload);
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

/// Lends borrows to fibers; see [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    pool: Arc<PoolShared>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Waits for one fiber of a scope.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    raw: RawJoin<T>,
    scope: PhantomData<&'scope mut &'scope ()>,
}

/// Runs `f` with a scope whose fibers may borrow from the caller, and returns when `f` and all of them have ended.
///
/// Called by a fiber; from a plain thread use [`crate::Runtime::scope`].
///
/// # Panics
/// With `f`'s panic if it panics, else with the first panic of a fiber that was not taken by its handle's `join`.
/// On a plain thread, with a message that says so.
///
/// ```
/// plainweave::run(|| {
///     let mut halves = [vec![3, 1, 2], vec![6, 5, 4]];
///     plainweave::scope(|s| {
///         for half in &mut halves {
///             s.spawn(|| half.sort());
///         }
///     });
///     assert_eq!(halves, [vec![1, 2, 3], vec![4, 5, 6]]);
/// });
/// ```
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    scope_on(crate::runtime::current_pool("scope"), f)
}

pub(crate) fn scope_on<'env, T>(
    pool: Arc<PoolShared>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
) -> T {
    let me = fiber::current();
    let parent = me.and_then(|h| h.own.node.borrow().clone());
    let node = Node::below(parent.as_ref());
    let data = Arc::new(ScopeData {
        node: node.clone(),
        running: AtomicUsize::new(0),
        owner: Waker::current(),
        panic: Mutex::new(None),
    });
    let scope = Scope { data: data.clone(), pool, scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    no_unwind("a scope cannot leave its fibers alone with what they borrow", || {
        if result.is_err() {
            node.cancel(CancelReason::ScopePanicked);
        }
        wait_for_children(&data, me);
    });
    match result {
        Err(panic) => {
            // Here, for the last reference may be a worker's.
            data.take_panic().into_iter().for_each(body::drop_contained);
            resume_unwind(panic)
        }
        Ok(value) => match data.take_panic() {
            Some(panic) => resume_unwind(panic),
            None => value,
        },
    }
}

/// Waits, whatever happens. If the owner itself is cancelled meanwhile (by its handle or by shutdown, which know no
/// scopes) it passes that on.
fn wait_for_children(data: &ScopeData, me: Option<&Header>) {
    let done = || (data.running.load(Ordering::Acquire) == 0).then_some(());
    let waited = block::until(Reason::Scope, None, false, None, || {
        if let Some(reason) = me.and_then(Header::told_to_stop) {
            data.node.cancel(reason);
        }
        done()
    });
    if waited.is_err() {
        // Only the bounded wait of a panicking fiber ends early, and that aborts.
        unreachable!("a wait for children has no deadline");
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Any thread or fiber that has the scope. Starts a fiber that may borrow from the scope's surroundings. It
    /// inherits the deadline of the spawning fiber.
    pub fn spawn<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let me = fiber::current();
        let here = me.map(Header::worker).filter(|ctx| std::ptr::eq(ctx.pool(), &*self.pool));
        let deadline = if here.is_some() { me.map_or(NEVER, |h| h.own.deadline.get()) } else { NEVER };
        let birth = self.pool.birth(here, Some(self.data.node.clone()), deadline);
        self.data.running.fetch_add(1, Ordering::Relaxed);
        let data = self.data.clone();
        let member = Membership { data: data.clone(), key: None };
        let run = move || {
            let mut member = member;
            member.enter();
            f()
        };
        // SAFETY: `scope_on` does not return before the fiber has called `child_ended`, its last act; the handle cannot
        // outlive 'scope.
        let (task, raw) = unsafe { body::create(birth, Some(data), run) };
        self.pool.launch(task, here);
        ScopedJoinHandle { raw, scope: PhantomData }
    }

    /// Any thread or fiber that has the scope. Cancels all of its fibers, those to come included.
    pub fn cancel(&self) {
        self.data.node.cancel(CancelReason::Requested);
    }
}

/// A running child's entry in its scope's node.
struct Membership {
    data: Arc<ScopeData>,
    key: Option<usize>,
}

impl Membership {
    fn enter(&mut self) {
        if let Some(header) = fiber::current() {
            self.key = Some(self.data.node.enter(FiberHandle::from_ref(header)));
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.data.node.leave(key);
        }
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Any thread or fiber. Waits for the fiber's end.
    ///
    /// # Errors
    /// The fiber's panic, or why it could not start; or the *caller* was cancelled or ran into its deadline, then the
    /// fiber goes on and the scope will wait for it.
    pub fn join(self) -> Result<T, JoinError> {
        self.raw.wait(true).map_err(JoinError::interrupted)?;
        self.raw.take().map_err(JoinError::failed)
    }

    /// Any thread. Asks the fiber to stop: its next blocking call returns an error.
    pub fn cancel(&self) {
        self.fiber().cancel();
    }

    /// Any thread. Whether the fiber has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.raw.is_done()
    }

    /// The fiber's handle for `unpark` and the like.
    #[must_use]
    pub fn fiber(&self) -> Fiber {
        Fiber::of(self.raw.header())
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        error.into_io()
    }
}
