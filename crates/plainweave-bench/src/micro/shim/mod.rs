//! The systems under test behind one trait, so that each workload is written once.
//!
//! The calls are `async` because one of the peers is. For the others each call blocks and its future is ready when it
//! is first polled: [`ready`] runs such a workload to its end in one poll, which the compiler makes plain calls of.

mod fibers;
mod may;
mod threads;
mod tokio;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub(super) use fibers::Fibers;
pub(super) use may::May;
pub(super) use threads::Threads;
pub(super) use tokio::Tokio;

/// A system as a workload sees it. All but `run` is called on its threads.
pub(super) trait Shim: Sized + Send + Sync + 'static {
    /// Waits for a thread's end.
    type Join: Send + 'static;
    /// A thread's own place to wait at: one token, as `park` and `unpark` have it.
    type Signal: Send + Sync + 'static;
    /// A counting semaphore.
    type Semaphore: Send + Sync + 'static;
    /// A lock around a number.
    type Lock: Send + Sync + 'static;
    /// The ends of a channel with room for one number.
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    /// Runs the workload as the system's main thread.
    fn run<T: Send + 'static>(self, main: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T>;

    fn spawn(body: impl Future<Output = ()> + Send + 'static) -> Self::Join;
    fn join(join: Self::Join) -> impl Future<Output = ()> + Send;
    fn yield_now() -> impl Future<Output = ()> + Send;

    /// Returns the number of the worker that runs the caller, of whatever numbering.
    fn worker() -> usize;

    /// Returns the calling thread's.
    fn signal() -> Self::Signal;
    fn notify(signal: &Self::Signal);
    /// Waits; called by the thread that owns it.
    fn wait(signal: &Self::Signal) -> impl Future<Output = ()> + Send;

    fn semaphore() -> Self::Semaphore;
    fn release(semaphore: &Self::Semaphore);
    fn acquire(semaphore: &Self::Semaphore) -> impl Future<Output = ()> + Send;
    fn try_acquire(semaphore: &Self::Semaphore) -> bool;

    fn lock() -> Self::Lock;
    /// Locks, adds one, unlocks.
    fn add(lock: &Self::Lock) -> impl Future<Output = ()> + Send;
    fn total(lock: &Self::Lock) -> impl Future<Output = u64> + Send;

    fn channel() -> (Self::Sender, Self::Receiver);
    /// False: the other end is gone.
    fn send(to: &mut Self::Sender, n: u64) -> impl Future<Output = bool> + Send;
    fn receive(from: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

/// Runs a workload whose calls block.
fn ready<T>(workload: impl Future<Output = T>) -> T {
    match pin!(workload).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a blocking call has returned without having blocked"),
    }
}
