//! Request bodies: lengths, strict chunks, their limits.

use plainweave_http::body::{Decoder, Step};
use plainweave_http::{Error, Framing};
use proptest::prelude::*;

use crate::support::{Event, Script, play, read_answers, server, statuses};

/// Decodes pieces; `Some` body when it was complete, and what of the input was left.
fn decode(
    framing: Framing,
    pieces: &[&[u8]],
    limit: u64,
) -> Result<(Option<Vec<u8>>, usize), Error> {
    let mut decoder = Decoder::new(framing, limit)?;
    let mut body = Vec::new();
    let mut unused = 0;
    for piece in pieces {
        let mut input = *piece;
        loop {
            match decoder.step(input, 7)? {
                Step::Data(len) => {
                    assert!((1..=7).contains(&len));
                    body.extend_from_slice(&input[..len]);
                    input = &input[len..];
                }
                Step::Framing(len) | Step::Trailer(len) => {
                    assert!(len > 0);
                    input = &input[len..];
                }
                Step::More => {
                    assert!(input.is_empty());
                    break;
                }
                Step::Done => {
                    unused += input.len();
                    break;
                }
            }
        }
    }
    Ok((decoder.is_done().then_some(body), unused))
}

/// What has come counts, whatever announced it.
#[test]
fn a_limit_is_lowered_in_the_middle() {
    for (framing, start) in [(Framing::Length(10), ""), (Framing::Chunked, "a\r\n")] {
        for (limit, fits) in [(0, false), (5, false), (9, false), (10, true), (20, true)] {
            let mut decoder = Decoder::new(framing, 15).unwrap();
            if !start.is_empty() {
                assert_eq!(
                    decoder.step(start.as_bytes(), 99).unwrap(),
                    Step::Framing(start.len())
                );
            }

            assert_eq!(decoder.step(b"123456", 99).unwrap(), Step::Data(6));
            assert_eq!(
                decoder.set_limit(limit).is_ok(),
                fits,
                "{framing:?} {limit}"
            );
            // Raised again, it is as before.
            decoder.set_limit(10).unwrap();
            assert_eq!(decoder.step(b"7890", 99).unwrap(), Step::Data(4));
        }
    }
}

fn chunked(raw: &[u8]) -> Result<(Option<Vec<u8>>, usize), u16> {
    decode(Framing::Chunked, &[raw], 1000).map_err(|error| error.status().unwrap().as_u16())
}

/// RFC 9112, 7.1.
#[test]
fn chunks() {
    let done = |body: &str, left| Ok((Some(body.as_bytes().to_vec()), left));
    for (raw, expected) in [
        ("0\r\n\r\n", done("", 0)),
        ("3\r\nabc\r\n0\r\n\r\nGET", done("abc", 3)),
        ("A\r\n0123456789\r\n000\r\n\r\n", done("0123456789", 0)),
        ("1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n", done("x", 0)), // 7.1.1: extensions.
        ("1 ;a\r\nx\r\n0 \t; z = y ;b\r\n\r\n", done("x", 0)), // A blank before the semicolon, and nowhere else.
        ("1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", done("x", 0)),   // 7.1.2: trailers.
        ("3\r\nab", Ok((None, 0))),
        ("0\r\n", Ok((None, 0))),
        ("\r\n", Err(400)),
        (";a\r\n", Err(400)),
        ("g\r\n", Err(400)),
        ("0x1\r\nx\r\n", Err(400)),
        ("+1\r\nx\r\n", Err(400)),
        ("-1\r\nx\r\n", Err(400)),
        (" 1\r\nx\r\n", Err(400)),
        ("1 \r\nx\r\n", Err(400)),
        ("1 1;a\r\nx\r\n", Err(400)),
        ("1 a;\r\nx\r\n", Err(400)),
        (" ;a\r\nx\r\n", Err(400)),
        ("1 \n;a\r\nx\r\n", Err(400)),
        ("1\nx\r\n", Err(400)),
        ("1\r\nx\n0\r\n\r\n", Err(400)),
        ("1\rx", Err(400)),
        ("1;a\nb\r\nx\r\n", Err(400)), // An LF that another reader could take for the end of the line.
        ("1;a\rb\r\nx\r\n", Err(400)),
        ("1\r\nxy\r\n", Err(400)),
        ("1\r\nx0\r\n\r\n", Err(400)),
        ("00000000000000001\r\n", Err(400)), // Seventeen digits.
        ("ffffffffffffffff\r\n", Err(413)),
        ("3e8\r\n", Ok((None, 0))),
        ("3e9\r\n", Err(413)),
        ("0\r\nA b\r\n\r\n", Err(400)),
        ("0\r\n: b\r\n\r\n", Err(400)),
        ("0\r\n A: b\r\n\r\n", Err(400)),
        ("0\r\nA: b\n\r\n", Err(400)),
        ("0\r\nA: \0\r\n\r\n", Err(400)),
    ] {
        assert_eq!(chunked(raw.as_bytes()), expected, "{raw:?}");
    }
}

#[test]
fn framing_is_bounded() {
    assert_eq!(
        chunked(format!("1;{}\r\nx", "a".repeat(256)).as_bytes()),
        Ok((None, 0))
    );
    assert_eq!(
        chunked(format!("1;{}\r\nx", "a".repeat(257)).as_bytes()),
        Err(400)
    );
    assert_eq!(
        chunked(format!("1{};\r\nx", " ".repeat(256)).as_bytes()),
        Ok((None, 0))
    );
    assert_eq!(
        chunked(format!("1{};\r\nx", " ".repeat(257)).as_bytes()),
        Err(400)
    );
    assert_eq!(
        chunked(format!("1{};a\r\nx", " ".repeat(256)).as_bytes()),
        Err(400),
        "all of it together"
    );
    let trailers =
        |len: usize| chunked(format!("0\r\nA: {}\r\n\r\n", "b".repeat(len)).as_bytes()).map(|_| ());

    assert_eq!((trailers(8_000), trailers(8_192)), (Ok(()), Err(431)));
    // Tiny chunks with long extensions; then modest chunks with the same ones.
    let stream = |data: usize| {
        format!("{data:x};{}\r\n{}\r\n", "e".repeat(200), "x".repeat(data)).repeat(500)
    };
    let decoded = |data| decode(Framing::Chunked, &[stream(data).as_bytes()], u64::MAX).map(|_| ());
    assert!(decoded(1).is_err_and(|error| error.is_parse()));
    assert!(decoded(1000).is_ok());

    // One-byte chunks alone are wasteful, not an attack.
    assert!(
        decode(
            Framing::Chunked,
            &["1\r\nx\r\n".repeat(50_000).as_bytes()],
            u64::MAX
        )
        .is_ok()
    );
}

#[test]
fn lengths() {
    assert_eq!(
        decode(Framing::Length(3), &[b"ab", b"cd", b"e"], 9).unwrap(),
        (Some(b"abc".to_vec()), 2)
    );
    assert_eq!(decode(Framing::Length(3), &[b"ab"], 9).unwrap(), (None, 0));
    assert!(decode(Framing::Length(10), &[], 9).is_err_and(|error| error.is_too_large()));
}

proptest! {
    #[test]
    fn any_split_decodes_the_same(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        garble in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut raw = Vec::new();
        for chunk in &chunks {
            raw.extend_from_slice(format!("{:X};e\r\n", chunk.len()).as_bytes());
            raw.extend_from_slice(chunk);
            raw.extend_from_slice(b"\r\n");
        }

        raw.extend_from_slice(b"0\r\nT: u\r\n\r\n");
        if garble.is_none() {
            let (body, unused) = decode(Framing::Chunked, &[&raw], 1000).unwrap();
            prop_assert_eq!((body, unused), (Some(chunks.concat()), 0));
        }

        if let Some((place, byte)) = garble {
            let place = place.index(raw.len());
            raw[place] = byte;
        }

        let plain = |result: Result<(Option<Vec<u8>>, usize), Error>| result.map_err(|error| error.status());
        let whole = plain(decode(Framing::Chunked, &[&raw], 1000));
        let (left, right) = raw.split_at(cut.index(raw.len()));
        prop_assert_eq!(&plain(decode(Framing::Chunked, &[left, right], 1000)), &whole);
        let bytes: Vec<&[u8]> = raw.chunks(1).collect();
        prop_assert_eq!(&plain(decode(Framing::Chunked, &bytes, 1000)), &whole);
    }
}

/// The handler's own answer to a body that failed is replaced by the status that names the fault.
#[test]
fn faults_in_a_body_are_answered_by_the_server() {
    let chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(statuses(format!("{chunked}x\r\n")), [400]);
    assert_eq!(statuses(format!("{chunked}fffffff\r\n")), [413]);
    assert_eq!(
        statuses("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"),
        [413]
    );
}

/// Also where the handler does not look at it.
#[test]
fn faults_in_the_body_of_a_get() {
    let get = "GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, expected) in [
        ("0\r\n\r\n", &[200, 200][..]),
        ("1\r\na\r\n0\r\n\r\n", &[200, 200]),
        ("x\r\n", &[400]),
        ("1\r\nab", &[400]),
        ("1\r\na\r\n0\r\n:\r\n\r\n", &[400]),
    ] {
        let next = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(statuses(format!("{get}{body}{next}")), expected, "{body:?}");
        // In pieces: what is wrong comes later than the head.
        let pieces = format!("{get}{body}{next}")
            .bytes()
            .map(|byte| Event::Data(vec![byte]))
            .collect::<Vec<_>>();
        let mut script = Script::new(pieces);
        play(&server(), &mut script);
        let statuses: Vec<u16> = read_answers(&script.out)
            .iter()
            .map(|answer| answer.status)
            .collect();

        assert_eq!(statuses, expected, "{body:?}");
    }

    for cut in ["", "1", "1\r\n", "1\r\na", "1\r\na\r\n0\r\n"] {
        assert_eq!(statuses(format!("{get}{cut}")), [400], "{cut:?}");
    }
    // One that is longer than what is dropped costs the connection, not the answer.
    let long = format!(
        "{get}{}",
        "1000\r\n".to_owned() + &"x".repeat(4096) + "\r\n"
    );
    let long = long.clone() + &long[get.len()..].repeat(40);
    assert_eq!(statuses(long), [200]);
}
