//! How requests and connections end: by the client, by the server, by time.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::Method;
use plainweave::sync::Notify;
use plainweave::time::sleep;
use plainweave_http::{Body, Limits, Request, Response, Server};

use super::client::{Client, HANG, beside, eventually, head};
use super::raw::{
    CANCEL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, NO_ERROR, PING, PREFACE, RST_STREAM,
    Raw, SETTINGS, WINDOW_UPDATE, frame, get, post,
};
use crate::support::server;

/// Handlers that wait for ever unless they are cancelled.
#[derive(Clone, Default)]
struct Waiting {
    begun: Arc<AtomicUsize>,
    /// How many have noticed that they are cancelled.
    cancelled: Arc<AtomicUsize>,
}

impl Waiting {
    fn reset(&self) {
        self.begun.store(0, SeqCst);
        self.cancelled.store(0, SeqCst);
    }
}

fn waiting(seen: &Waiting) -> Server<impl Fn(&mut Request<'_>) -> Response + use<>> {
    let Waiting { begun, cancelled } = seen.clone();
    Server::new(move |request: &mut Request<'_>| {
        begun.fetch_add(1, SeqCst);
        let count = |failed: bool| _ = cancelled.fetch_add(failed.into(), SeqCst);
        match request.path() {
            "/sleep" => count(sleep(HANG * 10).is_err()),
            "/read" => count(request.read(&mut [0]).is_err()),
            "/write" => {
                let cancelled = cancelled.clone();
                return Response::ok(Body::writer(move |out| {
                    while out.write_all(&[0; 1000]).and_then(|()| out.flush()).is_ok() {}
                    cancelled.fetch_add(1, SeqCst);
                    Ok(())
                }));
            }
            _ => {}
        }
        Response::ok("done")
    })
}

const PATHS: [&str; 3] = ["/sleep", "/read", "/write"];

#[test]
fn a_reset_cancels_the_request() {
    let seen = Waiting::default();
    beside(
        || waiting(&seen),
        |_, address| {
            seen.reset();
            let mut raw = Raw::connect(address);
            for (n, path) in PATHS.into_iter().enumerate() {
                let id = 1 + 2 * u32::try_from(n).expect("few");
                raw.send(HEADERS, END_HEADERS, id, &post(path));
                eventually(|| seen.begun.load(SeqCst) == n + 1);
                raw.send(RST_STREAM, 0, id, &CANCEL.to_be_bytes());
                eventually(|| seen.cancelled.load(SeqCst) == n + 1);
            }

            // What the third has sent is not read, and fills the connection's window.
            raw.send(WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes());
            // The head of a request and its reset at once.
            let both = [
                frame(HEADERS, END_HEADERS, 7, &post("/sleep")),
                frame(RST_STREAM, 0, 7, &[0, 0, 0, 8]),
            ];
            raw.bytes(&both.concat()).expect("sent");
            raw.get(9, "/other");
            assert!(
                std::iter::from_fn(|| raw.next()).any(|frame| frame.kind == DATA && frame.id == 9)
            );
        },
    );
}

#[test]
fn a_client_that_leaves_cancels_its_requests() {
    let seen = Waiting::default();
    beside(
        || waiting(&seen),
        |server, address| {
            seen.reset();
            let mut raw = Raw::connect(address);
            for (n, path) in PATHS.into_iter().enumerate() {
                raw.send(
                    HEADERS,
                    END_HEADERS,
                    1 + 2 * u32::try_from(n).expect("few"),
                    &post(path),
                );
            }

            eventually(|| seen.begun.load(SeqCst) == PATHS.len());
            drop(raw);
            eventually(|| seen.cancelled.load(SeqCst) == PATHS.len() && server.counts().open == 0);
        },
    );
}

/// A conversation that is cut behind each of its bytes leaves nothing.
#[test]
fn a_client_may_vanish_at_any_byte() {
    let conversation = [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]),
        frame(WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes()),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/big")),
        frame(HEADERS, END_HEADERS, 3, &post("/echo")),
        frame(DATA, 0, 3, b"body"),
        frame(PING, 0, 0, &[0; 8]),
        frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()),
        frame(DATA, END_STREAM, 3, b"end"),
        frame(GOAWAY, 0, 0, &[0; 8]),
    ]
    .concat();
    beside(server, |server, address| {
        for len in 0..=conversation.len() {
            let mut stream = plainweave::net::TcpStream::connect(address).expect("connected");
            stream.write_all(&conversation[..len]).expect("sent");
            if len % 3 == 0 {
                sleep(Duration::from_micros(200)).expect("not cancelled");
            }
        }

        eventually(|| {
            server.counts().accepted == conversation.len() as u64 + 1 && server.counts().open == 0
        });
    });
}

#[test]
fn a_stop_waits_for_requests_in_progress_and_says_so() {
    let begun = Arc::new(Notify::new());
    let go_on = Arc::new(Notify::new());
    let handler = || {
        let begun = begun.clone();
        let go_on = go_on.clone();
        move |_: &mut Request<'_>| {
            begun.notify_one();
            go_on.wait().expect("not cancelled");
            Response::ok("done")
        }
    };

    beside(
        || Server::new(handler()),
        |server, address| {
            let mut client = Client::connect(address);
            let request = client.begin(head(Method::GET, "/"), true);
            begun.wait().expect("not cancelled");
            let stopping = {
                let server = server.clone();
                plainweave::spawn(move || server.shutdown(HANG))
            };

            eventually(|| server.is_stopping());
            sleep(Duration::from_millis(10)).expect("not cancelled");
            go_on.notify_one();
            assert_eq!(request.answer().expect("answered").body, b"done");
            client.ended().expect("without an error");
            assert!(stopping.join().expect("no panic"));
        },
    );
}

/// Also one that never says that it has seen it.
#[test]
fn a_stop_ends_idle_connections() {
    let limits = || Limits {
        linger_timeout: Duration::from_millis(50),
        ..Limits::default()
    };

    beside(
        || server().with_limits(limits()),
        |server, address| {
            let mut raw = Raw::connect(address);
            raw.get(1, "/a");
            assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");
            sleep(Duration::from_millis(10)).expect("not cancelled");
            server.stop();
            assert_eq!(raw.ends_by(), Some(NO_ERROR));
        },
    );
}

/// The one in progress is served, what comes later is not.
#[test]
fn a_connection_has_as_many_requests_as_it_may() {
    let few = || {
        server().with_limits(Limits {
            requests: 2,
            ..Limits::default()
        })
    };

    beside(few, |_, address| {
        let mut client = Client::connect(address);
        assert_eq!(
            (client.get("/1").status(), client.get("/2").status()),
            (200, 200)
        );
        client.ended().expect("without an error");
    });
}

#[test]
fn an_answer_may_ask_to_be_the_last() {
    beside(server, |_, address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/close").body, b"bye");
        client.ended().expect("without an error");
    });
}

#[test]
fn silence_ends_a_connection_and_pings_are_silence() {
    let quick = || Limits {
        idle_timeout: Duration::from_millis(150),
        ..Limits::default()
    };

    beside(
        || server().with_limits(quick()),
        |_, address| {
            let mut raw = Raw::connect(address);
            raw.get(1, "/a");
            assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");

            for _ in 0..1000 {
                sleep(Duration::from_millis(20)).expect("not cancelled");
                if raw.bytes(&frame(PING, 0, 0, &[0; 8])).is_err() {
                    return;
                }
            }

            panic!("pings keep it open");
        },
    );
}

#[test]
fn an_idle_connection_is_told_that_it_ends() {
    let quick = || Limits {
        idle_timeout: Duration::from_millis(50),
        ..Limits::default()
    };

    beside(
        || server().with_limits(quick()),
        |_, address| {
            let mut raw = Raw::connect(address);
            raw.get(1, "/a");
            assert_eq!(raw.ends_by(), Some(NO_ERROR));
        },
    );
}

/// A request is in progress as long as its handler takes.
#[test]
fn a_slow_handler_is_not_silence() {
    let quick = || Limits {
        idle_timeout: Duration::from_millis(30),
        ..Limits::default()
    };

    let slow = |_: &mut Request<'_>| {
        sleep(Duration::from_millis(150)).expect("not cancelled");
        Response::ok("slow")
    };

    beside(
        || Server::new(slow).with_limits(quick()),
        |_, address| assert_eq!(Client::connect(address).get("/").body, b"slow"),
    );
}
