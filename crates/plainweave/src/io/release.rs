//! How a driver that keeps state for a source learns that another thread has dropped the source.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::eventfd::Wakeup;
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

/// Every live driver's list.
static LISTS: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Listed {
    tag: usize,
    list: Weak<Released>,
    /// Wakes the worker, if it must not sleep over what is on the list.
    wakeup: Option<Weak<Wakeup>>,
}

/// Adds a worker's list, once its driver is open, and what wakes the worker for it.
pub(crate) fn register(tag: usize, list: &Arc<Released>, wakeup: Option<Weak<Wakeup>>) {
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    lists.retain(|listed| listed.list.strong_count() > 0);
    lists.push(Listed {
        tag,
        list: Arc::downgrade(list),
        wakeup,
    });
}

/// Posts the source to the drivers whose tag is in `tags` (a bit for each tag modulo 64).
pub(crate) fn post(source: u64, tags: u64) {
    let lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    for listed in lists.iter().filter(|l| tags & (1 << (l.tag % BITS)) != 0) {
        let Some(list) = listed.list.upgrade() else {
            continue;
        };
        list.post(source);
        if let Some(wakeup) = listed.wakeup.as_ref().and_then(Weak::upgrade) {
            wakeup.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

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

    /// A worker whose driver keeps the file open must not sleep over its end.
    #[test]
    fn who_is_to_forget_is_woken() {
        let tag = Tag::take();
        let list = Arc::new(Released::new());
        let wakeup = Arc::new(Wakeup::new().expect("an eventfd"));
        register(tag.number(), &list, Some(Arc::downgrade(&wakeup)));
        post(7, 1 << (tag.number() % BITS));

        let start = Instant::now();
        wakeup.doze(Some(Duration::from_secs(60)));
        assert!(start.elapsed() < Duration::from_secs(30), "it slept on");

        let mut released = Vec::new();
        list.drain(|source| released.push(source));
        assert_eq!(released, [7]);
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
