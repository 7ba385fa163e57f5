//! A signal as a branch of a select.

#![deny(unsafe_code)]

use std::cell::Cell;
use std::io;

use super::Signals;
use crate::io::op::{Interest, RawResult};
use crate::sched::poll_any::Poll;
use crate::sync::select::{Case, Selector, Source};

/// A signal that is waited for beside others.
#[derive(Debug)]
pub struct SignalBranch<'a> {
    signals: &'a Signals,
    /// What a driver has seen.
    polled: Cell<Option<RawResult>>,
    caught: Option<io::Result<i32>>,
}

impl<'a> SignalBranch<'a> {
    pub(crate) fn new(signals: &'a Signals) -> Self {
        Self {
            signals,
            polled: Cell::new(None),
            caught: None,
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<io::Result<i32>> {
        self.caught
    }
}

impl Source for SignalBranch<'_> {
    fn attempt(&mut self) -> bool {
        // Another waiter may have been faster than this one, so what was polled says only whether
        // waiting works.
        let error = self.polled.take().filter(|result| *result < 0);
        let error = error.map(|errno| Err(io::Error::from_raw_os_error(-errno)));
        self.caught = self.signals.try_wait().map(Ok).or(error);
        self.caught.is_some()
    }

    fn watch(&mut self, _: &Selector, _: usize) -> bool {
        false
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {}

    fn poll(&self) -> Option<Poll<'_>> {
        Some(Poll {
            source: self.signals.pipe(),
            interest: Interest::Read,
            result: &self.polled,
        })
    }
}
