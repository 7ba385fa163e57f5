//! How an item lies in a segment.
//!
//! ```text
//!   bytes   4         1     1      8           4                klen   payload
//!         payload   klen  kind   cas   flags, if not 0   key    ..
//! ```
//!
//! The payload of a [`VALUE`] is the value. That of a [`TABLE`] is the value's length, then the
//! places of the pieces that hold it. A [`PIECE`] has the key of its item and, for a CAS value, its
//! number; its payload is part of a value. Records touch each other, at any address; what follows
//! the last one was not appended.

use super::index::Loc;

/// The record holds its value.
pub(super) const VALUE: u8 = 0;
/// The record holds places of pieces.
pub(super) const TABLE: u8 = 1;
/// The record is part of a value.
pub(super) const PIECE: u8 = 2;
/// The flags are not 0 and follow.
const FLAGGED: u8 = 1 << 7;

/// Bytes before flags and key.
const HEAD: usize = 14;
/// Bytes of a place in a table.
const PLACE: usize = 8;

/// The head of a record, and where its parts begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) cas: u64,
    pub(super) flags: u32,
    pub(super) key_len: usize,
    pub(super) payload_len: usize,
}

impl Head {
    const fn fixed(&self) -> usize {
        HEAD + if self.flags == 0 { 0 } else { 4 }
    }

    /// Returns where the payload begins.
    pub(super) const fn payload(&self) -> usize {
        self.fixed() + self.key_len
    }

    /// Returns the number of bytes of the whole record.
    pub(super) const fn len(&self) -> usize {
        self.payload() + self.payload_len
    }

    /// Reads the head of the record at the beginning of `bytes`.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Self {
        let fixed: [u8; HEAD] = array(bytes);
        let kind = fixed[5];
        let flags = if kind & FLAGGED == 0 {
            0
        } else {
            u32::from_le_bytes(array(&bytes[HEAD..]))
        };

        Self {
            kind: kind & !FLAGGED,
            cas: u64::from_le_bytes(array(&fixed[6..])),
            flags,
            key_len: usize::from(fixed[4]),
            payload_len: u32::from_le_bytes(array(&fixed)) as usize,
        }
    }

    /// Writes the head and the key, and gives the place of the payload. `bytes` is as long as the
    /// record.
    pub(super) fn write<'a>(&self, bytes: &'a mut [u8], key: &[u8]) -> &'a mut [u8] {
        debug_assert!(bytes.len() == self.len() && key.len() == self.key_len);
        bytes[..4].copy_from_slice(&(self.payload_len as u32).to_le_bytes());
        bytes[4] = self.key_len as u8;
        bytes[5] = self.kind | if self.flags == 0 { 0 } else { FLAGGED };
        bytes[6..HEAD].copy_from_slice(&self.cas.to_le_bytes());
        if self.flags != 0 {
            bytes[HEAD..HEAD + 4].copy_from_slice(&self.flags.to_le_bytes());
        }
        bytes[self.fixed()..self.payload()].copy_from_slice(key);

        &mut bytes[self.payload()..]
    }

    /// Returns the key of the record at the beginning of `bytes`.
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.fixed()..self.payload()]
    }
}

/// Returns whether the record at the beginning of `bytes` has this key.
#[inline]
pub(super) fn has_key(bytes: &[u8], key: &[u8]) -> bool {
    let Some(fixed) = bytes.first_chunk::<HEAD>() else {
        return false;
    };
    let start = HEAD + if fixed[5] & FLAGGED == 0 { 0 } else { 4 };
    usize::from(fixed[4]) == key.len() && bytes.get(start..start + key.len()) == Some(key)
}

/// Gives the record at the beginning of `bytes` another CAS value.
pub(super) fn set_cas(bytes: &mut [u8], cas: u64) {
    bytes[6..HEAD].copy_from_slice(&cas.to_le_bytes());
}

/// Returns the payload of a [`TABLE`] for a value of `len` bytes.
pub(super) fn table(len: usize, pieces: &[Loc]) -> Vec<u8> {
    let mut table = Vec::with_capacity(PLACE * (1 + pieces.len()));
    table.extend_from_slice(&(len as u64).to_le_bytes());
    pieces
        .iter()
        .for_each(|piece| table.extend_from_slice(&piece.to_bytes()));
    table
}

/// Returns the value's length that a table says.
pub(super) fn value_len(table: &[u8]) -> usize {
    u64::from_le_bytes(array(table)) as usize
}

/// Returns the pieces that a table says, in order.
pub(super) fn pieces(table: &[u8]) -> impl ExactSizeIterator<Item = Loc> + '_ {
    table[PLACE..]
        .chunks_exact(PLACE)
        .map(|place| Loc::from_bytes(array(place)))
}

/// Returns the bytes of a table that hold the place of piece `number`.
pub(super) const fn piece_range(number: usize) -> std::ops::Range<usize> {
    PLACE * (1 + number)..PLACE * (2 + number)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes
        .first_chunk()
        .expect("a record is as long as its head says")
}

#[cfg(test)]
mod tests {
    use super::{Head, Loc, TABLE, VALUE, has_key, pieces, table, value_len};

    #[test]
    fn a_record_reads_as_it_was_written() {
        for flags in [0, 7] {
            let head = Head {
                kind: VALUE,
                cas: 99,
                flags,
                key_len: 3,
                payload_len: 5,
            };

            let mut bytes = vec![0; head.len()];
            head.write(&mut bytes, b"key").copy_from_slice(b"value");
            let read = Head::read(&bytes);
            assert_eq!(
                (read.kind, read.cas, read.flags, read.len()),
                (VALUE, 99, flags, bytes.len())
            );
            assert_eq!(
                (read.key(&bytes), &bytes[read.payload()..]),
                (&b"key"[..], &b"value"[..])
            );
            assert!(has_key(&bytes, b"key") && !has_key(&bytes, b"kex") && !has_key(&bytes, b"ke"));
        }
        assert_ne!(VALUE, TABLE);
    }

    #[test]
    fn a_table_names_its_pieces() {
        let places = [Loc::new(1, 2), Loc::new(3, 4)];
        let table = table(1000, &places);
        assert_eq!(value_len(&table), 1000);
        assert!(pieces(&table).eq(places));
        assert_eq!(table[super::piece_range(1)], places[1].to_bytes());
    }
}
