//! Which keys were evicted lately before anybody asked for them again.
//!
//! The ghost queue of S3-FIFO: a key that comes back soon after its eviction goes to the main queue
//! at once. Sixteen bits of a hash are kept for each, in a table as large as the index, where a
//! newer key replaces an older one in the same place. So a key is remembered for about as many
//! evictions as there are items, give or take chance, and one key in 65,536 is remembered by
//! mistake; either costs a little precision and nothing else.

/// The table. Two bytes an item.
pub(super) struct Ghost(Box<[u16]>);

impl Ghost {
    pub(super) fn new() -> Self {
        Self(Box::new([]))
    }

    /// Returns the number of bytes that it takes.
    pub(super) const fn bytes(&self) -> usize {
        self.0.len() * size_of::<u16>()
    }

    /// Makes it fit for `items`, and forgets all if that changes its size.
    pub(super) fn fit(&mut self, items: usize) {
        let len = items.next_power_of_two().max(1 << 10);
        if len > self.0.len() || len < self.0.len() / 4 {
            self.0 = vec![0; len].into_boxed_slice();
        }
    }

    fn slot(&mut self, hash: u64) -> Option<(&mut u16, u16)> {
        let mask = self.0.len().checked_sub(1)?;
        // 0 is an empty place.
        Some((
            &mut self.0[hash as usize & mask],
            ((hash >> 32) as u16).max(1),
        ))
    }

    /// Remembers a key.
    pub(super) fn put(&mut self, hash: u64) {
        if let Some((slot, mark)) = self.slot(hash) {
            *slot = mark;
        }
    }

    /// Forgets a key. Returns whether it was remembered.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        match self.slot(hash) {
            Some((slot, mark)) if *slot == mark => {
                *slot = 0;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ghost;

    #[test]
    fn a_key_is_remembered_once() {
        let mut ghost = Ghost::new();
        ghost.put(7);
        assert!(!ghost.take(7), "nothing is remembered without a table");
        ghost.fit(5000);
        assert_eq!(ghost.bytes(), 2 * 8192);
        ghost.put(7 | 5 << 32);
        assert!(!ghost.take(7 | 6 << 32));
        assert!(ghost.take(7 | 5 << 32));
        assert!(!ghost.take(7 | 5 << 32));
    }
}
