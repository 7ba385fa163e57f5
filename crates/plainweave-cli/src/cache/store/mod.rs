//! The store of the cache server: keys to values, in bounded memory, with expiry and eviction.
//!
//! It has the semantics of memcached's commands and none of their syntax. A call never blocks but for a shard's lock,
//! which is held for the work on one item; no lock is held when a call returns, so fibers may use the store freely.
//! The caller passes the time ([`Time`]) and calls [`Store::maintain`] now and then.
//!
//! A get answers with an [`Item`]: a counted handle on bytes that do not change any more. It outlives the lock, the
//! item's removal and the store itself. Its memory is not used again while it lives, so write it out, or copy a short
//! value into the connection's buffer, and drop it.

mod clock;
mod model;
mod request;
mod stats;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use clock::{Clock, Expiry, LONGEST_RELATIVE, Time};
pub use request::{Count, Counted, Hit, Lookup, Mode, Record, Removal, Removed, Stored, Token, Write};
pub use stats::{CLASSES, Class, Stats, class_of, class_size};

use model::Model;

/// The longest key, in bytes. A get of a longer one finds nothing; a write of one is refused as too large.
pub const KEY_MAX: usize = 250;

/// How a store is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes for items and the index: `-m`.
    pub memory: usize,
    /// Bytes of the largest item, counted as memcached does, with key and header: `-I`.
    pub item_max: usize,
    /// Whether items are evicted when memory is short. Else writes fail: `-M`.
    pub evict: bool,
    /// Shards, each with a lock of its own; rounded up to a power of two. About four a worker.
    pub shards: usize,
}

impl Default for Config {
    /// memcached's 64 MB with items up to 1 MB, evicted as need be; four shards.
    fn default() -> Self {
        Self { memory: 64 << 20, item_max: 1 << 20, evict: true, shards: 4 }
    }
}

/// A value as a get found it, with what is known of its item. A counted handle: see the [module](self).
#[derive(Clone, Debug)]
pub struct Item {
    value: Arc<[u8]>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    access: Time,
    fetched: bool,
    size: usize,
}

impl Item {
    /// Bytes of the value.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an item is no container")]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// The value's bytes, in order. Most values are one slice; large ones are several, at most a few hundred.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.value)
    }

    /// Appends the value to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        for slice in self.slices() {
            out.extend_from_slice(slice);
        }
    }

    /// The client's flags.
    #[must_use]
    pub const fn flags(&self) -> u32 {
        self.flags
    }

    /// The CAS value.
    #[must_use]
    pub const fn cas(&self) -> u64 {
        self.cas
    }

    /// When the item ends, after what this call has changed.
    #[must_use]
    pub const fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// The access before this one, or the write: `l` of `mg` is the time since then, and `t` of `me` too.
    #[must_use]
    pub const fn access(&self) -> Time {
        self.access
    }

    /// Whether it was read before since it was written: `h` of `mg`.
    #[must_use]
    pub const fn fetched(&self) -> bool {
        self.fetched
    }

    /// Bytes that the item takes: key, value and what the store keeps with them.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

/// Where [`Store::dump`] goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    place: usize,
}

/// The store. Any thread or fiber may call it.
#[derive(Debug)]
pub struct Store {
    config: Config,
    hasher: foldhash::quality::RandomState,
    shards: Box<[Mutex<Model>]>,
    cas: AtomicU64,
}

impl Store {
    /// An empty store. It takes its memory as it fills.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let shards = config.shards.clamp(1, 1 << 10).next_power_of_two();
        Self {
            config,
            hasher: foldhash::quality::RandomState::default(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            cas: AtomicU64::new(1),
        }
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Finds an item and notes the access: `get`, `gets`.
    #[must_use]
    pub fn get(&self, key: &[u8], now: Time) -> Option<Item> {
        self.lookup(key, &Lookup::default(), now).map(|hit| hit.item)
    }

    /// Finds an item, and does with it what `lookup` says: `gat`, `gats`, `mg`.
    #[must_use]
    pub fn lookup(&self, key: &[u8], lookup: &Lookup, now: Time) -> Option<Hit> {
        self.shard(key).lookup(key, lookup, now, || self.next_cas())
    }

    /// Stores a value: `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
    pub fn write(&self, write: &Write<'_>, now: Time) -> Stored {
        if write.key.len() + write.value.len() > self.config.item_max {
            return Stored::TooLarge;
        }
        self.shard(write.key).write(write, now, || self.next_cas())
    }

    /// Removes an item or marks it stale: `delete`, `md`.
    pub fn remove(&self, key: &[u8], removal: &Removal, now: Time) -> Removed {
        self.shard(key).remove(key, removal, now, || self.next_cas())
    }

    /// Counts up or down: `incr`, `decr`, `ma`.
    pub fn count(&self, key: &[u8], count: &Count, now: Time) -> Counted {
        self.shard(key).count(key, count, now, || self.next_cas())
    }

    /// Gives an item a new expiry. Whether it was there: `touch`.
    pub fn touch(&self, key: &[u8], expiry: Expiry, now: Time) -> bool {
        self.lookup(key, &Lookup { touch: Some(expiry), ..Lookup::default() }, now).is_some()
    }

    /// Lets all items disappear that are there at `at`, or now if that has passed: `flush_all`. A later call replaces
    /// an earlier one that has not taken effect.
    pub fn flush(&self, at: Time, now: Time) {
        for shard in &self.shards {
            lock(shard).flush(at, now);
        }
    }

    /// Reclaims the memory of expired and flushed items, step by step; looks at about `budget` items and returns how
    /// many it removed. Call it about ten times a second, with a budget that takes a millisecond or less (20,000).
    pub fn maintain(&self, budget: usize, now: Time) -> usize {
        let each = budget / self.shards.len();
        self.shards.iter().map(|shard| lock(shard).maintain(each, now)).sum()
    }

    /// Hands about `budget` items to `visit` and moves `cursor` on; `false` when all have been seen. Items that are
    /// there from the first call to the last are seen at least once. `visit` runs under a lock: it must not suspend or
    /// call the store.
    pub fn dump(&self, cursor: &mut Cursor, budget: usize, now: Time, mut visit: impl FnMut(&Record<'_>)) -> bool {
        let Some(shard) = self.shards.get(cursor.shard) else { return false };
        let (place, more) = lock(shard).dump(cursor.place, budget, now, &mut visit);
        *cursor = if more { Cursor { place, ..*cursor } } else { Cursor { shard: cursor.shard + 1, place: 0 } };
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

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Model> {
        let hash = self.hasher.hash_one(key);
        lock(&self.shards[hash as usize & (self.shards.len() - 1)])
    }
}

/// A panic under a shard's lock has not left the shard in pieces: its methods change nothing before they can fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number that a value spells for `incr` and `decr`: decimal digits, then nothing but spaces; at most 20 bytes of
/// digits and within 64 bits.
fn number(value: &[u8]) -> Option<u64> {
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let (digits, rest) = value.split_at(end);
    if rest.iter().any(|&byte| byte != b' ') || value.len() > 20 {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
