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
//! | [`promise()`]: [`Resolver`], [`Promise`] | every waiter gets the one value | waits |
//! | [`JoinSet`] | fibers in the order in which they end | waits |
//! | [`select!`] | at random among the branches that are ready | waits, or takes its `default` |
//!
//! All are built on `wait_queue`. None is poisoned by a panic. A primitive that others wait for cannot be dropped: they
//! borrow it, or own a part of it.
//!
//! # Misuse
//! A send to a channel without receivers, a receive from an empty one without senders and a wait for a promise whose
//! resolver is gone return errors, also as branches of a select, where they are ready at once. What is given back by
//! dropping a guard or a permit cannot be given back twice. A fiber that panics leaves nothing locked: guards, permits,
//! channel halves, resolvers and sets that it unwinds through are dropped as usual. Waits in destructors work while it
//! panics; a fiber on shared storage holds up its worker meanwhile and gives up after a bounded time.

pub mod channel;
mod condvar;
mod join_set;
mod mutex;
mod promise;
mod rw_lock;
#[doc(hidden)]
pub mod select;
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
pub use join_set::JoinSet;
pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use promise::{Promise, PromiseError, Resolver, promise};
pub use rw_lock::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedPermit, Permit, Semaphore};

pub use barrier::{Barrier, BarrierWaitResult};
pub use lazy_lock::LazyLock;
pub use notify::{Notified, Notify};
pub use once_lock::{Once, OnceLock};
pub use wait_group::WaitGroup;

#[doc(inline)]
pub use crate::select;
