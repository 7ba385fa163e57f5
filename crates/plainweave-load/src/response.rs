//! HTTP/1 answers, sans I/O: where the head ends, how the body is delimited, where it ends.
//!
//! As strict as a measurement needs: what two readers could take for answers of different length is
//! garbage.

use std::mem::MaybeUninit;

use httparse::ParserConfig;

use super::tally::Failure;

/// Most fields of a head.
pub(super) const FIELDS: usize = 256;
/// Longest line of a chunk's size or of a trailer field.
const LINE: usize = 4096;

/// What the head of an answer says of the rest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Its bytes, the empty line included.
    pub(super) len: usize,
    pub(super) status: u16,
    pub(super) body: Body,
    /// The connection ends with this answer.
    pub(super) close: bool,
}

/// Parses a head at the beginning of `bytes`; `None`: not all of it is there. `no_body`: the answer
/// to a HEAD request.
pub(super) fn parse(bytes: &[u8], no_body: bool) -> Result<Option<Head>, Failure> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut raw = httparse::Response::new(&mut []);
    let len = match read(&mut raw, bytes, &mut fields) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Failure::TooManyFields),
        Err(_) => return Err(Failure::Garbage),
    };
    let (Some(status), Some(minor)) = (raw.code, raw.version) else {
        return Err(Failure::Garbage);
    };
    let mut length = None;
    let mut chunked = false;
    let mut close = minor == 0;
    for field in raw.headers.iter() {
        match field.name.len() {
            10 if field.name.eq_ignore_ascii_case("connection") => {
                let names =
                    |wanted: &[u8]| field.value.split(|b| *b == b',').any(|o| is(o, wanted));
                close = names(b"close") || (close && !names(b"keep-alive"));
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let value =
                    number(field.value).filter(|n| length.is_none_or(|before| before == *n));
                length = Some(value.ok_or(Failure::Garbage)?);
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                // No other coding was asked for.
                chunked = is(field.value, b"chunked") && !chunked;
                if !chunked {
                    return Err(Failure::Garbage);
                }
            }
            _ => {}
        }
    }
    let body = match (chunked, length) {
        _ if no_body || status < 200 || matches!(status, 204 | 304) => Body::Length(0),
        (true, Some(_)) => return Err(Failure::Garbage),
        (true, None) => Body::Chunked(Chunks::default()),
        (false, Some(length)) => Body::Length(length),
        (false, None) => Body::UntilClose,
    };
    close |= body == Body::UntilClose;
    Ok(Some(Head {
        len,
        status,
        body,
        close,
    }))
}

/// Reads a head into `raw`. `fields` are not initialised: that would cost as much as the parsing.
#[inline]
fn read<'f, 'b>(
    raw: &mut httparse::Response<'f, 'b>,
    bytes: &'b [u8],
    fields: &'f mut [MaybeUninit<httparse::Header<'b>>],
) -> httparse::Result<usize> {
    // A field that goes on in the next line is deprecated, and clear (RFC 9112, 5.2).
    let mut lenient = ParserConfig::default();
    lenient.allow_obsolete_multiline_headers_in_responses(true);
    lenient.parse_response_with_uninit_headers(raw, bytes, fields)
}

/// Returns the field `Location` of a head that has been parsed.
pub(super) fn location(head: &[u8]) -> Option<String> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut raw = httparse::Response::new(&mut []);
    read(&mut raw, head, &mut fields).ok()?;
    let field = raw
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("location"))?;
    String::from_utf8(field.value.trim_ascii().to_vec()).ok()
}

fn is(value: &[u8], wanted: &[u8]) -> bool {
    value.trim_ascii().eq_ignore_ascii_case(wanted)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

/// What is left of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// This many bytes.
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

impl Body {
    /// Takes what belongs to the body from the beginning of `bytes`; says how much that was,
    /// framing included.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        match self {
            Body::Length(left) => {
                let taken = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            Body::Chunked(chunks) => chunks.feed(bytes),
            Body::UntilClose => Ok(bytes.len()),
        }
    }

    /// Returns whether all of it has been taken. One that ends with the connection never knows.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunks) => chunks.at == At::End,
            Body::UntilClose => false,
        }
    }
}

/// A chunked body (RFC 9112, 7.1), byte by byte except for the data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    at: At,
    /// The chunk's size so far, then what is left of it.
    left: u64,
    /// Bytes of the line so far.
    line: usize,
    /// Bytes of data, all chunks together.
    pub(super) data: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    /// Behind the size's digits, up to the line's end.
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerLf,
    End,
}

impl Chunks {
    fn feed(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let mut at = 0;
        while at < bytes.len() && self.at != At::End {
            if self.at == At::Data {
                let taken =
                    (bytes.len() - at).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                at += taken;
                self.left -= taken as u64;
                self.data += taken as u64;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
            } else {
                self.at = self.step(bytes[at]).ok_or(Failure::Garbage)?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// Returns where one byte outside the data leads; `None`: nowhere.
    fn step(&mut self, byte: u8) -> Option<At> {
        self.line += 1;
        if self.line > LINE {
            return None;
        }
        Some(match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16)?;
                self.left = self.left.checked_mul(16)?.checked_add(u64::from(digit))?;
                At::Size
            }
            (At::Size, b'\r') if self.line > 1 => At::SizeLf,
            (At::Size, b';' | b' ' | b'\t') if self.line > 1 => At::Extension,
            (At::Extension, b'\r') => At::SizeLf,
            (At::Extension, byte) if byte != b'\n' => At::Extension,
            (At::SizeLf, b'\n') => {
                self.line = 0;
                if self.left == 0 {
                    At::Trailer
                } else {
                    At::Data
                }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => {
                self.line = 0;
                At::Size
            }
            (At::Trailer, b'\r') => At::TrailerLf,
            (At::Trailer, byte) if byte != b'\n' => At::Trailer,
            // A line of CR LF alone is the end.
            (At::TrailerLf, b'\n') if self.line == 2 => At::End,
            (At::TrailerLf, b'\n') => {
                self.line = 0;
                At::Trailer
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Head>, Failure> {
        parse(text.as_bytes(), false)
    }

    #[test]
    fn heads() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let expected = Head {
            len: text.len() - 5,
            status: 200,
            body: Body::Length(5),
            close: false,
        };

        assert_eq!(head(text), Ok(Some(expected)));
        for end in 0..text.len() - 5 {
            assert_eq!(head(&text[..end]), Ok(None), "{end}");
        }
        let close = |text: &str| head(text).unwrap().unwrap().close;
        assert!(close("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!close(
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
        ));
        assert!(close(
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n"
        ));
        assert!(
            close("HTTP/1.1 200 OK\r\n\r\n"),
            "the body ends with the connection"
        );
        let no_content = head("HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();

        assert!(no_content.body.is_done() && !no_content.close);
        assert!(
            parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true)
                .unwrap()
                .unwrap()
                .body
                .is_done()
        );
    }

    #[test]
    fn garbage() {
        for fields in [
            "Content-Length: x",
            "Content-Length: +1",
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: gzip",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 1",
        ] {
            assert_eq!(
                head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")),
                Err(Failure::Garbage),
                "{fields}"
            );
        }
        assert_eq!(head("SSH-2.0-x\r\n"), Err(Failure::Garbage));
    }

    #[test]
    fn many_fields_and_folded_ones() {
        let with = |fields: usize| {
            head(&format!(
                "HTTP/1.1 204 x\r\n{}\r\n",
                "A: b\r\n".repeat(fields)
            ))
        };

        assert_eq!(with(FIELDS).unwrap().unwrap().status, 204);
        assert_eq!(with(FIELDS + 1), Err(Failure::TooManyFields));
        let folded = head("HTTP/1.1 200 OK\r\nA: b\r\n  c\r\nContent-Length: 5\r\n\r\n")
            .unwrap()
            .unwrap();
        assert_eq!(folded.body, Body::Length(5));

        // What says where the answer ends does so in one line.
        assert_eq!(
            head("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n 6\r\n\r\n"),
            Err(Failure::Garbage)
        );
    }

    /// Feeds in pieces of every size; what is left over, or the failure.
    fn chunks(text: &str) -> Result<(bool, u64, usize), Failure> {
        let mut results = (1..=text.len()).map(|size| {
            let mut body = Chunks::default();
            let mut left = text.as_bytes();
            while !left.is_empty() && body.at != At::End {
                let taken = body.feed(&left[..size.min(left.len())])?;
                left = &left[taken..];
            }
            Ok((body.at == At::End, body.data, left.len()))
        });
        let first = results.next().unwrap();
        assert!(
            results.all(|result| result == first),
            "{text:?} depends on how it is split"
        );
        first
    }

    #[test]
    fn chunked_bodies() {
        assert_eq!(chunks("0\r\n\r\n"), Ok((true, 0, 0)));
        assert_eq!(
            chunks("5\r\nhello\r\n00a;x=y\r\n0123456789\r\n0\r\n\r\nHTTP"),
            Ok((true, 15, 4))
        );
        assert_eq!(
            chunks("1\r\nx\r\n0\r\nTrailer: value\r\nOther: 1\r\n\r\n"),
            Ok((true, 1, 0))
        );
        assert_eq!(chunks("5\r\nhel"), Ok((false, 3, 0)));

        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "5\nhello",
            "1\r\nxx\r\n",
            "ffffffffffffffff0\r\n",
            "0\r\n\n",
            ";\r\n",
        ] {
            assert_eq!(chunks(text), Err(Failure::Garbage), "{text:?}");
        }
    }
}
