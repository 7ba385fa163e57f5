//! A fiber: its header, its body, and the handles to it.
//!
//! One heap block holds it all: first the [`Header`] that queues, wakers and the worker use (thin
//! pointer, no type parameters), then the result, then the closure until the fiber starts. The
//! stack is allocated only then.
//!
//! Who may touch what:
//! * atomics (`state`, `pinned_to`, `cancel`, ...): any thread that holds a reference;
//! * [`Own`]: the fiber itself while it runs, and the worker that runs it, before and after. There
//!   is one such worker at a time; the state word hands the fiber over (`atomics/state`). Two of
//!   its cells, `timer` and `timer_fired`, go with the timer on the wheel of the worker that it is
//!   pinned to. They belong to whoever holds that worker's I/O lock (`atomics/biased_lock`): the
//!   worker, the fiber itself or the watchdog;
//! * `waiter`: whoever holds the lock of the list that it is in (`sync/wait_queue`); in no list,
//!   the fiber itself;
//! * result and joiner: as `atomics/join` says.
//!
//! References are counted. The fiber holds one on itself from spawn to its end. That is the
//! reference that a run queue's [`FiberTask`] stands for, so queueing touches no counter.

#![expect(
    unsafe_code,
    reason = "a fiber is a counted heap block behind thin pointers"
)]

pub(crate) mod blocks; // Memory for fibers: a worker keeps the blocks of ended ones.
pub(crate) mod cancel; // The tree of scopes, the reasons, the error.
mod handle; // Counted references to a fiber.
mod layout; // A table for debuggers: where they find fibers.
mod left; // Who has left a stack, and why; who is next.
pub(crate) mod note; // What a suspended fiber says it waits for.
pub(crate) mod saved; // The stack of a suspended fiber.
mod task; // A ready fiber, and the switch into it.
pub(crate) mod wait_link; // A waiter's place in a wait queue.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fmt;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::atomics::pinned_state::PinnedState;
use crate::atomics::ref_count::RefCount;
use crate::atomics::state::{State, WakePayload};
use crate::context::Context;
use crate::fiber_local;
use crate::policy::{self, WorkerId};
use crate::queue::inbox::Link;
use crate::stack::{OverflowInfo, Stack};
use crate::timer::KeyCell;
use crate::timer::Nanos;
use blocks::Blocks;
use cancel::{CancelRules, CancelWord, Node};
pub(crate) use handle::FiberHandle;
pub(crate) use left::{Direct, Left, Target};
use note::Waits;
pub use task::FiberTask;
use wait_link::Waiter;

/// When a fiber may change its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Movement {
    /// Never: it runs on the worker that it was spawned for.
    Never,
    /// Until it first runs; then it is pinned to that worker. The default on shared storage.
    BeforeStart,
    /// At any time, the default. Safe with fiber-local storage (`RuntimeBuilder::own_storage`); on
    /// shared storage only by `RuntimeBuilder::movement_anytime`, which is unsafe.
    ///
    /// What the kernel keeps per thread stays with the worker:
    /// * Signal mask, affinity, priority, thread name and the like: set them before the runtime is
    ///   built, which all workers inherit; or restore them before the next suspension. `gettid` may
    ///   differ after one.
    /// * Recursive and error-checking locks, and `stdout().lock()`, may be held across suspensions.
    ///   Priority-inheriting locks must not be used on fibers: one that somebody has waited for
    ///   stays locked.
    /// * On io_uring, completions end system calls that block the worker for a limited time (`recv`
    ///   with a timeout set on the socket, `epoll_wait`) with `EINTR`, as a signal does: call
    ///   again.
    Anytime,
}

/// Why a fiber leaves its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Switch {
    /// It is still ready to run.
    Yield,
    /// The same, and it is to stay with this worker.
    YieldLocal,
    /// The same, and it is to go to the shared queue.
    YieldShared,
    /// It is ready to run, on the other worker that it is pinned to (`sched/lent`).
    Elsewhere,
    /// It waits for a wake-up.
    Suspend,
    /// It has ended.
    End,
}

/// What a suspended fiber waits for; used in reports, and in the message when a wait can never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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
    /// A future, in `block_on`.
    Future,
}

impl Reason {
    /// All of them, by their numbers.
    pub(crate) const ALL: [Reason; 8] = [
        Reason::Park,
        Reason::Sleep,
        Reason::Io,
        Reason::Join,
        Reason::Scope,
        Reason::Blocking,
        Reason::Sync,
        Reason::Future,
    ];
}

// Four cache lines: a fifth makes a spawn a tenth slower.
#[cfg(not(any(feature = "sanitizer", loom)))]
const _: () = assert!(size_of::<Header>() <= 256);

/// Not pinned; no last worker.
const NOWHERE: u32 = u32::MAX;
/// The deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The part of a fiber that does not depend on its types.
///
/// Fields are in the order of use, because a cache line that another worker has changed is slow to
/// arrive. The first line is for spawn and end and for policies that ask. The second is all that a
/// waker touches, from taking the fiber off a list of waiters to putting it into an inbox. The
/// third is what else a suspension and a resumption need; the fourth is the rest.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// First field: the overflow handler reads it through the stack's owner word.
    info: OverflowInfo,
    refs: RefCount,
    vtable: &'static VTable,
    stamp: AtomicU64,
    urgency: Urgency,

    /// Alive until the fiber has ended: a pool outlives its fibers or is leaked with them.
    pool: NonNull<()>,
    link: Link<Header>,
    /// Its place in the list of a lock or channel; guarded by that list's lock.
    waiter: Waiter,
    pinned_to: AtomicU32,
    last_worker: AtomicU32,
    pub(crate) state: State,
    movement: Movement,
    pub(crate) cancel: CancelWord,
    pub(crate) own: Own,
}

// Where the second and the third line begin, see above.
#[cfg(not(any(feature = "sanitizer", loom)))]
const _: () = assert!(offset_of!(Header, pool) == 64 && offset_of!(Header, own.host) == 128);

/// What a fiber knows of the worker that runs it: a part of the worker's context, from which
/// `sched/worker` finds the rest.
pub(crate) struct Host {
    /// Where the worker's own loop goes on.
    pub(crate) context: Context,
    /// How its fibers go on with one another; `None` where they always go by way of its loop.
    pub(crate) direct: Cell<Option<Direct>>,
    pub(crate) id: WorkerId,
    /// Whether it is a spare worker: policies do not know its number.
    pub(crate) spare: bool,
    /// Whether its fibers wait at another worker's driver (`sched/lent`), and its thread may end
    /// before them.
    pub(crate) borrows: bool,
    /// The base of the thread's own thread-local storage, restored after each fiber.
    pub(crate) home: usize,
    /// Memory blocks of ended fibers.
    pub(crate) blocks: Blocks,
}

/// Data of the fiber and the worker that runs it. Only these two touch it, except for the cells
/// that the head of this file names.
#[repr(C)]
pub(crate) struct Own {
    /// Its state if it is pinned: see `atomics/pinned_state`.
    pub(crate) pinned: PinnedState,
    /// The payload left by the waker that won the fiber: see `state`.
    token: Cell<bool>,
    grant: Cell<bool>,
    pub(crate) waits: Waits,
    /// Set when `timer` has fired; guarded as `timer` is.
    pub(crate) timer_fired: Cell<bool>,
    /// What has a say in whether it is cancelled, beside its own word and its pool's.
    pub(crate) cancel_rules: Cell<CancelRules>,
    pub(crate) host: Cell<*const Host>,
    /// Where it goes on.
    context: Context,
    /// The base of its fiber-local storage, which is `block`; 0 where it shares the worker's.
    base: Cell<usize>,
    /// Its stack, from its start to its end.
    stack: UnsafeCell<Option<Stack>>,
    /// Nanoseconds since the pool's epoch; `NEVER` for none.
    pub(crate) deadline: Cell<Nanos>,
    pub(crate) node: RefCell<Option<Arc<Node>>>,
    /// Its fiber-local storage, from its start to its end; `None` where it shares the worker's.
    block: UnsafeCell<Option<fiber_local::Block>>,
    /// The timer armed on the wheel of the worker that it is pinned to; guarded by that worker's
    /// I/O lock.
    pub(crate) timer: KeyCell,
    /// Its key in the list of live fibers: that of the worker that it is pinned to, or, if it may
    /// move, that of the worker on which it started.
    pub(crate) registered: Cell<u32>,
    /// Stack size in bytes; 0 for the pool's default.
    pub(crate) stack_size: u32,
    /// What it waits for, a [`Note`](note::Note) or a [`Pending`](crate::sched::pending::Pending),
    /// while `waits` says that there is one.
    pub(crate) awaited: Cell<*const ()>,
    /// When it started, in nanoseconds since the pool's epoch; set once, before the fiber is put on
    /// record.
    pub(crate) born: Cell<Nanos>,
}

/// The functions that depend on the fiber's types.
pub(crate) struct VTable {
    /// Runs the closure, stores the result and wakes the joiner. Called once, on the fiber's stack.
    pub(crate) run: unsafe fn(NonNull<Header>),
    /// Gives the joiner an error instead of running the closure, which is dropped.
    pub(crate) refuse: unsafe fn(NonNull<Header>, std::io::Error),
    /// Returns whether somebody waits for the fiber's result.
    pub(crate) is_joined: unsafe fn(NonNull<Header>) -> bool,
    /// Sees to a fiber whose task was dropped; has the task's right to it.
    pub(crate) lost: unsafe fn(NonNull<Header>),
    /// Frees the block, or returns it to a worker's cache.
    pub(crate) free: unsafe fn(NonNull<Header>, Option<&Blocks>),
}

// SAFETY: `Own` is touched by one thread at a time, handed over through `state` (release, acquire);
// its `timer` and `timer_fired` through the I/O lock of the worker that the fiber is pinned to;
// `waiter` under the lock of the wait queue that the fiber waits in, and a grant comes between one
// wait queue and the next; all else is atomic or immutable.
unsafe impl Sync for Header {}

/// What a fiber is created with.
pub(crate) struct FiberSpec {
    pub(crate) pool: NonNull<()>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack_size: u32,
    pub(crate) movement: Movement,
    pub(crate) pinned_to: Option<WorkerId>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) deadline: Nanos,
    pub(crate) urgency: Urgency,
}

/// What a policy may want to know about a fiber; never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urgency {
    pub(crate) priority: u8,
    pub(crate) weight: u32,
    /// When it should have run, in nanoseconds since the pool's epoch; `NEVER` for no such time.
    pub(crate) due: Nanos,
}

impl Default for Urgency {
    fn default() -> Self {
        Self {
            priority: policy::PRIORITY,
            weight: policy::WEIGHT,
            due: NEVER,
        }
    }
}

/// Writes all fields of a struct in place, except those behind the semicolon, which the caller
/// writes. (A literal would be built on the stack and copied; copying what has just been written in
/// pieces makes a spawn a tenth slower.) The caller may write to the place; its old content is not
/// dropped.
macro_rules! write_fields {
    ($place:expr, $type:ident { $($field:ident: $value:expr),+ $(; $($later:ident),+)? }) => {{
        let place = $place;
        // Does not compile if a field is missing.
        $crate::fiber::names_all_fields(place, |$type { $($field: _),+ $(, $($later: _),+)? }| ());
        $((&raw mut (*place).$field).write($value);)+
    }};
}
pub(crate) use write_fields;

/// Checks at compile time that `write_fields` names every field.
pub(crate) fn names_all_fields<T>(_: *mut T, _: fn(&T)) {}

impl Header {
    /// Writes the header of a fiber with `refs` references.
    ///
    /// # Safety
    /// The caller may write to the place.
    #[inline(always)]
    pub(crate) unsafe fn write(
        place: *mut Self,
        spec: FiberSpec,
        refs: usize,
        vtable: &'static VTable,
    ) {
        let id = next_id();
        let name_len = spec.name.as_deref().map_or(0, str::len);
        // Taken back when the header is dropped.
        let name_ptr = spec.name.map_or("".as_ptr(), |name| {
            Box::into_raw(name).cast::<u8>().cast_const()
        });

        // SAFETY: the caller's promise.
        unsafe {
            write_fields!(place, Header {
                info: OverflowInfo { name_ptr, name_len, id },
                state: State::new(),
                refs: RefCount::new(refs),
                vtable: vtable,
                pool: spec.pool,
                link: Link::new(),
                waiter: Waiter::of_fiber(),
                pinned_to: AtomicU32::new(spec.pinned_to.map_or(NOWHERE, |w| w as u32)),
                last_worker: AtomicU32::new(NOWHERE),
                movement: spec.movement,
                stamp: AtomicU64::new(0),
                urgency: spec.urgency,
                cancel: CancelWord::new();
                own
            });
            write_fields!(
                &raw mut (*place).own,
                Own {
                    cancel_rules: Cell::new(CancelRules::of_new(spec.node.is_some())),
                    host: Cell::new(ptr::null()),
                    context: Context::new(),
                    base: Cell::new(0),
                    stack: UnsafeCell::new(None),
                    block: UnsafeCell::new(None),
                    node: RefCell::new(spec.node),
                    deadline: Cell::new(spec.deadline),
                    timer_fired: Cell::new(false),
                    timer: KeyCell::new(),
                    pinned: PinnedState::new(),
                    token: Cell::new(false),
                    grant: Cell::new(false),
                    registered: Cell::new(0),
                    stack_size: spec.stack_size,
                    waits: Waits::new(),
                    awaited: Cell::new(ptr::null()),
                    born: Cell::new(0)
                }
            );
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.info.id
    }

    /// Returns whether it has a name that is not empty; reads what [`Self::id`] reads, not the
    /// name.
    pub(crate) fn is_named(&self) -> bool {
        self.info.name_len > 0
    }

    pub(crate) fn name(&self) -> Option<&str> {
        if self.info.name_len == 0 {
            return None;
        }
        // SAFETY: the box that `write` has taken apart; it is freed with the header.
        let bytes = unsafe { std::slice::from_raw_parts(self.info.name_ptr, self.info.name_len) };
        // SAFETY: it was a `str`.
        Some(unsafe { std::str::from_utf8_unchecked(bytes) })
    }

    pub(crate) fn urgency(&self) -> Urgency {
        self.urgency
    }

    pub(crate) fn movement(&self) -> Movement {
        self.movement
    }

    /// Returns whether the fiber stays on the worker that it starts on, which then keeps its state
    /// in `atomics/pinned_state`.
    #[inline]
    pub(crate) fn pins(&self) -> bool {
        self.movement != Movement::Anytime
    }

    /// Returns its place in a list of waiters; the pointer may be used to find the header again.
    #[inline]
    pub(crate) fn waiter(&self) -> *const Waiter {
        // SAFETY: within the header.
        unsafe { &raw const (*ptr::from_ref(self)).waiter }
    }

    /// Returns the header that a place is in.
    ///
    /// # Safety
    /// The place came from [`Self::waiter`], and the fiber has not ended.
    #[inline]
    pub(crate) unsafe fn of_waiter(waiter: *const Waiter) -> NonNull<Self> {
        // SAFETY: the place is in a header, that far from its beginning, and the pointer may go
        // there.
        unsafe {
            NonNull::new_unchecked(
                waiter
                    .byte_sub(offset_of!(Header, waiter))
                    .cast::<Self>()
                    .cast_mut(),
            )
        }
    }

    /// Returns its pool, whose type `sched/pool` knows.
    #[inline]
    pub(crate) fn pool_ptr(&self) -> NonNull<()> {
        self.pool
    }

    #[inline]
    pub(crate) fn pinned_to(&self) -> Option<WorkerId> {
        let w = self.pinned_to.load(Ordering::Relaxed);
        (w != NOWHERE).then_some(w as usize)
    }

    /// Pins the fiber to a worker, or unpins it.
    ///
    /// Context: the fiber itself, the worker that runs it, or the thread that has just won it
    /// (`atomics/state`).
    #[inline]
    pub(crate) fn pin_to(&self, worker: Option<WorkerId>) {
        self.pinned_to
            .store(worker.map_or(NOWHERE, |w| w as u32), Ordering::Relaxed);
    }

    /// Returns whether the fiber has fiber-local storage.
    ///
    /// Context: the fiber itself, or the worker that runs it.
    #[inline]
    pub(crate) fn owns_storage(&self) -> bool {
        self.own.base.get() != 0
    }

    /// Returns the regular worker that it ran on last, or runs on.
    pub(crate) fn last_worker(&self) -> Option<WorkerId> {
        let w = self.last_worker.load(Ordering::Relaxed);
        (w != NOWHERE).then_some(w as usize)
    }

    /// Returns whether the fiber has not ended; for reports.
    pub(crate) fn is_live(&self) -> bool {
        !self.state.is_finished()
    }

    /// Takes a token or a grant. Returns whether there was one.
    ///
    /// Context: the fiber itself.
    #[inline]
    pub(crate) fn take(&self, payload: WakePayload) -> bool {
        let cell = if payload == WakePayload::Token {
            &self.own.token
        } else {
            &self.own.grant
        };
        // Empties both places: tokens do not add up.
        cell.replace(false) | self.state.take(payload)
    }

    /// Leaves the payload of a wake-up in the fiber.
    ///
    /// Context: the owner of the fiber.
    #[inline]
    pub(crate) fn bring(&self, payload: WakePayload) {
        match payload {
            WakePayload::Nothing => {}
            WakePayload::Token => self.own.token.set(true),
            WakePayload::Grant => self.own.grant.set(true),
        }
    }

    /// Publishes that the fiber is suspended; its worker has just switched away from it. Returns
    /// false if a wake-up came first: the caller must queue the fiber again.
    #[inline]
    pub(crate) fn suspended(&self) -> bool {
        if self.pins() {
            self.state.suspend_pinned(&self.own.pinned)
        } else {
            self.state.suspend()
        }
    }

    /// Leaves the fiber's stack: for the next fiber's if one is at hand, else for the worker's.
    /// Returns when it runs again, perhaps on another worker.
    ///
    /// Context: the fiber itself.
    #[inline(always)]
    pub(crate) fn switch(&self, how: Switch) {
        debug_assert!(
            self.owns_storage() || !std::thread::panicking(),
            "a fiber never suspends while it panics on its worker's storage"
        );
        let target = self.host().next(how);
        if target.context.is_null() {
            return;
        }
        let message = Left::by(self, how).encode();
        // SAFETY: the fiber runs. What it goes on with stands still: a fiber that this worker has
        // the right to run, or its loop, which waits in its own switch.
        let message = unsafe { (self.own.context).switch(target.context, target.base, message) };
        // Another worker's, perhaps.
        self.host().settle(message);
    }

    /// Returns the worker that runs the fiber.
    ///
    /// Context: the fiber itself; not across a switch.
    #[inline(always)]
    fn host(&self) -> &Host {
        // SAFETY: set by the worker before each resume to a part of its own context, which outlives
        // the resume.
        unsafe { &*self.own.host.get() }
    }
}

/// Returns the next fiber number. Threads take numbers in blocks: one shared counter would be the
/// most contended line of all.
///
/// Not inlined, like [`current`]: a fiber that spawns, moves and spawns again must not keep the
/// thread-local's address.
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

impl Drop for Header {
    fn drop(&mut self) {
        if self.info.name_len > 0 {
            let name =
                ptr::slice_from_raw_parts_mut(self.info.name_ptr.cast_mut(), self.info.name_len);
            // SAFETY: the box that `write` has taken apart, once; it held a `str`.
            drop(unsafe { Box::from_raw(name) });
        }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber #{} {:?}", self.id(), self.name().unwrap_or(""))
    }
}

thread_local! {
    /// The fiber that runs on this storage now, or null. In a worker's storage it is set around
    /// each resume; in fiber-local storage it is set once, by the fiber. (That is why thread-local
    /// storage leads to the fiber, and not to the worker.)
    static CURRENT: Cell<*const Header> = const { Cell::new(ptr::null()) };
}

/// Sets the fiber that runs on this storage. Not inlined, like [`current`].
#[inline(never)]
fn set_current(header: *const Header) {
    CURRENT.with(|c| c.set(header));
}

/// Returns the calling fiber, or `None` on a plain thread.
///
/// Not inlined: LLVM would keep the address of a thread-local across a suspension.
#[inline(never)]
pub(crate) fn current<'a>() -> Option<&'a Header> {
    let header = CURRENT.with(Cell::get);
    // SAFETY: the running fiber holds a reference on itself; the result is used on its own stack
    // only.
    unsafe { header.as_ref() }
}

/// Returns what the handler of overflows says of the calling fiber, null on a plain thread.
pub(crate) fn current_overflow_info() -> *const OverflowInfo {
    current().map_or(ptr::null(), |me| &raw const me.info)
}

/// Returns the worker that runs on this thread, if one of its fibers calls.
#[inline]
pub(crate) fn current_host<'a>() -> Option<&'a Host> {
    current().map(Header::host)
}
