//! The closed-loop client: a fixed number of requests under way on each connection, every reply
//! checked.
//!
//! Keys and values have fixed lengths, so the length of a batch's replies is known when it is sent.
//! A reply of another length, or with other bytes at its ends, stops the measurement.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// Keys that are asked for.
pub(crate) const KEYS: usize = 10_000;
/// Bytes of a value.
pub(crate) const VALUE: usize = 200;

/// Xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Requests under way on a connection.
    pub(crate) depth: usize,
    /// Sets among a hundred requests.
    pub(crate) updates: u64,
}

/// Connections to one server.
pub(crate) struct Client {
    poll: OwnedFd,
    streams: Vec<Stream>,
    random: Random,
    value: Vec<u8>,
    batch: Vec<u8>,
    buffer: Vec<u8>,
}

struct Stream {
    tcp: TcpStream,
    /// Bytes of the replies that have not come.
    missing: usize,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> anyhow::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut streams = Vec::new();
        for i in 0..connections {
            let tcp = TcpStream::connect(address).with_context(|| {
                format!("cannot open connection {i} of {connections} (ulimit -n may be too low)")
            })?;
            tcp.set_nodelay(true)?;
            tcp.set_nonblocking(true)?;
            epoll::add(
                &poll,
                &tcp,
                epoll::EventData::new_u64(i as u64),
                epoll::EventFlags::IN,
            )?;
            streams.push(Stream { tcp, missing: 0 });
        }

        let value = vec![b'v'; VALUE];
        Ok(Self {
            poll,
            streams,
            random: Random(0x9e37_79b9),
            value,
            batch: Vec::new(),
            buffer: vec![0; 64 << 10],
        })
    }

    /// Stores all keys.
    pub(crate) fn fill(address: SocketAddr) -> anyhow::Result<()> {
        let mut tcp = TcpStream::connect(address)?;
        let mut text = Vec::new();
        for key in 0..KEYS {
            set(key, &[b'v'; VALUE], &mut text);
        }
        text.extend_from_slice(b"mn\r\n");
        let mut reader = tcp.try_clone()?;
        let writer = std::thread::spawn(move || tcp.write_all(&text));
        let mut got = Vec::new();
        let mut buffer = [0; 4096];

        while !got.ends_with(b"MN\r\n") {
            let n = reader.read(&mut buffer)?;
            ensure!(n > 0, "the server closed the connection that fills it");
            got.extend_from_slice(&buffer[..n]);
        }

        writer.join().ok().context("the writer failed")??;
        Ok(())
    }

    /// Sends at least `requests` and waits for all replies; how many came.
    pub(crate) fn drive(&mut self, requests: usize, mix: Mix) -> anyhow::Result<usize> {
        let mut sent = 0;
        let mut busy = 0;
        for i in 0..self.streams.len() {
            sent += self.send(i, mix)?;
            busy += 1;
        }

        let mut events = Vec::with_capacity(256);
        while busy > 0 {
            epoll::wait(&self.poll, spare_capacity(&mut events), None)?;
            for event in events.drain(..) {
                let i = event.data.u64() as usize;
                if !self.receive(i)? {
                    continue;
                }
                busy -= 1;
                if sent < requests {
                    sent += self.send(i, mix)?;
                    busy += 1;
                }
            }
        }

        Ok(sent)
    }

    fn send(&mut self, i: usize, mix: Mix) -> anyhow::Result<usize> {
        self.batch.clear();
        let mut missing = 0;
        for _ in 0..mix.depth {
            let random = self.random.next();
            let key = (random >> 20) as usize % KEYS;
            if random % 100 < mix.updates {
                set(key, &self.value, &mut self.batch);
                missing += STORED.len();
            } else {
                write!(self.batch, "get key{key:08}\r\n")?;
                missing += HIT;
            }
        }

        let stream = &mut self.streams[i];
        let sent = stream
            .tcp
            .write(&self.batch)
            .context("the server does not take requests")?;
        ensure!(
            sent == self.batch.len(),
            "a batch does not fit the socket's buffer"
        );
        stream.missing = missing;

        Ok(mix.depth)
    }

    /// Returns whether the replies are complete.
    fn receive(&mut self, i: usize) -> anyhow::Result<bool> {
        let stream = &mut self.streams[i];
        let n = stream
            .tcp
            .read(&mut self.buffer)
            .context("the server does not answer")?;
        ensure!(n > 0, "the server closed a connection");
        ensure!(
            n <= stream.missing,
            "a reply is too long: {:?}",
            String::from_utf8_lossy(&self.buffer[..n.min(300)])
        );
        stream.missing -= n;
        let complete = stream.missing == 0;

        ensure!(
            !complete || self.buffer[..n].ends_with(b"\r\n"),
            "replies do not end where they should"
        );
        Ok(complete)
    }
}

const STORED: &[u8] = b"STORED\r\n";
/// Bytes of the reply to a get that finds its key.
const HIT: usize = "VALUE key00000000 0 200\r\n".len() + VALUE + "\r\nEND\r\n".len();

fn set(key: usize, value: &[u8], out: &mut Vec<u8>) {
    // Writing into memory does not fail.
    let _ = write!(out, "set key{key:08} 0 0 {}\r\n", value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
