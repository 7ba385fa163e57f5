//! The raw loops answer as a server must, on epoll and on io_uring: else they would be no limit.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::skip;

/// A loop in its process; ends with this value.
struct Limit {
    child: Child,
    address: SocketAddr,
}

impl Limit {
    /// Starts it. `None`: there is no such driver here.
    fn start(io: &str, arguments: &[&str]) -> Option<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plainweave-bench"))
            .args(["limit", "--io", io])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().parse().ok();
        let limit = address.map(|address| Self { child, address });
        if limit.is_none() {
            assert_eq!(io, "uring", "{line}");
            skip::skip("io_uring is not available here");
        }
        limit
    }

    /// Connects; reads and writes wait for 20 s at most.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let bound = Some(Duration::from_secs(20));
        // Pieces of a request are not kept back.
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(bound).unwrap();
        stream.set_write_timeout(bound).unwrap();
        stream
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a test on both drivers.
fn on_both(arguments: &[&str], test: impl Fn(&Limit)) {
    for io in ["epoll", "uring"] {
        if let Some(limit) = Limit::start(io, arguments) {
            test(&limit);
        }
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Reads an answer of HTTP; returns how long its body is.
fn answer(stream: &mut impl BufRead) -> usize {
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the answer is cut");
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let expected = b"Hello, World!".iter().cycle();
    assert!(
        body.iter()
            .zip(expected)
            .all(|(is, expected)| is == expected)
    );
    length
}

#[test]
fn a_kept_connection_gets_an_answer_to_each_request_however_it_is_read() {
    on_both(&["http", "--bytes", "3000000"], |limit| {
        let mut stream = BufReader::with_capacity(1000, limit.connect());
        for _ in 0..3 {
            // It comes in pieces, and the answer is longer than any buffer of the sockets.
            for part in REQUEST.chunks(7) {
                stream.get_mut().write_all(part).unwrap();
            }
            assert_eq!(answer(&mut stream), 3_000_000);
        }
        // Another one after that has gone.
        drop(stream);
        let mut stream = BufReader::new(limit.connect());
        stream.get_mut().write_all(REQUEST).unwrap();
        assert_eq!(answer(&mut stream), 3_000_000);
    });
}

#[test]
fn a_connection_for_each_request_ends_with_its_answer() {
    on_both(&["http", "--bytes", "1024", "--close"], |limit| {
        // More than there are events of a wait, buffers of the ring, or connections at once.
        let mut crowd: Vec<_> = (0..600).map(|_| BufReader::new(limit.connect())).collect();
        for stream in &mut crowd {
            stream.get_mut().write_all(REQUEST).unwrap();
        }
        for stream in &mut crowd {
            assert_eq!(answer(stream), 1024);
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }

        // One that says nothing, one that says half, and one that does not wait for its answer.
        drop(limit.connect());
        let mut half = limit.connect();
        half.write_all(&REQUEST[..20]).unwrap();
        limit.connect().write_all(REQUEST).unwrap();
        let mut next = BufReader::new(limit.connect());
        next.get_mut().write_all(REQUEST).unwrap();
        assert_eq!(answer(&mut next), 1024);
        half.write_all(&REQUEST[20..]).unwrap();
        assert_eq!(answer(&mut BufReader::new(half)), 1024);
    });
}

#[test]
fn a_cache_answers_what_is_pipelined_and_ends_who_reads_nothing() {
    on_both(&["cache", "--bytes", "200"], |limit| {
        // It asks for far more than its sockets hold, and reads none of it.
        let mut deaf = limit.connect();
        let asked = b"get key00000001\r\n".repeat(100);
        let ended = (0..10_000).find_map(|_| deaf.write_all(&asked).err());
        let kind = ended.map(|error| error.kind());
        assert!(
            matches!(
                kind,
                Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
            ),
            "{kind:?}"
        );

        let mut stream = BufReader::new(limit.connect());
        for n in 0..300 {
            let request = format!("get key{n:08}\r\nset key{n:08} 0 0 3\r\nabc\r\nmn\r\n");
            for part in request.as_bytes().chunks(9) {
                stream.get_mut().write_all(part).unwrap();
            }
            let value = "v".repeat(200);
            let expected = format!("VALUE key{n:08} 0 200\r\n{value}\r\nEND\r\nSTORED\r\nMN\r\n");
            let mut found = vec![0; expected.len()];
            stream.read_exact(&mut found).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }

        stream.get_mut().shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the loop closes too");
    });
}
