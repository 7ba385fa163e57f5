//! The crate page's graceful stop, on fibers: with a fiber for each connection, and without one
//! while it is idle.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as OsStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use plainweave::net::{HasSocket, SocketRef, TcpListener, TcpStream, on_readable};
use plainweave::{Io, Runtime};
use plainweave_http::{ConnState, Handler, Limits, Next, Request, Response, Server};

use crate::support::read_answers;

/// What takes longer hangs; the limits of the server's own waits are far above.
const HANG: Duration = Duration::from_secs(30);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[derive(Clone, Copy, Debug)]
enum Style {
    FiberEach,
    Parked,
}

struct Parked(TcpStream);

impl HasSocket for Parked {
    fn socket(&self) -> SocketRef<'_> {
        self.0.socket()
    }
}

fn park<H: Handler + 'static>(
    server: Arc<Server<H>>,
    stream: Parked,
    mut state: ConnState,
    limit: Duration,
) {
    on_readable(stream, Some(limit), move |mut stream, outcome| {
        if outcome.is_ok()
            && let Next::Idle(limit) = server.serve_ready(&mut stream.0, &mut state)
        {
            park(server, stream, state, limit);
        }
    });
}

fn accept<H: Handler + 'static>(server: &Arc<Server<H>>, listener: &TcpListener, style: Style) {
    while let Ok((mut stream, _)) = listener.accept() {
        let server = server.clone();
        match style {
            Style::FiberEach => drop(plainweave::spawn(move || server.serve_stream(stream))),
            Style::Parked => {
                let state = server.open(&mut stream).expect("opened");
                park(server, Parked(stream), state, HANG);
            }
        }
    }
}

fn connect(address: SocketAddr) -> OsStream {
    let stream = OsStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANG)).expect("set");
    stream
}

/// Sends a request and reads its answer, in one piece.
fn ask(mut stream: &OsStream) -> Option<&'static str> {
    stream.write_all(GET).ok()?;
    let mut buf = [0; 1024];
    let len = stream.read(&mut buf).ok().filter(|len| *len > 0)?;
    Some(
        if read_answers(&buf[..len])[0].header("connection") == Some("close") {
            "close"
        } else {
            "keep"
        },
    )
}

fn everywhere(test: impl Fn(Io, Style)) {
    for io in [Io::Epoll, Io::Uring] {
        for style in [Style::FiberEach, Style::Parked] {
            test(io, style);
        }
    }
}

/// Idle clients, those that have the next request ready at once, and one whose request is in
/// progress.
#[test]
fn a_stop_waits_for_requests_in_progress_and_for_nothing_else() {
    everywhere(|io, style| {
        let limits = Limits {
            idle_timeout: HANG * 10,
            header_timeout: HANG * 10,
            ..Limits::default()
        };

        let served = Arc::new(AtomicUsize::new(0));
        let (counted, (slow_began, slow_begins)) = (served.clone(), mpsc::channel());
        let handler = move |request: &mut Request<'_>| {
            if request.path() == "/slow" {
                slow_began.send(()).expect("awaited");
                plainweave::time::sleep(Duration::from_millis(100)).expect("not cancelled");
            }

            counted.fetch_add(1, Ordering::SeqCst);
            Response::ok("x")
        };

        let server = Arc::new(Server::new(handler).with_limits(limits));
        let runtime = Runtime::builder()
            .workers(2)
            .io(io)
            .build()
            .expect("a runtime");
        let listener = runtime
            .run(|| TcpListener::bind("127.0.0.1:0"))
            .expect("bound");
        let address = listener.local_addr().expect("bound");
        let accepting = listener.try_clone().expect("cloned");
        let accepted = server.clone();

        drop(runtime.spawn(move || accept(&accepted, &accepting, style)));

        let idle: Vec<_> = (0..5).map(|_| connect(address)).collect();
        idle.iter()
            .for_each(|client| assert_eq!(ask(client), Some("keep")));
        let silent = connect(address);
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let client = connect(address);
                assert_eq!(ask(&client), Some("keep"));
                std::thread::spawn(move || {
                    let mut last = Some("keep");
                    while last == Some("keep") {
                        last = ask(&client);
                    }
                    last
                })
            })
            .collect();
        let mut slow = connect(address);

        slow.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            .expect("sent");

        // A request that has not been read by the stop, nor perhaps its connection accepted, is not
        // in progress.
        slow_begins.recv_timeout(HANG).expect("in progress");
        let before = served.load(Ordering::SeqCst);
        while served.load(Ordering::SeqCst) < before + 100 {
            std::thread::yield_now();
        }

        server.stop();
        listener.close();
        runtime.close_idle_connections();
        assert!(runtime.wait_idle(HANG), "{io:?} {style:?}");

        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).expect("answered");
        assert_eq!(read_answers(&answer).len(), 1, "{io:?} {style:?}");
        for mut client in idle.into_iter().chain([silent]) {
            assert!(matches!(client.read(&mut [0]), Ok(0)), "{io:?} {style:?}");
        }

        for client in busy {
            let last = client.join().expect("no panic");
            // The last answer says so, unless the connection was idle when the server stopped.
            assert!(matches!(last, Some("close") | None), "{io:?} {style:?}");
        }
    });
}
