//! The kernel's threads, bound to as many CPUs as there are workers elsewhere.

use std::sync::{Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle, Thread};

use super::{Shim, ready};

pub(in crate::micro) struct Threads;

impl Shim for Threads {
    type Join = JoinHandle<()>;
    type Signal = Thread;
    /// `std` has none: a count under a lock, and a condition.
    type Semaphore = (Mutex<u64>, Condvar);
    type Lock = Mutex<u64>;
    type Sender = mpsc::SyncSender<u64>;
    type Receiver = mpsc::Receiver<u64>;

    fn run<T: Send + 'static>(self, main: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T> {
        Ok(ready(main))
    }
    fn spawn(body: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let thread = thread::Builder::new().stack_size(64 * 1024).spawn(move || ready(body));
        thread.expect("the system has a thread left")
    }
    async fn join(join: JoinHandle<()>) {
        join.join().expect("a thread of a workload");
    }
    async fn yield_now() {
        thread::yield_now();
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
        *more.wait_while(count.lock().expect("no panic"), |count| *count == 0).expect("no panic") -= 1;
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
    fn channel() -> (Self::Sender, Self::Receiver) {
        mpsc::sync_channel(1)
    }
    async fn send(to: &mut Self::Sender, n: u64) -> bool {
        to.send(n).is_ok()
    }
    async fn receive(from: &mut Self::Receiver) -> Option<u64> {
        from.recv().ok()
    }
}
