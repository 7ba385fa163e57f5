//! How a store is made, and how items are measured against its bounds.

/// Bytes that memcached counts for an item beside key and value; they decide what is too large.
const ITEM_HEAD: usize = 59;

/// See [`Config::small_percent`].
const SMALL: usize = 45;

/// How a store is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes for items and the index: `-m`.
    pub memory: usize,
    /// Bytes of the largest item, counted as memcached does, with key and header: `-I`. At most 1
    /// GiB.
    pub item_max: usize,
    /// Whether items are evicted when memory is short. Else writes fail: `-M`.
    pub evict: bool,
    /// Shards, each with a lock of its own; rounded up to a power of two. About four a worker.
    pub shards: usize,
    /// The part of the bytes, in percent, that items have which nobody has asked for yet: what is
    /// written now and read later outlives further writes of that much, and what is asked for often
    /// has the rest. `docs/cache-store.md` says how the default was chosen. At most 90.
    pub small_percent: usize,
}

impl Default for Config {
    /// memcached's 64 MB with items up to 1 MB, evicted as need be; four shards.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            item_max: 1 << 20,
            evict: true,
            shards: 4,
            small_percent: SMALL,
        }
    }
}

/// Returns what memcached counts for an item, and compares with `-I`.
pub(super) const fn item_size(key: &[u8], value_len: usize, flags: u32) -> usize {
    ITEM_HEAD + if flags == 0 { 0 } else { size_of::<u32>() } + key.len() + value_len
}
