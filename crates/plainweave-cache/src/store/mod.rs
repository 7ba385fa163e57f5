//! The store of the cache server: keys to values, in bounded memory, with expiry and eviction.
//!
//! It has the semantics of memcached's commands and none of their syntax. A call never blocks but
//! for a shard's lock, which is held for the work on one item; no lock is held when a call returns,
//! so fibers may use the store freely. The caller passes the time ([`Time`]) and calls
//! [`Store::maintain`] now and then.
//!
//! A get answers with an [`Item`]: a counted handle on bytes that do not change any more. It
//! outlives the lock, the item's removal and the store itself. Its memory is not used again while
//! it lives, so write it out, or copy a short value into the connection's buffer, and drop it.

mod clock; // Time as the store sees it: whole seconds, handed to every call.
mod commands; // What the commands mean, over a shard's index and log.
mod config; // How a store is made, and how items are measured against its bounds.
mod ghost; // Which keys were evicted lately before anybody asked for them again.
mod index; // The index: from a key's hash to where its record is, and what changes about an item.
mod item; // What a get gives: a counted handle on a value.
mod log; // Segments in queues, and records in segments.
mod put; // Writing an item: its record and pieces into the log, its entry into the index.
mod record; // How an item lies in a segment.
mod request; // What is asked of the store, and what it answers: plain data.
mod room; // Making room: which items go, which stay, and the moving that keeps memory whole.
// Memory that is written once, read by many without a lock, and reused when it has no readers.
mod segment;
mod shard; // A shard: its parts and its time, how an item is found, and how it goes.
mod stats; // What the store counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

pub use clock::{Clock, Expiry, LONGEST_RELATIVE, Time};
pub use config::Config;
pub use item::Item;
pub use request::{
    Count, Counted, Found, Hit, Lookup, Mode, Record, Removal, Removed, Short, Stored, Token, Write,
};
pub use stats::{CLASSES, Class, Stats, class_of, class_size};

pub(crate) use segment::Table;

use config::item_size;
use index::Loc;
use shard::{Hash, Shard};

/// The longest key, in bytes. A get of a longer one finds nothing; a write of one is refused as too
/// large.
pub const KEY_MAX: usize = 250;

/// Where [`Store::dump`] goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    place: usize,
}

/// The smallest and the largest segment, in bytes.
const SEGMENT_MIN: usize = 16 << 10;
/// A shard's memory is divided into about this many segments.
const SEGMENTS: usize = 256;
/// A shard of less would have segments so small that what does not fill them counts.
const SHARD_MIN: usize = 8 << 20;
/// The most looks at items under one hold of a shard's lock, some 50 us where nearly all are to be
/// removed.
const STEP: usize = 500;
/// There are at most `2^SHARD_BITS` shards.
const SHARD_BITS: u32 = 10;
/// No item is larger, whatever the configuration says.
const ITEM_MAX: usize = 1 << 30;
/// Keys that are looked for at a time.
pub const PREFETCHED: usize = 16;
/// The store. Any thread or fiber may call it.
pub struct Store {
    config: Config,
    hasher: Hash,
    segment_len: usize,
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// The number of the next write. Not on the line of what every get reads.
    cas: CachePadded<AtomicU64>,
}

impl Store {
    /// Makes an empty store. It takes its memory as it fills, and in the end takes `config.memory`
    /// and no more.
    ///
    /// There are fewer shards than asked for if each would have less than four items of the largest
    /// size, or less than 8 MiB; memory is taken as 1 MiB at least.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = Config {
            item_max: config.item_max.min(ITEM_MAX),
            ..config
        };

        let memory = config.memory.max(1 << 20);
        let least = config.item_max.saturating_mul(4).max(SHARD_MIN);
        let most = (memory / least).clamp(1, 1 << SHARD_BITS);
        let shards = config.shards.clamp(1, most).next_power_of_two();
        let shards = if shards > most { shards / 2 } else { shards };
        let memory = memory / shards;
        let segment_len = (memory / SEGMENTS)
            .next_power_of_two()
            .clamp(SEGMENT_MIN, Loc::SEGMENT_MAX);
        let hasher = Hash::default();
        let shard = || {
            CachePadded::new(Mutex::new(Shard::new(
                memory,
                segment_len,
                &config,
                hasher.clone(),
            )))
        };

        let shards = std::iter::repeat_with(shard).take(shards).collect();
        Self {
            config,
            hasher,
            segment_len,
            shards,
            cas: CachePadded::new(AtomicU64::new(1)),
        }
    }

    /// From now on `tell` is called with each item that is evicted, and the time. It runs under a
    /// lock: it must neither suspend nor call the store.
    pub fn on_eviction(&mut self, tell: impl Fn(&Record<'_>, Time) + Send + Sync + 'static) {
        let tell: shard::OnEviction = std::sync::Arc::new(tell);
        for shard in &mut self.shards {
            shard
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .on_eviction = Some(tell.clone());
        }
    }

    /// Returns what it was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the bytes of a segment: an [`Item`] keeps each that it has slices in from being used
    /// again.
    #[must_use]
    pub const fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// Finds an item and notes the access: `get`, `gets`.
    #[must_use]
    pub fn get(&self, key: &[u8], now: Time) -> Option<Item> {
        let (hash, mut shard) = self.shard(key);
        shard.get(hash, key, None, now)
    }

    /// Does the same, and gives the item a new expiry: `gat`, `gats`.
    #[must_use]
    pub fn get_and_touch(&self, key: &[u8], expiry: Expiry, now: Time) -> Option<Item> {
        let (hash, mut shard) = self.shard(key);
        shard.get(hash, key, Some(expiry), now)
    }

    /// Does either of these two for callers that want the value's bytes at once: a value of up to 1
    /// KiB is lent to `copy`, under a lock (so `copy` must neither suspend nor call the store); a
    /// longer one is handed out as an item.
    #[inline]
    pub fn read(
        &self,
        key: &[u8],
        touch: Option<Expiry>,
        now: Time,
        copy: impl FnOnce(Short<'_>),
    ) -> Option<Found> {
        let (hash, mut shard) = self.shard(key);
        shard.read(hash, key, touch, now, copy)
    }

    /// Has what is needed to find some keys fetched from memory, all of them at the same time: to
    /// be called when a batch of gets is about to come. The first [`PREFETCHED`] keys count.
    /// Changes nothing.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut hashes = [0; PREFETCHED];
        let mut len = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = shard::hash(&self.hasher, key);
            len += 1;
        }

        // First all buckets, then all records: each pass finds what the one before has asked for.
        self.pass(&hashes[..len], |shard, hash| shard.index.prefetch(hash));
        self.pass(&hashes[..len], Shard::prefetch);
    }

    /// Keeps a lock from one hash to the next where it is the same. A shard that is busy is passed
    /// over.
    fn pass(&self, hashes: &[u64], each: impl Fn(&Shard, u64)) {
        let mut held: Option<(usize, MutexGuard<'_, Shard>)> = None;
        for &hash in hashes {
            let number = self.number(hash);
            if held.as_ref().is_none_or(|(other, _)| *other != number) {
                drop(held.take());
                held = self.shards[number]
                    .try_lock()
                    .ok()
                    .map(|shard| (number, shard));
            }

            if let Some((_, shard)) = &held {
                each(shard, hash);
            }
        }
    }

    /// Finds an item, does with it what `lookup` says, and hands out the token of a stale item:
    /// `mg`.
    #[must_use]
    pub fn lookup(&self, key: &[u8], lookup: &Lookup, now: Time) -> Option<Hit> {
        let (hash, mut shard) = self.shard(key);
        shard.lookup(hash, key, lookup, now, || self.next_cas())
    }

    /// Stores a value: `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
    pub fn write(&self, write: &Write<'_>, now: Time) -> Stored {
        let (hash, mut shard) = self.shard(write.key);
        let size = item_size(write.key, write.value.len(), write.flags);
        if size > self.config.item_max || write.key.len() > KEY_MAX {
            shard.failed(hash, write);
            return Stored::TooLarge;
        }

        shard.write(hash, write, now, || self.next_cas())
    }

    /// Removes an item or marks it stale: `delete`, `md`.
    pub fn remove(&self, key: &[u8], removal: &Removal, now: Time) -> Removed {
        let (hash, mut shard) = self.shard(key);
        shard.remove(hash, key, removal, now, || self.next_cas())
    }

    /// Counts up or down: `incr`, `decr`, `ma`.
    pub fn count(&self, key: &[u8], count: &Count, now: Time) -> Counted {
        let (hash, mut shard) = self.shard(key);
        shard.count(hash, key, count, now, || self.next_cas())
    }

    /// Gives an item a new expiry. Returns whether it was there: `touch`.
    pub fn touch(&self, key: &[u8], expiry: Expiry, now: Time) -> bool {
        let (hash, mut shard) = self.shard(key);
        shard.touch(hash, key, expiry, now)
    }

    /// Lets all items disappear that are there at `at`, or now if that has passed: `flush_all`. A
    /// later call replaces an earlier one that has not taken effect.
    pub fn flush(&self, at: Time, now: Time) {
        for shard in &self.shards {
            lock(shard).flush(at, now);
        }
    }

    /// Reclaims the memory of expired and flushed items, step by step; looks at about `budget`
    /// items, or removes about a quarter of that, and returns how many it removed. Call it about
    /// ten times a second.
    ///
    /// `between` is called after every few hundred looks, with no lock held, so that others get
    /// their turn: to remove an item costs a few cache misses, and a million may expire within one
    /// second.
    pub fn maintain(&self, budget: usize, now: Time, mut between: impl FnMut()) -> usize {
        let each = budget / self.shards.len();
        let mut removed = 0;
        for shard in &self.shards {
            let mut left = each;
            while left > 0 {
                let step = left.min(STEP);
                removed += lock(shard).maintain(step, now);
                between();
                left -= step;
            }
        }

        removed
    }

    /// Has [`Self::maintain`] start over, and says how many calls of it with this budget look at
    /// every item that is there now.
    pub fn begin_round(&self, budget: usize) -> usize {
        let each = (budget / self.shards.len()).max(1);
        let most = self
            .shards
            .iter()
            .map(|shard| lock(shard).begin_round())
            .max()
            .unwrap_or(0);
        most.div_ceil(each)
    }

    /// Hands about `budget` items to `visit` and moves `cursor` on; `false` when all have been
    /// seen. Items that are there from the first call to the last are seen at least once. `visit`
    /// runs under a lock: it must not suspend or call the store.
    pub fn dump(
        &self,
        cursor: &mut Cursor,
        budget: usize,
        now: Time,
        mut visit: impl FnMut(&Record<'_>),
    ) -> bool {
        let Some(shard) = self.shards.get(cursor.shard) else {
            return false;
        };
        let (place, more) = lock(shard).dump(cursor.place, budget, now, &mut visit);
        *cursor = if more {
            Cursor { place, ..*cursor }
        } else {
            Cursor {
                shard: cursor.shard + 1,
                place: 0,
            }
        };
        cursor.shard < self.shards.len()
    }

    /// Figures of the whole store. Locks one shard after the other.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for shard in &self.shards {
            all.add(&lock(shard).stats());
        }
        all
    }

    /// Sets the counters of [`Stats`] back, but not those that say what there is: `stats reset`.
    pub fn reset_stats(&self) {
        for shard in &self.shards {
            lock(shard).reset_stats();
        }
    }

    fn next_cas(&self) -> u64 {
        self.cas.fetch_add(1, Ordering::Relaxed)
    }

    fn shard(&self, key: &[u8]) -> (u64, MutexGuard<'_, Shard>) {
        let hash = shard::hash(&self.hasher, key);
        (hash, lock(&self.shards[self.number(hash)]))
    }

    /// Returns the shard of a hash.
    const fn number(&self, hash: u64) -> usize {
        // The index takes the bits above these for tags and those at the low end for buckets.
        (hash >> (index::TAG_SHIFT - SHARD_BITS)) as usize & (self.shards.len() - 1)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Store {{ {:?}, {} shards }}",
            self.config,
            self.shards.len()
        )
    }
}

/// A panic under a shard's lock has not left the shard in pieces: its methods change nothing before
/// they can fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
