//! What the commands mean, over a shard's index and log. All of it runs under the shard's lock.

use super::super::number;
use super::config::item_size;
use super::index::{Entry, FETCHED, FREQUENCY, Place, SENT, STALE};
use super::item::{Bytes, Item};
use super::put::{Facts, NoRoom};
use super::record::{self, Head, TABLE, VALUE};
use super::shard::{Shard, Why, listed};
use super::{
    Count, Counted, Expiry, Found, Hit, Lookup, Mode, Record, Removal, Removed, Short, Stored,
    Time, Token, Write,
};

/// Values up to this size are copied under the lock, which is cheaper than counting a reader.
const SHORT: usize = 1 << 10;
/// Longest value that is taken for a number. So long a value always lies in its record.
const NUMBER_BYTES: usize = 1 << 10;
/// Bytes of a record that are fetched in advance: most keys and short values.
const PREFETCHED_BYTES: usize = 256;

impl Shard {
    /// Notes an access to the item.
    fn note(&mut self, place: Place, marks: u8) {
        self.index.entry_mut(place).note(self.now, marks);
    }

    /// Returns a handle on an item.
    fn item(&self, entry: &Entry) -> Item {
        let head = self.log.head(entry.loc());
        let record = self.log.pin(entry.loc(), &head);
        let mut size = head.len() + size_of::<Entry>();
        let (bytes, len) = if head.kind == TABLE {
            let len = record::value_len(record.bytes());
            // Each piece is pinned by itself: they lie in segments that are cleaned one by one.
            let pieces = record::pieces(record.bytes()).map(|loc| {
                let head = self.log.head(loc);
                size += head.len();
                self.log.pin(loc, &head)
            });
            (Bytes::Many(pieces.collect()), len)
        } else {
            let len = record.len();
            (Bytes::One(record), len)
        };

        Item {
            bytes,
            len: len as u32,
            flags: head.flags,
            cas: head.cas,
            expiry: Expiry(entry.expiry),
            access: entry.access,
            fetched: entry.marks() & FETCHED != 0,
            size: size as u32,
        }
    }

    pub(super) fn get(
        &mut self,
        hash: u64,
        key: &[u8],
        touch: Option<Expiry>,
        now: Time,
    ) -> Option<Item> {
        self.access(hash, key, touch, now)
            .map(|entry| self.item(&entry))
    }

    /// A short value goes to `copy`.
    #[inline]
    pub(super) fn read(
        &mut self,
        hash: u64,
        key: &[u8],
        touch: Option<Expiry>,
        now: Time,
        copy: impl FnOnce(Short<'_>),
    ) -> Option<Found> {
        let entry = self.access(hash, key, touch, now)?;
        let bytes = self.log.at(entry.loc());
        let head = Head::read(bytes);
        if head.kind != VALUE || head.payload_len > SHORT {
            return Some(Found::Long(self.item(&entry)));
        }
        copy(Short {
            flags: head.flags,
            cas: head.cas,
            value: &bytes[head.payload()..head.len()],
        });

        Some(Found::Short {
            len: head.payload_len,
            size: head.len() + size_of::<Entry>(),
        })
    }

    /// Has what may be the record of a key with this hash fetched from memory.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.index
            .candidates(hash)
            .for_each(|loc| self.log.prefetch(loc, PREFETCHED_BYTES));
    }

    /// Takes the short way of a get: one look at the index, one at the record. Returns the entry as
    /// it was before.
    #[inline]
    fn access(&mut self, hash: u64, key: &[u8], touch: Option<Expiry>, now: Time) -> Option<Entry> {
        self.turn(now);
        let log = &self.log;
        let now = self.now;
        let entry = self.index.get_mut(hash, |loc| {
            // The value is wanted as soon as the key is found to be the right one.
            log.prefetch(loc, PREFETCHED_BYTES);
            log.has_key(loc, key)
        })?;
        if Expiry(entry.expiry).passed(now) || log.flushed(entry.loc()) {
            // Which takes out what has expired or was flushed.
            self.find(hash, key, now);
            return None;
        }

        let before = *entry;
        if let Some(expiry) = touch {
            entry.expiry = expiry.0;
        }
        entry.note(now, FETCHED);
        if touch.is_some() {
            self.count_touched(&before);
        }

        Some(before)
    }

    pub(super) fn touch(&mut self, hash: u64, key: &[u8], expiry: Expiry, now: Time) -> bool {
        let Some(place) = self.find(hash, key, now) else {
            return false;
        };
        self.index.entry_mut(place).expiry = expiry.0;
        self.note(place, FETCHED);
        let entry = *self.index.entry(place);
        self.count_touched(&entry);
        true
    }

    fn count_touched(&mut self, entry: &Entry) {
        let size = self.size(entry);
        self.class(size).touch_hits += 1;
    }

    /// Returns the number of bytes that an item takes.
    fn size(&self, entry: &Entry) -> usize {
        self.log.size(entry.loc()) + size_of::<Entry>()
    }

    pub(super) fn lookup(
        &mut self,
        hash: u64,
        key: &[u8],
        lookup: &Lookup,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Option<Hit> {
        let (place, created) = match self.find(hash, key, now) {
            Some(place) => (place, false),
            None => {
                let expiry = lookup.vivify?;
                let facts = Facts {
                    flags: 0,
                    cas: lookup.cas.unwrap_or_else(next_cas),
                    expiry,
                    marks: 0,
                };

                self.put(hash, key, &[], facts).ok()?;
                (
                    self.index.find(hash, |loc| self.log.has_key(loc, key))?,
                    true,
                )
            }
        };

        let entry = self.index.entry(place);
        let item = self.item(entry);
        let marks = entry.marks();
        let stale = marks & STALE != 0;
        let sent = marks & SENT != 0;
        // Flags take effect in their order: `T` before `R` lengthens the life that `R` judges.
        let judged = lookup
            .touch
            .filter(|_| lookup.touch_first)
            .unwrap_or(item.expiry());
        let recache = lookup
            .recache
            .zip(judged.time())
            .is_some_and(|(least, end)| end.since(now) < least);
        // One client alone: others see that the token has been sent.
        let won = !lookup.peek && !sent && (created || stale || recache);

        if let Some(expiry) = lookup.touch.filter(|_| !created) {
            // What was created has the end of `N` already.
            self.index.entry_mut(place).expiry = expiry.0;
        }
        if lookup.touch.is_some() {
            self.class(item.size()).touch_hits += 1;
        }
        let fetched = if lookup.peek || lookup.no_update {
            0
        } else {
            FETCHED
        };

        let gains = fetched | if won { SENT } else { 0 };
        if fetched != 0 && !created {
            self.note(place, gains);
        } else if gains != 0 {
            // Also for the client that created the item and has seen it: the creation is no access.
            self.index.entry_mut(place).set_marks(marks | gains);
        }

        Some(Hit {
            item,
            token: Token { won, stale, sent },
            created,
        })
    }

    pub(super) fn write(
        &mut self,
        hash: u64,
        write: &Write<'_>,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Stored {
        let stored = self.write_item(hash, write, now, next_cas);
        let key_len = write.key.len();
        let payload_len = write.value.len();
        let head = Head {
            kind: VALUE,
            cas: 0,
            flags: write.flags,
            key_len,
            payload_len,
        };

        let class = self.class(head.len() + size_of::<Entry>());
        class.cmd_set += 1;
        // Joins compare too, but these two figures are of `cas` alone.
        let is_cas = write.compare.is_some() && write.mode == Mode::Set;

        match stored {
            Stored::Stored { .. } if is_cas => class.cas_hits += 1,
            Stored::Exists if is_cas => class.cas_badval += 1,
            _ => {}
        }

        stored
    }

    fn write_item(
        &mut self,
        hash: u64,
        write: &Write<'_>,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Stored {
        let &Write {
            key,
            value,
            flags,
            expiry,
            mode,
            compare,
            cas,
            stale,
            vivify,
        } = write;
        let Some(place) = self.find(hash, key, now) else {
            let joins = matches!(mode, Mode::Append | Mode::Prepend);
            let vivify = vivify.filter(|_| joins);
            match (compare, mode) {
                _ if vivify.is_some() => {}
                (Some(_), _) => return Stored::NotFound,
                (None, Mode::Set | Mode::Add) => {}
                (None, _) => return Stored::NotStored,
            }
            let expiry = vivify.unwrap_or(expiry);

            let facts = Facts {
                flags,
                cas: cas.unwrap_or_else(next_cas),
                expiry,
                marks: 0,
            };

            return self.stored(hash, write, &[value], facts);
        };

        let entry = *self.index.entry(place);
        let old = self.log.head(entry.loc());
        let kept = match compare {
            Some(compare) if compare != old.cas && !(stale && compare < old.cas) => {
                return Stored::Exists;
            }
            // The value is older than the item (`I`): it is stored, and stays stale.
            Some(compare) if compare != old.cas => Some(STALE | entry.marks() & SENT),
            _ => None,
        };

        let frequency = entry.marks() & FREQUENCY;
        // A write counts as an access.
        let marks = (frequency + 1).min(FREQUENCY) | kept.unwrap_or(0);
        let expiry = if kept.is_some() {
            Expiry(entry.expiry)
        } else {
            expiry
        };

        let facts = |flags, expiry| Facts {
            flags,
            cas: cas.unwrap_or_else(next_cas),
            expiry,
            marks,
        };

        match mode {
            Mode::Add => {
                self.note(place, 0);
                Stored::NotStored
            }
            Mode::Set | Mode::Replace => {
                let facts = facts(flags, expiry);
                // In place: nothing dies, and the cleaner has less to do.
                if self.write_over(place, &old, key, value, facts) {
                    self.stats.total_items += 1;
                    return Stored::Stored {
                        cas: facts.cas,
                        len: value.len(),
                    };
                }
                self.stored(hash, write, &[value], facts)
            }
            Mode::Append | Mode::Prepend => {
                if item_size(key, self.value_len(&entry) + value.len(), old.flags) > self.item_max {
                    // As there: the value as it was stays.
                    return Stored::NotStored;
                }

                let facts = facts(old.flags, Expiry(entry.expiry));
                let item = self.item(&entry);
                let mut parts: Vec<&[u8]> = item.slices().collect();
                parts.insert(if mode == Mode::Append { parts.len() } else { 0 }, value);
                self.stored(hash, write, &parts, facts)
            }
        }
    }

    /// Returns the number of bytes of an item's value.
    fn value_len(&self, entry: &Entry) -> usize {
        let head = self.log.head(entry.loc());
        if head.kind == TABLE {
            record::value_len(self.log.payload(entry.loc()))
        } else {
            head.payload_len
        }
    }

    /// Writes a value over one of the same length, unless its segment is being read.
    fn write_over(
        &mut self,
        place: Place,
        old: &Head,
        key: &[u8],
        value: &[u8],
        facts: Facts,
    ) -> bool {
        let head = Head {
            cas: facts.cas,
            flags: facts.flags,
            ..*old
        };

        if old.kind != VALUE || old.payload_len != value.len() || head.len() != old.len() {
            return false;
        }
        let loc = self.index.entry(place).loc();
        let Some(bytes) = self.log.rewrite(loc, old) else {
            return false;
        };
        head.write(bytes, key).copy_from_slice(value);
        let now = self.now;
        let entry = self.index.entry_mut(place);

        entry.set_marks(facts.marks);
        (entry.expiry, entry.access) = (facts.expiry.0, now);
        true
    }

    fn stored(&mut self, hash: u64, write: &Write<'_>, parts: &[&[u8]], facts: Facts) -> Stored {
        match self.put(hash, write.key, parts, facts) {
            Ok(()) => Stored::Stored {
                cas: facts.cas,
                len: parts.iter().map(|part| part.len()).sum(),
            },
            Err(NoRoom) => {
                self.failed(hash, write);
                self.no_room(parts.iter().map(|part| part.len()).sum());
                Stored::OutOfMemory
            }
        }
    }

    fn no_room(&mut self, len: usize) {
        self.class(len).out_of_memory += 1;
    }

    /// A plain set that could not be carried out must not leave an older value behind, which would
    /// be out of date. What any other command finds stays.
    pub(super) fn failed(&mut self, hash: u64, write: &Write<'_>) {
        if write.mode == Mode::Set
            && write.compare.is_none()
            && let Some(place) = self
                .index
                .find(hash, |loc| self.log.has_key(loc, write.key))
        {
            self.discard(place, Why::Removed);
        }
    }

    pub(super) fn remove(
        &mut self,
        hash: u64,
        key: &[u8],
        removal: &Removal,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Removed {
        let Some(place) = self.find(hash, key, now) else {
            return Removed::NotFound;
        };
        let loc = self.index.entry(place).loc();
        let head = self.log.head(loc);
        if removal.compare.is_some_and(|compare| compare != head.cas) {
            return Removed::Exists;
        }

        let place = match removal.empty {
            None => place,
            Some((flags, expiry)) => {
                let cas = removal.cas.unwrap_or(head.cas);
                let emptied = self.emptied(hash, key, flags, expiry, cas, now);
                match emptied.filter(|_| removal.invalidate) {
                    Some(place) => place,
                    None => return Removed::Removed,
                }
            }
        };
        let loc = self.index.entry(place).loc();
        let head = self.log.head(loc);

        if !removal.invalidate {
            let size = self.discard(place, Why::Removed) + size_of::<Entry>();
            self.class(size).delete_hits += 1;
            return Removed::Removed;
        }

        let cas = removal.cas.unwrap_or_else(next_cas);
        // The CAS value lies in the record: that is overwritten, or moves if it is being read.
        let place = match self.log.set_cas(loc, cas) {
            true => place,
            false => {
                let kind = self.log.kind(loc);
                let ready = self.ready(kind, head.len());
                // To make room it may have moved this very item, or evicted it.
                let Some(place) = self.find(hash, key, now) else {
                    return Removed::NotFound;
                };
                if !ready {
                    self.discard(place, Why::Removed);
                    return Removed::Removed;
                }

                self.move_record(place, kind, cas, |_| {});
                place
            }
        };

        let entry = self.index.entry_mut(place);
        entry.set_marks(entry.marks() & !SENT | STALE);
        entry.expiry = removal.expiry.map_or(entry.expiry, |expiry| expiry.0);
        Removed::Removed
    }

    /// Puts an item without a value in place of one. `None`: there is no room even for that, or it
    /// has ended; then none is left.
    fn emptied(
        &mut self,
        hash: u64,
        key: &[u8],
        flags: u32,
        expiry: Expiry,
        cas: u64,
        now: Time,
    ) -> Option<Place> {
        let facts = Facts {
            flags,
            cas,
            expiry,
            marks: 0,
        };

        let put = self.put(hash, key, &[], facts);
        let place = self.find(hash, key, now)?;
        if put.is_err() {
            self.discard(place, Why::Removed);
            return None;
        }
        Some(place)
    }

    pub(super) fn count(
        &mut self,
        hash: u64,
        key: &[u8],
        count: &Count,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Counted {
        let Some(place) = self.find(hash, key, now) else {
            let Some((value, expiry)) = count.create else {
                return Counted::NotFound;
            };
            let facts = Facts {
                flags: 0,
                cas: count.cas.unwrap_or_else(next_cas),
                expiry,
                marks: 0,
            };

            let text = value.to_string().into_bytes();
            if self.put(hash, key, &[&text], facts).is_err() {
                self.no_room(text.len());
                return Counted::OutOfMemory;
            }

            return Counted::Value {
                value,
                cas: facts.cas,
                expiry,
                created: true,
            };
        };

        let entry = *self.index.entry(place);
        let head = self.log.head(entry.loc());
        // As there: before the CAS value is looked at.
        if head.payload_len == 0 {
            return Counted::NotANumber;
        }
        if count.compare.is_some_and(|compare| compare != head.cas) {
            return Counted::Exists;
        }
        let number = (head.kind == VALUE)
            .then(|| number(self.log.payload(entry.loc())))
            .flatten();
        let Some(old) = number else {
            return Counted::NotANumber;
        };
        let class = self.class(head.len() + size_of::<Entry>());

        *if count.down {
            &mut class.decr_hits
        } else {
            &mut class.incr_hits
        } += 1;
        let value = if count.down {
            old.saturating_sub(count.delta)
        } else {
            old.wrapping_add(count.delta)
        };

        let mut text = value.to_string().into_bytes();
        text.resize(text.len().max(head.payload_len), b' ');
        let cas = count.cas.unwrap_or_else(next_cas);
        let expiry = count.touch.unwrap_or(Expiry(entry.expiry));

        // As there: a number that does not fit the old one's bytes is a new item, neither read nor
        // stale.
        let kept = if text.len() > head.payload_len {
            FREQUENCY
        } else {
            u8::MAX
        };

        // It is an access: a counter that is only counted is in use.
        let frequency = (entry.marks() & FREQUENCY) + 1;
        let marks = entry.marks() & kept & !FREQUENCY | frequency.min(FREQUENCY);
        let facts = Facts {
            flags: head.flags,
            cas,
            expiry,
            marks,
        };

        let written = self.write_over(place, &head, key, &text, facts);
        if !written && self.put(hash, key, &[&text], facts).is_err() {
            self.no_room(text.len());
            return Counted::OutOfMemory;
        }

        Counted::Value {
            value,
            cas,
            expiry: Expiry(entry.expiry),
            created: false,
        }
    }

    pub(super) fn dump(
        &mut self,
        place: usize,
        budget: usize,
        now: Time,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> (usize, bool) {
        self.turn(now);
        let mut place = place;

        let mut seen = 0;
        while place < self.index.buckets() && seen < budget {
            seen += 1;
            self.index.visit(place, |entry| {
                seen += 1;
                if self.gone(entry).is_some() {
                    return;
                }
                visit(&listed(&self.log, entry));
            });
            place += 1;
        }

        (place, place < self.index.buckets())
    }
}

/// Returns the number that a value spells for `incr` and `decr`.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    if value.len() > NUMBER_BYTES {
        None
    } else {
        number::unsigned64(value)
    }
}
