//! Standing polls: the readability of sockets that are waited for again and again.
//!
//! A connection between two requests waits for one thing, time after time. To push a poll entry for
//! each of these waits cost a twentieth of a small request, and made this driver the dearer one
//! (`docs/drivers.md`). A multishot receive into buffers that the kernel picks is as fast, and would
//! have to give up that a call's bytes go where the caller wants them.
//!
//! # Why it is hard
//! What the kernel reports are changes, as with epoll, so the same care is due: see the essay there
//! for what is [`Known`] of a socket. Two things differ.
//!
//! 1. *A report may be old*: it lies in the completion queue until the driver takes it, and the
//!    socket may have been read meanwhile. So completions are numbered. One that was in the queue
//!    when the wait began is believed only if poll(2) says the same. One that the kernel has still
//!    to make then (DEFER_TASKRUN) cannot be told from a new one, and is believed: whoever reads
//!    after a wait may find nothing (`Driver::attempt`).
//! 2. *The poll holds the file open*, where epoll lets go of a descriptor that is closed. So the
//!    poll ends before the descriptor is closed ([`Uring::end_standing`]), at once if the last
//!    handle is dropped on the driver's own worker. If it is dropped elsewhere, that worker is woken
//!    for it ([`Driver::keeps_open`](super::Driver::keeps_open)), and the peer sees the end of the
//!    stream once it has answered: later than otherwise, by at most what a fiber holds it up.
//!
//! For that price a poll stands only for what has been waited for before
//! ([`Operation::recurs`](super::Operation)): a connection with one request never has one. Listeners
//! have none either, as a port is to be free as soon as its listener is closed.
//!
//! A poll that reports nothing but edges that nobody waits for, since its connection has moved to
//! another worker, ends like a registration with epoll.

#![expect(unsafe_code, reason = "follows operations")]

use std::collections::HashMap;
use std::os::fd::AsFd;

use foldhash::fast::RandomState;
use slab::Slab;

use super::{DECIDED, STANDS, Uring, address_of, entry_for, read_poll};
use crate::io::driver::{Completion, OpRef, Submitted};
use crate::io::known::{Known, MOST_IGNORED, is_tcp};
use crate::io::op::{Interest, Op, Operation, RawResult, readable_or_writable};
use crate::io::source::Source;
use crate::sys::PollFlags;

/// In user data: a standing poll's number, not an operation's address, which has no such bit.
pub(super) const NUMBER: u64 = 1 << 63;

/// With one of these in the last report, a short receive does not mean that nothing is left.
const MORE_TO_SEE: PollFlags = PollFlags::RDHUP
    .union(PollFlags::HUP)
    .union(PollFlags::ERR)
    .union(PollFlags::PRI);

/// Returns the events of a report, and whether the kernel has looked at the socket for it. A report
/// that was made for a wake-up alone has whatever that may be about. It takes nothing back of what
/// was seen before, and urgent data is none of its matters: two wake-ups announce that, and after
/// two there is a look. An event that is not TCP's marks such a report.
fn reported(result: RawResult) -> (PollFlags, bool) {
    let events = PollFlags::from_bits_retain(result as u16);
    if events.contains(PollFlags::RDBAND) {
        return (events - (PollFlags::PRI | PollFlags::RDBAND), false);
    }
    (events, true)
}

/// The standing polls of a driver.
#[derive(Debug, Default)]
pub(super) struct Standing {
    polls: Slab<Poll>,
    /// `Source::id` to number; none that is ending.
    by_source: HashMap<u64, u32, RandomState>,
    /// Polls that are ending.
    ending: usize,
}

#[derive(Debug)]
struct Poll {
    source: u64,
    /// Whether this is TCP, where a short receive shows that the queue is empty.
    stream: bool,
    known: Known,
    more_to_see: bool,
    waiting: Option<OpRef>,
    /// Completions below this number were in the queue when the wait began.
    old_below: u64,
    /// Edges since the last wait here.
    ignored: u8,
    /// Whether the kernel has the poll.
    armed: bool,
    /// Its end is asked for; the number is taken until the kernel has reported it.
    ending: bool,
}

impl Standing {
    fn find(&self, source: &Source) -> Option<usize> {
        let id = source.id();
        let hint = source.hint() as usize;
        let is_it = |poll: &Poll| poll.source == id && !poll.ending;
        if self.polls.get(hint).is_some_and(is_it) {
            return Some(hint);
        }
        self.by_source.get(&id).map(|number| *number as usize)
    }

    /// Returns what waits at a poll.
    pub(super) fn waiting(&self, data: u64) -> Option<OpRef> {
        self.polls.get((data & !NUMBER) as usize)?.waiting
    }

    /// Returns whether the end of some is under way.
    pub(super) fn is_ending(&self) -> bool {
        self.ending > 0
    }

    /// Notes what an attempt to receive has shown; `None`: the kernel is to make it.
    pub(super) fn learn(&mut self, source: &Source, op: &Op, result: Option<RawResult>) {
        if let Some(number) = self.find(source) {
            let poll = &mut self.polls[number];
            let short_drains = poll.stream && !poll.more_to_see;
            let after = |result| Known::after(op, result, short_drains);
            poll.known = result.map_or(Known::Unsure, after);
        }
    }

    /// Takes out a poll that the kernel no longer has.
    fn remove(&mut self, number: usize) {
        let poll = self.polls.remove(number);
        match poll.ending {
            true => self.ending -= 1,
            false => drop(self.by_source.remove(&poll.source)),
        }
    }
}

impl Uring {
    /// Waits by the source's standing poll, which begins with this if there is none. `None`: another
    /// operation waits by it.
    pub(super) fn stand(
        &mut self,
        op: OpRef,
        operation: &Operation,
        source: &Source,
    ) -> Option<Submitted> {
        let found = self.standing.find(source);
        let number = found.unwrap_or_else(|| self.add_standing(source));
        // Before poll(2) is asked: what is reported from here on is new.
        let old_below = self.taken_so_far + self.ring.completion().len() as u64;
        let poll = &mut self.standing.polls[number];
        if poll.waiting.is_some() {
            return None;
        }

        poll.ignored = 0;
        if poll.armed && poll.known == Known::Unsure {
            if readable_or_writable(operation.borrow_fd(), Interest::Read) {
                source.note_readable();
                return Some(Submitted::Done(0));
            }
            poll.known = Known::Drained;
        }

        poll.waiting = Some(op);
        poll.old_below = old_below;
        operation.note.set(STANDS | (number as u64) << 32);
        self.in_flight += 1;
        self.arm_standing(number, operation);
        Some(Submitted::Pending)
    }

    fn add_standing(&mut self, source: &Source) -> usize {
        let poll = Poll {
            source: source.id(),
            stream: is_tcp(source.as_fd()),
            known: Known::Unsure,
            more_to_see: false,
            waiting: None,
            old_below: 0,
            ignored: 0,
            armed: false,
            ending: false,
        };

        let number = self.standing.polls.insert(poll);
        self.standing.by_source.insert(source.id(), number as u32);
        source.note_registration(self.tag, number as u64);
        number
    }

    /// Gives the poll to the kernel, which looks for what is there as it takes it.
    fn arm_standing(&mut self, number: usize, operation: &Operation) {
        let poll = &mut self.standing.polls[number];
        if !poll.armed {
            poll.armed = true;
            poll.known = Known::Drained;
            self.push(read_poll(operation.fd).user_data(NUMBER | number as u64));
        }
    }

    /// Processes a report of the poll whose number is in `data`; `nth` is that of the completion.
    /// `more`: the kernel keeps the poll.
    pub(super) fn stood(
        &mut self,
        (data, result, more): (u64, RawResult, bool),
        nth: u64,
        done: &mut Vec<Completion>,
    ) {
        let number = (data & !NUMBER) as usize;
        let poll = &mut self.standing.polls[number];
        poll.armed = more;
        if poll.ending {
            if !more {
                self.standing.remove(number);
            }
            return;
        }

        if result < 0 {
            return self.failed_to_stand(number, result);
        }
        let (events, looked) = reported(result);
        poll.more_to_see = events.intersects(MORE_TO_SEE) || poll.more_to_see && !looked;
        poll.known = Known::Unsure;
        let Some(op) = poll.waiting else {
            poll.ignored += 1;
            if poll.ignored >= MOST_IGNORED {
                self.end_number(number);
            }
            return;
        };

        // SAFETY: it waits, so it is in place (contract of `submit`).
        let operation = unsafe { op.as_ref() };
        // SAFETY: a source outlives its operations.
        let source = unsafe { operation.source.as_ref() };
        let ready = || readable_or_writable(operation.borrow_fd(), Interest::Read);
        if !Interest::Read.is_met(events) || nth < poll.old_below && !ready() {
            poll.known = Known::Drained;
            return self.arm_standing(number, operation);
        }

        poll.waiting = None;
        source.note_readable();
        operation.note.set(DECIDED);
        self.report(op, 0, done);
    }

    /// Goes on without a poll that the kernel refuses, or that has ended with the thread that
    /// began it.
    #[cold]
    fn failed_to_stand(&mut self, number: usize, result: RawResult) {
        self.multishot &= result != -libc::EINVAL;
        let waiting = self.standing.polls[number].waiting;
        self.standing.remove(number);
        if let Some(op) = waiting {
            // SAFETY: it waits, so it is in place (contract of `submit`).
            let operation = unsafe { op.as_ref() };
            operation.note.set(0);
            self.push(entry_for(operation).user_data(address_of(op)));
        }
    }

    /// Ends the wait of an operation that waits by a standing poll, which stays.
    pub(super) fn leave_standing(&mut self, op: OpRef, note: u64, done: &mut Vec<Completion>) {
        self.standing.polls[(note >> 32) as usize].waiting = None;
        self.report(op, -libc::ECANCELED, done);
    }

    /// Ends the poll of a source that is about to be closed, or has been. With the return the
    /// kernel has let go of the file, unless it has much else to do for this ring (it does some 40
    /// things a call), or no memory: then after the next poll.
    pub(super) fn end_standing(&mut self, source: u64) {
        let Some(number) = self.standing.by_source.get(&source) else {
            return;
        };
        self.end_number(*number as usize);
        if self.standing.is_ending() {
            // What fails now is made up for by the next poll.
            let _ = self.enter(0, None);
        }
    }

    /// Ends all of them, as the last thing that this ring is used for.
    pub(super) fn end_all(&mut self) {
        let armed = self.standing.polls.iter().filter(|(_, poll)| poll.armed);
        let numbers: Vec<_> = armed.map(|(number, _)| number).collect();
        for number in numbers {
            self.push_cancel(NUMBER | number as u64);
        }
        // What fails now stays open.
        let _ = self.enter(0, None);
    }

    fn end_number(&mut self, number: usize) {
        let poll = &mut self.standing.polls[number];
        debug_assert!(poll.waiting.is_none(), "a source outlives its operations");
        if !poll.armed {
            return self.standing.remove(number);
        }

        poll.ending = true;
        self.standing.ending += 1;
        self.standing.by_source.remove(&poll.source);
        self.push_cancel(NUMBER | number as u64);
    }
}
