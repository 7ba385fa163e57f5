//! The kernel's threads, bound to as many CPUs as there are workers elsewhere.

use std::sync::{Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use anyhow::bail;
use crossbeam_channel::{self as channel, select};

use super::{Absent, CHOICES, Shim, ready};

pub(crate) struct Threads;

impl Shim for Threads {
    type Join<T: Send + 'static> = JoinHandle<T>;
    type Pool = ();
    type Signal = Thread;
    /// `std` has none: a count under a lock, and a condition.
    type Semaphore = (Mutex<u64>, Condvar);
    type Lock = Mutex<u64>;
    type RwLock = RwLock<[u64; 2]>;
    /// Those of `std` are the same inside, and have no select.
    type Sender = channel::Sender<u64>;
    type Receiver = channel::Receiver<u64>;
    type Choices = [Self::Receiver; CHOICES];
    type Publisher = Absent;
    type Subscriber = Absent;

    fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        Ok(ready(main))
    }
    fn spawn<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let thread = thread::Builder::new()
            .stack_size(64 * 1024)
            .spawn(move || ready(body));
        thread.expect("the system has a thread left")
    }
    async fn join<T: Send + 'static>(join: JoinHandle<T>) -> T {
        join.join().expect("a thread of a workload")
    }
    async fn yield_now() {
        thread::yield_now();
    }
    async fn sleep(length: Duration) {
        thread::sleep(length);
    }
    fn pools(&self) -> Vec<()> {
        vec![()]
    }
    fn spawn_in((): &(), body: impl Future<Output = ()> + Send + 'static) {
        drop(Self::spawn(body));
    }
    /// The CPU: what a worker is to the others.
    fn worker() -> usize {
        rustix::thread::sched_getcpu()
    }
    fn signal() -> Thread {
        thread::current()
    }
    fn notify(signal: &Thread) {
        signal.unpark();
    }
    async fn wait(_: &Thread) {
        thread::park();
    }
    fn semaphore() -> Self::Semaphore {
        Default::default()
    }
    fn release((count, more): &Self::Semaphore) {
        *count.lock().expect("no panic") += 1;
        more.notify_one();
    }
    async fn acquire((count, more): &Self::Semaphore) {
        *more
            .wait_while(count.lock().expect("no panic"), |count| *count == 0)
            .expect("no panic") -= 1;
    }
    fn try_acquire((count, _): &Self::Semaphore) -> bool {
        let mut count = count.lock().expect("no panic");
        count.checked_sub(1).map(|left| *count = left).is_some()
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
        RwLock::default()
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
        select! {
            recv(a) -> n => (0, n.ok()),
            recv(b) -> n => (1, n.ok()),
            recv(c) -> n => (2, n.ok()),
            recv(d) -> n => (3, n.ok()),
            recv(e) -> n => (4, n.ok()),
            recv(f) -> n => (5, n.ok()),
            recv(g) -> n => (6, n.ok()),
            recv(h) -> n => (7, n.ok()),
        }
    }
    fn broadcast(_: usize, _: usize) -> anyhow::Result<(Absent, Vec<Absent>)> {
        bail!("neither std nor crossbeam has a broadcast channel")
    }
    fn publish(to: &mut Absent, _: u64) {
        match *to {}
    }
    async fn hear(from: &mut Absent) -> Option<u64> {
        match *from {}
    }
}
