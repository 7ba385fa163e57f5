//! The systems under test behind one trait, so that each workload is written once.
//!
//! The calls are `async` because one of the peers is. For the others each call blocks and its
//! future is ready when it is first polled: [`ready`] runs such a workload to its end in one poll,
//! which the compiler makes plain calls of.

mod fibers; // Fibers of Plainweave.
mod may; // Coroutines of `may`.
mod threads; // The kernel's threads, bound to as many CPUs as there are workers elsewhere.
mod tokio; // Tasks of Tokio's multi-threaded runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use fibers::Fibers;
pub(crate) use may::May;
pub(crate) use threads::Threads;
pub(crate) use tokio::Tokio;

/// What a select waits for: this many channels.
pub(crate) const CHOICES: usize = 8;

/// What a system does not have, in place of its type.
pub(crate) enum Absent {}

/// A system as a workload sees it. All but `run`, `pools` and `spawn_in` is called on its threads.
pub(crate) trait Shim: Sized + Send + Sync + 'static {
    /// Waits for a thread's end, and has its value.
    type Join<T: Send + 'static>: Send + 'static;
    /// What to spawn into from outside its threads.
    type Pool: Clone + Send + Sync + 'static;
    /// A thread's own place to wait at: one token, as `park` and `unpark` have it.
    type Signal: Send + Sync + 'static;
    /// A counting semaphore.
    type Semaphore: Send + Sync + 'static;
    /// A lock around a number.
    type Lock: Send + Sync + 'static;
    /// A lock for many readers or one writer, around two numbers that are equal while nobody
    /// writes.
    type RwLock: Send + Sync + 'static;
    /// The ends of a channel with room for one number.
    type Sender: Send + 'static;
    type Receiver: Send + 'static;
    /// Receivers that are waited for together.
    type Choices: Send + 'static;
    /// The ends of a channel in which each receiver gets each number.
    type Publisher: Send + 'static;
    type Subscriber: Send + 'static;

    /// Runs the workload as the system's main thread.
    fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T>;

    fn spawn<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> Self::Join<T>;
    fn join<T: Send + 'static>(join: Self::Join<T>) -> impl Future<Output = T> + Send;
    fn yield_now() -> impl Future<Output = ()> + Send;
    /// Sleeps without holding up a worker.
    fn sleep(length: Duration) -> impl Future<Output = ()> + Send;

    /// Returns its pools, in order; none for a runtime of ours that has been built alone.
    fn pools(&self) -> Vec<Self::Pool>;
    /// Spawns into a pool, from any thread.
    fn spawn_in(pool: &Self::Pool, body: impl Future<Output = ()> + Send + 'static);

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

    fn rw_lock() -> Self::RwLock;
    /// Locks to read, returns both numbers, unlocks.
    fn read(lock: &Self::RwLock) -> impl Future<Output = [u64; 2]> + Send;
    /// Locks to write, adds one to both, unlocks.
    fn write(lock: &Self::RwLock) -> impl Future<Output = ()> + Send;

    fn channel() -> (Self::Sender, Self::Receiver);
    /// Sends a number. Returns false if the other end is gone.
    fn send(to: &mut Self::Sender, n: u64) -> impl Future<Output = bool> + Send;
    fn receive(from: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send;

    /// # Errors
    /// The system has no select, or none that does the same.
    fn choices(from: [Self::Receiver; CHOICES]) -> anyhow::Result<Self::Choices>;
    /// Receives from the first that has a number, and says from which.
    fn select(from: &mut Self::Choices) -> impl Future<Output = (usize, Option<u64>)> + Send;

    /// Makes a channel that keeps the last `room` numbers for each of its receivers.
    ///
    /// # Errors
    /// The system has none.
    fn broadcast(
        room: usize,
        receivers: usize,
    ) -> anyhow::Result<(Self::Publisher, Vec<Self::Subscriber>)>;
    fn publish(to: &mut Self::Publisher, n: u64);
    /// Receives the next number that is left, if some were lost. `None`: the sender is gone.
    fn hear(from: &mut Self::Subscriber) -> impl Future<Output = Option<u64>> + Send;
}

/// Runs a workload whose calls block.
pub(crate) fn ready<T>(workload: impl Future<Output = T>) -> T {
    match pin!(workload).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a blocking call has returned without having blocked"),
    }
}
