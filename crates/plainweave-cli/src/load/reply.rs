//! Replies of memcached's text protocol, sans I/O.

use memchr::memchr;

use super::tally::Failure;

/// Longest line of a reply: a key of 250 bytes, two numbers, and room.
const LINE: usize = 512;

/// What a request of ours must be answered with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected<'a> {
    Stored,
    /// Or that it is not there.
    Value {
        key: &'a [u8],
        len: usize,
    },
}

/// A whole reply at the beginning of `bytes`: its length, and what it says (`Ok(false)`: not there). `None`: more is to
/// come. An error: the protocol is broken, nothing that follows can be trusted.
pub(super) type Parsed = Result<Option<(usize, Result<bool, Failure>)>, Failure>;

/// Parses the reply to one request.
pub(super) fn parse(bytes: &[u8], expected: Expected<'_>) -> Parsed {
    let Some(end) = memchr(b'\n', &bytes[..bytes.len().min(LINE)]) else {
        return if bytes.len() < LINE { Ok(None) } else { Err(Failure::Garbage) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Failure::Garbage)?;
    let whole = |outcome| Ok(Some((end + 1, outcome)));
    match (expected, line) {
        (Expected::Stored, b"STORED") => whole(Ok(true)),
        (Expected::Stored, b"NOT_STORED") => whole(Err(Failure::ErrorReply)),
        (Expected::Value { .. }, b"END") => whole(Ok(false)),
        (Expected::Value { key, len }, _) if line.starts_with(b"VALUE ") => value(bytes, end + 1, &line[6..], key, len),
        _ if [&b"ERROR"[..], b"SERVER_ERROR", b"CLIENT_ERROR"].iter().any(|e| line.starts_with(e)) => {
            whole(Err(Failure::ErrorReply))
        }
        _ => Err(Failure::Garbage),
    }
}

/// Parses the rest of `VALUE <key> <flags> <bytes>`: data, line end, `END`.
fn value(bytes: &[u8], data: usize, words: &[u8], key: &[u8], len: usize) -> Parsed {
    let mut words = words.split(|b| *b == b' ');
    let (got, _flags, size) = (words.next(), words.next(), words.next());
    let size = size.and_then(|size| str::from_utf8(size).ok()?.parse::<u32>().ok()).ok_or(Failure::Garbage)? as usize;
    if got != Some(key) {
        return Err(Failure::Garbage);
    }
    const END: &[u8] = b"\r\nEND\r\n";
    let there = &bytes[bytes.len().min(data + size)..];
    let there = &there[..there.len().min(END.len())];
    if !END.starts_with(there) {
        return Err(Failure::Garbage);
    }
    let outcome = if size == len { Ok(true) } else { Err(Failure::WrongLength) };
    Ok((there.len() == END.len()).then_some((data + size + END.len(), outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(text: &str) -> Parsed {
        parse(text.as_bytes(), Expected::Value { key: b"k", len: 3 })
    }

    #[test]
    fn replies() {
        let hit = "VALUE k 0 3\r\nabc\r\nEND\r\n";
        assert_eq!(get(&format!("{hit}VALUE")), Ok(Some((hit.len(), Ok(true)))));
        for end in 0..hit.len() {
            assert_eq!(get(&hit[..end]), Ok(None), "{end}");
        }
        assert_eq!(get("END\r\n"), Ok(Some((5, Ok(false)))));
        assert_eq!(get("SERVER_ERROR out of memory\r\n"), Ok(Some((28, Err(Failure::ErrorReply)))));
        assert_eq!(get("VALUE k 0 1\r\na\r\nEND\r\n"), Ok(Some((21, Err(Failure::WrongLength)))));
        assert_eq!(parse(b"STORED\r\n", Expected::Stored), Ok(Some((8, Ok(true)))));
    }

    #[test]
    fn garbage() {
        for text in
            ["HTTP/1.1 400 Bad\r\n", "END\n", "VALUE j 0 3\r\n", "VALUE k 0 x\r\n", "VALUE k 0 3\r\nabcd\r\nEND"]
        {
            assert_eq!(get(text), Err(Failure::Garbage), "{text:?}");
        }
        assert_eq!(get(&"x".repeat(LINE)), Err(Failure::Garbage));
        assert_eq!(parse(b"END\r\n", Expected::Stored), Err(Failure::Garbage));
    }
}
