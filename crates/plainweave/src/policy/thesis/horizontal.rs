//! A lane that grows horizontally: when its structure is full, the worker gets a second one, and
//! thieves that meet at one of them do not at the other. (OCaml schedulers' thesis.)
//!
//! Both are a `queue/deque`, made up front, because thieves hold a handle of each. The owner pushes
//! to the *newer* one. When that is full and the older one is empty, they change roles; while the
//! older one has tasks, the lane is full. So all tasks of the older one are older than those of the
//! newer one, whatever thieves take; the owner's order is that of one structure; and no task moves
//! from one to the other, where a look might miss it. A lane holds between one and two structures'
//! worth of tasks. A thief begins at one and the other alternately.

use super::order::Next;
use crate::queue::deque::{Owner, Stealer, deque};

/// The owner's half.
pub(super) struct Wide<T> {
    lanes: [Owner<T>; 2],
    /// The one that is pushed to.
    newer: usize,
    /// The one of a victim's that the next theft looks at first.
    first: usize,
}

/// The thieves' half.
pub(super) struct WideStealer<T>([Stealer<T>; 2]);

impl<T: Send> Wide<T> {
    /// Creates a lane of two structures for `most` tasks each, a power of two.
    pub(super) fn new(most: usize) -> Self {
        Self {
            lanes: [deque(most), deque(most)],
            newer: 0,
            first: 0,
        }
    }

    pub(super) fn stealer(&self) -> WideStealer<T> {
        WideStealer([self.lanes[0].stealer(), self.lanes[1].stealer()])
    }

    fn older(&self) -> usize {
        1 - self.newer
    }

    /// Exact but for thieves, which only make it smaller.
    pub(super) fn len(&self) -> usize {
        self.lanes[0].len() + self.lanes[1].len()
    }

    /// As the newest, or back if there is no room.
    pub(super) fn push(&mut self, task: T) -> Result<(), T> {
        let task = match self.lanes[self.newer].push(task) {
            Ok(()) => return Ok(()),
            Err(task) => task,
        };
        if !self.lanes[self.older()].is_empty() {
            return Err(task);
        }
        self.newer = self.older();
        // A thief may still move the last tasks out: then there is no room yet.
        self.lanes[self.newer].push(task)
    }

    pub(super) fn pop(&mut self, next: Next) -> Option<T> {
        let newer = self.newer;
        let older = self.older();
        match next {
            Next::Newest => self.lanes[newer]
                .pop_newest()
                .or_else(|| self.lanes[older].pop_newest()),
            // An order that turns round is not here.
            Next::Oldest | Next::TurnRound => self.lanes[older]
                .pop_oldest()
                .or_else(|| self.lanes[newer].pop_oldest()),
        }
    }

    /// Gives up the older half, rounded up.
    pub(super) fn take_half(&mut self, sink: impl FnMut(T)) {
        (0..self.len().div_ceil(2))
            .map_while(|_| self.pop(Next::Oldest))
            .for_each(sink);
    }

    /// Pushes that are sure to succeed.
    pub(super) fn room(&self) -> usize {
        let older = &self.lanes[self.older()];
        self.lanes[self.newer].free() + if older.is_empty() { older.free() } else { 0 }
    }

    /// A thief. Takes `wanted(len)` of the oldest of one of the victim's structures: one to run,
    /// which it returns with the number of all, the others queued.
    pub(super) fn steal(
        &mut self,
        victim: &WideStealer<T>,
        wanted: impl Fn(usize) -> usize,
    ) -> Option<(T, usize)> {
        let first = self.first;
        let own = &mut self.lanes[self.newer];
        self.first = 1 - first;
        [first, 1 - first]
            .into_iter()
            .find_map(|lane| victim.0[lane].steal_batch_into(own, &wanted))
    }
}

impl<T: Send> WideStealer<T> {
    /// Returns whether it looks empty. Never true while it has a task that was pushed before this
    /// call.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Stealer::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::policy::Cx;

    /// Beside a plain deque, at both ends and with a thief; each refusal is for lack of room in
    /// both structures.
    #[test]
    fn its_order_is_that_of_one_structure() {
        const EACH: usize = 4;
        let mut lane = Wide::new(EACH);
        let mut thief = Wide::new(EACH);
        let mut cx = Cx::new(1);
        let stealer = lane.stealer();
        let mut model = VecDeque::new();
        let mut refused = 0;

        for id in 0..20_000 {
            match cx.below(9) {
                8 if id % 16 == 0 => {
                    let mut half = Vec::new();
                    lane.take_half(|task| half.push(task));
                    assert_eq!(
                        half,
                        model.drain(..model.len().div_ceil(2)).collect::<Vec<_>>()
                    );
                }
                0 => assert_eq!(lane.pop(Next::Newest), model.pop_back()),
                1 | 2 => assert_eq!(lane.pop(Next::Oldest), model.pop_front()),
                3 => {
                    let (first, count) = thief.steal(&stealer, |len| len.div_ceil(2)).unzip();
                    let rest = std::iter::from_fn(|| thief.pop(Next::Oldest));
                    let stolen: Vec<_> = first.into_iter().chain(rest).collect();
                    assert_eq!(stolen.len(), count.unwrap_or(0));
                    assert!(
                        stolen.len() <= EACH / 2
                            && stolen.is_sorted()
                            && stolen.is_empty() == model.is_empty()
                    );
                    model.retain(|task| !stolen.contains(task));
                }
                _ => {
                    let room = lane.room();
                    match lane.push(id) {
                        Ok(()) => model.push_back(id),
                        Err(_) => {
                            assert!(room == 0 && model.len() > EACH);
                            refused += 1;
                        }
                    }
                }
            }

            assert_eq!(
                (lane.len(), stealer.is_empty()),
                (model.len(), model.is_empty())
            );
        }

        assert!(refused > 100, "{refused}");
    }
}
