//! Files that do not fit a cache: sent from the page cache, slowly, in part, and while they change.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::Running;
use crate::common::scratch::Scratch;

const STYLES: [&[&str]; 4] = [
    &["--io", "epoll", "--workers", "1"],
    &["--io", "uring", "--workers", "1"],
    &[
        "--io",
        "epoll",
        "--workers",
        "2",
        "--architecture",
        "fibers",
    ],
    &[
        "--io",
        "uring",
        "--workers",
        "1",
        "--open-files",
        "0",
        "--cache",
        "0",
    ],
];

const LEN: usize = 9_000_001;

/// A directory to serve.
fn site() -> Scratch {
    let site = Scratch::new();
    let bytes: Vec<u8> = (0..LEN).map(byte).collect();
    site.file("big", bytes);
    site.file("small", "small");
    site
}

fn byte(n: usize) -> u8 {
    (n % 251) as u8
}

fn ask(stream: &mut TcpStream, path: &str, fields: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").unwrap();
}

/// Reads a head and gives status and length.
fn head(stream: &mut TcpStream) -> (u16, usize) {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }

    let text = String::from_utf8(text).unwrap();
    let length = text
        .lines()
        .find_map(|l| l.strip_prefix("Content-Length: "))
        .unwrap()
        .parse()
        .unwrap();
    (text[9..12].parse().unwrap(), length)
}

fn body(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    body
}

#[test]
fn whole_files_and_parts_of_them() {
    let site = site();
    for style in STYLES {
        let server = Running::start_in(site.root(), style);
        let mut stream = server.connect();
        // Pipelined: what follows a file sent from the page cache must come behind it.
        ask(&mut stream, "/small", "");
        ask(&mut stream, "/big", "");
        ask(&mut stream, "/big", "Range: bytes=8000000-8999999\r\n");
        ask(&mut stream, "/small", "");
        assert_eq!(head(&mut stream), (200, 5));
        assert_eq!(body(&mut stream, 5), b"small");
        assert_eq!(head(&mut stream), (200, LEN));
        assert!(
            body(&mut stream, LEN)
                .iter()
                .enumerate()
                .all(|(n, &got)| got == byte(n)),
            "{style:?}"
        );
        assert_eq!(head(&mut stream), (206, 1_000_000));
        let part = body(&mut stream, 1_000_000);

        assert!(
            part.iter()
                .enumerate()
                .all(|(n, &got)| got == byte(8_000_000 + n)),
            "{style:?}"
        );
        assert_eq!(head(&mut stream), (200, 5));
        assert_eq!(body(&mut stream, 5), b"small");
    }
}

#[test]
fn who_does_not_read_holds_up_nobody() {
    let site = site();
    for style in STYLES {
        let server = Running::start_in(site.root(), style);
        let mut slow: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        slow.iter_mut().for_each(|stream| ask(stream, "/big", ""));
        let mut other = server.connect();

        for _ in 0..10 {
            ask(&mut other, "/small", "");
            assert_eq!(head(&mut other), (200, 5));
            assert_eq!(body(&mut other, 5), b"small");
        }

        // Nothing was lost by the waiting.
        assert_eq!(head(&mut slow[0]), (200, LEN));
        assert!(
            body(&mut slow[0], LEN)
                .iter()
                .enumerate()
                .all(|(n, &got)| got == byte(n)),
            "{style:?}"
        );
        drop(slow);
        ask(&mut other, "/small", "");
        assert_eq!(head(&mut other), (200, 5));
    }
}

/// As `nc -N` does: it has said all that it has to say, and reads slowly.
#[test]
fn a_reader_that_has_shut_its_own_side_gets_its_file() {
    let site = site();
    for style in STYLES {
        let server = Running::start_in(site.root(), style);
        let mut stream = server.connect();
        ask(&mut stream, "/big", "");
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(head(&mut stream), (200, LEN));
        let mut got = Vec::new();

        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            got.extend(body(&mut stream, 500_000));
        }

        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), LEN, "{style:?}");
        assert!(
            got.iter().enumerate().all(|(n, &got)| got == byte(n)),
            "{style:?}"
        );
    }
}

#[test]
fn a_file_that_shrinks_meanwhile_is_cut_off_and_the_server_goes_on() {
    for style in STYLES {
        let site = site();
        let server = Running::start_in(site.root(), style);
        let mut stream = server.connect();
        ask(&mut stream, "/big", "");
        assert_eq!(head(&mut stream), (200, LEN));

        // More than the socket's buffers hold, so that the server is still at it.
        let file = File::options()
            .write(true)
            .open(site.root().join("big"))
            .unwrap();
        file.set_len(7_500_000).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut got = 0;
        let mut buf = vec![0; 65_536];

        loop {
            match stream.read(&mut buf) {
                Ok(0) => break,
                Ok(len) => got += len,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {got} bytes"),
            }
        }

        assert!(
            got <= 7_500_000,
            "{got}: nothing stands in for what is no longer there"
        );
        let mut other = server.connect();
        ask(&mut other, "/small", "");
        assert_eq!(head(&mut other), (200, 5));
        server.signal();
        let (code, said) = server.end();

        assert!(
            code == Some(0) && said.contains("an answer was cut off: the body ended"),
            "{said}"
        );
    }
}
