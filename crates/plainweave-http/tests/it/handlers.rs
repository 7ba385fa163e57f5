//! What handlers can do beside answering bytes: write, take over, read trailers, change their
//! limits.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::testing::{TestServer, in_memory};
use plainweave_http::{
    Body, Handler, HeaderName, HeaderValue, Limits, Request, Response, Server, StatusCode,
};

use crate::support::{Event, Script, play, read_answers};

fn text(server: &Server<impl Handler>, sent: impl AsRef<[u8]>) -> String {
    String::from_utf8(in_memory(server, sent)).unwrap()
}

/// Errors that the server reported.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Errors {
    fn of<H: Handler>(&self, server: Server<H>) -> Server<H> {
        let list = self.0.clone();
        server.on_error(move |error| list.lock().unwrap().push(error.to_string()))
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn upgrade(path: &str, protocol: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn trailer(out: &mut plainweave_http::BodyWriter<'_>, name: &'static str, value: &'static str) {
    out.add_trailer(
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    );
}

/// Bodies that are written, by path.
fn written(request: &mut Request<'_>) -> Response {
    let path = request.path().to_owned();
    Response::ok(Body::writer(move |out| {
        match &*path {
            "/flushed" => {
                out.write_all(b"one")?;
                out.flush()?;
                out.write_all(b"two")?;
                out.flush()?;
                out.flush()
            }
            "/small" => out.write_all(b"small"),
            "/nothing" => Ok(()),
            "/big" => (0..10).try_for_each(|n| out.write_all(&[b'0' + n; 5_000])),
            "/huge" => out.write_all(&[b'h'; 50_000]),
            "/trailers" => {
                out.write_all(b"body")?;
                trailer(out, "x-sum", "42");
                // It would end the body in the eyes of another reader.
                trailer(out, "content-length", "0");
                trailer(out, "host", "evil");
                Ok(())
            }
            "/fails-first" => Err(std::io::Error::other("no means")),
            "/panics-first" => panic!("asked to panic"),
            "/fails-later" => {
                out.write_all(b"part")?;
                out.flush()?;
                Err(std::io::Error::other("no means"))
            }
            _ => panic!("asked to panic"),
        }
    }))
}

#[test]
fn a_body_is_written_and_flushed() {
    let server = Server::new(written);
    for (path, chunks) in [
        ("/flushed", "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        ("/small", "5\r\nsmall\r\n0\r\n\r\n"),
        ("/nothing", "0\r\n\r\n"),
        ("/trailers", "4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n"),
    ] {
        let answer = text(&server, get(path));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
        assert_eq!(body, chunks, "{path}");
    }

    for (path, len) in [("/big", 50_000), ("/huge", 50_000)] {
        let answers = read_answers(&in_memory(&server, get(path) + &get("/small")));
        assert_eq!((answers.len(), answers[0].body.len()), (2, len), "{path}");
    }

    let old = text(&server, "GET /trailers HTTP/1.0\r\n\r\n");
    assert!(
        old.ends_with("\r\n\r\nbody"),
        "neither chunks nor trailers: {old}"
    );
    let head = text(&server, "HEAD /big HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
}

/// The handler answered 200, and that is recorded: the peer has got no other answer.
#[test]
fn a_peer_that_leaves_a_written_body_is_no_server_error() {
    for path in ["/flushed", "/small", "/big", "/huge", "/trailers"] {
        let mut whole = Script::of(get(path));
        play(&Server::new(written), &mut whole);
        for deaf in [0, 1, 50, whole.out.len() / 2, whole.out.len() - 1] {
            let told = Arc::new(Mutex::new(Vec::new()));
            let errors = Errors::default();
            let list = told.clone();
            let server = errors.of(Server::new(written));
            let server =
                server.on_exchange(move |exchange| list.lock().unwrap().push(exchange.status));
            let mut script = Script {
                deaf_after: Some((deaf, ErrorKind::BrokenPipe)),
                ..Script::of(get(path))
            };

            play(&server, &mut script);
            assert_eq!(
                *told.lock().unwrap(),
                [Some(StatusCode::OK)],
                "{path}, deaf after {deaf}"
            );
            assert_eq!(
                errors.taken(),
                ["the answer could not be sent"],
                "{path}, deaf after {deaf}"
            );
        }
    }
}

/// Each flush is a write of its own; the head leaves with the first.
#[test]
fn a_flush_sends() {
    let mut script = Script::of(get("/flushed"));
    play(&Server::new(written), &mut script);
    assert_eq!(
        script.writes.len(),
        3,
        "{:?}",
        String::from_utf8_lossy(&script.out)
    );
    let mut script = Script::of(get("/small"));
    play(&Server::new(written), &mut script);
    assert_eq!(script.writes.len(), 1, "unasked, all leaves together");
}

#[test]
fn a_body_that_cannot_be_written_shows() {
    let errors = Errors::default();
    let server = errors.of(Server::new(written));
    for path in ["/fails-first", "/panics-first"] {
        let answers = read_answers(&in_memory(&server, get("/small") + &get(path)));
        assert_eq!(
            answers
                .iter()
                .map(|answer| answer.status)
                .collect::<Vec<_>>(),
            [200, 500],
            "{path}"
        );
    }

    assert_eq!(
        errors.taken(),
        [
            "the body could not be written",
            "the handler panicked at GET /panics-first: asked to panic"
        ]
    );
    let cut = text(&server, get("/fails-later"));
    assert!(cut.ends_with("4\r\npart\r\n"), "no last chunk: {cut}");
    assert_eq!(errors.taken(), ["the body could not be written"]);
}

/// The producer sees the error, and the server the one that came first.
#[test]
fn a_peer_that_leaves_ends_a_body() {
    let errors = Errors::default();
    let server = errors.of(Server::new(|_: &mut Request<'_>| {
        Response::ok(Body::writer(|out| {
            for _ in 0..1000 {
                out.write_all(&[b'x'; 1000])?;
            }
            panic!("the peer left long ago");
        }))
    }));
    for deaf in [0, 10, 20_000] {
        let mut script = Script {
            deaf_after: Some((deaf, ErrorKind::BrokenPipe)),
            ..Script::of(get("/"))
        };

        play(&server, &mut script);
        assert_eq!(
            errors.taken(),
            ["the answer could not be sent"],
            "after {deaf} bytes"
        );
    }
}

fn with_trailers(request: &mut Request<'_>) -> Response {
    assert!(request.trailers().unwrap().is_empty(), "before the body");
    if request.path() == "/unread" {
        return Response::ok("unread");
    }
    let body = request.read_body(1 << 20).unwrap();
    let shown: Vec<_> = match request.trailers() {
        Ok(map) => map
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect(),
        Err(error) => vec![error.to_string()],
    };

    Response::ok(format!("{}:{}", body.len(), shown.join(",")))
}

#[test]
fn trailers_reach_the_handler_however_they_are_split() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let none = "3\r\nabc\r\n0\r\n\r\n";
    let some = "3\r\nabc\r\n0\r\nX-Sum: 42\r\nX-Empty:\r\nHost: evil\r\n\r\n";
    let server = Server::new(with_trailers);

    for read_max in (1..80).chain([usize::MAX]) {
        let all = [head, some, head, none, &get("/")].concat();
        let mut script = Script {
            read_max,
            ..Script::of(all)
        };

        play(&server, &mut script);
        let bodies: Vec<_> = read_answers(&script.out)
            .into_iter()
            .map(|answer| answer.body)
            .collect();
        assert_eq!(
            bodies,
            [&b"3:x-sum=42,x-empty="[..], b"3:", b"0:"],
            "reads of {read_max} bytes"
        );
    }

    // Nobody reads them: the next request is found all the same.
    let unread = head.replace("POST /", "POST /unread");
    let answers = read_answers(&in_memory(&server, [&unread, some, &get("/")].concat()));
    assert_eq!(answers.len(), 2);
    let many = (0..101).fold("0\r\n".to_owned(), |all, n| all + &format!("a{n}: b\r\n"));
    let answer = text(&server, [head, &many, "\r\n"].concat());

    assert!(
        answer.ends_with("0:a malformed trailer section"),
        "{answer}"
    );
}

/// Speaks a protocol of lines, in capitals.
fn shouting(request: &mut Request<'_>) -> Response {
    let shout = |stream: &mut plainweave_http::Upgraded<'_>| {
        let mut line = [0; 6];
        while stream.read_exact(&mut line).is_ok() {
            assert!(line != *b"panic\n", "asked to panic");
            stream
                .write_all(line.to_ascii_uppercase().as_slice())
                .unwrap();
        }
    };

    match request.path() {
        "" => Response::tunnel(shout),
        _ => Response::upgrade(HeaderValue::from_static("shout"), shout),
    }
}

#[test]
fn a_handler_takes_the_stream_over() {
    let errors = Errors::default();
    let server = errors.of(Server::new(shouting));

    let ask = upgrade("/up", "shout");
    // What comes with the request, and what comes later.
    for read_max in [1, 50, ask.len() + 3, usize::MAX] {
        let mut script = Script {
            read_max,
            ..Script::of(ask.clone() + "hello\nworld\n")
        };

        play(&server, &mut script);
        let out = String::from_utf8(script.out).unwrap();
        let (head, rest) = out.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
            "{head}"
        );
        assert!(
            head.contains("Upgrade: shout") && head.ends_with("Connection: Upgrade"),
            "{head}"
        );
        assert!(
            !head.contains("Content-Length") && !head.contains("chunked"),
            "{head}"
        );
        assert_eq!(rest, "HELLO\nWORLD\n");
    }

    let tunnel = text(&server, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\nhello\n");
    assert!(
        tunnel.starts_with("HTTP/1.1 200 OK\r\n") && tunnel.ends_with("\r\n\r\nHELLO\n"),
        "{tunnel}"
    );
    assert!(!tunnel.contains("Content-Length"), "{tunnel}");
    assert!(errors.taken().is_empty());
    text(&server, ask + "panic\n");

    assert_eq!(
        errors.taken(),
        ["the handler panicked at GET /up: asked to panic"]
    );
}

#[test]
fn what_cannot_be_upgraded_is_refused() {
    let server = Server::new(shouting);
    let old = read_answers(&in_memory(&server, "GET /up HTTP/1.0\r\n\r\n"));
    assert_eq!(old[0].status, 505);
    let body = "POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nhello\n";
    assert_eq!(
        read_answers(&in_memory(&server, body))[0].status,
        400,
        "its bytes are no protocol"
    );

    // A client that does not ask for it goes on with HTTP.
    for (fields, status) in [
        ("", 426),
        ("Upgrade: shout\r\n", 426),
        ("Connection: Upgrade\r\n", 426),
        ("Connection: Upgrade\r\nUpgrade: whisper\r\n", 426),
        ("Connection: Upgrade\r\nUpgrade: shouting\r\n", 426),
        (
            "Connection: keep-alive, upgrade\r\nUpgrade: whisper, Shout\r\n",
            101,
        ),
        (
            "Connection: upgrade\r\nUpgrade: whisper\r\nUpgrade: shout\r\n",
            101,
        ),
    ] {
        let ask = format!("GET /up HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let answers = read_answers(&in_memory(
            &server,
            &if status == 101 { ask } else { ask.repeat(2) },
        ));
        assert_eq!(answers.len(), if status == 101 { 1 } else { 2 }, "{fields}");

        for answer in answers {
            assert_eq!(
                (answer.status, answer.header("upgrade")),
                (status, Some("shout")),
                "{fields}"
            );
            assert_eq!(answer.header("connection"), Some("Upgrade"), "{fields}");
        }
    }
}

/// RFC 9110, 15.3.6: it would be taken for the next answer.
#[test]
fn an_answer_that_resets_has_no_content() {
    let server =
        Server::new(|_: &mut Request<'_>| Response::text(StatusCode::RESET_CONTENT, "content"));
    let answers = read_answers(&in_memory(&server, get("/").repeat(2)));
    let seen: Vec<_> = answers
        .iter()
        .map(|answer| (answer.status, answer.header("content-length")))
        .collect();
    assert_eq!(seen, [(205, Some("0")); 2]);
}

#[test]
fn an_upgrade_on_sockets() {
    for threads in [false, true] {
        let server = Server::new(shouting);
        let server = if threads {
            TestServer::on_threads(server)
        } else {
            TestServer::start(server)
        }
        .unwrap();
        let mut client = server.connect().unwrap();
        client
            .write_all(upgrade("/up", "shout").as_bytes())
            .unwrap();

        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }

        for line in [b"hello\n", b"again\n"] {
            client.write_all(line).unwrap();
            let mut back = [0; 6];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, line.to_ascii_uppercase().as_slice());
        }
    }
}

/// A read of what took over waits for its own time, and names its end in one way.
#[test]
fn an_upgraded_stream_has_timeouts_of_its_own() {
    for threads in [false, true] {
        let server = Server::new(|_: &mut Request<'_>| {
            Response::upgrade(HeaderValue::from_static("wait"), |stream| {
                stream.set_read_timeout(Duration::from_millis(5)).unwrap();
                let error = stream.read(&mut [0]).unwrap_err();
                write!(stream, "{:?}", error.kind()).unwrap();
            })
        });

        let server = if threads {
            TestServer::on_threads(server)
        } else {
            TestServer::start(server)
        }
        .unwrap();
        let answer = server.exchange(upgrade("/", "wait")).unwrap();
        assert!(
            answer.ends_with(b"\r\n\r\nTimedOut"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}

#[test]
fn routes_have_limits_of_their_own() {
    let limits = Limits {
        body_bytes: 10,
        ..Limits::default()
    };

    let server = Server::new(|request: &mut Request<'_>| {
        if request.path() == "/less" {
            let less = plainweave_http::RequestLimits {
                body_bytes: 2,
                ..request.limits()
            };
            request.set_limits(less);
        }

        match request.read_body(1000) {
            Ok(body) => Response::ok(body),
            Err(_) => Response::plain(StatusCode::IM_A_TEAPOT),
        }
    });

    let server = server
        .with_limits(limits)
        .with_request_limits(|head, limits| {
            if head.path() == "/more" {
                limits.body_bytes = 100;
            }
        });

    let send = |path: &str, len: usize, chunked: bool| {
        let (field, body) = match chunked {
            true => (
                "Transfer-Encoding: chunked".to_owned(),
                format!("{len:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(len)),
            ),
            false => (format!("Content-Length: {len}"), "x".repeat(len)),
        };

        let sent = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n{body}");
        read_answers(&in_memory(&server, sent))[0].status
    };

    for chunked in [false, true] {
        let statuses = [
            ("/", 10),
            ("/", 11),
            ("/more", 11),
            ("/more", 101),
            ("/less", 2),
            ("/less", 3),
        ]
        .map(|(path, len)| send(path, len, chunked));
        assert_eq!(
            statuses,
            [200, 413, 200, 413, 200, 413],
            "chunked: {chunked}"
        );
    }
}

/// A handler that pauses may wait for its peer longer than the limits say.
#[test]
fn timeouts_are_paused_and_resumed() {
    let limits = Limits {
        body_timeout: Duration::from_millis(20),
        min_rate: 0,
        ..Limits::default()
    };

    let server = TestServer::start(
        Server::new(|request: &mut Request<'_>| {
            let mut byte = [0];
            request.pause_timeouts();
            request.read_exact(&mut byte).unwrap();
            request.resume_timeouts();
            let late = request.read_exact(&mut byte).unwrap_err();
            Response::ok(format!("{:?}", late.kind()))
        })
        .with_limits(limits),
    )
    .unwrap();
    let mut client = server.connect().unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n")
        .unwrap();
    std::thread::sleep(Duration::from_millis(60));
    client.write_all(b"x").unwrap();
    let mut answer = Vec::new();

    client.read_to_end(&mut answer).unwrap();
    assert_eq!(
        read_answers(&answer)[0].status,
        408,
        "only the second read was late"
    );
}

/// The clock that a handler leaves stopped goes on after it.
#[test]
fn a_pause_ends_with_its_handler() {
    let limits = Limits {
        linger_bytes: 0,
        ..Limits::default()
    };

    let server = Server::new(|request: &mut Request<'_>| {
        request.pause_timeouts();
        Response::ok("unread")
    })
    .with_limits(limits.clone());
    // What is left of such a body is read before the answer.
    let mut script = Script::new([
        Event::Data(
            b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n".to_vec(),
        ),
        Event::Stall,
    ]);
    play(&server, &mut script);
    assert_eq!(read_answers(&script.out)[0].status, 408);

    assert!(
        script.timeout.unwrap() <= limits.body_timeout,
        "{:?}",
        script.timeout
    );
}

/// A handler that knows its peer to be slow gives it more time than the server does.
#[test]
fn timeouts_are_extended() {
    let limits = Limits {
        body_timeout: Duration::from_millis(20),
        min_rate: 0,
        ..Limits::default()
    };

    let handler = |request: &mut Request<'_>| {
        let patient = plainweave_http::RequestLimits {
            body_timeout: Duration::from_secs(30),
            ..request.limits()
        };

        request.set_limits(patient);
        Response::ok(request.read_body(10).unwrap())
    };

    for threads in [false, true] {
        let server = Server::new(handler).with_limits(limits.clone());
        let server = if threads {
            TestServer::on_threads(server)
        } else {
            TestServer::start(server)
        }
        .unwrap();
        let mut client = server.connect().unwrap();
        client
            .write_all(
                b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
        std::thread::sleep(Duration::from_millis(60));
        client.write_all(b"xy").unwrap();
        let mut answer = Vec::new();

        client.read_to_end(&mut answer).unwrap();
        assert_eq!(read_answers(&answer)[0].body, b"xy");
    }
}

/// The answer's own write timeout is set on the stream, and taken back for the next answer.
#[test]
fn a_route_has_its_own_write_timeout() {
    let server =
        Server::new(|_: &mut Request<'_>| Response::ok("x")).with_request_limits(|head, limits| {
            if head.path() == "/slow" {
                limits.write_timeout = Duration::from_secs(300);
            }
        });

    let mut script = Script::of(get("/") + &get("/slow") + &get("/slow") + &get("/"));
    play(&server, &mut script);
    let default = Limits::default().write_timeout;
    assert_eq!(
        script.write_timeouts,
        [default, Duration::from_secs(300), default]
    );
}

#[test]
fn a_panic_is_reported_and_the_connection_goes_on() {
    let errors = Errors::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let server = Server::new(|request: &mut Request<'_>| {
        assert!(request.path() != "/panic", "asked to panic");
        Response::ok("fine")
    });

    let server = errors.of(server).on_exchange(move |exchange| {
        let panicked = exchange.error.is_some_and(|error| error.is_panic());
        list.lock()
            .unwrap()
            .push((exchange.status.map(|status| status.as_u16()), panicked));
    });

    let post = "POST /panic?secret HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    let answers = read_answers(&in_memory(&server, [post, &get("/")].concat()));
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.status)
            .collect::<Vec<_>>(),
        [500, 200]
    );
    assert_eq!(
        errors.taken(),
        ["the handler panicked at POST /panic: asked to panic"]
    );

    assert_eq!(
        *told.lock().unwrap(),
        [(Some(500), true), (Some(200), false)]
    );
}

/// A handler that takes a body for granted: the panic is reported, and the peer still learns what
/// was wrong with it.
#[test]
fn a_panic_over_a_bad_body_is_reported_too() {
    let errors = Errors::default();
    let server = errors.of(Server::new(|request: &mut Request<'_>| {
        Response::ok(request.read_body(9).unwrap())
    }));
    let bad = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno size";
    assert_eq!(read_answers(&in_memory(&server, bad))[0].status, 400);
    let errors = errors.taken();

    assert!(
        errors[0].starts_with("the handler panicked at POST /: called `Result::unwrap()`"),
        "{}",
        errors[0]
    );
    assert_eq!(errors[1..], ["malformed chunked body"]);
}

/// 100 is sent when the handler first reads, and not at all if it does not.
#[test]
fn continue_is_sent_at_the_first_read() {
    let server = Server::new(|request: &mut Request<'_>| match request.path() {
        "/refuse" => Response::plain(StatusCode::FORBIDDEN),
        _ => Response::ok(request.read_body(10).unwrap()),
    });

    let fields = "Host: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let ask = |path: &str| format!("POST {path} HTTP/1.1\r\n{fields}");
    let mut script = Script::new([
        Event::Data(ask("/").into_bytes()),
        Event::Data(b"abc".to_vec()),
    ]);
    play(&server, &mut script);
    let out = String::from_utf8(script.out).unwrap();

    assert!(
        out.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n") && out.ends_with("abc"),
        "{out}"
    );
    let refused = text(&server, ask("/refuse"));

    assert!(
        refused.starts_with("HTTP/1.1 403 ") && !refused.contains("100 Continue"),
        "{refused}"
    );
}

#[test]
fn a_test_server_of_each_kind() {
    let hello = |request: &mut Request<'_>| {
        Response::ok(format!("{:?}", request.peer().map(|peer| peer.ip())))
    };
    let last = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    for server in [
        TestServer::start(Server::new(hello)),
        TestServer::on_threads(Server::new(hello)),
    ] {
        let server = server.unwrap();
        assert_eq!(server.url("/x"), format!("http://{}/x", server.address()));
        let answer = server.exchange(last).unwrap();
        assert_eq!(read_answers(&answer)[0].body, b"Some(127.0.0.1)");
    }

    assert_eq!(
        read_answers(&in_memory(&Server::new(hello), last))[0].body,
        b"None"
    );
}
