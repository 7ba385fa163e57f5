//! Fibers' stacks, and in whose cache they are.
//!
//! The lines of words that workers share are metered one by one (`lines`), in caches without an
//! end. A fiber's stack and what else it alone uses is many lines, which leave a real cache again.
//! So stacks are counted as wholes: one is in the cache of the worker that ran it last, until that
//! worker has run [`HELD`] others. A fiber gets a stack when it starts: the one that was freed last
//! on its worker, as in the runtime, else a new one.

use crate::policy::WorkerId;
use crate::task::TaskId;

/// How many others a worker runs until a stack has left its cache: with 100 fibers a `yield` took
/// 75 ns on a CPU with 512 KiB of L2, with 300 93, with 1,000 143, and not more with 10,000.
const HELD: u64 = 300;

/// Where a worker finds the stack of a fiber that it is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In its own cache.
    Here,
    /// In the cache of another worker, or in none.
    Away,
    /// The same, and the fiber begins: nothing of it is in a cache.
    Fresh,
}

/// All stacks of a run.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// What each worker has run.
    runs: Vec<u64>,
    /// The stacks that each worker has freed.
    free: Vec<Vec<usize>>,
    /// Which worker used each stack last, and as which of its runs.
    used: Vec<(WorkerId, u64)>,
    /// By fiber.
    of: Vec<Option<usize>>,
}

impl Stacks {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            runs: vec![0; workers],
            free: vec![Vec::new(); workers],
            used: Vec::new(),
            of: Vec::new(),
        }
    }

    /// Notes that a worker runs a fiber, and returns where its stack was.
    pub(crate) fn runs(&mut self, fiber: TaskId, worker: WorkerId) -> Found {
        self.runs[worker] += 1;
        let run = self.runs[worker];
        if self.of.len() <= fiber {
            self.of.resize(fiber + 1, None);
        }
        let away = if self.of[fiber].is_some() {
            Found::Away
        } else {
            Found::Fresh
        };

        let Some(stack) = self.of[fiber].or_else(|| self.free[worker].pop()) else {
            self.of[fiber] = Some(self.used.len());
            self.used.push((worker, run));
            return away;
        };

        self.of[fiber] = Some(stack);
        let (last, then) = std::mem::replace(&mut self.used[stack], (worker, run));
        if last == worker && run - then <= HELD {
            Found::Here
        } else {
            away
        }
    }

    /// Notes that a fiber has ended on a worker.
    pub(crate) fn ends(&mut self, fiber: TaskId, worker: WorkerId) {
        let stack = self.of[fiber].take();
        self.free[worker].extend(stack);
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, HELD, Stacks};

    #[test]
    fn a_stack_leaves_the_cache_after_so_many_others() {
        let mut stacks = Stacks::new(2);
        assert_eq!(
            [stacks.runs(0, 0), stacks.runs(0, 0)],
            [Found::Fresh, Found::Here]
        );
        for other in 1..=HELD as usize {
            stacks.runs(other, 0);
        }
        assert_eq!(
            [stacks.runs(0, 0), stacks.runs(0, 0)],
            [Found::Away, Found::Here]
        );

        assert_eq!(
            [stacks.runs(0, 1), stacks.runs(0, 1)],
            [Found::Away, Found::Here]
        );
    }

    #[test]
    fn a_fiber_gets_the_stack_that_was_freed_last() {
        let mut stacks = Stacks::new(1);
        stacks.runs(0, 0);
        stacks.ends(0, 0);
        assert_eq!(
            [stacks.runs(1, 0), stacks.runs(2, 0)],
            [Found::Here, Found::Fresh]
        );

        // Numbers of fibers are used again.
        stacks.ends(1, 0);
        assert_eq!(stacks.runs(1, 0), Found::Here);
    }
}
