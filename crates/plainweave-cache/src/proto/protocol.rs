//! Which protocol a client speaks.

use super::binary::REQUEST;

/// A protocol. A connection has one for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Lines: the classic and the meta commands.
    Text,
    /// Packets.
    Binary,
}

impl Protocol {
    /// Returns the one that begins so.
    pub(crate) const fn of(first: u8) -> Self {
        if first == REQUEST {
            Self::Binary
        } else {
            Self::Text
        }
    }
}
