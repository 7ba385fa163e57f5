//! A worker's inbox: any thread pushes a wake-up, the worker takes all of them at once.
//!
//! **Why it is hard.** A wake-up may come from any thread, even where allocation is not possible,
//! and it must not fail: so no bound, no lock and no allocation. The link therefore lives in the
//! task ([`Link`]), and a task is in at most one inbox at a time, which the fiber's state word
//! guarantees (only the thread that moves it from *suspended* to *ready* pushes it, or the holder
//! of a fiber that has not started).
//!
//! **The protocol** is Treiber's stack, taken whole:
//! 1. *Push:* load `newest` (Relaxed); write it into the task's link; CAS `newest` to the task
//!    (Release); on failure retry from the link. The task is not touched after the CAS: its new
//!    owner may already run or free it.
//! 2. *Take:* swap `newest` with null (Acquire), then reverse the chain, so that the oldest comes
//!    first.
//! 3. *Look:* load `newest` (Relaxed). A caller that needs it ordered issues a fence
//!    (`atomics/sleepers` does).
//!
//! **Why it is safe.**
//! * *Two pushes:* one CAS fails and links behind the other. No ABA: a push never follows the
//!   pointer that it compares, so "the same pointer again" is as good as "unchanged": the chain
//!   below that task *is* what the link says.
//! * *Push against take:* the push linked either to the chain that the take then took with it, or,
//!   failing, starts again from null.
//! * *Writing a link happens before reading it:* the take's Acquire reads the last push's Release;
//!   earlier pushes head release sequences that the later CASes, being read-modify-writes,
//!   continue. So one Acquire covers the chain.
//! * *Order:* pushes of one thread are ordered in the stack, and a take's chain is older than the
//!   next take's; reversed, each producer is in FIFO order (in fact all are, in the order of their
//!   CASes).
//!
//! The queue is also safe with several takers (each gets a whole chain), which shutdown and stall
//! recovery use; order across takers is then not guaranteed.
//!

#![expect(unsafe_code, reason = "links inside tasks")]

use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, NonNull};

use crate::prefetch::prefetch_write;
use crate::shim::atomic::AtomicPtr;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(test)]
pub(crate) mod tests;

/// The link inside a task by which an inbox holds it.
pub(crate) struct Link<N>(AtomicPtr<N>);

impl<N> Link<N> {
    /// Creates a link that is in no inbox.
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// A handle that owns a node with a [`Link`] in it; inboxes hold such handles.
///
/// # Safety
/// `into_node` gives a pointer that stays valid, and whose link nobody else uses and no `&mut`
/// covers, until `from_node` turns it back into the handle, perhaps on another thread; `link` gives
/// the same link each time.
pub(crate) unsafe trait Linked: Send + Sized {
    /// The type that the handle points to.
    type Node;

    /// Converts the handle into its node.
    fn into_node(self) -> NonNull<Self::Node>;

    /// Converts a node back into its handle.
    ///
    /// # Safety
    /// `node` came from `into_node`, and comes back once.
    unsafe fn from_node(node: NonNull<Self::Node>) -> Self;

    /// Returns the node's link.
    ///
    /// # Safety
    /// `node` came from `into_node` and has not come back; the reference is not kept past its
    /// coming back.
    unsafe fn link<'a>(node: NonNull<Self::Node>) -> &'a Link<Self::Node>;
}

/// An unbounded queue of wake-ups to one worker; `&Inbox` is shared by all.
pub(crate) struct Inbox<T: Linked> {
    newest: AtomicPtr<T::Node>,
    /// Passes tasks from thread to thread, which `T: Send` (by [`Linked`]) allows; shares none.
    tasks: PhantomData<fn(T) -> T>,
}

impl<T: Linked> Inbox<T> {
    /// Creates an empty inbox.
    pub(crate) fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            tasks: PhantomData,
        }
    }

    /// Appends a task and returns whether the inbox was empty. Of the pushes between two takes
    /// exactly the first returns true, and it is enough that this one wakes the worker. Lock-free;
    /// allocates nothing.
    #[inline]
    pub(crate) fn push(&self, task: T) -> bool {
        prefetch_write(&self.newest);
        let node = task.into_node();
        let mut newest = self.newest.load(Relaxed);

        loop {
            // SAFETY: ours until the CAS below succeeds; the reference ends before it.
            unsafe { T::link(node) }.0.store(newest, Relaxed);
            match self
                .newest
                .compare_exchange_weak(newest, node.as_ptr(), Release, Relaxed)
            {
                Ok(_) => return newest.is_null(),
                Err(seen) => newest = seen,
            }
        }
    }

    /// Takes everything, oldest first; an empty inbox costs one load.
    ///
    /// Context: the worker, or a thread that has taken over for it.
    #[inline]
    pub(crate) fn take_all(&self) -> Batch<T> {
        self.take().into_batch()
    }

    /// Takes everything like `take_all`, without waiting for the tasks' memory.
    #[inline]
    pub(crate) fn take(&self) -> Taken<T> {
        if self.is_empty() {
            return Taken::nothing();
        }
        Taken::new(self.newest.swap(ptr::null_mut(), Acquire))
    }

    /// Returns whether the inbox is empty. Never true while it holds a task whose push happened
    /// before this look.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Relaxed).is_null()
    }
}

impl<T: Linked> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Tasks taken from an inbox, still in stack order: the newest first. Dropping it drops them.
///
/// Each link is in a task that another core has just changed. [`Taken::step`] reverses one link and
/// prefetches the next: a caller that does other work between steps waits for none.
pub(crate) struct Taken<T: Linked> {
    rest: *mut T::Node,
    turned: Batch<T>,
}

impl<T: Linked> Taken<T> {
    pub(crate) fn nothing() -> Self {
        Self {
            rest: ptr::null_mut(),
            turned: Batch::nothing(),
        }
    }

    fn new(newest: *mut T::Node) -> Self {
        if !newest.is_null() {
            prefetch_write(newest);
        }
        Self {
            rest: newest,
            turned: Batch::nothing(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_null() && self.turned.oldest.is_null()
    }

    /// Reverses one link, so that it points to the next newer task. Returns whether there are more.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        if let Some(node) = NonNull::new(self.rest) {
            // SAFETY: the swap that took the chain made its nodes ours.
            let link = unsafe { T::link(node) };
            self.rest = link.0.load(Relaxed);
            if !self.rest.is_null() {
                prefetch_write(self.rest);
            }
            link.0.store(self.turned.oldest, Relaxed);
            self.turned.oldest = node.as_ptr();
            self.turned.len += 1;
        }
        !self.rest.is_null()
    }

    /// Reverses the remaining links and returns all tasks.
    pub(crate) fn into_batch(mut self) -> Batch<T> {
        while self.step() {}
        mem::replace(&mut self.turned, Batch::nothing())
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        while self.step() {}
    }
}

/// Tasks taken from an inbox, oldest first. Dropping it drops the remaining ones.
pub(crate) struct Batch<T: Linked> {
    oldest: *mut T::Node,
    len: usize,
    tasks: PhantomData<T>,
}

impl<T: Linked> Batch<T> {
    fn nothing() -> Self {
        Self {
            oldest: ptr::null_mut(),
            len: 0,
            tasks: PhantomData,
        }
    }
}

impl<T: Linked> Iterator for Batch<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let node = NonNull::new(self.oldest)?;
        // SAFETY: a node of the chain, which is ours; not converted back yet.
        self.oldest = unsafe { T::link(node) }.0.load(Relaxed);
        self.len -= 1;

        // SAFETY: from `into_node` in `push`; the chain no longer contains it, so it is converted
        // back once.
        Some(unsafe { T::from_node(node) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T: Linked> ExactSizeIterator for Batch<T> {}

impl<T: Linked> Drop for Batch<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
