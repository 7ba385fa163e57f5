//! The switch on aarch64, by its procedure call standard.

use std::arch::{asm, naked_asm};

use super::{Entry, Saved};

/// Words at the stack pointer of a context that stands still: the address to go on at, `x19`, `x29`
/// (the frame pointer), `x30` (the link register).
pub(crate) const SAVED: usize = 4;

/// As on x86-64, but dumps do not unwind here yet.
pub(crate) fn saved(_: impl Fn(usize) -> usize) -> Option<Saved> {
    None
}

/// See [`Context::switch`](super::Context::switch). There is no storage of fibers' own here, so
/// `base` is 0.
///
/// # Safety
/// `to` was stored by `switch` or comes from [`prepare`]; `save` may be written to.
#[inline(always)]
pub(super) unsafe fn switch(save: *mut usize, to: usize, _base: usize, message: usize) -> usize {
    let received;
    // SAFETY: the caller's promise. The compiler keeps nothing in a register that is lost here:
    // those of the calling convention, those that a function would save (three are saved here,
    // since it cannot name them, or needs them to return), and memory, which is not excluded.
    unsafe {
        asm!(
            "sub sp, sp, #32",
            "adr x9, 2f",
            "stp x9, x19, [sp]",
            "stp x29, x30, [sp, #16]",
            "mov x9, sp",
            "str x9, [x0]",
            "mov sp, x1",
            "ldr x9, [sp]",
            "br x9",
            "2:",
            "ldr x19, [sp, #8]",
            "ldp x29, x30, [sp, #16]",
            "add sp, sp, #32",
            inout("x0") save => _,
            inout("x1") to => _,
            inout("x2") message => received,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _,
            out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            clobber_abi("C"),
        );
    }
    received
}

/// Writes what [`switch`] finds at the stack pointer of a new context, and returns that.
///
/// # Safety
/// As for [`Context::prepare`](super::Context::prepare).
#[inline(always)]
pub(super) unsafe fn prepare(base: usize, entry: Entry, argument: usize) -> usize {
    let words = [
        start as *const () as usize,
        argument,
        0,
        0,
        entry as usize,
        0,
    ];
    let pointer = base - size_of_val(&words);
    // SAFETY: the caller's promise: they are on the stack.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 6]>(pointer).write(words) };
    pointer
}

/// Where a new context begins: with its argument and its entry on the stack, and the message in
/// `x2`. The link register is undefined to unwinders, so their walk ends here.
///
/// # Safety
/// Only [`switch`] may come here.
#[unsafe(naked)]
unsafe extern "C" fn start() -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "ldr x0, [sp, #8]",
        "ldp x29, x30, [sp, #16]",
        "ldr x9, [sp, #32]",
        "add sp, sp, #48",
        "mov x1, x2",
        "blr x9",
        "brk #1",
        ".cfi_endproc",
    )
}

/// Returns whether the kernel keeps the thread's return addresses a second time.
pub(super) fn has_shadow_stack() -> bool {
    /// `PR_GET_SHADOW_STACK_STATUS` and `PR_SHADOW_STACK_ENABLE` of `linux/prctl.h`.
    const STATUS: libc::c_int = 74;
    const ENABLED: u64 = 1;
    let mut status = 0_u64;
    // SAFETY: the kernel writes one word there, or refuses a number that it does not know.
    let result = unsafe { libc::prctl(STATUS, &raw mut status, 0, 0, 0) };
    result == 0 && status & ENABLED != 0
}
