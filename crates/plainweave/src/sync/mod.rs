//! Locks and channels in the shape of `std::sync`, for fibers and plain threads alike.
//!
//! Waiting on one gives the worker to other fibers; on a plain thread it blocks the thread. A wait ends early with an
//! error when the caller is cancelled or runs into its deadline ([`crate::time::with_timeout`]). What has arrived by
//! then is delivered, and the cancellation surfaces at the next call.
//!
//! | type | order of service | when nothing is available |
//! |---|---|---|
//! | [`Mutex`] | first to try; a waiter is passed over at most once | waits |
//! | [`Semaphore`] | strictly in order | waits |
//! | [`Condvar`] | in order | waits |
//! | [`channel`]: [`Sender`], [`Receiver`] | each value goes to one receiver, in the order of sending | waits |
//! | [`RwLock`] | in order; phases of readers and single writers alternate | waits |
//! | [`Barrier`] | all pass together | waits |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | one initialises; if it fails, the next in order | waits |
//! | [`WaitGroup`] | all go on together | waits |
//! | [`Notify`] | in order; one notification is kept | waits |
//! | [`watch`]: a value and its versions | each receiver sees the latest | waits |
//! | [`broadcast`]: each value goes to each receiver | in the order of sending | waits; a slow one loses the oldest |
//!
//! All are built on `wait_queue`. None is poisoned by a panic. A primitive that others wait for cannot be dropped: they
//! borrow it, or own a part of it.

pub mod channel;
mod condvar;
mod mutex;
mod rw_lock;
mod semaphore;
pub(crate) mod wait_queue;

mod barrier;
pub mod broadcast;
mod lazy_lock;
#[cfg(all(test, loom))]
mod models;
mod notify;
mod once_lock;
mod wait_group;
pub mod watch;

pub use channel::{Receiver, Sender};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use rw_lock::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedPermit, Permit, Semaphore};

pub use barrier::{Barrier, BarrierWaitResult};
pub use lazy_lock::LazyLock;
pub use notify::{Notified, Notify};
pub use once_lock::{Once, OnceLock};
pub use wait_group::WaitGroup;
