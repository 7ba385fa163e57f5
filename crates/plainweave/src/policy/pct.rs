//! Who goes on in a test, by priorities that are drawn: PCT, of Burckhardt, Kothari, Musuvathi and
//! Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS
//! 2010).
//!
//! Each task draws a priority when it first becomes ready, and of those that are ready the highest
//! runs. At `depth - 1` steps, which are drawn too, the one whose turn it is gets a priority below
//! all of these. A fault that takes `depth` orderings among n tasks in k steps is found by one run
//! in `n * k^(depth-1)` at least, however many steps lie between them; a draw at each step may have
//! to go right many times in a row.
//!
//! Three things differ from the paper. How many steps a run will have is not known before, so an
//! octave is drawn first, and a step in it, which costs the bound a factor of their number. A task
//! that yields because it has nothing to do goes below all others. And priorities hold for the first
//! `steps` steps only: then each step is a draw, or fibers that wait for another in a loop
//! would keep the worker for ever.

use std::collections::VecDeque;

use super::{Cx, Nanos, Task};

/// Where the priorities lie that tasks draw. 0 is that of a task which has none.
const DRAWN: u64 = 1 << 32;
/// Below them those that changes give, and from here downwards those of tasks that have given way.
const CHANGED: u64 = 1 << 31;

/// The priorities of one worker's tasks, which are their stamps.
pub(super) struct Priorities {
    /// The steps at which the highest goes down, and to where; the next one last.
    changes: Vec<(u64, Nanos)>,
    /// Steps so far, and how many there are.
    step: u64,
    steps: u64,
    /// The last that was given to a task which gave way.
    floor: Nanos,
}

impl Priorities {
    /// Draws `depth - 1` changes within the first `steps` steps.
    pub(super) fn draw(cx: &mut Cx, depth: u32, steps: u32) -> Self {
        let octaves = steps.ilog2().max(1) as usize;
        let mut changes: Vec<(u64, Nanos)> = (1..u64::from(depth))
            .map(|nth| {
                let start = 1 << cx.below(octaves);
                ((start + cx.below(start)) as u64, CHANGED + nth)
            })
            .collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            changes,
            step: 0,
            steps: u64::from(steps),
            floor: CHANGED,
        }
    }

    /// Puts a task below all that have not given way since it did.
    pub(super) fn give_way(&mut self, task: &impl Task) {
        // As often as there are steps at most, so it stays above 0.
        if self.step < self.steps {
            self.floor -= 1;
            task.set_stamp(self.floor);
        }
    }

    /// Returns the place of the task that runs next, of one at least; none if the priorities do not
    /// hold any more.
    pub(super) fn choose<T: Task>(&mut self, cx: &mut Cx, tasks: &VecDeque<T>) -> Option<usize> {
        if self.step == self.steps {
            return None;
        }
        for fresh in tasks.iter().filter(|task| task.stamp() == 0) {
            fresh.set_stamp(DRAWN + cx.below(CHANGED as usize) as u64);
        }

        self.step += 1;
        while let Some((_, low)) = self.changes.pop_if(|(at, _)| *at <= self.step) {
            tasks[highest(tasks)].set_stamp(low);
        }
        Some(highest(tasks))
    }
}

fn highest<T: Task>(tasks: &VecDeque<T>) -> usize {
    let at = (0..tasks.len()).max_by_key(|at| tasks[*at].stamp());
    at.expect("a task")
}
