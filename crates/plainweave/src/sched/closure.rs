//! The typed part of a fiber: its closure, its result, and the handle that waits for it.

#![expect(
    unsafe_code,
    reason = "the block's typed part is found by a cast; scopes lend borrows to it"
)]

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task;

use crate::abort::{Kind, warn_once};
use crate::atomics::join::{Finished, Join};
use crate::fiber::blocks::{self, Blocks};
use crate::fiber::cancel::{CancelReason, Interrupt, is_cancelled};
use crate::fiber::note::Note;
use crate::fiber::{self, FiberHandle, FiberSpec, FiberTask, Header, Reason, VTable, write_fields};
use crate::fiber_local;
use crate::sched::children::ScopeData;
use crate::sched::wait::{self, Interrupts, WaitSpec, Waker};
use crate::sched::wake;

/// How a fiber ended, if not with a value.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// It could not start.
    Refused(io::Error),
}

#[repr(C)]
struct Packet<T> {
    header: Header,
    join: Join<Waker>,
    scope: Option<Arc<ScopeData>>,
    result: UnsafeCell<Option<Result<T, Failure>>>,
}

#[repr(C)]
struct Body<T, F> {
    packet: Packet<T>,
    /// The closure, until the fiber starts.
    start: UnsafeCell<Option<F>>,
}

struct Types<T, F>(PhantomData<(T, F)>);

impl<T, F: FnOnce() -> T> Types<T, F> {
    const VTABLE: VTable = VTable {
        run: run::<T, F>,
        refuse: refuse::<T, F>,
        is_joined: is_joined::<T>,
        lost: wake::lost,
        free: free::<T, F>,
    };
}

/// Creates a fiber, ready to be pushed, and its handle.
///
/// # Safety
/// The closure and its result may be used for as long as the fiber can run: they are `'static`, or
/// a scope waits for the fiber. They are `Send`, or the fiber is pinned to this thread's worker for
/// good and the handle stays there.
pub(crate) unsafe fn create<T, F: FnOnce() -> T>(
    spec: FiberSpec,
    scope: Option<Arc<ScopeData>>,
    f: F,
) -> (FiberTask, RawJoin<T>) {
    let here = fiber::current_host().map(|host| &host.blocks);
    // One reference for the fiber itself, one for its handle.
    let body = place(spec, 2, Join::new(), scope, f, here);
    // SAFETY: the fiber is new, so the caller may queue it. It starts with two references: one for
    // the task, one for the handle.
    unsafe {
        (
            FiberTask::new(body.cast()),
            RawJoin {
                packet: body.cast(),
                _owns: PhantomData,
            },
        )
    }
}

/// Creates a fiber that has no handle. `here` holds the kept blocks of the calling thread's worker,
/// if it has one.
///
/// # Safety
/// As for [`create`].
pub(crate) unsafe fn create_detached<F: FnOnce()>(
    spec: FiberSpec,
    here: Option<&Blocks>,
    f: F,
) -> FiberTask {
    // SAFETY: the fiber is new, so the caller may queue it.
    unsafe { FiberTask::new(place::<(), F>(spec, 1, Join::abandoned(), None, f, here).cast()) }
}

/// Writes a fiber into a block. The header is the first field of the first field of `repr(C)`
/// structs.
#[inline(always)]
fn place<T, F: FnOnce() -> T>(
    spec: FiberSpec,
    refs: usize,
    join: Join<Waker>,
    scope: Option<Arc<ScopeData>>,
    f: F,
    here: Option<&Blocks>,
) -> NonNull<Body<T, F>> {
    let body = blocks::take(Layout::new::<Body<T, F>>(), here).cast::<Body<T, F>>();
    let place = body.as_ptr();
    // SAFETY: a block of that layout.
    unsafe {
        Header::write(
            &raw mut (*place).packet.header,
            spec,
            refs,
            &Types::<T, F>::VTABLE,
        );
        let packet = &raw mut (*place).packet;
        write_fields!(packet, Packet { join: join, scope: scope, result: UnsafeCell::new(None); header });
        write_fields!(place, Body { start: UnsafeCell::new(Some(f)); packet });
    }
    body
}

/// Runs the closure and publishes its result, on the fiber's stack.
unsafe fn run<T, F: FnOnce() -> T>(header: NonNull<Header>) {
    // SAFETY: made by `create` with these types; the fiber runs once.
    let body = unsafe { header.cast::<Body<T, F>>().as_ref() };
    // SAFETY: only the fiber's start takes the closure.
    let f = unsafe { (*body.start.get()).take() }.expect("a fiber starts once");
    let result = catch_unwind(AssertUnwindSafe(f));
    if !body.packet.header.owns_storage() {
        return end(&body.packet, result);
    }
    // As with a thread, a join returns after the destructors of thread-locals, and a result that
    // nobody waits for is dropped before them. (The handle may also be dropped in between: the
    // second call clears what the result's destructor leaves in thread-locals.)
    if !body.packet.join.is_abandoned() {
        fiber_local::end_of_fiber();
    }
    end(&body.packet, result);
    fiber_local::end_of_fiber();
}

unsafe fn refuse<T, F: FnOnce() -> T>(header: NonNull<Header>, error: io::Error) {
    // SAFETY: as in `run`; the fiber will not start.
    let body = unsafe { header.cast::<Body<T, F>>().as_ref() };
    // SAFETY: as in `run`.
    let f = unsafe { (*body.start.get()).take() };
    drop_contained(f);
    keep(&body.packet, Err(Failure::Refused(error)));
    publish_result(&body.packet, true);
}

unsafe fn free<T, F: FnOnce() -> T>(header: NonNull<Header>, here: Option<&Blocks>) {
    let body = header.cast::<Body<T, F>>();
    // SAFETY: the last reference is gone; made by `create`. Closure and result were taken or
    // dropped.
    unsafe {
        body.drop_in_place();
        blocks::put(body.cast(), Layout::new::<Body<T, F>>(), here);
    }
}

/// Stores the result of the closure and wakes the joiner.
#[inline(always)]
fn end<T>(packet: &Packet<T>, result: std::thread::Result<T>) {
    // Two calls, so that each branch writes its value directly to its final place.
    let panicked = match result {
        Ok(value) => {
            keep(packet, Ok(value));
            false
        }
        Err(payload) => {
            keep(packet, Err(Failure::Panicked(payload)));
            true
        }
    };
    publish_result(packet, panicked);
}

#[inline(always)]
fn keep<T>(packet: &Packet<T>, result: Result<T, Failure>) {
    // SAFETY: nobody reads the result before `publish_result`, and there is none yet.
    unsafe { packet.result.get().write(Some(result)) };
}

/// Publishes the result, and wakes the joiner and the scope. Nothing of `'scope` is touched after
/// the scope has been woken.
fn publish_result<T>(packet: &Packet<T>, failed: bool) {
    match packet.join.finish() {
        Finished::Kept => {}
        Finished::Wake(waker) => waker.wake_and_drop(),
        Finished::Abandoned => drop_result(packet),
    }

    if let Some(scope) = &packet.scope {
        if failed {
            // Only after this panic was kept: a panic that it causes in a sibling comes second.
            scope.node.cancel(CancelReason::SiblingPanicked);
        }
        scope.child_ended();
    }
}

/// Panics that nobody will hear of by a join, in the whole process: for tests.
pub(crate) static UNSEEN_PANICS: AtomicU64 = AtomicU64::new(0);

/// Drops the result when nobody asks for it.
fn drop_result<T>(packet: &Packet<T>) {
    // SAFETY: `atomics/join` gives the result to one owner.
    match (unsafe { (*packet.result.get()).take() }, &packet.scope) {
        (Some(Err(Failure::Panicked(payload))), Some(scope)) => scope.keep_panic(payload),
        (Some(Err(Failure::Panicked(payload))), None) => {
            UNSEEN_PANICS.fetch_add(1, Ordering::Relaxed);
            drop_contained(payload);
        }
        (Some(Err(Failure::Refused(error))), _) => say_refused(&error),
        (result, _) => drop_contained(result),
    }
}

/// Says why a fiber could not start that nobody asks about. That a runtime has ended is no reason
/// to.
#[cold]
fn say_refused(error: &io::Error) {
    if !is_cancelled(error) {
        warn_once(
            Kind::DetachedRefused,
            format_args!(
                "a fiber that nobody joins could not start, and what it was to do is not done: {error} \
                 (Metrics::refused_fibers counts them; this is said once)"
            ),
        );
    }
}

/// Drops a user's value where its destructor must not unwind: into a worker, or past steps that
/// must still be done. The payload of such a panic may panic when it is dropped, so it is
/// forgotten.
pub(crate) fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload);
    }
}

/// The only handle that may wait for a fiber's result. Counted; typed in the result only.
pub(crate) struct RawJoin<T> {
    packet: NonNull<Packet<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: it moves the result to its own thread, which takes `T: Send`.
unsafe impl<T: Send> Send for RawJoin<T> {}
// SAFETY: `&RawJoin` gives access to atomics only.
unsafe impl<T: Send> Sync for RawJoin<T> {}

impl<T> RawJoin<T> {
    fn packet(&self) -> &Packet<T> {
        // SAFETY: counted.
        unsafe { self.packet.as_ref() }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.packet().header
    }

    pub(crate) fn is_done(&self) -> bool {
        self.packet().join.is_done()
    }

    /// Waits for the result.
    pub(crate) fn wait(&self, interrupts: Interrupts) -> Result<(), Interrupt> {
        let join = &self.packet().join;
        if join.is_done() || !join.wait(Waker::current()) {
            return Ok(());
        }
        if let Some(me) = wait::suspendable() {
            me.worker().pool().let_start_for(me, self.header());
        }
        let note = Note::of(self.header());
        let wait = WaitSpec::new(Reason::Join, interrupts)
            .target(self.header())
            .note(&note);
        let waited = wait::until(wait, || join.is_done().then_some(()));
        if waited.is_err() && !join.retract() {
            return Ok(());
        }
        waited.map_err(wait::fail_after_others)
    }

    /// Notes that the one that has the handle waits for the result elsewhere.
    pub(crate) fn want(&self) {
        self.packet().join.want();
        if let Some(me) = wait::suspendable() {
            me.worker().pool().let_start_for(me, self.header());
        }
    }

    /// Registers a future's task, to be woken when the result is there. Returns false if it is
    /// there already.
    ///
    /// Context: nobody is registered.
    pub(crate) fn register(&self, waker: &task::Waker) -> bool {
        let join = &self.packet().join;
        !join.is_done() && join.wait(Waker::Task(Box::new(waker.clone())))
    }

    /// Undoes [`Self::register`]. Returns false if the result is there.
    pub(crate) fn retract(&self) -> bool {
        self.packet().join.retract()
    }

    /// Takes the result, once, after `wait` or when `register` or `retract` has returned false.
    pub(crate) fn take(&self) -> Result<T, Failure> {
        // SAFETY: DONE was seen and this handle has not been dropped: the result is its own.
        unsafe { (*self.packet().result.get()).take() }.expect("a result is taken once")
    }
}

/// # Safety
/// The header is that of a packet of this type, whose fiber has not ended.
unsafe fn is_joined<T>(header: NonNull<Header>) -> bool {
    // SAFETY: the caller's promise; the packet begins with its header.
    unsafe { header.cast::<Packet<T>>().as_ref() }
        .join
        .is_waited_for()
}

/// A fiber's end, as a select watches it: whatever the type of the result, and whoever has the
/// handle.
pub(crate) trait End {
    /// Returns whether the fiber has ended.
    fn is_done(&self) -> bool;

    /// Registers the waker of the only joiner. Returns false if the fiber has ended.
    fn watch(&mut self, waker: Waker) -> bool;

    /// Withdraws it, after `watch` returned true.
    fn unwatch(&mut self);
}

impl<T> End for RawJoin<T> {
    fn is_done(&self) -> bool {
        RawJoin::is_done(self)
    }

    fn watch(&mut self, waker: Waker) -> bool {
        let join = &self.packet().join;
        !join.is_done() && join.wait(waker)
    }

    fn unwatch(&mut self) {
        // If the fiber has ended meanwhile, it has taken the waker.
        self.packet().join.retract();
    }
}

impl<T> Drop for RawJoin<T> {
    fn drop(&mut self) {
        if self.packet().join.abandon() {
            drop_result(self.packet());
        }
        // Gives up the handle's reference.
        drop(FiberHandle(self.packet.cast()));
    }
}

impl<T> std::fmt::Debug for RawJoin<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.header().fmt(f)
    }
}
