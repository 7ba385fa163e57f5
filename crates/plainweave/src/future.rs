//! Async code and fibers: a fiber that waits for a future, and a future that waits for a fiber.
//!
//! [`block_on`] polls a future on the calling fiber, which suspends in between; other fibers run
//! meanwhile. A [`JoinHandle`] can be awaited, so any blocking call becomes a future by running on
//! a fiber of its own:
//!
//! ```
//! use std::time::Duration;
//!
//! plainweave::run(|| {
//!     let answer = plainweave::block_on(async {
//!         let pause = plainweave::spawn(|| plainweave::time::sleep(Duration::from_millis(1)));
//!         pause.await.expect("no panic")?;
//!         std::io::Result::Ok(42)
//!     });
//!     assert_eq!(answer.unwrap().unwrap(), 42);
//! });
//! ```
//!
//! [`crate::net::AsyncTcpStream`] is a connection for async client crates.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::atomics::woken::Woken;
use crate::fiber::Reason;
use crate::sched::closure::RawJoin;
use crate::sched::wait::{self, Interrupts, WaitSpec};
use crate::thread::{self, Fiber, JoinError, JoinHandle};

/// What the wakers of one call of [`block_on`] share. It may outlive the call, its fiber and the
/// runtime.
struct Poller {
    woken: Woken,
    waiter: wait::Waker,
}

impl Wake for Poller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.note() {
            self.waiter.wake();
        }
    }
}

/// Runs a future to its end on the calling fiber, which suspends while the future waits. On a plain
/// thread it blocks the thread.
///
/// A future that wakes itself while it is polled lets other fibers run before it is polled again. A
/// blocking call in a future suspends the fiber, and with it all that this call polls. So does a
/// `block_on` in it: the inner future is polled alone until it ends, and the wake-ups of the outer
/// one are kept for it. The token of [`crate::park`] is left alone.
///
/// Its wakers may be cloned, called and dropped anywhere, also after the call, the fiber or the
/// runtime has ended: then they do nothing.
///
/// # Errors
/// The caller was cancelled, or ran into its deadline ([`io::ErrorKind::TimedOut`]), while the
/// future waited. The future is dropped, on the caller. A future that was woken by then is polled
/// once more, and if that ends it, its value is returned.
///
/// # Panics
/// With the future's panic.
///
/// ```
/// plainweave::run(|| {
///     let sum = plainweave::block_on(async { 1 + plainweave::spawn(|| 41).await.unwrap() });
///     assert_eq!(sum.unwrap(), 42);
/// });
/// ```
///
/// Context: any thread or fiber; may suspend.
pub fn block_on<F: IntoFuture>(future: F) -> io::Result<F::Output> {
    let poller = Arc::new(Poller {
        woken: Woken::new(),
        waiter: wait::Waker::current(),
    });

    let waker = Waker::from(poller.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future.into_future());
    let mut interrupt = None;

    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Ok(value);
        }
        if let Some(interrupt) = interrupt {
            return Err(io::Error::from(interrupt));
        }
        if poller.woken.take() {
            // Woken while it was polled: it might be so for ever, and never come to the check in
            // `until`.
            interrupt = wait::interrupted();
            thread::yield_now();
            continue;
        }

        let wait = WaitSpec::new(Reason::Future, Interrupts::Allowed);
        wait::until(wait, || poller.woken.take().then_some(())).map_err(wait::fail_after_others)?;
    }
}

/// Spawns a fiber that runs a future to its end: [`block_on`] on a fiber of its own. Cancelling the
/// fiber drops the future there and makes the result an error.
///
/// A future costs what a fiber costs, a stack among other things. Hundreds of small ones take less
/// memory when one `block_on` polls them all, through a `join!` or a set of futures.
///
/// # Panics
/// If called outside a runtime. From a plain thread, use [`crate::Runtime::spawn`] and
/// [`block_on`].
///
/// ```
/// plainweave::run(|| {
///     let handle = plainweave::spawn_future(async { 6 * 7 });
///     assert_eq!(handle.join().unwrap().unwrap(), 42);
/// });
/// ```
#[track_caller]
pub fn spawn_future<F>(future: F) -> JoinHandle<io::Result<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    thread::spawn(move || block_on(future))
}

/// The future of a fiber's end, made by awaiting a [`JoinHandle`]. Its value is what `join`
/// returns. Dropping it detaches the fiber.
///
/// # Panics
/// If polled after its end.
pub struct Joining<T> {
    raw: RawJoin<T>,
    /// Whether the fiber has a waker of this future's task.
    registered: bool,
}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = Joining<T>;

    fn into_future(self) -> Joining<T> {
        Joining {
            raw: self.into_raw(),
            registered: false,
        }
    }
}

impl<T> Joining<T> {
    /// Returns the fiber's handle.
    #[must_use]
    pub fn fiber(&self) -> Fiber {
        Fiber::of(self.raw.header())
    }
}

// The result is moved, never pinned.
impl<T> Unpin for Joining<T> {}

impl<T> Future for Joining<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The task may have another waker than before. (Its clone and its destructor are anybody's
        // code, and may panic: then nothing is registered.)
        let registered = std::mem::take(&mut self.registered);
        if !registered || self.raw.retract() {
            self.registered = self.raw.register(cx.waker());
            if self.registered {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.raw.take().map_err(JoinError::failed))
    }
}

impl<T> Drop for Joining<T> {
    fn drop(&mut self) {
        if self.registered {
            // Frees the task's waker, which the fiber would keep until its end.
            self.raw.retract();
        }
    }
}

impl<T> fmt::Debug for Joining<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Joining").field(self.raw.header()).finish()
    }
}
