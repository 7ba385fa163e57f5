//! Counted references to a fiber.

#![expect(unsafe_code, reason = "counts references to that block")]

use std::fmt;
use std::ptr::NonNull;

use super::blocks::Blocks;
use super::{Header, current_host};

/// A counted reference to a fiber, ended or not.
pub(crate) struct FiberHandle(pub(crate) NonNull<Header>);

// SAFETY: gives access to atomics and immutable parts only.
unsafe impl Send for FiberHandle {}
// SAFETY: as above.
unsafe impl Sync for FiberHandle {}

impl FiberHandle {
    pub(crate) fn from_ref(header: &Header) -> Self {
        header.refs.add();
        Self(NonNull::from(header))
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: counted.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for FiberHandle {
    fn clone(&self) -> Self {
        Self::from_ref(self.header())
    }
}

impl Drop for FiberHandle {
    fn drop(&mut self) {
        // SAFETY: gives up the counted reference.
        unsafe { release(self.0, current_host().map(|host| &host.blocks)) };
    }
}

impl fmt::Debug for FiberHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

/// Gives up one reference and frees the fiber if it was the last.
///
/// # Safety
/// The caller owns one reference and does not use it again.
pub(super) unsafe fn release(header: NonNull<Header>, here: Option<&Blocks>) {
    // SAFETY: alive until the count reaches zero.
    let h = unsafe { header.as_ref() };
    if h.refs.release() {
        // SAFETY: that was the last reference.
        unsafe { (h.vtable.free)(header, here) };
    }
}
