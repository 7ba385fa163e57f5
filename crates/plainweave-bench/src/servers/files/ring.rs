//! The two methods on io_uring. A splice there always runs on a kernel thread (io-wq); a read that
//! finds its pages in memory completes at once, and otherwise when they have come.
//!
//! `unsafe` once, in `Ring::push`. Memory that an entry names belongs to the caller's frame, in
//! which the ring is declared behind it: so the ring goes first, and does not go before all entries
//! have completed. Splices name no memory, so `Splices` may keep a ring for as long as it likes.

#![expect(unsafe_code, reason = "pushes entries whose buffers outlive the ring")]

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, ensure};
use io_uring::squeue::{Entry, Flags};
use io_uring::{Builder, IoUring, opcode, types};
use plainweave::sync::channel::{self, Sender};
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::course::{self, Course, PIECE, SIZE};

/// How many threads the kernel may take for a ring's work that ends by itself, and for what may
/// wait for ever. 0: as many as it likes.
type Caps = [u32; 2];

/// For how long a thread of the kernel looks for entries before it sleeps.
const SPIN_MS: u32 = 1;

struct Ring {
    ring: IoUring,
    /// Entries pushed and not completed.
    pending: usize,
}

impl Ring {
    fn new(streams: usize) -> anyhow::Result<Self> {
        Self::with(&mut IoUring::builder(), streams)
    }

    fn with(builder: &mut Builder, streams: usize) -> anyhow::Result<Self> {
        let entries = (2 * streams).next_power_of_two() as u32;
        let ring = builder.build(entries);
        Ok(Self {
            ring: ring.context("io_uring is not available here")?,
            pending: 0,
        })
    }

    /// Limits the kernel's threads.
    fn cap(&self, mut caps: Caps) -> anyhow::Result<()> {
        let submitter = self.ring.submitter();
        Ok(submitter.register_iowq_max_workers(&mut caps)?)
    }

    fn push(&mut self, entry: &Entry) -> anyhow::Result<()> {
        // SAFETY: the only memory that an entry of this file names are the buffers of `read_send`.
        // They are declared before the ring, not resized, and lent to one entry at a time; the
        // ring's `drop` waits for all entries.
        let pushed = unsafe { self.ring.submission().push(entry) };
        ensure!(
            pushed.is_ok(),
            "the ring has no room for two entries a stream"
        );
        self.pending += 1;
        Ok(())
    }

    /// Submits, waits for a completion, and gives all there are: user data and result.
    fn wait(&mut self) -> anyhow::Result<Vec<(u64, i32)>> {
        self.ring.submit_and_wait(1)?;
        Ok(self.completed())
    }

    /// Gives all completions there are: user data and result.
    fn completed(&mut self) -> Vec<(u64, i32)> {
        let done: Vec<_> = self
            .ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        self.pending -= done.len();
        done
    }
}

impl Drop for Ring {
    /// Waits for what is pending.
    fn drop(&mut self) {
        while self.pending > 0 {
            if self.wait().is_err() {
                // The kernel may still write to memory that is about to be freed.
                std::process::abort();
            }
        }
    }
}

/// The second one of a chain.
const OUT: u64 = 1 << 32;

/// File to pipe and pipe to socket, linked, a chain at a time for each stream. `caps`: kernel
/// threads at most.
pub(super) fn linked_splice(
    course: &mut Course,
    senders: &mut [course::Sender],
    caps: Caps,
) -> anyhow::Result<()> {
    let pipes = pipes(senders.len())?;
    let mut ring = Ring::new(senders.len())?;
    ring.cap(caps)?;

    // What each pipe holds; less than asked for can go in, or out.
    let mut held = vec![0; senders.len()];
    for (number, pipe) in pipes.iter().enumerate() {
        chain(&mut ring, &senders[number], pipe, 0, number as u64)?;
    }
    while course.looks_again() {
        let done = ring.wait()?;
        course.looking();
        for (data, result) in done {
            let number = (data & (OUT - 1)) as usize;
            if data & OUT == 0 {
                ensure!(result > 0, "a splice from a file gave {result}");
                held[number] += result as usize;
                continue;
            }

            // A first half that was short has cancelled the second, which then starts over.
            if result != -rustix::io::Errno::CANCELED.raw_os_error() {
                ensure!(result > 0, "a splice to a socket gave {result}");
                held[number] -= result as usize;
                course.sent(&mut senders[number], result as usize)?;
            }

            chain(
                &mut ring,
                &senders[number],
                &pipes[number],
                held[number],
                number as u64,
            )?;
        }
    }

    Ok(())
}

/// File to pipe on a ring of its own, pipe to socket on the first. So what waits for the disk takes
/// threads of one, and what waits for a peer those of the other, and neither uses the other's up:
/// those threads are the submitting thread's, not the ring's, so one of the kernel's submits here.
pub(super) fn two_rings(
    course: &mut Course,
    senders: &mut [course::Sender],
    filling: Caps,
) -> anyhow::Result<()> {
    let pipes = pipes(senders.len())?;
    let mut drains = Ring::new(senders.len())?;
    let mut fills = Ring::with(IoUring::builder().setup_sqpoll(SPIN_MS), senders.len())?;
    fills.cap(filling)?;
    // Whichever completes something says so here.
    let completed = eventfd(0, EventfdFlags::CLOEXEC)?;
    for ring in [&drains, &fills] {
        let submitter = ring.ring.submitter();
        submitter.register_eventfd(completed.as_raw_fd())?;
    }

    let mut held = vec![0; senders.len()];
    for (number, pipe) in pipes.iter().enumerate() {
        fills.push(&fill(&senders[number], pipe).user_data(number as u64))?;
    }
    while course.looks_again() {
        fills.ring.submit()?;
        drains.ring.submit()?;
        rustix::io::read(&completed, &mut [0; 8])?;
        course.looking();

        for (data, result) in fills.completed() {
            ensure!(result > 0, "a splice from a file gave {result}");
            let number = data as usize;
            held[number] = result as usize;
            drains.push(&drain(&senders[number], &pipes[number], held[number]).user_data(data))?;
        }
        for (data, result) in drains.completed() {
            ensure!(result > 0, "a splice to a socket gave {result}");
            let number = data as usize;
            held[number] -= result as usize;
            course.sent(&mut senders[number], result as usize)?;
            match held[number] {
                0 => fills.push(&fill(&senders[number], &pipes[number]).user_data(data))?,
                left => {
                    drains.push(&drain(&senders[number], &pipes[number], left).user_data(data))?
                }
            }
        }
    }

    Ok(())
}

fn pipes(count: usize) -> anyhow::Result<Vec<(OwnedFd, OwnedFd)>> {
    let pipes: Result<_, _> = (0..count).map(|_| pipe_with(PipeFlags::CLOEXEC)).collect();
    Ok(pipes?)
}

/// As much of the file as goes into a pipe at once.
fn fill(sender: &course::Sender, pipe: &(OwnedFd, OwnedFd)) -> Entry {
    let [file, write] = [sender.file.as_raw_fd(), pipe.1.as_raw_fd()].map(types::Fd);
    let len = (SIZE - sender.offset as usize).min(PIECE) as u32;
    opcode::Splice::new(file, sender.offset as i64, write, -1, len).build()
}

/// What the pipe holds.
fn drain(sender: &course::Sender, pipe: &(OwnedFd, OwnedFd), held: usize) -> Entry {
    let [read, socket] = [pipe.0.as_raw_fd(), sender.socket.as_raw_fd()].map(types::Fd);
    opcode::Splice::new(read, -1, socket, -1, held as u32).build()
}

/// Fills the pipe if it is empty, and empties it.
fn chain(
    ring: &mut Ring,
    sender: &course::Sender,
    pipe: &(OwnedFd, OwnedFd),
    held: usize,
    data: u64,
) -> anyhow::Result<()> {
    if held == 0 {
        let fill = fill(sender, pipe);
        ring.push(&fill.flags(Flags::IO_LINK).user_data(data))?;
    }

    let len = match held {
        0 => (SIZE - sender.offset as usize).min(PIECE),
        held => held,
    };
    ring.push(&drain(sender, pipe, len).user_data(data | OUT))
}

/// Reads into a buffer and sends from it, in turn, for each stream.
pub(super) fn read_send(course: &mut Course, senders: &mut [course::Sender]) -> anyhow::Result<()> {
    let mut buffers = vec![vec![0; PIECE]; senders.len()];
    let mut ring = Ring::new(senders.len())?;
    // What of the buffer is to be sent.
    let mut filled = vec![0..0; senders.len()];
    for number in 0..senders.len() {
        read(&mut ring, &senders[number], &mut buffers[number], number)?;
    }

    while course.looks_again() {
        let done = ring.wait()?;
        course.looking();
        for (data, result) in done {
            let number = (data & (OUT - 1)) as usize;
            ensure!(result > 0, "a read or a send gave {result}");
            let filled = &mut filled[number];

            if data & OUT == 0 {
                *filled = 0..result as usize;
            } else {
                filled.start += result as usize;
                course.sent(&mut senders[number], result as usize)?;
            }

            if filled.start == filled.end {
                read(&mut ring, &senders[number], &mut buffers[number], number)?;
                continue;
            }

            let socket = types::Fd(senders[number].socket.as_raw_fd());
            let piece = &buffers[number][filled.clone()];
            let send = opcode::Send::new(socket, piece.as_ptr(), piece.len() as u32).build();
            ring.push(&send.user_data(number as u64 | OUT))?;
        }
    }

    Ok(())
}

fn read(
    ring: &mut Ring,
    sender: &course::Sender,
    buffer: &mut [u8],
    number: usize,
) -> anyhow::Result<()> {
    let len = (SIZE - sender.offset as usize).min(PIECE) as u32;
    let read = opcode::Read::new(types::Fd(sender.file.as_raw_fd()), buffer.as_mut_ptr(), len);
    ring.push(&read.offset(sender.offset).build().user_data(number as u64))
}

/// Splices from files to sockets on a ring that fibers share, each pair by threads of the kernel,
/// of which there may be as many as the kernel likes: a negative control.
pub(crate) struct Splices {
    ring: Mutex<Ring>,
    /// The next entry's user data, and who waits for which.
    waiting: Mutex<(u64, HashMap<u64, Sender<i32>>)>,
}

/// Pairs that may complete before the first of them is seen.
const PAIRS: usize = 2048;

impl Splices {
    /// Makes the ring, and a thread that hands on what it completes.
    pub(crate) fn new() -> anyhow::Result<&'static Self> {
        let ring = Ring::new(PAIRS)?;
        let completed = eventfd(0, EventfdFlags::CLOEXEC)?;
        ring.ring
            .submitter()
            .register_eventfd(completed.as_raw_fd())?;
        let splices: &Self = Box::leak(Box::new(Self {
            ring: Mutex::new(ring),
            waiting: Mutex::default(),
        }));
        std::thread::spawn(move || {
            while rustix::io::read(&completed, &mut [0; 8]).is_ok() {
                splices.hand_on();
            }
        });

        Ok(splices)
    }

    fn hand_on(&self) {
        let done = lock(&self.ring).completed();
        let mut waiting = lock(&self.waiting);
        for (data, result) in done {
            // Who does not wait any longer has panicked.
            let _ = waiting.1.remove(&data).map(|sender| sender.send(result));
        }
    }

    /// Sends a part of a file to a socket that blocks, through an empty pipe. Returns its length.
    pub(crate) fn send(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        pipe: &(OwnedFd, OwnedFd),
        socket: &impl AsRawFd,
    ) -> anyhow::Result<u64> {
        let [file, read, write] =
            [file.as_raw_fd(), pipe.0.as_raw_fd(), pipe.1.as_raw_fd()].map(types::Fd);
        let socket = types::Fd(socket.as_raw_fd());
        let len = len.min(PIECE as u64) as u32;
        let fill = opcode::Splice::new(file, offset as i64, write, -1, len)
            .build()
            .flags(Flags::IO_LINK);
        let drain = |len| opcode::Splice::new(read, -1, socket, -1, len).build();
        let [filled, drained] = self.run([fill, drain(len)])?;

        ensure!(filled > 0, "a splice from a file gave {filled}");

        // A first half that was short has cancelled the second.
        let cancelled = drained == -rustix::io::Errno::CANCELED.raw_os_error();
        ensure!(
            cancelled || drained > 0,
            "a splice to a socket gave {drained}"
        );

        let mut left = filled - drained.max(0);
        while left > 0 {
            let [drained] = self.run([drain(left as u32)])?;
            ensure!(drained > 0, "a splice to a socket gave {drained}");
            left -= drained;
        }

        Ok(filled as u64)
    }

    /// Submits linked entries, and waits until all have completed.
    fn run<const N: usize>(&self, entries: [Entry; N]) -> anyhow::Result<[i32; N]> {
        let mut results = [0; N];
        let mut receivers = Vec::with_capacity(N);
        let mut ring = lock(&self.ring);

        for entry in entries {
            let (sender, receiver) = channel::bounded(1);
            let mut waiting = lock(&self.waiting);
            waiting.0 += 1;
            let data = waiting.0;
            waiting.1.insert(data, sender);
            receivers.push(receiver);
            drop(waiting);
            ring.push(&entry.user_data(data))?;
        }

        ring.ring.submit()?;
        drop(ring);
        for (result, receiver) in results.iter_mut().zip(receivers) {
            *result = receiver.recv()?;
        }
        Ok(results)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
