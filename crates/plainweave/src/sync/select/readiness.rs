//! A socket's readiness as a branch of a select.

use std::cell::Cell;
use std::fmt;
use std::os::fd::AsFd;

use super::{Case, Selector, Source};
use crate::io::op::{Interest, RawResult, readable_or_writable};
use crate::sched::io_call::Descriptor;
use crate::sched::poll_any::Poll;

/// A socket that is waited for beside others. It is ready when a call would not block: also at the
/// end of the stream, after an error and when it was closed.
pub struct ReadinessBranch<'a> {
    source: &'a Descriptor,
    interest: Interest,
    /// What a driver has seen.
    polled: Cell<Option<RawResult>>,
    chosen: bool,
}

impl<'a> ReadinessBranch<'a> {
    pub(crate) fn new(source: &'a Descriptor, interest: Interest) -> Self {
        Self {
            source,
            interest,
            polled: Cell::new(None),
            chosen: false,
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns something if it was chosen.
    pub fn output(self) -> Option<()> {
        self.chosen.then_some(())
    }
}

impl Source for ReadinessBranch<'_> {
    fn attempt(&mut self) -> bool {
        let found = || readable_or_writable(self.source.as_fd(), self.interest);
        // An error is the descriptor's: the call that follows returns it.
        self.chosen = self.polled.take().is_some() || self.source.is_closed() || found();
        if self.chosen && self.interest == Interest::Read {
            self.source.note_readable();
        }
        self.chosen
    }

    fn watch(&mut self, _: &Selector, _: usize) -> bool {
        false
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {}

    fn poll(&self) -> Option<Poll<'_>> {
        Some(Poll {
            source: self.source,
            interest: self.interest,
            result: &self.polled,
        })
    }
}

impl fmt::Debug for ReadinessBranch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadinessBranch")
            .field(&self.interest)
            .finish()
    }
}
