//! What a get gives: a counted handle on a value.

use std::fmt;

use super::segment::Pin;
use super::{Expiry, Time};

/// The bytes of a value: of its record, or of its pieces.
#[derive(Clone)]
pub(super) enum Bytes {
    One(Pin),
    Many(Box<[Pin]>),
}

/// A value as a get found it, with what is known of its item. A counted handle: see the
/// [module](super).
#[derive(Clone)]
pub struct Item {
    pub(super) bytes: Bytes,
    pub(super) len: u32,
    pub(super) flags: u32,
    pub(super) cas: u64,
    pub(super) expiry: Expiry,
    pub(super) access: Time,
    pub(super) fetched: bool,
    pub(super) size: u32,
}

impl Item {
    /// Returns the number of bytes of the value.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an item is no container")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the value's bytes, in order. A value of up to a sixteenth of a segment (4 KiB with
    /// 64 MB of memory) is one slice; a longer one has a slice for each segment that it touches.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pins().iter().map(Pin::bytes)
    }

    /// Returns the numbers of the segments that this handle keeps from being used again, each as
    /// often as it has slices there. No other segment has the number meanwhile.
    pub(crate) fn segments(&self) -> impl Iterator<Item = usize> {
        self.pins().iter().map(Pin::segment)
    }

    fn pins(&self) -> &[Pin] {
        match &self.bytes {
            Bytes::One(pin) => std::slice::from_ref(pin),
            Bytes::Many(pins) => pins,
        }
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match &self.bytes {
            Bytes::One(pin) => out.extend_from_slice(pin.bytes()),
            Bytes::Many(pins) => pins
                .iter()
                .for_each(|pin| out.extend_from_slice(pin.bytes())),
        }
    }

    /// Returns the client's flags.
    #[must_use]
    pub const fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the CAS value.
    #[must_use]
    pub const fn cas(&self) -> u64 {
        self.cas
    }

    /// Returns when the item ended before this call.
    #[must_use]
    pub const fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// Returns the access before this one, or the write: `l` of `mg` is the time since then, and
    /// `t` of `me` too.
    #[must_use]
    pub const fn access(&self) -> Time {
        self.access
    }

    /// Returns whether it was read before since it was written: `h` of `mg`.
    #[must_use]
    pub const fn fetched(&self) -> bool {
        self.fetched
    }

    /// Returns the number of bytes that the item takes: key, value and what the store keeps with
    /// them.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size as usize
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            len,
            flags,
            cas,
            expiry,
            access,
            fetched,
            ..
        } = self;
        write!(
            f,
            "Item {{ {len} bytes, {flags:#x}, cas {cas}, {expiry:?}, {access:?}, fetched: {fetched} }}"
        )
    }
}
