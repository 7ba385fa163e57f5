//! Asking the processor for memory before it is needed.
//!
//! A server with hundreds of connections finds nothing of a connection in its caches: what drivers, idle connections
//! and streams keep of it, and the kernel's own part, have been pushed out since its last request. One batch of events
//! names many connections at once. Asked for together, their lines come side by side; followed one pointer after the
//! other, each is waited for. With 512 connections that was a tenth of a small request.

/// A line of the cache, in bytes.
const LINE: usize = 64;

/// Any thread. Has the lines from `at` on, for so many bytes, fetched without waiting for them. A hint: nothing is read
/// and any address will do.
#[inline]
pub(crate) fn prefetch<T>(at: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        line(at.cast::<u8>().wrapping_add(offset));
    }
}

/// Any thread, about to read and then to change what another may have changed: has the one line at `at` fetched to be
/// written, so that it comes over once and not, for the read, shared, and for the write again. A hint, as the other;
/// but an address where there is no memory costs a look through the page tables each time.
#[inline]
pub(crate) fn prefetch_write<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that neither reads nor faults, whatever the address; where a processor does not have it, it does
    // nothing. (The intrinsic would be compiled to the hint for reading, for the oldest x86-64 lack this one.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[inline]
fn line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that neither reads nor faults, whatever the address; every x86-64 has the instruction.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
