//! The bytes of a value that has not come in full.
//!
//! When many or very long ones come at once, a long value lies in a mapping of its own, for the
//! reason that segments do: once it is dropped, its memory is the kernel's again at once. `malloc`
//! keeps large blocks in its heap after the first one was freed, and their holes stay resident:
//! with a budget of 11 MB, values of 4 MB that were begun and refused took 28 MB beside the store.
//! A mapping is slow, since each of its pages is a fault (1.0 ms of CPU instead of 0.2 for a value
//! of 900 KB), so a few long values still come from `malloc`.

use super::store::Table;

/// Room from which on it may be a mapping.
const LONG: usize = 128 << 10;

/// Bytes received, and room for more.
#[derive(Debug)]
pub(super) enum Incoming {
    Heap(Vec<u8>),
    /// The mapping, and how many bytes of it are filled.
    Mapped(Table<u8>, usize),
}

impl Incoming {
    /// Takes no memory yet.
    pub(super) fn new() -> Self {
        Self::Heap(Vec::new())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(memory, len) => &memory[..*len],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns how many bytes it has memory for.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Heap(bytes) => bytes.capacity(),
            Self::Mapped(memory, _) => memory.len(),
        }
    }

    /// Makes room for `room` bytes in all; it has less. `crowded`: it is not the time for a large
    /// block of `malloc`'s.
    pub(super) fn grow(&mut self, room: usize, crowded: bool) {
        match self {
            Self::Heap(bytes) if room < LONG || !crowded => bytes.reserve_exact(room - bytes.len()),
            _ => {
                let mut memory = Table::zeroed(room);
                let len = self.len();
                memory[..len].copy_from_slice(self.bytes());
                *self = Self::Mapped(memory, len);
            }
        }
    }

    /// Appends bytes, for which there is room.
    pub(super) fn append(&mut self, more: &[u8]) {
        match self {
            Self::Heap(bytes) => bytes.extend_from_slice(more),
            Self::Mapped(memory, len) => {
                memory[*len..][..more.len()].copy_from_slice(more);
                *len += more.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_room_grows() {
        for crowded_from in [0, LONG, 4 * LONG, usize::MAX] {
            let mut incoming = Incoming::new();
            let mut sent = Vec::new();

            let mut room = 1 << 10;
            while room <= 8 * LONG {
                incoming.grow(room, room >= crowded_from);
                assert!(incoming.room() >= room);
                let more: Vec<u8> = (incoming.len()..room).map(|n| (n % 251) as u8).collect();
                incoming.append(&more);
                sent.extend(more);
                assert_eq!((incoming.bytes(), incoming.len()), (&sent[..], room));
                assert_eq!(
                    matches!(incoming, Incoming::Mapped(..)),
                    room >= LONG && room >= crowded_from
                );
                room *= 2;
            }
        }
    }
}
