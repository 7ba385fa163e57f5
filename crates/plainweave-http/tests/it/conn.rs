//! Connections: keep-alive, pipelining, turns, HEAD, 100-continue, what becomes of unread bodies.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::{Limits, Next, Request, Response, Server, StatusCode};

use crate::support::{Event, Script, answers_to, play, read_answers, server, statuses};

const GET: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[test]
fn an_answer_is_complete() {
    let answers = answers_to(GET);
    assert_eq!(answers[0].body, b"/a");
    let names: Vec<&str> = answers[0]
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Date", "Content-Length"]);
}

#[test]
fn names_and_own_dates() {
    let handler = |_: &mut Request<'_>| {
        let mut response = Response::ok("x");
        for (name, value) in [
            ("date", "then"),
            ("content-length", "7"),
            ("transfer-encoding", "gzip"),
            ("x", "y"),
        ] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response
    };

    assert!(
        Server::new(handler)
            .with_name("a\nb")
            .is_err_and(|error| error.is_invalid_header())
    );
    let mut script = Script::of(GET);
    play(
        &Server::new(handler).with_name("weave").unwrap(),
        &mut script,
    );
    let text = String::from_utf8(script.out).unwrap();

    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nServer: weave\r\nDate: then\r\nX: y\r\nContent-Length: 1\r\n\r\nx"
    );
}

/// RFC 9112, 9.3.
#[test]
fn persistence() {
    for (version, option, open, said) in [
        ("1.1", "", true, None),
        ("1.1", "Connection: close\r\n", false, Some("close")),
        (
            "1.1",
            "Connection: keep-alive, CLOSE\r\n",
            false,
            Some("close"),
        ),
        (
            "1.1",
            "Connection: x\r\nConnection: y,close\r\n",
            false,
            Some("close"),
        ),
        ("1.0", "", false, Some("close")),
        (
            "1.0",
            "Connection: Keep-Alive\r\n",
            true,
            Some("keep-alive"),
        ),
    ] {
        let one = format!("GET /a HTTP/{version}\r\nHost: h\r\n{option}\r\n");
        let answers = answers_to(one.repeat(2));
        assert_eq!(answers.len(), if open { 2 } else { 1 }, "{one:?}");
        assert_eq!(answers[0].header("connection"), said, "{one:?}");
    }
    assert_eq!(statuses(get("/close") + GET), [200]);
}

#[test]
fn pipelined_answers_leave_together() {
    let mut script = Script::of([get("/1"), get("/2"), get("/known"), get("/4")].concat());
    assert_eq!(play(&server(), &mut script), 2); // The second turn meets the end.
    assert_eq!(
        script.writes.len(),
        2,
        "a streamed body takes those before it along"
    );
    let bodies: Vec<_> = read_answers(&script.out)
        .into_iter()
        .map(|answer| answer.body)
        .collect();
    assert_eq!(bodies, [&b"/1"[..], b"/2", b"known", b"/4"]);
    assert_eq!(
        script.timeouts_set, 1,
        "no system call for a timeout that stays the same"
    );

    let mut script = Script::of(GET.repeat(100));
    play(&server(), &mut script);
    assert_eq!(
        (script.writes.len(), read_answers(&script.out).len()),
        (1, 100)
    );
}

/// Reads and writes chopped at will: the same answers.
#[test]
fn pieces_change_nothing() {
    let post = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;e\r\nde\r\n0\r\n\r\n";
    let half = "POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345";
    let all = [
        GET,
        "\r\n",
        post,
        half,
        &get("/stream"),
        &get("/big"),
        &get("/none"),
        GET,
    ]
    .concat();
    let strip = |out: &[u8]| {
        let mut answers = read_answers(out);
        answers
            .iter_mut()
            .for_each(|answer| answer.headers.retain(|(name, _)| name != "Date"));
        answers
    };

    let mut whole = Script::of(&all);
    play(&server(), &mut whole);
    assert_eq!(strip(&whole.out).len(), 7);

    for (read_max, write_max) in [
        (1, usize::MAX),
        (1, 1),
        (2, 7),
        (3, 1000),
        (17, 3),
        (usize::MAX, 1),
    ] {
        let mut script = Script {
            read_max,
            write_max,
            ..Script::of(&all)
        };

        play(&server(), &mut script);
        assert_eq!(
            strip(&script.out),
            strip(&whole.out),
            "{read_max} {write_max}"
        );
    }

    for cut in 0..all.len() {
        let (left, right) = all.as_bytes().split_at(cut);
        let mut script = Script::new([left, right].map(|part| Event::Data(part.to_vec())));
        script
            .events
            .retain(|event| !matches!(event, Event::Data(data) if data.is_empty()));
        play(&server(), &mut script);
        assert_eq!(strip(&script.out), strip(&whole.out), "{cut}");
    }
}

#[test]
fn turns_end_when_nothing_is_buffered() {
    let server = server();
    let limits = Limits::default();
    let mut script = Script::new([GET, GET].map(|part| Event::Data(part.into())));
    let mut state = server.open(&mut script).unwrap();
    assert!(size_of_val(&state) <= 56);

    for answered in 1..=2 {
        assert_eq!(
            server.serve_ready(&mut script, &mut state),
            Next::Idle(limits.idle_timeout)
        );
        assert_eq!(read_answers(&script.out).len(), answered);
    }

    assert_eq!(server.serve_ready(&mut script, &mut state), Next::Close);
    assert!(
        !script.ended,
        "the peer ended it: nothing to say, nothing to wait for"
    );
}

#[test]
fn stopping_makes_every_answer_the_last() {
    let server = server();
    server.stop();
    let mut script = Script::of(GET.repeat(2));
    assert_eq!(play(&server, &mut script), 1);
    let answers = read_answers(&script.out);
    assert_eq!(
        (answers.len(), answers[0].header("connection")),
        (1, Some("close"))
    );
}

#[test]
fn requests_can_be_counted() {
    let limits = Limits {
        requests: 2,
        ..Limits::default()
    };

    let mut script = Script::of(GET.repeat(3));
    play(&server().with_limits(limits), &mut script);
    let answers = read_answers(&script.out);
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.header("connection"))
            .collect::<Vec<_>>(),
        [None, Some("close")]
    );
}

/// RFC 9110, 9.3.2; RFC 9112, 6.3.
#[test]
fn answers_without_a_body() {
    let mut script =
        Script::of("HEAD /big HTTP/1.1\r\nHost: h\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    play(&server(), &mut script);
    let text = String::from_utf8(script.out).unwrap();
    assert!(
        text.contains("Content-Length: 100000\r\n\r\nHTTP/1.1 200 OK\r\n")
            && text.ends_with("\r\n\r\n"),
        "{text}"
    );

    for path in ["/none", "/same"] {
        let answers = answers_to(get(path) + GET);
        assert_eq!(answers.len(), 2);
        assert_eq!(
            (
                answers[0].header("content-length"),
                answers[0].header("transfer-encoding")
            ),
            (None, None)
        );
    }

    assert_eq!(statuses(get("/interim") + GET), [500, 200]);
}

#[test]
fn bodies_of_unknown_length() {
    let answers = answers_to(get("/stream") + GET);
    assert_eq!(
        (answers[0].header("transfer-encoding"), &answers[0].body[..]),
        (Some("chunked"), &b"streamed"[..])
    );
    assert_eq!(answers.len(), 2);
    let answers = answers_to("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");

    assert_eq!(
        (answers[0].header("connection"), &answers[0].body[..]),
        (Some("close"), &b"streamed"[..])
    );
}

#[test]
fn bodies_that_break_their_promise() {
    assert_eq!(answers_to(get("/long"))[0].body, b"longer");
    let mut script = Script::of(get("/short") + GET);
    play(&server(), &mut script);
    assert!(
        script.out.ends_with(b"\r\n\r\nshort"),
        "then it is closed: a client can tell"
    );

    // As long as nothing was sent it can still be told in words.
    assert_eq!(statuses(get("/broken") + GET), [500]);
}

/// RFC 9110, 10.1.1.
#[test]
fn expect_continue() {
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
        )
    };

    let events = |path: &str| [head(path), "abc".to_owned()].map(|part| Event::Data(part.into()));
    let mut script = Script::new(events("/echo"));
    play(&server(), &mut script);
    let all = read_answers(&script.out);
    assert_eq!(
        all.iter().map(|answer| answer.status).collect::<Vec<_>>(),
        [100, 200]
    );
    assert_eq!(all[1].body, b"abc");

    // Not read: no 100, and nobody knows whether the body comes.
    let mut script = Script::new(events("/a"));
    play(&server(), &mut script);
    let all = read_answers(&script.out);
    assert_eq!(
        (all.len(), all[0].status, all[0].header("connection")),
        (1, 200, Some("close"))
    );
    assert!(script.ended, "it lingers");

    // Already there: no 100 needed.
    assert_eq!(statuses(head("/echo") + "abc" + GET), [200, 200]);
    assert_eq!(
        statuses("POST /echo HTTP/1.0\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"),
        [200]
    );
}

#[test]
fn unread_bodies() {
    let post = |len: usize| {
        format!(
            "POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{}",
            "x".repeat(len)
        )
    };

    for (len, expected) in [(0, 2), (1, 2), (5_000, 2), (60_000, 2), (200_000, 1)] {
        let answers = answers_to(post(len) + GET);
        assert_eq!(answers.len(), expected, "{len}");
        assert!(answers.iter().all(|answer| answer.status == 200));
    }

    let chunked =
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    assert_eq!(statuses(chunked.to_owned() + GET), [200, 200]);
}

#[test]
fn large_bodies_arrive_whole() {
    let body: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let head = format!(
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for read_max in [1_000, 5_000, usize::MAX] {
        let raw = [head.as_bytes(), &body, GET.as_bytes()].concat();
        let mut script = Script {
            read_max,
            ..Script::of(raw)
        };

        play(&server(), &mut script);
        let answers = read_answers(&script.out);
        assert_eq!((answers.len(), answers[0].body == body), (2, true));
    }
}

#[test]
fn a_panic_costs_one_request() {
    assert_eq!(
        statuses(GET.to_owned() + &get("/panic") + GET),
        [200, 500, 200]
    );
}

#[test]
fn heads_of_the_greatest_size_can_have_bodies() {
    let fill = "x".repeat(16_384 - 79);
    let head =
        format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\nA: {fill}\r\n\r\n");
    assert!((16_300..=16_384).contains(&head.len()), "{}", head.len());
    let answers = answers_to([GET, &head, &"y".repeat(10_000), GET].concat());

    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.body.len())
            .collect::<Vec<_>>(),
        [2, 10_000, 2]
    );
}

#[test]
fn time_outs_that_are_set() {
    let limits = Limits {
        header_timeout: Duration::from_secs(3),
        ..Limits::default()
    };

    let mut script = Script::of(GET);
    play(&server().with_limits(limits), &mut script);
    assert_eq!(script.timeout, Some(Duration::from_secs(3)));
}

/// The longest time of all is a usual way to say "for ever": no sum of a clock and a limit
/// overflows.
#[test]
fn time_outs_may_be_as_long_as_times_can_be() {
    let ever = Duration::MAX;
    let limits = Limits {
        handshake_timeout: ever,
        header_timeout: ever,
        idle_timeout: ever,
        body_timeout: ever,
        write_timeout: ever,
        linger_timeout: ever,
        body_bytes: 10_000,
        ..Limits::default()
    };

    let server = server().with_limits(limits);
    // In pieces, so that the rest of the head and of the body is waited for; then one that is
    // refused, and lingers.
    let body = format!(
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n{}",
        "y".repeat(10_000)
    );
    let refused = format!(
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10001\r\n\r\n{}",
        "y".repeat(10_001)
    );
    let sent = [GET, &body, GET, &refused].concat();
    let mut script = Script::new(
        sent.as_bytes()
            .chunks(7)
            .map(|piece| Event::Data(piece.to_vec())),
    );

    play(&server, &mut script);
    let answers = read_answers(&script.out);

    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.status)
            .collect::<Vec<_>>(),
        [200, 200, 200, 413]
    );
    assert!(script.ended && script.events.is_empty(), "it lingered");
}

#[test]
fn a_refusal_is_503_and_the_end() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let record = told.clone();
    let server = server().on_exchange(move |exchange| record.lock().unwrap().push(exchange.status));

    for sent in [GET, "GE", &GET.repeat(3)] {
        let mut script = Script::of(sent);
        let mut state = server.open(&mut script).unwrap();
        assert!(server.refuse(&mut script, &mut state));
        let answers = read_answers(&script.out);
        assert_eq!(
            (
                answers.len(),
                answers[0].status,
                answers[0].header("retry-after")
            ),
            (1, 503, Some("1")),
            "{sent:?}"
        );
        assert_eq!(answers[0].header("connection"), Some("close"));
        assert!(
            script.ended && script.events.is_empty(),
            "all is read before the end: {sent:?}"
        );
    }

    assert_eq!(
        *told.lock().unwrap(),
        [Some(StatusCode::SERVICE_UNAVAILABLE); 3]
    );

    let mut script = Script::of("HEAD / HTTP/1.1\r\n");
    let mut state = server.open(&mut script).unwrap();
    assert!(server.refuse(&mut script, &mut state));
    assert!(
        script.out.starts_with(b"HTTP/1.1 503 ") && script.out.ends_with(b"\r\n\r\n"),
        "no body after HEAD"
    );
}

#[test]
fn a_peer_that_has_left_is_not_refused() {
    for events in [
        vec![],
        vec![Event::Fail(ErrorKind::ConnectionReset)],
        vec![Event::Stall],
    ] {
        let server = server();
        let mut script = Script::new(events);
        let mut state = server.open(&mut script).unwrap();
        assert!(!server.refuse(&mut script, &mut state));
        assert!(script.out.is_empty());
    }
}

#[test]
fn a_refusal_does_not_wait_for_a_peer_that_reads_nothing() {
    let server = server();
    let mut script = Script::of(GET);
    script.deaf_after = Some((10, ErrorKind::TimedOut));
    let mut state = server.open(&mut script).unwrap();
    assert!(server.refuse(&mut script, &mut state));
    assert_eq!((script.out.len(), script.ended), (10, false));
}
