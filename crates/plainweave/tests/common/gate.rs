//! A future for tests.

#![deny(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A future that anybody completes, as often as it is polled again.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    pub fn with<R>(&self, f: impl FnOnce(&mut (bool, Vec<Waker>)) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn open(&self) {
        let wakers = self.with(|(open, wakers)| {
            *open = true;
            std::mem::take(wakers)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        self.with(|(_, wakers)| !wakers.is_empty())
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.with(|(open, wakers)| {
            if *open {
                return Poll::Ready(());
            }
            wakers.push(cx.waker().clone());
            Poll::Pending
        })
    }
}
