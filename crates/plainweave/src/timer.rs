//! A hierarchical timing wheel: insert, remove and "when next?" in constant time, single owner, no
//! `unsafe`.
//!
//! Time is nanoseconds since the runtime's epoch, counted in **ticks** of 2^17 ns (131 us), or of
//! one on virtual time, where nothing is late ([`Wheel::exact`]). A deadline belongs to the first
//! tick that starts at or after it, and fires when the clock has reached that tick's start: so
//! never early, and less than one tick late (plus the caller's polling delay).
//!
//! **Levels.** Write a tick in base 64. An entry is at the level of the *highest digit in which its
//! tick differs from `current`*, in the slot that this digit names. Eight levels cover every `u64`
//! of nanoseconds (47 bits of ticks), eleven do in ticks of one, so there is no range to exceed, no
//! clamping and no list of far timers, at the price of 3 KiB of slot heads.
//!
//! ```text
//! current = .. 0  3 17        tick .. 0  3 40  differs in digit 0: level 0, slot 40, fires at its
//! tick tick .. 0  9 05  differs in digit 1: level 1, slot 9, sorted again at .. 0 9 00
//! ```
//!
//! **Invariants.** (1) All entries of a level agree with `current` in the digits above it, and
//! their own digit is greater. (2) So everything at a lower level is due before everything at a
//! higher one, and the next event is the lowest bit of the lowest occupied level: two bit
//! operations, no walk around the wheel. (3) Entries whose tick is not after `current` are in the
//! `DUE` list or, once sorted, in `FIRING`.
//!
//! **Advance** to a time: repeat until the next event's start is beyond it:
//! 1. set `current` to the start of the event's slot;
//! 2. place each of the slot's entries again: it sinks to a lower level, or to `DUE` if this is its
//!    tick;
//! 3. sort `DUE` by deadline, then by insertion, into `FIRING`, and fire that.
//!
//! The caller may bound the timers that one call fires. The rest stays in `FIRING`, and the next
//! call goes on there: 100,000 timers of one tick are sorted once, and what becomes due meanwhile
//! waits in `DUE` until they have fired.
//!
//! Empty stretches cost nothing, however long, because step 1 jumps; each entry sinks at most seven
//! times. Step 1 passes over no entry (2), so (1) stays true when `current` moves. Lists are FIFO,
//! and when a slot sinks all lower levels are empty (2), so entries of one tick stay in insertion
//! order: a stable sort by deadline needs no sequence number. Therefore one `advance` fires in the
//! order of (deadline, insertion), as the simulator requires.

mod slab; // The wheel's entries.

use std::cell::Cell;

use slab::{NIL, Slab};

/// A moment by the clock of a pool: nanoseconds since its epoch.
pub(crate) type Nanos = u64;

/// Nanoseconds in a tick, as a power of two, by the real clock.
const TICK_SHIFT: u32 = 17;
/// Bits of one digit: 64 slots per level, so that a level's occupancy is one word.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// 11 levels of 6 bits hold ticks of 64 bits; 8 would those of 47 bits.
const LEVELS: usize = 11;
/// The list of entries that are due, in the order of their arrival; it follows the lists of all
/// slots.
const DUE: usize = LEVELS * SLOTS;
/// The list of entries to fire first, in order.
const FIRING: usize = DUE + 1;

/// Names one inserted timer. The key of a timer that fired or was removed finds nothing, even when
/// its place in the slab is reused (unless that happened 2^32 times meanwhile).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

/// Holds the key of a timer, or none, in eight bytes; an `Option` of a key does not fit in these.
#[derive(Debug)]
pub(crate) struct KeyCell(Cell<u64>);

impl KeyCell {
    /// No place has this number.
    const NONE: u64 = u64::MAX;

    pub(crate) const fn new() -> Self {
        Self(Cell::new(Self::NONE))
    }

    pub(crate) fn set(&self, key: Option<TimerKey>) {
        self.0.set(key.map_or(Self::NONE, |key| {
            u64::from(key.index) << 32 | u64::from(key.generation)
        }));
    }

    pub(crate) fn take(&self) -> Option<TimerKey> {
        let bits = self.0.replace(Self::NONE);
        (bits != Self::NONE).then_some(TimerKey {
            index: (bits >> 32) as u32,
            generation: bits as u32,
        })
    }
}

/// The timers of one owner, each with a value that `advance` hands out.
pub(crate) struct Wheel<T> {
    /// Nanoseconds in a tick, as a power of two.
    tick_shift: u32,
    /// The tick up to which everything has fired.
    current: u64,
    /// Bit `l` is set if `occupied[l]` is not 0.
    levels: u16,
    /// Bit `s` is set if slot `s` of the level has entries.
    occupied: [u64; LEVELS],
    /// The first entry of each list; its `prev` is the last.
    heads: Box<[u32; FIRING + 1]>,
    entries: Slab<T>,
    /// A buffer to sort due entries: (deadline, place in the list, entry).
    scratch: Vec<(u64, u32, u32)>,
}

impl<T> Wheel<T> {
    /// Creates an empty wheel at time 0.
    pub(crate) fn new() -> Self {
        Self::with_tick(TICK_SHIFT)
    }

    /// As [`Self::new`], for a clock that is moved by hand: timers fire to the nanosecond.
    pub(crate) fn exact() -> Self {
        Self::with_tick(0)
    }

    fn with_tick(tick_shift: u32) -> Self {
        Self {
            tick_shift,
            current: 0,
            levels: 0,
            occupied: [0; LEVELS],
            heads: Box::new([NIL; FIRING + 1]),
            entries: Slab::new(),
            scratch: Vec::new(),
        }
    }

    #[cfg(test)]
    /// Returns the number of waiting timers.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    /// Returns whether no timer waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a timer; O(1). A deadline that has passed fires at the next `advance`. The last tick
    /// of the clock's range (584 years) never comes: `u64::MAX` means never.
    ///
    /// # Panics
    /// Beyond 2^32 - 1 timers.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: Nanos, value: T) -> TimerKey {
        let (index, generation) = self.entries.take_place(deadline, value);
        self.place(index);
        TimerKey { index, generation }
    }

    /// Stops a timer; O(1). Returns `None` if it has fired or was removed before.
    #[inline]
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<T> {
        if self.entries.generation(key.index) != Some(key.generation) {
            return None;
        }
        self.unlink(key.index);
        self.entries.release(key.index)
    }

    /// Returns when to call [`advance`](Self::advance) again, in nanoseconds: never later than the
    /// earliest timer's tick, perhaps earlier (then that call sinks a slot). Not after now if a
    /// timer is due. `None`: no timers.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Nanos> {
        let due = self.heads[DUE] != NIL || self.is_behind();
        let tick = if due {
            self.current
        } else {
            self.next_event()?.1
        };

        // The tick past the end of time has no start.
        let fits = tick.leading_zeros() >= self.tick_shift;
        Some(if fits {
            tick << self.tick_shift
        } else {
            u64::MAX
        })
    }

    /// Returns whether the last `advance` has left timers that were due, because it was not to fire
    /// as many.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.heads[FIRING] != NIL
    }

    /// Passes the timers that are due at `now`, at most this many, to `fire`, by (deadline,
    /// insertion). Those that an earlier call has left come first. Costs a few instructions when
    /// none is due. Time does not run backwards: a `now` before an earlier one counts as that one.
    /// If `fire` panics, its timer is gone and the others stay.
    pub(crate) fn advance(&mut self, now: Nanos, mut most: usize, fire: &mut impl FnMut(T)) {
        let target = now >> self.tick_shift;
        while self.fire_due(&mut most, fire) {
            match self.next_event() {
                Some((list, start)) if start <= target => {
                    self.current = start;
                    self.sink(list);
                }
                _ => {
                    self.current = self.current.max(target);
                    return;
                }
            }
        }
    }

    /// Returns the earliest occupied slot, as its list, and the tick at which it starts.
    #[inline]
    fn next_event(&self) -> Option<(usize, u64)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let slot = self.occupied[level as usize].trailing_zeros();
        let shift = level * DIGIT;
        let above = self.current.checked_shr(shift + DIGIT).unwrap_or(0) << DIGIT;

        Some((
            level as usize * SLOTS + slot as usize,
            (above | u64::from(slot)) << shift,
        ))
    }

    /// Places each entry of a slot again, relative to a `current` that has reached the slot.
    fn sink(&mut self, list: usize) {
        let first = self.heads[list];
        let last = self.entries[first].prev;
        self.clear(list);
        let mut index = first;

        loop {
            let next = self.entries[index].next;
            self.place(index);
            if index == last {
                return;
            }
            index = next;
        }
    }

    /// Fires and frees what is due, at most `most`, which it counts down. Each entry leaves its
    /// list before its value goes to `fire`. Returns whether nothing is left.
    #[inline]
    fn fire_due(&mut self, most: &mut usize, fire: &mut impl FnMut(T)) -> bool {
        loop {
            while self.is_behind() {
                if *most == 0 {
                    return false;
                }
                *most -= 1;
                let index = self.heads[FIRING];
                self.unlink(index);
                if let Some(value) = self.entries.release(index) {
                    fire(value);
                }
            }

            if self.heads[DUE] == NIL {
                return true;
            }
            self.sort_due();
        }
    }

    /// Moves the `DUE` list to `FIRING`, which is empty, in the order of firing.
    fn sort_due(&mut self) {
        let mut batch = std::mem::take(&mut self.scratch);
        batch.clear();
        let first = self.heads[DUE];
        let mut index = first;

        loop {
            let entry = &self.entries[index];
            batch.push((entry.deadline, batch.len() as u32, index));
            index = entry.next;
            if index == first {
                break;
            }
        }

        self.clear(DUE);
        batch.sort_unstable();
        for &(_, _, index) in &batch {
            self.append(index, FIRING);
        }
        self.scratch = batch;
    }

    /// Appends an entry to the list that its deadline and `current` require.
    #[inline]
    fn place(&mut self, index: u32) {
        let tick = tick_of(self.entries[index].deadline, self.tick_shift);
        if tick <= self.current {
            return self.append(index, DUE);
        }
        let level = (u64::BITS - 1 - (tick ^ self.current).leading_zeros()) / DIGIT;
        let slot = (tick >> (level * DIGIT)) as usize % SLOTS;
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
        self.append(index, level as usize * SLOTS + slot);
    }

    /// Appends an entry to a list.
    #[inline]
    fn append(&mut self, index: u32, list: usize) {
        let first = self.heads[list];
        let (prev, next) = if first == NIL {
            self.heads[list] = index;
            (index, index)
        } else {
            let last = std::mem::replace(&mut self.entries[first].prev, index);
            self.entries[last].next = index;
            (last, first)
        };

        let entry = &mut self.entries[index];
        (entry.prev, entry.next, entry.list) = (prev, next, list as u16);
    }

    /// Removes an entry from its list.
    #[inline]
    fn unlink(&mut self, index: u32) {
        let entry = &self.entries[index];
        let prev = entry.prev;
        let next = entry.next;
        let list = usize::from(entry.list);
        if next == index {
            return self.clear(list);
        }
        self.entries[prev].next = next;
        self.entries[next].prev = prev;

        if self.heads[list] == index {
            self.heads[list] = next;
        }
    }

    /// Marks a list as empty.
    #[inline]
    fn clear(&mut self, list: usize) {
        self.heads[list] = NIL;
        if list < DUE {
            let level = list / SLOTS;
            self.occupied[level] &= !(1 << (list % SLOTS));
            self.levels &= !(u16::from(self.occupied[level] == 0) << level);
        }
    }
}

/// Returns the first tick that starts at or after `deadline`.
fn tick_of(deadline: Nanos, tick_shift: u32) -> u64 {
    (deadline >> tick_shift) + u64::from(!deadline.is_multiple_of(1 << tick_shift))
}

#[cfg(test)]
mod tests;
