//! Keys, plain or in base64.

use super::base64;

/// Longest key, in bytes.
pub(crate) const KEY_BYTES: usize = 250;

/// A key, as it came or decoded from base64.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key<'a> {
    Plain(&'a [u8]),
    /// Decoded bytes and their number: base64 of at most 250 characters.
    Binary([u8; KEY_BYTES / 4 * 3 + 3], usize),
}

impl<'a> Key<'a> {
    pub(super) fn decode(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_BYTES / 4 * 3 + 3];
        base64::decode(text, &mut bytes).map(|len| Key::Binary(bytes, len))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Key::Plain(bytes) => bytes,
            Key::Binary(bytes, len) => &bytes[..*len],
        }
    }

    pub(crate) fn is_binary(&self) -> bool {
        matches!(self, Key::Binary(..))
    }
}
