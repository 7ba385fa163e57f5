//! A future as a branch of a select.
//!
//! It is polled by the fiber that selects, with a waker of the branch's own. That waker does not
//! end the select's claim, as it may come at any time and from anybody; it notes that the future
//! wants to be polled, and wakes whoever selects.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Context, Poll, Wake};

use super::{Case, Selector, Source};
use crate::sched::wait;

/// A future that is waited for beside others.
pub struct FutureBranch<F: Future> {
    /// Boxed, because it must not move and the branch does.
    future: Pin<Box<F>>,
    call: Arc<Call>,
    output: Option<F::Output>,
}

/// What the future's wakers share. It may outlive the select.
#[derive(Debug)]
struct Call {
    /// The future is to be polled. Set before `waiter` is read, and read after that was set.
    wanted: AtomicBool,
    /// Who selects, while it waits.
    waiter: Mutex<Option<wait::Waker>>,
}

impl Call {
    fn set_waiter(&self, waiter: Option<wait::Waker>) {
        let before = std::mem::replace(
            &mut *self.waiter.lock().unwrap_or_else(PoisonError::into_inner),
            waiter,
        );
        drop(before);
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wanted.store(true, Ordering::SeqCst);
        let waiter = self
            .waiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        waiter.into_iter().for_each(|waiter| waiter.wake());
    }
}

impl<F: Future> FutureBranch<F> {
    /// Creates one that has not been polled. A future that is lent (`&mut future`) goes on in the
    /// next select.
    pub fn new(future: impl IntoFuture<IntoFuture = F>) -> Self {
        let call = Arc::new(Call {
            wanted: AtomicBool::new(true),
            waiter: Mutex::new(None),
        });

        Self {
            future: Box::pin(future.into_future()),
            call,
            output: None,
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<F::Output> {
        self.output
    }
}

impl<F: Future> Source for FutureBranch<F> {
    fn attempt(&mut self) -> bool {
        if !self.call.wanted.swap(false, Ordering::SeqCst) {
            return false;
        }
        let waker = task::Waker::from(self.call.clone());
        if let Poll::Ready(value) = self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.output = Some(value);
        }
        self.output.is_some()
    }

    fn watch(&mut self, selector: &Selector, _: usize) -> bool {
        self.call.set_waiter(Some(selector.waker.clone()));
        self.is_ready()
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {
        self.call.set_waiter(None);
    }

    fn is_ready(&self) -> bool {
        self.call.wanted.load(Ordering::SeqCst)
    }
}

impl<F: Future> fmt::Debug for FutureBranch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FutureBranch")
    }
}
