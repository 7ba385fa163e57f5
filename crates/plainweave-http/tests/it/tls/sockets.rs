//! Over sockets: on threads and on fibers, on both drivers, with and without a fiber for each
//! connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener as OsListener, TcpStream as OsStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave::net::{TcpListener, TcpStream, on_readable};
use plainweave::{Io, Runtime};
use plainweave_http::tls::{Acceptor, TlsStream};
use plainweave_http::{ConnState, Handler, Handshake, Layer, Limits, Next, Server, Transport};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::conversations::GET;
use super::peer::{Authority, BOTH};
use crate::support::{read_answers, server};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

pub(super) type Client = StreamOwned<ClientConnection, OsStream>;

pub(super) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Client {
    let stream = OsStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let host = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), host).unwrap(), stream)
}

/// Asks a few times over one connection, then leaves as one should.
fn converse(address: SocketAddr, config: &Arc<ClientConfig>) {
    let mut client = connect(address, config);
    for _ in 0..3 {
        client.write_all(GET.as_bytes()).unwrap();
        let mut heard = Vec::new();
        while read_answers(&heard).is_empty() {
            let mut buf = [0; 1024];
            let len = client.read(&mut buf).unwrap();
            assert!(len > 0);
            heard.extend_from_slice(&buf[..len]);
        }

        assert_eq!(read_answers(&heard)[0].body, b"/a");
    }

    client
        .write_all(b"GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    assert_eq!(read_answers(&heard)[0].body.len(), 100_000);
}

/// Asks once.
pub(super) fn ask(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<()> {
    let mut client = connect(address, config);
    client.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut heard = Vec::new();
    client.read_to_end(&mut heard)?;
    assert_eq!(read_answers(&heard)[0].body, b"/a");
    Ok(())
}

/// A request that the server's end is waited for by.
fn converse_together(address: SocketAddr, config: &Arc<ClientConfig>) {
    std::thread::scope(|scope| {
        (0..8).for_each(|_| _ = scope.spawn(|| converse(address, config)));
    });
}

#[test]
fn threads() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = server();
    std::thread::scope(|scope| {
        let acceptor = &acceptor;
        let server = &server;
        let accepting = scope.spawn(move || {
            std::thread::scope(|scope| {
                for stream in listener.incoming().take(8) {
                    let stream = acceptor.accept(stream.unwrap());
                    scope.spawn(move || server.serve_stream(stream));
                }
            });
        });

        converse_together(address, &config);
        accepting.join().unwrap();
    });

    assert_eq!(
        (acceptor.counts().completed, acceptor.counts().failed),
        (8, 0)
    );
}

/// The library's own accept loop, on threads and on fibers.
#[test]
fn a_server_that_accepts() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let threads = Arc::new(server());

    threads.start(acceptor.listen(listener)).unwrap();
    converse_together(address, &config);
    assert!(threads.shutdown(HANG));

    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .unwrap();
    let fibers = Arc::new(server());
    let address = runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        fibers.start(acceptor.listen(listener)).unwrap();
        address
    });

    converse_together(address, &config);
    assert!(runtime.run(|| fibers.shutdown(HANG)));
    assert_eq!(
        (acceptor.counts().completed, acceptor.counts().failed),
        (16, 0)
    );
}

/// One turn of a connection that has no fiber while it waits, in its handshake too.
fn turn<H: Handler>(
    server: &Server<H>,
    stream: &mut TlsStream<TcpStream>,
    state: &mut ConnState,
) -> Next {
    if stream.is_handshaking() {
        match stream.step() {
            Ok(Handshake::Waits(left)) => return Next::Idle(left),
            Ok(Handshake::Done) if stream.holds_input() => {}
            Ok(Handshake::Done) => return Next::Idle(server.limits().header_timeout),
            Err(_) => return Next::Close,
        }
    }
    server.serve_ready(stream, state)
}

fn park<H: Handler>(
    server: Arc<Server<H>>,
    stream: TlsStream<TcpStream>,
    mut state: ConnState,
    limit: Duration,
) {
    on_readable(stream, Some(limit), move |mut stream, outcome| {
        if outcome.is_ok()
            && let Next::Idle(limit) = turn(&server, &mut stream, &mut state)
        {
            park(server, stream, state, limit);
        }
    });
}

/// Accepts until the listener is closed.
fn accept<H: Handler>(
    server: &Arc<Server<H>>,
    acceptor: &Acceptor,
    listener: &TcpListener,
    fiber_each: bool,
) {
    while let Ok((stream, _)) = listener.accept() {
        let server = server.clone();
        let mut stream = acceptor.accept(stream);
        if fiber_each {
            plainweave::spawn(move || server.serve_stream(stream));
        } else {
            let state = server.open(&mut stream).unwrap();
            let limit = server.limits().handshake_timeout;
            park(server, stream, state, limit);
        }
    }
}

/// Runs `test` against a server on fibers, on each driver and in both styles.
fn everywhere(limits: &Limits, test: impl Fn(SocketAddr, &Arc<ClientConfig>, &Acceptor)) {
    let authority = Authority::new("authority");
    let config = Arc::new(authority.client(BOTH));
    for io in [Io::Epoll, Io::Uring] {
        for fiber_each in [true, false] {
            let acceptor = authority.acceptor();
            let server = Arc::new(server().with_limits(limits.clone()));
            let runtime = Runtime::builder()
                .workers(2)
                .max_workers(2)
                .report_stalls(false)
                .io(io)
                .build()
                .unwrap();
            let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let accepting = listener.try_clone().unwrap();
            let by = acceptor.clone();
            let accepted = server.clone();

            drop(runtime.spawn(move || accept(&accepted, &by, &accepting, fiber_each)));
            test(address, &config, &acceptor);
            server.stop();
            listener.close();
            runtime.close_idle_connections();
            assert!(runtime.wait_idle(HANG), "{io:?} {fiber_each}");
        }
    }
}

#[test]
fn fibers() {
    everywhere(&Limits::default(), |address, config, acceptor| {
        converse_together(address, config);
        assert_eq!(
            (acceptor.counts().completed, acceptor.counts().failed),
            (8, 0)
        );
    });
}

/// Clients that begin a handshake and go silent, at several places, are cut after its time; others
/// are served at once.
#[test]
fn half_open_handshakes_end_and_delay_nobody() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(150),
        ..Limits::default()
    };

    everywhere(&limits, |address, config, _| {
        let silent: Vec<OsStream> = (0..12)
            .map(|n| {
                let mut hello = Vec::new();
                let host = ServerName::try_from("localhost").unwrap();
                let mut client = ClientConnection::new(config.clone(), host).unwrap();
                client.write_tls(&mut hello).unwrap();
                let mut stream = OsStream::connect(address).unwrap();
                stream.set_read_timeout(Some(HANG)).unwrap();

                // From a single byte to all of the first flight.
                stream
                    .write_all(&hello[..(1 + hello.len() * n / 11).min(hello.len())])
                    .unwrap();
                stream
            })
            .collect();
        // Its own handshake has as little time, on a machine that may be busy: it tries again.
        let start = Instant::now();
        while let Err(error) = ask(address, config) {
            assert!(start.elapsed() < HANG, "{error}");
        }

        for mut stream in silent {
            let mut rest = Vec::new();
            // The end, or a reset over what was not read.
            let _ = stream.read_to_end(&mut rest);
        }
    });
}

/// A stop does not wait for handshakes, nor for connections between two requests.
#[test]
fn a_stop_ends_handshakes_and_idle_connections() {
    let limits = Limits {
        handshake_timeout: HANG * 10,
        idle_timeout: HANG * 10,
        ..Limits::default()
    };

    let held = std::sync::Mutex::new(Vec::new());
    everywhere(&limits, |address, config, acceptor| {
        let mut idle = connect(address, config);
        idle.write_all(GET.as_bytes()).unwrap();
        assert!(idle.read(&mut [0; 1024]).unwrap() > 0);
        let half = OsStream::connect(address).unwrap();
        (&half).write_all(b"\x16").unwrap();
        while acceptor.counts().completed < 1 {
            std::thread::yield_now();
        }
        held.lock().unwrap().push((idle, half));
    });
}

/// As a server does that stops: a peer that is silent in its handshake is waited for no longer than
/// an idle one.
#[test]
fn a_short_wait_is_short_in_a_handshake() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let mut client = OsStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut stream = acceptor.accept(listener.accept().unwrap().0);
    stream.set_handshake_timeout(HANG);
    assert!(!stream.wait_readable(Duration::from_millis(5)).unwrap());
    client.write_all(b"\x16\x03").unwrap();
    assert!(!stream.wait_readable(Duration::from_millis(5)).unwrap());
    assert!(stream.is_handshaking());
    assert_eq!(acceptor.counts().failed, 0);
}
