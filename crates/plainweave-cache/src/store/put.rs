//! Writing an item: its record and pieces into the log, its entry into the index.
//!
//! The order matters, for making room can take any item, the old one of the same key among them.
//! First all room is made and all bytes are written; then the index is asked again whether there is
//! an old item; then the new one takes its place. Pieces that no index entry leads to yet are kept
//! from cleaning by [`super::log::Log::pending`].

use super::Expiry;
use super::index::{Entry, Loc};
use super::log::Kind;
use super::record::{self, Head, PIECE, TABLE, VALUE};
use super::shard::{self, Shard, Why};
use super::stats::class_of;

/// A part of a long value is not begun in less room than this.
const PIECE_MIN: usize = 1 << 10;

/// What an item is besides its value.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub(super) flags: u32,
    pub(super) cas: u64,
    pub(super) expiry: Expiry,
    pub(super) marks: u8,
}

/// There is no room, and none can be made.
pub(super) struct NoRoom;

impl Shard {
    /// Returns the size up to which values lie in their record.
    fn inline_max(&self) -> usize {
        (self.log.segment_len() / 8).max(1 << 10)
    }

    /// Writes an item into the log and the index, in place of an older one if there is one.
    pub(super) fn put(
        &mut self,
        hash: u64,
        key: &[u8],
        parts: &[&[u8]],
        facts: Facts,
    ) -> Result<(), NoRoom> {
        let len = parts.iter().map(|part| part.len()).sum();
        // First of all, so that it cannot take the new item.
        self.keep_pace(len + key.len());
        let old = self.index.find(hash, |loc| self.log.has_key(loc, key));
        let kind = match old {
            Some(place) => self.log.kind(self.index.entry(place).loc()),
            None if self.ghost.take(hash) => Kind::Main,
            None => Kind::Small,
        };
        let Facts { flags, cas, .. } = facts;
        let loc = if len <= self.inline_max() {
            self.append(
                kind,
                Head {
                    kind: VALUE,
                    cas,
                    flags,
                    key_len: key.len(),
                    payload_len: len,
                },
                key,
                parts,
            )?
        } else {
            let pieces = self.append_pieces(key, parts, len);
            let table = pieces.and_then(|pieces| {
                let table = record::table(len, &pieces);
                let head = Head {
                    kind: TABLE,
                    cas,
                    flags,
                    key_len: key.len(),
                    payload_len: table.len(),
                };

                self.append(kind, head, key, &[&table])
                    .inspect_err(|_| self.drop_pieces(&pieces))
            });
            self.log.pending.clear();
            table?
        };
        self.publish(hash, key, loc, facts);
        Ok(())
    }

    /// Appends a record. Its value does not count before it is published.
    fn append(
        &mut self,
        kind: Kind,
        head: Head,
        key: &[u8],
        parts: &[&[u8]],
    ) -> Result<Loc, NoRoom> {
        if !self.ready(kind, head.len()) {
            return Err(NoRoom);
        }
        let (loc, bytes) = self.log.append(kind, head.len()).ok_or(NoRoom)?;
        let mut payload = head.write(bytes, key);
        for part in parts {
            let (here, rest) = payload.split_at_mut(part.len());
            here.copy_from_slice(part);
            payload = rest;
        }
        Ok(loc)
    }

    /// Appends a long value's pieces, each as long as there is room in its segment.
    fn append_pieces(
        &mut self,
        key: &[u8],
        parts: &[&[u8]],
        len: usize,
    ) -> Result<Vec<Loc>, NoRoom> {
        let mut pieces = Vec::new();
        let mut at = 0;
        let mut parts = parts.iter().copied().filter(|part| !part.is_empty());
        let mut part: &[u8] = parts.next().unwrap_or_default();
        while at < len {
            let mut head = Head {
                kind: PIECE,
                cas: pieces.len() as u64,
                flags: 0,
                key_len: key.len(),
                payload_len: 0,
            };
            if !self.ready(Kind::Pieces, head.len() + PIECE_MIN.min(len - at)) {
                self.drop_pieces(&pieces);
                return Err(NoRoom);
            }
            head.payload_len = (self.log.room(Kind::Pieces) - head.len()).min(len - at);
            let (loc, bytes) = self.log.append(Kind::Pieces, head.len()).ok_or(NoRoom)?;
            let mut payload = head.write(bytes, key);
            while !payload.is_empty() {
                let (now, later) = part.split_at(part.len().min(payload.len()));
                payload[..now.len()].copy_from_slice(now);
                payload = &mut payload[now.len()..];
                part = if later.is_empty() {
                    parts.next().unwrap_or_default()
                } else {
                    later
                };
            }
            at += head.payload_len;
            self.log.pending.push(loc.segment());
            pieces.push(loc);
        }
        Ok(pieces)
    }

    fn drop_pieces(&mut self, pieces: &[Loc]) {
        pieces.iter().for_each(|&piece| self.log.die(piece));
    }

    /// Puts a record into the index. An older one of the same key dies.
    fn publish(&mut self, hash: u64, key: &[u8], loc: Loc, facts: Facts) {
        if let Some(place) = self.index.find(hash, |loc| self.log.has_key(loc, key)) {
            self.discard(place, Why::Removed);
        }
        let size = self.log.size(loc);
        self.log.enter(loc, size);
        let entry = Entry::new(hash, loc, facts.marks, facts.expiry.0, self.now);
        let log = &self.log;
        let hasher = &self.hasher;

        self.index.insert(hash, entry, |loc| {
            let bytes = log.at(loc);
            shard::hash(hasher, Head::read(bytes).key(bytes))
        });
        let size = size + size_of::<Entry>();
        let stats = &mut self.stats;
        let class = class_of(size);

        stats.total_items += 1;
        stats.items += 1;
        stats.bytes += size as u64;
        stats.classes[class].items += 1;
        stats.classes[class].bytes += size as u64;
    }
}
