//! Where a line ends.

/// A line longer than this must be a get of many keys.
pub(crate) const LONG: usize = 2048;
/// Nor is that longer: some 200,000 keys of 40 bytes.
pub(crate) const MAX: usize = 8 << 20;

/// What stands at the beginning of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its end, and its length with it.
    Complete(&'a [u8], usize),
    /// The end has not come.
    Partial,
    /// Whatever this is, it is no command: close the connection.
    NoCommand,
    /// A get of more keys than are answered; the end has not come.
    TooLong,
}

/// Finds the first line. Like memcached's it ends at `\n`, a `\r` before it is dropped, and a NUL
/// cuts it short. In the first `seen` bytes no end was found before.
pub(crate) fn take(input: &[u8], seen: usize) -> Line<'_> {
    let Some(end) = memchr::memchr(b'\n', &input[seen..]).map(|end| seen + end) else {
        let len = input.len();
        return match len > LONG {
            true if !is_long_get(input) => Line::NoCommand,
            true if len > MAX => Line::TooLong,
            _ => Line::Partial,
        };
    };

    let mut line = &input[..end];
    if let [rest @ .., b'\r'] = line
        && !rest.is_empty()
    {
        line = rest;
    }
    if let Some(nul) = memchr::memchr(0, line) {
        line = &line[..nul];
    }

    Line::Complete(line, end + 1)
}

fn is_long_get(input: &[u8]) -> bool {
    let blanks = input.iter().take_while(|byte| **byte == b' ').count();
    blanks <= 100 && (input[blanks..].starts_with(b"get ") || input[blanks..].starts_with(b"gets "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_a_newline() {
        assert_eq!(take(b"get a\r\nget b", 0), Line::Complete(b"get a", 7));
        assert_eq!(take(b"get a\nx", 0), Line::Complete(b"get a", 6));
        assert_eq!(take(b"\r\n", 0), Line::Complete(b"\r", 2));
        assert_eq!(take(b"\n", 0), Line::Complete(b"", 1));
        assert_eq!(take(b"get a\0b\r\n", 0), Line::Complete(b"get a", 9));
        assert_eq!(take(b"get a", 0), Line::Partial);
        assert_eq!(take(b"get a\nx", 5), Line::Complete(b"get a", 6));
    }

    #[test]
    fn only_a_get_may_be_long() {
        assert_eq!(take(&[b'x'; LONG], 0), Line::Partial);
        assert_eq!(take(&[b'x'; LONG + 1], 0), Line::NoCommand);
        let get = [&b"  gets "[..], &[b'x'; MAX]].concat();
        assert_eq!(take(&get[..MAX], 0), Line::Partial);
        assert_eq!(take(&get, 0), Line::TooLong);
    }
}
