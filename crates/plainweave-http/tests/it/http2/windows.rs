//! Clients that give their windows back in ways of their own, and how much one of them can take.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use plainweave::net::TcpStream;
use plainweave::time::{now, sleep};
use plainweave_http::{Body, Http2Limits, Limits, Request, Response, Server};
use rustix::net::{AddressFamily, SocketType};

use super::client::{HANG, beside};
use super::raw::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, get,
};

const LEN: usize = 300_000;

/// Answers with a long body of the kind that the path names.
fn handle(request: &mut Request<'_>) -> Response {
    let bytes = || (0..LEN).map(|n| (n % 251) as u8).collect::<Vec<u8>>();
    Response::ok(match request.path() {
        "/bytes" => Body::from(bytes()),
        "/stream" => Body::reader(Cursor::new(bytes()), Some(LEN as u64)),
        "/writer" => Body::writer(move |out| {
            bytes()
                .chunks(10_000)
                .try_for_each(|piece| out.write_all(piece))
        }),
        "/1k" => Body::from(vec![b'k'; 1 << 10]),
        _ => Body::from("short"),
    })
}

fn server() -> Server<fn(&mut Request<'_>) -> Response> {
    Server::new(handle as fn(&mut Request<'_>) -> Response)
}

fn update(raw: &mut Raw<TcpStream>, stream: u32, bytes: usize) {
    raw.send(
        WINDOW_UPDATE,
        0,
        stream,
        &u32::try_from(bytes).expect("short").to_be_bytes(),
    );
}

/// What a client has got.
#[derive(Default)]
struct Got {
    bodies: BTreeMap<u32, Vec<u8>>,
    /// Frames of less than 100 bytes that were not a body's last.
    small: usize,
}

/// Reads until all of `streams` have ended, and has `give_back` answer each frame of data.
fn read(
    raw: &mut Raw<TcpStream>,
    streams: usize,
    mut give_back: impl FnMut(&mut Raw<TcpStream>, u32, usize),
) -> Got {
    let mut got = Got::default();
    let mut ended = 0;
    while ended < streams {
        let Some(frame) = raw.next() else {
            panic!("the connection has ended with {ended} answers")
        };
        assert_ne!(frame.kind, RST_STREAM, "an answer was broken off");
        let is_last = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
        ended += usize::from(is_last);

        if frame.kind == DATA {
            got.small += usize::from(!is_last && frame.payload.len() < 100);
            got.bodies
                .entry(frame.id)
                .or_default()
                .extend_from_slice(&frame.payload);
            give_back(raw, frame.id, frame.payload.len());
        }
    }
    got
}

#[track_caller]
fn is_whole(got: &Got, streams: usize) {
    assert_eq!(got.bodies.len(), streams);
    for body in got.bodies.values() {
        assert_eq!(body.len(), LEN);
        assert!(
            body.iter()
                .enumerate()
                .all(|(n, &byte)| byte == (n % 251) as u8)
        );
    }
}

/// Each frame at once and by itself, for its stream and for the connection: two window updates for
/// each.
#[test]
fn a_client_that_gives_back_every_frame_gets_many_files_at_once() {
    const FILES: usize = 50;
    beside(server, |_, address| {
        for path in ["/bytes", "/stream", "/writer"] {
            let mut raw = Raw::connect(address);
            (0..FILES as u32).for_each(|n| raw.get(1 + 2 * n, path));
            let got = read(&mut raw, FILES, |raw, id, len| {
                if len > 0 {
                    update(raw, 0, len);
                    update(raw, id, len);
                }
            });

            is_whole(&got, FILES);
            // At the ends of the connection's window there are some.
            assert!(
                got.small <= FILES,
                "{path}: {} frames of less than 100 bytes",
                got.small
            );
        }
    });
}

#[test]
fn a_client_that_gives_back_all_at_the_end_of_its_window_gets_its_files() {
    const FILES: usize = 10;
    beside(server, |_, address| {
        for path in ["/bytes", "/stream", "/writer"] {
            let mut raw = Raw::connect(address);
            (0..FILES as u32).for_each(|n| raw.get(1 + 2 * n, path));
            let mut taken = 0;
            let mut by_stream = BTreeMap::<u32, usize>::new();
            let got = read(&mut raw, FILES, |raw, id, len| {
                taken += len;
                *by_stream.entry(id).or_default() += len;
                if taken == 65_535 {
                    update(raw, 0, std::mem::take(&mut taken));
                    for (id, len) in std::mem::take(&mut by_stream)
                        .into_iter()
                        .filter(|(_, len)| *len > 0)
                    {
                        update(raw, id, len);
                    }
                }
            });

            is_whole(&got, FILES);
        }
    });
}

#[test]
fn small_answers_with_a_window_update_each_go_on_for_ever() {
    let http2 = Http2Limits {
        control_frames: 50,
        ..Http2Limits::default()
    };

    let few = || {
        server().with_limits(Limits {
            http2: Some(http2.clone()),
            ..Limits::default()
        })
    };

    beside(few, |_, address| {
        let mut raw = Raw::connect(address);
        raw.stream.set_nodelay(true).expect("set");
        for n in 0..500 {
            let id = 1 + 2 * n;
            raw.get(id, "/1k");
            let data = raw.next_of(DATA).expect("an answer");
            assert_eq!((data.id, data.payload.len()), (id, 1 << 10));
            update(&mut raw, 0, 1 << 10);
        }
    });
}

/// Windows of a few bytes are used to their last byte.
#[test]
fn small_windows_are_not_waited_for_to_become_large() {
    beside(server, |_, address| {
        for window in [1, 2, 100] {
            let mut raw = Raw::connect(address);
            raw.send(
                SETTINGS,
                0,
                0,
                &[&[0, 4][..], &u32::to_be_bytes(window)].concat(),
            );
            raw.get(1, "/1k");
            let start = now();
            let mut frames = 0;

            let mut got = 0;
            while got < 200 {
                let data = raw.next_of(DATA).expect("data").payload.len();
                assert!((1..=window as usize).contains(&data));
                got += data;
                frames += 1;
                update(&mut raw, 1, data);
            }

            // Without the pause that is for windows which could become larger.
            assert!(
                frames * 50 > start.elapsed().as_millis() || window == 100,
                "{window}: {:?}",
                start.elapsed()
            );
        }
    });
}

/// Never silent for as long as the timeout, and slower than the rate.
#[test]
fn a_stream_that_is_drained_slowly_is_cut_by_the_rate_alone() {
    for (min_rate, cut) in [(1 << 20, true), (0, false)] {
        let limits = || Limits {
            write_timeout: Duration::from_millis(400),
            min_rate,
            ..Limits::default()
        };

        beside(
            || server().with_limits(limits()),
            |_, address| {
                let mut raw = Raw::connect(address);
                raw.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, 0]);
                raw.get(1, "/bytes");
                raw.get(3, "/bytes");
                let mut was_cut = false;

                for _ in 0..30 {
                    sleep(Duration::from_millis(50)).expect("not cancelled");
                    update(&mut raw, 0, 4000);
                    [1, 3].into_iter().for_each(|id| update(&mut raw, id, 2000));
                }

                raw.get(5, "/short");
                while let Some(frame) = raw.next() {
                    was_cut |= frame.kind == RST_STREAM && frame.code() == CANCEL;
                    if frame.kind == DATA && frame.id == 5 {
                        break;
                    }
                }

                assert_eq!(was_cut, cut, "a rate of {min_rate}");
            },
        );
    }
}

/// Connects from another address of this machine.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> Raw<TcpStream> {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).expect("bound");
    rustix::net::connect(&socket, &to).expect("connected");
    let stream = TcpStream::from_std(socket.into()).expect("a stream");
    stream.set_read_timeout(Some(HANG)).expect("set");
    let mut raw = Raw { stream };

    raw.begin();
    raw
}

/// The status of a short request, which stands in the static table (RFC 7541, A) or is 503.
fn status(raw: &mut Raw<TcpStream>, id: u32) -> &'static str {
    raw.get(id, "/short");
    let answer =
        std::iter::from_fn(|| raw.next()).find(|frame| frame.kind == HEADERS && frame.id == id);
    match answer.expect("an answer").payload[0] {
        0x88 => "200",
        _ => "another",
    }
}

#[test]
fn one_address_has_its_share_of_requests_whatever_its_connections() {
    let limits = || Limits {
        connections_per_address: 4,
        write_timeout: HANG,
        ..Limits::default()
    };

    beside(
        || server().with_limits(limits()),
        |server, address| {
            let one = Ipv4Addr::new(127, 0, 0, 1);
            let other = Ipv4Addr::new(127, 0, 0, 2);
            let mut hog = connect_from(one, address);
            let settings = hog.next_of(SETTINGS).expect("settings").payload;
            let streams = settings
                .chunks(6)
                .find(|parameter| parameter[..2] == [0, 3])
                .expect("a bound");

            assert_eq!(
                streams[2..],
                4_u32.to_be_bytes(),
                "the client is asked for no more"
            );

            // More than its window, and it takes none of it.
            (0..4).for_each(|n| hog.get(1 + 2 * n, "/bytes"));
            (0..4).for_each(|_| drop(hog.next_of(HEADERS).expect("an answer begins")));
            // A fifth one is over the bound of the connection; on another connection over that of
            // the address.
            hog.send(HEADERS, END_STREAM | END_HEADERS, 9, &get("/short"));
            assert_eq!(hog.next_of(RST_STREAM).expect("a refusal").id, 9);
            let mut second = connect_from(one, address);

            assert_eq!(status(&mut second, 1), "another");
            assert_eq!(server.counts().refused_requests, 1);
            let mut stranger = connect_from(other, address);

            for n in 0..10 {
                assert_eq!(status(&mut stranger, 1 + 2 * n), "200");
            }
            // What has ended counts no more.
            hog.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
            super::client::eventually(|| {
                let mut again = connect_from(one, address);
                status(&mut again, 1) == "200"
            });
        },
    );
}

#[test]
fn a_connection_has_no_more_requests_than_it_may() {
    let http2 = Http2Limits {
        streams: 3,
        ..Http2Limits::default()
    };

    let limits = || Limits {
        connections_per_address: 100,
        http2: Some(http2.clone()),
        ..Limits::default()
    };

    beside(
        || server().with_limits(limits()),
        |_, address| {
            let mut raw = Raw::connect(address);
            let settings = raw.next_of(SETTINGS).expect("settings").payload;
            assert!(
                settings
                    .chunks(6)
                    .any(|parameter| parameter == [0, 3, 0, 0, 0, 3])
            );
        },
    );
}
