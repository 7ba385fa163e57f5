//! Who is served when there are bounds on what is in progress, over TLS and without; and what keeps
//! a fiber.

use std::io::{Read, Write};
use std::net::TcpStream as OsStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use plainweave::net::TcpListener;
use plainweave::{Io, Runtime};
use plainweave_http::accept::{Fault, InProgress};
use plainweave_http::{Handler, Server};

use super::peer::{Authority, BOTH};
use super::sockets::{ask, connect};
use crate::support::{read_answers, server};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn on_each_driver(test: impl Fn(&Runtime)) {
    for io in [Io::Epoll, Io::Uring] {
        let runtime = Runtime::builder()
            .workers(2)
            .io(io)
            .report_stalls(false)
            .build();
        match runtime {
            Ok(runtime) => test(&runtime),
            Err(error) if io == Io::Uring => crate::skip::skip(&format!("io_uring: {error}")),
            Err(error) => panic!("{error}"),
        }
    }
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + HANG;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks on a connection that stays, and returns the answer's status.
fn status(stream: &mut (impl Read + Write)) -> u16 {
    stream.write_all(REQUEST).expect("sent");
    let mut heard = Vec::new();
    while read_answers(&heard).is_empty() {
        let mut buf = [0; 1024];
        let len = stream.read(&mut buf).expect("an answer");
        assert!(len > 0, "the end, in place of an answer");
        heard.extend_from_slice(&buf[..len]);
    }
    read_answers(&heard)[0].status
}

/// Starts a server without TLS.
fn start<H: Handler>(runtime: &Runtime, server: &Arc<Server<H>>) -> OsStream {
    let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = listener.local_addr().expect("an address");
    runtime.run(|| server.start(listener)).expect("started");
    let stream = OsStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANG)).expect("set");
    stream
}

#[test]
fn requests_beyond_the_bound_are_answered_503() {
    on_each_driver(|runtime| {
        let requests = Arc::new(InProgress::new(1));
        let faults = Arc::new(AtomicUsize::new(0));
        let seen = faults.clone();
        let server = server()
            .with_requests_in_progress(requests.clone())
            .on_fault(move |fault| {
                assert!(matches!(fault, Fault::TooManyRequests { max: 1 }));
                seen.fetch_add(1, SeqCst);
            });
        let server = Arc::new(server);
        let mut one = start(runtime, &server);
        assert_eq!(status(&mut one), 200);
        eventually("the permit is back", || requests.now() == 0);

        let held = requests.begin().expect("the only one");
        one.write_all(REQUEST).expect("sent");
        let mut rest = Vec::new();
        one.read_to_end(&mut rest).expect("an end");
        let answer = &read_answers(&rest)[0];
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("1"))
        );
        // Noted behind the answer.
        eventually("it is noted", || {
            (requests.shed(), faults.load(SeqCst)) == (1, 1)
        });

        drop(held);
        let address = one.peer_addr().expect("an address");
        let mut another = OsStream::connect(address).expect("connected");
        assert_eq!(status(&mut another), 200);
        assert!(server.shutdown(HANG));
    });
}

#[test]
fn handshakes_beyond_the_bound_are_given_up() {
    let authority = Authority::new("authority");
    let config = Arc::new(authority.client(BOTH));
    on_each_driver(|runtime| {
        let handshakes = Arc::new(InProgress::new(1));
        let server = Arc::new(server().with_handshakes_in_progress(handshakes.clone()));
        let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let address = listener.local_addr().expect("an address");
        let listener = authority.acceptor().listen(listener);
        runtime.run(|| server.start(listener)).expect("started");

        // Those that are over need no permit.
        let mut established = connect(address, &config);
        assert_eq!(status(&mut established), 200);
        eventually("the permit is back", || handshakes.now() == 0);
        let held = handshakes.begin().expect("the only one");
        assert_eq!(status(&mut established), 200);

        assert!(ask(address, &config).is_err());
        eventually("it is noted", || handshakes.shed() > 0);
        drop(held);
        ask(address, &config).expect("served");
        assert!(server.shutdown(HANG));
    });
}

#[test]
fn idle_connections_have_a_fiber_only_where_they_keep_it() {
    const MANY: usize = 20;
    let authority = Authority::new("authority");
    let config = Arc::new(authority.client(BOTH));
    for kept in [false, true] {
        on_each_driver(|runtime| {
            let server = Arc::new(if kept {
                server().with_fibers_kept()
            } else {
                server()
            });
            let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0").expect("a port"));
            let address = listener.local_addr().expect("an address");
            let listener = authority.acceptor().listen(listener);
            runtime.run(|| server.start(listener)).expect("started");

            let mut clients: Vec<_> = (0..MANY).map(|_| connect(address, &config)).collect();
            for client in &mut clients {
                assert_eq!(status(client), 200);
            }
            // And one that is silent in its handshake.
            let silent = OsStream::connect(address).expect("connected");
            eventually("all are accepted", || server.counts().open == MANY + 1);
            let fibers = if kept { MANY as u64 + 1 } else { 0 };
            eventually("the fibers that are kept", || {
                runtime.metrics().live_fibers == fibers
            });
            for client in &mut clients {
                assert_eq!(status(client), 200);
            }
            drop(silent);
            assert!(server.shutdown(HANG));
        });
    }
}
