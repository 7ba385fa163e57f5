//! Replies on their way out: bytes, and long values that are not copied.

use std::io::IoSlice;
use std::sync::Arc;

use super::memory_budget::{MemoryBudget, Reservation};
use super::proto::{Key, base64};
use super::store::Item;

/// Replies that have piled up so far are sent before more commands are looked at.
pub(crate) const OUTPUT: usize = 64 << 10;
/// Values up to this size are copied between their neighbours; longer ones are written from where
/// they are stored.
const COPIED: usize = 4096;
/// Room kept between turns.
const KEPT: usize = 64 << 10;

/// What is to be sent.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
    /// Values that belong before the byte of this number.
    values: Vec<(usize, Item)>,
    len: usize,
    /// For a long text, or copies of values.
    held: Option<Reservation>,
}

impl Replies {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes, with all values.
    pub(crate) fn len(&self) -> usize {
        self.len + self.bytes.len()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.push(text.as_bytes());
        self.push(b"\r\n");
    }

    pub(crate) fn number(&mut self, number: impl itoa::Integer) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    /// ` 17`
    pub(crate) fn field(&mut self, number: impl itoa::Integer) {
        self.bytes.push(b' ');
        self.number(number);
    }

    /// ` t17`
    pub(crate) fn flag(&mut self, letter: u8, number: impl itoa::Integer) {
        self.push(&[b' ', letter]);
        self.number(number);
    }

    /// As the client wrote it: ` kfoo`, or ` kZm9v b`.
    pub(crate) fn key_flag(&mut self, key: &Key<'_>) {
        self.push(b" k");
        self.key(key);
        if key.is_binary() {
            self.push(b" b");
        }
    }

    /// The key, in base64 if it came so.
    pub(crate) fn key(&mut self, key: &Key<'_>) {
        match key {
            Key::Plain(bytes) => self.push(bytes),
            Key::Binary(..) => base64::encode(key.bytes(), &mut self.bytes),
        }
    }

    /// `VALUE key flags len`, and the CAS value if it is asked for.
    pub(crate) fn found(&mut self, key: &[u8], flags: u32, len: usize, cas: Option<u64>) {
        self.push(b"VALUE ");
        self.push(key);
        self.field(flags);
        self.field(len);
        if let Some(cas) = cas {
            self.field(cas);
        }
        self.push(b"\r\n");
    }

    /// A value and its line end.
    pub(crate) fn value(&mut self, item: Item) {
        self.item(item);
        self.push(b"\r\n");
    }

    /// A value.
    pub(crate) fn item(&mut self, item: Item) {
        if item.len() <= COPIED {
            item.append_to(&mut self.bytes);
        } else {
            self.len += item.len();
            self.values.push((self.bytes.len(), item));
        }
    }

    /// For text that is made elsewhere.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// After text that may be long: accounts for it until it is sent, or takes all behind byte
    /// `from` back if there is no memory for it. Whether it stays.
    pub(crate) fn account(&mut self, from: usize, memory_budget: &Arc<MemoryBudget>) -> bool {
        if self.bytes.len() <= KEPT {
            return true;
        }
        let held = self.held.get_or_insert_with(|| memory_budget.reserve());
        let enough = held.grow_to(self.bytes.capacity());
        if !enough {
            self.bytes.truncate(from);
            self.bytes.shrink_to(KEPT);
        }

        enough
    }

    /// Returns all in one piece, if it is.
    pub(crate) fn one_piece(&self) -> Option<&[u8]> {
        self.values.is_empty().then_some(&self.bytes)
    }

    /// Returns all pieces in their order.
    pub(crate) fn pieces(&self) -> Vec<IoSlice<'_>> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for (place, item) in &self.values {
            pieces.push(IoSlice::new(&self.bytes[from..*place]));
            pieces.extend(item.slices().map(IoSlice::new));
            from = *place;
        }

        pieces.push(IoSlice::new(&self.bytes[from..]));
        pieces
    }

    /// Returns the segments of the store that the replies hold, each once.
    pub(crate) fn segments(&self) -> Vec<usize> {
        let mut segments: Vec<_> = self
            .values
            .iter()
            .flat_map(|(_, item)| item.segments())
            .collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }

    /// Copies what follows the first `sent` bytes, which `held` is for, and lets go of the values.
    pub(crate) fn copy_rest(&mut self, sent: usize, held: Reservation) {
        let mut rest = Vec::with_capacity(self.len() - sent);
        let mut skip = sent;
        for piece in self.pieces() {
            let from = skip.min(piece.len());
            skip -= from;
            rest.extend_from_slice(&piece[from..]);
        }

        (self.bytes, self.len, self.held) = (rest, 0, Some(held));
        self.values.clear();
    }

    /// Empty again, and small.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.values.clear();
        self.len = 0;
        self.held = None;
    }
}
