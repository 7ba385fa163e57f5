//! Message bodies, sans I/O: a decoder for lengths and for strict chunked coding, an encoder for
//! chunked.
//!
//! Chunked is where request smuggling lives, so the decoder takes the grammar of RFC 9112, 7.1 and
//! nothing more: no blanks around a size, CRLF everywhere, sizes that fit 64 bits. Extensions are
//! checked, bounded and dropped; trailers are checked and bounded.

use http::StatusCode;

use super::error::Error;
use super::head::Framing;

/// Bytes of one chunk's extensions.
const MAX_EXTENSION: usize = 256;
/// Bytes of framing allowed beyond what the data pays for (see [`Decoder::pay`]).
const MAX_OVERHEAD: u64 = 16 << 10;
/// Bytes of a trailer section.
const MAX_TRAILERS: usize = 8 << 10;

/// What the decoder makes of the bytes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes (never 0) are body data: the caller takes exactly these.
    Data(usize),
    /// This many bytes (never 0) are framing: drop them and call again.
    Framing(usize),
    /// This many bytes (never 0) are of the trailer section, which ends in an empty line: keep or
    /// drop them, and call again.
    Trailer(usize),
    /// More input is needed.
    More,
    /// The body is complete; what follows belongs to the next request.
    Done,
}

/// Delimits one request body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    limit: u64,
    /// Data bytes that may still be announced before the limit is passed.
    allowed: u64,
    /// Framing bytes not paid for by data.
    overhead: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    Size {
        digits: u8,
        size: u64,
    },
    /// After a blank behind the size: the semicolon of an extension is to come.
    Blank {
        size: u64,
        len: usize,
    },
    Extension {
        size: u64,
        len: usize,
    },
    SizeLf {
        size: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer line, or of the final empty one.
    LineStart {
        total: usize,
    },
    Name {
        total: usize,
    },
    Value {
        total: usize,
    },
    LineLf {
        total: usize,
    },
    LastLf,
    Done,
}

impl Decoder {
    /// Makes a decoder for a body framed like this, of at most `limit` bytes of data.
    pub fn new(framing: Framing, limit: u64) -> Result<Self, Error> {
        let state = match framing {
            Framing::Length(len) if len > limit => return Err(too_large()),
            Framing::Length(0) => State::Done,
            Framing::Length(len) => State::Length(len),
            Framing::Chunked => State::Size { digits: 0, size: 0 },
        };
        // A length counts from the beginning, a chunk when it is announced.
        let announced = if let Framing::Length(len) = framing {
            len
        } else {
            0
        };
        Ok(Self {
            state,
            limit,
            allowed: limit - announced,
            overhead: 0,
        })
    }

    /// Replaces the limit. Fails if what has come, or what is known to come, exceeds it.
    pub fn set_limit(&mut self, limit: u64) -> Result<(), Error> {
        let used = self.limit - self.allowed;
        self.allowed = limit.checked_sub(used).ok_or_else(too_large)?;
        self.limit = limit;
        Ok(())
    }

    /// Returns whether the whole body has passed.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the number of bytes still to come, if a length says so.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Returns the number of bytes of data that come next without framing between them; 0 outside
    /// data.
    pub fn run(&self) -> u64 {
        match self.state {
            State::Length(left) | State::Data(left) => left,
            _ => 0,
        }
    }

    /// Looks at the start of `input`; of data, at most `max` bytes are taken.
    pub fn step(&mut self, input: &[u8], max: usize) -> Result<Step, Error> {
        if self.is_done() {
            return Ok(Step::Done);
        }
        let run = self.run();
        if run > 0 {
            let len = usize::try_from(run)
                .unwrap_or(usize::MAX)
                .min(input.len())
                .min(max);
            self.took(len);
            return Ok(if len == 0 {
                Step::More
            } else {
                Step::Data(len)
            });
        }
        let mut used = 0;
        let in_trailers = self.in_trailers();
        for &byte in input {
            used += 1;
            self.state = self.framing(byte)?;
            if self.is_done() || self.run() > 0 || self.in_trailers() != in_trailers {
                break;
            }
        }
        Ok(match used {
            0 => Step::More,
            _ if in_trailers => Step::Trailer(used),
            _ => Step::Framing(used),
        })
    }

    fn in_trailers(&self) -> bool {
        use State as S;
        matches!(
            self.state,
            S::LineStart { .. } | S::Name { .. } | S::Value { .. } | S::LineLf { .. } | S::LastLf
        )
    }

    /// Accounts for data that the caller received elsewhere, at most [`Decoder::run`] bytes of it.
    pub fn took(&mut self, len: usize) {
        let len = len as u64;
        self.state = match self.state {
            State::Length(left) if left == len => State::Done,
            State::Length(left) => State::Length(left - len),
            State::Data(left) if left == len => State::DataCr,
            State::Data(left) => State::Data(left - len),
            other => other,
        };
    }

    /// Takes one byte of framing.
    fn framing(&mut self, byte: u8) -> Result<State, Error> {
        let next = match (self.state, byte) {
            (State::Size { digits, size }, _) if byte.is_ascii_hexdigit() => {
                add_digit(digits, size, byte)?
            }
            (State::Size { digits: 1.., size }, b';') => State::Extension { size, len: 0 },
            (State::Size { digits: 1.., size }, b'\r') => State::SizeLf { size },
            (State::Size { digits: 1.., size }, b' ' | b'\t') => State::Blank { size, len: 1 },
            (State::Blank { size, len }, b' ' | b'\t') if len < MAX_EXTENSION => {
                State::Blank { size, len: len + 1 }
            }
            (State::Blank { size, len }, b';') => State::Extension { size, len },
            (State::Extension { size, .. }, b'\r') => State::SizeLf { size },
            (State::Extension { size, len }, _) if is_text(byte) && len < MAX_EXTENSION => {
                State::Extension { size, len: len + 1 }
            }
            (State::SizeLf { size: 0 }, b'\n') => State::LineStart { total: 0 },
            (State::SizeLf { size }, b'\n') => State::Data(self.pay(size)?),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { digits: 0, size: 0 },
            (State::LineStart { .. }, b'\r') => State::LastLf,
            (State::LineStart { total } | State::Name { total }, _) if is_token(byte) => {
                State::Name {
                    total: trailer(total)?,
                }
            }
            (State::Name { total }, b':') => State::Value {
                total: trailer(total)?,
            },
            (State::Value { total }, b'\r') => State::LineLf {
                total: trailer(total)?,
            },
            (State::Value { total }, _) if is_text(byte) => State::Value {
                total: trailer(total)?,
            },
            (State::LineLf { total }, b'\n') => State::LineStart { total },
            (State::LastLf, b'\n') => State::Done,
            _ => return Err(Error::bad("malformed chunked body")),
        };
        self.overhead += 1;
        if self.overhead > MAX_OVERHEAD {
            return Err(Error::bad("a chunked body with more framing than data"));
        }
        Ok(next)
    }

    /// Begins a chunk: checks the limit, and lets its data pay for the framing, so that long
    /// streams of modest chunks pass while a stream of one-byte chunks with long extensions does
    /// not.
    fn pay(&mut self, size: u64) -> Result<u64, Error> {
        self.allowed = self.allowed.checked_sub(size).ok_or_else(too_large)?;
        self.overhead = self.overhead.saturating_sub(size.saturating_add(16));
        Ok(size)
    }
}

fn too_large() -> Error {
    Error::too_large(
        StatusCode::PAYLOAD_TOO_LARGE,
        "the request body is too large",
    )
}

fn add_digit(digits: u8, size: u64, byte: u8) -> Result<State, Error> {
    let digit = (byte as char).to_digit(16).unwrap_or(0);
    if digits == 16 {
        return Err(Error::bad("a chunk size that overflows"));
    }
    Ok(State::Size {
        digits: digits + 1,
        size: size << 4 | u64::from(digit),
    })
}

fn trailer(total: usize) -> Result<usize, Error> {
    if total == MAX_TRAILERS {
        return Err(Error::too_large(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too large a trailer section",
        ));
    }
    Ok(total + 1)
}

/// `field-vchar / SP / HTAB`.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// `tchar` of RFC 9110, 5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a length as `Content-Length` has it: digits only, no sign, no blank, no overflow.
pub fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The end of a chunk and of a chunked body.
pub(crate) const CHUNK_END: &[u8] = b"\r\n";
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes the line that opens a chunk of `len` bytes; `len` 0 would end the body.
pub(crate) fn chunk_line(out: &mut Vec<u8>, len: usize) {
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::chunk_line;

    #[test]
    fn chunk_lines_are_hexadecimal() {
        for len in [1, 15, 16, 255, 256, 65_536, usize::MAX] {
            let mut out = Vec::new();
            chunk_line(&mut out, len);
            assert_eq!(out, format!("{len:x}\r\n").into_bytes());
        }
    }
}
