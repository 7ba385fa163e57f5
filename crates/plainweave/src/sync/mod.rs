//! Locks and channels in the shape of `std::sync`, for fibers and plain threads alike.
//!
//! Waiting on one gives the worker to other fibers; on a plain thread it blocks the thread. A wait
//! ends early with an error when the caller is cancelled or runs into its deadline
//! ([`crate::time::with_timeout`]). What has arrived by then is delivered, and the cancellation
//! surfaces at the next call.
//!
//! When nothing is available, all of them wait; a [`select!`] may have a `default` instead.
//!
//! | type | order of service |
//! |---|---|
//! | [`Mutex`] | unfair: a newcomer may barge in, but passes over a given waiter at most once |
//! | [`Semaphore`] | strictly in order |
//! | [`Condvar`] | in order |
//! | [`channel`]: [`Sender`], [`Receiver`] | each value goes to one receiver, in the order of sending |
//! | [`RwLock`] | in order; phases of readers and single writers alternate |
//! | [`Barrier`] | all pass together |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | one initialises; if it fails, the next in order |
//! | [`WaitGroup`] | all go on together |
//! | [`Notify`] | in order; one notification is kept |
//! | [`watch`]: a value and its versions | each receiver sees the latest |
//! | [`broadcast`]: each value goes to each receiver | in the order of sending; a slow receiver loses the oldest |
//! | [`promise()`]: [`Resolver`], [`Promise`] | every waiter gets the one value |
//! | [`JoinSet`] | fibers in the order in which they end |
//! | [`select!`] | at random among the branches that are ready |
//!
//! All are built on `wait_queue`. None is poisoned by a panic. A primitive cannot be dropped while
//! something waits on it: each waiter borrows it or owns a handle to it.
//!
//! # Misuse
//! These return an error: a send with no receivers left, a receive from an empty channel with no
//! senders left, and a wait for a promise whose resolver is gone. In a `select!`, such a branch is
//! ready at once. What is given back by dropping a guard or a permit cannot be given back twice. A
//! fiber that panics leaves nothing locked: guards, permits, channel halves, resolvers and sets
//! that it unwinds through are dropped as usual. A destructor may wait while its fiber panics. On
//! shared storage such a wait holds up the worker: it times out after one second, or, if it cannot
//! time out, aborts the process after ten.

pub mod channel; // Channels: bounded, unbounded, rendezvous.
mod condvar; // Waiting for a condition under a lock.
mod join_set; // Fibers that are joined as they end.
mod mutex; // A lock that may be held across suspensions.
mod promise; // A value given once, for any number of waiters.
mod rw_lock; // A lock for many readers or one writer.
#[doc(hidden)]
pub mod select; // Waiting for whichever of several things comes first: the protocol.
mod semaphore; // Permits, strictly in order.
// What locks and channels are made of: a state, lists of waiters, grants.
pub(crate) mod wait_queue;

pub mod atomic; // `std`'s atomics, with points for tests to go on at.
mod barrier; // A point that a number of callers pass together.
pub mod broadcast; // Channels in which each receiver gets each value.
mod lazy_lock; // Values that their first use computes.
#[cfg(all(test, loom))]
mod models;
mod notify; // Notifications without data.
mod once_lock; // Cells that are written once, by an initialiser that may wait.
mod wait_group; // Waiting until all clones are dropped.
pub mod watch; // A value that some set and others watch.

pub use channel::{Receiver, Sender};
pub use condvar::Condvar;
pub use join_set::JoinSet;
pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use promise::{Promise, PromiseError, Resolver, promise};
pub use rw_lock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use semaphore::{OwnedPermit, Permit, Semaphore};

pub use barrier::{Barrier, BarrierWaitResult};
pub use lazy_lock::LazyLock;
pub use notify::{Notified, Notify};
pub use once_lock::{Once, OnceLock};
pub use wait_group::WaitGroup;

#[doc(inline)]
pub use crate::select;
