//! Request heads: what is taken, what is refused, and with which status.

use plainweave_http::parse::{HeadScanner, Scan, header_slots, parse_head};
use plainweave_http::{Framing, Limits, StatusCode, Target};
use proptest::prelude::*;

use crate::support::{Event, Script, answers_to, play, server, statuses};

/// Raw heads and the status of the (only) answer. Paragraphs are RFC 9112's unless another RFC is
/// named.
const RAW_REQUESTS: &[(&str, u16)] = &[
    // 3: the request line.
    ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("GET / HTTP/1.0\r\n\r\n", 200),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200), // 2.2: empty lines before it.
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("GET /\r\nHost: a\r\n\r\n", 400), // HTTP/0.9.
    ("GET\r\n\r\n", 400),
    ("\0\r\n\r\n", 400),
    ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\x16\x03\x01\x02", 400), // A TLS client; it waits, and there is no line end.
    ("{\"a\":", 400),
    // 2.2: line ends.
    ("GET / HTTP/1.1\nHost: a\n\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\rb: c\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400),
    // 2.3: versions.
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("PRI * HTTP/2.0\r\n\r\n", 505),
    ("GET / HTTP/3.1\r\nHost: a\r\n\r\n", 505),
    ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    // RFC 9110, 2.5: a later minor version is the latest one that is known.
    ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 200),
    ("GET / HTTP/1.9\r\nHost: a\r\nA: b\r\n\r\n", 200),
    ("GET / HTTP/1.2\r\n\r\n", 400),
    ("GET / HTTP/1.2\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.2\r\nHost: a\r\nA : b\r\n\r\n", 400),
    ("GET /  HTTP/1.2\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.2 \r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.2\r\r\nHost: a\r\n\r\n", 400),
    ("GET /gr\u{fc}n HTTP/1.2\r\nHost: a\r\n\r\n", 400),
    ("G@T / HTTP/1.2\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.a\r\nHost: a\r\n\r\n", 400),
    (
        "POST / HTTP/1.2\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 400),
    // 3.2: Host.
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    // RFC 3986, 3.2.2 and 3.2.3: hosts and ports.
    ("GET / HTTP/1.1\r\nHost: a%7eb.c:65535\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: %41%\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: %4g\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: a:00080\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400),
    (
        "GET / HTTP/1.1\r\nHost: a:99999999999999999999\r\n\r\n",
        400,
    ),
    ("GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1]:65536\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1]:8\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: gr\u{fc}n\r\n\r\n", 400),
    // 3.3: without an authority, the server's own.
    ("GET / HTTP/1.1\r\nHost: \t\r\n\r\n", 200),
    // 3.2.1 to 3.2.4: forms of the target.
    ("GET http://a/b?c HTTP/1.1\r\nHost: b\r\n\r\n", 200),
    ("GET http://a HTTP/1.1\r\nHost: b\r\n\r\n", 200),
    ("GET http://a HTTP/1.1\r\n\r\n", 400),
    ("GET http:///b HTTP/1.1\r\nHost: b\r\n\r\n", 400),
    ("GET http://u:p@a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400), // RFC 9110, 4.2.4.
    ("GET ftp://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
    ("GET a HTTP/1.1\r\nHost: b\r\n\r\n", 400),
    ("GET a:80 HTTP/1.1\r\nHost: b\r\n\r\n", 400),
    ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT [::1] HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT [::1]:80 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("CONNECT a:x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /gr\u{fc}n HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    // 5: fields.
    ("GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", 400), // 5.1.
    ("GET / HTTP/1.1\r\nHost: a\r\n A: b\r\n\r\n", 400), // 5.2: obs-fold.
    ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400), // 2.2: blank before the first field.
    ("GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nA(: b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nhOsT:a\r\nA:\t b \t\r\n\r\n", 200),
    // RFC 9110, 10.1.1: expectations.
    ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
];

#[test]
fn statuses_of_raw_requests() {
    for (raw, status) in RAW_REQUESTS {
        assert_eq!(statuses(raw), [*status], "{raw:?}");
    }
}

/// RFC 9110, 7.2, and RFC 3986, 3.2.
#[test]
fn authorities() {
    let good = [
        "a",
        "a:",
        "a:80",
        "a.b-c_d~e:65535",
        "127.0.0.1:080",
        "[::1]",
        "[::1]:80",
        "[::ffff:1.2.3.4]:",
        "%41b",
    ];
    let bad = [
        ":80",
        "a:80x",
        "a:x",
        "a:80:80",
        "a:-1",
        "a:+1",
        "a:65536",
        "::1",
        "[::1",
        "::1]",
        "[]",
        "[::1]80",
        "[::1]x:80",
        "[1.2.3.4]",
        "[fe80::1%25eth0]",
        "[v1.a]",
        "[[::1]]",
        "a]",
        "a[",
        "%",
        "%4",
        "%4g",
        "a%zz:80",
        "a\"b",
        "a<b",
    ];

    let table = good
        .iter()
        .map(|host| (host, 200))
        .chain(bad.iter().map(|host| (host, 400)));
    for (host, status) in table {
        assert_eq!(
            statuses(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            [status],
            "Host: {host}"
        );
        assert_eq!(
            statuses(format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n")),
            [status],
            "{host}"
        );
        assert_eq!(
            statuses(format!("GET http://a/ HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            [status],
            "{host}"
        );
    }
}

/// Where two readers could disagree on the end of a request. RFC 9112, 6.1 to 6.3 and 11.2; RFC
/// 9110, 8.6.
#[test]
fn smuggling() {
    let table: &[(&str, u16)] = &[
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        ("Content-Length: 1, 2\r\n\r\nab", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 200),
        ("Content-Length: 1, 1\r\n\r\na", 200),
        ("Content-Length: +5\r\n\r\nabcde", 400),
        ("Content-Length: -1\r\n\r\n", 400),
        ("Content-Length: 0x5\r\n\r\nabcde", 400),
        ("Content-Length: 5 5\r\n\r\nabcde", 400),
        ("Content-Length: 5,\r\n\r\nabcde", 400),
        ("Content-Length:\r\n\r\n", 400),
        ("Content-Length:  \t\r\n\r\n", 400),
        ("Content-Length: 18446744073709551616\r\n\r\n", 400),
        ("Content-Length: 18446744073709551615\r\n\r\n", 413),
        ("Content-Length : 5\r\n\r\nabcde", 400),
        ("Content-Length\r\n: 5\r\n\r\nabcde", 400),
        ("Content_Length: 5\r\n\r\n", 200), // Another field.
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200),
        ("Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", 200),
        ("Transfer-Encoding: , chunked\r\n\r\n0\r\n\r\n", 200),
        ("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("Transfer-Encoding: chunked, gzip\r\n\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
            400,
        ),
        ("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("Transfer-Encoding: identity\r\n\r\n", 501),
        ("Transfer-Encoding: xchunked\r\n\r\n", 501),
        ("Transfer-Encoding: chunked;a=b\r\n\r\n", 501),
        ("Transfer-Encoding: \"chunked\"\r\n\r\n", 501),
        ("Transfer-Encoding: chunk\u{e9}d\r\n\r\n", 501),
        ("Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
        ("Transfer-Encoding:\r\n\r\n", 400),
        ("Transfer-Encoding\r\n : chunked\r\n\r\n", 400),
    ];
    for (fields, status) in table {
        let raw = format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}");
        assert_eq!(statuses(&raw), [*status], "{fields:?}");
    }

    // 6.1: an HTTP/1.0 client cannot mean it.
    assert_eq!(
        statuses("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        [400]
    );
}

/// What was refused is answered once, and nothing behind it is taken for a request.
#[test]
fn nothing_is_read_behind_a_refusal() {
    let smuggled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                    0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n";
    let answers = answers_to(smuggled);
    assert_eq!(answers.len(), 1);
    assert_eq!(
        (answers[0].status, answers[0].header("connection")),
        (400, Some("close"))
    );
}

/// RFC 9110, 9.3.2: no answer to HEAD has a body, whatever is wrong with the rest.
#[test]
fn a_refused_head_request_gets_no_body() {
    let long = "a".repeat(17_000);
    for (rest, status) in [
        ("/ HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("/ HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n".to_owned(), 400),
        ("/ HTTP/1.1\r\nHost: a".to_owned(), 408),
        (
            "/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n".to_owned(),
            413,
        ),
        (format!("/{long} HTTP/1.1\r\n"), 414),
        (
            "/ HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\n\r\n".to_owned(),
            417,
        ),
        (format!("/ HTTP/1.1\r\nHost: a\r\nA: {long}"), 431),
        (
            "/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(),
            501,
        ),
        ("/ HTTP/3.1\r\nHost: a\r\n\r\n".to_owned(), 505),
    ] {
        for (method, has_body) in [("HEAD", false), ("GET", true)] {
            let request = Event::Data(format!("\r\n{method} {rest}").into());
            let mut script = Script::new([request, Event::Stall]);
            play(&server(), &mut script);
            let answer = String::from_utf8_lossy(&script.out);
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")),
                "{method} {status}: {head}"
            );
            assert_eq!(!body.is_empty(), has_body, "{method} {status}: {body:?}");
        }
    }
}

#[test]
fn limits_on_size() {
    let limits = Limits::default();
    let fields = |count: usize| {
        (0..count)
            .map(|n| format!("A{n}: b\r\n"))
            .collect::<String>()
    };

    let head = |line: &str, fields: &str| format!("GET {line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let long = |len: usize| "a".repeat(len);
    let full = limits.line_bytes - "GET / HTTP/1.1\r\n".len();

    for (raw, status) in [
        (head("/", &fields(99)), 200),
        (head("/", &fields(100)), 431), // RFC 6585, 5.
        (head("/", &format!("A: {}\r\n", long(12_000))), 200),
        (head("/", &format!("A: {}\r\n", long(17_000))), 431),
        (head(&format!("/{}", long(full)), ""), 200),
        (head(&format!("/{}", long(full + 1)), ""), 414), // RFC 9110, 15.5.15.
        (long(9_000), 414),
        (format!("GET / HTTP/1.1\r\nA: {}", long(17_000)), 431),
    ] {
        assert_eq!(statuses(&raw), [status], "{} bytes", raw.len());
    }
}

#[test]
fn views_of_a_head() {
    let raw = b"GET HTTP://h:1?q=/?x HTTP/1.1\r\nHost: other\r\nA: 1\r\nConnection: x , Close\r\na: 2\r\n\r\n";
    let mut slots = header_slots();
    let head = parse_head(raw, &mut slots).unwrap();
    assert_eq!(
        head.target(),
        Target::Absolute {
            authority: "h:1",
            rest: "?q=/?x"
        }
    );
    assert_eq!(
        (head.path(), head.query(), head.host()),
        ("/", Some("q=/?x"), Some("h:1"))
    );
    assert_eq!(
        (head.keep_alive(), head.framing()),
        (false, Framing::Length(0))
    );
    assert_eq!(head.header_all("A").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.to_header_map().get_all("a").iter().count(), 2);
}

/// The head's length and how it parses, fed in pieces that end at these places.
fn feed(raw: &[u8], cuts: &[usize]) -> Result<Option<(usize, String)>, StatusCode> {
    let limits = Limits {
        head_bytes: 200,
        line_bytes: 80,
        headers: 4,
        ..Limits::default()
    };
    let mut scanner = HeadScanner::default();
    let mut start = 0;
    for &end in cuts.iter().chain([&raw.len()]) {
        loop {
            match scanner
                .scan(&raw[start..end.max(start)], &limits)
                .map_err(|error| error.status().unwrap())?
            {
                Scan::More => break,
                Scan::Blank(len) => (start, scanner) = (start + len, HeadScanner::default()),
                Scan::Head(len) => {
                    let mut slots = header_slots();
                    let head = parse_head(&raw[start..start + len], &mut slots);
                    let head = head.map_err(|error| error.status().unwrap())?;
                    return Ok(Some((start + len, format!("{head:?}"))));
                }
            }
        }
    }
    Ok(None)
}

fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = "(GET|POST|OPTIONS|CONNECT| |/|\\*|a|http://|HTTP/1\\.[019]|\r\n|\n|\r|:|,|Host: a|Host:|[a-z]{60}\
                 |Content-Length: |Transfer-Encoding: |chunked|Connection: close|Expect: |7|\\+|\\x00|\u{fc})";
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn random_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = feed(&raw, &[]);
        let mut slots = header_slots();
        let _ = parse_head(&raw, &mut slots);
    }

    #[test]
    fn splits_change_nothing(
        raw in request_like(),
        valid in any::<bool>(),
        cuts in prop::collection::vec(0usize..300, 0..8),
    ) {
        let prefix: &[u8] = if valid { b"GET / HTTP/1.1\r\nHost: b\r\nX-" } else { b"" };
        let raw = [prefix, &raw, b"\r\n\r\n"].concat();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(raw.len())).collect();
        cuts.sort_unstable();
        let whole = feed(&raw, &[]);
        prop_assert_eq!(&feed(&raw, &cuts), &whole);
        prop_assert_eq!(&feed(&raw, &(0..raw.len()).collect::<Vec<_>>()), &whole);
    }
}

/// A head that arrives byte by byte costs one look at each byte: a megabyte of it must not take a
/// quadratic time.
#[test]
fn byte_by_byte_is_linear() {
    let limits = Limits {
        head_bytes: 4 << 20,
        line_bytes: 4 << 20,
        ..Limits::default()
    };

    let raw = [b"GET /".as_slice(), &vec![b'a'; 1 << 20]].concat();
    let start = std::time::Instant::now();
    let mut scanner = HeadScanner::default();
    for end in 0..raw.len() {
        assert_eq!(scanner.scan(&raw[..end], &limits).unwrap(), Scan::More);
    }
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}
