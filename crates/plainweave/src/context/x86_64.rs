//! The switch on x86-64, by the calling convention of System V.

use std::arch::{asm, naked_asm};

use super::{Entry, Saved};

/// Words at the stack pointer of a context that stands still: the address to go on at, `rbx`,
/// `rbp`. The unwind table for that address counts from above them.
pub(crate) const SAVED: usize = 3;

/// Reads the words of a context that stands still, by `read`, which gets a word's index.
pub(crate) fn saved(read: impl Fn(usize) -> usize) -> Option<Saved> {
    Some(Saved {
        instruction: read(0),
        frame: read(2),
    })
}

/// See [`Context::switch`](super::Context::switch).
///
/// # Safety
/// `to` was stored by `switch` or comes from [`prepare`]; `save` may be written to.
#[inline(always)]
pub(super) unsafe fn switch(save: *mut usize, to: usize, base: usize, message: usize) -> usize {
    let received;
    // SAFETY: the caller's promise. The compiler keeps nothing in a register that is lost here:
    // those of the calling convention, the five that a function would save (two are saved here,
    // since it cannot name them), and memory, which is not excluded. The stack is as before when
    // whoever comes back is at `2`.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "test rcx, rcx",
            "jz 3f",
            "wrfsbase rcx",
            "3:",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdi") save => _,
            inout("rsi") to => _,
            inout("rcx") base => _,
            inout("rdx") message => received,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
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
    let words = [start as *const () as usize, argument, 0, entry as usize];
    let pointer = base - size_of_val(&words);
    // SAFETY: the caller's promise: they are on the stack.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 4]>(pointer).write(words) };
    pointer
}

/// Where a new context begins: with its argument and its entry on the stack, and the message in
/// `rdx`. `rip` is undefined to unwinders, so their walk ends here.
///
/// # Safety
/// Only [`switch`] may come here.
#[unsafe(naked)]
unsafe extern "C" fn start() -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "pop rdi",
        "pop rbp",
        "pop rax",
        "mov rsi, rdx",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}

/// Returns whether the kernel keeps the thread's return addresses a second time.
pub(super) fn has_shadow_stack() -> bool {
    /// `ARCH_SHSTK_STATUS` of `asm/prctl.h`, and the bit `ARCH_SHSTK_SHSTK`.
    const STATUS: libc::c_int = 0x5005;
    const ENABLED: u64 = 1;
    let mut status = 0_u64;
    // SAFETY: the kernel writes one word there, or refuses a number that it does not know.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, STATUS, &raw mut status) };
    result == 0 && status & ENABLED != 0
}
