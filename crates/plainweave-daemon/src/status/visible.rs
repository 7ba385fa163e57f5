//! What clients have named, as text that a reader can see and a terminal does not obey.

use std::fmt::Write;

/// Returns text in which printable characters stand for themselves. Others, a backslash, and bytes
/// that are no UTF-8 are escaped as in Rust: `\n`, `\u{202e}`, `\\`, `\xff`. What a format asks for
/// besides (JSON, HTML) is up to it.
pub fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\'' => text.push(letter),
                _ => text.extend(letter.escape_debug()),
            }
        }

        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hidden() {
        assert_eq!(
            visible("<b>\"gr\u{fc}n\" 'x'</b>".as_bytes()),
            "<b>\"gr\u{fc}n\" 'x'</b>"
        );
        assert_eq!(
            visible(b"a\r\n\x1b[31m\0\\\x7f\xff"),
            r"a\r\n\u{1b}[31m\0\\\u{7f}\xff"
        );
        assert_eq!(
            visible("\u{202e}cba\u{200b}\u{301}".as_bytes()),
            r"\u{202e}cba\u{200b}\u{301}"
        );
        assert_eq!(visible(b""), "");
    }
}
