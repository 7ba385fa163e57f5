//! What a fiber that waits for I/O has at a driver, and how it is woken for another reason.
//!
//! A fiber that may move at any time is pinned while it has an operation at its worker's driver:
//! only whoever holds that worker's I/O lock can cancel it. If the fiber's time is up, or it is
//! cancelled, or a branch of its select has come that is not a descriptor, it must cancel what is
//! still pending before it goes on. Were it to do that itself, it would have to run on that worker;
//! and if the worker is held up, perhaps by a fiber that waits for a lock of **this** one's,
//! neither would ever run again. So whoever wakes the fiber does it in its place
//! ([`IoCx::settle`]): the worker, or the watchdog for a worker that is held up. Both hold the
//! lock.
//!
//! # Protocol
//! 1. A fiber that suspends leaves a [`Pending`] in its frame and a pointer to it in its header
//!    (`wait::suspend_pending`).
//! 2. Whoever has won the fiber's wake-up owns it, and calls `settle`:
//!    * all operations have their results: the fiber is unpinned, and may go on anywhere;
//!    * it is to end early: the driver is asked to cancel the others. It may have answered at once;
//!      if not, the fiber is **suspended again** in its place, and the completions wake it;
//!    * it was woken for nothing (`unpark`, a waker that is left over): suspended again as well.
//! 3. So a fiber that may move runs again only with all results, on any worker. It looks at its
//!    condition as ever; an operation that has transferred something has that for a result,
//!    whatever it was asked.
//!
//! # Why it is safe
//! The operations' results, and whether a cancellation was asked for, change only under the
//! worker's I/O lock. The fiber reads them without it once they are complete, ordered by its state
//! word. To suspend a fiber in its place is what its worker does after a switch: the stack is
//! saved, and the same exchange finds a wake-up that has come meanwhile (`atomics/state`). A wait
//! for a descriptor whose driver only its worker may call (`Driver::watched`) stays with that
//! worker.
//!
//! # Rejected
//! * *The fiber cancels its own operations, on its worker*: see above; the deadlock was met by
//!   programs.
//! * *An operation that survives the move to another worker*: its buffer belongs to the kernel
//!   until the completion, and the completion comes to the driver that has it.

#![expect(
    unsafe_code,
    reason = "follows a suspended fiber's pointer to its operations, to cancel them"
)]

use std::ptr::NonNull;

use super::worker_io::IoCx;
use crate::fiber::{FiberTask, Movement, Reason};
use crate::io::op::Operation;

/// The operations that a suspended fiber has at its worker's driver. Lies in the frame of the wait.
#[derive(Debug)]
pub(crate) struct Pending {
    first: NonNull<Operation>,
    count: usize,
    /// Whether any wake-up ends all of them: a select, whose other branches only the fiber can look
    /// at.
    ends_at_any: bool,
}

impl Pending {
    /// One operation, which ends early by a cancellation or a deadline.
    pub(super) fn one(operation: &Operation) -> Self {
        Self {
            first: NonNull::from(operation),
            count: 1,
            ends_at_any: false,
        }
    }

    /// The operations of a select. There is at least one.
    pub(super) fn any_of(operations: &[Operation]) -> Self {
        Self {
            first: NonNull::from(operations).cast(),
            count: operations.len(),
            ends_at_any: true,
        }
    }

    /// # Safety
    /// The frame that the operations lie in is alive, and they change meanwhile only by the caller.
    unsafe fn operations(&self) -> &[Operation] {
        // SAFETY: made from such a slice; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl IoCx<'_> {
    /// Makes a woken fiber ready to go on, if it may move at any time and is pinned to this worker
    /// by what it waits for. Unpins it if that is over. Returns `None` if it has to wait on: then
    /// it is suspended again.
    pub(super) fn settle(self, task: FiberTask) -> Option<FiberTask> {
        let header = task.header();
        if header.movement() != Movement::Anytime || header.pinned_to().is_none() {
            return Some(task);
        }
        if !header.own.waits.is_for(Reason::Io) {
            self.unpin(header);
            return Some(task);
        }

        if !header.own.waits.is_pending() {
            return Some(task); // On its way to a driver (`sched/lent`).
        }
        // SAFETY: set by `wait::suspend_pending`, in whose frame it lies; the fiber is suspended
        // there.
        let pending = unsafe { &*header.own.awaited.get().cast::<Pending>() };
        // SAFETY: as above; results are written under this worker's I/O lock, which the caller
        // holds.
        let operations = unsafe { pending.operations() };
        let are_over = || {
            operations
                .iter()
                .all(|operation| operation.result.get().is_some())
        };

        let is_late = || header.own.waits.is_timed() && header.own.timer_fired.get();
        loop {
            if !are_over() && (pending.ends_at_any || is_late() || header.cancelled().is_some()) {
                if self.here.is_none() && self.io.driver.borrow().watched().is_none() {
                    return Some(task);
                }
                for operation in operations {
                    // SAFETY: the operation is in place, and was pending at this driver or has its
                    // result.
                    unsafe { self.cancel_quietly(operation) };
                }
            }

            if are_over() {
                self.unpin(header);
                return Some(task);
            }

            // From here on another thread may run the fiber, and free it.
            if header.suspended() {
                task.leak();
                return None;
            }
        }
    }
}
