//! The epoll driver: the kernel reports readiness, and the driver makes the calls itself.
//!
//! It serves containers that forbid io_uring, so it gets the same care as the io_uring driver.
//!
//! # Why it is hard
//! Edge-triggered epoll reports a change once. A driver that forgets an edge waits for ever; one
//! that distrusts edges pays a failing system call for each successful one. And an edge may refer
//! to a descriptor number that has been closed and reused.
//!
//! # Rejected
//! * *Level-triggered, one-shot*: an `epoll_ctl` for every wait, about a tenth of the cost of a
//!   small request.
//! * *Separate registrations for reading and writing*: two for a duplex fiber pair, and epoll keys
//!   by descriptor anyway.
//! * *Registering first*: a connection that answers at once would pay for an unused `epoll_ctl`. So
//!   the call comes first, and the first EAGAIN registers both directions, for as long as the
//!   source lives and is used here.
//!
//! # What is known of a direction
//! Each direction of a registered source is in one of two states ([`Known`]):
//!
//! * `Unsure`: an edge came, or a call has transferred something, since the kernel last said no.
//!   The call is tried; a `Poll` asks poll(2). The edge alone would not do: not all reads and
//!   writes pass through this driver (other workers' drivers, plain threads,
//!   `TcpStream::send_file`, async code).
//! * `Drained`: the kernel returned EAGAIN, or a receive came back short. The call is not tried
//!   until the next edge.
//!
//! # The protocol
//! 1. `submit` tries the call unless the direction is drained or other operations wait before it
//!    (first come, first served).
//! 2. EAGAIN marks the direction drained, *then* the operation waits. Nothing is lost in between:
//!    data that came after the EAGAIN has put an edge into the kernel's ready list, which the next
//!    `epoll_wait` reports. For a source that is new here, EPOLL_CTL_ADD itself checks for
//!    readiness and reports it.
//! 3. An edge makes its directions `Unsure` and performs the waiting operations in order until one
//!    gets EAGAIN or receives short. So whenever operations wait, their direction is drained: an
//!    edge is owed.
//! 4. A short receive counts as drained only on TCP (datagrams are always short, AF_UNIX stops at
//!    passed descriptors), and only if the last event showed no RDHUP, HUP, ERR or PRI. Otherwise
//!    the driver would never look at a queued FIN, whose edge was reported together with the data,
//!    or at the bytes behind an urgent mark.
//! 5. A fiber that migrates leaves a registration behind, whose edges then wake this worker for
//!    nothing. After [`MOST_IGNORED`] in a row, without a call in between, the registration ends; a
//!    fiber that returns registers again.
//! 6. Event data is slot and generation. A slot's generation is new with each registration, so an
//!    event of a registration that is gone (the descriptor lives on in a duplicate) matches
//!    nothing.
//!
//! Buffers are only touched by calls made here, by the thread that holds the worker's I/O lock: a
//! cancellation completes at once, and a driver can be dropped with operations waiting.

#![expect(unsafe_code, reason = "follows operations; epoll's calls")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use slab::Slab;

use super::driver::{Completion, Driver, OpRef, PollFd, Submitted, Wait};
use super::eventfd::Wakeup;
use super::known::{Known, MOST_IGNORED, is_tcp};
use super::op::{
    Interest, OWNER_BYTES, Op, Operation, RawResult, connect_outcome, readable_or_writable,
};
use super::op_lists::{OpList, Waiters};
use super::source::Source;
use crate::prefetch::prefetch;
use crate::sys::PollFlags;

/// Events taken from the kernel by one call. The fibers they wake run before the next batch is
/// requested, so this bounds how much a batch evicts from the caches before it is used: with 512
/// connections, 256 events cost the cache server 7 % more CPU per request than 32. Fewer gain
/// nothing.
const BATCH: usize = 32;
/// The event data of the wake-up descriptor; no slot has this number.
const WAKE: u64 = u64::MAX;
/// Everything that one registration asks for. EPOLLPRI only reports that an urgent mark may cut a
/// receive short.
const INTEREST: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
/// With one of these in the last event, a short receive does not mean that nothing is left.
const MORE_TO_SEE: i32 = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI;
const MAKES_READABLE: i32 = libc::EPOLLIN | MORE_TO_SEE;
const MAKES_WRITABLE: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
const MAKES_URGENT: i32 = libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR;
/// The note of an operation that has its result, which is on its way to be reported: to cancel it
/// does nothing more.
const DECIDED: u64 = u64::MAX;
/// Bits of a place that say which side.
const SIDE_BITS: u32 = 2;

/// One direction of a registered source, or its exceptional conditions.
#[derive(Debug)]
struct Side {
    known: Known,
    waiting: OpList,
}

/// One registered source.
#[derive(Debug)]
struct Registration {
    source: u64,
    fd: RawFd,
    generation: u32,
    /// Whether this is TCP, where a short receive shows that the queue is empty.
    stream: bool,
    /// Whether the last event carried one of `MORE_TO_SEE`.
    more_to_see: bool,
    /// Edges since the last call or waiter here.
    ignored: u8,
    sides: [Side; 3],
}

impl Registration {
    fn new(source: u64, fd: BorrowedFd<'_>, generation: u32) -> Self {
        let side = || Side {
            known: Known::Unsure,
            waiting: OpList::default(),
        };

        let stream = is_tcp(fd);
        let sides = [side(), side(), side()];
        Self {
            source,
            fd: fd.as_raw_fd(),
            generation,
            stream,
            more_to_see: false,
            ignored: 0,
            sides,
        }
    }

    /// Records what an attempt has shown of its direction.
    fn learn(&mut self, op: &Op, result: RawResult) {
        let known = Known::after(op, result, self.stream && !self.more_to_see);
        self.sides[side_of(op.interest())].known = known;
    }
}

fn side_of(interest: Interest) -> usize {
    match interest {
        Interest::Read => 0,
        Interest::Write => 1,
        Interest::Priority => 2,
    }
}

/// Encodes a waiting operation's place: slot and direction.
fn place(slot: usize, side: usize) -> u64 {
    (slot as u64) << SIDE_BITS | side as u64
}

/// The epoll driver of one worker.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    epoch: Instant,
    worker: usize,
    wakeup: Arc<Wakeup>,
    slots: Slab<Registration>,
    /// `Source::id` to slot.
    by_source: HashMap<u64, u32, RandomState>,
    /// Maps a descriptor to the slot last registered with it, which owns the kernel's registration.
    by_fd: HashMap<RawFd, u32, RandomState>,
    generation: u32,
    waiters: Waiters,
    events: Vec<libc::epoll_event>,
    /// Whether epoll_pwait2 (Linux 5.11), which takes nanoseconds, is available.
    nanoseconds: bool,
}

impl Epoll {
    /// Creates a driver whose clock counts from `epoch`. `worker` is the driver's tag, by which
    /// sources record that it keeps state for them.
    pub(crate) fn new(epoch: Instant, worker: usize) -> io::Result<Self> {
        // SAFETY: a plain call that returns a new descriptor or -1.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let wakeup = Arc::new(Wakeup::new()?);

        // Edge-triggered: each write of the eventfd is an edge, so it never has to be read.
        control(
            raw,
            libc::EPOLL_CTL_ADD,
            wakeup.raw(),
            libc::EPOLLIN | libc::EPOLLET,
            WAKE,
        )?;
        Ok(Self {
            fd,
            epoch,
            worker,
            wakeup,
            slots: Slab::new(),
            by_source: HashMap::default(),
            by_fd: HashMap::default(),
            generation: 0,
            waiters: Waiters::default(),
            events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH],
            nanoseconds: wait_nanoseconds(
                raw,
                &mut [libc::epoll_event { events: 0, u64: 0 }],
                Some(0),
            )
            .is_ok(),
        })
    }

    /// Registers a source that is not yet known here.
    fn register(&mut self, source: u64, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let number = self.slots.insert(Registration::new(source, fd, generation));
        let fd = fd.as_raw_fd();
        let data = u64::from(generation) << 32 | number as u64;
        let epoll = self.fd.as_raw_fd();
        let mut added = control(epoll, libc::EPOLL_CTL_ADD, fd, INTEREST, data);

        if added
            .as_ref()
            .is_err_and(|e| e.raw_os_error() == Some(libc::EEXIST))
        {
            // This open file is registered under this number for an earlier source: take that
            // registration over.
            added = control(epoll, libc::EPOLL_CTL_MOD, fd, INTEREST, data);
        }
        if let Err(error) = added {
            self.slots.remove(number);
            return Err(error);
        }

        self.by_source.insert(source, number as u32);
        self.by_fd.insert(fd, number as u32);
        Ok(number)
    }

    /// Ends a registration that is unused here. The source may be gone, and its descriptor number
    /// reused.
    fn retire(&mut self, number: usize) {
        let source = self.slots[number].source;
        let fd = self.slots[number].fd;
        if self.remove(source) {
            // Fails harmlessly if the number now belongs to a source that is not registered here.
            let _ = control(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    /// Removes a source's slot. Returns whether that slot was the last one registered with its
    /// descriptor.
    fn remove(&mut self, source: u64) -> bool {
        let Some(number) = self.by_source.remove(&source) else {
            return false;
        };
        let slot = self.slots.remove(number as usize);
        debug_assert_eq!(slot.source, source, "the map and the slots agree");
        debug_assert!(
            slot.sides.iter().all(|side| side.waiting.is_empty()),
            "a source outlives its operations"
        );
        let last = self.by_fd.get(&slot.fd) == Some(&number);

        if last {
            self.by_fd.remove(&slot.fd);
        }

        last
    }

    /// Returns the source's slot. The hint may be another driver's, or outdated: the slot itself
    /// names its source.
    fn slot_of(&self, source: &Source) -> Option<usize> {
        let id = source.id();
        let hint = source.hint() as usize;
        if self.slots.get(hint).is_some_and(|slot| slot.source == id) {
            return Some(hint);
        }
        self.by_source.get(&id).map(|number| *number as usize)
    }

    /// Tries the operation; returns `None` if it has to wait. `number` is its slot, if it has one.
    fn try_first(&mut self, op: &Operation, number: Option<usize>) -> Option<RawResult> {
        let Some(number) = number else {
            // A registration reports readiness by itself, so a new source's `Poll` has nothing to
            // try. SAFETY: the operation is alive and its pointers are valid (contract of
            // `submit`).
            let result = unsafe { op.attempt() };
            return (result != -libc::EAGAIN).then_some(result);
        };

        let slot = &mut self.slots[number];
        slot.ignored = 0;
        let side = &mut slot.sides[side_of(op.op.interest())];
        if side.known == Known::Drained || !side.waiting.is_empty() {
            return None;
        }

        if let Op::Poll(interest) = op.op {
            let ready = readable_or_writable(op.borrow_fd(), interest);
            side.known = if ready { Known::Unsure } else { Known::Drained };
            return ready.then_some(0);
        }

        // SAFETY: as above.
        let result = unsafe { op.attempt() };
        slot.learn(&op.op, result);
        (result != -libc::EAGAIN).then_some(result)
    }

    /// Processes one event: records what it reports and performs the operations that can now run.
    fn event(&mut self, data: u64, events: i32, done: &mut Vec<Completion>) {
        let number = (data & u64::from(u32::MAX)) as usize;
        let generation = (data >> 32) as u32;
        let Some(slot) = self
            .slots
            .get_mut(number)
            .filter(|slot| slot.generation == generation)
        else {
            return; // A registration that is gone.
        };

        slot.more_to_see = events & MORE_TO_SEE != 0;
        let waited_for = slot.sides.iter().any(|side| !side.waiting.is_empty());
        slot.ignored = if waited_for { 0 } else { slot.ignored + 1 };
        if slot.ignored >= MOST_IGNORED {
            return self.retire(number);
        }

        for (side, mask) in [MAKES_READABLE, MAKES_WRITABLE, MAKES_URGENT]
            .into_iter()
            .enumerate()
        {
            if events & mask != 0 {
                slot.sides[side].known = Known::Unsure;
                Self::perform(&mut self.waiters, slot, side, events, done);
            }
        }
    }

    /// Performs the waiting operations of one direction, in order, until the kernel would block.
    fn perform(
        waiters: &mut Waiters,
        slot: &mut Registration,
        side: usize,
        events: i32,
        done: &mut Vec<Completion>,
    ) {
        while let Some(first) = slot.sides[side].waiting.first() {
            if slot.sides[side].known == Known::Drained {
                return;
            }
            let op = waiters.op(first);
            // SAFETY: a waiting operation stays in place until it is reported (contract of
            // `submit`).
            let operation = unsafe { op.as_ref() };
            let result = match operation.op {
                // An urgent mark alone, for example, is no data.
                Op::Poll(interest)
                    if !interest.is_met(PollFlags::from_bits_retain(events as u16)) =>
                {
                    -libc::EAGAIN
                }
                Op::Poll(_) => 0,
                Op::Connect { .. } => match connect_outcome(operation.fd) {
                    // Neither connected nor failed, but hung up: the socket was shut down.
                    r if r == -libc::EAGAIN && events & libc::EPOLLHUP != 0 => -libc::ECONNABORTED,
                    r => r,
                },
                // SAFETY: as above; its pointers are valid too.
                _ => unsafe { operation.attempt() },
            };

            if !matches!(operation.op, Op::Poll(_)) {
                slot.learn(&operation.op, result);
            }
            if result == -libc::EAGAIN {
                slot.sides[side].known = Known::Drained;
                return;
            }

            waiters.remove(&mut slot.sides[side].waiting, first);
            operation.note.set(DECIDED);
            done.push(Completion { op, result });
        }
    }

    /// Prefetches what the first `count` events lead to, one step for all of them at a time: slots,
    /// the entries of waiting operations, the operations.
    fn fetch(&self, count: usize) {
        let slot =
            |event: &libc::epoll_event| self.slots.get((event.u64 & u64::from(u32::MAX)) as usize);
        let reader = |event| slot(event).and_then(|slot| slot.sides[0].waiting.first());
        let events = &self.events[..count];
        events
            .iter()
            .filter_map(slot)
            .for_each(|slot| prefetch(slot, size_of::<Registration>()));
        events
            .iter()
            .filter_map(reader)
            .for_each(|entry| self.waiters.fetch(entry));

        // An idle connection's box begins with its operation.
        let op = |entry| prefetch(self.waiters.op(entry).as_ptr(), OWNER_BYTES);
        events.iter().filter_map(reader).for_each(op);
    }

    /// Calls epoll_wait once. `nanoseconds` is the longest sleep, `None` for ever.
    fn wait(&mut self, nanoseconds: Option<u64>) -> io::Result<usize> {
        let epoll = self.fd.as_raw_fd();
        if self.nanoseconds && nanoseconds.is_some_and(|n| n > 0) {
            return wait_nanoseconds(epoll, &mut self.events, nanoseconds);
        }
        // Rounded up: returning early would make the worker spin until its timer is due.
        let milliseconds =
            nanoseconds.map_or(-1, |n| n.div_ceil(1_000_000).min(i32::MAX as u64) as i32);
        let events = self.events.as_mut_ptr();
        let len = self.events.len() as i32;

        // SAFETY: the kernel writes at most `len` events into our own buffer.
        Ok(check(unsafe { libc::epoll_wait(epoll, events, len, milliseconds) })? as usize)
    }
}

impl Driver for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    unsafe fn submit(&mut self, op: OpRef) -> Submitted {
        // SAFETY: the operation is alive (contract of `submit`).
        if let Op::File(_) = unsafe { op.as_ref() }.op {
            return Submitted::Done(-libc::ENOSYS);
        }
        // SAFETY: the operation and its source are alive (contract of `submit`).
        let (operation, source) = unsafe { (op.as_ref(), op.as_ref().source.as_ref()) };
        let known = self.slot_of(source);
        if let Some(result) = self.try_first(operation, known) {
            return Submitted::Done(result);
        }
        let number =
            match known.map_or_else(|| self.register(source.id(), operation.borrow_fd()), Ok) {
                Ok(number) => number,
                // EPERM: the descriptor does not support waiting. ENOSPC, ENOMEM: a limit. The caller
                // gets the error in either case.
                Err(error) => return Submitted::Done(-error.raw_os_error().unwrap_or(libc::EIO)),
            };

        if known.is_none() {
            source.note_registration(self.worker, number as u64);
        }
        let side = side_of(operation.op.interest());
        let list = &mut self.slots[number].sides[side];
        list.known = Known::Drained;
        operation.note.set(u64::from(self.waiters.push(
            &mut list.waiting,
            place(number, side),
            op,
        )));

        Submitted::Pending
    }

    unsafe fn attempt(&mut self, operation: &Operation) -> RawResult {
        // Also if the direction is drained: the edge may be in the kernel still.
        // SAFETY: the caller's promise.
        let result = unsafe { operation.attempt() };
        // SAFETY: the source outlives the operation (the caller's promise).
        let number = self.slot_of(unsafe { operation.source.as_ref() });
        if let Some(slot) = number.map(|number| &mut self.slots[number]) {
            slot.ignored = 0;
            if slot.sides[side_of(operation.op.interest())]
                .waiting
                .is_empty()
            {
                slot.learn(&operation.op, result);
            }
        }
        result
    }

    unsafe fn cancel(&mut self, op: OpRef, done: &mut Vec<Completion>) {
        // SAFETY: the operation waits here, so it is in place (contract of `cancel`).
        let note = unsafe { op.as_ref() }.note.get();
        if note == DECIDED {
            return;
        }
        let entry = note as u32;
        let place = self.waiters.place(entry);
        let slot = &mut self.slots[(place >> SIDE_BITS) as usize];
        let list = &mut slot.sides[(place & ((1 << SIDE_BITS) - 1)) as usize].waiting;
        let taken = self.waiters.remove(list, entry);
        debug_assert_eq!(taken, op, "cancel of an operation that is not pending here");

        done.push(Completion {
            op,
            result: -libc::ECANCELED,
        });
    }

    /// Events without a waiting operation can stay in the kernel.
    fn wants_poll(&self) -> bool {
        self.waiters.len() > 0
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<bool> {
        let before = done.len();
        loop {
            let timeout = match wait {
                Wait::No => Some(0),
                Wait::Until(time) => Some(time.saturating_sub(self.now())),
                Wait::Forever => None,
            };

            let count = match self.wait(timeout) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };

            if count > 1 {
                self.fetch(count);
            }
            let mut woken = false;
            for n in 0..count {
                let libc::epoll_event { events, u64: data } = self.events[n];
                match data {
                    WAKE => {
                        woken = true;
                        self.wakeup.acknowledge();
                    }
                    data => self.event(data, events as i32, done),
                }
            }

            // An edge without a waiting operation is no reason to return.
            let in_vain = count > 0 && !woken && done.len() == before;
            if !in_vain || wait == Wait::No {
                return Ok(woken);
            }
        }
    }

    fn watched(&self) -> Option<PollFd<BorrowedFd<'_>>> {
        Some(PollFd {
            fd: self.fd.as_fd(),
            interrupts: false,
        })
    }

    fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn forget(&mut self, source: u64) {
        self.remove(source);
    }

    fn in_flight(&self) -> usize {
        self.waiters.len()
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn control(epoll: RawFd, action: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: data,
    };
    // SAFETY: the event lives across the call; wrong descriptors are the kernel's to refuse.
    check(unsafe { libc::epoll_ctl(epoll, action, fd, &mut event) }).map(drop)
}

/// Calls epoll_pwait2(2); fails with ENOSYS before Linux 5.11 and with EPERM where a filter does
/// not know it.
fn wait_nanoseconds(
    epoll: RawFd,
    events: &mut [libc::epoll_event],
    nanoseconds: Option<u64>,
) -> io::Result<usize> {
    let time = nanoseconds.map(|n| libc::timespec {
        tv_sec: (n / 1_000_000_000) as libc::time_t,
        tv_nsec: (n % 1_000_000_000) as libc::c_long,
    });

    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let buffer = events.as_mut_ptr();
    let len = events.len() as libc::c_int;

    // SAFETY: the kernel writes at most `len` events into the buffer and only reads the time; no
    // signal mask.
    let n = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll,
            buffer,
            len,
            time,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };

    check(n as i32).map(|n| n as usize)
}
