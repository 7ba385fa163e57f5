//! Connections that a handler has taken over, used in both directions at once: on sockets, over
//! TLS, and as a stream of HTTP/2.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::Request;
use plainweave::net::{self, AsyncTcpStream, TcpListener};
use plainweave::time::with_timeout;
use plainweave::{Runtime, block_on};
use plainweave_http::tls::{Acceptor, Config};
use plainweave_http::{HeaderValue, Response, Server, Upgraded};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::tls::peer::{Authority, EACH, NOW};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);
const ASK: &str =
    "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n";

/// A client's end.
trait Peer: Read + Write + Send {
    fn end(&mut self);
}

impl Peer for TcpStream {
    fn end(&mut self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Peer for StreamOwned<ClientConnection, TcpStream> {
    fn end(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
        self.sock.shutdown(Shutdown::Write).unwrap();
    }
}

/// A stream of a connection of HTTP/2 that has no others.
struct Stream {
    send: SendStream<Bytes>,
    recv: RecvStream,
    /// What has come and was not read.
    data: Bytes,
    ended: bool,
    /// Where the connection runs.
    _runtime: Runtime,
}

impl Stream {
    /// Asks for the protocol `test` (RFC 8441), and sends `early` together with that.
    fn open(address: SocketAddr, early: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let (send, recv) = runtime.run(|| {
            let stream = AsyncTcpStream::from(net::TcpStream::connect(address).unwrap());
            // It need not read at once what comes byte by byte.
            let mut builder = h2::client::Builder::new();
            builder.data_frame_budget(1 << 30);
            let (mut client, connection) = block_on(builder.handshake(stream)).unwrap().unwrap();
            drop(plainweave::spawn_future(connection));
            let ready = |client: &h2::client::SendRequest<Bytes>| {
                client.is_extended_connect_protocol_enabled()
            };
            let start = Instant::now();

            while !ready(&client) {
                assert!(start.elapsed() < HANG, "the server does not offer it");
                plainweave::time::sleep(Duration::from_millis(1)).unwrap();
            }

            let mut request = Request::builder()
                .method("CONNECT")
                .uri("http://localhost/")
                .body(())
                .unwrap();
            request
                .extensions_mut()
                .insert(Protocol::from_static("test"));
            let (response, mut send) = client.send_request(request, false).unwrap();
            send.send_data(Bytes::copy_from_slice(early.as_bytes()), false)
                .unwrap();
            let (head, recv) = block_on(response).unwrap().unwrap().into_parts();

            assert_eq!(head.status, 200);
            assert!(!head.headers.contains_key("upgrade"), "{head:?}");
            (send, recv)
        });

        Self {
            send,
            recv,
            data: Bytes::new(),
            ended: false,
            _runtime: runtime,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.data.is_empty() {
            let next = with_timeout(HANG, || block_on(poll_fn(|cx| self.recv.poll_data(cx))))?;
            match next {
                Some(data) => self.data = data.map_err(io::Error::other)?,
                None => return Ok(0),
            }

            let room = self.recv.flow_control();
            room.release_capacity(self.data.len())
                .map_err(io::Error::other)?;
        }

        let len = buf.len().min(self.data.len());
        self.data.copy_to_slice(&mut buf[..len]);
        Ok(len)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send.reserve_capacity(buf.len());
        while self.send.capacity() == 0 {
            let more = with_timeout(HANG, || block_on(poll_fn(|cx| self.send.poll_capacity(cx))))?;
            more.expect("an open stream").map_err(io::Error::other)?;
        }

        let len = self.send.capacity().min(buf.len());
        let sent = self
            .send
            .send_data(Bytes::copy_from_slice(&buf[..len]), false);
        sent.map(|()| len).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Peer for Stream {
    fn end(&mut self) {
        self.send.send_data(Bytes::new(), true).unwrap();
        self.ended = true;
    }
}

impl Drop for Stream {
    /// A stream that is dropped is reset, which overtakes what was sent: one that has ended in good
    /// order waits for the other end.
    fn drop(&mut self) {
        let mut buf = [0; 1024];
        while self.ended
            && !std::thread::panicking()
            && self.read(&mut buf).is_ok_and(|len| len > 0)
        {}
    }
}

/// How a client connects.
enum Kind {
    Plain,
    Tls(Box<ClientConfig>),
    Http2,
}

/// Has `take_over` serve one connection on a socket, one for each version of TLS, and one stream of
/// HTTP/2, and `play` be its client, with `early` sent together with the request.
fn each_transport(
    take_over: impl Fn(&mut Upgraded<'_>) -> io::Result<()> + Clone + Send + Sync + 'static,
    early: &str,
    play: impl Fn(&mut dyn Peer),
) {
    let authority = Authority::new("upgrades");
    let (chain, key) = authority.write("site", &["localhost"], NOW);
    let acceptor = Acceptor::new(Config::new(chain, key)).unwrap();

    let clients = EACH.map(|versions| Kind::Tls(Box::new(authority.client(versions))));
    for kind in clients.into_iter().chain([Kind::Plain, Kind::Http2]) {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let take_over = take_over.clone();
        let server = Server::new(move |request: &mut plainweave_http::Request<'_>| {
            let take_over = take_over.clone();
            assert_eq!(request.method(), "GET");
            Response::upgrade(HeaderValue::from_static("test"), move |stream| {
                take_over(stream).expect("as planned")
            })
        });

        let panics = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = panics.clone();
        let server = server.on_error(move |error| seen.lock().unwrap().push(error.to_string()));
        let acceptor = acceptor.clone();
        let is_tls = matches!(kind, Kind::Tls(_));
        let serving = runtime.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            if is_tls {
                server.serve_stream(acceptor.accept(stream))
            } else {
                server.serve_stream(stream)
            }
        });

        let mut peer = connect(address, kind, early);
        play(&mut *peer);
        drop(peer);
        serving.join().unwrap();
        assert_eq!(*panics.lock().unwrap(), [""; 0]);
    }
}

fn connect(address: SocketAddr, kind: Kind, early: &str) -> Box<dyn Peer> {
    let mut peer: Box<dyn Peer> = match kind {
        Kind::Http2 => return Box::new(Stream::open(address, early)),
        Kind::Plain => Box::new(socket(address)),
        Kind::Tls(config) => {
            let client =
                ClientConnection::new(Arc::new(*config), "localhost".try_into().unwrap()).unwrap();
            Box::new(StreamOwned::new(client, socket(address)))
        }
    };

    peer.write_all([ASK, early].concat().as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }

    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    peer
}

fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// Reads that many bytes, which count from 0.
fn hears(peer: &mut dyn Peer, count: u8) {
    for n in 0..count {
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [n]);
    }
}

fn pattern(len: usize, from: u8) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31).wrapping_add(from))
        .collect()
}

/// More than buffers hold goes in both directions, and neither waits for the other: the peer reads
/// nothing before it has written all.
#[test]
fn both_directions_at_once() {
    const LEN: usize = 3 << 20;
    let take_over = |stream: &mut Upgraded<'_>| {
        let (mut reader, mut writer) = stream.split()?;
        plainweave::scope(|scope| {
            let writes = scope.spawn(move || {
                writer.write_all(&pattern(LEN, 1))?;
                writer.shutdown_write()
            });

            let mut read = Vec::new();
            reader.read_to_end(&mut read)?;
            assert!(read == pattern(LEN, 2));
            writes.join().expect("no panic")
        })
    };

    each_transport(take_over, "", |peer| {
        peer.write_all(&pattern(LEN, 2)).unwrap();
        peer.end();
        let mut read = Vec::new();
        peer.read_to_end(&mut read).unwrap();
        assert!(read == pattern(LEN, 1));
    });
}

/// One half waits for its peer while the other writes again and again; what has come early is read
/// first.
#[test]
fn a_half_that_waits_does_not_hold_up_the_other() {
    let take_over = |stream: &mut Upgraded<'_>| {
        let (mut reader, mut writer) = stream.split()?;
        plainweave::scope(|scope| {
            let ticks = scope.spawn(move || {
                for n in 0..20_u8 {
                    plainweave::time::sleep(Duration::from_millis(1))?;
                    writer.write_all(&[n])?;
                    writer.flush()?;
                }
                io::Result::Ok(writer)
            });

            let mut early = [0; 5];
            reader.read_exact(&mut early)?;
            assert_eq!(&early, b"early");

            // The peer says this when it has heard all ticks.
            let mut heard = [0; 1];
            reader.read_exact(&mut heard)?;
            let mut writer = ticks.join().expect("no panic")?;
            writer.write_all(&heard)?;
            writer.flush()
        })
    };

    each_transport(take_over, "early", |peer| {
        hears(peer, 20);
        peer.write_all(b"!").unwrap();
        peer.flush().unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!");
    });
}

/// Each half has its own time, and may go on afterwards; a cancelled one ends at once. While both
/// wait, neither spins.
#[test]
fn halves_have_times_of_their_own() {
    let take_over = |stream: &mut Upgraded<'_>| {
        stream.set_read_timeout(Duration::from_millis(5))?;
        let (mut reader, mut writer) = stream.split()?;
        assert_eq!(
            reader.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        writer.set_write_timeout(Duration::from_millis(50));
        plainweave::scope(|scope| {
            reader.set_read_timeout(HANG);
            let reads = scope.spawn(move || {
                let mut byte = [0];
                reader.read_exact(&mut byte).map(|()| (byte, reader))
            });

            // The peer reads nothing, until this one has given up twice.
            let block = vec![7; 256 << 10];
            let switches = || plainweave::metrics().expect("on a fiber").switches;
            let mut written = 0;

            for _ in 0..2 {
                let mut before = switches();
                let mut blocks = 0;
                let late = loop {
                    match writer.write(&block) {
                        Ok(len) => written += len,
                        Err(error) => break error,
                    }
                    (before, blocks) = (switches(), blocks + 1);
                };

                assert_eq!(late.kind(), ErrorKind::TimedOut);
                // Meanwhile both wait: one with the stream, the other aside.
                assert!(
                    switches() - before < 1000,
                    "{} switches, {blocks} blocks",
                    switches() - before
                );
            }

            assert!(written > 0 && !reads.is_finished());
            reads.cancel();
            let error = reads
                .join()
                .expect("no panic")
                .map(drop)
                .expect_err("cancelled");
            assert!(plainweave::is_cancelled(&error), "{error}");
            Ok(())
        })
    };

    each_transport(take_over, "", |peer| {
        // Until the server has given up and left.
        std::thread::sleep(Duration::from_millis(500));
        let mut buf = vec![0; 1 << 16];
        while let Ok(1..) = peer.read(&mut buf) {}
    });
}

/// A half that gives up at any moment leaves the other one able to go on.
#[test]
fn a_half_that_gives_up_holds_up_nobody() {
    const BYTES: usize = 300;
    let take_over = |stream: &mut Upgraded<'_>| {
        stream.set_read_timeout(HANG)?;
        let (mut reader, mut writer) = stream.split()?;
        let done = std::sync::atomic::AtomicBool::new(false);
        plainweave::scope(|scope| {
            let gives_up = scope.spawn(|| {
                let mut written = 0;
                for n in 0_u64.. {
                    if done.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    let limit = Duration::from_micros(n * 7 % 40);
                    let wrote = plainweave::time::with_timeout(limit, || writer.write(b"x"));
                    written += wrote.unwrap_or(0);
                    plainweave::yield_now();
                }
                (written, writer)
            });

            for n in 0..BYTES {
                let mut byte = [0];
                reader.read_exact(&mut byte)?;
                assert_eq!(byte, [n as u8]);
            }

            done.store(true, std::sync::atomic::Ordering::SeqCst);
            let (written, mut writer) = gives_up.join().expect("no panic");
            assert!(written > 0);
            writer.shutdown_write()
        })
    };

    each_transport(take_over, "", |peer| {
        for n in 0..BYTES {
            peer.write_all(&[n as u8]).unwrap();
            peer.flush().unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }

        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == b'x'));
    });
}

/// One fiber listens to its peer and to the program, by `select!`.
#[test]
fn readiness_is_a_branch_of_a_select() {
    let take_over = |stream: &mut Upgraded<'_>| {
        stream.set_nonblocking_reads(true)?;
        let (sender, news) = plainweave::sync::channel::bounded(1);
        let tells = plainweave::spawn(move || {
            for n in 0..10_u8 {
                plainweave::time::sleep(Duration::from_millis(1)).expect("not cancelled");
                sender.send(n).expect("it listens");
            }
        });

        let mut heard = Vec::new();
        let mut told = 0;
        loop {
            let mut buf = [0; 3];
            match stream.read(&mut buf) {
                Ok(0) => break,
                Ok(len) => {
                    heard.extend_from_slice(&buf[..len]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }

            let next = plainweave::select! {
                readable(stream) => None,
                recv(news) -> n, if told < 10 => Some(n),
            };

            if let Some(Ok(n)) = next? {
                told += 1;
                stream.write_all(&[n])?;
                stream.flush()?;
            }
        }

        assert_eq!((heard.as_slice(), told), (&b"early and late"[..], 10));
        tells.join().expect("no panic");
        Ok(())
    };

    each_transport(take_over, "early ", |peer| {
        hears(peer, 10);
        peer.write_all(b"and late").unwrap();
        peer.end();
    });
}

/// On threads there are only blocking calls, and the error says so.
#[test]
fn threads_are_told_what_they_cannot_do() {
    let server = Server::new(|_: &mut plainweave_http::Request<'_>| {
        Response::upgrade(HeaderValue::from_static("test"), |stream| {
            assert_eq!(stream.split().unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(
                stream.set_nonblocking_reads(true).unwrap_err().kind(),
                ErrorKind::Unsupported
            );
            stream.set_nonblocking_reads(false).unwrap();
            plainweave::select! { readable(stream) => () }.unwrap();
            stream.write_all(b"told").unwrap();
        })
    });

    let server = plainweave_http::testing::TestServer::on_threads(server).unwrap();
    assert!(server.exchange(ASK).unwrap().ends_with(b"\r\n\r\ntold"));
}
