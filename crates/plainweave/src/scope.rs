//! Structured fibers: a scope lets its fibers borrow, and does not end before they do.
//!
//! A child that panics cancels its siblings; a body that panics cancels its children; cancelling
//! the fiber that owns the scope cancels them too. In each case the scope still waits for all of
//! them: cancellation is a request, and their frames may hold borrows.

#![expect(unsafe_code, reason = "promises that a scope outlives its fibers")]

use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::abort::no_unwind;
use crate::fiber::cancel::{CancelReason, Node, PlaceId, shutting_down};
use crate::fiber::{self, FiberSpec, FiberTask, Header, NEVER};
use crate::sched::children::{Membership, ScopeData};
use crate::sched::closure::{self, End, RawJoin};
use crate::sched::pool::{self, Awaited, PoolShared};
use crate::sched::wait::{self, Interrupts};
use crate::sched::worker::WorkerCtx;
use crate::thread::{Builder, Fiber, JoinError};

/// A scope in which fibers may borrow; see [`scope`].
///
/// ```
/// plainweave::run(|| {
///     let mut halves = [vec![3, 1, 2], vec![6, 5, 4]];
///     plainweave::scope(|scope| {
///         for half in &mut halves {
///             scope.spawn(|| half.sort());
///         }
///     });
///     assert_eq!(halves, [vec![1, 2, 3], vec![4, 5, 6]]);
/// });
/// ```
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

/// Runs `f` with a scope whose fibers may borrow from the caller, and returns when `f` and all of
/// them have ended.
///
/// A fiber that panics cancels its siblings, but not `f`, which is the caller's own code: its waits
/// go on, and the panic comes when it has returned. Where `f` waits for what its fibers bring, let
/// it join one, or wait on a channel whose senders they hold.
///
/// # Panics
/// With `f`'s panic if it panics, else with the first panic of a fiber that was not taken by its
/// handle's `join`. On a plain thread, with a message that says so.
///
/// Context: a fiber only; on a plain thread use [`crate::Runtime::scope`].
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
#[track_caller]
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    scope_on(pool::current_pool("scope"), f)
}

pub(crate) fn scope_on<'env, T>(
    pool: Arc<PoolShared>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
) -> T {
    let me = fiber::current();
    let parent = me.and_then(|h| h.own.node.borrow().clone());
    let node = Node::below(parent.as_ref());
    let data = ScopeData::new(node.clone());
    let scope = Scope {
        data: data.clone(),
        pool,
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    no_unwind(
        "a scope cannot leave its fibers alone with what they borrow",
        || {
            if result.is_err() {
                node.cancel(CancelReason::ScopePanicked);
            }
            let _waits = scope.pool.caller_waits(|| Awaited::Scope(data.clone()));
            data.wait(&scope.pool, me);
        },
    );
    match result {
        Err(panic) => {
            // Drop it here, because the last reference may be a worker's.
            data.take_panic()
                .into_iter()
                .for_each(closure::drop_contained);
            resume_unwind(panic)
        }
        Ok(value) => match data.take_panic() {
            Some(panic) => resume_unwind(panic),
            None => value,
        },
    }
}

/// Runs `f` on a fiber of `pool` and waits for it as a scope waits for its child: whatever happens
/// to the caller, whose cancellation and deadline reach the fiber. `None` if the pool is ending; an
/// error if the fiber could not start.
///
/// # Panics
/// With `f`'s panic.
pub(crate) fn call_on<'env, T, F>(
    pool: &Arc<PoolShared>,
    child: ChildSpec,
    f: F,
) -> Option<io::Result<T>>
where
    F: FnOnce() -> T + Send + 'env,
    T: Send + 'env,
{
    let ended = scope_on(pool.clone(), |s| {
        let child = s.spawn_to(pool, child, f)?;
        s.data.wait(pool, fiber::current());
        child
            .raw
            .wait(Interrupts::Ignored)
            .expect("an uninterruptible wait ends with its condition");
        Some(child.raw.take().map_err(JoinError::failed))
    });
    Some(ended?.or_else(|error| match error.into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => Err(error.into_io()),
    }))
}

/// Runs `f` on a stack of at least `bytes`, and returns when it has: for code whose frames are
/// larger than a fiber's stack is made for. That is deep recursion; and C code with large arrays in
/// its frames, which may reach past the guard below an ordinary stack (64 KiB) without touching it.
///
/// On a fiber, `f` runs on a child fiber, in the caller's place: the caller's cancellation and
/// deadline reach it, and it may borrow. To thread-local variables it is another fiber, as
/// everything that is spawned. On a plain thread it runs on a thread of its own. The stack of a
/// fiber costs address space, and memory for the pages that are touched.
///
/// ```
/// fn depth(n: u64) -> u64 {
///     let frame = std::hint::black_box([n; 128]);
///     if n == 0 { 0 } else { depth(n - 1) + frame[0] / n }
/// }
///
/// plainweave::run(|| {
///     let levels = [20_000];
///     assert_eq!(plainweave::on_big_stack(128 << 20, || depth(levels[0])).unwrap(), 20_000);
/// });
/// ```
///
/// # Errors
/// `bytes` is out of range (for a fiber 32 KiB to 1 GiB; [`io::ErrorKind::InvalidInput`]), or there
/// is no room for the stack; then `f` does not run. The runtime is shutting down
/// ([`crate::is_cancelled`]).
///
/// # Panics
/// With `f`'s panic.
///
/// Context: any thread or fiber; may suspend.
pub fn on_big_stack<T: Send, F: FnOnce() -> T + Send>(bytes: usize, f: F) -> io::Result<T> {
    let Some(pool) = pool::try_current_pool() else {
        let builder = std::thread::Builder::new().stack_size(bytes);
        let ended = std::thread::scope(|s| Ok(builder.spawn_scoped(s, f)?.join()));
        return ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic)));
    };
    // Zero would be the default.
    Builder::new().stack_size(bytes.max(1)).check()?;
    let child = ChildSpec {
        place: None,
        // `check` made sure that it is less than this.
        stack_size: u32::try_from(bytes).unwrap_or(u32::MAX),
    };
    call_on(&pool, child, f).unwrap_or_else(|| Err(shutting_down()))
}

/// Returns the caller's deadline on the clock of `pool`. (Virtual clocks cannot be compared with
/// others.)
fn inherited_deadline(pool: &PoolShared) -> u64 {
    let Some(me) = fiber::current() else {
        return wait::thread_deadline()
            .filter(|_| !pool.virtual_time)
            .map_or(NEVER, |at| pool.nanos(at));
    };

    let own = me.worker().pool();
    let deadline = me.own.deadline.get();
    if deadline == NEVER || std::ptr::eq(own, pool) {
        return deadline;
    }
    let at = own
        .epoch
        .checked_add(Duration::from_nanos(deadline))
        .filter(|_| !pool.virtual_time && !own.virtual_time);

    at.map_or(NEVER, |at| pool.nanos(at))
}

/// What a child has of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChildSpec {
    /// The place that it takes up in a pool that limits its fibers.
    place: Option<PlaceId>,
    /// In bytes; 0 for the pool's default.
    stack_size: u32,
}

impl ChildSpec {
    /// Describes one that takes up this place, if there is one.
    pub(crate) fn in_place(place: Option<PlaceId>) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a fiber that may borrow from the scope's surroundings. It inherits the deadline of
    /// the spawning fiber.
    ///
    /// Context: any thread or fiber that has the scope.
    pub fn spawn<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let here = fiber::current()
            .map(Header::worker)
            .filter(|ctx| std::ptr::eq(ctx.pool(), &*self.pool));
        let (task, handle) = self.create(&self.pool, here, ChildSpec::default(), f);
        self.pool.spawn(task, here);
        handle
    }

    /// Spawns a fiber like [`Self::spawn`] into a pool that may be another one, and may be ending:
    /// `None` if it is.
    pub(crate) fn spawn_to<T, F>(
        &'scope self,
        pool: &PoolShared,
        child: ChildSpec,
        f: F,
    ) -> Option<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        pool.spawn_if_open(|here| self.create(pool, here, child, f))
    }

    /// Creates a child, to be spawned at once, with its handle. `here` is the caller's worker, if
    /// it belongs to `pool`.
    #[inline]
    fn create<T, F>(
        &'scope self,
        pool: &PoolShared,
        here: Option<&WorkerCtx>,
        ChildSpec { place, stack_size }: ChildSpec,
        f: F,
    ) -> (FiberTask, ScopedJoinHandle<'scope, T>)
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let own = place.map(|place| Node::with_place(Some(&self.data.node), place));
        let node = own.as_ref().unwrap_or(&self.data.node).clone();
        let deadline = inherited_deadline(pool);
        let spec = FiberSpec {
            stack_size,
            ..pool.spec(here.map(WorkerCtx::id), Some(node), deadline)
        };
        let data = self.data.clone();
        let member = Membership::of_new_child(&data, own);
        let run = move || {
            let mut member = member;
            member.enter();
            f()
        };
        // SAFETY: `scope_on` does not return before the fiber has called `child_ended`, its last
        // act; the handle cannot outlive 'scope.
        let (task, raw) = unsafe { closure::create(spec, Some(data), run) };
        (
            task,
            ScopedJoinHandle {
                raw,
                scope: PhantomData,
            },
        )
    }

    /// Cancels all of the scope's fibers, present and future.
    pub fn cancel(&self) {
        self.data.node.cancel(CancelReason::Requested);
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the fiber's end and returns its value.
    ///
    /// # Errors
    /// The fiber's panic, or why it could not start; or the *caller* was cancelled or ran into its
    /// deadline: then the fiber goes on and the scope will wait for it.
    pub fn join(self) -> Result<T, JoinError> {
        self.raw
            .wait(Interrupts::Allowed)
            .map_err(JoinError::interrupted)?;
        self.raw.take().map_err(JoinError::failed)
    }

    /// Requests that the fiber stop: its next blocking call returns an error.
    pub fn cancel(&self) {
        self.fiber().cancel();
    }

    /// Returns whether the fiber has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.raw.is_done()
    }

    /// Returns the fiber's handle, for `unpark` and the like.
    #[must_use]
    pub fn fiber(&self) -> Fiber {
        Fiber::of(self.raw.header())
    }

    /// Returns the fiber's end, for a select.
    pub(crate) fn end(&mut self) -> &mut dyn End {
        &mut self.raw
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        error.into_io()
    }
}
