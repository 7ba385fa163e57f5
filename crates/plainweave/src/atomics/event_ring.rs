//! The last events of one thread: it writes, any thread copies what is there, and neither waits for
//! the other.
//!
//! # Why it is hard
//! The writer must not be slowed down by readers, so it overwrites the oldest event whether or not
//! somebody is copying it. A reader must notice: half an old event and half a new one look like an
//! event.
//!
//! # Protocol
//! Events are numbered from 0; event `n` lies in slot `n mod capacity`, two words. `written` is the
//! number of the next event.
//! 1. *Write:* load `written` = `n`; fence (Release); store the slot's words (Relaxed); store `n +
//!    1` to `written` (Release).
//! 2. *Copy:* load `written` = `end` (Acquire); load the words of the events from `end - capacity`
//!    to `end` (Relaxed); fence (Acquire); load `written` = `now` (Relaxed). Event `now` may be in
//!    the writer's hands, so of the copies those of events up to `now - capacity` are thrown away.
//!
//! # Why it is safe
//! * *Nothing too old is kept:* the load of `end` has seen the write of every event below it.
//! * *Nothing overwritten is kept:* if a copy has a word of event `m + capacity` in place of `m`,
//!   its load read what the writer stored after the fence that follows its load of `written` =
//!   `m + capacity`, which it had stored before. The fences pair, so the reader's last load finds
//!   `now >= m + capacity`, and event `m` is thrown away. (Model: `loom_a_copy_has_whole_events`.
//!   Without one of the fences it fails.)
//!
//! On x86-64 neither fence is an instruction.
//!
//! # Rejected
//! * *A lock, or a sequence number a slot:* more stores for each event.
//! * *Asking the worker for a copy:* one that a fiber holds up would not answer, and that is when
//!   one wants to look.

use crate::shim::atomic::AtomicU64;
use crate::shim::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::shim::atomic::fence;

/// An event.
pub(crate) type Words = [u64; 2];

/// The ring.
#[derive(Debug)]
pub(crate) struct EventRing {
    slots: Box<[[AtomicU64; 2]]>,
    written: AtomicU64,
}

/// What a ring had at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// How many events came before these, and are gone.
    pub(crate) lost: u64,
    /// The oldest first.
    pub(crate) events: Vec<Words>,
}

impl EventRing {
    /// Creates a ring for that many events, a power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(
            capacity.is_power_of_two(),
            "a ring of {capacity} events: not a power of two"
        );
        let slots = (0..capacity)
            .map(|_| [AtomicU64::new(0), AtomicU64::new(0)])
            .collect();
        Self {
            slots,
            written: AtomicU64::new(0),
        }
    }

    fn slot(&self, number: u64) -> &[AtomicU64; 2] {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Returns the number of events written so far.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Writes an event. Of two threads that write at once, one may lose its events.
    ///
    /// Context: the writer.
    #[inline]
    pub(crate) fn write(&self, event: Words) {
        let number = self.written.load(Relaxed);
        fence(Release);
        let [first, second] = self.slot(number);
        first.store(event[0], Relaxed);
        second.store(event[1], Relaxed);
        self.written.store(number + 1, Release);
    }

    /// Copies what is there.
    ///
    /// Context: any thread.
    pub(crate) fn copy(&self) -> Copied {
        let capacity = self.slots.len() as u64;
        let end = self.written.load(Acquire);
        let first = end.saturating_sub(capacity);
        let read = |number| {
            let [first, second] = self.slot(number);
            [first.load(Relaxed), second.load(Relaxed)]
        };

        let mut events: Vec<Words> = (first..end).map(read).collect();
        fence(Acquire);
        let now = self.written.load(Relaxed);
        let whole = (now + 1).saturating_sub(capacity).clamp(first, end);
        events.drain(..(whole - first) as usize);

        Copied {
            lost: whole,
            events,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shim::atomic::AtomicBool;

    #[test]
    fn it_keeps_the_last_events() {
        let ring = EventRing::new(4);
        assert_eq!(
            ring.copy(),
            Copied {
                lost: 0,
                events: vec![]
            }
        );
        for n in 0..3 {
            ring.write([n, n * 7]);
        }
        assert_eq!(
            ring.copy(),
            Copied {
                lost: 0,
                events: vec![[0, 0], [1, 7], [2, 14]]
            }
        );
        for n in 3..10 {
            ring.write([n, n * 7]);
        }

        // The place of the oldest one is the writer's.
        assert_eq!(
            ring.copy(),
            Copied {
                lost: 7,
                events: vec![[7, 49], [8, 56], [9, 63]]
            }
        );
        assert_eq!(ring.written(), 10);
    }

    #[test]
    fn copies_beside_the_writer_are_whole() {
        let ring = EventRing::new(64);
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut n = 0;
                while !stop.load(Relaxed) {
                    ring.write([n, n * 7]);
                    n += 1;
                    // So that it does not go round the ring within every copy.
                    (0..32).for_each(|_| std::hint::spin_loop());
                }
            });
            while ring.written() < 64 {
                std::thread::yield_now();
            }
            let mut seen = 0;
            let is_whole = |copied: Copied| {
                seen += copied.events.len();
                copied
                    .events
                    .iter()
                    .zip(copied.lost..)
                    .all(|(words, n)| *words == [n, n * 7])
            };

            let whole = (0..2000).map(|_| ring.copy()).all(is_whole);
            stop.store(true, Relaxed);
            assert!(whole && seen > 0, "{whole} {seen}");
        });
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use loom::thread;

    use super::*;
    use crate::shim::Arc;

    /// A reader beside a writer that goes round the ring twice: each event that it keeps is whole
    /// and in its place, and what was written before it began is there unless it was overwritten.
    #[test]
    fn loom_a_copy_has_whole_events() {
        loom::model(|| {
            let ring = Arc::new(EventRing::new(2));
            ring.write([1, 7]);
            let writer = {
                let ring = ring.clone();
                thread::spawn(move || (2..5).for_each(|n| ring.write([n, n * 7])))
            };

            let copied = ring.copy();
            let expected = (copied.lost + 1..).map(|n| [n, n * 7]);
            assert!(
                copied
                    .events
                    .iter()
                    .copied()
                    .eq(expected.take(copied.events.len())),
                "{copied:?}"
            );
            assert!(copied.lost > 0 || !copied.events.is_empty());
            writer.join().unwrap();
            assert_eq!(
                ring.copy(),
                Copied {
                    lost: 3,
                    events: vec![[4, 28]]
                }
            );
        });
    }
}
