//! The two methods on sockets that do not block, under epoll. Both wait in the call for a page that
//! is not in memory.

use std::os::fd::OwnedFd;

use anyhow::Context;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::course::{Course, PIECE, SIZE, Sender};

/// One attempt to send from a stream's file.
pub(super) trait Send {
    /// Returns the number of bytes sent, or `Errno::AGAIN`.
    fn send(&mut self, number: usize, sender: &Sender) -> Result<usize, Errno>;
}

/// `sendfile(2)`.
pub(super) struct Sendfile;

impl Send for Sendfile {
    fn send(&mut self, _: usize, sender: &Sender) -> Result<usize, Errno> {
        let mut offset = sender.offset;
        rustix::fs::sendfile(
            &sender.socket,
            &sender.file,
            Some(&mut offset),
            (SIZE - sender.offset as usize).min(PIECE),
        )
    }
}

/// `splice(2)` into a pipe and out of it.
pub(super) struct Splice(Vec<Pipe>);

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Splice {
    pub(super) fn new(streams: usize) -> anyhow::Result<Self> {
        let pipe = || -> anyhow::Result<Pipe> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok(Pipe {
                read,
                write,
                held: 0,
            })
        };

        Ok(Self(
            (0..streams)
                .map(|_| pipe())
                .collect::<anyhow::Result<_>>()?,
        ))
    }
}

impl Send for Splice {
    fn send(&mut self, number: usize, sender: &Sender) -> Result<usize, Errno> {
        let pipe = &mut self.0[number];
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        if pipe.held == 0 {
            let mut offset = sender.offset;
            let len = (SIZE - sender.offset as usize).min(PIECE);
            pipe.held = splice(
                &sender.file,
                Some(&mut offset),
                &pipe.write,
                None,
                len,
                flags,
            )?;
        }
        let sent = splice(&pipe.read, None, &sender.socket, None, pipe.held, flags)?;
        pipe.held -= sent;
        Ok(sent)
    }
}

/// Sends on whatever stream has room, a piece at a time.
pub(super) fn run(
    course: &mut Course,
    senders: &mut [Sender],
    method: &mut impl Send,
) -> anyhow::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, sender) in senders.iter().enumerate() {
        sender.socket.set_nonblocking(true)?;
        epoll::add(
            &poll,
            &sender.socket,
            epoll::EventData::new_u64(number as u64),
            epoll::EventFlags::OUT,
        )?;
    }

    let mut events = Vec::with_capacity(senders.len());
    while course.looks_again() {
        events.clear();
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        course.looking();

        for event in &events {
            let number = event.data.u64() as usize;
            match method.send(number, &senders[number]) {
                Ok(len) => course.sent(&mut senders[number], len)?,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error).context("a file could not be sent"),
            }
        }
    }

    Ok(())
}
