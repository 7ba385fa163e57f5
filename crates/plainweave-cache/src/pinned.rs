//! The segments of the store that unread replies hold; [`unread`](super::unread) says why they are
//! counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The segments that unread replies hold, with a bound. Touched only where a socket is full.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Segments.
    most: usize,
    segment_len: usize,
    /// By how many replies each is held.
    held: Mutex<HashMap<usize, u32>>,
}

/// Segments that one connection's replies hold; they are given back on drop.
#[derive(Debug)]
pub(super) struct Pins {
    pinned: Arc<Pinned>,
    segments: Box<[usize]>,
}

impl Pinned {
    /// Allows `max` bytes, and one reply whatever it holds.
    pub(super) fn new(max: usize, segment_len: usize) -> Arc<Self> {
        Arc::new(Self {
            most: max / segment_len,
            segment_len,
            held: Mutex::default(),
        })
    }

    /// Returns the bytes of the segments that are held.
    pub(super) fn used(&self) -> usize {
        self.lock().len() * self.segment_len
    }

    /// Holds these for a reply, if they take up to `worth` bytes more than what others hold anyway,
    /// and the bound allows it.
    pub(super) fn hold(self: &Arc<Self>, segments: &[usize], worth: usize) -> Option<Pins> {
        let mut held = self.lock();
        let more = segments
            .iter()
            .filter(|segment| !held.contains_key(segment))
            .count();
        let fit = more == 0 || held.is_empty() || held.len() + more <= self.most;
        if !fit || more.saturating_mul(self.segment_len) > worth {
            return None;
        }
        for segment in segments {
            *held.entry(*segment).or_default() += 1;
        }
        drop(held);

        Some(Pins {
            pinned: self.clone(),
            segments: segments.into(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut held = self.pinned.lock();
        for segment in &self.segments {
            if let Some(replies) = held.get_mut(segment) {
                *replies -= 1;
                if *replies == 0 {
                    held.remove(segment);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_hold_counts_once_and_the_sum_has_a_bound() {
        let pinned = Pinned::new(400, 100);
        let one = pinned.hold(&[1, 2, 3], usize::MAX).unwrap();
        let same = pinned.hold(&[1, 2], 0).unwrap();
        assert!(pinned.hold(&[4], 99).is_none() && pinned.hold(&[4, 5], usize::MAX).is_none());
        let four = pinned.hold(&[3, 4], 100).unwrap();
        assert_eq!(pinned.used(), 400);
        drop(one);
        assert_eq!(pinned.used(), 400);
        drop((same, four));
        assert_eq!(pinned.used(), 0);

        // A value that is larger than the bound can still be read by one client.
        let large = pinned.hold(&[1, 2, 3, 4, 5, 6], usize::MAX).unwrap();
        assert!(pinned.hold(&[7], usize::MAX).is_none() && pinned.hold(&[6], 0).is_some());
        drop(large);
    }
}
