//! Replies of memcached's text protocol, classic and meta, sans I/O.

use memchr::memchr;

use super::tally::Failure;

/// Longest line of a reply: a key of 250 bytes, two numbers, and room.
const LINE: usize = 512;

/// What a request of ours must be answered with.
#[derive(Clone, Copy)]
pub(super) enum Expected<'a> {
    Stored,
    /// Or that it was not there.
    Deleted,
    /// Values of the keys that the function returns by number, with their sizes, in this order;
    /// some may be missing.
    Values(&'a dyn Fn(usize) -> Option<(&'a [u8], usize)>),
}

/// The commands a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commands {
    Classic,
    /// One meta command.
    Meta,
    /// Quiet meta gets and `mn` behind them.
    MetaMany,
}

/// A piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The value of the key of this number, and whether it has the size expected. More follows.
    Value { key: usize, fits: bool },
    /// One of several commands failed. More follows.
    Failed,
    /// The end, and what it says (`Ok(false)`: not there).
    End(Result<bool, Failure>),
}

/// A part at the beginning of `bytes`, and its length. `None`: more is to come. An error: the
/// protocol is broken, nothing that follows can be trusted.
pub(super) type Parsed = Result<Option<(usize, Part)>, Failure>;

/// Parses the next part of the reply to one request.
pub(super) fn parse(bytes: &[u8], commands: Commands, expected: Expected<'_>) -> Parsed {
    let Some(end) = memchr(b'\n', &bytes[..bytes.len().min(LINE)]) else {
        return if bytes.len() < LINE {
            Ok(None)
        } else {
            Err(Failure::Garbage)
        };
    };

    let line = bytes[..end].strip_suffix(b"\r").ok_or(Failure::Garbage)?;
    let whole = |part| Ok(Some((end + 1, part)));
    let done = |outcome| whole(Part::End(outcome));
    if [&b"ERROR"[..], b"SERVER_ERROR", b"CLIENT_ERROR"]
        .iter()
        .any(|e| line.starts_with(e))
    {
        return if commands == Commands::MetaMany {
            whole(Part::Failed)
        } else {
            done(Err(Failure::ErrorReply))
        };
    }

    match (commands, expected, line) {
        (Commands::Classic, Expected::Stored, b"STORED") => done(Ok(true)),
        (Commands::Classic, Expected::Stored, b"NOT_STORED") => done(Err(Failure::ErrorReply)),
        (Commands::Classic, Expected::Deleted, b"DELETED") => done(Ok(true)),
        (Commands::Classic, Expected::Deleted, b"NOT_FOUND") => done(Ok(false)),
        (Commands::Meta, Expected::Stored | Expected::Deleted, b"HD") => done(Ok(true)),
        (Commands::Meta, Expected::Stored, b"NS") => done(Err(Failure::ErrorReply)),
        (Commands::Meta, Expected::Deleted, b"NF") => done(Ok(false)),
        (Commands::Classic, Expected::Values(_), b"END")
        | (Commands::MetaMany, Expected::Values(_), b"MN") => done(Ok(true)),
        // With the key that was asked for, as it was asked to say.
        (Commands::Meta, Expected::Values(_), line)
            if line.split(|b| *b == b' ').next() == Some(b"EN") =>
        {
            done(Ok(false))
        }
        (_, Expected::Values(keys), line) => value(bytes, end + 1, line, commands, keys),
        _ => Err(Failure::Garbage),
    }
}

/// Parses a value: `VALUE <key> <flags> <bytes>` or `VA <bytes> k<key>`, the data, a line end.
fn value<'a>(
    bytes: &[u8],
    data: usize,
    line: &[u8],
    commands: Commands,
    keys: &dyn Fn(usize) -> Option<(&'a [u8], usize)>,
) -> Parsed {
    let mut words = line.split(|b| *b == b' ');
    let mut word = || words.next().ok_or(Failure::Garbage);
    let (name, key, size) = if commands == Commands::Classic {
        let name = word()?;
        let key = word()?;
        let _flags = word()?;
        (name == b"VALUE", key, word()?)
    } else {
        let name = word()?;
        let size = word()?;
        (
            name == b"VA",
            word()?.strip_prefix(b"k").ok_or(Failure::Garbage)?,
            size,
        )
    };

    if !name || words.next().is_some() {
        return Err(Failure::Garbage);
    }
    let size = str::from_utf8(size)
        .ok()
        .and_then(|size| size.parse::<u32>().ok())
        .ok_or(Failure::Garbage)? as usize;
    let mut numbered = (0..).map_while(keys).enumerate();
    let (number, (_, expected)) = numbered
        .find(|(_, (asked, _))| *asked == key)
        .ok_or(Failure::Garbage)?;
    const END: &[u8] = b"\r\n";
    let there = &bytes[bytes.len().min(data + size)..];
    let there = &there[..there.len().min(END.len())];

    if !END.starts_with(there) {
        return Err(Failure::Garbage);
    }
    let part = if commands == Commands::Meta {
        Part::End(if size == expected {
            Ok(true)
        } else {
            Err(Failure::WrongLength)
        })
    } else {
        Part::Value {
            key: number,
            fits: size == expected,
        }
    };

    Ok((there.len() == END.len()).then_some((data + size + END.len(), part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [(&[u8], usize); 3] = [(b"k", 3), (b"l", 1), (b"m", 0)];

    fn get(text: &str, commands: Commands) -> Parsed {
        parse(
            text.as_bytes(),
            commands,
            Expected::Values(&|n| KEYS.get(n).copied()),
        )
    }

    fn value(key: usize, fits: bool) -> Part {
        Part::Value { key, fits }
    }

    #[test]
    fn values() {
        for (text, commands, part) in [
            ("VALUE k 0 3\r\nabc\r\n", Commands::Classic, value(0, true)),
            ("VALUE m 0 0\r\n\r\n", Commands::Classic, value(2, true)),
            ("VALUE k 0 1\r\na\r\n", Commands::Classic, value(0, false)),
            ("END\r\n", Commands::Classic, Part::End(Ok(true))),
            ("VA 1 kl\r\nx\r\n", Commands::MetaMany, value(1, true)),
            ("MN\r\n", Commands::MetaMany, Part::End(Ok(true))),
            ("SERVER_ERROR busy\r\n", Commands::MetaMany, Part::Failed),
            ("VA 3 kk\r\nxyz\r\n", Commands::Meta, Part::End(Ok(true))),
            (
                "VA 2 kk\r\nxy\r\n",
                Commands::Meta,
                Part::End(Err(Failure::WrongLength)),
            ),
            ("EN\r\n", Commands::Meta, Part::End(Ok(false))),
            ("EN kk\r\n", Commands::Meta, Part::End(Ok(false))),
            (
                "SERVER_ERROR out of memory\r\n",
                Commands::Classic,
                Part::End(Err(Failure::ErrorReply)),
            ),
        ] {
            assert_eq!(
                get(&format!("{text}VALUE"), commands),
                Ok(Some((text.len(), part))),
                "{text:?}"
            );
            for end in 0..text.len() {
                assert_eq!(get(&text[..end], commands), Ok(None), "{text:?} {end}");
            }
        }
    }

    #[test]
    fn updates() {
        let parsed = |text: &str, commands, expected| {
            let (len, part) = parse(text.as_bytes(), commands, expected).unwrap().unwrap();
            assert_eq!(len, text.len());
            part
        };

        for (text, commands, expected, outcome) in [
            ("STORED\r\n", Commands::Classic, Expected::Stored, Ok(true)),
            (
                "NOT_STORED\r\n",
                Commands::Classic,
                Expected::Stored,
                Err(Failure::ErrorReply),
            ),
            (
                "DELETED\r\n",
                Commands::Classic,
                Expected::Deleted,
                Ok(true),
            ),
            (
                "NOT_FOUND\r\n",
                Commands::Classic,
                Expected::Deleted,
                Ok(false),
            ),
            ("HD\r\n", Commands::Meta, Expected::Stored, Ok(true)),
            (
                "NS\r\n",
                Commands::Meta,
                Expected::Stored,
                Err(Failure::ErrorReply),
            ),
            ("HD\r\n", Commands::Meta, Expected::Deleted, Ok(true)),
            ("NF\r\n", Commands::Meta, Expected::Deleted, Ok(false)),
        ] {
            assert_eq!(
                parsed(text, commands, expected),
                Part::End(outcome),
                "{text:?}"
            );
        }
    }

    #[test]
    fn garbage() {
        for text in [
            "HTTP/1.1 400 Bad\r\n",
            "END\n",
            "VALUE j 0 3\r\n",
            "VALUE k 0 x\r\n",
            "VALUE k 0 3\r\nabcd\r\n",
            "VALUE k 0\r\n",
            "VA 3 kk\r\nabc\r\n",
            "EN\r\n",
        ] {
            assert_eq!(
                get(text, Commands::Classic),
                Err(Failure::Garbage),
                "{text:?}"
            );
        }

        for text in [
            "VALUE k 0 3\r\n",
            "VA 3\r\n",
            "VA 3 k\r\n",
            "VA 3 xk\r\n",
            "END\r\n",
        ] {
            assert_eq!(get(text, Commands::Meta), Err(Failure::Garbage), "{text:?}");
        }

        assert_eq!(
            get(&"x".repeat(LINE), Commands::Classic),
            Err(Failure::Garbage)
        );
        let stored = |text: &str, commands| parse(text.as_bytes(), commands, Expected::Stored);
        assert_eq!(stored("END\r\n", Commands::Classic), Err(Failure::Garbage));
        assert_eq!(stored("STORED\r\n", Commands::Meta), Err(Failure::Garbage));
    }
}
