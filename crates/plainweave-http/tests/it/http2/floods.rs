//! Clients that cost and ask for nothing, hold and do not read, promise and do not send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use plainweave::time::sleep;
use plainweave_http::{Http2Limits, Limits, Request, Response, Server};

use super::client::{HANG, beside, eventually};
use super::raw::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING,
    PRIORITY, REFUSED_STREAM, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, fields, frame, get, post,
};
use crate::support::server;

fn limited(http2: Http2Limits, limits: Limits) -> Server<fn(&mut Request<'_>) -> Response> {
    server().with_limits(Limits {
        http2: Some(http2),
        ..limits
    })
}

/// Each of these is ended, and another client is served meanwhile and afterwards.
#[test]
fn frames_that_ask_for_nothing_are_bounded() {
    let few = || {
        limited(
            Http2Limits {
                control_frames: 200,
                ..Http2Limits::default()
            },
            Limits::default(),
        )
    };

    beside(few, |server, address| {
        let floods = [
            frame(PING, 0, 0, &[0; 8]),
            frame(SETTINGS, 0, 0, &[]),
            frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            // A type that nobody knows.
            frame(99, 0, 0, b"?"),
        ];
        for flood in floods {
            let mut raw = Raw::connect(address);
            raw.flood(&flood, 2000);
            // What was sent to it may be lost to a reset; that it has ended is not.
            let end = raw.ends_by();
            assert!(matches!(end, None | Some(ENHANCE_YOUR_CALM)), "{end:?}");
            let mut other = Raw::connect(address);

            other.get(1, "/a");
            assert_eq!(other.next_of(DATA).expect("an answer").payload, b"/a");
        }
        eventually(|| server.counts().open == 0);
    });
}

#[test]
fn a_client_is_told_why() {
    // However slow the client is: a reset would take what it has not read yet.
    let patient = || Limits {
        linger_timeout: HANG,
        ..Limits::default()
    };

    let few = || {
        limited(
            Http2Limits {
                control_frames: 20,
                ..Http2Limits::default()
            },
            patient(),
        )
    };

    beside(few, |_, address| {
        let mut raw = Raw::connect(address);
        raw.flood(&frame(PING, 0, 0, &[0; 8]), 30);
        assert_eq!(raw.ends_by(), Some(ENHANCE_YOUR_CALM));

        // All of it may be there when the connection begins.
        let mut raw = Raw::connect_with(address, &frame(PING, 0, 0, &[0; 8]).repeat(30));
        assert_eq!(raw.ends_by(), Some(ENHANCE_YOUR_CALM));
    });
}

/// Data pays for window updates: a client that downloads sends thousands.
#[test]
fn a_download_is_no_flood() {
    let few = || {
        limited(
            Http2Limits {
                control_frames: 20,
                ..Http2Limits::default()
            },
            Limits::default(),
        )
    };

    beside(few, |_, address| {
        let mut raw = Raw::connect(address);
        let mut updates = 0;
        for id in (1..20).step_by(2) {
            raw.get(id, "/big");
            let mut left = 100_000;
            while left > 0 {
                let data = raw.next_of(DATA).expect("data").payload.len();
                left -= data;
                for stream in [0, id] {
                    let len = u32::try_from(data).expect("short").to_be_bytes();
                    // The last one finds the stream closed, which is no error.
                    raw.send(WINDOW_UPDATE, 0, stream, &len);
                    updates += 1;
                }
            }
        }

        assert!(updates > 60, "{updates}");
    });
}

/// CVE-2023-44487: requests that are cancelled at once.
#[test]
fn rapid_resets_are_bounded() {
    let handled = Arc::new(AtomicUsize::new(0));
    let make = || {
        let handled = handled.clone();
        let handler = move |_: &mut Request<'_>| {
            handled.fetch_add(1, SeqCst);
            Response::ok("")
        };

        let http2 = Http2Limits {
            resets: 50,
            ..Http2Limits::default()
        };

        Server::new(handler).with_limits(Limits {
            http2: Some(http2),
            ..Limits::default()
        })
    };

    // In one piece with the request, and when it is in progress already.
    for pause in [false, true] {
        beside(make, |_, address| {
            handled.store(0, SeqCst);
            let mut raw = Raw::connect(address);
            for id in (1..2000).step_by(2) {
                let request = frame(HEADERS, END_STREAM | END_HEADERS, id, &get("/"));
                let reset = frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes());
                let sent = raw.bytes(&request).and_then(|()| {
                    if pause {
                        plainweave::yield_now();
                    }
                    raw.bytes(&reset)
                });

                if sent.is_err() {
                    break;
                }
            }

            assert!(matches!(raw.ends_by(), None | Some(ENHANCE_YOUR_CALM)));
            assert!(handled.load(SeqCst) < 500, "{handled:?}");
        });
    }
}

/// A handler that goes on after its client has cancelled still counts.
#[test]
fn handlers_in_progress_are_bounded_whatever_the_client_cancels() {
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let make = || {
        let now = now.clone();
        let most = most.clone();
        let stubborn = move |_: &mut Request<'_>| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            // Cancelled, and goes on.
            while sleep(Duration::from_secs(60)).is_ok() {}
            (0..20_000).for_each(|_| plainweave::yield_now());
            now.fetch_sub(1, SeqCst);
            Response::ok("")
        };

        let http2 = Http2Limits {
            streams: 4,
            ..Http2Limits::default()
        };

        Server::new(stubborn).with_limits(Limits {
            http2: Some(http2),
            ..Limits::default()
        })
    };

    beside(make, |_, address| {
        let mut raw = Raw::connect(address);
        for id in (1..80).step_by(2) {
            raw.get(id, "/");
            raw.send(RST_STREAM, 0, id, &CANCEL.to_be_bytes());
            // Resets of what nobody has begun with are bounded elsewhere.
            sleep(Duration::from_millis(1)).expect("not cancelled");
        }

        drop(raw);
        eventually(|| now.load(SeqCst) == 0);
        assert!((1..=4).contains(&most.load(SeqCst)), "{most:?}");
    });
}

#[test]
fn more_requests_than_allowed_are_refused() {
    let few = || {
        limited(
            Http2Limits {
                streams: 2,
                ..Http2Limits::default()
            },
            Limits::default(),
        )
    };

    beside(few, |_, address| {
        let mut raw = Raw::connect(address);
        // Two that wait for their bodies.
        raw.send(HEADERS, END_HEADERS, 1, &post("/echo"));
        raw.send(HEADERS, END_HEADERS, 3, &post("/echo"));
        raw.get(5, "/a");
        let reset = raw.next_of(RST_STREAM).expect("a refusal");

        assert_eq!((reset.id, reset.code()), (5, REFUSED_STREAM));
        raw.send(DATA, END_STREAM, 1, b"body");
        assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"body");
    });
}

/// CVE-2024-27316 and others: fields without an end.
#[test]
fn fields_without_an_end_are_bounded() {
    beside(server, |server, address| {
        let mut raw = Raw::connect(address);
        raw.send(HEADERS, END_STREAM, 1, &get("/"));
        // A field of 16 KiB in each.
        let more = fields(0x82, "/", &[("x", &"y".repeat(16_000))])[11..].to_vec();
        raw.flood(&frame(CONTINUATION, 0, 1, &more), 1000);
        let end = raw.ends_by();

        assert!(matches!(end, None | Some(1..)), "{end:?}");
        eventually(|| server.counts().open == 0);

        // Empty ones.
        let mut raw = Raw::connect(address);
        raw.send(HEADERS, END_STREAM, 1, &get("/"));
        raw.flood(&frame(CONTINUATION, 0, 1, &[]), 5000);
        let end = raw.ends_by();
        assert!(matches!(end, None | Some(1..)), "{end:?}");
        eventually(|| server.counts().open == 0);
    });
}

/// A block that refers to one large field again and again.
fn bomb(references: usize) -> Vec<u8> {
    let mut block = get("/");
    // Into the table (RFC 7541, 6.2.1), then by its index.
    block.extend([0x40, 1, b'x', 127, 0xe1, 0x1d]);
    block.extend([b'y'; 127 + 0x61 + (0x1d << 7)]);
    block.extend(vec![0x80 | 62; references]);
    frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)
}

#[test]
fn a_bomb_of_fields_is_refused_unread() {
    beside(server, |server, address| {
        // Somewhat more than a head may have.
        let mut raw = Raw::connect(address);
        raw.bytes(&bomb(6)).expect("sent");
        // 431, which is in no table, and nothing else.
        assert!(raw.next_of(HEADERS).expect("an answer").payload.len() < 12);
        raw.get(3, "/a");
        assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");
        drop(raw);
        let mut raw = Raw::connect(address);

        raw.bytes(&bomb(8000)).expect("sent");
        assert!(matches!(raw.ends_by(), None | Some(1..)));
        eventually(|| server.counts().open == 0);
    });
}

#[test]
fn a_head_that_stops_in_the_middle_has_its_time() {
    let quick = || {
        limited(
            Http2Limits::default(),
            Limits {
                header_timeout: Duration::from_millis(100),
                ..Limits::default()
            },
        )
    };

    beside(quick, |server, address| {
        let whole = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/"));
        let open = frame(HEADERS, END_STREAM, 1, &get("/"));
        for part in [&b""[..], &whole[..5], &whole[..12], &open] {
            let mut raw = Raw::connect(address);
            raw.bytes(part).expect("sent");
            if !part.is_empty() {
                raw.ends_by();
            }
        }

        eventually(|| server.counts().open == 0);
        // Beside a request in progress, whose rest it would hold up.
        let mut raw = Raw::connect(address);
        raw.send(HEADERS, END_HEADERS, 1, &post("/echo"));
        raw.send(HEADERS, END_STREAM, 3, &get("/"));
        raw.ends_by();

        // The preface, too.
        let mut stream = plainweave::net::TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(HANG)).expect("set");
        std::io::Write::write_all(&mut stream, &super::raw::PREFACE[..20]).expect("sent");
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
        eventually(|| server.counts().open == 0);
    });
}

/// Windows that stay shut, for one stream and for the connection.
#[test]
fn a_client_that_does_not_read_is_cut() {
    let quick = || {
        let limits = Limits {
            write_timeout: Duration::from_millis(100),
            ..Limits::default()
        };
        limited(Http2Limits::default(), limits)
    };
    beside(quick, |_, address| {
        // A window of no bytes.
        let mut raw = Raw::connect(address);
        raw.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        raw.get(1, "/big");
        let reset = raw.next_of(RST_STREAM).expect("a reset");
        assert_eq!((reset.id, reset.code()), (1, CANCEL));

        // The connection itself goes on.
        raw.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]);
        raw.get(3, "/a");
        assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");

        // A socket that is not read: window updates in advance, so that only it is full.
        let mut raw = Raw::connect(address);
        raw.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        raw.send(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
        for id in (1..200).step_by(2) {
            raw.get(id, "/big");
        }
        sleep(Duration::from_millis(600)).expect("not cancelled");
        let mut came = 0;

        while let Some(frame) = raw.next() {
            came += frame.payload.len();
        }
        assert!(came < 10_000_000, "all of it has come");
    });
}

/// A body that stops costs its request alone.
#[test]
fn a_body_that_stops_has_its_time() {
    let quick = || {
        let limits = Limits {
            body_timeout: Duration::from_millis(100),
            ..Limits::default()
        };
        limited(Http2Limits::default(), limits)
    };

    beside(quick, |_, address| {
        let mut raw = Raw::connect(address);
        raw.send(HEADERS, END_HEADERS, 1, &post("/echo"));
        raw.send(DATA, 0, 1, b"a part");
        assert_eq!(
            raw.next_of(DATA).expect("an answer").payload,
            b"408 Request Timeout\n"
        );
        raw.get(3, "/a");
        let answer =
            std::iter::from_fn(|| raw.next()).find(|frame| frame.kind == DATA && frame.id == 3);

        assert_eq!(answer.expect("an answer").payload, b"/a");
    });
}

/// What clients without a library of today's send: dependencies and weights.
#[test]
fn priorities_are_tolerated() {
    beside(server, |_, address| {
        let mut raw = Raw::connect(address);
        raw.send(PRIORITY, 0, 1, &[0x80, 0, 0, 3, 200]);
        let mut block = vec![0x80, 0, 0, 3, 15];
        block.extend(fields(0x82, "/a", &[("priority", "u=1, i")]));
        raw.send(HEADERS, 0x20 | END_STREAM | END_HEADERS, 1, &block);
        assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");
    });
}
