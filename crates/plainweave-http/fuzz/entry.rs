//! What is claimed of any input: nothing panics or runs for ever, and how bytes are split into
//! reads decides nothing.
//!
//! The first byte says how large the reads are, the rest is what the peer sends before it ends its
//! direction. Used by the fuzz targets and, with a fixed seed, by the tests (`tests/it/fuzz.rs`).

#[path = "entry/response.rs"]
mod response;
#[path = "entry/tls.rs"]
mod tls;

use std::sync::OnceLock;

use plainweave::Runtime;
use plainweave_http::body::{Decoder, Step};
use plainweave_http::parse::{HeadScanner, Scan, header_slots, parse_head};
use plainweave_http::proxy::{self, Proxied};
use plainweave_http::testing::Memory;
use plainweave_http::{Framing, Limits, Request, Response, Server, StatusCode};

pub(crate) use response::response;
pub(crate) use tls::tls;

/// Bytes of a body that are taken.
const LIMIT: u64 = 1 << 16;

/// Holds the claims against one input.
pub(crate) fn request(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else {
        return;
    };
    let step = 1 + usize::from(first % 17);
    if let Some(len) = scanner(input, step) {
        head(&input[..len], &input[len..], step);
    }
    let whole = answers(input, input.len().max(1));
    let split = answers(input, step);

    assert_eq!(
        whole, split,
        "reads of {step} bytes are answered in another way"
    );
}

/// Finds the end of the head in one look and in many. Its length, if there is one.
fn scanner(input: &[u8], step: usize) -> Option<usize> {
    let limits = Limits::default();
    let whole = HeadScanner::default().scan(input, &limits);
    let mut scanner = HeadScanner::default();

    let ends = (step..input.len()).step_by(step).chain([input.len()]);
    let split = ends
        .map(|end| scanner.scan(&input[..end], &limits))
        .find(|found| !matches!(found, Ok(Scan::More)));
    let split = split.unwrap_or(Ok(Scan::More));
    match (whole, split) {
        (Err(_), Err(_)) => None,
        (Ok(whole), Ok(split)) => {
            assert_eq!(whole, split, "looks of {step} bytes find another end");
            if let Scan::Head(len) = whole {
                Some(len)
            } else {
                None
            }
        }
        (whole, split) => panic!("looks of {step} bytes disagree: {whole:?}, {split:?}"),
    }
}

/// Parses a head and decodes the body behind it, in one piece and in many.
fn head(head: &[u8], rest: &[u8], step: usize) {
    let mut slots = header_slots();
    let Ok(parsed) = parse_head(head, &mut slots) else {
        return;
    };
    assert!(
        parsed.path().is_empty() || parsed.path().starts_with('/'),
        "{}",
        parsed.path()
    );
    assert!(
        parsed.path().bytes().all(|byte| byte.is_ascii_graphic()),
        "{}",
        parsed.path()
    );
    let framing = parsed.framing();

    assert_eq!(
        body(framing, rest, usize::MAX),
        body(framing, rest, step),
        "a body depends on how it is split"
    );
}

/// The data of a body, the bytes used, and whether it was complete; `None`: refused.
fn body(framing: Framing, mut rest: &[u8], step: usize) -> Option<(Vec<u8>, usize, bool)> {
    let mut data = Vec::new();
    let mut used = 0;
    let mut decoder = Decoder::new(framing, LIMIT).ok()?;

    loop {
        match decoder.step(&rest[..step.min(rest.len())], step).ok()? {
            Step::Data(len) => {
                data.extend_from_slice(&rest[..len]);
                (used, rest) = (used + len, &rest[len..]);
            }
            Step::Framing(len) | Step::Trailer(len) => (used, rest) = (used + len, &rest[len..]),
            Step::More => {
                assert!(rest.is_empty(), "more is wanted, and there is more");
                return Some((data, used, false));
            }
            Step::Done => return Some((data, used, true)),
        }
        assert!(data.len() as u64 <= LIMIT, "more data than the limit");
    }
}

/// Holds the claims on chunked bodies and their trailers against one input, by itself and behind
/// the head of a request.
pub(crate) fn chunked(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else {
        return;
    };
    let step = 1 + usize::from(first % 17);
    let whole = body(Framing::Chunked, input, usize::MAX);
    assert_eq!(
        whole,
        body(Framing::Chunked, input, step),
        "a body depends on how it is split"
    );
    let request = [
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        input,
    ]
    .concat();
    let answers = answers(&request, request.len());

    assert_eq!(
        answers,
        self::answers(&request, step),
        "reads of {step} bytes are answered in another way"
    );
    if let Some((data, _, true)) = whole {
        // 400: trailers that are no fields.
        let said = format!("{} bytes, sum {}", data.len(), sum(&data));
        let taken = answers.starts_with(&["HTTP/1.1 200 OK".to_owned(), said]);
        assert!(
            taken || answers[0].starts_with("HTTP/1.1 400 "),
            "{answers:?}"
        );
    } else {
        assert!(
            answers.first().is_none_or(|line| !line.contains(" 200 ")),
            "{answers:?}"
        );
    }
}

/// Tells apart bodies of one length.
fn sum(data: &[u8]) -> u32 {
    data.iter().fold(1, |sum: u32, &byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    })
}

/// Holds the claims on headers of the PROXY protocol against one input: how it is split decides
/// nothing.
pub(crate) fn proxy(data: &[u8]) {
    let whole = proxy::parse(data);
    for len in 0..data.len() {
        match proxy::parse(&data[..len]) {
            Ok(Proxied::More) => {}
            Ok(found) => assert_eq!(
                Some(&found),
                whole.as_ref().ok(),
                "{len} bytes find another header"
            ),
            Err(_) => assert!(whole.is_err(), "{len} bytes are refused, and all are not"),
        }
    }

    if let Ok(Proxied::Header { len, client }) = whole {
        assert!(
            (1..=4096).contains(&len) && len <= data.len(),
            "{len} of {}",
            data.len()
        );
        // `PROXY TCP6 :: :: 0 0`, and two addresses of four bytes behind a binary start.
        let least = if data.starts_with(b"PROXY") { 22 } else { 28 };
        assert!(
            client.is_none() || len >= least,
            "an address in {len} bytes"
        );
    }
}

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves the input as what follows a client's preface, and the client ends its direction then: the
/// connection ends, with nothing left in progress, and all that it has said are whole frames.
pub(crate) fn http2(data: &[u8]) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let Some((&first, input)) = data.split_first() else {
        return;
    };
    let step = 1 + usize::from(first) * 5;
    let input = [PREFACE, input].concat();
    let runtime = RUNTIME.get_or_init(|| {
        let runtime = Runtime::builder()
            .workers(1)
            .max_workers(1)
            .report_stalls(false);
        runtime.build().expect("a runtime")
    });

    let mut said = Vec::new();
    runtime.run(|| server().serve_stream(Memory::new(&input, &mut said).with_step(step)));

    let mut rest = &said[..];
    while let [high, middle, low, _, _, _, _, _, _, payload @ ..] = rest {
        let len = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        assert!(len <= payload.len(), "half a frame was said");
        rest = &payload[len..];
    }

    assert!(rest.is_empty(), "the beginning of a frame was said");
}

type Handle = fn(&mut Request<'_>) -> Response;

/// Serves the input as a connection. Returns the final answers: status lines, and what was taken of
/// the bodies.
fn answers(input: &[u8], step: usize) -> Vec<String> {
    let mut said = Vec::new();
    server().serve_stream(Memory::new(input, &mut said).with_step(step));
    let text = String::from_utf8(said).expect("answers are ASCII");
    let is_answer = |line: &&str| line.starts_with("HTTP/1.1 ") && !line.ends_with(" 100 Continue");
    let lines = text
        .split("\r\n")
        .filter(|line| is_answer(line) || line.contains(" bytes, sum "));

    lines.map(str::to_owned).collect()
}

fn server() -> &'static Server<Handle> {
    static SERVER: OnceLock<Server<Handle>> = OnceLock::new();
    let handle: Handle = |request| match (request.read_body(LIMIT as usize), request.trailers()) {
        // A line, so that the next answer begins on one of its own.
        (Ok(body), Ok(_)) => Response::ok(format!("{} bytes, sum {}\r\n", body.len(), sum(&body))),
        (Ok(_), Err(_)) => Response::text(StatusCode::BAD_REQUEST, "no trailers\r\n"),
        (Err(_), _) => Response::text(StatusCode::IM_A_TEAPOT, "no body\r\n"),
    };
    SERVER.get_or_init(|| Server::new(handle))
}
