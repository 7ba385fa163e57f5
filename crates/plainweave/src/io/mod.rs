//! I/O: one operation type, one driver trait, one file a driver.
//!
//! A blocking call fills an [`op::Operation`] in its own frame and hands its address to the worker's driver. The driver
//! keeps that address until it has reported exactly one completion for it: that is why `&mut [u8]` may go straight to
//! the kernel (DESIGN D5).

pub(crate) mod driver;
pub(crate) mod epoll;
pub(crate) mod eventfd;
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
