//! Channels: many senders, many receivers; each value goes to one receiver, in the order of
//! sending.
//!
//! ```
//! use plainweave::sync::channel;
//! plainweave::run(|| {
//!     let (sender, receiver) = channel::bounded(4);
//!     plainweave::spawn(move || (1..=10).for_each(|n| sender.send(n).unwrap()));
//!     let sum: i32 = receiver.iter().sum();
//!     assert_eq!(sum, 55);
//! });
//! ```
//!
//! A *rendezvous* channel, `bounded(0)`, holds nothing: a send returns when a receiver has taken
//! the value.

pub(super) mod branch; // A send and a receive as branches of a select.
mod error; // Why a send or a receive failed.
mod iter; // Receiving by `for`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use branch::{RecvBranch, SendBranch};
use error::Why;
pub use error::{RecvError, SendError};
pub use iter::{IntoIter, Iter, TryIter};

use super::select::{Notices, Watchers};
use super::wait_queue::{Facts, Grant, Primitive, WaitQueue};
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::{Interrupts, Waker};
use crate::thread::preemption_point;
use crate::time::with_timeout;

/// The lists of waiters, and of watchers.
const RECEIVERS: usize = 0;
const SENDERS: usize = 1;

struct Channel<T> {
    /// How many values it holds at most; 0 for a rendezvous channel, whose waiters are all
    /// watchers.
    bound: usize,
    queue: WaitQueue<State<T>, 2>,
}

struct State<T> {
    queue: VecDeque<T>,
    bound: usize,
    senders: usize,
    receivers: usize,
    watchers: [Watchers<T>; 2],
}

impl<T> Primitive for State<T> {
    fn facts(&self, list: usize) -> Facts {
        let (kind, others) = match list {
            RECEIVERS => ("channel, to receive", (self.senders, "senders")),
            _ => ("channel, to send", (self.receivers, "receivers")),
        };

        let counts = [others, (self.queue.len(), "values"), (0, "")];
        Facts {
            kind,
            holder: None,
            counts,
            peers: 1 - list,
        }
    }
}

type Shared<T> = Arc<Channel<T>>;
type Locked<T> = super::wait_queue::Locked<State<T>, 2>;

/// Up to that much memory a queue keeps for values to come.
const KEPT_BYTES: usize = 64 << 10;

/// Creates a channel that holds at most `bound` values: `send` waits while it is full, so a slow
/// receiver slows its senders down.
///
/// With a bound of 0 it holds none: `send` waits until a receiver takes the value, `try_send`
/// succeeds only if a receiver waits, and `try_recv` only if a sender waits.
///
/// ```
/// use plainweave::sync::channel;
///
/// let (sender, receiver) = channel::bounded(2);
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// assert!(sender.try_send(3).is_err(), "full");
/// assert_eq!(receiver.recv().unwrap(), 1);
/// ```
#[must_use]
pub fn bounded<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    channel(bound)
}

/// Creates a channel without a bound: `send` never waits, and only memory limits how far a receiver
/// may fall behind.
///
/// ```
/// use plainweave::sync::channel;
///
/// let (sender, receiver) = channel::unbounded();
/// (0..1000).for_each(|n| sender.send(n).unwrap());
/// drop(sender);
/// assert_eq!(receiver.iter().count(), 1000);
/// ```
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    of(bound, WaitQueue::new(State::new(bound)))
}

/// Creates one without a bound.
#[cfg(all(test, loom))]
pub(super) fn modelled<T>() -> (Sender<T>, Receiver<T>) {
    of(usize::MAX, WaitQueue::modelled(State::new(usize::MAX)))
}

fn of<T>(bound: usize, queue: WaitQueue<State<T>, 2>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Channel { bound, queue });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> State<T> {
    const fn new(bound: usize) -> Self {
        let watchers = [Watchers::new(), Watchers::new()];
        Self {
            queue: VecDeque::new(),
            bound,
            senders: 1,
            receivers: 1,
            watchers,
        }
    }
}

/// The sending half; clones send into the same channel. When the last is dropped, receivers get the
/// remaining values and then an error.
pub struct Sender<T>(Shared<T>);

/// The receiving half; clones share the values. When the last is dropped, remaining values are
/// dropped and sends fail.
pub struct Receiver<T>(Shared<T>);

/// The waiters to wake after a critical section, which writes them in place: a result that is
/// written in pieces and then moved as a whole stalls the processor for as long as a switch takes.
struct Wakes {
    waiter: Option<Grant>,
    selects: Option<Notices>,
    /// The peer whose operation this one has done, on a rendezvous channel.
    peer: Option<Waker>,
}

impl Wakes {
    const fn none() -> Self {
        Self {
            waiter: None,
            selects: None,
            peer: None,
        }
    }

    /// Takes the first waiter and all watchers of a list: one of them can go on.
    #[inline]
    fn take<T>(&mut self, locked: &mut Locked<T>, list: usize) {
        self.waiter = locked.take_first(list);
        self.selects = locked.state.watchers[list].take();
    }

    #[inline]
    fn give(&mut self) {
        if let Some(grant) = self.waiter.take() {
            grant.give();
        }
        if self.selects.is_some() || self.peer.is_some() {
            self.give_to_selects();
        }
    }

    #[cold]
    fn give_to_selects(&mut self) {
        self.selects.take().into_iter().for_each(Notices::give);
        self.peer.take().into_iter().for_each(Waker::wake_and_drop);
    }
}

impl<T> Sender<T> {
    /// Sends a value; waits while the channel is full, or until a receiver takes it on a rendezvous
    /// channel.
    ///
    /// # Errors
    /// All receivers are gone; or, while it waited, the caller was cancelled or ran into its
    /// deadline. The error holds the value, which no receiver has got.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        preemption_point();
        if self.0.bound == 0 {
            return SendBranch::new(self, value).perform();
        }
        let mut value = Some(value);
        let mut wakes = Wakes::none();
        let mut place = QueueEnd::Back;
        loop {
            let sent = |locked: &mut _| try_send(locked, &mut value, &mut wakes);
            match self
                .0
                .queue
                .wait_unless((SENDERS, place), Interrupts::Allowed, sent)
            {
                Ok(Some(Ok(()))) => {
                    wakes.give();
                    return Ok(());
                }
                Ok(Some(Err(why))) => return Err(SendError(value.expect("kept"), why)),
                // There was room: try again.
                Ok(None) => place = QueueEnd::Front,
                Err(interrupt) => {
                    return Err(SendError(value.expect("kept"), Why::Interrupted(interrupt)));
                }
            }
        }
    }

    /// Sends a value like [`Self::send`], but waits for at most `limit`.
    ///
    /// # Errors
    /// As for `send`; one that [`SendError::is_timed_out`] recognises after `limit`.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn send_timeout(&self, value: T, limit: Duration) -> Result<(), SendError<T>> {
        with_timeout(limit, || self.send(value))
    }

    /// Sends a value if there is room now; on a rendezvous channel, if a receiver waits.
    ///
    /// # Errors
    /// The channel is full, or all receivers are gone. The error holds the value.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let mut wakes = Wakes::none();
        match self
            .0
            .queue
            .with(|locked| try_send(locked, &mut value, &mut wakes))
        {
            Some(Ok(())) => {
                wakes.give();
                Ok(())
            }
            Some(Err(why)) => Err(SendError(value.expect("kept"), why)),
            None => Err(SendError(value.expect("kept"), Why::Busy)),
        }
    }

    /// Returns whether all receivers are gone, so that no send can succeed any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.queue.with(|locked| locked.state.receivers == 0)
    }
}

/// Sends if there is room or a receiver, and says what to wake. `None`: full, or nobody receives.
#[inline]
fn try_send<T>(
    locked: &mut Locked<T>,
    value: &mut Option<T>,
    wakes: &mut Wakes,
) -> Option<Result<(), Why>> {
    let state = &mut locked.state;
    if state.receivers == 0 {
        return Some(Err(Why::Closed));
    }
    if state.bound == 0 {
        wakes.peer = Some(state.watchers[RECEIVERS].give(value)?);
        return Some(Ok(()));
    }
    if state.queue.len() >= state.bound {
        return None;
    }
    state.queue.extend(value.take());
    wakes.take(locked, RECEIVERS);
    Some(Ok(()))
}

/// Takes a value if there is one, and says what to wake. `None`: empty, or nobody sends.
#[inline]
fn try_recv<T>(
    locked: &mut Locked<T>,
    value: &mut Option<T>,
    wakes: &mut Wakes,
) -> Option<Result<(), Why>> {
    let state = &mut locked.state;
    if state.bound == 0
        && let Some((sent, peer)) = state.watchers[SENDERS].receive()
    {
        (*value, wakes.peer) = (Some(sent), Some(peer));
        return Some(Ok(()));
    }
    if let Some(sent) = state.queue.pop_front() {
        *value = Some(sent);
        give_back_room(&mut state.queue);
        wakes.take(locked, SENDERS);
        return Some(Ok(()));
    }
    (state.senders == 0).then_some(Err(Why::Closed))
}

/// Gives most of a queue's memory back when little of it is used any more, for a channel may be
/// long-lived and its fullest moment short. Each value taken has paid for it: an eighth is copied
/// after seven eighths were received, and the half that stays must be filled before it grows.
#[inline]
fn give_back_room<T>(queue: &mut VecDeque<T>) {
    // Nothing for values without a size, of which there is no end of room.
    let bytes = queue.capacity().saturating_mul(size_of::<T>());
    if bytes > KEPT_BYTES && queue.len() < queue.capacity() / 8 {
        queue.shrink_to(queue.capacity() / 2);
    }
}

impl<T> Receiver<T> {
    /// Returns a receive as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&self) -> RecvBranch<'_, T> {
        RecvBranch::new(self)
    }

    /// Returns the next value; waits while the channel is empty.
    ///
    /// # Errors
    /// The channel is empty and all senders are gone; or, while it was empty, the caller was
    /// cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn recv(&self) -> Result<T, RecvError> {
        preemption_point();
        if self.0.bound == 0 {
            return RecvBranch::new(self).perform();
        }
        let mut value = None;
        let mut wakes = Wakes::none();
        let mut place = QueueEnd::Back;
        loop {
            let received = |locked: &mut _| try_recv(locked, &mut value, &mut wakes);
            match self
                .0
                .queue
                .wait_unless((RECEIVERS, place), Interrupts::Allowed, received)
            {
                Ok(Some(Ok(()))) => {
                    wakes.give();
                    return Ok(value.expect("received"));
                }
                Ok(Some(Err(why))) => return Err(RecvError(why)),
                // There was a value: try again.
                Ok(None) => place = QueueEnd::Front,
                Err(interrupt) => return Err(RecvError(Why::Interrupted(interrupt))),
            }
        }
    }

    /// Returns the next value like [`Self::recv`], but waits for at most `limit`.
    ///
    /// # Errors
    /// As for `recv`; one that [`RecvError::is_timed_out`] recognises after `limit`.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn recv_timeout(&self, limit: Duration) -> Result<T, RecvError> {
        with_timeout(limit, || self.recv())
    }

    /// Returns the next value if there is one now; on a rendezvous channel, if a sender waits.
    ///
    /// # Errors
    /// The channel is empty: [`RecvError::is_closed`] says whether all senders are gone too.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let mut value = None;
        let mut wakes = Wakes::none();
        let received = self
            .0
            .queue
            .with(|locked| try_recv(locked, &mut value, &mut wakes));
        received.unwrap_or(Err(Why::Busy)).map_err(RecvError)?;
        wakes.give();
        Ok(value.expect("received"))
    }

    /// Returns whether all senders are gone, so that no value will come after those that are left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.queue.with(|locked| locked.state.senders == 0)
    }
}

/// What both halves can say of their channel.
macro_rules! half_methods {
    ($half:ident) => {
        impl<T> $half<T> {
            /// Returns the number of values sent and not yet received; always 0 for a rendezvous
            /// channel.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.queue.with(|locked| locked.state.queue.len())
            }

            /// Returns whether the channel is empty; a rendezvous channel always is.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns whether the channel is full; a rendezvous channel always is.
            #[must_use]
            pub fn is_full(&self) -> bool {
                self.len() >= self.0.bound
            }

            /// Returns how many values the channel can hold: 0 for a rendezvous channel, `None`
            /// without a bound.
            #[must_use]
            pub fn capacity(&self) -> Option<usize> {
                (self.0.bound != usize::MAX).then_some(self.0.bound)
            }
        }
    };
}

half_methods!(Sender);
half_methods!(Receiver);

impl<T> Channel<T> {
    /// Wakes all of a list after the other side has gone, one waiter per critical section, so that
    /// a section allocates nothing.
    fn close(&self, list: usize) {
        while let Some(grant) = self.queue.with(|locked| locked.take_first(list)) {
            grant.give();
        }
        // A watcher stays on the list, because it may carry a value.
        while let Some(select) = self
            .queue
            .with(|locked| locked.state.watchers[list].notify_one())
        {
            select.wake_and_drop();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.queue.with(|locked| locked.state.senders += 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let last = self.0.queue.with(|locked| {
            locked.state.senders -= 1;
            locked.state.senders == 0
        });

        if last {
            self.0.close(RECEIVERS);
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.queue.with(|locked| locked.state.receivers += 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = self.0.queue.with(|locked| {
            locked.state.receivers -= 1;
            (locked.state.receivers == 0).then(|| std::mem::take(&mut locked.state.queue))
        });

        if let Some(values) = left {
            self.0.close(SENDERS);
            // Destructors of values are user code: run them outside the section.
            drop(values);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// After its fullest moment a queue keeps little memory; and what stays in it stays in order.
    #[test]
    fn room_is_given_back() {
        let (sender, receiver) = unbounded::<u64>();
        let room = || {
            receiver
                .0
                .queue
                .with(|locked| locked.state.queue.capacity() * size_of::<u64>())
        };

        for _ in 0..2 {
            (0..1_000_000).for_each(|n| sender.send(n).expect("a receiver"));
            assert!(room() >= 8_000_000);
            for n in 0..1_000_000 {
                assert_eq!(receiver.try_recv().expect("a value"), n);
                let few = 8 * (1_000_000 - n as usize) * size_of::<u64>();
                assert!(room() <= KEPT_BYTES.max(few), "{} bytes at {n}", room());
            }

            assert!((1..=KEPT_BYTES).contains(&room()), "{}", room());
        }

        let (sender, receiver) = unbounded::<()>();
        (0..100_000).for_each(|_| sender.send(()).expect("a receiver"));
        assert_eq!(receiver.try_iter().count(), 100_000);
    }
}
