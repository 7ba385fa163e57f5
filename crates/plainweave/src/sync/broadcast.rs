//! Channels in which each receiver gets each value.
//!
//! **Who waits?** Senders never do: a receiver that falls more than the bound behind loses the
//! oldest values, and learns how many. The other choice, that senders wait for the slowest
//! receiver, would let one that is stuck stop everyone. Where nothing may be lost, send to one
//! [`channel::bounded`](super::channel::bounded) per receiver.
//!
//! A value is kept until all receivers that were there when it was sent have got it, or until it is
//! overwritten. The last of them usually gets the value itself; the others get clones, which they
//! make with no lock held.
//!
//! **One section for several values.** All receivers of all workers meet at one lock, and each
//! section brings its cache line over from another core. So a receiver that finds several values
//! takes up to 16 of them at once, and returns the others from its own memory. Those are safe from
//! being overwritten.
//!
//! ```
//! use plainweave::sync::broadcast;
//! plainweave::run(|| {
//!     let (news, mut first) = broadcast::channel(4);
//!     let mut second = news.subscribe();
//!     news.send("hello");
//!     assert_eq!(first.recv().unwrap(), "hello");
//!     assert_eq!(second.recv().unwrap(), "hello");
//! });
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::select::{NoticeBranch, Notices, Watched, Watchers};
use super::wait_queue::{Facts, Primitive, WaitQueue};
use crate::fiber::cancel::Interrupt;
use crate::fiber::wait_link::QueueEnd;
use crate::sched::wait::Interrupts;
use crate::thread::preemption_point;

/// The most values that a receiver takes in one section.
const BATCH: usize = 16;

/// Values for which there is memory from the beginning.
const AT_ONCE: usize = 4096;

struct State<T> {
    /// The last values that were sent, from the first on that somebody has yet to get.
    values: VecDeque<Slot<T>>,
    bound: usize,
    /// The number of values that were ever sent, and so the position of the next one.
    sent: u64,
    senders: usize,
    receivers: usize,
    /// Selects that wait for a value.
    watchers: Watchers,
}

struct Slot<T> {
    /// Empty once all have got it.
    value: Option<Arc<T>>,
    /// How many receivers have not got it yet.
    unread: usize,
}

impl<T> Primitive for State<T> {
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: "broadcast channel",
            counts: [
                (self.senders, "senders"),
                (self.receivers, "receivers"),
                (0, ""),
            ],
            ..Facts::default()
        }
    }
}

type Shared<T> = Arc<WaitQueue<State<T>>>;
type Locked<T> = super::wait_queue::Locked<State<T>, 1>;

/// The sending half; clones send to the same receivers. When the last is dropped, receivers get the
/// remaining values and then an error.
pub struct Sender<T>(Shared<T>);

/// A receiving half, which gets each value that is sent after it was created.
pub struct Receiver<T> {
    shared: Shared<T>,
    /// Values that it has taken and not returned, the next one last. There is room for `BATCH`, so
    /// that no section allocates.
    taken: Vec<Arc<T>>,
    /// The position of the next value to take.
    next: u64,
}

/// The error of a receive; it holds the reason.
#[derive(Debug)]
pub struct RecvError(Why);

#[derive(Clone, Copy, Debug)]
enum Why {
    Closed,
    /// There was no value, and the caller did not want to wait.
    Empty,
    Lagged(u64),
    Interrupted(Interrupt),
}

/// Creates a channel that keeps the last `bound` values for receivers that fall behind. Memory for
/// up to 4,096 of them is allocated at once, for more when it is needed. (A receiver may keep up to
/// 16 more, which it took together with one that it returned.)
///
/// # Panics
/// `bound` is 0.
#[must_use]
pub fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    of(WaitQueue::new(State::new(bound)))
}

#[cfg(all(test, loom))]
pub(super) fn modelled<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    of(WaitQueue::modelled(State::new(bound)))
}

fn of<T>(queue: WaitQueue<State<T>>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(queue);
    (Sender(shared.clone()), Receiver::new(shared, 0))
}

impl<T> State<T> {
    fn new(bound: usize) -> Self {
        assert!(
            bound > 0,
            "a channel needs room for one value at least, not {bound}"
        );
        // At once, so that no section allocates; a bound beyond that is rather a wish for none.
        let values = VecDeque::with_capacity(bound.min(AT_ONCE));
        Self {
            values,
            bound,
            sent: 0,
            senders: 1,
            receivers: 1,
            watchers: Watchers::new(),
        }
    }

    /// Returns the position of the oldest value, or of the next one if there is none.
    fn oldest(&self) -> u64 {
        self.sent - self.values.len() as u64
    }

    /// Notes that one more receiver has done with the value at a position, which is there. The last
    /// one takes it out, so that no destructor runs in the section.
    fn read(&mut self, position: u64) -> Arc<T> {
        let index = usize::try_from(position - self.oldest())
            .expect("there are no more than fit in memory");
        let value = self.values[index].read();
        self.forget_read();
        value
    }

    /// Does the same for as many values from a position on as there are, up to [`BATCH`].
    fn read_all(&mut self, position: u64, into: &mut Vec<Arc<T>>) {
        let index = usize::try_from(position - self.oldest())
            .expect("there are no more than fit in memory");
        into.extend(self.values.range_mut(index..).take(BATCH).map(Slot::read));
        self.forget_read();
    }

    /// Removes the oldest values as far as nobody has yet to get them.
    fn forget_read(&mut self) {
        // A receiver that is being dropped gives up an older value after others have got a newer
        // one, which it did not count for.
        while self.values.front().is_some_and(|slot| slot.unread == 0) {
            self.values.pop_front();
        }
    }
}

impl<T> Slot<T> {
    /// Returns the value for one more receiver.
    fn read(&mut self) -> Arc<T> {
        self.unread -= 1;
        let value = if self.unread == 0 {
            self.value.take()
        } else {
            self.value.clone()
        };
        value.expect("the last receiver has yet to get it")
    }
}

impl<T> Sender<T> {
    /// Sends a value to all receivers, and returns how many there are; with none, the value is
    /// dropped. Never waits.
    pub fn send(&self, value: T) -> usize {
        let value = Arc::new(value);
        let (count, overwritten, waiters) = self.0.with(|locked| {
            let state = &mut locked.state;
            if state.receivers == 0 {
                return (0, None, None);
            }
            let overwritten = if state.values.len() == state.bound {
                state.values.pop_front()
            } else {
                None
            };

            state.values.push_back(Slot {
                value: Some(value.clone()),
                unread: state.receivers,
            });
            state.sent += 1;
            let selects = state.watchers.take();
            (
                state.receivers,
                overwritten,
                Some((locked.take_all(0, None), selects)),
            )
        });

        if let Some((waiters, selects)) = waiters {
            waiters.give();
            selects.into_iter().for_each(Notices::give);
        }

        // Destructors of values are user code: run them outside the section.
        drop((value, overwritten));
        count
    }

    /// Creates a receiver that gets what is sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        subscribe(&self.0)
    }

    /// Returns the number of receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.0.with(|locked| locked.state.receivers)
    }
}

fn subscribe<T>(shared: &Shared<T>) -> Receiver<T> {
    let next = shared.with(|locked| {
        locked.state.receivers += 1;
        locked.state.sent
    });
    Receiver::new(shared.clone(), next)
}

impl<T> Receiver<T> {
    fn new(shared: Shared<T>, next: u64) -> Self {
        Self {
            shared,
            taken: Vec::with_capacity(BATCH),
            next,
        }
    }
}

impl<T: Clone> Receiver<T> {
    /// Returns the next value; waits while there is none.
    ///
    /// # Errors
    /// Values were lost because this receiver fell behind; the next call goes on with the oldest
    /// that is left then. Or there is no value and all senders are gone; or, while there was none,
    /// the caller was cancelled or ran into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn recv(&mut self) -> Result<T, RecvError> {
        preemption_point();
        loop {
            if let Some(value) = self.taken.pop() {
                return Ok(Arc::unwrap_or_clone(value));
            }
            let Self {
                shared,
                taken,
                next,
            } = self;
            match shared.wait_unless((0, QueueEnd::Back), Interrupts::Allowed, |locked| {
                take(locked, taken, next)
            }) {
                Ok(Some(Ok(()))) => taken.reverse(),
                Ok(Some(Err(why))) => return Err(RecvError(why)),
                // There was a value, or an end: look again.
                Ok(None) => {}
                Err(interrupt) => return Err(RecvError(Why::Interrupted(interrupt))),
            }
        }
    }

    /// Returns the next value if there is one now.
    ///
    /// # Errors
    /// There is no value, or values were lost as for [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        if self.taken.is_empty() {
            let Self {
                shared,
                taken,
                next,
            } = self;
            shared
                .with(|locked| take(locked, taken, next))
                .unwrap_or(Err(Why::Empty))
                .map_err(RecvError)?;
            taken.reverse();
        }
        self.taken
            .pop()
            .map(Arc::unwrap_or_clone)
            .ok_or(RecvError(Why::Empty))
    }
}

impl<T: Clone> Receiver<T> {
    /// Returns a receive as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&mut self) -> NoticeBranch<'_, Result<T, RecvError>> {
        NoticeBranch::new(self)
    }
}

impl<T: Clone> Watched for &mut Receiver<T> {
    type Output = Result<T, RecvError>;

    fn attempt(&mut self) -> Option<Result<T, RecvError>> {
        match self.try_recv() {
            Err(RecvError(Why::Empty)) => None,
            received => Some(received),
        }
    }

    fn look(&self, f: &mut dyn FnMut(&mut Watchers, bool)) {
        self.shared.with(|locked| {
            let state = &mut locked.state;
            // A value that was lost counts, too.
            let may_succeed =
                !self.taken.is_empty() || self.next != state.sent || state.senders == 0;
            f(&mut state.watchers, may_succeed);
        });
    }
}

/// Takes values from `next` on, in order, and moves on. `None`: the next one has not been sent yet.
fn take<T>(
    locked: &mut Locked<T>,
    taken: &mut Vec<Arc<T>>,
    next: &mut u64,
) -> Option<Result<(), Why>> {
    let state = &mut locked.state;
    let oldest = state.oldest();
    if *next < oldest {
        let lost = oldest - std::mem::replace(next, oldest);
        return Some(Err(Why::Lagged(lost)));
    }
    if *next == state.sent {
        return (state.senders == 0).then_some(Err(Why::Closed));
    }
    state.read_all(*next, taken);
    *next += taken.len() as u64;
    Some(Ok(()))
}

impl<T> Receiver<T> {
    /// Creates another receiver, which gets what is sent from now on.
    pub fn resubscribe(&self) -> Self {
        subscribe(&self.shared)
    }

    /// Returns the number of values that this receiver can get now.
    #[must_use]
    pub fn len(&self) -> usize {
        let unread = self
            .shared
            .with(|locked| locked.state.sent - self.next.max(locked.state.oldest()));
        self.taken.len() + usize::try_from(unread).expect("there are no more than fit in memory")
    }

    /// Returns whether there is no value that this receiver can get now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        let waiting = self.0.with(|locked| {
            locked.state.senders -= 1;
            (locked.state.senders == 0)
                .then(|| (locked.take_all(0, None), locked.state.watchers.take()))
        });

        if let Some((waiters, selects)) = waiting {
            waiters.give();
            selects.into_iter().for_each(Notices::give);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // What is sent from here on does not count this receiver.
        let end = self.shared.with(|locked| {
            locked.state.receivers -= 1;
            locked.state.sent
        });

        Backlog {
            receiver: self,
            end,
        }
        .give_up();
    }
}

/// The values that a receiver has not got when it is dropped. A destructor that panics does not
/// keep the others.
struct Backlog<'a, T> {
    receiver: &'a mut Receiver<T>,
    end: u64,
}

impl<T> Backlog<'_, T> {
    fn give_up(&mut self) {
        let Receiver { shared, next, .. } = &mut *self.receiver;
        // One per section: their destructors are user code.
        while let Some(value) = shared.with(|locked| {
            *next = (*next).max(locked.state.oldest());
            (*next < self.end).then(|| locked.state.read(*next))
        }) {
            *next += 1;
            drop(value);
        }
    }
}

impl<T> Drop for Backlog<'_, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl RecvError {
    /// Returns how many values were lost, if any were.
    #[must_use]
    pub fn lagged(&self) -> Option<u64> {
        match self.0 {
            Why::Lagged(lost) => Some(lost),
            _ => None,
        }
    }

    /// Returns whether there is no value and all senders are gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.0, Why::Closed)
    }

    /// Returns whether there was no value (`try_recv` only).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Why::Empty)
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

impl From<RecvError> for io::Error {
    fn from(error: RecvError) -> Self {
        match error.0 {
            Why::Closed => {
                io::Error::new(io::ErrorKind::BrokenPipe, "the channel has no senders left")
            }
            Why::Empty => io::Error::new(io::ErrorKind::WouldBlock, "the channel has no new value"),
            Why::Lagged(lost) => {
                io::Error::other(format!("the receiver fell behind and lost {lost} values"))
            }
            Why::Interrupted(interrupt) => interrupt.into(),
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(Self(self.0)).fmt(f)
    }
}

impl std::error::Error for RecvError {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish()
    }
}
