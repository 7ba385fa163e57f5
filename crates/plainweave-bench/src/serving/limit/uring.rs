//! On io_uring, by what makes it cheap: connections and what comes on them are announced by
//! requests that stay (multishot), into buffers that the kernel picks from a ring of ours; sockets
//! have places in a table of the ring's own in place of descriptors; the kernel works for the ring
//! only while we wait; and one call submits the answers to all that it brought, whose completions
//! are left out unless they fail.
//!
//! A connection that ends with its answer is read once, and closed by a request linked to the
//! send.
//!
//! `unsafe` where the kernel gets to know memory: its buffers and all answers are leaked, as the
//! loop serves until the process ends.

#![expect(
    unsafe_code,
    reason = "registers a ring of buffers, reads what is in them, pushes requests"
)]

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, ensure};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode};

use super::answers::Answers;
use super::listener::{BUFFER, say_address};
use crate::harness::descriptors;

/// Requests of a submission.
const ENTRIES: u32 = 4096;
/// Completions that the ring holds: more than there are connections in most cases.
const COMPLETIONS: u32 = 32_768;
/// Connections at a time; fewer where descriptors are, as the kernel has it.
const PLACES: usize = 20_000;
/// Buffers for what comes. The kernel takes them in turn, so more of them would leave the cache.
const BUFFERS: u16 = 256;
const GROUP: u16 = 0;
/// Bytes of answers of a submission, copied for it.
const OUT: usize = 1 << 20;
/// Bytes of such an answer at most: those to all requests that fit into a buffer.
const ANSWER: usize = 256 << 10;

/// What a completion is of, in the upper half of its data; the lower one is the connection's place.
const ACCEPT: u32 = 0;
const RECEIVE: u32 = 1;
const SEND: u32 = 2;
/// What may fail: the connection is gone then too.
const END: u32 = 3;

/// Results: all buffers are taken, all places are, the socket takes nothing now.
const NO_BUFFER: i32 = -libc::ENOBUFS;
const NO_PLACE: i32 = -libc::ENFILE;
const NOTHING_TAKEN: i32 = -libc::EAGAIN;

fn data(kind: u32, place: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(place)
}

/// Memory that the kernel writes to, and the ring from which it picks it.
struct Input {
    entries: &'static mut [BufRingEntry],
    memory: &'static mut [u8],
    /// Buffers given to the kernel so far.
    given: u16,
}

/// A page, as the ring of buffers begins with one.
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl Input {
    fn register(submitter: &Submitter<'_>) -> io::Result<Self> {
        const { assert!(BUFFERS as usize * size_of::<BufRingEntry>() == size_of::<Page>()) };
        let page: &'static mut Page = Box::leak(Box::new(Page([0; 4096])));
        let base: *mut BufRingEntry = std::ptr::from_mut(page).cast();

        // SAFETY: a page of zeros is as many entries as it holds, by the assertion, which are
        // integers; nobody else has it.
        let entries = unsafe { std::slice::from_raw_parts_mut(base, usize::from(BUFFERS)) };
        // SAFETY: the entries are never freed.
        unsafe {
            submitter.register_buf_ring_with_flags(base as u64, BUFFERS, GROUP, 0)?;
        }

        let mut input = Self {
            entries,
            memory: vec![0; usize::from(BUFFERS) * BUFFER].leak(),
            given: 0,
        };
        (0..BUFFERS).for_each(|id| input.give(id));
        input.publish();
        Ok(input)
    }

    fn get(&self, id: u16, length: usize) -> &[u8] {
        &self.memory[usize::from(id) * BUFFER..][..length]
    }

    /// Gives a buffer to the kernel, from the next [`publish`](Self::publish) on.
    fn give(&mut self, id: u16) {
        let address = self.memory[usize::from(id) * BUFFER..].as_mut_ptr() as u64;
        let entry = &mut self.entries[usize::from(self.given % BUFFERS)];
        entry.set_addr(address);
        entry.set_len(BUFFER as u32);
        entry.set_bid(id);
        self.given = self.given.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, in a field that `give` does not touch, aligned
        // as its type is; the kernel reads it, and only this writes it.
        let tail = unsafe {
            let tail = BufRingEntry::tail(self.entries.as_mut_ptr());
            AtomicU16::from_ptr(tail.cast_mut())
        };
        // Release: the kernel sees the entries before the tail.
        tail.store(self.given, Ordering::Release);
    }
}

struct Loop<A: Answers> {
    submitter: Submitter<'static>,
    submissions: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
    listener: Fd,
    input: Input,
    answers: A,
    /// Of the connections, by their places in the table of files.
    states: Vec<Option<A::State>>,
    /// The answers of this submission, unless there is one for all; as long as it ever gets.
    out: &'static mut [u8],
    used: usize,
    /// No place was left for a connection that came.
    full: bool,
}

/// Prints the address and serves until the process ends.
///
/// # Errors
/// io_uring is not available here, or not all that the loop needs of it.
pub(super) fn serve<A: Answers>(listener: &TcpListener, answers: A) -> anyhow::Result<()> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .build(ENTRIES)
        .context("io_uring is not available here")?;
    let (mut submitter, submissions, completions) = Box::leak(Box::new(ring)).split();
    submitter.register_ring_fd()?;
    let places = descriptors::at_most(PLACES);
    submitter.register_files_sparse(places as u32)?;

    let input = Input::register(&submitter)?;
    let mut serving = Loop {
        submitter,
        submissions,
        completions,
        listener: Fd(listener.as_raw_fd()),
        input,
        answers,
        states: (0..places).map(|_| None).collect(),
        out: vec![0; OUT].leak(),
        used: 0,
        full: false,
    };

    serving.accept()?;
    say_address(listener)?;
    serving.run()
}

impl<A: Answers> Loop<A> {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut done = Vec::new();
        loop {
            self.submit(1)?;
            self.completions.sync();
            done.extend(&mut self.completions);
            for completion in done.drain(..) {
                self.complete(&completion)?;
            }
            self.input.publish();
        }
    }

    /// Submits what has been pushed, and waits for some completions.
    fn submit(&mut self, wait: usize) -> anyhow::Result<()> {
        self.submissions.sync();
        match self.submitter.submit_and_wait(wait) {
            // Only a wait that had nothing to submit is interrupted.
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(error).context("io_uring_enter");
            }
            _ => {}
        }
        // Those that are pushed have been taken, and what they send has been copied.
        self.submissions.sync();
        self.used = 0;
        Ok(())
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> anyhow::Result<()> {
        let kind = (completion.user_data() >> 32) as u32;
        let place = completion.user_data() as u32;
        let more = cqueue::more(completion.flags());
        match (kind, completion.result()) {
            (ACCEPT, result) => {
                if let Ok(place) = u32::try_from(result) {
                    self.states[place as usize] = Some(A::State::default());
                    self.receive(place)?;
                }
                // What fails to be accepted has gone, or comes again when there are places.
                self.full = result == NO_PLACE;
                if more || self.full {
                    return Ok(());
                }
                self.accept()
            }
            (RECEIVE, result) => {
                if let Some(id) = cqueue::buffer_select(completion.flags()) {
                    self.answer(place, id, result.unsigned_abs() as usize)?;
                    self.input.give(id);
                }

                match result {
                    1.. | NO_BUFFER if more => Ok(()),
                    1.. | NO_BUFFER if self.states[place as usize].is_some() => self.receive(place),
                    1.. | NO_BUFFER => Ok(()),
                    _ => self.end(place, &[closing(place)]),
                }
            }
            // It took less than all at once. No more is received either then, and that closes it.
            (SEND, NOTHING_TAKEN | 0..) if self.states[place as usize].is_some() => {
                let shutdown = opcode::Shutdown::new(Fixed(place), libc::SHUT_RDWR).build();
                self.push(&[shutdown.user_data(data(END, place))])
            }
            // The peer is gone, as a receive says too.
            _ => Ok(()),
        }
    }

    /// Accepts all that come.
    fn accept(&mut self) -> anyhow::Result<()> {
        let accept = opcode::AcceptMulti::new(self.listener)
            .allocate_file_index(true)
            .build();
        self.push(&[accept.user_data(data(ACCEPT, 0))])
    }

    fn receive(&mut self, place: u32) -> anyhow::Result<()> {
        let receive = if self.answers.closes() {
            opcode::Recv::new(Fixed(place), std::ptr::null_mut(), BUFFER as u32)
                .buf_group(GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(Fixed(place), GROUP).build()
        };
        self.push(&[receive.user_data(data(RECEIVE, place))])
    }

    /// Sends the answer to what came in a buffer, if it ends a request.
    fn answer(&mut self, place: u32, id: u16, length: usize) -> anyhow::Result<()> {
        if OUT - self.used < ANSWER {
            self.submit(0)?;
        }
        let Some(state) = &mut self.states[place as usize] else {
            return Ok(());
        };
        let fixed = self.answers.fixed();
        let answer = self.answers.answer(state, self.input.get(id, length));
        if answer.is_empty() {
            return Ok(());
        }

        // The kernel may go on with a fixed answer for as long as the peer takes; it is never freed.
        // Another one is copied by the kernel while it is submitted, or not sent.
        let (answer, flags) = match fixed {
            Some(fixed) => (fixed, libc::MSG_WAITALL),
            None => {
                ensure!(
                    answer.len() <= ANSWER,
                    "an answer of {} bytes",
                    answer.len()
                );
                let copy = &mut self.out[self.used..][..answer.len()];
                copy.copy_from_slice(answer);
                self.used += copy.len();
                (&*copy, libc::MSG_WAITALL | libc::MSG_DONTWAIT)
            }
        };

        let send = opcode::Send::new(Fixed(place), answer.as_ptr(), answer.len() as u32)
            .flags(flags)
            .build()
            .user_data(data(SEND, place))
            .flags(Flags::SKIP_SUCCESS);
        if !self.answers.closes() {
            return self.push(&[send]);
        }

        // Closed whether or not it was sent.
        let send = send.flags(Flags::IO_HARDLINK);
        self.end(place, &[send, closing(place)])
    }

    /// Pushes the last requests of a connection.
    fn end(&mut self, place: u32, last: &[Entry]) -> anyhow::Result<()> {
        self.states[place as usize] = None;
        self.push(last)?;
        // There is a place again.
        if std::mem::take(&mut self.full) {
            self.accept()?;
        }
        Ok(())
    }

    /// Pushes requests that belong together.
    fn push(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        // SAFETY: what an entry names is never freed: a fixed answer, or a part of `out`, which is
        // not written to before the submission that copies it.
        while unsafe { self.submissions.push_multiple(entries) }.is_err() {
            self.submit(0)?;
        }
        Ok(())
    }
}

/// Closes what is in a place, and says so only if that fails.
fn closing(place: u32) -> Entry {
    opcode::Close::new(Fixed(place))
        .build()
        .user_data(data(END, place))
        .flags(Flags::SKIP_SUCCESS)
}
