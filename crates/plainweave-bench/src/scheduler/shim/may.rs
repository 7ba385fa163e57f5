//! Coroutines of `may`.
//!
//! Its `spawn` is unsafe (coroutines must not use thread-locals nor overflow their stacks); `go!`
//! makes that promise, which the workloads keep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use may::coroutine::{self, Coroutine, JoinHandle};
use may::sync::{Mutex, RwLock, Semphore, mpsc};

use super::{Absent, CHOICES, Shim, ready};

pub(crate) struct May(());

impl May {
    /// Sets up the process's only one.
    pub(crate) fn new(workers: usize) -> Self {
        may::config().set_workers(workers).set_stack_size(0x1000);
        Self(())
    }
}

impl Shim for May {
    type Join<T: Send + 'static> = JoinHandle<T>;
    type Pool = ();
    type Signal = Coroutine;
    type Semaphore = Semphore;
    type Lock = Mutex<u64>;
    type RwLock = RwLock<[u64; 2]>;
    /// It has no bounded channel; two that take turns need none.
    type Sender = mpsc::Sender<u64>;
    type Receiver = mpsc::Receiver<u64>;
    type Choices = Absent;
    type Publisher = Absent;
    type Subscriber = Absent;

    fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let main = may::go!(move || ready(main)).join();
        main.map_err(|_| anyhow::anyhow!("a coroutine panicked"))
    }
    fn spawn<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        may::go!(move || ready(body))
    }
    async fn join<T: Send + 'static>(join: JoinHandle<T>) -> T {
        join.join().expect("a thread of a workload")
    }
    async fn yield_now() {
        coroutine::yield_now();
    }
    async fn sleep(length: Duration) {
        coroutine::sleep(length);
    }
    fn pools(&self) -> Vec<()> {
        vec![()]
    }
    fn spawn_in((): &(), body: impl Future<Output = ()> + Send + 'static) {
        drop(Self::spawn(body));
    }
    fn worker() -> usize {
        worker()
    }
    fn signal() -> Coroutine {
        coroutine::current()
    }
    fn notify(signal: &Coroutine) {
        signal.unpark();
    }
    async fn wait(_: &Coroutine) {
        coroutine::park();
    }
    fn semaphore() -> Semphore {
        Semphore::new(0)
    }
    fn release(semaphore: &Semphore) {
        semaphore.post();
    }
    async fn acquire(semaphore: &Semphore) {
        semaphore.wait();
    }
    fn try_acquire(semaphore: &Semphore) -> bool {
        semaphore.try_wait()
    }
    fn lock() -> Mutex<u64> {
        Mutex::new(0)
    }
    async fn add(lock: &Mutex<u64>) {
        *lock.lock().expect("no panic") += 1;
    }
    async fn total(lock: &Mutex<u64>) -> u64 {
        *lock.lock().expect("no panic")
    }
    fn rw_lock() -> Self::RwLock {
        RwLock::new([0; 2])
    }
    async fn read(lock: &Self::RwLock) -> [u64; 2] {
        *lock.read().expect("no panic")
    }
    async fn write(lock: &Self::RwLock) {
        lock.write()
            .expect("no panic")
            .iter_mut()
            .for_each(|n| *n += 1);
    }
    fn channel() -> (Self::Sender, Self::Receiver) {
        mpsc::channel()
    }
    async fn send(to: &mut Self::Sender, n: u64) -> bool {
        to.send(n).is_ok()
    }
    async fn receive(from: &mut Self::Receiver) -> Option<u64> {
        from.recv().ok()
    }
    fn choices(_: [Self::Receiver; CHOICES]) -> anyhow::Result<Absent> {
        bail!("its select! spawns a coroutine for each branch, and several of them may receive")
    }
    async fn select(from: &mut Absent) -> (usize, Option<u64>) {
        match *from {}
    }
    fn broadcast(_: usize, _: usize) -> anyhow::Result<(Absent, Vec<Absent>)> {
        bail!("may has no broadcast channel")
    }
    fn publish(to: &mut Absent, _: u64) {
        match *to {}
    }
    async fn hear(from: &mut Absent) -> Option<u64> {
        match *from {}
    }
}

/// Returns a number for the thread that runs the caller; may has no call for it. Not inlined: the
/// address of a thread-local must not be kept while a coroutine moves.
#[inline(never)]
fn worker() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| std::hint::black_box(*number))
}
