//! Clients of all kinds, good and bad, on the web server and on a server of the library, for as
//! long as one likes: each good one is served, and memory and descriptors stay where they are. In
//! the tests a few seconds; as a command, an hour:
//!
//!     PLAINWEAVE_SOAK=3600 cargo test --release -p plainweave-cli --test it soak -- --nocapture
//!
//! **How memory is judged.** Each process's resident memory is read every tenth of a second. The
//! first quarter of the time is for warming up. The most in the last quarter may be a tenth and 8
//! MiB above the most in the second: between the two lies half of the time, so in two minutes a
//! kilobyte lost with each of 500 connections a second is 30 MB, in an hour 20 bytes are. Stacks,
//! buffers and the heap's own reserves are part of it; what the kernel holds for sockets is not.
//! Descriptors, which stand for connections, must return to what they were before.

#![cfg(all(feature = "http2", feature = "tls"))]
#![expect(clippy::print_stderr, reason = "says how it goes")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::authority::{Authority, NOW};
use crate::common::{Running, eventually};
use plainweave::net::TcpListener;
use plainweave_http::tls::{Acceptor, Config};
use plainweave_http::{Body, Method, Request, Response, Server};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);
/// Between two samples.
const EACH: Duration = Duration::from_millis(100);
const LARGE: usize = 300_000;

/// How long to run.
fn time() -> Duration {
    let seconds = std::env::var("PLAINWEAVE_SOAK")
        .map_or(4, |seconds| seconds.parse().expect("a number of seconds"));
    crate::common::child::extend(seconds);
    Duration::from_secs(seconds)
}

/// A server under load: `/small` and `/large` are there.
struct Target {
    name: &'static str,
    pid: u32,
    plain: SocketAddr,
    tls: SocketAddr,
    /// It reads bodies and counts them.
    takes_bodies: bool,
}

impl Target {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.plain).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        stream
    }

    /// Of a server in this process, where other tests run, the sockets at its addresses alone.
    fn descriptors(&self) -> usize {
        if self.pid != std::process::id() {
            return crate::common::descriptors_of(self.pid);
        }
        let ends = [self.plain, self.tls].map(|address| format!(":{:04X}", address.port()));
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let open = table.lines().skip(1).filter(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            // Without an inode the socket is the kernel's alone.
            words[9] != "0" && ends.iter().any(|end| words[1].ends_with(end))
        });
        open.count()
    }

    /// Resident memory in bytes.
    fn resident(&self) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.pid)).unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

const CLOSE: &str = "Connection: close\r\n";

/// Reads an answer with a length. Returns its status line, and how long its body is.
fn answer(stream: &mut impl Read) -> io::Result<(String, u64)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }

    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .expect(&head)
        .parse()
        .unwrap();
    let body = io::copy(&mut stream.take(length), &mut io::sink())?;
    assert_eq!(body, length, "cut short: {head}");

    Ok((head.lines().next().unwrap().to_owned(), body))
}

fn is_ok(answer: io::Result<(String, u64)>, length: usize) {
    let (status, body) = answer.unwrap();
    assert_eq!((&*status, body), ("HTTP/1.1 200 OK", length as u64));
}

const SMALL: &[u8] = b"a small file\n";

/// One turn of a client, the n-th.
type Turn = fn(&Target, &Authority, usize);

/// One connection for many requests, some sent ahead.
fn keeps(target: &Target, _: &Authority, _: usize) {
    let mut stream = target.connect();
    for _ in 0..20 {
        stream
            .write_all(get("/small", "").repeat(3).as_bytes())
            .unwrap();
        (0..3).for_each(|_| is_ok(answer(&mut stream), SMALL.len()));
    }
}

fn comes_and_goes(target: &Target, _: &Authority, _: usize) {
    let mut stream = target.connect();
    stream.write_all(get("/small", CLOSE).as_bytes()).unwrap();
    is_ok(answer(&mut stream), SMALL.len());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// Leaves as one should, or without a word.
fn by_tls(target: &Target, authority: &Authority, n: usize) {
    let mut stream = authority.connect_to(target.tls);
    for _ in 0..5 {
        stream.write_all(get("/small", "").as_bytes()).unwrap();
        is_ok(answer(&mut stream), SMALL.len());
    }

    if n.is_multiple_of(2) {
        stream.write_all(get("/large", CLOSE).as_bytes()).unwrap();
        is_ok(answer(&mut stream), LARGE);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

/// Three requests at once over HTTP/2, every second turn cancels the last of them.
fn by_http2(target: &Target, _: &Authority, n: usize) {
    const HEADERS: u8 = 1;
    // GET, http, /small, localhost: fields of the static table, and two values.
    const FIELDS: &[u8] = b"\x82\x86\x04\x06/small\x01\x09localhost";
    let mut stream = target.connect();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let requests: Vec<u8> = [1, 3, 5]
        .iter()
        .flat_map(|id| frame(HEADERS, 5, *id, FIELDS))
        .collect();
    stream.write_all(&requests).unwrap();

    let cancels = n.is_multiple_of(2);
    if cancels {
        stream
            .write_all(&frame(3, 0, 5, &8_u32.to_be_bytes()))
            .unwrap();
    }

    let mut answered = [0; 2];
    while answered.iter().filter(|len| **len == SMALL.len()).count() < 2 {
        let mut header = [0; 9];
        stream.read_exact(&mut header).unwrap();
        let [high, middle, low, kind, _, .., id] = header;
        let mut content = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut content).unwrap();

        // Of data, the length; the first byte of an answer's fields is 200.
        match (kind, id) {
            (0, 1 | 3) => answered[usize::from(id / 2)] += content.len(),
            (HEADERS, _) => assert_eq!(content[0], 0x88),
            (3 | 7, _) => assert!(cancels && kind == 3, "{header:?}"),
            _ => {}
        }
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, id: u8, content: &[u8]) -> Vec<u8> {
    [
        &[0, 0, content.len() as u8, kind, flags, 0, 0, 0, id],
        content,
    ]
    .concat()
}

/// Leaves in the middle of its handshake.
fn shakes_half_a_hand(target: &Target, authority: &Authority, n: usize) {
    let mut hello = Vec::new();
    authority
        .connect_to(target.tls)
        .conn
        .write_tls(&mut hello)
        .unwrap();
    let mut stream = TcpStream::connect(target.tls).unwrap();
    stream
        .write_all(&hello[..(n * 37) % (hello.len() + 1)])
        .unwrap();

    if n.is_multiple_of(2) {
        reset(&stream);
    }
}

/// The connection is broken when it is dropped.
fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

/// Breaks the connection in its request, or in the answer.
fn resets(target: &Target, _: &Authority, n: usize) {
    let mut stream = target.connect();
    let text = get("/large", "");
    stream
        .write_all(&text.as_bytes()[..text.len().min(n % (text.len() * 2))])
        .unwrap();
    if n % (text.len() * 2) >= text.len() {
        let _ = stream.read(&mut [0; 1000]);
    }
    reset(&stream);
}

/// Sends and reads in small pieces, with pauses.
fn is_slow(target: &Target, _: &Authority, _: usize) {
    let mut stream = target.connect();
    for piece in get("/large", CLOSE).as_bytes().chunks(20) {
        stream.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(3));
    }

    let mut pauses = 0;
    let mut slowly = ReadSlowly(&mut stream, &mut pauses);
    is_ok(answer(&mut slowly), LARGE);
}

struct ReadSlowly<'a>(&'a mut TcpStream, &'a mut usize);

impl Read for ReadSlowly<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        *self.1 += 1;
        // The head is read byte by byte.
        if buf.len() > 1 && self.1.is_multiple_of(4) {
            thread::sleep(Duration::from_millis(1));
        }
        self.0.read(buf)
    }
}

/// A chunked body, whole or broken off. Whoever takes no bodies refuses it.
fn uploads(target: &Target, _: &Authority, n: usize) {
    let mut stream = target.connect();
    let head = format!(
        "POST /small HTTP/1.1\r\nHost: localhost\r\n{CLOSE}Transfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = [&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n"].concat();
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| (0..20).try_for_each(|_| stream.write_all(&chunk)));
    if !target.takes_bodies {
        return;
    }
    sent.unwrap();
    if n.is_multiple_of(3) {
        return;
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    is_ok(answer(&mut stream), "81920 bytes".len());
}

/// A body that is made while it is sent.
fn streams(target: &Target, _: &Authority, n: usize) {
    if !target.takes_bodies {
        return;
    }
    let mut stream = target.connect();
    stream.write_all(get("/stream", CLOSE).as_bytes()).unwrap();
    if n.is_multiple_of(3) {
        let _ = stream.read(&mut [0; 1000]);
        return;
    }

    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.starts_with(b"HTTP/1.1 200 OK\r\n") && all.ends_with(b"\r\n0\r\n\r\n"));
}

const CLIENTS: [Turn; 10] = [
    keeps,
    comes_and_goes,
    comes_and_goes,
    by_tls,
    by_http2,
    shakes_half_a_hand,
    resets,
    is_slow,
    uploads,
    streams,
];

fn handle(request: &mut Request<'_>) -> Response {
    if *request.method() == Method::POST {
        return match io::copy(request, &mut io::sink()) {
            Ok(len) => Response::ok(format!("{len} bytes")),
            Err(_) => Response::plain(plainweave_http::StatusCode::BAD_REQUEST),
        };
    }

    match request.path() {
        "/large" => Response::ok(vec![b'x'; LARGE]),
        "/stream" => Response::ok(Body::writer(|out| {
            (0..50).try_for_each(|_| out.write_all(&[b'y'; 5000]))
        })),
        _ => Response::ok(SMALL),
    }
}

/// Runs all clients on all targets. Returns the samples of each target's memory.
fn load(targets: &[Target], authority: &Authority, time: Duration) -> Vec<Vec<usize>> {
    let start = Instant::now();
    thread::scope(|scope| {
        let pairs = targets
            .iter()
            .flat_map(|target| CLIENTS.map(|client| (target, client)));
        let clients: Vec<_> = pairs
            .map(|(target, client)| {
                scope.spawn(move || {
                    let mut turns = 0;
                    while start.elapsed() < time {
                        client(target, authority, turns);
                        turns += 1;
                        thread::sleep(Duration::from_millis(1));
                    }
                    assert!(turns > 0);
                })
            })
            .collect();
        let mut samples = vec![Vec::new(); targets.len()];
        let mut minute = 0;

        while start.elapsed() < time && clients.iter().all(|client| !client.is_finished()) {
            samples
                .iter_mut()
                .zip(targets)
                .for_each(|(samples, target)| samples.push(target.resident()));
            if start.elapsed().as_secs() / 60 > minute {
                minute += 1;
                let megabytes = samples
                    .iter()
                    .map(|samples| samples[samples.len() - 1] >> 20);
                eprintln!("{minute} min: {:?} MB", megabytes.collect::<Vec<_>>());
            }
            thread::sleep(EACH);
        }

        samples
    })
}

/// The most in each quarter.
fn quarters(samples: &[usize]) -> [usize; 4] {
    let len = samples.len();
    [0, 1, 2, 3].map(|n| {
        samples[len * n / 4..(len * (n + 1) / 4).max(len * n / 4 + 1)]
            .iter()
            .copied()
            .max()
            .unwrap()
    })
}

#[test]
fn mixed_clients_leave_nothing_behind() {
    let time = time();
    let authority = Authority::new();
    let site = authority.directory.join("site");
    fs::create_dir_all(&site).unwrap();
    fs::write(site.join("small"), SMALL).unwrap();
    fs::write(site.join("large"), vec![b'x'; LARGE]).unwrap();
    let pair = authority.certify("localhost", &["localhost"], NOW);
    let flags: Vec<_> = pair
        .iter()
        .map(String::as_str)
        .chain(["--tls-listen", "127.0.0.1:0"])
        .collect();
    let web = Running::start_in(&site, &flags);
    let tls = web
        .line
        .split_once("https://")
        .expect(&web.line)
        .1
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let web_target = Target {
        name: "web",
        pid: web.child.id(),
        plain: web.address,
        tls,
        takes_bodies: false,
    };

    let runtime = plainweave::Runtime::builder()
        .workers(2)
        .max_workers(2)
        .report_stalls(false)
        .build()
        .unwrap();
    let server = Arc::new(Server::new(handle));
    let acceptor = Acceptor::new(Config::new(&pair[1], &pair[3])).unwrap();
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = runtime.run(|| {
        [
            server.start(bind()).unwrap(),
            server.start(acceptor.listen(bind())).unwrap(),
        ]
    });

    let [plain, tls] = addresses.map(|address| address.tcp().unwrap());
    let library = Target {
        name: "the library",
        pid: std::process::id(),
        plain,
        tls,
        takes_bodies: true,
    };

    let targets = [web_target, library];
    // What is opened once.
    targets.iter().for_each(|target| {
        CLIENTS
            .iter()
            .for_each(|client| client(target, &authority, 1))
    });
    thread::sleep(Duration::from_millis(200));
    let before: Vec<_> = targets.iter().map(Target::descriptors).collect();

    let samples = load(&targets, &authority, time);
    for ((target, samples), before) in targets.iter().zip(&samples).zip(before) {
        eventually("the descriptors from before", || {
            target.descriptors() <= before
        });
        let most = quarters(samples);
        let shown = most.map(|bytes| format!("{:.1} MB", bytes as f64 / 1e6));
        eprintln!(
            "{}: at most {shown:?} by quarters, {before} descriptors",
            target.name
        );
        assert!(
            most[3] <= most[1] + most[1] / 10 + (8 << 20),
            "{}: memory grows: {shown:?}",
            target.name
        );
    }

    assert!(runtime.run(|| server.shutdown(HANG)));
    web.signal();
    let (code, said) = web.end();
    assert_eq!(code, Some(0), "{said}");
}
