//! Fibers of Plainweave.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use plainweave::pools::{Pool, Pools};
use plainweave::sync::{Mutex, RwLock, Semaphore, broadcast, channel, select};
use plainweave::{Fiber, JoinHandle, Runtime};

use super::{CHOICES, Shim, ready};

/// On a runtime, or on pools, of which the first has the workload's main fiber.
pub(crate) enum Fibers {
    Runtime(Arc<Runtime>),
    Pools(Pools),
}

impl Fibers {
    /// Returns the runtimes, in the order of the pools.
    pub(crate) fn runtimes(&self) -> Vec<&Runtime> {
        match self {
            Fibers::Runtime(runtime) => vec![runtime],
            Fibers::Pools(pools) => pools
                .iter()
                .filter_map(|pool| pools.runtime(pool.name()))
                .collect(),
        }
    }
}

impl From<Arc<Runtime>> for Fibers {
    fn from(runtime: Arc<Runtime>) -> Self {
        Self::Runtime(runtime)
    }
}

impl Shim for Fibers {
    type Join<T: Send + 'static> = JoinHandle<T>;
    type Pool = Pool;
    type Signal = Fiber;
    type Semaphore = Semaphore;
    type Lock = Mutex<u64>;
    type RwLock = RwLock<[u64; 2]>;
    type Sender = channel::Sender<u64>;
    type Receiver = channel::Receiver<u64>;
    type Choices = [Self::Receiver; CHOICES];
    type Publisher = broadcast::Sender<u64>;
    type Subscriber = broadcast::Receiver<u64>;

    fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let runtimes = self.runtimes();
        Ok(runtimes.first().context("no pools")?.run(|| ready(main)))
    }

    #[inline]
    fn spawn<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        plainweave::spawn(move || ready(body))
    }
    #[inline]
    async fn join<T: Send + 'static>(join: JoinHandle<T>) -> T {
        join.join().expect("a thread of a workload")
    }
    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        Yield
    }
    async fn sleep(length: Duration) {
        plainweave::time::sleep(length).expect("not cancelled");
    }
    fn pools(&self) -> Vec<Pool> {
        match self {
            Fibers::Runtime(_) => Vec::new(),
            Fibers::Pools(pools) => pools.iter().cloned().collect(),
        }
    }
    fn spawn_in(pool: &Pool, body: impl Future<Output = ()> + Send + 'static) {
        drop(pool.spawn(move || ready(body)).expect("the pool is open"));
    }
    fn worker() -> usize {
        plainweave::worker_index().expect("a fiber calls")
    }
    fn signal() -> Fiber {
        plainweave::current()
    }
    #[inline]
    fn notify(signal: &Fiber) {
        signal.unpark();
    }
    #[inline]
    fn wait(_: &Fiber) -> impl Future<Output = ()> + Send {
        Wait
    }
    fn semaphore() -> Semaphore {
        Semaphore::new(0)
    }
    #[inline]
    fn release(semaphore: &Semaphore) {
        semaphore.release();
    }
    #[inline]
    fn acquire(semaphore: &Semaphore) -> impl Future<Output = ()> + Send {
        Acquire(semaphore)
    }
    fn try_acquire(semaphore: &Semaphore) -> bool {
        semaphore
            .try_acquire()
            .map(|permit| permit.forget())
            .is_some()
    }
    fn lock() -> Mutex<u64> {
        Mutex::new(0)
    }
    #[inline]
    fn add(lock: &Mutex<u64>) -> impl Future<Output = ()> + Send {
        Add(lock)
    }
    async fn total(lock: &Mutex<u64>) -> u64 {
        *lock.lock_always()
    }
    fn rw_lock() -> Self::RwLock {
        RwLock::default()
    }
    #[inline]
    fn read(lock: &Self::RwLock) -> impl Future<Output = [u64; 2]> + Send {
        Read(lock)
    }
    #[inline]
    fn write(lock: &Self::RwLock) -> impl Future<Output = ()> + Send {
        Write(lock)
    }
    fn channel() -> (Self::Sender, Self::Receiver) {
        channel::bounded(1)
    }
    async fn send(to: &mut Self::Sender, n: u64) -> bool {
        to.send(n).is_ok()
    }
    async fn receive(from: &mut Self::Receiver) -> Option<u64> {
        from.recv().ok()
    }
    fn choices(from: [Self::Receiver; CHOICES]) -> anyhow::Result<Self::Choices> {
        Ok(from)
    }
    async fn select(from: &mut Self::Choices) -> (usize, Option<u64>) {
        let [a, b, c, d, e, f, g, h] = from;
        let chosen = select! {
            recv(a) -> n => (0, n.ok()),
            recv(b) -> n => (1, n.ok()),
            recv(c) -> n => (2, n.ok()),
            recv(d) -> n => (3, n.ok()),
            recv(e) -> n => (4, n.ok()),
            recv(f) -> n => (5, n.ok()),
            recv(g) -> n => (6, n.ok()),
            recv(h) -> n => (7, n.ok()),
        };
        chosen.expect("not cancelled")
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
        to.send(n);
    }
    async fn hear(from: &mut Self::Subscriber) -> Option<u64> {
        loop {
            match from.recv() {
                Err(error) if error.lagged().is_some() => {}
                heard => return heard.ok(),
            }
        }
    }
}

// Calls that block, as futures. Each is compiled into the workload, as a call of a library function
// would be; the futures of `async fn` become functions of their own when several workloads use
// them.

struct Yield;
struct Wait;
struct Acquire<'a>(&'a Semaphore);
struct Add<'a>(&'a Mutex<u64>);
struct Read<'a>(&'a RwLock<[u64; 2]>);
struct Write<'a>(&'a RwLock<[u64; 2]>);

impl Future for Yield {
    type Output = ();
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        plainweave::yield_now();
        Poll::Ready(())
    }
}

impl Future for Wait {
    type Output = ();
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        plainweave::park().expect("not cancelled");
        Poll::Ready(())
    }
}

impl Future for Acquire<'_> {
    type Output = ();
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0.acquire().expect("not cancelled").forget();
        Poll::Ready(())
    }
}

impl Future for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        *self.0.lock().expect("not cancelled") += 1;
        Poll::Ready(())
    }
}

impl Future for Read<'_> {
    type Output = [u64; 2];
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<[u64; 2]> {
        Poll::Ready(*self.0.read().expect("not cancelled"))
    }
}

impl Future for Write<'_> {
    type Output = ();
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0
            .write()
            .expect("not cancelled")
            .iter_mut()
            .for_each(|n| *n += 1);
        Poll::Ready(())
    }
}
