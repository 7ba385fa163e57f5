//! Places for timers: a vector whose free places are chained, so that reusing a place costs no
//! allocation.

use crate::timer::Nanos;
use std::ops::{Index, IndexMut};

/// No entry.
pub(super) const NIL: u32 = u32::MAX;

/// A place: a timer in a circular list, or free (`value` is `None`, `next` links the free ones).
pub(super) struct Entry<T> {
    pub(super) deadline: Nanos,
    value: Option<T>,
    pub(super) prev: u32,
    pub(super) next: u32,
    generation: u32,
    pub(super) list: u16,
}

/// The places of one wheel; the wheel links them into lists.
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    #[cfg(test)]
    /// Returns the number of places in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the generation of a place, if the place exists. A free place has one that no key
    /// carries yet.
    #[inline]
    pub(super) fn generation(&self, index: u32) -> Option<u32> {
        self.entries
            .get(index as usize)
            .map(|entry| entry.generation)
    }

    /// Allocates a place for a timer, not linked yet, and returns its index and generation.
    #[inline]
    pub(super) fn take_place(&mut self, deadline: Nanos, value: T) -> (u32, u32) {
        self.len += 1;
        let index = self.free;
        if index == NIL {
            return (self.grow(deadline, value), 0);
        }
        let entry = &mut self[index];
        entry.deadline = deadline;
        entry.value = Some(value);
        let next = entry.next;
        let generation = entry.generation;

        self.free = next;
        (index, generation)
    }

    /// Frees an unlinked place: keys to it become stale.
    #[inline]
    pub(super) fn release(&mut self, index: u32) -> Option<T> {
        let free = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        let entry = &mut self[index];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = free;
        entry.value.take()
    }

    #[cold]
    fn grow(&mut self, deadline: Nanos, value: T) -> u32 {
        assert!(self.entries.len() < NIL as usize, "too many timers");
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            deadline,
            value: Some(value),
            prev: index,
            next: index,
            generation: 0,
            list: 0,
        });
        index
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = Entry<T>;

    #[inline]
    fn index(&self, index: u32) -> &Entry<T> {
        &self.entries[index as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.entries[index as usize]
    }
}
