//! Segments in queues, and records in segments.
//!
//! A shard's memory is cut into segments of one size. Records are appended to the *head* of a
//! queue: `Small` takes items that are new, `Main` items that have proved their worth (see
//! [`super::room`]), and `Pieces` the parts of values that are too long for one record. A full head
//! is sealed and becomes the youngest of its queue. So records never move for being written beside
//! others, any size fits anywhere, and memory belongs to no size: what a class of sizes loses,
//! another has at once.
//!
//! A record dies when its item is removed or rewritten; `live` says how many bytes of a segment
//! have not. Segments become free by being cleaned, and wait in `limbo` while they are being read.

use std::collections::VecDeque;

use super::index::Loc;
use super::record::{self, Head, PIECE, TABLE};
use super::segment::{Pin, Segment, prefetch};

/// Which records a segment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Items that are new.
    Small,
    /// Items that were asked for again.
    Main,
    /// Parts of long values.
    Pieces,
}

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its number is not in use.
    Absent,
    /// Empty.
    Free,
    /// Nothing in it lives, but it is being read.
    Limbo,
    /// It has records: a head, sealed, or being cleaned.
    Holds(Kind),
}

struct Slot {
    segment: Segment,
    state: State,
    /// Bytes of records that live.
    live: usize,
    /// All that is in it was flushed.
    flushed: bool,
}

/// A queue of segments, oldest first.
#[derive(Default)]
struct Queue {
    sealed: VecDeque<u32>,
    head: Option<u32>,
    /// Bytes of items that live, with their pieces.
    live: usize,
}

/// The segments of a shard.
pub(super) struct Log {
    segment_len: usize,
    /// By number. The first is never in use, so that no place is 0.
    slots: Vec<Slot>,
    absent: Vec<u32>,
    free: Vec<u32>,
    limbo: Vec<u32>,
    queues: [Queue; 3],
    /// A segment may have died since [`Self::dead`] was asked.
    died: bool,
    /// Segments with pieces of a value that is being written; they are not cleaned.
    pub(super) pending: Vec<u32>,
}

impl Log {
    pub(super) fn new(segment_len: usize) -> Self {
        let nothing = Slot {
            segment: Segment::new(0),
            state: State::Absent,
            live: 0,
            flushed: false,
        };

        Self {
            segment_len,
            slots: vec![nothing],
            absent: Vec::new(),
            free: Vec::new(),
            limbo: Vec::new(),
            queues: Default::default(),
            died: false,
            pending: Vec::new(),
        }
    }

    /// Returns the number of bytes of a segment, with what is kept for it.
    pub(super) const fn cost(&self) -> usize {
        self.segment_len + size_of::<Slot>() + 64
    }

    pub(super) const fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// Empty segments.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Segments in all.
    pub(super) fn segments(&self) -> usize {
        self.slots.len() - 1 - self.absent.len()
    }

    /// Returns the number of bytes of items that live in a queue, with their pieces.
    pub(super) fn live(&self, kind: Kind) -> usize {
        self.queues[kind as usize].live
    }

    /// Adds an empty segment.
    pub(super) fn grow(&mut self) {
        let slot = Slot {
            segment: Segment::new(self.segment_len),
            state: State::Free,
            live: 0,
            flushed: false,
        };

        // A number that was in use before, so that the table of slots does not grow without end.
        let id = match self.absent.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };

        self.free.push(id);
    }

    /// Gives an empty segment's memory back, and says whether there was one.
    pub(super) fn shrink(&mut self) -> bool {
        let Some(id) = self.free.pop() else {
            return false;
        };
        let slot = &mut self.slots[id as usize];
        (slot.segment, slot.state) = (Segment::new(0), State::Absent);
        self.absent.push(id);
        true
    }

    /// Returns the number of bytes that the queue's head has left.
    pub(super) fn room(&self, kind: Kind) -> usize {
        self.queues[kind as usize]
            .head
            .map_or(0, |id| self.slots[id as usize].segment.room())
    }

    /// Seals the queue's head and opens a free segment as the new one; `false` if none is free.
    pub(super) fn open(&mut self, kind: Kind) -> bool {
        let Some(id) = self.free.pop() else {
            return false;
        };
        self.seal(kind);
        self.slots[id as usize].state = State::Holds(kind);
        self.queues[kind as usize].head = Some(id);
        true
    }

    /// Seals the queue's head, if it has one.
    pub(super) fn seal(&mut self, kind: Kind) {
        let queue = &mut self.queues[kind as usize];
        queue.sealed.extend(queue.head.take());
    }

    /// Appends a record to the queue's head, and gives its place and its bytes to fill in; `None`
    /// if there is no room.
    pub(super) fn append(&mut self, kind: Kind, len: usize) -> Option<(Loc, &mut [u8])> {
        let id = self.queues[kind as usize].head?;
        let slot = &mut self.slots[id as usize];
        let (offset, bytes) = slot.segment.append(len)?;
        slot.live += len;
        Some((Loc::new(id, offset), bytes))
    }

    /// Returns the bytes from a record on.
    #[inline]
    pub(super) fn at(&self, loc: Loc) -> &[u8] {
        let segment = &self.slots[loc.segment() as usize].segment;
        segment.bytes(loc.offset()..segment.filled())
    }

    /// Has a record fetched from memory, as far as `bytes` from its beginning.
    #[inline]
    pub(super) fn prefetch(&self, loc: Loc, bytes: usize) {
        let record = self.at(loc);
        record[..record.len().min(bytes)]
            .iter()
            .step_by(64)
            .for_each(prefetch);
    }

    #[inline]
    pub(super) fn has_key(&self, loc: Loc, key: &[u8]) -> bool {
        record::has_key(self.at(loc), key)
    }

    #[inline]
    pub(super) fn head(&self, loc: Loc) -> Head {
        Head::read(self.at(loc))
    }

    /// Returns a record's payload.
    pub(super) fn payload(&self, loc: Loc) -> &[u8] {
        let bytes = self.at(loc);
        let head = Head::read(bytes);
        &bytes[head.payload()..head.len()]
    }

    /// Returns a record's payload, for readers without the lock.
    #[inline]
    pub(super) fn pin(&self, loc: Loc, head: &Head) -> Pin {
        let start = loc.offset() + head.payload();
        self.slots[loc.segment() as usize]
            .segment
            .pin(start..start + head.payload_len)
    }

    /// Returns a record for overwriting; `None` while its segment is being read.
    pub(super) fn rewrite(&mut self, loc: Loc, head: &Head) -> Option<&mut [u8]> {
        let start = loc.offset();
        self.slots[loc.segment() as usize]
            .segment
            .rewrite(start..start + head.len())
    }

    /// Returns whether a flush has taken what is in a segment.
    #[inline]
    pub(super) fn flushed(&self, loc: Loc) -> bool {
        self.slots[loc.segment() as usize].flushed
    }

    /// Returns which queue a record is in.
    pub(super) fn kind(&self, loc: Loc) -> Kind {
        match self.slots[loc.segment() as usize].state {
            State::Holds(kind) => kind,
            state => unreachable!("a record in a segment that is {state:?}"),
        }
    }

    /// Returns the number of bytes of an item: its record and its pieces.
    pub(super) fn size(&self, loc: Loc) -> usize {
        let head = self.head(loc);
        let pieces = (head.kind == TABLE).then(|| record::pieces(self.payload(loc)));
        head.len()
            + pieces
                .into_iter()
                .flatten()
                .map(|piece| self.head(piece).len())
                .sum::<usize>()
    }

    /// Counts an item, once it is in the index.
    pub(super) fn enter(&mut self, loc: Loc, size: usize) {
        let kind = self.kind(loc);
        self.queues[kind as usize].live += size;
    }

    /// Takes back what [`Self::enter`] has counted, for an item that moves with its pieces; its
    /// record dies.
    pub(super) fn leave(&mut self, loc: Loc, size: usize) {
        let kind = self.kind(loc);
        self.queues[kind as usize].live -= size;
        self.die(loc);
    }

    /// A record dies.
    pub(super) fn die(&mut self, loc: Loc) {
        let len = self.head(loc).len();
        let slot = &mut self.slots[loc.segment() as usize];
        slot.live -= len;
        // It is free without work. The next who needs room finds it.
        self.died |= slot.live == 0;
    }

    /// The pieces of an item die. To be called before its record does.
    pub(super) fn die_pieces(&mut self, loc: Loc) {
        if self.head(loc).kind == TABLE {
            let pieces: Vec<Loc> = record::pieces(self.payload(loc)).collect();
            pieces.into_iter().for_each(|piece| self.die(piece));
        }
    }

    /// All that is there is flushed; what is appended from now on is not.
    pub(super) fn flush(&mut self) {
        for kind in [Kind::Small, Kind::Main, Kind::Pieces] {
            // A flag a segment: what comes after the flush goes to new ones.
            self.seal(kind);
        }
        for slot in &mut self.slots {
            slot.flushed |= matches!(slot.state, State::Holds(_));
        }
    }

    /// Returns the sealed segment with the fewest bytes that live, of which that are at most
    /// `most`.
    pub(super) fn emptiest(&self, most: usize) -> Option<(u32, Kind)> {
        let sealed = self
            .queues
            .iter()
            .zip([Kind::Small, Kind::Main, Kind::Pieces]);
        let sealed =
            sealed.flat_map(|(queue, kind)| queue.sealed.iter().map(move |&id| (id, kind)));
        // A value is being written to those: its pieces belong to no item yet, and would count as
        // dead.
        let sealed = sealed.filter(|(id, _)| !self.pending.contains(id));
        let live = |id: u32| match &self.slots[id as usize] {
            // Its records still count as alive, and are dropped one by one when it is cleaned.
            Slot { flushed: true, .. } => 0,
            slot => slot.live,
        };

        sealed
            .map(|(id, kind)| (live(id), id, kind))
            .filter(|&(live, ..)| live <= most)
            .min_by_key(|&(live, ..)| live)
            .map(|(_, id, kind)| (id, kind))
    }

    /// Returns a sealed segment in which nothing lives. Costs nothing if no segment has died since
    /// the last call.
    pub(super) fn dead(&mut self) -> Option<(u32, Kind)> {
        if !self.died {
            return None;
        }
        let found = self
            .emptiest(0)
            .filter(|&(segment, _)| self.is_dead(segment));
        // There may be more than one.
        self.died = found.is_some();
        found
    }

    /// Returns the oldest segment of a queue: a sealed one, or else its head.
    pub(super) fn oldest(&self, kind: Kind) -> Option<u32> {
        let queue = &self.queues[kind as usize];
        queue.sealed.front().copied().or(queue.head)
    }

    /// Takes a segment out of its queue, for cleaning. Its records stay readable.
    pub(super) fn take(&mut self, id: u32, kind: Kind) {
        let queue = &mut self.queues[kind as usize];
        if queue.head == Some(id) {
            queue.head = None;
        } else if let Some(place) = queue.sealed.iter().position(|&sealed| sealed == id) {
            queue.sealed.remove(place);
        }
    }

    /// Returns the number of bytes that were appended to a segment.
    pub(super) fn filled(&self, id: u32) -> usize {
        self.slots[id as usize].segment.filled()
    }

    /// Returns whether nothing in a segment lives.
    pub(super) fn is_dead(&self, id: u32) -> bool {
        self.slots[id as usize].live == 0
    }

    /// A cleaned segment becomes free, or goes to limbo.
    pub(super) fn release(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        debug_assert_eq!(slot.live, 0, "a segment with live records was released");
        slot.flushed = false;

        if slot.segment.clear() {
            slot.state = State::Free;
            self.free.push(id);
        } else {
            slot.state = State::Limbo;
            self.limbo.push(id);
        }
    }

    /// Returns whether more than half of the segments hold nothing but what readers still read.
    pub(super) fn mostly_held(&self) -> bool {
        self.limbo.len() * 2 > self.segments()
    }

    /// Frees the segments in limbo that have no readers any more. Returns whether there were any.
    pub(super) fn rescue(&mut self) -> bool {
        let free = self.free.len();
        // Backwards, since what is taken out is replaced by the last one.
        for place in (0..self.limbo.len()).rev() {
            let slot = &mut self.slots[self.limbo[place] as usize];
            if slot.segment.clear() {
                slot.state = State::Free;
                self.free.push(self.limbo.swap_remove(place));
            }
        }
        self.free.len() > free
    }

    /// Appends a copy of a record, with this CAS value and a payload that `patch` may change, to
    /// the queue's head; `None` if there is no room.
    pub(super) fn copy(
        &mut self,
        loc: Loc,
        to: Kind,
        cas: u64,
        patch: impl FnOnce(&mut [u8]),
    ) -> Option<Loc> {
        let head = self.head(loc);
        // Pinned, since `append` borrows all segments for the copy's bytes.
        let pin = self.slots[loc.segment() as usize]
            .segment
            .pin(loc.offset()..loc.offset() + head.len());
        let (copy, bytes) = self.append(to, head.len())?;
        let payload = Head { cas, ..head }.write(bytes, head.key(pin.bytes()));
        payload.copy_from_slice(&pin.bytes()[head.payload()..]);
        patch(payload);
        Some(copy)
    }

    /// Gives a record another CAS value; `false` while its segment is being read.
    pub(super) fn set_cas(&mut self, loc: Loc, cas: u64) -> bool {
        let head = self.head(loc);
        self.rewrite(loc, &head)
            .map(|bytes| record::set_cas(bytes, cas))
            .is_some()
    }

    /// Puts a place into a record's table; `false` while its segment is being read.
    pub(super) fn set_piece(&mut self, loc: Loc, number: usize, piece: Loc) -> bool {
        let head = self.head(loc);
        let Some(bytes) = self.rewrite(loc, &head) else {
            return false;
        };
        bytes[head.payload()..][record::piece_range(number)].copy_from_slice(&piece.to_bytes());
        true
    }

    /// Returns whether a record is part of a value.
    pub(super) fn is_piece(&self, loc: Loc) -> bool {
        self.head(loc).kind == PIECE
    }
}
