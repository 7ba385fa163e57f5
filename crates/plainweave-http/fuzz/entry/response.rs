//! Answers of any kind: the peer finds their ends, and in them what the handler has said and
//! nothing else.

use std::io::{Cursor, Read, Write};

use plainweave_http::body::{Decoder, Step};
use plainweave_http::testing::in_memory;
use plainweave_http::{
    Body, Framing, HeaderLines, HeaderName, HeaderValue, Request, Response, Server, StatusCode,
};

/// What a handler answers, as the input says.
#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    /// Any bytes as name and value, and whether they go to the map or to the lines.
    fields: Vec<(Vec<u8>, Vec<u8>, bool)>,
    kind: u8,
    body: Vec<u8>,
    /// Bytes of a piece that is written or read.
    piece: usize,
}

/// A reader of an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn answer(&mut self) -> Answer {
        let status = 200 + u16::from(self.byte()) * 2 % 400;
        let field = |_| {
            let lengths = self.byte();
            let name = self.bytes(usize::from(lengths & 15)).to_vec();
            (
                name,
                self.bytes(usize::from(lengths >> 4)).to_vec(),
                lengths & 16 == 0,
            )
        };

        let fields = (0..4).map(field).collect();
        let kind = self.byte() % 5;
        let piece = 1 + usize::from(self.byte());
        let status = StatusCode::from_u16(status).expect("in range");

        Answer {
            status,
            fields,
            kind,
            body: self.0.to_vec(),
            piece,
        }
    }
}

/// Gives at most so much at a time.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.1.min(buf.len());
        self.0.read(&mut buf[..len])
    }
}

impl Answer {
    /// Returns the response, and the fields in it that were not refused.
    fn response(&self) -> (Response, Vec<(String, Vec<u8>)>) {
        let mut lines = HeaderLines::default();
        let mut taken = Vec::new();
        let mut response = Response::new(self.status).with_body(self.body());

        for (name, value, in_map) in &self.fields {
            if *in_map {
                let Ok(name) = HeaderName::from_bytes(name) else {
                    continue;
                };
                let Ok(value) = HeaderValue::from_bytes(value) else {
                    continue;
                };
                taken.push((name.to_string(), value.as_bytes().to_vec()));
                response.headers_mut().append(name, value);
            } else if let Ok(name) = str::from_utf8(name)
                && lines.push(name, value).is_ok()
            {
                taken.push((name.to_owned(), value.clone()));
            }
        }

        (response.with_lines(lines), taken)
    }

    fn body(&self) -> Body {
        let body = self.body.clone();
        let piece = self.piece;
        let len = body.len() as u64;
        match self.kind {
            0 => body.into(),
            1 => Body::reader(Pieces(Cursor::new(body), piece), Some(len)),
            2 => Body::reader(Pieces(Cursor::new(body), piece), None),
            3 => Body::writer(move |out| {
                for part in body.chunks(piece) {
                    out.write_all(part)?;
                    if piece.is_multiple_of(2) {
                        out.flush()?;
                    }
                }

                out.add_trailer(
                    HeaderName::from_static("x-end"),
                    HeaderValue::from_static("here"),
                );
                Ok(())
            }),
            // It ends before its length.
            _ => Body::reader(Pieces(Cursor::new(body), piece), Some(len + 1)),
        }
    }
}

/// Holds the claims on answers against one input: two requests ahead, of either version and method.
pub(crate) fn response(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let method = ["GET", "HEAD"][usize::from(choice & 1)];
    let version = ["1.1", "1.0"][usize::from((choice >> 1) & 1)];
    let answer = input.answer();
    let told = answer.clone();
    let server = Server::new(move |_: &mut Request<'_>| told.response().0);

    let request = format!("{method} / HTTP/{version}\r\nHost: h\r\n\r\n");
    let said = in_memory(&server, request.repeat(2));
    let rest = one(&said, method == "HEAD", &answer);
    if !rest.is_empty() {
        assert!(
            one(rest, method == "HEAD", &answer).is_empty(),
            "more than two answers"
        );
    }
}

/// Checks the first answer in these bytes; what follows it.
fn one<'a>(bytes: &'a [u8], to_head: bool, answer: &Answer) -> &'a [u8] {
    let mut slots = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut slots);
    let end = head.parse(bytes).expect("a head").unwrap();
    let taken = answer.response().1;
    let rest = &bytes[end..];
    let bodiless = to_head || matches!(answer.status.as_u16(), 204 | 304);

    if answer.kind == 4 && !bodiless && head.code != Some(answer.status.as_u16()) {
        assert_eq!(head.code, Some(500), "nothing else was said");
        return &[];
    }

    assert_eq!(head.code, Some(answer.status.as_u16()));
    let mut length = None;
    let mut chunked = false;

    for field in head.headers.iter() {
        match field.name {
            "Content-Length" => {
                assert!(length.is_none() && !chunked, "framed twice");
                length = Some(
                    str::from_utf8(field.value)
                        .expect("digits")
                        .parse::<usize>()
                        .expect("a length"),
                );
            }
            "Transfer-Encoding" => {
                assert!(
                    length.is_none() && !std::mem::replace(&mut chunked, true),
                    "framed twice"
                );
                assert_eq!(field.value, b"chunked");
            }
            "Connection" | "Date" => {}
            name => {
                assert!(
                    taken
                        .iter()
                        .any(|(said, value)| said.eq_ignore_ascii_case(name)
                            && value.trim_ascii() == field.value.trim_ascii()),
                    "{name} was not said"
                )
            }
        }
    }

    if bodiless {
        return rest;
    }
    let (body, rest) = match (length, chunked) {
        (Some(length), _) if answer.kind == 4 => {
            assert!(rest.len() < length, "it is shorter than its length says");
            return &[];
        }
        (Some(length), _) => rest.split_at(length),
        (None, true) => return unchunked(rest, &answer.body),
        (None, false) => (rest, &[][..]),
    };

    assert!(body == answer.body, "another body");
    rest
}

/// Checks a chunked body; what follows it.
fn unchunked<'a>(mut rest: &'a [u8], expected: &[u8]) -> &'a [u8] {
    let mut decoder = Decoder::new(Framing::Chunked, u64::MAX).expect("no bound");
    let mut body = Vec::new();
    loop {
        let len = match decoder.step(rest, usize::MAX).expect("well formed") {
            Step::Data(len) => {
                body.extend_from_slice(&rest[..len]);
                len
            }
            Step::Framing(len) | Step::Trailer(len) => len,
            Step::More => panic!("it is cut short"),
            Step::Done => break,
        };
        rest = &rest[len..];
    }

    assert!(body == expected, "another body");
    rest
}
