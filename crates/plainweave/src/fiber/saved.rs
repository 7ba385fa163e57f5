//! The stack of a suspended fiber, as dumps read it.

#![expect(unsafe_code, reason = "reads the stack of a suspended fiber")]

use std::ops::Range;

use super::Header;
use crate::context::{SAVED, saved};
use crate::stack;

/// Bytes below the stack pointer that a function of x86-64 may use.
const RED_ZONE: usize = 128;

/// What unwinding starts from, and a copy of what lies above.
#[derive(Clone, Debug)]
pub(crate) struct SavedStack {
    /// The instruction pointer.
    pub(crate) instruction: usize,
    /// The stack pointer.
    pub(crate) stack: usize,
    /// The frame pointer's register.
    pub(crate) frame: usize,
    /// The words from `stack` on.
    pub(crate) copy: Vec<usize>,
}

impl Header {
    /// Returns the addresses in use on the fiber's stack. Its first words are what the last switch
    /// has saved.
    ///
    /// # Safety
    /// The caller owns the fiber, which is suspended.
    pub(crate) unsafe fn used_stack(&self) -> Option<Range<usize>> {
        // SAFETY: the caller owns the fiber.
        let stack = unsafe { (*self.own.stack.get()).as_ref() }?;
        let pointer = self.own.context.pointer();
        let base = stack.base();

        // A fiber may be suspended on a stack that its code has brought along (`stacker`): what it
        // uses of this one is not known.
        (pointer >= stack.bottom_address() && pointer + SAVED * size_of::<usize>() <= base)
            .then_some(pointer..base)
    }

    /// Gives the pages of the stack below what is in use back to the kernel. Returns how deep the
    /// stack had been, in bytes; `None` if it is not known what is in use.
    ///
    /// # Safety
    /// As for [`Self::used_stack`].
    pub(crate) unsafe fn trim_stack(&self) -> Option<usize> {
        // SAFETY: the caller's promise; nothing of a suspended fiber lies below its stack pointer
        // but the red zone.
        unsafe { stack::trim_below(self.used_stack()?.start - RED_ZONE) }
    }

    /// Returns where the fiber is suspended, with a copy of at most `most` words.
    ///
    /// # Safety
    /// As for [`Self::used_stack`].
    pub(crate) unsafe fn saved_stack(&self, most: usize) -> Option<SavedStack> {
        // SAFETY: the caller's promise.
        let used = unsafe { self.used_stack() }?;
        let at = |index: usize| used.start + index * size_of::<usize>();
        let count = used.len() / size_of::<usize>();

        // SAFETY: words of the stack, which stands still; aligned.
        let read = |index: usize| unsafe { word(at(index)) };
        let registers = saved(read)?;
        let copy = (SAVED..count).take(most).map(read).collect();
        Some(SavedStack {
            instruction: registers.instruction,
            stack: at(SAVED),
            frame: registers.frame,
            copy,
        })
    }
}

/// Reads a word of a stack. By an instruction of its own, because AddressSanitizer would object to
/// what lies between variables.
///
/// # Safety
/// The word must be readable, and `address` aligned.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn word(address: usize) -> usize {
    let word;
    // SAFETY: the caller's promise; the instruction only reads.
    unsafe {
        std::arch::asm!("mov {0}, qword ptr [{1}]", out(reg) word, in(reg) address,
            options(nostack, readonly, preserves_flags));
    }
    word
}

/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn word(_: usize) -> usize {
    0
}
