//! I/O: one operation type, one driver trait, one file per driver.
//!
//! A blocking call fills an [`op::Operation`] in its own frame and passes its address to the
//! worker's driver. The driver keeps that address until it has reported exactly one completion for
//! it, and the call does not return before: that is why `&mut [u8]` may go straight to the kernel.

pub(crate) mod driver;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod no_driver;
pub(crate) mod op;
mod op_lists;
pub(crate) mod probe;
pub(crate) mod release;
pub(crate) mod sim;
pub(crate) mod source;
pub(crate) mod uring;
mod uring_setup;

#[cfg(test)]
mod tests;
