//! Making room: which items go, which stay, and the moving that keeps memory whole.
//!
//! **Eviction** is S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache
//! eviction, SOSP 2023), on segments. New items enter the small queue. At its end, an item that was
//! asked for meanwhile goes to the main queue; the others go, and their keys are remembered
//! ([`super::ghost`]). A remembered key that is stored again enters the main queue. At the end of
//! that, an item that was asked for since it came goes round again with one access less; the others
//! go. The small queue has 45 % of the bytes, not the published 10: it bounds what may be written
//! now and read later ([`super::Config::small_percent`]).
//!
//! **Cleaning** is how this is done. The oldest segment of a queue is the *victim*: its records are
//! settled one after the other, moved to a head or dropped, and then it is free. A segment that is
//! mostly dead, from whatever queue, is cleaned first, and all that lives in it moves to the head
//! of the same queue: that is how the room of records that were overwritten, deleted or expired
//! comes back without an eviction.
//!
//! Cleaning is incremental: a write that appends `n` bytes settles about [`PACE`]` * n` bytes of
//! the victim, so that a free segment is there when a head is full. Only when it is not, a write
//! cleans until one is. One free segment is never handed to writers: cleaning must have somewhere
//! to move to.
//!
//! A victim that is being read is free when the last reader has gone. If more than half of the
//! memory is in that state, writes fail instead of evicting what is left.

use super::Time;
use super::index::{FREQUENCY, Loc, Place};
use super::log::Kind;
use super::record::{self, Head, TABLE};
use super::shard::{Cleaning, Plan, Shard, Why};

/// Free segments that only cleaning may take.
const RESERVE: usize = 1;
/// Bytes settled for each byte appended.
const PACE: usize = 4;
/// How many looks at items a removal counts for.
const REMOVAL: usize = 4;
/// A segment is compacted if at most this part of it lives, in percent; without eviction
/// [`COMPACT_LAST`].
const COMPACT: usize = 75;
const COMPACT_LAST: usize = 90;
/// Accesses that take an item from the small to the main queue.
const PROMOTE: u8 = 1;

impl Shard {
    /// Sees to it that `len` bytes can be appended to a queue. Items may go for that. `false` if
    /// there is no room.
    pub(super) fn ready(&mut self, kind: Kind, len: usize) -> bool {
        // A bound, should cleaning go in circles: each round frees a segment, or settles as much as
        // one holds.
        for _ in 0..16 + 4 * self.log.segments() {
            if self.log.room(kind) >= len {
                return true;
            }
            if self.log.free() > RESERVE && self.left() >= 0 {
                return self.log.open(kind);
            }
            if !self.free_one() {
                return false;
            }
        }
        false
    }

    /// Goes on with cleaning, after `len` bytes were appended.
    pub(super) fn keep_pace(&mut self, len: usize) {
        if self.log.free() <= RESERVE && self.left() < self.log.cost() as isize {
            self.free_one_by((PACE * len).min(self.log.segment_len()));
        }
    }

    /// Takes one step towards one more free segment, or towards the bound on memory; returns
    /// `false` if there is none.
    fn free_one(&mut self) -> bool {
        self.free_one_by(self.log.segment_len())
    }

    fn free_one_by(&mut self, budget: usize) -> bool {
        let left = self.left();
        if left < 0 && self.log.free() > RESERVE {
            return self.log.shrink();
        }
        if left >= self.log.cost() as isize {
            self.log.grow();
            return true;
        }

        self.log.rescue() || !self.log.mostly_held() && self.clean(budget)
    }

    /// Returns the number of bytes below the bound; negative above it. What the index and the ghost
    /// may take with the next write is counted already: a page for buckets, one for extra buckets,
    /// and two places of the ghost for an item.
    pub(super) fn left(&self) -> isize {
        let ghost = (2 * size_of::<u16>() * self.index.len()).max(self.ghost.bytes());
        let charged = self.log.segments() * self.log.cost()
            + self.index.bytes()
            + 2 * self.log.segment_len()
            + ghost;
        self.memory as isize - charged as isize
    }

    /// Returns the number of bytes of memory taken.
    pub(super) fn used(&self) -> usize {
        self.log.segments() * self.log.cost() + self.index.bytes() + self.ghost.bytes()
    }

    /// Settles about `budget` bytes of a victim's records; `false` if nothing can be cleaned.
    fn clean(&mut self, mut budget: usize) -> bool {
        // A segment that died since is free without work, whatever is being cleaned.
        if let Some((segment, kind)) = self.log.dead() {
            self.log.take(segment, kind);
            self.log.release(segment);
            return true;
        }

        let Some(mut cleaning) = self.cleaning.take().or_else(|| self.choose()) else {
            return false;
        };
        // Asked each time: what is being cleaned may be a head.
        let end = self.log.filled(cleaning.segment);
        while cleaning.at < end && !self.log.is_dead(cleaning.segment) {
            if budget == 0 {
                // The rest is left to the next command, so that none of them waits for a whole
                // segment.
                self.cleaning = Some(cleaning);
                return true;
            }

            let loc = Loc::new(cleaning.segment, cleaning.at);
            let head = self.log.head(loc);
            let Some(work) = self.settle(loc, &head, cleaning) else {
                self.cleaning = Some(cleaning);
                return false;
            };

            cleaning.at += head.len();
            budget = budget.saturating_sub(work);
        }

        self.log.release(cleaning.segment);
        self.futile = matches!(cleaning.plan, Plan::Compact) && self.log.free() <= cleaning.free;
        true
    }

    /// Returns the next victim.
    fn choose(&mut self) -> Option<Cleaning> {
        let part = if self.evict { COMPACT } else { COMPACT_LAST };
        let free = self.log.free();
        let cleaning = |segment, kind, plan| Cleaning {
            segment,
            kind,
            at: 0,
            plan,
            free,
        };

        // Pieces may be so long that two do not fit into one segment. Moving them gains nothing:
        // then evict.
        let most = if self.futile && self.evict {
            0
        } else {
            self.log.segment_len() * part / 100
        };

        let found = match self.log.emptiest(most) {
            Some((segment, kind)) => Some(cleaning(segment, kind, Plan::Compact)),
            None if self.evict => {
                let small = self.log.live(Kind::Small);
                let main = self.log.live(Kind::Main);
                let kinds = match small * 100 >= (small + main) * self.small_percent {
                    true => [Kind::Small, Kind::Main],
                    false => [Kind::Main, Kind::Small],
                };

                let oldest = |kind| Some(cleaning(self.log.oldest(kind)?, kind, Plan::Evict));
                kinds.into_iter().find_map(oldest)
            }
            None => None,
        }?;
        self.log.take(found.segment, found.kind);
        Some(found)
    }

    /// Moves or drops a victim's record if it lives. The bytes it was about; `None` if it can
    /// neither move nor go.
    fn settle(&mut self, loc: Loc, head: &Head, cleaning: Cleaning) -> Option<usize> {
        let record = self.log.at(loc);
        let hash = self.hash(head.key(record));
        if self.log.is_piece(loc) {
            return self.settle_piece(loc, head, hash);
        }
        // The index leads elsewhere, so this record has died.
        let Some(place) = self.index.find(hash, |found| found == loc) else {
            return Some(head.len());
        };
        if let Some(why) = self.gone(self.index.entry(place)) {
            return Some(self.discard(place, why));
        }
        let entry = *self.index.entry(place);
        let frequency = entry.marks() & FREQUENCY;
        let (to, frequency) = match (cleaning.plan, cleaning.kind) {
            (Plan::Compact, kind) => (Some(kind), frequency),
            (Plan::Evict, Kind::Small) => ((frequency >= PROMOTE).then_some(Kind::Main), 0),
            (Plan::Evict, _) => (
                (frequency > 0).then_some(Kind::Main),
                frequency.saturating_sub(1),
            ),
        };

        if let Some(to) = to.filter(|&to| self.ready_to_move(to, head.len())) {
            self.index
                .entry_mut(place)
                .set_marks(entry.marks() & !FREQUENCY | frequency);
            self.move_record(place, to, head.cas, |_| {});
            return Some(head.len());
        }

        if !self.evict {
            return None;
        }
        if cleaning.kind == Kind::Small {
            // Evicted from the small queue, a key is remembered: if it comes back soon, it goes to
            // the main queue at once.
            self.ghost.fit(self.index.len());
            self.ghost.put(hash);
        }

        Some(self.discard(place, Why::Evicted))
    }

    /// Settles part of a value: it moves, or the whole item goes.
    fn settle_piece(&mut self, loc: Loc, head: &Head, hash: u64) -> Option<usize> {
        let key = head.key(self.log.at(loc));
        // Pieces are not in the index: the key leads to the record that names them.
        let Some(place) = self.index.find(hash, |found| self.log.has_key(found, key)) else {
            return Some(head.len());
        };
        let entry = *self.index.entry(place);
        let number = head.cas as usize;
        let item = self.log.head(entry.loc());
        let mine = || record::pieces(self.log.payload(entry.loc())).nth(number) == Some(loc);

        if item.kind != TABLE || !mine() {
            return Some(head.len());
        }
        if let Some(why) = self.gone(&entry) {
            return Some(self.discard(place, why));
        }
        let kind = self.log.kind(entry.loc());

        // The record moves too if it cannot be written over, because it is being read.
        let can_move =
            self.ready_to_move(Kind::Pieces, head.len()) && self.ready_to_move(kind, item.len());
        if !can_move {
            return self.evict.then(|| self.discard(place, Why::Evicted));
        }

        let copy = self
            .log
            .copy(loc, Kind::Pieces, head.cas, |_| {})
            .expect("there is room");
        if !self.log.set_piece(entry.loc(), number, copy) {
            let patch = |table: &mut [u8]| {
                table[record::piece_range(number)].copy_from_slice(&copy.to_bytes())
            };
            self.move_record(place, kind, item.cas, patch);
        }

        self.log.die(loc);
        Some(head.len())
    }

    /// Returns whether cleaning can append to a queue, from the reserve if need be.
    fn ready_to_move(&mut self, kind: Kind, len: usize) -> bool {
        self.log.room(kind) >= len || self.log.open(kind)
    }

    /// Moves an item's record, not its pieces, to a queue that has room for it; the CAS value may
    /// change thereby.
    pub(super) fn move_record(
        &mut self,
        place: Place,
        to: Kind,
        cas: u64,
        patch: impl FnOnce(&mut [u8]),
    ) {
        let from = self.index.entry(place).loc();
        let size = self.log.size(from);
        let copy = self.log.copy(from, to, cas, patch).expect("there is room");
        self.log.leave(from, size);
        self.log.enter(copy, size);
        self.index.entry_mut(place).set_loc(copy);
    }

    /// Has [`Self::maintain`] look at everything from the beginning. What that counts towards its
    /// budgets: buckets, and the items in them.
    pub(super) const fn begin_round(&mut self) -> usize {
        (self.crawl, self.round) = (0, (None, 0));
        self.index.buckets() + self.index.len() * (1 + REMOVAL)
    }

    /// Looks at about `budget` items of the index and drops those that have expired or were
    /// flushed. How many. One that is dropped counts for several. Nothing expires within a second,
    /// so a bucket is looked at once in each, unless there was a flush.
    pub(super) fn maintain(&mut self, budget: usize, now: Time) -> usize {
        self.turn(now);
        let mut found = Vec::new();
        let mut seen = 0;
        let mut removed = 0;
        if self.round.0 != Some(self.now) {
            self.round = (Some(self.now), self.index.buckets());
        }

        // The table shrinks as items go, so its size is asked each time. Then the items of its last
        // bucket move to one with a lower number, so this walk goes downwards.
        while self.round.1 > 0 && seen < budget {
            self.round.1 -= 1;
            let above = if self.crawl == 0 {
                usize::MAX
            } else {
                self.crawl
            };

            self.crawl = above.min(self.index.buckets()) - 1;
            seen += 1;
            self.index.visit(self.crawl, |entry| {
                seen += 1;
                if self.gone(entry).is_some() {
                    found.push(entry.loc());
                }
            });

            for loc in found.drain(..) {
                let record = self.log.at(loc);
                let hash = self.hash(Head::read(record).key(record));
                if let Some(place) = self.index.find(hash, |found| found == loc) {
                    let why = if self.log.flushed(loc) {
                        Why::Flushed
                    } else {
                        Why::Crawled
                    };

                    self.discard(place, why);
                    (removed, seen) = (removed + 1, seen + REMOVAL);
                }
            }
        }

        // Readers may have ended since, and with nobody writing nobody else would look.
        self.log.rescue();
        if self.left() < 0 {
            self.free_one();
        }
        removed
    }
}
