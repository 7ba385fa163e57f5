//! Requests and answers: what handlers see, what clients get.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method};
use plainweave::block_on;
use plainweave::sync::Barrier;
use plainweave::time::with_timeout;
use plainweave_http::accept::InProgress;
use plainweave_http::{Body, HeaderValue, Limits, Request, Response, Server, Version};

use super::client::{Client, HANG, beside, eventually, head};
use super::raw::{DATA, END_HEADERS, END_STREAM, HEADERS, Raw, fields, literals};
use crate::support::server;

#[test]
fn a_client_with_prior_knowledge_is_served() {
    beside(server, |server, address| {
        let mut client = Client::connect(address);
        for path in ["/one", "/two"] {
            let answer = client.get(path);
            assert_eq!((answer.status(), &answer.body[..]), (200, path.as_bytes()));
            assert_eq!(answer.field("content-length"), Some("4"));
            assert!(answer.field("date").is_some() && answer.field("connection").is_none());
        }
        assert_eq!(server.counts().accepted, 1);
    });
}

/// Each waits for all others.
#[test]
fn requests_are_in_progress_together() {
    const MANY: usize = 50;
    let handler = || {
        let barrier = Barrier::new(MANY);
        move |_: &mut Request<'_>| {
            barrier.wait().expect("not cancelled");
            Response::ok("together")
        }
    };

    beside(
        || Server::new(handler()),
        |_, address| {
            let mut client = Client::connect(address);
            let begun: Vec<_> = (0..MANY)
                .map(|_| client.begin(head(Method::GET, "/"), true))
                .collect();
            for request in begun {
                assert_eq!(request.answer().expect("answered").body, b"together");
            }
        },
    );
}

#[test]
fn bodies_of_any_kind_arrive() {
    beside(server, |_, address| {
        let mut client = Client::connect(address);
        for (path, status, body) in [
            ("/stream", 200, &b"streamed"[..]),
            ("/known", 200, b"known"),
            ("/long", 200, b"longer"),
            ("/big", 200, &[b'x'; 100_000]),
            ("/none", 204, b""),
            ("/same", 304, b""),
            ("/panic", 500, b"500 Internal Server Error\n"),
            ("/interim", 500, b"500 Internal Server Error\n"),
        ] {
            let answer = client.get(path);
            assert_eq!(
                (answer.status(), &answer.body[..]),
                (status, body),
                "{path}"
            );
            let answer = client
                .begin(head(Method::HEAD, path), true)
                .answer()
                .expect("answered");
            assert_eq!(
                (answer.status(), &answer.body[..]),
                (status, &b""[..]),
                "{path}"
            );
        }

        // Broken off before and behind the head.
        assert!(
            matches!(client.begin(head(Method::GET, "/broken"), true).answer(), Ok(answer) if answer.status() == 500)
        );
        let short = client.begin(head(Method::GET, "/short"), true).answer();
        assert!(short.is_err_and(|error| error.is_reset()));
        assert_eq!(client.get("/after").body, b"/after");
    });
}

/// More than the windows of either side, both ways at once.
#[test]
fn long_bodies_are_within_the_windows() {
    let handler = |request: &mut Request<'_>| {
        let mut sum = 0_u64;
        let mut buf = [0; 3000];
        while let Ok(len @ 1..) = request.read(&mut buf) {
            sum += buf[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        Response::ok(Body::writer(move |out| {
            for _ in 0..200 {
                out.write_all(&[7; 5000])?;
            }
            write!(out, "{sum}")
        }))
    };

    beside(
        || Server::new(handler),
        |_, address| {
            // They share the connection's window, and are read one after the other.
            let mut client = Client::with(
                address,
                h2::client::Builder::new().initial_connection_window_size(1 << 20),
            );
            let mut requests: Vec<_> = (0..3)
                .map(|_| client.begin(head(Method::POST, "/"), false))
                .collect();
            for request in &mut requests {
                request
                    .send(Bytes::from(vec![3; 2 << 20]), true)
                    .expect("taken");
            }

            for request in requests {
                let answer = request.answer().expect("answered");
                assert_eq!(answer.body.len(), 1_000_007);
                assert_eq!(&answer.body[1_000_000..], b"6291456");
            }
        },
    );
}

#[test]
fn trailers_pass_both_ways() {
    let handler = |request: &mut Request<'_>| {
        assert!(
            request.trailers().expect("readable").is_empty(),
            "before the body was read"
        );
        let body = request.read_body(100).expect("a body");
        let sum = request
            .trailers()
            .expect("readable")
            .get("x-sum")
            .expect("a trailer")
            .clone();
        Response::ok(Body::writer(move |out| {
            out.write_all(&body)?;
            out.add_trailer("x-sum".parse().expect("a name"), sum);
            out.add_trailer(
                "content-length".parse().expect("a name"),
                HeaderValue::from_static("9"),
            );
            Ok(())
        }))
    };

    beside(
        || Server::new(handler),
        |_, address| {
            let mut client = Client::connect(address);
            let mut request = client.begin(head(Method::POST, "/"), false);
            request
                .send(Bytes::from_static(b"body"), false)
                .expect("taken");
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("17"));
            request.body.send_trailers(trailers.clone()).expect("sent");
            let answer = request.answer().expect("answered");

            assert_eq!(
                (&answer.body[..], answer.trailers),
                (&b"body"[..], Some(trailers))
            );
        },
    );
}

#[test]
fn heads_are_seen_and_judged_as_those_of_http_1() {
    let handler = |request: &mut Request<'_>| {
        assert_eq!(request.version(), Version::HTTP_2);
        let cookies: Vec<_> = request.header_all("Cookie").collect();
        assert_eq!(cookies, [b"a=1; b=2"]);
        Response::ok(format!(
            "{} {} {:?}",
            request.host().unwrap_or("none"),
            request.path(),
            request.query()
        ))
    };
    beside(
        || {
            Server::new(handler).with_limits(Limits {
                headers: 5,
                line_bytes: 50,
                ..Limits::default()
            })
        },
        |_, address| {
            let mut client = Client::connect(address);
            let mut ask = |path: &str, fields: &[(&str, &str)]| {
                let mut request = head(Method::GET, path);
                for (name, value) in fields {
                    let value = HeaderValue::from_str(value).expect("a value");
                    request.headers_mut().append(
                        http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                        value,
                    );
                }

                let answer = client.begin(request, true).answer().expect("answered");
                (
                    answer.status(),
                    String::from_utf8(answer.body).expect("text"),
                )
            };

            let cookies = [("cookie", "a=1"), ("cookie", "b=2")];
            assert_eq!(
                ask("/a%20b?c", &cookies),
                (200, "test /a%20b Some(\"c\")".to_owned())
            );
            let with = |more: &[(&'static str, &'static str)]| [&cookies[..], more].concat();
            assert_eq!(ask("/", &with(&[("host", "test")])).0, 200);
            assert_eq!(ask("/", &with(&[("host", "other")])).0, 400);
            assert_eq!(ask("/", &with(&[("expect", "wonders")])).0, 417);
            assert_eq!(
                ask(
                    "/",
                    &with(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")])
                )
                .0,
                431
            );
            assert_eq!(ask(&format!("/{}", "x".repeat(60)), &cookies).0, 414);

            // No answer to HEAD has a body: a client may take one for an error of the protocol.
            let mut refused = head(Method::HEAD, &format!("/{}", "x".repeat(60)));
            refused
                .headers_mut()
                .append("expect", HeaderValue::from_static("wonders"));
            let answer = client.begin(refused, true).answer().expect("answered");
            assert_eq!((answer.status(), &answer.body[..]), (414, &b""[..]));
            let mut refused = head(Method::HEAD, "/");
            refused
                .headers_mut()
                .append("expect", HeaderValue::from_static("wonders"));
            let answer = client.begin(refused, true).answer().expect("answered");

            assert_eq!((answer.status(), &answer.body[..]), (417, &b""[..]));
        },
    );
}

#[test]
fn a_body_has_its_limit_whether_it_is_announced_or_not() {
    let limited = || {
        server().with_limits(Limits {
            body_bytes: 1000,
            ..Limits::default()
        })
    };

    beside(limited, |_, address| {
        let mut client = Client::connect(address);
        let mut announced = head(Method::POST, "/echo");
        announced
            .headers_mut()
            .insert("content-length", HeaderValue::from_static("1001"));
        assert_eq!(
            client
                .begin(announced, false)
                .answer()
                .expect("answered")
                .status(),
            413
        );
        let mut request = client.begin(head(Method::POST, "/echo"), false);

        request
            .body
            .send_data(Bytes::from(vec![0; 1001]), true)
            .expect("sent");
        assert_eq!(request.answer().expect("answered").status(), 413);
        assert_eq!(client.get("/after").status(), 200);
    });
}

/// The first read asks for the body, and nothing else does.
#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    beside(server, |_, address| {
        let mut client = Client::connect(address);
        let mut expecting = head(Method::POST, "/echo");
        expecting
            .headers_mut()
            .insert("expect", HeaderValue::from_static("100-continue"));
        let mut request = client.begin(expecting, false);
        let interim = with_timeout(HANG, || {
            block_on(poll_fn(|cx| request.response.poll_informational(cx)))
        });
        let interim = interim
            .expect("in time")
            .expect("an interim answer")
            .expect("no error");

        assert_eq!(
            (interim.status().as_u16(), interim.headers().len()),
            (100, 0)
        );
        request
            .send(Bytes::from_static(b"asked for"), true)
            .expect("taken");
        assert_eq!(request.answer().expect("answered").body, b"asked for");

        let mut raw = Raw::connect(address);
        let expecting = [("expect", "100-continue")];
        // Nobody reads it; nobody waits to be asked.
        for (id, path, more) in [(1, "/unread", &expecting[..]), (3, "/echo", &[])] {
            raw.send(HEADERS, END_HEADERS, id, &fields(0x83, path, more));
            if more.is_empty() {
                raw.send(DATA, END_STREAM, id, b"body");
            }
            assert_eq!(
                raw.next_of(HEADERS).expect("answered").payload[0],
                0x88,
                "{path}"
            );
        }

        // Once, however often it is read..
        raw.send(HEADERS, END_HEADERS, 5, &fields(0x83, "/echo", &expecting));
        let interim = raw.next_of(HEADERS).expect("asked");
        assert_eq!((interim.id, interim.flags), (5, END_HEADERS));
        for flags in [0, 0, END_STREAM] {
            raw.send(DATA, flags, 5, b"body");
        }
        assert_eq!(raw.next_of(HEADERS).expect("answered").payload[0], 0x88);
    });
}

/// RFC 9113, 8.2.1 and 8.3.1; libraries for clients do not send these.
#[test]
fn malformed_heads_are_refused() {
    const OK: u8 = 0x88;
    const BAD: u8 = 0x8c;
    beside(server, |_, address| {
        for (head, status) in [
            (&[(":scheme", "http"), (":authority", "test")][..], OK),
            (&[(":scheme", "HTTPS"), (":authority", "test")], OK),
            (&[(":scheme", "https"), ("host", "test")], OK),
            (&[(":scheme", "http")], BAD),
            (&[(":scheme", ""), (":authority", "test")], BAD),
            (&[(":scheme", "ftp"), (":authority", "test")], BAD),
            (
                &[(":scheme", "http"), (":authority", "test"), ("a", " b")],
                BAD,
            ),
            (
                &[(":scheme", "http"), (":authority", "test"), ("a", "b\t")],
                BAD,
            ),
            (
                &[
                    (":scheme", "http"),
                    (":authority", "test"),
                    ("cookie", "a"),
                    ("cookie", "b "),
                ],
                BAD,
            ),
            (
                &[(":scheme", "http"), (":authority", "test"), ("a", "b c")],
                OK,
            ),
        ] {
            let mut raw = Raw::connect(address);
            let block = literals(&[&[(":method", "GET"), (":path", "/")], head].concat());
            raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &block);
            assert_eq!(
                raw.next_of(HEADERS).expect("answered").payload[0],
                status,
                "{head:?}"
            );
        }
    });
}

#[test]
fn nobody_takes_over_a_connection() {
    let handler = |_: &mut Request<'_>| Response::upgrade(HeaderValue::from_static("x"), |_| {});
    beside(
        || Server::new(handler),
        |_, address| assert_eq!(Client::connect(address).get("/").status(), 505),
    );
}

/// An answer to a head alone, then the rest of the body is not wanted.
#[test]
fn a_body_that_nobody_reads_costs_its_request() {
    beside(server, |_, address| {
        let mut client = Client::connect(address);
        for _ in 0..5 {
            let mut request = client.begin(head(Method::POST, "/unread"), false);
            // What the windows let through is given back to the connection.
            while request
                .body
                .send_data(Bytes::from(vec![0; 60_000]), false)
                .is_ok()
            {
                let Ok(answer) = client.begin(head(Method::GET, "/other"), true).answer() else {
                    break;
                };
                assert_eq!(answer.status(), 200);
            }
        }
    });
}

#[test]
fn hooks_counts_and_admission_are_for_each_request() {
    type Seen = Arc<Mutex<Vec<(String, u16, u64)>>>;
    let make = |seen: Seen, permits: Arc<InProgress>| {
        server()
            .with_requests_in_progress(permits)
            .on_exchange(move |exchange| {
                let head = exchange.head.expect("a head");
                assert!(exchange.peer.is_some() && head.version() == Version::HTTP_2);
                let status = exchange.status.expect("a status").as_u16();
                seen.lock().expect("whole").push((
                    head.path().to_owned(),
                    status,
                    exchange.body_bytes,
                ));
            })
    };

    let all = Seen::default();
    let permits = Arc::new(InProgress::new(1));
    beside(
        || make(all.clone(), permits.clone()),
        |server, address| {
            let mut client = Client::connect(address);
            for status in [200, 200, 503] {
                eventually(|| permits.now() == 0);
                let _last = (status == 503).then(|| permits.begin());
                assert_eq!(client.get("/path").status(), status);
            }

            client.ended().expect("ended");
            eventually(|| server.counts().requests == 2);
            let seen = std::mem::take(&mut *all.lock().expect("whole"));
            let path = || "/path".to_owned();
            assert_eq!(seen, [(path(), 200, 5), (path(), 200, 5), (path(), 503, 0)]);
        },
    );
}

#[test]
fn http_1_is_served_beside_it_and_http_2_only_where_it_is_wanted() {
    const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let off = || {
        server().with_limits(Limits {
            http2: None,
            ..Limits::default()
        })
    };

    beside(off, |_, address| {
        let mut stream = plainweave::net::TcpStream::connect(address).expect("connected");
        stream.write_all(OPENING).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    });
    beside(server, |_, address| {
        let mut stream = plainweave::net::TcpStream::connect(address).expect("connected");
        // Not the first request of the connection.
        stream
            .write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
            .expect("sent");
        stream.write_all(OPENING).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 505 "),
            "{answer}"
        );
    });
    // On a thread, where there are no fibers for requests.
    let answer = plainweave_http::testing::in_memory(&server(), OPENING);
    assert!(answer.starts_with(b"HTTP/1.1 505 "));
}
