//! A ready fiber, as run queues hold it, and the switch to it.

#![expect(unsafe_code, reason = "the right to run a fiber; the switch")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blocks::Blocks;
use super::cancel::Node;
use super::handle::release;
use super::{CURRENT, Header, Host, Left, NEVER, Switch, Target, set_current};
use crate::abort::abort;
use crate::context::{self, Context};
use crate::fiber_local;
use crate::policy::{Task, WorkerId};
use crate::queue::inbox::{Link, Linked};
use crate::stack::Stack;
use crate::timer::Nanos;

/// A fiber that is ready to run, as run queues hold it.
///
/// There is one at a time for each ready fiber, and its holder has the right to run the fiber.
/// Policies get no other kind. A worker's inbox also holds *messages*, which are of this type to
/// fit its links: the remote wake-up of a pinned fiber, which may be suspended, ready or running.
/// They give no right to run it; the worker's `deliver` takes them out, marks the fiber as awake,
/// and queues it if that makes it ready.
///
/// A fiber whose task is dropped before it has started never starts: its `join` gives an error. The
/// task of a fiber that has started cannot be dropped, because nothing can end the borrows and
/// locks that its frames hold: the process then aborts.
pub struct FiberTask(NonNull<Header>);

// SAFETY: it stands for the fiber's reference on itself, and the state word hands the parts of a
// fiber over.
unsafe impl Send for FiberTask {}

impl FiberTask {
    /// Creates the task of a fiber.
    ///
    /// # Safety
    /// The caller has won the right to queue the fiber: by spawning it, by `State::wake`, or as its
    /// worker.
    pub(crate) unsafe fn new(header: NonNull<Header>) -> Self {
        Self(header)
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: a fiber that has not ended holds a reference on itself.
        unsafe { self.0.as_ref() }
    }

    /// Gives the fiber a stack and, if `block` is set, fiber-local storage.
    ///
    /// Context: its worker, before the first resume.
    #[inline(always)]
    pub(crate) fn start(&self, stack: Stack, block: Option<fiber_local::Block>) {
        stack.set_owner(self.0.as_ptr().cast());
        let own = &self.header().own;
        own.base
            .set(block.as_ref().map_or(0, fiber_local::Block::base));
        let argument = self.0.as_ptr().expose_provenance();
        // SAFETY: the fiber does not run; this worker owns it, and the stack is its own from now
        // on.
        unsafe {
            own.context
                .prepare(stack.bottom_address(), stack.base(), enter, argument);
            *own.stack.get() = Some(stack);
            *own.block.get() = block;
        }
    }

    /// Gives the right to run the fiber up, without doing anything about it.
    #[inline(always)]
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }

    /// Returns whether somebody waits for the fiber's result.
    pub(crate) fn is_joined(&self) -> bool {
        // SAFETY: the fiber has not ended.
        unsafe { (self.header().vtable.is_joined)(self.0) }
    }

    /// Returns the scope that the fiber belongs to.
    pub(crate) fn scope(&self) -> Option<Arc<Node>> {
        let node = self.header().own.node.borrow();
        node.as_ref().and_then(Node::scope)
    }

    pub(crate) fn has_started(&self) -> bool {
        // SAFETY: whoever holds the task owns the fiber's parts.
        unsafe { (*self.header().own.stack.get()).is_some() }
    }

    /// Ends the process if the fiber must not run on this worker, to which the policy has given it.
    #[inline]
    pub(crate) fn check_place(&self, worker: WorkerId, pool: NonNull<()>) {
        let header = self.header();
        if header.pool != pool || header.pinned_to().is_some_and(|pinned| pinned != worker) {
            wrong_place(header, worker, header.pool != pool);
        }
    }

    /// Notes where the fiber runs from now on: on the worker that `host` is a part of, after a
    /// [`Self::check_place`].
    ///
    /// # Safety
    /// The caller is that worker, and `host` is valid.
    #[inline]
    pub(crate) unsafe fn arrive(&self, host: *const Host, worker: WorkerId) {
        let header = self.header();
        header.own.host.set(host);
        // SAFETY: the caller's promise.
        if !unsafe { (*host).spare } {
            header.last_worker.store(worker as u32, Ordering::Relaxed);
        }

        // SAFETY: this worker owns the fiber, and the caller's promise.
        if let (Some(block), home) = unsafe { ((*header.own.block.get()).as_ref(), (*host).home) } {
            block.lend_malloc_cache(home);
        }
    }

    /// Checks and notes the place of a fiber that ran elsewhere last.
    ///
    /// # Safety
    /// As for `arrive`.
    #[inline(never)]
    unsafe fn check_and_arrive(&self, host: *const Host, worker: WorkerId, pool: NonNull<()>) {
        self.check_place(worker, pool);
        // SAFETY: the caller's promise.
        unsafe { self.arrive(host, worker) };
    }

    /// Returns what a switch to the fiber, which has started, needs; notes where it runs from now
    /// on, if that is not where it ran last.
    ///
    /// # Safety
    /// The caller is the worker that `host` is a part of, and switches to the fiber at once; `host`
    /// may be used until the fiber has left its stack. `pool` is that worker's.
    #[inline(always)]
    pub(crate) unsafe fn target(&self, host: *const Host, pool: NonNull<()>) -> Target {
        let header = self.header();
        // Where it ran last it may run again. (A pool that is gone has left no fibers, so `pool` is
        // unique; a worker's context may lie where one of another pool lay.)
        if !ptr::eq(header.own.host.get(), host) || header.pool != pool {
            // SAFETY: the caller's promise.
            unsafe { self.check_and_arrive(host, (*host).id, pool) };
        }

        Target {
            context: &raw const header.own.context,
            base: header.own.base.get(),
        }
    }

    /// Runs the fiber until one leaves its stack for the worker's: the same, or another that has
    /// run after it. Returns which, and why.
    ///
    /// # Safety
    /// As for [`Self::target`].
    #[inline(always)]
    pub(crate) unsafe fn resume(self, host: *const Host, pool: NonNull<()>) -> Left {
        // SAFETY: the caller's promise.
        let target = unsafe { self.target(host, pool) };
        let shares = target.base == 0;
        if shares {
            CURRENT.with(|c| c.set(self.0.as_ptr()));
        }
        // What comes back says who it is of.
        self.leak();
        // SAFETY: this worker's loop runs, and has the right to run the fiber, which stands still.
        let left = unsafe {
            let message = (*host).context.switch(target.context, target.base, 0);
            Left::decode(message)
        };
        if shares {
            CURRENT.with(|c| c.set(ptr::null()));
        }
        left.expect("only fibers come back to a worker")
    }

    /// Forgets where the fiber ran, because that worker's thread may end: another's context may
    /// then lie at the same place, and what it lent the fiber (`arrive`) is gone.
    ///
    /// Context: the worker that has run it, before the fiber may run elsewhere.
    pub(crate) fn forget_place(&self) {
        self.header().own.host.set(ptr::null());
    }

    /// Marks the fiber as ended. Returns false if a message about it is in flight; the caller then
    /// retires it when that message has arrived.
    ///
    /// Context: its worker.
    #[inline]
    pub(crate) fn finish(&self) -> bool {
        let header = self.header();
        if header.pins() {
            return header.state.finish_pinned(&header.own.pinned);
        }
        header.state.finish();
        true
    }

    /// Frees the fiber, after `finish`, and returns its stack and its storage.
    #[inline(always)]
    pub(crate) fn retire(
        self,
        blocks: Option<&Blocks>,
    ) -> (Option<Stack>, Option<fiber_local::Block>) {
        let this = ManuallyDrop::new(self);
        let header = this.header();
        // SAFETY: the fiber has ended; nobody else touches its stack and its storage.
        let (stack, block) = unsafe {
            (
                (*header.own.stack.get()).take(),
                (*header.own.block.get()).take(),
            )
        };

        header.own.base.set(0);
        header.own.node.take();

        // SAFETY: gives up the fiber's reference on itself.
        unsafe { release(this.0, blocks) };
        (stack, block)
    }

    /// Ends a fiber that will not start: its joiner gets the error, its closure is dropped. Called
    /// by a worker, or by any thread where the fiber may start anywhere.
    pub(crate) fn refuse(self, error: std::io::Error, blocks: Option<&Blocks>) {
        // SAFETY: not started, and the caller's; `retire` then gives up the reference.
        unsafe { (self.header().vtable.refuse)(self.0, error) };
        let no_message = self.finish();
        debug_assert!(
            no_message,
            "a fiber that has not started has never suspended"
        );
        self.retire(blocks);
    }
}

/// Where a fiber begins, on its stack and its storage.
extern "C" fn enter(header: usize, message: usize) -> ! {
    let header = NonNull::new(ptr::with_exposed_provenance_mut::<Header>(header))
        .expect("what `start` has given");
    // SAFETY: the header outlives the fiber's run.
    let me = unsafe { header.as_ref() };
    context::begun(me.own.base.get());
    if me.owns_storage() {
        set_current(me);
    }

    me.host().settle(message);
    // SAFETY: the fiber's first and only start.
    unsafe { (me.vtable.run)(header) };

    let host = me.host();
    let message = Left::by(me, Switch::End).encode();
    // From here on on the worker's storage: what is called may be a policy of the user's, and
    // nobody would run the destructors of thread-locals that it makes.
    if me.owns_storage() {
        // SAFETY: this worker's; nothing below uses thread-locals but functions that are not
        // inlined.
        unsafe { fiber_local::set(host.home) };
    }
    let target = host.next(Switch::End);
    // SAFETY: as in `Header::switch`; nothing on this stack is needed any more.
    unsafe { Context::leave(target.context, target.base, message) }
}

#[cold]
#[inline(never)]
fn wrong_place(header: &Header, worker: WorkerId, foreign: bool) -> ! {
    let why = if foreign {
        "is another runtime's"
    } else {
        "is pinned elsewhere"
    };

    abort(format_args!(
        "a scheduling policy has given {header:?} to worker {worker}, and it {why}"
    ))
}

impl Drop for FiberTask {
    /// For policies, and whoever they give a task to: this crate gives its own up by name.
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the task's right to the fiber is the function's.
        unsafe { (self.header().vtable.lost)(self.0) };
    }
}

impl Task for FiberTask {
    #[inline]
    fn pinned(&self) -> Option<WorkerId> {
        self.header().pinned_to()
    }

    fn last_worker(&self) -> Option<WorkerId> {
        self.header().last_worker()
    }

    fn stamp(&self) -> Nanos {
        self.header().stamp.load(Ordering::Relaxed)
    }

    fn set_stamp(&self, now: Nanos) {
        self.header().stamp.store(now, Ordering::Relaxed);
    }

    fn priority(&self) -> u8 {
        self.header().urgency().priority
    }

    /// Returns the earlier of the deadline given for policies and the one that its blocking calls
    /// heed.
    fn deadline(&self) -> Option<Nanos> {
        // The holder of the task owns the fiber's parts.
        let deadline = self
            .header()
            .urgency()
            .due
            .min(self.header().own.deadline.get());
        (deadline != NEVER).then_some(deadline)
    }

    fn weight(&self) -> u32 {
        self.header().urgency().weight
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

    #[inline(always)]
    fn into_node(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    unsafe fn from_node(node: NonNull<Header>) -> Self {
        Self(node)
    }

    unsafe fn link<'a>(node: NonNull<Header>) -> &'a Link<Header> {
        // SAFETY: the node is alive while it is queued, by the caller's promise.
        unsafe { &(*node.as_ptr()).link }
    }
}
