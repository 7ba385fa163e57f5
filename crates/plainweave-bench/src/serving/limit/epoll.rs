//! On epoll, level-triggered: an event, a read, a write; nothing else, unless the socket does not
//! take an answer at once. A connection that ends with its answer is read as soon as it comes, and
//! only watched if nothing has come on it yet.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::SocketFlags;

use super::answers::Answers;
use super::listener::{BUFFER, say_address};

const LISTENER: u64 = u64::MAX;

/// Connections accepted at a time, lest those that are there wait for long.
const ACCEPTED: usize = 16;

struct Connection<S> {
    stream: TcpStream,
    state: S,
    /// Bytes of the answer that the socket has not taken.
    unsent: usize,
    /// The events that the loop hears of; none before it asks.
    watched: Option<EventFlags>,
}

struct Loop<'a, A: Answers> {
    listener: &'a TcpListener,
    poll: OwnedFd,
    answers: A,
    /// By their descriptors.
    connections: Vec<Option<Connection<A::State>>>,
    buffer: Vec<u8>,
}

/// Prints the address and serves until the process ends.
pub(super) fn serve<A: Answers>(listener: &TcpListener, answers: A) -> anyhow::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    listener.set_nonblocking(true)?;
    epoll::add(
        &poll,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    say_address(listener)?;

    let mut serving = Loop {
        listener,
        poll,
        answers,
        connections: Vec::new(),
        buffer: vec![0; BUFFER],
    };
    let mut events = Vec::with_capacity(256);
    loop {
        epoll::wait(&serving.poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => serving.accept(),
                key => serving.go_on(key as usize),
            }
        }
    }
}

impl<A: Answers> Loop<'_, A> {
    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            // What fails to be accepted has gone, or comes again when there are descriptors.
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let Ok(socket) = rustix::net::accept_with(self.listener, flags) else {
                return;
            };

            let stream = TcpStream::from(socket);
            let key = stream.as_raw_fd() as usize;
            let place = self.connections.len().max(key + 1);
            self.connections.resize_with(place, || None);
            let connection = self.connections[key].insert(Connection {
                stream,
                state: A::State::default(),
                unsent: 0,
                watched: None,
            });

            if self.answers.closes() {
                self.go_on(key);
            } else if !connection.watch(&self.poll, EventFlags::IN) {
                self.connections[key] = None;
            }
        }
    }

    fn go_on(&mut self, key: usize) {
        let place = &mut self.connections[key];
        let Some(connection) = place else { return };
        let alive = match connection.unsent {
            0 => connection.request(&mut self.answers, &mut self.buffer),
            _ => connection.send_rest(&self.answers),
        };

        let next = match connection.unsent {
            0 => EventFlags::IN,
            _ => EventFlags::OUT,
        };
        if !alive || !connection.watch(&self.poll, next) {
            *place = None;
        }
    }
}

impl<S> Connection<S> {
    /// Reads and answers. Returns `false` if the connection is to end.
    fn request<A: Answers<State = S>>(&mut self, answers: &mut A, buffer: &mut [u8]) -> bool {
        let input = match self.stream.read(buffer) {
            Ok(n @ 1..) => &buffer[..n],
            Ok(_) => return false,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };

        let answer = answers.answer(&mut self.state, input);
        if answer.is_empty() {
            return true;
        }
        let length = answer.len();
        let Some(sent) = send(&mut self.stream, answer) else {
            return false;
        };
        self.unsent = length - sent;
        match self.unsent {
            0 => !answers.closes(),
            unsent => !answers.rest(unsent).is_empty(),
        }
    }

    /// Goes on with an answer. Returns `false` if the connection is to end.
    fn send_rest<A: Answers>(&mut self, answers: &A) -> bool {
        let Some(sent) = send(&mut self.stream, answers.rest(self.unsent)) else {
            return false;
        };
        self.unsent -= sent;
        self.unsent > 0 || !answers.closes()
    }

    /// Has the loop told of these events only. Returns `false` if the kernel cannot.
    fn watch(&mut self, poll: &OwnedFd, flags: EventFlags) -> bool {
        if self.watched == Some(flags) {
            return true;
        }
        let data = EventData::new_u64(self.stream.as_raw_fd() as u64);
        let done = match self.watched {
            None => epoll::add(poll, &self.stream, data, flags),
            Some(_) => epoll::modify(poll, &self.stream, data, flags),
        };
        self.watched = Some(flags);
        done.is_ok()
    }
}

/// Returns how much the socket took; `None`: the peer is gone.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(sent) => Some(sent),
        Err(error) => (error.kind() == ErrorKind::WouldBlock).then_some(0),
    }
}
