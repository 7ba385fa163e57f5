//! Copies of small entries that a processor's requests ask for often, so that processors which
//! serve the same files write to no memory of each other's: neither the lock of a shard, nor the
//! counts of those who refer to an entry, to its header lines and to its content.
//!
//! A processor has [`PLACES`] places, and a key has one of them. An entry is copied there when two
//! requests in a row that share the place have asked for it, so a scan through many files copies
//! nothing. A copy is believed as long as the entry would be. The locks are hardly ever contended
//! (`per_cpu`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::entry::Entry;
use plainweave_serve::PerCpu;

/// For each processor.
const PLACES: usize = 64;
/// Entries with no more bytes than this are copied.
const COPIED: usize = 20 << 10;

#[derive(Debug)]
pub(super) struct Fronts(PerCpu<Mutex<Front>>);

/// What a processor has.
#[derive(Debug)]
struct Front {
    places: Box<[Place]>,
    bytes: usize,
    /// Limit on `bytes`.
    most: usize,
}

#[derive(Debug, Default)]
struct Place {
    copy: Option<Copied>,
    /// The hash of the key that was asked for last.
    asked: u64,
}

#[derive(Debug)]
struct Copied {
    key: Box<[u8]>,
    entry: Arc<Entry>,
    weight: usize,
    /// Of which entry; as long as this is here, no other has its address.
    of: Weak<Entry>,
}

impl Fronts {
    /// Makes fronts for all processors that hold as many bytes in all.
    pub(super) fn new(bytes: usize) -> Self {
        let fronts = PerCpu::new(|| Mutex::new(Front::new(0)));
        let most = bytes / fronts.len();
        fronts.iter().for_each(|front| lock(front).most = most);
        Self(fronts)
    }

    /// Returns the calling processor's copy, if it has one that is believed.
    pub(super) fn find(
        &self,
        hash: u64,
        key: &[u8],
        is_fresh: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        // With one processor a copy would gain nothing.
        (self.0.len() > 1).then(|| lock(self.0.own()).find(hash, key, is_fresh))?
    }

    /// Records that an entry was found behind the front: copies it, perhaps.
    pub(super) fn note(&self, hash: u64, key: &[u8], entry: &Arc<Entry>) {
        if self.0.len() > 1 {
            lock(self.0.own()).note(hash, key, entry);
        }
    }
}

fn lock(front: &Mutex<Front>) -> MutexGuard<'_, Front> {
    front.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front {
    fn new(most: usize) -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            bytes: 0,
            most,
        }
    }

    fn find(
        &mut self,
        hash: u64,
        key: &[u8],
        is_fresh: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let place = &mut self.places[hash as usize % PLACES];
        let copy = place
            .copy
            .as_ref()
            .filter(|copy| *copy.key == *key && is_fresh(&copy.entry))?;
        place.asked = hash;
        Some(Arc::clone(&copy.entry))
    }

    fn note(&mut self, hash: u64, key: &[u8], entry: &Arc<Entry>) {
        let place = &mut self.places[hash as usize % PLACES];
        if let Some(copy) = place.copy.as_ref().filter(|copy| *copy.key == *key) {
            if copy.of.as_ptr() == Arc::as_ptr(entry) {
                // It was looked at again, and still holds.
                copy.entry
                    .checked
                    .store(entry.checked.load(Ordering::Relaxed), Ordering::Relaxed);
                return;
            }
        } else if std::mem::replace(&mut place.asked, hash) != hash {
            return;
        }

        let weight = entry.weight(key);
        let Some(copied) = (weight <= COPIED.min(self.most))
            .then(|| entry.copied())
            .flatten()
        else {
            self.bytes -= place
                .copy
                .take_if(|copy| *copy.key == *key)
                .map_or(0, |copy| copy.weight);
            return;
        };

        let replaced = place.copy.take().map_or(0, |copy| copy.weight);
        self.bytes = self.bytes - replaced + weight;
        if self.bytes > self.most {
            // What is asked for is back after two more requests.
            self.places.iter_mut().for_each(|place| place.copy = None);
            self.bytes = weight;
        }

        let copy = Copied {
            key: key.into(),
            entry: Arc::new(copied),
            weight,
            of: Arc::downgrade(entry),
        };

        self.places[hash as usize % PLACES].copy = Some(copy);
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::super::look::Found;
    use super::*;

    fn entry(checked: u64) -> Arc<Entry> {
        Entry::new(Found::Nothing(StatusCode::NOT_FOUND), 0, checked)
    }

    /// Of an entry that is found behind the front and recorded.
    fn ask(front: &mut Front, hash: u64, key: &[u8], entry: &Arc<Entry>, now: u64) -> bool {
        let found = front.find(hash, key, |entry| {
            entry.checked.load(Ordering::Relaxed) >= now
        });
        if found.is_none() {
            front.note(hash, key, entry);
        }
        found.is_some()
    }

    #[test]
    fn an_entry_is_copied_when_it_is_asked_for_twice_in_a_row() {
        let mut front = Front::new(1 << 20);
        let one = entry(1);
        let other = entry(1);
        let asked: Vec<_> = (0..4)
            .map(|_| ask(&mut front, 7, b"/one", &one, 1))
            .collect();
        assert_eq!(asked, [false, false, true, true]);
        assert!(!Arc::ptr_eq(
            &front.find(7, b"/one", |_| true).unwrap(),
            &one
        ));

        // Another key of the same place, and keys in turn.
        let hash = 7 + PLACES as u64;
        assert!((0..10).all(|_| !ask(&mut front, hash, b"/other", &other, 1)
            && ask(&mut front, 7, b"/one", &one, 1)));
        assert!(
            front
                .find(hash, b"/one", |_| true)
                .is_some_and(|found| !Arc::ptr_eq(&found, &other))
        );
    }

    #[test]
    fn a_copy_is_as_old_as_its_entry() {
        let mut front = Front::new(1 << 20);
        let one = entry(1);
        (0..2).for_each(|_| front.note(7, b"/one", &one));
        let copy = front.find(7, b"/one", |_| true).unwrap();
        assert!(!ask(&mut front, 7, b"/one", &one, 2));
        one.checked.store(2, Ordering::Relaxed);
        assert!(!ask(&mut front, 7, b"/one", &one, 2) && ask(&mut front, 7, b"/one", &one, 2));
        assert!(Arc::ptr_eq(
            &front.find(7, b"/one", |_| true).unwrap(),
            &copy
        ));

        // In place of the entry there is another now.
        assert!(!ask(&mut front, 7, b"/one", &entry(3), 3) && ask(&mut front, 7, b"/one", &one, 3));
    }

    #[test]
    fn without_room_all_go() {
        let one = entry(1);
        let weight = one.weight(b"/0");
        let mut front = Front::new(weight * 3);
        for key in 0..3u64 {
            (0..2).for_each(|_| front.note(key, format!("/{key}").as_bytes(), &one));
        }
        assert_eq!(
            (front.bytes, front.find(0, b"/0", |_| true).is_some()),
            (weight * 3, true)
        );
        (0..2).for_each(|_| front.note(9, b"/9", &one));
        assert_eq!(
            (front.bytes, front.find(0, b"/0", |_| true).is_some()),
            (weight, false)
        );
        assert!(front.find(9, b"/9", |_| true).is_some());

        // The longer key goes, and the shorter one takes its place.
        (0..2).for_each(|_| front.note(9, b"/a", &one));
        (0..2).for_each(|_| front.note(9, b"/", &one));
        assert_eq!(front.bytes, one.weight(b"/"));

        // What is too large has no copy.
        let mut front = Front::new(weight - 1);
        assert!((0..4).all(|_| !ask(&mut front, 0, b"/0", &one, 1)) && front.bytes == 0);
    }
}
