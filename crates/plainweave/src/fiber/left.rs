//! What passes between two flows of a worker when one leaves its stack and the other goes on: who
//! has left and why, and with whom to go on.

#![expect(
    unsafe_code,
    reason = "a fiber's header travels as a word; a worker's functions, by untyped pointers"
)]

use std::ptr::{self, NonNull};

use super::{FiberTask, Header, Host, Switch};
use crate::context::Context;
use crate::queue::inbox::Linked;

/// Who has left its stack, and why: what whoever goes on must do for it (`sched/direct`).
#[derive(Debug)]
pub(crate) struct Left {
    /// The right to the fiber.
    pub(crate) task: FiberTask,
    pub(crate) how: Switch,
}

/// Bits of a word that say how; headers lie at multiples of 64.
const HOW: usize = 7;
const _: () = assert!(align_of::<Header>() > HOW && Switch::End as usize <= HOW);

impl Left {
    /// Says that the calling fiber leaves.
    #[inline(always)]
    pub(super) fn by(header: &Header, how: Switch) -> Self {
        // SAFETY: the fiber runs, so the right to it is its worker's, which gets it back by this.
        let task = unsafe { FiberTask::new(NonNull::from(header)) };
        Self { task, how }
    }

    /// Returns it as a word, which is not 0 and must become a `Left` again.
    #[inline(always)]
    pub(super) fn encode(self) -> usize {
        self.task.into_node().as_ptr().expose_provenance() | self.how as usize
    }

    /// Returns what a word says; 0 says that nobody has left: the worker's loop has.
    ///
    /// # Safety
    /// The word is one of [`Self::encode`], received for the first time, or 0.
    #[inline(always)]
    pub(crate) unsafe fn decode(word: usize) -> Option<Self> {
        let header = NonNull::new(ptr::with_exposed_provenance_mut(word & !HOW))?;
        // SAFETY: the caller's promise: the right that `encode` has given up.
        let task = unsafe { FiberTask::new(header) };
        let how = match word & HOW {
            0 => Switch::Yield,
            1 => Switch::YieldLocal,
            2 => Switch::YieldShared,
            3 => Switch::Elsewhere,
            4 => Switch::Suspend,
            _ => Switch::End,
        };

        Some(Self { task, how })
    }
}

/// What to go on with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Target {
    /// Null in [`Self::NONE`].
    pub(crate) context: *const Context,
    /// The base of its thread-local storage; 0 where it stays as it is.
    pub(crate) base: usize,
}

impl Target {
    /// Nothing: the caller need not leave its stack.
    pub(crate) const NONE: Self = Self {
        context: ptr::null(),
        base: 0,
    };
}

/// What fibers of a worker call when they leave their stacks. They do not know the type of its
/// policy, so these are pointers.
///
/// Neither function unwinds: a panic in them ends the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    /// The worker, which both functions get.
    pub(crate) worker: *const (),
    /// Returns what to go on with in place of a fiber that is about to leave its stack.
    pub(crate) next: unsafe extern "C" fn(*const (), Switch) -> Target,
    /// Does what must be done for the one that has left: the word is an encoded [`Left`].
    pub(crate) settle: unsafe extern "C" fn(*const (), usize),
}

impl Host {
    /// Returns the worker's own loop, to go on with.
    #[inline(always)]
    pub(crate) fn target(&self) -> Target {
        Target {
            context: &raw const self.context,
            base: self.home,
        }
    }

    /// Returns what to go on with in place of the calling fiber, which is about to leave its stack.
    #[inline(always)]
    pub(super) fn next(&self, how: Switch) -> Target {
        match self.direct.get() {
            // SAFETY: the worker's own function, on its own thread.
            Some(direct) => unsafe { (direct.next)(direct.worker, how) },
            None => self.target(),
        }
    }

    /// Does for the fiber that has left its stack for the calling one's what must be done, if one
    /// has: the worker's loop needs nothing.
    #[inline(always)]
    pub(super) fn settle(&self, message: usize) {
        if message != 0
            && let Some(direct) = self.direct.get()
        {
            // SAFETY: as in `next`; a message of that function's target.
            unsafe { (direct.settle)(direct.worker, message) };
        }
    }
}
