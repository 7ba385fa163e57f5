//! How a driver that keeps state for a source learns that another thread has dropped the source.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::atomics::posted::Posted;

/// The bits by which a source remembers the drivers that keep state for it.
const BITS: usize = u64::BITS as usize;

/// A driver's number among the live ones of the process, returned when dropped. Its bit in a
/// source's registrations is the number modulo 64, so with more than 64 drivers some bits are
/// shared.
#[derive(Debug)]
pub(crate) struct Tag(usize);

/// Which numbers are taken.
static TAKEN: Mutex<Vec<bool>> = Mutex::new(Vec::new());
/// The live drivers of each bit.
static SHARERS: [AtomicU32; BITS] = [const { AtomicU32::new(0) }; BITS];

impl Tag {
    /// Takes the least free number.
    pub(crate) fn take() -> Self {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.iter().position(|&t| !t).unwrap_or(taken.len());
        match taken.get_mut(number) {
            Some(slot) => *slot = true,
            None => taken.push(true),
        }

        SHARERS[number % BITS].fetch_add(1, Ordering::Relaxed);
        Self(number)
    }

    pub(crate) fn number(&self) -> usize {
        self.0
    }

    /// Says whether a source with these registrations is known to this driver only, so that no
    /// other needs to be told.
    ///
    /// The caller is about to free the source, so whoever registered it did so before, and took its
    /// tag before that: a Relaxed load sees it.
    pub(crate) fn is_all_of(&self, registrations: u64) -> bool {
        let bit = self.0 % BITS;
        registrations == 1 << bit && SHARERS[bit].load(Ordering::Relaxed) == 1
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken[self.0] = false;
        SHARERS[self.0 % BITS].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sources that are gone, to be forgotten by one worker's driver when it next drains the list.
pub(crate) type Released = Posted<u64>;

/// Every live driver's list, with the driver's tag.
static LISTS: Mutex<Vec<(usize, Weak<Released>)>> = Mutex::new(Vec::new());

/// Adds a worker's list, once its driver is open.
pub(crate) fn register(tag: usize, list: &Arc<Released>) {
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    lists.retain(|(_, l)| l.strong_count() > 0);
    lists.push((tag, Arc::downgrade(list)));
}

/// Posts the source to the drivers whose tag is in `tags` (a bit for each tag modulo 64).
pub(crate) fn post(source: u64, tags: u64) {
    let lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let marked = lists
        .iter()
        .filter(|(tag, _)| tags & (1 << (tag % 64)) != 0);
    marked
        .filter_map(|(_, list)| list.upgrade())
        .for_each(|list| list.post(source));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Takes numbers until one shares the bit of `first`. Other tests of the process take and
    /// return tags meanwhile, so the numbers themselves are not known.
    fn until_shared(first: &Tag) -> Vec<Tag> {
        let mut tags = Vec::new();
        while tags
            .iter()
            .all(|t: &Tag| t.number() % BITS != first.number() % BITS)
        {
            assert!(tags.len() < 100 * BITS, "the numbers have gaps");
            tags.push(Tag::take());
        }
        tags
    }

    #[test]
    fn a_bit_that_two_drivers_share_names_neither_alone() {
        let first = Tag::take();
        let bit = 1u64 << (first.number() % BITS);
        assert!(!first.is_all_of(bit | bit.rotate_left(1)));
        let others = until_shared(&first);
        assert!(!first.is_all_of(bit));
        assert!(!others.last().expect("one shares the bit").is_all_of(bit));
    }

    #[test]
    fn numbers_are_taken_again() {
        let mut greatest = 0;
        for _ in 0..10_000 {
            greatest = greatest.max(Tag::take().number());
        }
        assert!(
            greatest < 5000,
            "number {greatest} after 10,000 drivers that lived one after another"
        );
    }
}
