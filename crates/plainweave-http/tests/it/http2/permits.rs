//! What a server that counts permits has to do with connections of HTTP/2: whatever waits for a
//! client has one.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use plainweave::net::{TcpListener, TcpStream};
use plainweave_http::accept::InProgress;
use plainweave_http::{Limits, Request, Response, Server};

use super::client::{HANG, beside, eventually};
use super::raw::{END_HEADERS, END_STREAM, HEADERS, PREFACE, Raw, SETTINGS, fields, frame, get};
use crate::support::server;

/// A refusal waits for no window, and neither does one of a request that is no good.
#[test]
fn refused_requests_do_not_wait_for_their_client() {
    const MANY: u32 = 20;
    // The setting of a stream's first window.
    const SHUT: &[u8] = &[0, 4, 0, 0, 0, 0];
    let permits = Arc::new(InProgress::new(1));
    let make = || {
        let limits = Limits {
            write_timeout: HANG * 10,
            min_rate: 0,
            ..Limits::default()
        };
        server()
            .with_limits(limits)
            .with_requests_in_progress(permits.clone())
    };

    beside(make, |server, address| {
        let mut raw = Raw {
            stream: TcpStream::connect(address).expect("connected"),
        };
        raw.stream.set_read_timeout(Some(HANG)).expect("set");
        raw.bytes(&[PREFACE, &frame(SETTINGS, 0, 0, SHUT)].concat())
            .expect("sent");
        assert!(raw.next_of(SETTINGS).is_some());
        eventually(|| permits.now() == 0);
        let _all = permits.begin().expect("the only one");
        let requests = (0..MANY).map(|n| {
            let block = if n % 2 == 0 {
                get("/")
            } else {
                fields(0x82, "/", &[("expect", "wonders")])
            };
            frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * n, &block)
        });

        raw.bytes(&requests.collect::<Vec<_>>().concat())
            .expect("sent");
        for _ in 0..MANY {
            let answer = raw.next_of(HEADERS).expect("answered");
            assert_eq!(answer.flags & END_STREAM, END_STREAM, "{answer:?}");
        }

        assert_eq!(server.counts().requests, 0);
    });
}

#[test]
fn a_connection_in_the_middle_of_a_frame_has_a_permit() {
    let permits = Arc::new(InProgress::new(1));
    let make = || server().with_requests_in_progress(permits.clone());

    beside(make, |server, address| {
        let mut one = Raw::connect(address);
        one.get(1, "/one");
        assert!(one.next_of(HEADERS).is_some());
        eventually(|| permits.now() == 0);
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 3, &get("/two"));
        one.bytes(&request[..5]).expect("sent");
        eventually(|| permits.now() == 1);

        // For another one there is none, in its first frame or in a later one.
        for part in [&PREFACE[..20], &[PREFACE, &request[..12]].concat()] {
            let mut other = TcpStream::connect(address).expect("connected");
            other.set_read_timeout(Some(HANG)).expect("set");
            other.write_all(part).expect("sent");
            let _ = other.read_to_end(&mut Vec::new());
        }

        eventually(|| server.counts().open == 1);
        // Its own request needs no second one.
        one.bytes(&request[5..]).expect("sent");
        assert_eq!(
            one.next_of(HEADERS).expect("answered").payload[0],
            0x88,
            "200"
        );
        eventually(|| permits.now() == 0);
    });
}

/// Of a server that counts requests by connections for HTTP/1.
#[test]
fn prior_knowledge_gives_the_permit_of_a_turn_back() {
    let held = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(AtomicUsize::new(0));
    struct Held(Arc<AtomicBool>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.store(false, SeqCst);
        }
    }
    let looked = held.clone();
    let counted = seen.clone();
    let server = Server::new(move |_: &mut Request<'_>| {
        counted.fetch_add(if looked.load(SeqCst) { 100 } else { 1 }, SeqCst);
        Response::ok("")
    });

    let runtime = plainweave::Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .build();
    runtime.expect("a runtime").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for (sent, by) in [
            (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), 100),
            (
                [
                    PREFACE,
                    &frame(SETTINGS, 0, 0, &[]),
                    &frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/")),
                ]
                .concat(),
                1,
            ),
        ] {
            let mut client = TcpStream::connect(address).expect("connected");
            client.write_all(&sent).expect("sent");
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut state = server.open(&mut stream).expect("opened");
            held.store(true, SeqCst);
            server.serve_ready_with(&mut stream, &mut state, Held(held.clone()));
            assert!(!held.load(SeqCst));
            assert_eq!(seen.swap(0, SeqCst), by);
        }
    });
}
