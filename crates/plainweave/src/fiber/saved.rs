//! The stack of a suspended fiber, as dumps read it.
//!
//! corosensei keeps the saved stack pointer in a private field. It is found among the words of the
//! coroutine: the lowest address within the stack (the others are the stack's base, where it began,
//! and a function). What lies there is documented at the head of corosensei's `arch/x86_64.rs`: the
//! address to continue at, RBX, RBP. The unwind tables for that address count from above these
//! three.

#![expect(unsafe_code, reason = "reads the stack of a suspended fiber")]

use std::ops::Range;

use super::{Coro, Header};
use crate::stack;

/// The words of a coroutine.
const WORDS: usize = size_of::<Coro>() / size_of::<usize>();
/// The words that a switch saves.
const SAVED: usize = 3;
/// Bytes below the stack pointer that a function of x86-64 may use.
const RED_ZONE: usize = 128;

// Five words without padding between: the stack (two), two stack pointers, a function.
#[cfg(not(feature = "sanitizer"))]
const _: () = assert!(size_of::<Coro>() == 5 * size_of::<usize>());

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
        let coroutine = unsafe { (*self.own.coroutine.get()).as_ref() }?;
        let words: [usize; WORDS] = std::array::from_fn(|at| {
            // SAFETY: within the coroutine, which has no padding.
            unsafe { std::ptr::from_ref(coroutine).cast::<usize>().add(at).read() }
        });

        let bounds = coroutine.trap_handler();
        let inside = |address: &usize| bounds.stack_ptr_in_bounds(*address);
        // Where it is suspended, and where it began; more with AddressSanitizer. A fiber that is
        // suspended on a stack that its code has brought along (`stacker`) has only the latter here,
        // and what it uses of this stack is not known.
        if words.iter().filter(|word| inside(word)).count() < 2 {
            return None;
        }
        let pointer = words.into_iter().filter(inside).min()?;
        let base = words
            .into_iter()
            .find(|word| !inside(word) && inside(&word.wrapping_sub(1)))?;

        (pointer.is_multiple_of(size_of::<usize>()) && pointer + SAVED * size_of::<usize>() <= base)
            .then_some(pointer..base)
    }

    /// Gives the pages of the stack below what is in use back to the kernel. Returns how deep the
    /// stack had been, in bytes; `None` if it is not known what is in use.
    ///
    /// # Safety
    /// As for [`Self::used_stack`].
    pub(crate) unsafe fn trim_stack(&self) -> Option<usize> {
        // AddressSanitizer's coroutines have more words, which are not told apart here.
        if cfg!(feature = "sanitizer") {
            return None;
        }
        // SAFETY: the caller's promise; nothing of a suspended fiber lies below its stack pointer
        // but the red zone.
        unsafe { stack::trim_below(self.used_stack()?.start - RED_ZONE) }
    }

    /// Returns where the fiber is suspended, with a copy of at most `most` words.
    ///
    /// # Safety
    /// As for [`Self::used_stack`].
    pub(crate) unsafe fn saved_stack(&self, most: usize) -> Option<SavedStack> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        // SAFETY: the caller's promise.
        let used = unsafe { self.used_stack() }?;
        let at = |index: usize| used.start + index * size_of::<usize>();
        let count = used.len() / size_of::<usize>();

        // SAFETY: words of the stack, which stands still; aligned.
        let read = |index: usize| unsafe { word(at(index)) };
        let copy = (SAVED..count).take(most).map(read).collect();
        Some(SavedStack {
            instruction: read(0),
            stack: at(SAVED),
            frame: read(2),
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
