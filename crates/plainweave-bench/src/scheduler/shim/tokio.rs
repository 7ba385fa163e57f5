//! Tasks of Tokio's multi-threaded runtime.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::select;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, mpsc};
use tokio::task::{self, JoinHandle};
use tokio::time;

use super::{CHOICES, Shim};

pub(crate) struct Tokio(Runtime);

impl Tokio {
    /// # Errors
    /// There are no threads left.
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        Builder::new_multi_thread()
            .worker_threads(workers)
            .build()
            .map(Self)
    }

    /// Creates one with timers, which [`Shim::sleep`] needs.
    ///
    /// # Errors
    /// There are no threads left.
    pub(crate) fn with_timers(workers: usize) -> io::Result<Self> {
        Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_time()
            .build()
            .map(Self)
    }
}

impl Shim for Tokio {
    type Join<T: Send + 'static> = JoinHandle<T>;
    type Pool = Handle;
    type Signal = Notify;
    type Semaphore = Semaphore;
    type Lock = Mutex<u64>;
    type RwLock = RwLock<[u64; 2]>;
    type Sender = mpsc::Sender<u64>;
    type Receiver = mpsc::Receiver<u64>;
    type Choices = [Self::Receiver; CHOICES];
    type Publisher = broadcast::Sender<u64>;
    type Subscriber = broadcast::Receiver<u64>;

    fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        // As a task: what `block_on` polls runs outside the workers.
        Ok(self.0.block_on(self.0.spawn(main))?)
    }
    fn spawn<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        tokio::spawn(body)
    }
    async fn join<T: Send + 'static>(join: JoinHandle<T>) -> T {
        join.await.expect("a task of a workload")
    }
    async fn yield_now() {
        task::yield_now().await;
    }
    async fn sleep(length: Duration) {
        time::sleep(length).await;
    }
    fn pools(&self) -> Vec<Handle> {
        vec![self.0.handle().clone()]
    }
    fn spawn_in(pool: &Handle, body: impl Future<Output = ()> + Send + 'static) {
        pool.spawn(body);
    }
    fn worker() -> usize {
        tokio::runtime::worker_index().expect("a task calls")
    }
    fn signal() -> Notify {
        Notify::new()
    }
    fn notify(signal: &Notify) {
        signal.notify_one();
    }
    async fn wait(signal: &Notify) {
        signal.notified().await;
    }
    fn semaphore() -> Semaphore {
        Semaphore::new(0)
    }
    fn release(semaphore: &Semaphore) {
        semaphore.add_permits(1);
    }
    async fn acquire(semaphore: &Semaphore) {
        semaphore.acquire().await.expect("not closed").forget();
    }
    fn try_acquire(semaphore: &Semaphore) -> bool {
        semaphore
            .try_acquire()
            .map(|permit| permit.forget())
            .is_ok()
    }
    fn lock() -> Mutex<u64> {
        Mutex::new(0)
    }
    async fn add(lock: &Mutex<u64>) {
        *lock.lock().await += 1;
    }
    async fn total(lock: &Mutex<u64>) -> u64 {
        *lock.lock().await
    }
    fn rw_lock() -> Self::RwLock {
        RwLock::default()
    }
    async fn read(lock: &Self::RwLock) -> [u64; 2] {
        *lock.read().await
    }
    async fn write(lock: &Self::RwLock) {
        lock.write().await.iter_mut().for_each(|n| *n += 1);
    }
    fn channel() -> (Self::Sender, Self::Receiver) {
        mpsc::channel(1)
    }
    async fn send(to: &mut Self::Sender, n: u64) -> bool {
        to.send(n).await.is_ok()
    }
    async fn receive(from: &mut Self::Receiver) -> Option<u64> {
        from.recv().await
    }
    fn choices(from: [Self::Receiver; CHOICES]) -> anyhow::Result<Self::Choices> {
        Ok(from)
    }
    async fn select(from: &mut Self::Choices) -> (usize, Option<u64>) {
        let [a, b, c, d, e, f, g, h] = from;
        select! {
            n = a.recv() => (0, n),
            n = b.recv() => (1, n),
            n = c.recv() => (2, n),
            n = d.recv() => (3, n),
            n = e.recv() => (4, n),
            n = f.recv() => (5, n),
            n = g.recv() => (6, n),
            n = h.recv() => (7, n),
        }
    }
    fn broadcast(
        room: usize,
        receivers: usize,
    ) -> anyhow::Result<(Self::Publisher, Vec<Self::Subscriber>)> {
        let (publisher, _) = broadcast::channel(room);
        let subscribers = (0..receivers).map(|_| publisher.subscribe()).collect();
        Ok((publisher, subscribers))
    }
    fn publish(to: &mut Self::Publisher, n: u64) {
        // An error if nobody listens, which the workload finds by its counts.
        let _ = to.send(n);
    }
    async fn hear(from: &mut Self::Subscriber) -> Option<u64> {
        loop {
            match from.recv().await {
                Err(RecvError::Lagged(_)) => {}
                heard => return heard.ok(),
            }
        }
    }
}
