//! The system `limit`: an epoll loop that reads a request and sends a fixed answer from memory. It
//! has no parser, no timeouts and nothing of ours, so that it shows what the kernel takes for the
//! calls alone.
//!
//! It knows as much of a protocol as it needs to answer each request once: where a request ends, on
//! connections whose clients send it in one piece. Level-triggered: an event, a read, a write;
//! nothing else, unless the socket does not take an answer at once.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use anyhow::Context;
use clap::{Args, Subcommand};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::SocketFlags;

use crate::harness::machine;
use crate::harness::report;

pub(crate) const NAME: &str = "limit";

/// Every server reads into a buffer of this size, larger than a message: a server cannot know how
/// long one is, and a read that fills its buffer would make an edge-triggered server ask once more.
pub(crate) const BUFFER: usize = 4096;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 4096;

/// A loop in a process of its own, told by its parent what to send.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    /// Answers each request of HTTP with the same body.
    Http {
        #[arg(long, default_value = "13")]
        bytes: usize,
        /// Closes the connection after each answer
        #[arg(long)]
        close: bool,
        /// Sends the body as one chunk
        #[arg(long)]
        chunked: bool,
    },
    /// Answers a `get` with the same value and a `set` with `STORED`.
    Cache {
        #[arg(long, default_value = "200")]
        bytes: usize,
    },
}

/// Returns a command that runs the loop for a protocol; it prints its address.
pub(crate) fn command(protocol: &str, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["limit", protocol]).args(arguments);
    Ok(command)
}

/// In a child process: serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    machine::end_with_parent();
    let listener = listen()?;
    match flags.protocol {
        Protocol::Http {
            bytes,
            close,
            chunked,
        } => serve(&listener, Http::new(bytes, close, chunked)),
        Protocol::Cache { bytes } => serve(&listener, Cache::new(bytes)),
    }
}

/// Listens on a free port, with room for a crowd and small answers sent at once.
pub(crate) fn listen() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    rustix::net::listen(&listener, BACKLOG)?;
    // Accepted sockets inherit it.
    rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(listener)
}

/// What is sent for what comes.
pub(crate) trait Answers {
    /// What a connection keeps between two reads.
    type State: Default;

    /// Returns what to send for these bytes: nothing until they end a request.
    fn answer<'a>(&'a mut self, state: &mut Self::State, input: &'a [u8]) -> &'a [u8];

    /// Returns the end of an answer that the socket has not taken yet, by its length.
    fn rest(&self, unsent: usize) -> &[u8];

    /// Returns whether an answer is the connection's last.
    fn closes(&self) -> bool {
        false
    }
}

/// Sends back what comes.
pub(crate) struct Echo;

impl Answers for Echo {
    type State = ();

    fn answer<'a>(&'a mut self, (): &mut (), input: &'a [u8]) -> &'a [u8] {
        input
    }

    fn rest(&self, _: usize) -> &[u8] {
        // A message of at most `BUFFER` bytes always fits, as its sender waits for it.
        &[]
    }
}

struct Http {
    answer: Vec<u8>,
    close: bool,
}

impl Http {
    fn new(bytes: usize, close: bool, chunked: bool) -> Self {
        let connection = if close { "close" } else { "keep-alive" };
        let (length, before, after) = match chunked {
            true => (
                "Transfer-Encoding: chunked".to_owned(),
                format!("{bytes:x}\r\n"),
                "\r\n0\r\n\r\n",
            ),
            false => (format!("Content-Length: {bytes}"), String::new(), ""),
        };

        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: limit\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\n\
             {length}\r\nConnection: {connection}\r\n\r\n{before}"
        );
        let body = "Hello, World!".bytes().cycle().take(bytes);
        Self {
            answer: head
                .into_bytes()
                .into_iter()
                .chain(body)
                .chain(after.bytes())
                .collect(),
            close,
        }
    }
}

impl Answers for Http {
    type State = ();

    fn answer<'a>(&'a mut self, (): &mut (), input: &'a [u8]) -> &'a [u8] {
        if input.ends_with(b"\r\n\r\n") {
            &self.answer
        } else {
            &[]
        }
    }

    fn rest(&self, unsent: usize) -> &[u8] {
        &self.answer[self.answer.len() - unsent..]
    }

    fn closes(&self) -> bool {
        self.close
    }
}

/// Gets hit and sets succeed, whatever the key.
struct Cache {
    /// What follows the key in a hit.
    hit: Vec<u8>,
    out: Vec<u8>,
}

impl Cache {
    fn new(bytes: usize) -> Self {
        let mut hit = format!(" 0 {bytes}\r\n").into_bytes();
        hit.resize(hit.len() + bytes, b'v');
        hit.extend_from_slice(b"\r\nEND\r\n");
        Self {
            hit,
            out: Vec::new(),
        }
    }

    /// Answers the whole requests at the beginning; returns how long these are.
    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(end) = input[taken..].iter().position(|byte| *byte == b'\n') {
            let line = &input[taken..taken + end];
            let (value, answer): (usize, [&[u8]; 3]) = match line.first() {
                Some(b's') => (length(line) + 2, [b"STORED\r\n", b"", b""]),
                Some(b'm') => (0, [b"MN\r\n", b"", b""]),
                // Clients look whether it is their key.
                _ => (
                    0,
                    [
                        b"VALUE ",
                        line.get(4..).unwrap_or_default().trim_ascii_end(),
                        &self.hit,
                    ],
                ),
            };

            let next = taken + end + 1 + value;
            if next > input.len() {
                break;
            }
            answer
                .into_iter()
                .for_each(|part| self.out.extend_from_slice(part));
            taken = next;
        }
        taken
    }
}

/// Returns the number at the end of a line.
fn length(line: &[u8]) -> usize {
    let digits = line
        .trim_ascii_end()
        .rsplit(|byte| *byte == b' ')
        .next()
        .unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

impl Answers for Cache {
    /// The beginning of a request.
    type State = Vec<u8>;

    fn answer<'a>(&'a mut self, kept: &mut Vec<u8>, input: &'a [u8]) -> &'a [u8] {
        self.out.clear();
        if kept.is_empty() {
            let taken = self.take(input);
            kept.extend_from_slice(&input[taken..]);
        } else {
            kept.extend_from_slice(input);
            let taken = self.take(kept);
            kept.drain(..taken);
        }
        &self.out
    }

    fn rest(&self, _: usize) -> &[u8] {
        // Clients read while they wait, and what they ask for at a time fits the socket's buffer.
        &[]
    }
}

struct Connection<S> {
    stream: TcpStream,
    state: S,
    /// Bytes of the answer that the socket has not taken.
    unsent: usize,
}

/// Prints the address and serves until the process ends.
pub(crate) fn serve<A: Answers>(listener: &TcpListener, mut answers: A) -> anyhow::Result<()> {
    const LISTENER: u64 = u64::MAX;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &poll,
        listener,
        epoll::EventData::new_u64(LISTENER),
        epoll::EventFlags::IN,
    )?;
    report::say(&listener.local_addr()?.to_string());

    // By their descriptors.
    let mut connections: Vec<Option<Connection<A::State>>> = Vec::new();
    let mut events = Vec::with_capacity(256);
    let mut buffer = vec![0; BUFFER];
    loop {
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            if event.data.u64() == LISTENER {
                accept(listener, &poll, &mut connections);
                continue;
            }

            let place = &mut connections[event.data.u64() as usize];
            let Some(connection) = place else { continue };
            let alive = match connection.unsent {
                0 => request(&poll, connection, &mut answers, &mut buffer),
                _ => send_rest(&poll, connection, &answers),
            };

            if !alive {
                *place = None;
            }
        }
    }
}

fn accept<S: Default>(
    listener: &TcpListener,
    poll: &OwnedFd,
    connections: &mut Vec<Option<Connection<S>>>,
) {
    // What fails to be accepted has gone, or comes again when there are descriptors.
    let Ok(socket) =
        rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
    else {
        return;
    };

    let stream = TcpStream::from(socket);
    let key = stream.as_raw_fd() as usize;
    if epoll::add(
        poll,
        &stream,
        epoll::EventData::new_u64(key as u64),
        epoll::EventFlags::IN,
    )
    .is_ok()
    {
        connections.resize_with(connections.len().max(key + 1), || None);
        connections[key] = Some(Connection {
            stream,
            state: S::default(),
            unsent: 0,
        });
    }
}

/// Reads and answers. Returns `false` if the connection is to end.
fn request<A: Answers>(
    poll: &OwnedFd,
    connection: &mut Connection<A::State>,
    answers: &mut A,
    buffer: &mut [u8],
) -> bool {
    let input = match connection.stream.read(buffer) {
        Ok(n @ 1..) => &buffer[..n],
        Ok(_) => return false,
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    };

    let answer = answers.answer(&mut connection.state, input);
    if answer.is_empty() {
        return true;
    }
    let length = answer.len();
    let Some(sent) = send(&mut connection.stream, answer) else {
        return false;
    };
    connection.unsent = length - sent;
    if connection.unsent == 0 {
        return !answers.closes();
    }

    watch(poll, &connection.stream, epoll::EventFlags::OUT)
}

/// Goes on with an answer. Returns `false` if the connection is to end.
fn send_rest<A: Answers>(
    poll: &OwnedFd,
    connection: &mut Connection<A::State>,
    answers: &A,
) -> bool {
    let rest = answers.rest(connection.unsent);
    let Some(sent) = send(&mut connection.stream, rest).filter(|_| !rest.is_empty()) else {
        return false;
    };
    connection.unsent -= sent;
    connection.unsent > 0
        || (!answers.closes() && watch(poll, &connection.stream, epoll::EventFlags::IN))
}

/// Returns how much the socket took; `None`: the peer is gone.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(sent) => Some(sent),
        Err(error) => (error.kind() == ErrorKind::WouldBlock).then_some(0),
    }
}

fn watch(poll: &OwnedFd, stream: &TcpStream, flags: epoll::EventFlags) -> bool {
    epoll::modify(
        poll,
        stream,
        epoll::EventData::new_u64(stream.as_raw_fd() as u64),
        flags,
    )
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Answers, Cache, Http};

    #[test]
    fn a_cache_answers_each_request_once_however_it_is_cut() {
        let input =
            b"get key00000001\r\nset key00000002 0 0 5\r\nab\ncd\r\nget key00000003\r\nmn\r\n";
        let hit = |key| format!("VALUE key0000000{key} 0 3\r\nvvv\r\nEND\r\n");
        let expected = format!("{}STORED\r\n{}MN\r\n", hit(1), hit(3));

        for cut in 0..input.len() {
            let mut cache = Cache::new(3);
            let mut kept = Vec::new();
            let mut out = Vec::new();
            for part in [&input[..cut], &input[cut..]] {
                out.extend_from_slice(cache.answer(&mut kept, part));
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
            assert!(kept.is_empty());
        }
    }

    #[test]
    fn an_answer_has_as_many_bytes_as_it_says() {
        let mut http = Http::new(1024, false, false);
        let text =
            String::from_utf8(http.answer(&mut (), b"GET / HTTP/1.1\r\n\r\n").to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("Content-Length: 1024")
                && body.len() == 1024
                && body.starts_with("Hello, World!Hello")
        );

        assert!(
            http.rest(3) == &text.as_bytes()[text.len() - 3..]
                && http.answer(&mut (), b"GET / HTT").is_empty()
        );
    }
}
