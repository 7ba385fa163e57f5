//! Prefetches, which the cost model leaves out: what is requested early arrives when it is used.

/// Requests a line for writing; without effect here.
#[inline]
pub(crate) fn prefetch_write<T>(_: *const T) {}
