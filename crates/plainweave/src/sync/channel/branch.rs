//! A send and a receive as branches of a select; on a rendezvous channel every wait is one.
//!
//! There a watcher waits for a peer that does both operations in one critical section: it claims
//! the watcher, moves the value, and wakes it. A value that nobody has taken goes back when the
//! watcher leaves.

use super::error::Why;
use super::{
    RECEIVERS, Receiver, RecvError, SENDERS, SendError, Sender, Wakes, try_recv, try_send,
};
use crate::fiber::cancel::Interrupt;
use crate::sync::select::{Case, Place, Selector, Source, Watchers, perform};

/// The value of a send in a select.
#[derive(Debug)]
enum Slot<'a, T> {
    /// Dropped with the branch if it was not sent.
    Own(Option<T>),
    /// Stays where it is if it was not sent.
    Lent(&'a mut Option<T>),
}

impl<T> Slot<'_, T> {
    fn place(&mut self) -> &mut Option<T> {
        match self {
            Slot::Own(value) => value,
            Slot::Lent(value) => value,
        }
    }
}

/// A send that waits beside others.
#[derive(Debug)]
pub struct SendBranch<'a, T> {
    sender: &'a Sender<T>,
    slot: Slot<'a, T>,
    sent: Option<Result<(), SendError<T>>>,
    /// Among the channel's watchers.
    place: Place,
}

/// A receive that waits beside others.
#[derive(Debug)]
pub struct RecvBranch<'a, T> {
    receiver: &'a Receiver<T>,
    value: Option<T>,
    failed: Option<RecvError>,
    /// Among the channel's watchers.
    place: Place,
}

impl<'a, T> SendBranch<'a, T> {
    /// Creates one that has not begun, of a value that is dropped if it is not sent.
    pub fn new(sender: &'a Sender<T>, value: T) -> Self {
        Self {
            sender,
            slot: Slot::Own(Some(value)),
            sent: None,
            place: Place::default(),
        }
    }

    /// Creates one that has not begun, of a value that stays where it is if it is not sent.
    pub fn lent(sender: &'a Sender<T>, slot: &'a mut Option<T>) -> Self {
        Self {
            sender,
            slot: Slot::Lent(slot),
            sent: None,
            place: Place::default(),
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<Result<(), SendError<T>>> {
        self.sent
    }

    /// Sends, and waits for this alone.
    pub(super) fn perform(mut self) -> Result<(), SendError<T>> {
        match perform(Case::new(&mut self)) {
            Ok(()) => self.sent.expect("chosen"),
            Err(interrupt) => Err(self.not_sent(Why::Interrupted(interrupt))),
        }
    }

    fn not_sent(&mut self, why: Why) -> SendError<T> {
        SendError(self.slot.place().take().expect("kept"), why)
    }
}

impl<T> Source for SendBranch<'_, T> {
    fn attempt(&mut self) -> bool {
        let value = self.slot.place();
        if value.is_none() {
            return false;
        }
        let mut wakes = Wakes::none();

        match self
            .sender
            .0
            .queue
            .with(|locked| try_send(locked, value, &mut wakes))
        {
            Some(Ok(())) => {
                wakes.give();
                self.sent = Some(Ok(()));
            }
            Some(Err(why)) => self.sent = Some(Err(self.not_sent(why))),
            None => return false,
        }
        true
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        let value = self.slot.place();
        if value.is_none() {
            return false;
        }
        self.sender.0.queue.with(|locked| {
            let state = &mut locked.state;
            if state.receivers == 0 || state.queue.len() < state.bound {
                return true;
            }
            let lent = if state.bound == 0 { value.take() } else { None };
            self.place = state.watchers[SENDERS].enter(selector, branch, lent);
            state.bound == 0 && state.watchers[RECEIVERS].any_other(selector)
        })
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, claimed: bool) {
        let place = std::mem::take(&mut self.place);
        let back = self
            .sender
            .0
            .queue
            .with(|locked| locked.state.watchers[SENDERS].leave(selector, branch, place));
        if claimed {
            self.sent = Some(Ok(()));
        } else if back.is_some() {
            *self.slot.place() = back;
        }
    }
}

impl<'a, T> RecvBranch<'a, T> {
    /// Creates one that has not begun.
    pub fn new(receiver: &'a Receiver<T>) -> Self {
        Self {
            receiver,
            value: None,
            failed: None,
            place: Place::default(),
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<Result<T, RecvError>> {
        self.value.map(Ok).or(self.failed.map(Err))
    }

    /// Receives, and waits for this alone.
    pub(super) fn perform(mut self) -> Result<T, RecvError> {
        let interrupted = |interrupt: Interrupt| RecvError(Why::Interrupted(interrupt));
        perform(Case::new(&mut self)).map_err(interrupted)?;
        self.output().expect("chosen")
    }
}

impl<T> Source for RecvBranch<'_, T> {
    fn attempt(&mut self) -> bool {
        let mut wakes = Wakes::none();
        let value = &mut self.value;
        match self
            .receiver
            .0
            .queue
            .with(|locked| try_recv(locked, value, &mut wakes))
        {
            Some(Ok(())) => wakes.give(),
            Some(Err(why)) => self.failed = Some(RecvError(why)),
            None => return false,
        }

        true
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        self.receiver.0.queue.with(|locked| {
            let state = &mut locked.state;
            if state.senders == 0 || !state.queue.is_empty() {
                return true;
            }
            self.place = state.watchers[RECEIVERS].enter(selector, branch, None);
            state.bound == 0 && state.watchers[SENDERS].any_other(selector)
        })
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, claimed: bool) {
        let place = std::mem::take(&mut self.place);
        let leave = |watchers: &mut Watchers<T>| watchers.leave(selector, branch, place);
        let given = self
            .receiver
            .0
            .queue
            .with(|locked| leave(&mut locked.state.watchers[RECEIVERS]));
        if claimed {
            self.value = given;
        }
    }
}
