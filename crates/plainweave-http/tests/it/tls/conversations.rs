//! Requests and answers over TLS, however they are split.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use plainweave_http::{Handler, Layer, Limits, Next, Request, Response, Server, Transport};
use rustls::{ClientConnection, StreamOwned};

use super::peer::{Authority, BOTH, EACH, Peer, Silence};
use crate::support::{read_answers, server};

pub(crate) const GET: &str = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

/// Serves as a driver with idle connections does, until there is nothing more to serve. Returns the
/// turns taken.
pub(crate) fn play<H: Handler, S: Transport>(server: &Server<H>, stream: &mut S) -> usize {
    let mut state = server.open(stream).unwrap();
    for turn in 1..1000 {
        match server.serve_ready(stream, &mut state) {
            Next::Close => return turn,
            Next::Idle(_) => assert!(
                !stream.layer().is_some_and(|layer| layer.holds_input()),
                "all that has come is served before it is parked"
            ),
        }
    }
    panic!("it goes on and on")
}

#[test]
fn head_and_body_are_one_record_in_one_write() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    for (versions, name) in EACH.into_iter().zip(["TLSv1.3", "TLSv1.2"]) {
        let mut peer = Peer::new(&Arc::new(authority.client(versions)), "localhost", GET);
        peer.then = Silence::Close;
        let mut stream = acceptor.accept(peer);
        stream.set_read_timeout(Duration::from_secs(1)).unwrap();
        stream.handshake().unwrap();
        let session = stream.session().unwrap().clone();

        assert_eq!(
            (session.version, session.server_name.as_deref()),
            (name, Some("localhost"))
        );
        assert!(
            session.cipher_suite.contains("AES") || session.cipher_suite.contains("CHACHA"),
            "{session:?}"
        );
        let before = stream.get_ref().writes.len();

        // Longer than is copied behind the head.
        let server = Server::new(|_: &mut Request<'_>| Response::ok(vec![b'x'; 10_000]));
        play(&server, &mut stream);
        let peer = stream.get_ref();
        let answers = read_answers(&peer.heard);
        assert_eq!((answers.len(), answers[0].body.len()), (1, 10_000));

        // The answer, and the farewell.
        assert_eq!(peer.writes.len(), before + 2, "{:?}", peer.writes);
        assert!(
            (10_000..10_400).contains(&peer.writes[before]),
            "{:?}",
            peer.writes
        );
    }
}

/// Cuts both directions at every byte.
#[test]
fn every_split() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    for versions in EACH {
        let config = Arc::new(authority.client(versions));
        let mut split = 0;

        let mut end = 1;
        while split < end {
            let mut peer = Peer::new(&config, "localhost", format!("{GET}{GET}"));
            (peer.split, peer.then) = (split, Silence::Close);
            let mut stream = acceptor.accept(peer);
            play(&server(), &mut stream);
            let peer = stream.get_ref();
            assert_eq!(read_answers(&peer.heard).len(), 2, "{split}");
            assert_eq!(read_answers(&peer.heard)[1].body, b"/a");
            assert!(peer.gave_up.is_none() && peer.read > 300 && peer.written > 500);
            end = peer.read.max(peer.written);
            split += 1;
        }
    }
}

/// More than a connection's buffer holds arrives at once; nothing of it may wait for more to come.
#[test]
fn what_was_decrypted_is_served_before_the_connection_is_idle() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    // 64 bytes, so that a request ends where the buffer does.
    let request = "GET /a HTTP/1.1\r\nHost: localhost\r\nX: 01234567890123456789012\r\n\r\n";
    assert_eq!(request.len(), 64);
    let mut peer = Peer::new(
        &Arc::new(authority.client(BOTH)),
        "localhost",
        request.repeat(2000),
    );

    peer.then = Silence::Stall;
    let mut stream = acceptor.accept(peer);

    // A record holds several times as much as its buffer.
    let server = server().with_limits(Limits {
        head_bytes: 1024,
        ..Limits::default()
    });

    let mut state = server.open(&mut stream).unwrap();
    while !stream.get_ref().says.is_empty()
        || !stream.get_ref().sent.is_empty()
        || stream.is_handshaking()
    {
        assert!(matches!(
            server.serve_ready(&mut stream, &mut state),
            Next::Idle(_)
        ));
        assert!(!Layer::holds_input(&stream));
    }
    assert_eq!(read_answers(&stream.get_ref().heard).len(), 2000);
}

#[test]
fn large_bodies_both_ways() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let body: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();

    for versions in EACH {
        let head = format!(
            "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let says = [head.as_bytes(), &body].concat();
        let mut peer = Peer::new(&Arc::new(authority.client(versions)), "localhost", says);
        peer.then = Silence::Close;
        let mut stream = acceptor.accept(peer);

        play(&server(), &mut stream);
        let answers = read_answers(&stream.get_ref().heard);

        assert_eq!(answers.len(), 1);
        assert!(answers[0].body == body);
        // Four full records at a time.
        assert!(
            stream.get_ref().writes.iter().any(|&len| len > 64 << 10),
            "{:?}",
            stream.get_ref().writes
        );
    }
}

/// The client can tell an answer's end from a break, by `close_notify`; so it comes where all was
/// said.
#[test]
fn an_end_is_said_and_a_break_is_not() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();

    let head = |path: &str| format!("GET {path} HTTP/1.0\r\nHost: h\r\n\r\n");
    for says in [head("/stream"), head("/close"), "BAD\r\n\r\n".into()] {
        let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), "localhost", &says);
        peer.then = Silence::Vanish;
        let mut stream = acceptor.accept(peer);
        play(&server(), &mut stream);
        assert!(stream.get_ref().heard_end, "{says}");
    }

    // The handler's body fails in the middle, and the length is not known: only the missing end can
    // tell.
    let broken = Server::new(|_: &mut Request<'_>| {
        let body = b"the beginning".chain(Broken);
        Response::ok(plainweave_http::Body::reader(body, None))
    });

    let mut stream = acceptor.accept(Peer::new(
        &Arc::new(authority.client(BOTH)),
        "localhost",
        head("/"),
    ));
    play(&broken, &mut stream);
    assert!(stream.get_ref().heard.ends_with(b"the beginning"));
    assert!(!stream.get_ref().heard_end);
}

/// A peer that says that it sends no more gets the last answer all the same: a socket that is
/// closed over those bytes would answer with RST.
#[test]
fn the_end_of_a_peer_is_read_before_the_close() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(HANG)).unwrap();
    let mut client = StreamOwned::new(
        ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap(),
        client,
    );
    let stream = acceptor.accept(listener.accept().unwrap().0);
    let ((ask, asked), (end, ended)) = (mpsc::channel(), mpsc::channel());
    let ended = Mutex::new(ended);
    let server = Server::new(move |_: &mut Request<'_>| {
        ask.send(()).unwrap();
        // The end is on its way then, and not read.
        ended.lock().unwrap().recv_timeout(HANG).unwrap();
        Response::ok("all of it")
    });

    let serving = std::thread::spawn(move || server.serve_stream(stream));
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    asked.recv_timeout(HANG).unwrap();
    client.conn.send_close_notify();
    client.conn.write_tls(&mut client.sock).unwrap();
    end.send(()).unwrap();
    let mut heard = Vec::new();

    client.read_to_end(&mut heard).unwrap();
    assert_eq!(read_answers(&heard)[0].body, b"all of it");
    // The end, and no reset.
    assert_eq!(client.sock.read(&mut [0]).ok(), Some(0));
    serving.join().unwrap();
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _buf: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

/// A server without the means to serve says so over TLS too.
#[test]
fn a_refusal_is_heard() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut stream = acceptor.accept(Peer::new(
        &Arc::new(authority.client(BOTH)),
        "localhost",
        GET,
    ));
    let mut state = server().open(&mut stream).unwrap();
    stream.handshake().unwrap();
    assert!(server().refuse(&mut stream, &mut state));
    let answers = read_answers(&stream.get_ref().heard);

    assert_eq!((answers.len(), answers[0].status), (1, 503));
    assert!(stream.get_ref().heard_end);
}

/// A client may change its keys at any time (RFC 8446, 4.6.3).
#[test]
fn keys_are_changed_between_two_requests() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut peer = Peer::new(&Arc::new(authority.client(EACH[0])), "localhost", GET);
    peer.then = Silence::Stall;
    let mut stream = acceptor.accept(Renewing(peer));
    let mut state = server().open(&mut stream).unwrap();

    for turn in 1..4 {
        assert!(matches!(
            server().serve_ready(&mut stream, &mut state),
            Next::Idle(_)
        ));
        assert_eq!(read_answers(&stream.get_ref().0.heard).len(), turn);
    }
}

/// Whenever its client has nothing to say, it changes its keys and asks again.
struct Renewing(Peer);

impl Read for Renewing {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let answered = !self.0.heard.is_empty();
        if answered
            && self.0.says.is_empty()
            && self.0.sent.is_empty()
            && !self.0.client.wants_write()
        {
            self.0.client.refresh_traffic_keys().unwrap();
            self.0.says = GET.into();
        }
        self.0.read(buf)
    }
}

impl Write for Renewing {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Renewing {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.0.shutdown_write()
    }
}
