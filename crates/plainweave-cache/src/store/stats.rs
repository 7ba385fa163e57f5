//! What the store counts.

/// Size classes of [`Stats::classes`]: class `i` holds items of up to [`class_size`]`(i)` bytes.
///
/// They exist for `stats items`, `stats slabs` and `stats sizes` only. Memory is not divided by
/// them.
pub const CLASSES: usize = 26;

/// Returns the largest size in class `class`, in bytes: 64 for class 0, then doubling. The last
/// class holds all the rest.
#[must_use]
pub const fn class_size(class: usize) -> usize {
    64 << class
}

/// Returns the class of an item of `size` bytes.
#[must_use]
pub const fn class_of(size: usize) -> usize {
    let class = size.saturating_sub(1) >> 6;
    let class = (usize::BITS - class.leading_zeros()) as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// Figures of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Items now.
    pub items: u64,
    /// Bytes of these items: keys, values, and what the store keeps with them.
    pub bytes: u64,
    /// Items that were evicted.
    pub evicted: u64,
    /// Of these, items that had an expiry.
    pub evicted_nonzero: u64,
    /// Of these, items that were never read.
    pub evicted_unfetched: u64,
    /// Seconds since the last access of the item that was evicted last.
    pub evicted_time: u64,
    /// Expired items that the background or a writer removed.
    pub reclaimed: u64,
    /// Expired items that were never read.
    pub expired_unfetched: u64,
    /// Expired items that [`super::Store::maintain`] found.
    pub crawler_reclaimed: u64,
    /// Writes refused for lack of memory.
    pub out_of_memory: u64,
    /// Writes, whatever became of them.
    pub cmd_set: u64,
    /// Of these, those that compared a CAS value and found it equal.
    pub cas_hits: u64,
    /// Of these, those that found another one.
    pub cas_badval: u64,
    /// Items that were removed.
    pub delete_hits: u64,
    /// Items that were counted up.
    pub incr_hits: u64,
    /// Items that were counted down.
    pub decr_hits: u64,
    /// Items that got another expiry without being written.
    pub touch_hits: u64,
}

impl Class {
    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.evicted += other.evicted;
        self.evicted_nonzero += other.evicted_nonzero;
        self.evicted_unfetched += other.evicted_unfetched;
        self.evicted_time = self.evicted_time.max(other.evicted_time);
        self.reclaimed += other.reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.crawler_reclaimed += other.crawler_reclaimed;
        self.out_of_memory += other.out_of_memory;
        self.cmd_set += other.cmd_set;
        self.cas_hits += other.cas_hits;
        self.cas_badval += other.cas_badval;
        self.delete_hits += other.delete_hits;
        self.incr_hits += other.incr_hits;
        self.decr_hits += other.decr_hits;
        self.touch_hits += other.touch_hits;
    }
}

/// Figures of a store, or of one shard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Items now; some may have expired and not been found yet.
    pub items: u64,
    /// Bytes of these items: keys, values, and what the store keeps with them.
    pub bytes: u64,
    /// Items ever stored: `total_items`.
    pub total_items: u64,
    /// Commands that found an item whose time was over: `get_expired`.
    pub get_expired: u64,
    /// Commands that found an item that was flushed: `get_flushed`.
    pub get_flushed: u64,
    /// Items that made room for others.
    pub evictions: u64,
    /// Of these, items that were never read.
    pub evicted_unfetched: u64,
    /// Expired items that were removed, by whomever.
    pub reclaimed: u64,
    /// Of these, those that [`super::Store::maintain`] found: `crawler_reclaimed`.
    pub crawler_reclaimed: u64,
    /// Expired items that were never read.
    pub expired_unfetched: u64,
    /// Bytes of memory held for items and the index, of [`super::Config::memory`].
    pub memory_used: u64,
    /// The table's size, as a power of two: `hash_power_level`.
    pub table_power: u64,
    /// Bytes of the table: `hash_bytes`.
    pub table_bytes: u64,
    /// By size.
    pub classes: [Class; CLASSES],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            items: 0,
            bytes: 0,
            total_items: 0,
            get_expired: 0,
            get_flushed: 0,
            evictions: 0,
            evicted_unfetched: 0,
            reclaimed: 0,
            crawler_reclaimed: 0,
            expired_unfetched: 0,
            memory_used: 0,
            table_power: 0,
            table_bytes: 0,
            classes: [Class::default(); CLASSES],
        }
    }
}

impl Stats {
    /// Forgets what was counted, but not what there is.
    pub(super) fn reset(&mut self) {
        let mut classes = [Class::default(); CLASSES];
        for (new, Class { items, bytes, .. }) in classes.iter_mut().zip(self.classes) {
            *new = Class {
                items,
                bytes,
                ..Class::default()
            };
        }

        let Self {
            items,
            bytes,
            memory_used,
            table_power,
            table_bytes,
            ..
        } = *self;
        *self = Self {
            items,
            bytes,
            memory_used,
            table_power,
            table_bytes,
            classes,
            ..Self::default()
        };
    }

    /// Adds another shard's figures.
    pub(super) fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.total_items += other.total_items;
        self.get_expired += other.get_expired;
        self.get_flushed += other.get_flushed;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.reclaimed += other.reclaimed;
        self.crawler_reclaimed += other.crawler_reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.memory_used += other.memory_used;
        self.table_power = self.table_power.max(other.table_power);
        self.table_bytes += other.table_bytes;

        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.add(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, class_of, class_size};

    #[test]
    fn a_class_holds_what_its_size_says() {
        for size in [1, 63, 64, 65, 128, 129, 1000, 1 << 20, (1 << 20) + 1] {
            let class = class_of(size);
            assert!(size <= class_size(class), "{size}");
            assert!(class == 0 || size > class_size(class - 1), "{size}");
        }

        assert_eq!(class_of(0), 0);
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
    }
}
