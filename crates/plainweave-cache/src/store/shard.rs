//! A shard: its parts and its time, how an item is found, and how it goes. All of it runs under the
//! shard's lock.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use super::config::Config;
use super::ghost::Ghost;
use super::index::{Entry, FETCHED, Index, Place};
use super::log::{Kind, Log};
use super::record::Head;
use super::stats::{Class, Stats, class_of};
use super::{Expiry, Record, Time};

/// The hash of keys. Seeded at random for each store, so that clients cannot choose keys that share
/// a bucket.
pub(super) type Hash = foldhash::quality::RandomState;

/// A part of the store, with memory of its own.
pub(super) struct Shard {
    pub(super) hasher: Hash,
    pub(super) index: Index,
    pub(super) log: Log,
    pub(super) ghost: Ghost,
    pub(super) cleaning: Option<Cleaning>,
    /// The last compaction has freed nothing.
    pub(super) futile: bool,
    /// Bytes for segments, index and ghost.
    pub(super) memory: usize,
    pub(super) evict: bool,
    /// As in [`Config::small_percent`].
    pub(super) small_percent: usize,
    /// As in [`Config::item_max`].
    pub(super) item_max: usize,
    /// The latest time that a command came with.
    pub(super) now: Time,
    flush_at: Option<Time>,
    /// The bucket that [`Self::maintain`] looked at last.
    pub(super) crawl: usize,
    /// The second in which it did, and how many buckets it has yet to look at in that second.
    pub(super) round: (Option<Time>, usize),
    pub(super) stats: Stats,
    /// Called on each eviction.
    pub(super) on_eviction: Option<OnEviction>,
}

/// What is called with an item that is about to be evicted.
pub(super) type OnEviction = Arc<dyn Fn(&Record<'_>, Time) + Send + Sync>;

/// Returns an item's record, for lists of items.
pub(super) fn listed<'a>(log: &'a Log, entry: &Entry) -> Record<'a> {
    let bytes = log.at(entry.loc());
    let head = Head::read(bytes);
    let size = log.size(entry.loc()) + size_of::<Entry>();
    Record {
        key: head.key(bytes),
        expiry: Expiry(entry.expiry),
        access: entry.access,
        cas: head.cas,
        fetched: entry.marks() & FETCHED != 0,
        class: class_of(size),
        size,
        flags: head.flags,
    }
}

/// What becomes of the records of a victim.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// All that lives moves.
    Compact,
    /// What was not asked for goes.
    Evict,
}

/// A victim, and how far it is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleaning {
    pub(super) segment: u32,
    pub(super) kind: Kind,
    pub(super) at: usize,
    pub(super) plan: Plan,
    /// Free segments when it began.
    pub(super) free: usize,
}

/// Why an item goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A command removed it.
    Removed,
    /// A flush took it.
    Flushed,
    /// Its time was over, and a command or cleaning found it.
    Expired,
    /// Its time was over, and the crawler found it.
    Crawled,
    /// Memory was short.
    Evicted,
}

impl Shard {
    pub(super) fn new(memory: usize, segment_len: usize, config: &Config, hasher: Hash) -> Self {
        Self {
            hasher,
            index: Index::new(segment_len),
            log: Log::new(segment_len),
            ghost: Ghost::new(),
            cleaning: None,
            futile: false,
            memory,
            evict: config.evict,
            small_percent: config.small_percent.min(90),
            item_max: config.item_max,
            now: Time::START,
            flush_at: None,
            crawl: 0,
            round: (None, 0),
            stats: Stats::default(),
            on_eviction: None,
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        hash(&self.hasher, key)
    }

    /// Notes the time, and carries out a flush that is due.
    pub(super) fn turn(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.flush_at = None;
            self.round = (None, 0);
            self.log.flush();
        }
    }

    pub(super) fn flush(&mut self, at: Time, now: Time) {
        // An earlier one may be due.
        self.turn(now);
        self.flush_at = Some(at);
        self.turn(now);
    }

    /// Returns the key's item, if it is there; drops one that has expired or was flushed.
    pub(super) fn find(&mut self, hash: u64, key: &[u8], now: Time) -> Option<Place> {
        self.turn(now);
        let place = self.index.find(hash, |loc| self.log.has_key(loc, key))?;
        match self.gone(self.index.entry(place)) {
            None => Some(place),
            Some(why) => {
                match why {
                    Why::Flushed => self.stats.get_flushed += 1,
                    _ => self.stats.get_expired += 1,
                }

                self.discard(place, why);
                None
            }
        }
    }

    /// Returns the figures of the class that holds items of `size` bytes.
    pub(super) fn class(&mut self, size: usize) -> &mut Class {
        &mut self.stats.classes[class_of(size)]
    }

    /// Returns why an item is no longer valid, if so.
    pub(super) fn gone(&self, entry: &Entry) -> Option<Why> {
        if entry.expiry != 0 && entry.expiry <= self.now.0 {
            Some(Why::Expired)
        } else if self.log.flushed(entry.loc()) {
            Some(Why::Flushed)
        } else {
            None
        }
    }

    /// Takes an item out of the index, lets its bytes die, and counts it. Its size.
    pub(super) fn discard(&mut self, place: Place, why: Why) -> usize {
        if why == Why::Evicted
            && let Some(tell) = &self.on_eviction
        {
            tell(&listed(&self.log, self.index.entry(place)), self.now);
        }
        let entry = self.index.remove(place);
        let loc = entry.loc();
        let size = self.log.size(loc);

        self.log.die_pieces(loc);
        self.log.leave(loc, size);
        self.count_removed(&entry, size, why);

        size
    }

    fn count_removed(&mut self, entry: &Entry, size: usize, why: Why) {
        let unfetched = u64::from(entry.marks() & FETCHED == 0);
        let size = size + size_of::<Entry>();
        let stats = &mut self.stats;
        let class = class_of(size);
        let class = &mut stats.classes[class];
        stats.items -= 1;
        stats.bytes -= size as u64;
        class.items -= 1;
        class.bytes -= size as u64;

        match why {
            Why::Removed | Why::Flushed => {}
            Why::Expired | Why::Crawled => {
                stats.reclaimed += 1;
                class.reclaimed += 1;
                stats.expired_unfetched += unfetched;
                class.expired_unfetched += unfetched;
                stats.crawler_reclaimed += u64::from(why == Why::Crawled);
                class.crawler_reclaimed += u64::from(why == Why::Crawled);
            }
            Why::Evicted => {
                stats.evictions += 1;
                class.evicted += 1;
                stats.evicted_unfetched += unfetched;
                class.evicted_unfetched += unfetched;
                class.evicted_nonzero += u64::from(entry.expiry != 0);
                class.evicted_time = u64::from(self.now.since(entry.access));
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            memory_used: self.used() as u64,
            table_power: u64::from(self.index.buckets().ilog2()),
            table_bytes: self.index.bytes() as u64,
            ..self.stats
        }
    }

    pub(super) fn reset_stats(&mut self) {
        self.stats.reset();
    }
}

/// Returns the hash of a key.
#[inline]
pub(super) fn hash(hasher: &Hash, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.finish()
}
