//! The closed-loop client: one message under way on each connection, every answer checked. The
//! answer need not be the message: a WebSocket's has another frame around it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// Connections to one server.
pub(crate) struct Client {
    poll: OwnedFd,
    streams: Vec<Stream>,
    message: Vec<u8>,
    answer: Vec<u8>,
}

struct Stream {
    tcp: TcpStream,
    /// Bytes of the answer that have come.
    got: usize,
    waiting: bool,
}

impl Client {
    pub(super) fn connect(
        address: SocketAddr,
        connections: usize,
        size: usize,
    ) -> anyhow::Result<Self> {
        let connect = |_| TcpStream::connect(address).context("cannot connect to the server");
        let streams = (0..connections)
            .map(connect)
            .collect::<Result<Vec<_>, _>>()?;
        let message: Vec<u8> = (0..size).map(|i| i as u8).collect();
        Self::over(streams, message.clone(), message)
    }

    /// Makes one of connections over which nothing is under way.
    pub(crate) fn over(
        connected: Vec<TcpStream>,
        message: Vec<u8>,
        answer: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut streams = Vec::new();
        for (i, tcp) in connected.into_iter().enumerate() {
            tcp.set_nodelay(true)?;
            tcp.set_nonblocking(true)?;
            epoll::add(
                &poll,
                &tcp,
                epoll::EventData::new_u64(i as u64),
                epoll::EventFlags::IN,
            )?;
            streams.push(Stream {
                tcp,
                got: 0,
                waiting: false,
            });
        }

        Ok(Self {
            poll,
            streams,
            message,
            answer,
        })
    }

    /// Sends at least `requests` and waits for all answers; how many came.
    pub(crate) fn drive(&mut self, requests: usize) -> anyhow::Result<usize> {
        let mut sent = 0;
        let mut answered = 0;
        for stream in &mut self.streams {
            stream.send(&self.message)?;
            sent += 1;
        }

        let mut events = Vec::with_capacity(256);
        let mut buffer = vec![0; self.answer.len()];
        while answered < sent {
            epoll::wait(&self.poll, spare_capacity(&mut events), None)?;
            for event in events.drain(..) {
                let stream = &mut self.streams[event.data.u64() as usize];
                if !stream.receive(&self.answer, &mut buffer)? {
                    continue;
                }
                answered += 1;
                if sent < requests {
                    stream.send(&self.message)?;
                    sent += 1;
                }
            }
        }

        Ok(answered)
    }
}

impl Stream {
    fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let sent = self
            .tcp
            .write(message)
            .context("the server does not take a message")?;
        ensure!(
            sent == message.len(),
            "a message does not fit the socket's buffer; make it smaller"
        );
        self.waiting = true;
        Ok(())
    }

    /// Returns whether the answer is complete.
    fn receive(&mut self, answer: &[u8], buffer: &mut [u8]) -> anyhow::Result<bool> {
        let n = self
            .tcp
            .read(&mut buffer[self.got..])
            .context("the server does not answer")?;
        ensure!(n > 0 && self.waiting, "the server closed a connection");
        ensure!(
            buffer[self.got..self.got + n] == answer[self.got..self.got + n],
            "an answer is another than its message asks for"
        );
        self.got += n;
        if self.got < answer.len() {
            return Ok(false);
        }
        self.got = 0;
        self.waiting = false;

        Ok(true)
    }
}
