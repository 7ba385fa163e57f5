//! What a connection borrows while it is busy, such as its buffers: there are about as many as
//! workers, and one for each client that is slow to take its answer.
//!
//! Each processor has a place for one that is idle, taken and returned by one atomic exchange. When
//! the place is occupied, those beyond it go to the processor's list, under a lock.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::atomic::AtomicCell;

use crate::PerCpu;

/// Idle ones that each list keeps.
const KEPT: usize = 32;

/// See the module.
pub struct Pool<T>(PerCpu<Place<T>>);

struct Place<T> {
    idle: AtomicCell<Option<Box<T>>>,
    more: Mutex<Vec<Box<T>>>,
}

impl<T> Default for Pool<T> {
    /// Makes an empty pool, with a place for each processor.
    fn default() -> Self {
        Self(PerCpu::new(Place::new))
    }
}

impl<T> Pool<T> {
    /// Makes an empty pool, with so few places as are given; where one worker alone uses it, one
    /// will do.
    pub fn with_places(places: usize) -> Self {
        Self(PerCpu::of(places, Place::new))
    }

    /// Returns how many places there are.
    pub fn places(&self) -> usize {
        self.0.len()
    }

    /// Returns the calling processor's place: a hint, for whoever borrows may go on elsewhere.
    pub fn here(&self) -> usize {
        self.0.here()
    }

    /// Takes an idle one of that place or of its list.
    pub fn take(&self, place: usize) -> Option<Box<T>> {
        let place = &self.0[place];
        place.idle.take().or_else(|| place.take_more())
    }

    /// Takes one of any list, for whoever may make no more. `None`: all that are idle are at their
    /// processors' places.
    #[cold]
    pub fn take_listed(&self) -> Option<Box<T>> {
        self.0.iter().find_map(|place| place.lock().pop())
    }

    /// Returns one to that place. What it gives back is too much to be kept.
    pub fn put(&self, place: usize, one: Box<T>) -> Option<Box<T>> {
        let place = &self.0[place];
        let extra = place.idle.swap(Some(one))?;
        place.put_by(extra)
    }

    /// Returns how many are in the lists.
    pub fn listed(&self) -> usize {
        self.0.iter().map(|place| place.lock().len()).sum()
    }
}

impl<T> Place<T> {
    fn new() -> Self {
        Self {
            idle: AtomicCell::new(None),
            more: Mutex::default(),
        }
    }

    #[cold]
    fn take_more(&self) -> Option<Box<T>> {
        self.lock().pop()
    }

    #[cold]
    fn put_by(&self, extra: Box<T>) -> Option<Box<T>> {
        let mut list = self.lock();
        if list.len() >= KEPT {
            return Some(extra);
        }
        list.push(extra);
        None
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<T>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool {{ {} places, .. }}", self.places())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of a connection is a take and a put, each without a lock.
    #[test]
    fn the_place_takes_no_lock() {
        let pool = Pool::with_places(1);
        assert!(pool.put(0, Box::new(1)).is_none());
        let locked = pool.0[0].lock();
        for _ in 0..3 {
            let one = pool.take(0).expect("it is at the place");
            assert!(pool.put(0, one).is_none());
        }
        drop(locked);
    }

    #[test]
    fn what_is_put_is_there_up_to_a_number() {
        let pool = Pool::with_places(1);
        assert!(pool.take(0).is_none());
        let refused = (0..KEPT + 3).filter_map(|n| pool.put(0, Box::new(n)));
        assert_eq!(
            refused.count(),
            2,
            "one has the place, the others are listed"
        );
        assert_eq!(pool.listed(), KEPT);

        let taken = std::iter::from_fn(|| pool.take(0));
        assert_eq!(taken.count(), KEPT + 1);
    }

    /// One that is listed serves whoever can make no more; the place is its processor's.
    #[test]
    fn lists_are_for_all() {
        let pool = Pool::with_places(2);
        assert!(pool.put(0, Box::new("first")).is_none());
        assert!(pool.put(0, Box::new("second")).is_none());

        assert!(pool.take(1).is_none());
        assert_eq!(pool.take_listed().as_deref(), Some(&"first"));
        assert!(pool.take_listed().is_none());
        assert_eq!(pool.take(0).as_deref(), Some(&"second"));
    }
}
