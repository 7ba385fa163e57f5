//! Putting a run together from its parts: each worker hands over what it has counted once a second.
//!
//! A second is complete when every worker has handed over one as late, or has ended; then it goes
//! to whoever watches. The total is the sum of all parts, so that nothing depends on how they were
//! cut.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::clock::{Nanos, SECOND};
use super::tally::Tally;

/// What one worker counted in a second of the load, the first being 0. The last part may come from
/// a shorter time.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) worker: usize,
    pub(super) second: u64,
    /// When it was cut, since the start of load.
    pub(super) until: Nanos,
    pub(super) tally: Tally,
    /// The worker has ended.
    pub(super) last: bool,
}

/// What workers say of a run, beside what they count.
#[derive(Debug)]
pub(super) struct Ran {
    /// When the first requests could be sent: all connections were there.
    pub(super) began: SystemTime,
    /// From then to the end of the last worker.
    pub(super) wall: Duration,
    /// CPU time of the workers under load.
    pub(super) cpu: Duration,
    pub(super) driver: String,
}

/// A second of the load, for those who watch.
#[derive(Debug)]
pub(super) struct Second<'a> {
    pub(super) number: u64,
    /// Less than a second at the end.
    pub(super) length: Nanos,
    pub(super) tally: &'a Tally,
}

/// What watches a run.
pub(super) trait Watch {
    /// Is called for each second, in order.
    fn second(&mut self, second: &Second<'_>);
}

/// The parts so far.
pub(super) struct Collector {
    /// Of each worker: the last second that it has handed over; `None` before the first.
    reached: Vec<Option<u64>>,
    open: BTreeMap<u64, Open>,
    total: Tally,
}

struct Open {
    until: Nanos,
    tally: Tally,
}

impl Collector {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            reached: vec![None; workers],
            open: BTreeMap::new(),
            total: Tally::new(),
        }
    }

    /// Takes in a part, and shows the seconds that it completes.
    pub(super) fn take(&mut self, piece: &Piece, watch: &mut dyn Watch) {
        self.total.add(&piece.tally);
        let open = self.open.entry(piece.second).or_insert_with(|| Open {
            until: 0,
            tally: Tally::new(),
        });

        open.tally.add(&piece.tally);
        open.until = open.until.max(piece.until);
        self.reached[piece.worker] = Some(if piece.last { u64::MAX } else { piece.second });
        self.show(watch);
    }

    /// Returns how many seconds wait for some worker's part.
    pub(super) fn incomplete(&self) -> usize {
        self.open.len()
    }

    /// Returns the worker that is furthest behind.
    pub(super) fn slowest(&self) -> usize {
        (0..self.reached.len())
            .min_by_key(|worker| self.reached[*worker])
            .unwrap_or(0)
    }

    /// Shows what is complete.
    fn show(&mut self, watch: &mut dyn Watch) {
        let complete = self.reached.iter().min().copied().flatten();
        while let Some(entry) = self.open.first_entry()
            && complete.is_some_and(|complete| *entry.key() <= complete)
        {
            let (number, open) = entry.remove_entry();
            let length = open.until.saturating_sub(number * SECOND).clamp(1, SECOND);
            watch.second(&Second {
                number,
                length,
                tally: &open.tally,
            });
        }
    }

    /// Shows what is left, if only some workers counted it, and returns the sum.
    pub(super) fn finish(mut self, watch: &mut dyn Watch) -> Tally {
        self.reached.fill(Some(u64::MAX));
        self.show(watch);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(u64, Nanos, u64)>);

    impl Watch for Seen {
        fn second(&mut self, second: &Second<'_>) {
            self.0.push((second.number, second.length, second.tally.ok));
        }
    }

    fn piece(worker: usize, second: u64, until: Nanos, count: u64, last: bool) -> Piece {
        let mut tally = Tally::new();
        (0..count).for_each(|n| tally.answered(n));
        Piece {
            worker,
            second,
            until,
            tally,
            last,
        }
    }

    #[test]
    fn a_second_is_shown_when_all_have_handed_it_over() {
        let mut collector = Collector::new(2);
        let mut seen = Seen::default();
        collector.take(&piece(0, 0, SECOND, 1, false), &mut seen);
        collector.take(&piece(0, 1, 2 * SECOND, 2, false), &mut seen);
        assert_eq!(seen.0, []);
        collector.take(&piece(1, 0, SECOND + 5, 3, false), &mut seen);
        assert_eq!(seen.0, [(0, SECOND, 4)]);

        // One ends early; the other goes on alone.
        collector.take(&piece(1, 1, SECOND + 7, 1, true), &mut seen);
        collector.take(&piece(0, 2, 2 * SECOND + 9, 4, false), &mut seen);
        assert_eq!(seen.0[1..], [(1, SECOND, 3), (2, 9, 4)]);
        assert_eq!((collector.finish(&mut seen).ok, seen.0.len()), (11, 3));
    }

    #[test]
    fn what_a_lost_worker_left_is_not_lost() {
        let mut collector = Collector::new(2);
        let mut seen = Seen::default();
        collector.take(&piece(0, 0, SECOND, 5, false), &mut seen);
        assert_eq!(
            (collector.finish(&mut seen).ok, seen.0.as_slice()),
            (5, &[(0, SECOND, 5)][..])
        );
    }
}
