//! A fiber: its header, its body, and the handles to it.
//!
//! One heap block holds it all: the [`Header`] that queues, wakers and the worker know (thin pointer, no type
//! parameters), behind it the result, behind that the closure until the fiber starts. The stack is taken only then.
//!
//! Who may touch what:
//! * atomics (`state`, `anchor`, `cancel`, ...): any thread that holds a reference;
//! * [`Own`]: the fiber itself while it runs, and the worker that runs it, before and after. There is one such worker
//!   at a time; the state word hands the fiber over (`fiber/state`);
//! * result and joiner: as `fiber/join` says.
//!
//! References are counted. The fiber holds one on itself from spawn to its end, and *that* is the one a run queue's
//! [`FiberTask`] stands for: queueing touches no counter.

pub(crate) mod blocks;
pub(crate) mod body;
mod handle;
pub(crate) mod join;
pub(crate) mod state;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use corosensei::{Coroutine, Yielder};

use crate::cancel::{CancelReason, Interrupt, Node, Word};
use crate::policy::{self, Task, WorkerId};
use crate::pool::PoolShared;
use crate::queue::inbox::{Link, Linked};
use crate::stack::{OverflowInfo, Stack};
use crate::tls;
use crate::worker::WorkerCtx;
use blocks::Blocks;
use handle::release;
pub(crate) use handle::{FiberHandle, wake, wake_with};
use state::{Brings, State};

/// When a fiber may change its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// Never: it runs where it was spawned.
    Never,
    /// Until it first runs; then it is anchored to that worker.
    BeforeStart,
    /// At any time. Safe with thread-local storage of the fiber's own (`RuntimeBuilder::own_tls`); on shared storage
    /// only by `RuntimeBuilder::movement_anytime`, which is unsafe.
    Anytime,
}

/// What a fiber tells the worker when it gives up its core.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Switch {
    /// It is ready.
    Yield,
    /// It waits to be woken.
    Park,
}

/// What a suspended fiber waits for: for reports, and for the message when a wait can never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `park()`.
    Park,
    /// `sleep()`.
    Sleep,
    /// A descriptor.
    Io,
    /// Another fiber's end.
    Join,
    /// The end of all fibers of a scope.
    Scope,
    /// A job of the blocking pool.
    Blocking,
    /// A lock, a channel, a semaphore.
    Sync,
}

type Coro = Coroutine<(), Switch, (), Stack>;

/// No anchor, no last worker.
const NOWHERE: u32 = u32::MAX;
/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// The part of a fiber that does not depend on its types.
#[repr(C)]
pub(crate) struct Header {
    /// First: the overflow handler reads it through the stack's owner word.
    info: OverflowInfo,
    pub(crate) state: State,
    refs: AtomicUsize,
    link: Link<Header>,
    vtable: &'static VTable,
    /// Alive as long as the fiber has not ended: a pool outlives its fibers or is leaked with them.
    pool: NonNull<PoolShared>,
    anchor: AtomicU32,
    last_worker: AtomicU32,
    movement: Movement,
    stamp: AtomicU64,
    urgency: Urgency,
    pub(crate) cancel: Word,
    /// Bytes of stack wanted, 0 for the pool's default.
    pub(crate) stack_size: usize,
    pub(crate) own: Own,
    name: Option<Box<str>>,
}

/// What only the fiber and the worker that runs it touch.
pub(crate) struct Own {
    pub(crate) worker: Cell<*const WorkerCtx>,
    yielder: Cell<*const Yielder<(), Switch>>,
    coroutine: UnsafeCell<Option<Coro>>,
    /// Thread-local storage of its own, from its start to its end; `None` where it shares the worker's.
    block: UnsafeCell<Option<tls::Block>>,
    pub(crate) node: RefCell<Option<Arc<Node>>>,
    /// Nanoseconds since the pool's epoch, `NEVER` for none.
    pub(crate) deadline: Cell<u64>,
    pub(crate) timer_fired: Cell<bool>,
    /// What the waker that won the fiber brought: see `state`.
    token: Cell<bool>,
    grant: Cell<bool>,
    /// Where it is on record: its worker's list, or the pool's if it may move.
    pub(crate) registered: Cell<usize>,
    pub(crate) reason: Cell<Reason>,
}

/// What depends on the fiber's types.
pub(crate) struct VTable {
    /// Runs the closure, keeps the result, tells the joiner. On the fiber's stack, once.
    run: unsafe fn(NonNull<Header>),
    /// Gives the joiner an error instead of running the closure, which is dropped.
    refuse: unsafe fn(NonNull<Header>, std::io::Error),
    /// Frees the block, perhaps to a worker's kept ones.
    free: unsafe fn(NonNull<Header>, Option<&Blocks>),
}

// SAFETY: `Own` is touched by one thread at a time, handed over through `state` (release, acquire); all else is atomic
// or immutable.
unsafe impl Sync for Header {}

/// What a fiber is born with.
pub(crate) struct Birth {
    pub(crate) pool: NonNull<PoolShared>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack_size: usize,
    pub(crate) movement: Movement,
    pub(crate) anchor: Option<WorkerId>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) deadline: u64,
    pub(crate) urgency: Urgency,
}

/// What policies may want to know of a fiber; never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urgency {
    pub(crate) priority: u8,
    pub(crate) weight: u32,
    /// By when it should have run, nanoseconds since the pool's epoch; `NEVER` for whenever.
    pub(crate) due: u64,
}

impl Default for Urgency {
    fn default() -> Self {
        Self { priority: policy::PRIORITY, weight: policy::WEIGHT, due: NEVER }
    }
}

impl Header {
    fn new(birth: Birth, vtable: &'static VTable) -> Self {
        let id = next_id();
        let name = birth.name.as_deref().unwrap_or("");
        Self {
            info: OverflowInfo { name_ptr: name.as_ptr(), name_len: name.len(), id },
            state: State::new(),
            // The fiber itself and its handle.
            refs: AtomicUsize::new(2),
            link: Link::new(),
            vtable,
            pool: birth.pool,
            anchor: AtomicU32::new(birth.anchor.map_or(NOWHERE, |w| w as u32)),
            last_worker: AtomicU32::new(NOWHERE),
            movement: birth.movement,
            stamp: AtomicU64::new(0),
            urgency: birth.urgency,
            cancel: Word::default(),
            stack_size: birth.stack_size,
            own: Own {
                worker: Cell::new(ptr::null()),
                yielder: Cell::new(ptr::null()),
                coroutine: UnsafeCell::new(None),
                block: UnsafeCell::new(None),
                node: RefCell::new(birth.node),
                deadline: Cell::new(birth.deadline),
                timer_fired: Cell::new(false),
                token: Cell::new(false),
                grant: Cell::new(false),
                registered: Cell::new(0),
                reason: Cell::new(Reason::Park),
            },
            name: birth.name,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.info.id
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn movement(&self) -> Movement {
        self.movement
    }

    /// The pool; the caller knows that the fiber has not ended.
    #[inline]
    pub(crate) fn pool(&self) -> NonNull<PoolShared> {
        self.pool
    }

    #[inline]
    pub(crate) fn anchor(&self) -> Option<WorkerId> {
        let w = self.anchor.load(Ordering::Relaxed);
        (w != NOWHERE).then_some(w as usize)
    }

    /// The fiber itself or the worker that runs it.
    #[inline]
    pub(crate) fn set_anchor(&self, worker: Option<WorkerId>) {
        self.anchor.store(worker.map_or(NOWHERE, |w| w as u32), Ordering::Relaxed);
    }

    /// The fiber itself. The worker that runs it now; valid until the next suspension.
    #[inline]
    pub(crate) fn worker(&self) -> &WorkerCtx {
        // SAFETY: set by the worker before each resume to its own context, which outlives the resume.
        unsafe { &*self.own.worker.get() }
    }

    /// The fiber itself, or the worker that runs it. Whether it has thread-local storage of its own.
    #[inline]
    pub(crate) fn owns_storage(&self) -> bool {
        // SAFETY: written by its worker before it starts and after it has ended.
        unsafe { (*self.own.block.get()).is_some() }
    }

    /// The fiber itself. Whether it was told to stop, by its handle or with its runtime.
    #[inline]
    pub(crate) fn told_to_stop(&self) -> Option<CancelReason> {
        self.cancel.get().or_else(|| self.worker().pool().is_closing().then_some(CancelReason::Shutdown))
    }

    /// The fiber itself. Why it should not block, if so.
    #[inline]
    pub(crate) fn cancelled(&self) -> Option<Interrupt> {
        let by_scope = || self.own.node.borrow().as_ref().and_then(|n| n.cancelled());
        self.told_to_stop().or_else(by_scope).map(Interrupt::Cancelled)
    }

    /// Any thread, for reports.
    pub(crate) fn is_live(&self) -> bool {
        !self.state.is_finished()
    }

    /// The fiber itself. Whether it was brought a token, or a grant; it is taken.
    #[inline]
    pub(crate) fn take(&self, brings: Brings) -> bool {
        let cell = if brings == Brings::Token { &self.own.token } else { &self.own.grant };
        // Both places are emptied: tokens do not add up.
        cell.replace(false) | self.state.take(brings)
    }

    /// The fiber itself: back to the worker.
    #[inline]
    pub(crate) fn switch(&self, how: Switch) {
        debug_assert!(
            self.owns_storage() || !std::thread::panicking(),
            "a fiber never suspends while it panics on its worker's storage"
        );
        // SAFETY: the fiber runs, so its yielder, which lives at the bottom of its stack, is set and valid.
        unsafe { (*self.own.yielder.get()).suspend(how) };
    }
}

/// A fiber's number. They are handed to threads in blocks: one shared counter would be the busiest line of all.
///
/// Not inlined, like [`current`]: a fiber that spawns, moves and spawns again must not keep the thread-local's address.
#[inline(never)]
fn next_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    thread_local!(static IDS: Cell<(u64, u64)> = const { Cell::new((0, 0)) });
    IDS.with(|ids| {
        let (mut next, mut end) = ids.get();
        if next == end {
            next = NEXT_ID.fetch_add(256, Ordering::Relaxed);
            end = next + 256;
        }
        ids.set((next + 1, end));
        next
    })
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber #{} {:?}", self.id(), self.name().unwrap_or(""))
    }
}

thread_local! {
    /// The fiber that runs on this storage now, or null: on a worker's, set around each resume; on a fiber's own, set
    /// once, by itself. (That is why it is the fiber, and not the worker, that is found through thread-local storage.)
    static CURRENT: Cell<*const Header> = const { Cell::new(ptr::null()) };
}

/// Not inlined, as [`current`].
#[inline(never)]
fn set_current(header: *const Header) {
    CURRENT.with(|c| c.set(header));
}

/// Any thread. The fiber that calls, or `None` on a plain thread.
///
/// Not inlined: the address of a thread-local must not be kept across a suspension, and LLVM would.
#[inline(never)]
pub(crate) fn current<'a>() -> Option<&'a Header> {
    let header = CURRENT.with(Cell::get);
    // SAFETY: the running fiber holds a reference on itself; the result is used on its own stack only.
    unsafe { header.as_ref() }
}

/// The worker that runs on this thread, if a fiber of it calls.
#[inline]
pub(crate) fn current_worker<'a>() -> Option<&'a WorkerCtx> {
    current().map(Header::worker)
}

/// A fiber that is ready to run, as run queues hold it: dropping it leaks the fiber.
///
/// Whoever holds it is the only one to do so, and has the right to run the fiber.
pub struct FiberTask(NonNull<Header>);

// SAFETY: it stands for the fiber's reference on itself, and a fiber's parts are handed over with the state word.
unsafe impl Send for FiberTask {}

impl FiberTask {
    /// # Safety
    /// The caller has won the right to queue the fiber: by spawning it, by `State::wake`, or as its worker.
    pub(crate) unsafe fn new(header: NonNull<Header>) -> Self {
        Self(header)
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: a fiber that has not ended holds a reference on itself.
        unsafe { self.0.as_ref() }
    }

    /// Gives the fiber a stack and perhaps storage of its own. Its worker, before the first resume.
    pub(crate) fn start(&self, stack: Stack, block: Option<tls::Block>) {
        stack.set_owner(self.0.as_ptr().cast());
        let header = self.0;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Switch>, ()| {
            // SAFETY: the header outlives the coroutine, and this is the fiber's first and only start.
            unsafe {
                if header.as_ref().owns_storage() {
                    set_current(header.as_ptr());
                }
                header.as_ref().own.yielder.set(yielder);
                (header.as_ref().vtable.run)(header);
            }
        });
        // SAFETY: the fiber does not run; this worker owns it.
        unsafe {
            *self.header().own.coroutine.get() = Some(coroutine);
            *self.header().own.block.get() = block;
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        // SAFETY: whoever holds the task owns the fiber's parts.
        unsafe { (*self.header().own.coroutine.get()).is_some() }
    }

    /// Its worker. Runs the fiber until it switches back; `None`: it has ended.
    #[inline]
    pub(crate) fn resume(&self, ctx: &WorkerCtx) -> Option<Switch> {
        let header = self.header();
        header.own.worker.set(ctx);
        header.last_worker.store(ctx.id as u32, Ordering::Relaxed);
        // SAFETY: this worker owns the fiber, which does not run yet; the fiber itself never touches its coroutine.
        let coroutine = unsafe { (*header.own.coroutine.get()).as_mut() }.expect("a started fiber");
        // SAFETY: as above; it does not change before the fiber has ended.
        if let Some(block) = unsafe { &*header.own.block.get() } {
            // SAFETY: the fiber's block; this worker has the right to run it.
            return unsafe { tls::resume(coroutine, block.base(), ctx.home) }.as_yield();
        }
        CURRENT.with(|c| c.set(header));
        let switch = coroutine.resume(()).as_yield();
        CURRENT.with(|c| c.set(ptr::null()));
        switch
    }

    /// Its worker, when the fiber has ended: frees it and returns its stack and its storage.
    pub(crate) fn retire(self, blocks: &Blocks) -> (Option<Stack>, Option<tls::Block>) {
        let header = self.header();
        header.state.finish();
        // SAFETY: the fiber has ended; nobody else touches its coroutine and its storage.
        let (coroutine, block) = unsafe { ((*header.own.coroutine.get()).take(), (*header.own.block.get()).take()) };
        let stack = coroutine.map(Coro::into_stack);
        header.own.node.take();
        // SAFETY: gives up the fiber's reference on itself.
        unsafe { release(self.0, Some(blocks)) };
        (stack, block)
    }

    /// A worker: the fiber cannot have a stack. Its joiner gets the error, its closure is dropped.
    pub(crate) fn refuse(self, error: std::io::Error, blocks: &Blocks) {
        // SAFETY: not started, owned by this worker; `retire` then gives up the reference.
        unsafe { (self.header().vtable.refuse)(self.0, error) };
        self.retire(blocks);
    }
}

impl Task for FiberTask {
    #[inline]
    fn anchor(&self) -> Option<WorkerId> {
        self.header().anchor()
    }

    fn last_worker(&self) -> Option<WorkerId> {
        let w = self.header().last_worker.load(Ordering::Relaxed);
        (w != NOWHERE).then_some(w as usize)
    }

    fn stamp(&self) -> u64 {
        self.header().stamp.load(Ordering::Relaxed)
    }

    fn set_stamp(&self, now: u64) {
        self.header().stamp.store(now, Ordering::Relaxed);
    }

    fn priority(&self) -> u8 {
        self.header().urgency.priority
    }

    /// The earlier of the deadline that it was given for policies and the one that its blocking calls heed.
    fn deadline(&self) -> Option<u64> {
        // Whoever holds the task owns the fiber's parts.
        let deadline = self.header().urgency.due.min(self.header().own.deadline.get());
        (deadline != NEVER).then_some(deadline)
    }

    fn weight(&self) -> u32 {
        self.header().urgency.weight
    }
}

impl fmt::Debug for FiberTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

// SAFETY: a task owns its header; the link is used by the one inbox it is in.
unsafe impl Linked for FiberTask {
    type Node = Header;

    fn into_node(self) -> NonNull<Header> {
        self.0
    }

    unsafe fn from_node(node: NonNull<Header>) -> Self {
        Self(node)
    }

    unsafe fn link<'a>(node: NonNull<Header>) -> &'a Link<Header> {
        // SAFETY: the node is alive while it is queued, by the caller's promise.
        unsafe { &(*node.as_ptr()).link }
    }
}
