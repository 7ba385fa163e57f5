//! Switching from one stack to another: the one thing that no library of this kind does for us.
//!
//! A [`Context`] is a flow of execution that stands still: where on its stack it goes on. A worker
//! has one, on its thread's stack, and each fiber one. [`Context::switch`] leaves one and goes on
//! with another, **any** other. A coroutine can only be entered by its caller and return to it. But
//! where the next fiber is at hand, the last one goes to it directly (`sched/direct`), and the
//! worker's stack is not touched.
//!
//! # What a switch does
//! It saves what the calling function may not save by itself (on x86-64 the frame pointer, `rbx`
//! and the address to go on at), stores the stack pointer, loads the other's, and jumps to the
//! address saved there. To the compiler all other registers are lost, so it keeps in
//! memory what it needs, which mostly is little. The switch is inlined: a processor predicts
//! returns from the calls that it has seen, and after a switch these are another flow's.
//!
//! With the stack goes the *base* of thread-local storage, where fibers have their own
//! (`fiber_local`): one instruction between the two stacks, so that no access of the compiler's
//! can come between. A base of 0 leaves it as it is.
//!
//! A *message* of one word goes along in a register: what the flow that goes on is to do for the
//! one that has left, now that its stack is no longer in use.
//!
//! # Where a new one begins
//! At a few instructions (`start`), which call the entry with its argument and the message. To
//! unwinders (panics, gdb, perf) they are the end of the stack: the unwind table says so, and the
//! frame pointer is null. The floating-point control registers are not switched: they are a
//! thread's, as its signal mask is.
//!
//! # AddressSanitizer
//! keeps a shadow of each stack, and is notified before and after a switch that changes the stack
//! alone (`sanitizer/common_interface_defs.h`). Its record of a thread is in thread-local storage:
//! a fiber's own storage has none, so switches between storages are not reported.
//!
//! # Shadow stacks
//! A processor that keeps return addresses a second time (Intel's CET, ARM's GCS) would take a
//! switch for an attack. Linux has none in force unless a program was built for them and its libc
//! asks: [`available`] refuses then.
//!
//! # Rejected
//! * *A coroutine library* (`corosensei`, which this took the place of): asymmetric; see above. And
//!   its resume and suspension are a call and a return, which the processor predicts wrongly where
//!   fibers take turns: with this switch in its place a yield of `before-start/shared` took 17 ns
//!   on an EPYC in place of 42.
//! * *A function that saves all registers of the calling convention* (`swapcontext`, as most
//!   libraries have it): six stores and loads, of which two are needed here, and its return is
//!   mispredicted.

#![expect(unsafe_code, reason = "leaves one stack for another")]

#[cfg(target_arch = "aarch64")]
mod aarch64; // The switch on aarch64.
#[cfg(target_arch = "x86_64")]
mod x86_64; // The switch on x86-64.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("plainweave switches stacks on x86-64 and on aarch64 only");
mod sanitizer; // What AddressSanitizer has to know.
#[cfg(test)]
pub(crate) mod tests;

use std::cell::Cell;
use std::io;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
pub(crate) use arch::{SAVED, saved};
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

/// Registers of a context that stands still, for unwinding its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    /// The instruction pointer.
    pub(crate) instruction: usize,
    /// The frame pointer.
    pub(crate) frame: usize,
}

/// What a new context begins with: its argument and the first message. It must leave by
/// [`Context::leave`].
pub(crate) type Entry = extern "C" fn(argument: usize, message: usize) -> !;

/// Where a flow of execution goes on that stands still.
///
/// Context: whoever has the right to run it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    /// The stack pointer; 0 while it runs, and before it has begun.
    pointer: Cell<usize>,
    /// What AddressSanitizer knows of its stack.
    shadow: sanitizer::Shadow,
}

impl Context {
    /// Creates the context of what runs now, or will be given a stack.
    pub(crate) const fn new() -> Self {
        Self {
            pointer: Cell::new(0),
            shadow: sanitizer::Shadow::new(),
        }
    }

    /// Makes it that of the calling thread.
    pub(crate) fn adopt_thread(&self) {
        self.shadow.adopt_thread();
    }

    /// Makes it one that will call `entry` with `argument`, on the stack from `bottom` up to
    /// `base`.
    ///
    /// # Safety
    /// The stack is writable, nobody uses it, and it stays until the context has left it. `base` is
    /// a multiple of 16.
    #[inline(always)]
    pub(crate) unsafe fn prepare(&self, bottom: usize, base: usize, entry: Entry, argument: usize) {
        self.shadow.prepare(bottom, base);
        // SAFETY: the caller's promise.
        self.pointer
            .set(unsafe { arch::prepare(base, entry, argument) });
    }

    /// Returns where its stack is in use from, down to which; 0 while it runs. What lies there is
    /// what the last switch has saved: [`saved`] reads it.
    pub(crate) fn pointer(&self) -> usize {
        self.pointer.get()
    }

    /// Leaves `self`, which runs, and goes on with `to`, on the thread-local storage at `base` (0:
    /// the same as now). Returns the message of whoever comes back, on whatever thread.
    ///
    /// # Safety
    /// `self` is the calling context, and `to` another that stands still and that this thread has
    /// the right to run; both stay where they are until they have been left or gone on with. `base`
    /// is that of `to`'s storage.
    #[inline(always)]
    pub(crate) unsafe fn switch(&self, to: *const Context, base: usize, message: usize) -> usize {
        // SAFETY: the caller's promise.
        let pointer = unsafe { (*to).pointer.replace(0) };
        debug_assert!(pointer != 0, "a context that runs, or has not begun");
        // SAFETY: the caller's promise.
        sanitizer::before_switch(Some(&self.shadow), unsafe { &(*to).shadow }, base);
        // SAFETY: the pointer is what `switch` or `prepare` has left there.
        let received = unsafe { arch::switch(self.pointer.as_ptr(), pointer, base, message) };
        sanitizer::after_switch(Some(&self.shadow), base);
        received
    }

    /// Goes on with `to` as [`Self::switch`] does, and never comes back: the calling context has
    /// ended, and its stack is free as soon as `to` runs.
    ///
    /// # Safety
    /// As for [`Self::switch`]; nothing on the stack is needed any more.
    #[inline(always)]
    pub(crate) unsafe fn leave(to: *const Context, base: usize, message: usize) -> ! {
        // SAFETY: the caller's promise.
        let pointer = unsafe { (*to).pointer.replace(0) };
        // SAFETY: the caller's promise.
        sanitizer::before_switch(None, unsafe { &(*to).shadow }, base);
        let mut nowhere = 0;
        // SAFETY: as in `switch`; nobody goes on with what is saved.
        unsafe { arch::switch(&raw mut nowhere, pointer, base, message) };
        unreachable!("a context has left for good");
    }
}

/// To be called first by an [`Entry`], with the base of its thread-local storage as it was given to
/// the switch.
#[inline(always)]
pub(crate) fn begun(base: usize) {
    sanitizer::after_switch(None, base);
}

/// Returns an error if a switch of stacks would end the process.
pub(crate) fn available() -> io::Result<()> {
    if arch::has_shadow_stack() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this thread has a shadow stack (CET, GCS), and fibers switch stacks, which the \
             processor would take for an attack: start the program without, for example by \
             GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
        ));
    }
    Ok(())
}
