//! Locks and channels in the shape of `std::sync`, for fibers and plain threads alike.
//!
//! Whoever waits on one gives its worker to other fibers; on a plain thread it blocks the thread. A wait ends early
//! with an error when the caller is cancelled or runs into its deadline ([`crate::time::with_timeout`]); what has come
//! by then is delivered, and the cancellation surfaces at the next call.
//!
//! | type | who is served | when nothing can be had |
//! |---|---|---|
//! | [`Mutex`] | whoever comes first; a waiter is passed over once at most | waits |
//! | [`Semaphore`] | strictly in order | waits |
//! | [`Condvar`] | in order | waits |
//! | [`channel`]: [`Sender`], [`Receiver`] | each value goes to one receiver; order of sending is kept | waits |
//!
//! `wait_queue` is what all four are made of.

pub mod channel;
mod condvar;
mod mutex;
mod semaphore;
pub(crate) mod wait_queue;

pub use channel::{Receiver, Sender};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use semaphore::{Permit, Semaphore};
