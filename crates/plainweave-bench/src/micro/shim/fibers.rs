//! Fibers of Plainweave.

use plainweave::sync::{Mutex, Semaphore, channel};
use plainweave::{Fiber, JoinHandle, Runtime};

use super::{Shim, ready};

pub(in crate::micro) struct Fibers(pub(in crate::micro) Runtime);

impl Shim for Fibers {
    type Join = JoinHandle<()>;
    type Bell = Fiber;
    type Semaphore = Semaphore;
    type Lock = Mutex<u64>;
    type Sender = channel::Sender<u64>;
    type Receiver = channel::Receiver<u64>;

    fn run<T: Send + 'static>(self, main: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T> {
        Ok(self.0.run(|| ready(main)))
    }

    #[inline]
    fn spawn(body: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        plainweave::spawn(move || ready(body))
    }
    #[inline]
    async fn join(join: JoinHandle<()>) {
        join.join().expect("a thread of a workload");
    }
    #[inline]
    async fn yield_now() {
        plainweave::yield_now();
    }
    fn bell() -> Fiber {
        plainweave::current()
    }
    #[inline]
    fn ring(bell: &Fiber) {
        bell.unpark();
    }
    #[inline]
    async fn wait(_: &Fiber) {
        plainweave::park().expect("not cancelled");
    }
    fn semaphore() -> Semaphore {
        Semaphore::new(0)
    }
    #[inline]
    fn release(semaphore: &Semaphore) {
        semaphore.release();
    }
    #[inline]
    async fn acquire(semaphore: &Semaphore) {
        semaphore.acquire().expect("not cancelled").forget();
    }
    fn try_acquire(semaphore: &Semaphore) -> bool {
        semaphore.try_acquire().map(|permit| permit.forget()).is_some()
    }
    fn lock() -> Mutex<u64> {
        Mutex::new(0)
    }
    #[inline]
    async fn add(lock: &Mutex<u64>) {
        *lock.lock().expect("not cancelled") += 1;
    }
    async fn total(lock: &Mutex<u64>) -> u64 {
        *lock.lock_always()
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
}
