//! Channels: many senders, many receivers; each value goes to one receiver, in the order of sending.
//!
//! ```
//! use plainweave::sync::channel;
//! plainweave::run(|| {
//!     let (sender, receiver) = channel::bounded(4);
//!     plainweave::spawn(move || (1..=10).for_each(|n| sender.send(n).unwrap()));
//!     let mut sum = 0;
//!     while let Ok(n) = receiver.recv() {
//!         sum += n;
//!     }
//!     assert_eq!(sum, 55);
//! });
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::wait_queue::{Grant, WaitQueue};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;

/// The lists of waiters.
const RECEIVERS: usize = 0;
const SENDERS: usize = 1;

type Shared<T> = Arc<WaitQueue<State<T>, 2>>;

struct State<T> {
    queue: VecDeque<T>,
    bound: usize,
    senders: usize,
    receivers: usize,
}

/// Creates a channel that holds at most `bound` values: `send` waits while it is full, so a slow receiver slows its
/// senders down.
///
/// # Panics
/// `bound` is 0.
#[must_use]
pub fn bounded<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel needs room for one value at least, not {bound}");
    channel(bound)
}

/// Creates a channel without a bound: `send` never waits, and only memory limits how far a receiver may fall behind.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(WaitQueue::new(State { queue: VecDeque::new(), bound, senders: 1, receivers: 1 }));
    (Sender(shared.clone()), Receiver(shared))
}

/// The sending half; clones send into the same channel. When the last is dropped, receivers get the remaining values
/// and then an error.
pub struct Sender<T>(Shared<T>);

/// The receiving half; clones share the values. When the last is dropped, remaining values are dropped and sends fail.
pub struct Receiver<T>(Shared<T>);

/// The error of a send; it holds the value and the reason.
pub struct SendError<T>(T, Why);

/// The error of a receive; it holds the reason.
#[derive(Debug)]
pub struct RecvError(Why);

#[derive(Clone, Copy, Debug)]
enum Why {
    Closed,
    /// The channel was full, or empty, and the caller did not want to wait.
    Busy,
    Interrupted(Interrupt),
}

impl<T> Sender<T> {
    /// Sends a value; waits while the channel is full.
    ///
    /// # Errors
    /// All receivers are gone; or, while the channel was full, the caller was cancelled or ran into its deadline. The
    /// error holds the value.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let (mut value, mut place) = (Some(value), QueueEnd::Back);
        loop {
            match self.0.wait_unless((SENDERS, place), Interrupts::Allowed, |locked| try_send(locked, &mut value)) {
                Ok(Some(Ok(receiver))) => {
                    give(receiver);
                    return Ok(());
                }
                Ok(Some(Err(why))) => return Err(SendError(value.expect("kept"), why)),
                // There was room: try again.
                Ok(None) => place = QueueEnd::Front,
                Err(interrupt) => return Err(SendError(value.expect("kept"), Why::Interrupted(interrupt))),
            }
        }
    }

    /// Sends a value if there is room now.
    ///
    /// # Errors
    /// The channel is full, or all receivers are gone. The error holds the value.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        match self.0.with(|locked| try_send(locked, &mut value)) {
            Some(Ok(receiver)) => {
                give(receiver);
                Ok(())
            }
            Some(Err(why)) => Err(SendError(value.expect("kept"), why)),
            None => Err(SendError(value.expect("kept"), Why::Busy)),
        }
    }
}

type Locked<T> = super::wait_queue::Locked<State<T>, 2>;

/// Sends if there is room, and returns the receiver to wake, if one waits. `None`: full.
fn try_send<T>(locked: &mut Locked<T>, value: &mut Option<T>) -> Option<Result<Option<Grant>, Why>> {
    let state = &mut locked.state;
    if state.receivers == 0 {
        return Some(Err(Why::Closed));
    }
    if state.queue.len() >= state.bound {
        return None;
    }
    state.queue.extend(value.take());
    Some(Ok(locked.take_first(RECEIVERS)))
}

/// Takes a value if there is one, and returns it with the sender to wake, if one waits. `None`: empty.
fn try_recv<T>(locked: &mut Locked<T>) -> Option<Result<(T, Option<Grant>), Why>> {
    match locked.state.queue.pop_front() {
        Some(value) => Some(Ok((value, locked.take_first(SENDERS)))),
        None if locked.state.senders == 0 => Some(Err(Why::Closed)),
        None => None,
    }
}

fn give(grant: Option<Grant>) {
    if let Some(grant) = grant {
        grant.give();
    }
}

impl<T> Receiver<T> {
    /// Returns the next value; waits while the channel is empty.
    ///
    /// # Errors
    /// The channel is empty and all senders are gone; or, while it was empty, the caller was cancelled or ran into its
    /// deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut place = QueueEnd::Back;
        loop {
            match self.0.wait_unless((RECEIVERS, place), Interrupts::Allowed, try_recv) {
                Ok(Some(Ok((value, sender)))) => {
                    give(sender);
                    return Ok(value);
                }
                Ok(Some(Err(why))) => return Err(RecvError(why)),
                // There was a value: try again.
                Ok(None) => place = QueueEnd::Front,
                Err(interrupt) => return Err(RecvError(Why::Interrupted(interrupt))),
            }
        }
    }

    /// Returns the next value if there is one now.
    ///
    /// # Errors
    /// The channel is empty, whether senders are left or not.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let (value, sender) = self.0.with(try_recv).unwrap_or(Err(Why::Busy)).map_err(RecvError)?;
        give(sender);
        Ok(value)
    }

    /// Returns the number of values sent and not yet received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.with(|locked| locked.state.queue.len())
    }

    /// Returns whether the channel is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Wakes all waiters of a list, one per critical section, so that a section allocates nothing.
fn give_all<T>(shared: &Shared<T>, list: usize) {
    while let Some(grant) = shared.with(|locked| locked.take_first(list)) {
        grant.give();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.with(|locked| locked.state.senders += 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let last = self.0.with(|locked| {
            locked.state.senders -= 1;
            locked.state.senders == 0
        });
        if last {
            give_all(&self.0, RECEIVERS);
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.with(|locked| locked.state.receivers += 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = self.0.with(|locked| {
            locked.state.receivers -= 1;
            (locked.state.receivers == 0).then(|| std::mem::take(&mut locked.state.queue))
        });
        if let Some(values) = left {
            give_all(&self.0, SENDERS);
            // Destructors of values are user code: run them outside the section.
            drop(values);
        }
    }
}

impl<T> SendError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
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

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish()
    }
}
