//! Peers that vanish, stall, drip and refuse.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::{Error, Limits};

use crate::support::{Event, Script, play, read_answers, server};

const REQUESTS: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n\
                        POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
                        POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
                        GET /known HTTP/1.1\r\nHost: h\r\n\r\nGET /stream HTTP/1.1\r\nHost: h\r\n\r\n";

/// Where each request ends.
fn ends() -> Vec<usize> {
    let last = [
        "/a HTTP/1.1\r\nHost: h\r\n\r\n",
        "\r\n\r\nabc",
        "0\r\n\r\n",
        "/known HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    let mut at = 0;
    let found = last.iter().map(|last| {
        at += REQUESTS[at..].find(last).unwrap() + last.len();
        at
    });

    found.chain([REQUESTS.len()]).collect()
}

/// How many of the requests end before this byte.
fn complete(until: usize) -> usize {
    ends().into_iter().filter(|&end| end <= until).count()
}

/// Whether a body has begun before this byte, and not ended.
fn in_body(until: usize) -> bool {
    ends().windows(2).any(|request| {
        let body = request[0] + REQUESTS[request[0]..].find("\r\n\r\n").unwrap() + 4;
        (body..request[1]).contains(&until)
    })
}

/// Runs a script with a record of the errors; the default limits, but for short farewells.
fn run(script: &mut Script) -> Vec<Error> {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&errors);
    let limits = Limits {
        linger_timeout: Duration::from_millis(50),
        linger_bytes: 1 << 20,
        ..Limits::default()
    };

    let server = server()
        .with_limits(limits)
        .on_error(move |error| record.lock().unwrap().push(error.clone()));
    play(&server, script);
    drop(server);
    Arc::try_unwrap(errors).unwrap().into_inner().unwrap()
}

#[test]
fn a_peer_that_leaves_at_any_byte() {
    for len in 0..=REQUESTS.len() {
        for fault in [None, Some(ErrorKind::ConnectionReset)] {
            let data = Event::Data(REQUESTS.as_bytes()[..len].to_vec());
            let mut script = Script::new((len > 0).then_some(data));
            script.events.extend(fault.map(Event::Fail));
            let errors = run(&mut script);
            let answers = read_answers(&script.out);

            // Of a body that is cut short the peer may still be told; one that is gone may not.
            let mut expected = vec![200; complete(len)];
            expected.extend((fault.is_none() && in_body(len)).then_some(400));
            let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
            assert_eq!(statuses, expected, "{len} {fault:?}");
            assert!(
                errors.iter().all(Error::is_closed) && errors.len() <= 1,
                "{len} {errors:?}"
            );
        }
    }
}

#[test]
fn a_peer_that_takes_no_more_after_any_byte() {
    let mut whole = Script::of(REQUESTS);
    assert!(run(&mut whole).is_empty());
    for len in 0..whole.out.len() {
        for kind in [ErrorKind::BrokenPipe, ErrorKind::WouldBlock] {
            let mut script = Script {
                deaf_after: Some((len, kind)),
                ..Script::of(REQUESTS)
            };

            let errors = run(&mut script);
            assert_eq!(script.out.len(), len);
            assert_eq!(errors.len(), 1, "{len} {errors:?}");
            assert_eq!(
                (errors[0].is_closed(), errors[0].is_timeout()),
                match kind {
                    ErrorKind::BrokenPipe => (true, false),
                    _ => (false, true),
                }
            );
        }
    }
}

/// Silence at any byte: 408 in the middle of a request (RFC 9110, 15.5.9), nothing between two.
#[test]
fn a_peer_that_stalls_at_any_byte() {
    for len in 1..REQUESTS.len() {
        let mut script = Script::new([
            Event::Data(REQUESTS.as_bytes()[..len].to_vec()),
            Event::Stall,
        ]);
        let errors = run(&mut script);
        let statuses: Vec<u16> = read_answers(&script.out)
            .iter()
            .map(|answer| answer.status)
            .collect();
        let between = complete(len) > complete(len - 1);
        let mut expected = vec![200; complete(len)];

        expected.extend((!between).then_some(408));
        assert_eq!(statuses, expected, "{len}");
        assert_eq!(
            errors.iter().filter(|error| error.is_timeout()).count(),
            usize::from(!between)
        );
    }
}

#[test]
fn a_connection_that_never_speaks_is_closed_without_a_word() {
    let mut script = Script::new([Event::Stall]);
    assert!(run(&mut script).is_empty());
    assert!(script.out.is_empty());
}

/// A stream on which every read takes a while: the sum is bounded, not each wait.
#[test]
fn a_peer_that_drips() {
    let limits = Limits {
        header_timeout: Duration::from_millis(40),
        body_timeout: Duration::from_millis(40),
        linger_timeout: Duration::from_millis(20),
        min_rate: 1 << 20,
        ..Limits::default()
    };

    let head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\n";
    for (first, rest) in [
        ("GET / HTTP/1.1\r\n", "A: b\r\n".repeat(50)),
        (head, "x".repeat(500)),
    ] {
        let drops = rest
            .as_bytes()
            .chunks(1)
            .map(|byte| Event::Data(byte.to_vec()));
        let mut script = Dripping(Script::new(
            [Event::Data(first.into())].into_iter().chain(drops),
        ));
        let server = server().with_limits(limits.clone());
        let mut state = server.open(&mut script).unwrap();
        server.serve_ready(&mut script, &mut state);
        assert_eq!(
            read_answers(&script.0.out)
                .iter()
                .map(|answer| answer.status)
                .collect::<Vec<_>>(),
            [408]
        );
        assert!(!script.0.events.is_empty(), "cut off before all had come");
    }
}

struct Dripping(Script);

impl std::io::Read for Dripping {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.read(buf)
    }
}

impl std::io::Write for Dripping {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl plainweave_http::Transport for Dripping {
    fn set_read_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.0.set_write_timeout(timeout)
    }

    fn shutdown_write(&mut self) -> std::io::Result<()> {
        self.0.shutdown_write()
    }
}

/// The runtime's cancellation is an error of kind Other: the connection ends, nothing is said.
#[test]
fn cancellation() {
    let mut script = Script::new([
        Event::Data(b"GET / HT".to_vec()),
        Event::Fail(ErrorKind::Other),
    ]);
    let errors = run(&mut script);
    assert!(errors.len() == 1 && errors[0].is_io() && script.out.is_empty());
}

#[test]
fn interrupted_calls_are_repeated() {
    let parts = [
        Event::Data(b"GET /a HT".to_vec()),
        Event::Fail(ErrorKind::Interrupted),
    ];
    let mut script = Script::new(
        parts
            .into_iter()
            .chain([Event::Data(b"TP/1.0\r\n\r\n".to_vec())]),
    );
    assert!(run(&mut script).is_empty());
    assert_eq!(read_answers(&script.out)[0].body, b"/a");
}

#[test]
fn an_error_is_followed_by_a_bounded_farewell() {
    let mut script = Script::of([&b"BAD\r\n\r\n"[..], &vec![0; 8 << 20]].concat());
    let errors = run(&mut script);
    assert!(script.ended && errors[0].is_parse());
    let left: usize = script
        .events
        .iter()
        .map(|event| {
            if let Event::Data(data) = event {
                data.len()
            } else {
                0
            }
        })
        .sum();
    assert!((6 << 20..8 << 20).contains(&left), "{left}");
}
