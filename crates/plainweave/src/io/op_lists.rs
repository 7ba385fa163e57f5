//! Many first-in-first-out lists of waiting operations in one slab, each entry removable in
//! constant time.
//!
//! A driver keeps one [`OpList`] per direction of a descriptor. It writes an entry's number into
//! `Operation::note`, so that a cancellation finds its entry without a search: cancelling 10,000
//! fibers that wait on one descriptor takes 10,000 steps, not 50 million.

use slab::Slab;

use super::driver::OpRef;
use crate::prefetch::prefetch;

const NONE: u32 = u32::MAX;

/// The ends of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpList {
    head: u32,
    tail: u32,
}

impl Default for OpList {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
        }
    }
}

impl OpList {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

#[derive(Debug)]
struct WaitingOp {
    op: OpRef,
    /// The list's place, as its owner numbers them: a cancelled entry must find the ends of its
    /// list.
    place: u64,
    prev: u32,
    next: u32,
}

/// The entries of all lists.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    entries: Slab<WaitingOp>,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends to `list`, which its owner calls `place`. Returns the entry's number.
    pub(crate) fn push(&mut self, list: &mut OpList, place: u64, op: OpRef) -> u32 {
        let number = self.entries.insert(WaitingOp {
            op,
            place,
            prev: list.tail,
            next: NONE,
        }) as u32;
        match list.tail {
            NONE => list.head = number,
            tail => self.entries[tail as usize].next = number,
        }

        list.tail = number;
        number
    }

    pub(crate) fn op(&self, number: u32) -> OpRef {
        self.entries[number as usize].op
    }

    /// Prefetches an entry.
    pub(crate) fn fetch(&self, number: u32) {
        if let Some(entry) = self.entries.get(number as usize) {
            prefetch(entry, size_of::<WaitingOp>());
        }
    }

    pub(crate) fn place(&self, number: u32) -> u64 {
        self.entries[number as usize].place
    }

    /// Removes an entry from `list`, wherever it stands in it.
    pub(crate) fn remove(&mut self, list: &mut OpList, number: u32) -> OpRef {
        let entry = self.entries.remove(number as usize);
        match entry.prev {
            NONE => list.head = entry.next,
            prev => self.entries[prev as usize].next = entry.next,
        }

        match entry.next {
            NONE => list.tail = entry.prev,
            next => self.entries[next as usize].prev = entry.prev,
        }

        entry.op
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    /// Returns an address that is never dereferenced.
    fn op(n: usize) -> OpRef {
        NonNull::without_provenance(std::num::NonZero::new(n * 64).unwrap())
    }

    fn drain(waiters: &mut Waiters, list: &mut OpList) -> Vec<OpRef> {
        let mut out = Vec::new();
        while let Some(first) = list.first() {
            out.push(waiters.remove(list, first));
        }
        out
    }

    #[test]
    fn entries_leave_in_the_order_they_came() {
        let mut waiters = Waiters::default();
        let mut a = OpList::default();
        let mut b = OpList::default();
        for n in 1..=3 {
            waiters.push(&mut a, 0, op(n));
            waiters.push(&mut b, 1, op(10 + n));
        }

        assert_eq!(drain(&mut waiters, &mut a), [op(1), op(2), op(3)]);
        assert_eq!(drain(&mut waiters, &mut b), [op(11), op(12), op(13)]);
        assert_eq!(waiters.len(), 0);
    }

    #[test]
    fn an_entry_can_be_taken_from_either_end_and_the_middle() {
        for taken in 1..=3 {
            let mut waiters = Waiters::default();
            let mut list = OpList::default();
            let numbers: Vec<u32> = (1..=3).map(|n| waiters.push(&mut list, 7, op(n))).collect();
            assert_eq!(waiters.place(numbers[taken - 1]), 7);
            assert_eq!(waiters.remove(&mut list, numbers[taken - 1]), op(taken));
            waiters.push(&mut list, 7, op(4));
            let rest: Vec<OpRef> = (1..=4).filter(|n| *n != taken).map(op).collect();

            assert_eq!(drain(&mut waiters, &mut list), rest);
            assert!(list.is_empty());
        }
    }
}
