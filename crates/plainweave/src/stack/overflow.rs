//! Stack overflow: prints a message with the fiber's name and ends the process.
//!
//! A fiber that overflows touches its guard. The kernel sends SIGSEGV, and the handler runs on the
//! thread's *alternate* stack, since the current one has no room. At that point anything may be
//! half done: the allocator's lock held, the thread-local base that of the fiber. So the handler
//! allocates nothing, locks nothing, uses no thread-local and no formatting machinery; it calls
//! `write` and `abort`. Its steps:
//!
//! 1. A signal that was sent (`kill`, `raise`) carries no address: chain (step 4).
//! 2. The fault address is looked up among the slabs; not in a guard: if a fiber runs on a stack
//!    that its code has brought along (the crate `stacker`), and has run into what lies below its
//!    stack pointer, say so; chain.
//! 3. The stack pointer is compared: at an overflow it lies in the same slot, or below it if a
//!    large frame moved it there. A wild pointer of another thread that happens to hit a guard is
//!    not an overflow: chain. Else print, abort.
//! 4. To chain is to do what would have happened without this handler: call the previous handler
//!    (Rust's own, which reports overflows of OS threads; a crash reporter), or restore the default
//!    action and return, so that the instruction faults again and the process dies of the same
//!    signal, with the right core dump.
//!
//! Unwinding instead of aborting is not an option: the fault may be in C code, in a destructor, or
//! in the middle of any instruction that no landing pad expects.
//!
//! # The alternate stack
//! The kernel puts a frame of up to 11 KiB on it for each signal (`AT_MINSIGSTKSZ`: all of the
//! processor's vector and matrix registers), and one handler's frame above another's where their
//! masks allow it. Threads that `std` creates have about 12 KiB: with the handler that samples a
//! stalled fiber (`watchdog`), two more signals with empty handlers overflow it. So a worker has an
//! alternate stack of its own, for [`NESTED`] frames and as much again for a handler that prints a
//! backtrace, and no signal interrupts this crate's handlers.
//!
//! Not caught: C code without stack probes whose frame steps over all 64 KiB, and a system call
//! that is given a buffer in the guard, which fails with `EFAULT`.

#![expect(unsafe_code, reason = "a signal handler")]

use std::io;
use std::ptr;
use std::sync::{Once, OnceLock};

use super::slab::{GUARD_SIZE, Mapping, page_size};
use super::table::{self, SlotHit};
use crate::sys::{self, SignalHandler, check};

/// What the handler reads of a stack's owner: the first field of a `repr(C)` fiber header.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OverflowInfo {
    /// The fiber's name, UTF-8 bytes. Valid as long as the owner is set.
    pub(crate) name_ptr: *const u8,
    /// Bytes at `name_ptr`; 0 for a fiber without a name.
    pub(crate) name_len: usize,
    /// The fiber's number.
    pub(crate) id: u64,
}

/// The signals that a guard may raise.
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Why `sigaction` does not fail for them.
const VALID: &str = "a signal that may be handled";
/// The previous actions of [`SIGNALS`]. Set before the handler is installed, so the handler always
/// finds them.
static PREVIOUS: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

/// Returns what to say of the fiber that runs on the calling thread, null if none does. Uses a
/// thread-local at most.
pub(crate) type Running = fn() -> *const OverflowInfo;
/// Set before the handler is installed.
static RUNNING: OnceLock<Running> = OnceLock::new();

/// Installs the handler of SIGSEGV and SIGBUS for the process. Further calls have no effect.
pub(crate) fn install(running: Running) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        RUNNING.get_or_init(|| running);
        PREVIOUS.get_or_init(|| SIGNALS.map(|signal| sys::signal_action(signal).expect(VALID)));
        for signal in SIGNALS {
            // SAFETY: `on_fault` keeps to what the head of this file says of it.
            unsafe { sys::handle_signal(signal, on_fault, 0) }.expect(VALID);
        }
    });
}

/// Handles the signal; the steps are those of the essay.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo, and `si_addr` is set for faults.
    let (sent, address) = unsafe { ((*info).si_code <= 0, (*info).si_addr().addr()) };
    if !sent {
        // SAFETY: if the address is in the guard of a running fiber, its pool is not being dropped.
        // If it is a wild pointer into a pool being dropped this instant, the lookup faults again
        // here, with the signal masked, and the process dies of it: the same outcome.
        let hit = unsafe { table::lookup(address) };
        if let Some(hit) = hit.filter(|hit| hit.is_guard && overflowed(hit, stack_pointer(context)))
        {
            report(&hit, address);
            std::process::abort();
        }
        if hit.is_none()
            && let Some(pointer) = stack_pointer(context)
            && (pointer.saturating_sub(NEAR)..pointer.saturating_add(NEAR)).contains(&address)
        {
            report_foreign(pointer, address);
        }
    }
    chain(signal, sent, info, context);
}

/// How far from the stack pointer the fault of an overflow lies at most: a probe of a large frame
/// touches a page at a time.
const NEAR: usize = 8192;

/// Writes the message where a fiber runs on a stack that is no fiber's. It may be another fault
/// after all, of a pointer into that stack: so the signal is passed on.
fn report_foreign(pointer: usize, address: usize) {
    // Not in the middle of a switch, which is on a fiber's stack or a worker's: the thread-local is
    // that of whose code has faulted, as for any of its instructions.
    // SAFETY: a fiber that runs is valid until it ends, and this interrupts it.
    let Some(info) = (unsafe { RUNNING.get().and_then(|running| running().as_ref()) }) else {
        return;
    };
    // SAFETY: the fiber runs, so its stack is in use.
    if unsafe { table::lookup(pointer) }.is_some() {
        return;
    }
    let mut line = Line::new();
    line.text(b"plainweave: ");
    line.fiber(info);
    line.thread();
    line.text(b" has probably overflowed a stack that its code has switched to, at 0x");
    line.number(address as u64, 16);
    line.text(b"; its stack pointer is outside of the fiber's own\n");
    line.write();
}

/// Returns whether a fault in this slot's guard came from running on this slot's stack.
fn overflowed(hit: &SlotHit, stack_pointer: Option<usize>) -> bool {
    let slot = hit.slot_base.saturating_sub(hit.size)..hit.slot_base + GUARD_SIZE + hit.size;
    stack_pointer.is_none_or(|pointer| slot.contains(&pointer))
}

/// Returns the stack pointer at the fault, on platforms where its place is known.
fn stack_pointer(context: *mut libc::c_void) -> Option<usize> {
    let context = context.cast::<libc::ucontext_t>();
    if context.is_null() {
        return None;
    }
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    #[cfg(target_arch = "x86_64")]
    let pointer = Some(unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] } as usize);

    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    let pointer = Some(unsafe { (*context).uc_mcontext.sp } as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let pointer = None;
    pointer
}

/// Bytes of a thread's name, the last of which is 0.
const THREAD_NAME: usize = 16;

/// Writes the message; the tests have its wording.
fn report(hit: &SlotHit, address: usize) {
    let mut line = Line::new();
    line.text(b"plainweave: ");
    // SAFETY: an owner that is not null points to an `OverflowInfo` that stays valid while it is
    // set (`Stack::set_owner`), and the fiber that set it is the one interrupted here.
    match unsafe { hit.owner.cast::<OverflowInfo>().as_ref() } {
        Some(info) => line.fiber(info),
        None => line.text(b"a fiber"),
    }
    line.thread();

    line.text(b" has overflowed its stack of ");
    line.number((hit.size / 1024) as u64, 10);
    line.text(b" KiB at 0x");
    line.number(address as u64, 16);
    line.text(b"; raise it with Builder::stack_size or Runtime::builder().stack_size(..)\n");
    line.write();
}

/// A line assembled in fixed memory; what does not fit is cut off.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            bytes: [0; 512],
            len: 0,
        }
    }

    fn text(&mut self, text: &[u8]) {
        for &byte in text.iter().take(self.bytes.len() - self.len) {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    /// Writes the fiber's name and number.
    fn fiber(&mut self, info: &OverflowInfo) {
        self.text(b"fiber ");
        let named = info.name_len > 0;
        if named {
            // SAFETY: `name_len` bytes are valid at `name_ptr` by the field's contract.
            let name = unsafe { std::slice::from_raw_parts(info.name_ptr, info.name_len) };
            self.text(b"'");
            self.text(&name[..name.len().min(128)]);
            self.text(b"' ");
        }

        self.text(if named { b"(#" } else { b"#" });
        self.number(info.id, 10);
        self.text(if named { b")" } else { b"" });
    }

    /// Writes which thread it is.
    fn thread(&mut self) {
        // A worker's name begins with that of its pool.
        let mut name = [0_u8; THREAD_NAME];
        // SAFETY: as many bytes as the kernel writes; a system call may be made in a handler.
        if unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } == 0 {
            self.text(b" on thread '");
            self.text(name.split(|byte| *byte == 0).next().unwrap_or_default());
            self.text(b"'");
        }
    }

    fn number(&mut self, mut value: u64, radix: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(value % radix) as usize];
            value /= radix;
            if value == 0 {
                break;
            }
        }

        self.text(&digits[first..]);
    }

    /// Writes the line to standard error, as much as it accepts.
    fn write(&self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            // SAFETY: the pointer and length are those of a slice; `write` may be called in a
            // signal handler.
            let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = &rest[written..],
                _ => return,
            }
        }
    }
}

/// Does what the process would have done without this handler: step 4 of the essay.
fn chain(signal: libc::c_int, sent: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let index = usize::from(signal == libc::SIGBUS);
    let Some(previous) = PREVIOUS.get().map(|all| &all[index]) else {
        return;
    };
    match previous.sa_sigaction {
        // A fault cannot be ignored: the instruction repeats, and the kernel then kills the
        // process. A sent signal can.
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores an action that was in force before; `raise` may be called in a
            // handler. The signal is masked until we return, and then takes the process down: the
            // fault's when it repeats, a sent one's from `raise`.
            unsafe {
                libc::sigaction(signal, previous, ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the kernel gave us this address as a handler with SA_SIGINFO, which has this
            // signature.
            let handler = unsafe { std::mem::transmute::<usize, SignalHandler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the kernel gave us this address as a handler without SA_SIGINFO, which takes
            // the signal alone.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

/// Handlers that may interrupt one another on the alternate stack.
const NESTED: usize = 16;

/// A thread's alternate signal stack, until it is dropped on that thread.
#[derive(Debug)]
pub(crate) struct AltStack {
    /// This value's mapping and the previous stack; none when the thread already had a stack that
    /// is large enough.
    mapping: Option<(Mapping, libc::stack_t)>,
    /// A raw mapping is not tied to a thread; this guard is.
    not_send: std::marker::PhantomData<*const ()>,
}

/// Ensures that signals have a stack of their own, of sufficient size. Drop the result on thread
/// exit, which puts the previous one back. (`std` frees its own at the end of a thread.)
///
/// # Errors
///
/// Those of `mmap`.
///
/// Context: each worker thread, before anything else.
pub(crate) fn ensure_alt_stack() -> io::Result<AltStack> {
    let not_send = std::marker::PhantomData;
    // SAFETY: `getauxval` has no preconditions and returns 0 for what it does not know.
    let frame = (unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize).max(libc::MINSIGSTKSZ);
    let size = (NESTED * frame + (64 << 10)).next_multiple_of(page_size());

    let before = alt_stack();
    if before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size >= size {
        return Ok(AltStack {
            mapping: None,
            not_send,
        });
    }

    let guard = page_size();
    let mapping = Mapping::new(guard + size, libc::PROT_NONE)?;
    mapping.open(guard)?;
    let stack = libc::stack_t {
        ss_sp: mapping.start().wrapping_add(guard).cast(),
        ss_flags: 0,
        ss_size: size,
    };

    // SAFETY: the stack is `size` writable bytes that stay mapped until `AltStack::drop` has
    // withdrawn it.
    check(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) })?;
    Ok(AltStack {
        mapping: Some((mapping, before)),
        not_send,
    })
}

fn alt_stack() -> libc::stack_t {
    let mut stack = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };

    // SAFETY: a null new stack only queries.
    unsafe { libc::sigaltstack(ptr::null(), &mut stack) };
    stack
}

impl AltStack {
    #[cfg(test)]
    /// Returns whether the stack was created here rather than found.
    pub(crate) fn is_ours(&self) -> bool {
        self.mapping.is_some()
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let Some((mapping, before)) = self.mapping.take() else {
            return;
        };
        let stack = alt_stack();

        let ours = mapping.start().addr()..mapping.start().addr() + mapping.len();
        if ours.contains(&stack.ss_sp.addr()) {
            // SAFETY: withdraws the stack before its mapping goes; the one before is still there,
            // or was none.
            unsafe { libc::sigaltstack(&before, ptr::null_mut()) };
        }
    }
}
