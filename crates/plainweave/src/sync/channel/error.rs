//! Why a send or a receive failed.

use std::fmt;
use std::io;

use crate::fiber::cancel::Interrupt;

/// The error of a send; it holds the value and the reason.
pub struct SendError<T>(pub(super) T, pub(super) Why);

/// The error of a receive; it holds the reason.
#[derive(Debug)]
pub struct RecvError(pub(super) Why);

#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    Closed,
    /// The channel was full, or empty, and the caller did not want to wait.
    Busy,
    Interrupted(Interrupt),
}

impl<T> SendError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// Returns what interrupted the send, if that is why it failed.
    pub(crate) fn interrupt(&self) -> Option<Interrupt> {
        if let Why::Interrupted(interrupt) = self.1 {
            Some(interrupt)
        } else {
            None
        }
    }

    /// Returns whether all receivers are gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.1, Why::Closed)
    }

    /// Returns whether there was no room (`try_send` only).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.1, Why::Busy)
    }

    /// Returns whether the caller was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.1, Why::Interrupted(Interrupt::Cancelled(_)))
    }

    /// Returns whether the caller ran into its deadline.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.1, Why::Interrupted(Interrupt::TimedOut))
    }
}

impl RecvError {
    /// Returns what interrupted a receive of which no other failure is possible.
    pub(in crate::sync) fn interrupt(&self) -> Interrupt {
        match self.0 {
            Why::Interrupted(interrupt) => interrupt,
            why => unreachable!("a receive failed: {why:?}"),
        }
    }

    /// Returns whether the channel is empty and all senders are gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.0, Why::Closed)
    }

    /// Returns whether there was no value (`try_recv` only).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Why::Busy)
    }

    /// Returns whether the caller was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Why::Interrupted(Interrupt::Cancelled(_)))
    }

    /// Returns whether the caller ran into its deadline.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.0, Why::Interrupted(Interrupt::TimedOut))
    }
}

impl Why {
    fn into_io(self, closed: &'static str, busy: &'static str) -> io::Error {
        match self {
            Why::Closed => io::Error::new(io::ErrorKind::BrokenPipe, closed),
            Why::Busy => io::Error::new(io::ErrorKind::WouldBlock, busy),
            Why::Interrupted(interrupt) => interrupt.into(),
        }
    }
}

const NO_RECEIVER: &str = "the channel has no receivers left";
const FULL: &str = "the channel is full";
const NO_SENDER: &str = "the channel is empty and has no senders left";
const EMPTY: &str = "the channel is empty";

impl<T> From<SendError<T>> for io::Error {
    fn from(error: SendError<T>) -> Self {
        error.1.into_io(NO_RECEIVER, FULL)
    }
}

impl From<RecvError> for io::Error {
    fn from(error: RecvError) -> Self {
        error.0.into_io(NO_SENDER, EMPTY)
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.into_io(NO_RECEIVER, FULL).fmt(f)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.into_io(NO_SENDER, EMPTY).fmt(f)
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendError").field(&self.1).finish()
    }
}

impl<T> std::error::Error for SendError<T> {}
impl std::error::Error for RecvError {}
