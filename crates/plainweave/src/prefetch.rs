//! Prefetching: requests memory from the processor before it is needed.
//!
//! A server with hundreds of connections finds nothing of a connection in its caches: what drivers,
//! idle connections and streams keep of it, and the kernel's own part, have been evicted since its
//! last request. One batch of events names many connections at once. Requested together, their
//! cache lines arrive in parallel; following one pointer after the other waits for each. With 512
//! connections that was a tenth of a small request.

#![expect(unsafe_code, reason = "the processor's hints")]

/// The size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches the cache lines of the `bytes` bytes from `at` on, without waiting for them. A hint:
/// nothing is read, and any address is allowed.
#[inline]
pub(crate) fn prefetch<T>(at: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        line(at.cast::<u8>().wrapping_add(offset));
    }
}

/// Prefetches the one cache line at `at` for writing. For memory that the caller is about to read
/// and then to change, and that another core may have changed: the line comes over once, not shared
/// for the read and again for the write. A hint, as above; but an unmapped address costs a walk of
/// the page tables each time.
#[inline]
pub(crate) fn prefetch_write<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that neither reads nor faults, whatever the address; processors without it
    // ignore it. (The intrinsic would compile to the prefetch for reading, because the oldest
    // x86-64 processors lack this one.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[inline]
fn line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that neither reads nor faults, whatever the address; every x86-64 has the
    // instruction.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
