//! The register that locates thread-local storage. (`context` sets it too, with the stack.)

#![expect(
    unsafe_code,
    reason = "writes the register that thread-locals are found by"
)]

use std::arch::asm;

/// Returns the base in force.
pub(crate) fn base() -> usize {
    let base: usize;
    // SAFETY: reads a register; `glibc::available` has found that the kernel allows the
    // instruction, or this is only reached by way of it.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// # Safety
/// `base` is that of a complete block (or thread) that nobody else uses meanwhile. Nothing in the
/// calling function may use thread-local storage before the base is restored: the compiler is free
/// to move such an access.
#[inline(always)]
pub(crate) unsafe fn set(base: usize) {
    // SAFETY: the caller's promise; as in `base`. Not `nomem`: no access to memory moves across it.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// Runs `f` on the block at `base`.
///
/// # Safety
/// As for `set`. `f` does not panic, and does not use thread-local storage except in functions that
/// are not inlined.
#[inline(never)]
pub(crate) unsafe fn on<R>(base: usize, f: impl FnOnce() -> R) -> R {
    let home = self::base();
    // SAFETY: the caller's promise.
    unsafe { set(base) };
    let result = f();

    // SAFETY: this thread's own base.
    unsafe { set(home) };
    result
}
