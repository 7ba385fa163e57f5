//! I/O: one operation type, one driver trait, one file per driver.
//!
//! A blocking call fills an [`op::Operation`] in its own frame and passes its address to the
//! worker's driver. The driver keeps that address until it has reported exactly one completion for
//! it, and the call does not return before: that is why `&mut [u8]` may go straight to the kernel.

pub(crate) mod driver; // What a driver is, and its contract.
pub(crate) mod epoll; // The epoll driver.
pub(crate) mod eventfd; // The eventfd that ends a worker's sleep.
pub(crate) mod file_call; // Calls on files and paths, for a ring.
mod known; // What drivers that hear of changes know of a socket.
pub(crate) mod no_driver; // What workers have that borrow another's.
pub(crate) mod op; // An operation as data, and one attempt at it.
mod op_lists; // epoll's lists of waiting operations.
pub(crate) mod probe; // Which driver a worker gets.
pub(crate) mod release; // How drivers learn that a source is gone.
pub(crate) mod sim; // The driver on virtual time.
pub(crate) mod source; // A descriptor that fibers block on, closable under them.
pub(crate) mod uring; // The io_uring driver.
mod uring_setup; // Setting up a ring and entering it, by kernel version.

#[cfg(test)]
mod tests;
