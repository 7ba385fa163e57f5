//! Streams that are taken over (RFC 8441), and what is not: see `upgrades` for their use.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream};
use http::{Method, StatusCode};
use plainweave::block_on;
use plainweave_http::{Body, HeaderName, HeaderValue, Request, Response, Server, Upgraded};

use super::client::{Answering, Client, beside, eventually, head};

/// Asks for a protocol, once the server has said that it may.
fn ask(client: &mut Client, path: &str, protocol: &'static str) -> Answering {
    eventually(|| client.send.is_extended_connect_protocol_enabled());
    let mut request = head(Method::CONNECT, path);
    request
        .extensions_mut()
        .insert(Protocol::from_static(protocol));
    client.begin(request, false)
}

fn echo(stream: &mut Upgraded<'_>) {
    let mut buf = [0; 100];
    while let Ok(len @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..len]).is_err() {
            return;
        }
    }
}

fn websocket(take_over: fn(&mut Upgraded<'_>)) -> Response {
    Response::upgrade(HeaderValue::from_static("websocket"), take_over)
        .with_header(
            HeaderName::from_static("sec-websocket-accept"),
            HeaderValue::from_static("of HTTP/1 alone"),
        )
        .with_header(
            HeaderName::from_static("sec-websocket-protocol"),
            HeaderValue::from_static("chat"),
        )
}

/// What comes next; `None` at the end.
fn next(recv: &mut RecvStream) -> Option<Vec<u8>> {
    loop {
        match block_on(recv.data()).expect("not cancelled") {
            Some(data) => {
                let data = data.expect("an open stream");
                if !data.is_empty() {
                    return Some(data.to_vec());
                }
            }
            None => return None,
        }
    }
}

#[test]
fn a_handler_sees_what_it_would_of_http_1() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = || {
        let seen = seen.clone();
        Server::new(move |request: &mut Request<'_>| {
            let field = |name| request.header(name).map(<[u8]>::to_vec);
            seen.lock().unwrap().push((
                request.method().clone(),
                request.target_text().to_owned(),
                ["connection", "upgrade", "sec-websocket-key"].map(field),
            ));
            let mut body = Vec::new();
            request.read_to_end(&mut body).expect("no body");
            assert!(body.is_empty(), "what is said later is none");
            websocket(echo)
        })
    };

    beside(server, |_, address| {
        let mut client = Client::connect(address);
        let mut asking = ask(&mut client, "/chat?room=1", "websocket");
        asking
            .send(Bytes::from_static(b"hello"), false)
            .expect("sent");
        let mut send = asking.body;
        let (answer, mut recv) = block_on(asking.response)
            .expect("not cancelled")
            .expect("answered")
            .into_parts();

        assert_eq!(answer.status, 200);

        for absent in [
            "upgrade",
            "connection",
            "sec-websocket-accept",
            "content-length",
        ] {
            assert!(!answer.headers.contains_key(absent), "{absent}");
        }

        assert_eq!(answer.headers["sec-websocket-protocol"], "chat");
        assert_eq!(next(&mut recv), Some(b"hello"[..].into()));
        // Others go on beside it.
        assert_eq!(client.get("/").status(), 505);
        send.send_data(Bytes::from_static(b" again"), true)
            .expect("sent");
        assert_eq!(next(&mut recv), Some(b" again"[..].into()));
        assert_eq!(next(&mut recv), None);
    });
    // Of each driver: what asked for the protocol, and what did not.
    let seen: Vec<_> = seen.lock().unwrap().iter().step_by(2).cloned().collect();
    let [one, other] = seen.try_into().expect("two");
    assert_eq!(one, other);
    let (method, target, [connection, upgrade, key]) = one;
    assert_eq!((method.as_str(), &target[..]), ("GET", "/chat?room=1"));
    assert_eq!(
        (connection.as_deref(), upgrade.as_deref()),
        (Some(&b"upgrade"[..]), Some(&b"websocket"[..]))
    );
    assert_eq!(key.expect("made up").len(), 24);
}

/// An answer of success would be taken for agreement.
#[test]
fn other_answers_are_no_agreement() {
    let handler = |request: &mut Request<'_>| match request.path() {
        "/page" => Response::ok("a page"),
        "/other" => Response::upgrade(HeaderValue::from_static("other"), |_| ()),
        "/tunnel" => Response::tunnel(|_| ()),
        "/moved" => Response::new(StatusCode::FOUND),
        _ => Response::plain(StatusCode::FORBIDDEN).with_body(Body::from("not here")),
    };

    beside(
        || Server::new(handler),
        |_, address| {
            let mut client = Client::connect(address);
            for (path, status) in [
                ("/page", 501),
                ("/other", 501),
                ("/tunnel", 501),
                ("/moved", 302),
                ("/no", 403),
            ] {
                let answer = ask(&mut client, path, "websocket").answer();
                assert_eq!(answer.expect("answered").status(), status, "{path}");
            }

            // And who does not ask gets none.
            assert_eq!(client.get("/other").status(), 505);
            assert_eq!(client.get("/page").status(), 200);
        },
    );
}

#[test]
fn connect_opens_a_tunnel() {
    let handler = |request: &mut Request<'_>| {
        assert_eq!(request.method(), Method::CONNECT);
        match request.target() {
            plainweave_http::Target::Authority("db.example:5432") => Response::tunnel(echo),
            _ => Response::ok("a page"),
        }
    };

    beside(
        || Server::new(handler),
        |_, address| {
            let mut client = Client::connect(address);
            let mut connect = |to: &str| {
                let request = http::Request::builder().method(Method::CONNECT).uri(to);
                client.begin(request.body(()).expect("a request"), false)
            };

            let mut tunnel = connect("db.example:5432");
            tunnel
                .send(Bytes::from_static(b"select 1"), true)
                .expect("sent");
            let answer = tunnel.answer().expect("answered");
            assert_eq!((answer.status(), &answer.body[..]), (200, &b"select 1"[..]));
            assert_eq!(
                connect("elsewhere:1").answer().expect("answered").status(),
                501
            );
        },
    );
}

/// A client that leaves ends what waits for it; a panic ends the stream, and is reported.
#[test]
fn the_end_of_either_is_heard_by_the_other() {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let handler = |request: &mut Request<'_>| match request.path() {
        "/waits" => websocket(|stream| {
            let error = stream.read(&mut [0]).expect_err("it leaves");
            assert!(stream.write_all(b"too late").is_err(), "{error}");
            LEFT.fetch_add(1, Ordering::SeqCst);
        }),
        _ => websocket(|stream| {
            stream.read_exact(&mut [0]).expect("a byte");
            panic!("by and by")
        }),
    };
    let server = || {
        let reports = reports.clone();
        Server::new(handler).on_error(move |error| reports.lock().unwrap().push(error.to_string()))
    };
    beside(server, |_, address| {
        let before = LEFT.load(Ordering::SeqCst);
        let mut client = Client::connect(address);
        let mut asking = ask(&mut client, "/waits", "websocket");
        let answer = block_on(&mut asking.response).expect("not cancelled");
        assert_eq!(answer.expect("answered").status(), 200);
        asking.body.send_reset(Reason::CANCEL);
        eventually(|| LEFT.load(Ordering::SeqCst) == before + 1);

        // The whole connection, too.
        let mut asking = ask(&mut client, "/waits", "websocket");
        let answer = block_on(&mut asking.response).expect("not cancelled");
        assert_eq!(answer.expect("answered").status(), 200);
        client.driver.cancel();
        eventually(|| LEFT.load(Ordering::SeqCst) == before + 2);

        let mut client = Client::connect(address);
        let mut asking = ask(&mut client, "/panics", "websocket");
        let answer = block_on(&mut asking.response).expect("not cancelled");
        assert_eq!(answer.expect("answered").status(), 200);
        asking.send(Bytes::from_static(b"!"), false).expect("sent");
        let reset = block_on(poll_fn(|cx| asking.body.poll_reset(cx))).expect("not cancelled");

        assert_eq!(reset.expect("reset"), Reason::INTERNAL_ERROR);
        eventually(|| {
            reports
                .lock()
                .unwrap()
                .iter()
                .any(|text| text.contains("by and by"))
        });
    });
}
