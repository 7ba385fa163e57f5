//! Whom an idle worker steals from, and how much.
//!
//! Published variants (OCaml schedulers' thesis): a uniform random victim, with half of its tasks,
//! rounded up; the draw there is biased, and kept as [`Victim::Biased`]; the nearest k on a ring,
//! with k of 13 and 20 the clear winners on 110 workers; the same cache group first; one task only;
//! nothing from victims with fewer than 10 tasks ([`Amount::PassOver`]).
//!
//! One difference from the sources: their workers never sleep, so a thief that looks at some
//! workers only comes back for ever. Ours sleep. So a search that found nothing, followed at once
//! by another one, looks everywhere and passes nobody over: nobody sleeps beside work that it could
//! take. [`Victim::Only`] is the published rule, without that.

use crate::policy::{Cx, Topology, WorkerId};

/// In which order a thief looks at the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// All, from a random one on.
    Uniform,
    /// The `k` nearest on the ring of workers, half of them on either side, from a random one of
    /// them on.
    Nearest {
        /// At least 1.
        k: usize,
    },
    /// The same, and never any other: a worker that sees work elsewhere searches on, and does not
    /// sleep.
    Only {
        /// At least 1.
        k: usize,
    },
    /// Those of the same cache group, from a random one on, then all.
    Group,
    /// As many draws as there are workers, by the published rule: a number below `workers - 1`, and
    /// the thief's own means the next one. So only the last worker but one ever steals from the
    /// last.
    Biased,
}

/// How much a thief takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Half, rounded up.
    Half,
    /// One task.
    One,
    /// Half, but at least `n` if there are as many.
    AtLeast {
        /// At least 1.
        n: usize,
    },
    /// Half, but a victim with fewer than `n` tasks is passed over for another, except with a
    /// chance of `percent`. (OCaml schedulers' thesis: 10, and a small chance.)
    PassOver {
        /// At least 1.
        n: usize,
        /// 0 to 100.
        percent: u8,
    },
}

impl Amount {
    /// Returns the rule for one attempt. `insist`: the thief passes nobody over.
    #[inline]
    pub(super) fn attempt(self, cx: &mut Cx, insist: bool) -> Self {
        match self {
            Amount::PassOver { percent, .. } if insist || cx.below(100) < usize::from(percent) => {
                Amount::Half
            }
            rule => rule,
        }
    }

    /// Returns how many of `len` tasks, which are some; 0: none, the victim is passed over.
    #[inline]
    pub(super) fn of(self, len: usize) -> usize {
        match self {
            Amount::Half => len.div_ceil(2),
            Amount::One => 1,
            Amount::AtLeast { n } => len.div_ceil(2).max(n).min(len),
            Amount::PassOver { n, .. } if len < n => 0,
            Amount::PassOver { .. } => len.div_ceil(2),
        }
    }
}

impl Victim {
    /// Tries victims until one yields something. `everywhere`: after those that the rule prefers,
    /// all others, if it allows that.
    pub(super) fn search<R>(
        self,
        cx: &mut Cx,
        thief: WorkerId,
        topology: &Topology,
        everywhere: bool,
        mut steal: impl FnMut(&mut Cx, WorkerId) -> Option<R>,
    ) -> Option<R> {
        let workers = topology.workers;
        let near = match self {
            Victim::Uniform => None,
            Victim::Nearest { k } | Victim::Only { k } => {
                let k = k.min(workers - 1);
                let first = cx.below(k);
                (0..k).find_map(|i| steal(cx, neighbour(thief, (first + i) % k, workers)))
            }
            Victim::Group => {
                let group = topology.group_of(thief);
                from_random(cx, group.start, group.len(), thief, &mut steal)
            }
            Victim::Biased => (0..workers).find_map(|_| {
                let draw = cx.below(workers - 1);
                steal(cx, if draw == thief { draw + 1 } else { draw })
            }),
        };

        let all = match self {
            Victim::Uniform | Victim::Group => true,
            Victim::Nearest { .. } | Victim::Biased => everywhere,
            Victim::Only { .. } => false,
        };

        near.or_else(|| {
            if all {
                from_random(cx, 0, workers, thief, &mut steal)
            } else {
                None
            }
        })
    }
}

/// The `i`-th nearest on the ring: one after, one before, two after, ...
fn neighbour(worker: WorkerId, i: usize, workers: usize) -> WorkerId {
    let step = i / 2 + 1;
    if i.is_multiple_of(2) {
        (worker + step) % workers
    } else {
        (worker + workers - step) % workers
    }
}

/// `len` workers from `start` on, in turn from a random one, without the thief.
fn from_random<R>(
    cx: &mut Cx,
    start: WorkerId,
    len: usize,
    thief: WorkerId,
    steal: &mut impl FnMut(&mut Cx, WorkerId) -> Option<R>,
) -> Option<R> {
    let first = cx.below(len);
    let turn = (first..len).chain(0..first).map(|i| start + i);
    turn.filter(|victim| *victim != thief)
        .find_map(|victim| steal(cx, victim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(
        victim: Victim,
        thief: WorkerId,
        topology: &Topology,
        everywhere: bool,
    ) -> Vec<WorkerId> {
        let mut seen = Vec::new();
        let found: Option<()> =
            victim.search(&mut Cx::new(9), thief, topology, everywhere, |_, v| {
                seen.push(v);
                None
            });

        assert!(found.is_none() && !seen.contains(&thief));
        seen
    }

    #[test]
    fn each_rule_looks_where_it_says() {
        let eight = Topology {
            group: 4,
            ..Topology::flat(8)
        };

        let sorted = |mut v: Vec<_>| {
            v.sort_unstable();
            v
        };

        assert_eq!(
            sorted(seen(Victim::Uniform, 3, &eight, false)),
            [0, 1, 2, 4, 5, 6, 7]
        );
        assert_eq!(
            sorted(seen(Victim::Nearest { k: 3 }, 0, &eight, false)),
            [1, 2, 7]
        );
        assert_eq!(
            sorted(seen(Victim::Nearest { k: 99 }, 0, &eight, false)),
            [1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!(seen(Victim::Nearest { k: 3 }, 0, &eight, true).len(), 3 + 7);
        assert_eq!(
            sorted(seen(Victim::Only { k: 3 }, 0, &eight, true)),
            [1, 2, 7]
        );
        assert_eq!(
            sorted(seen(Victim::Group, 6, &eight, false)[..3].to_vec()),
            [4, 5, 7]
        );
        assert_eq!(seen(Victim::Group, 6, &eight, false).len(), 3 + 7);
    }

    #[test]
    fn the_published_draw_spares_the_last_worker() {
        let four = Topology::flat(4);
        for thief in [0, 1, 3] {
            assert!((0..50).all(|_| !seen(Victim::Biased, thief, &four, false).contains(&3)));
        }
        let mut cx = Cx::new(1);
        let mut hits = 0;
        let _: Option<()> = (0..100).find_map(|_| {
            Victim::Biased.search(&mut cx, 2, &four, false, |_, v| {
                hits += usize::from(v == 3);
                None
            })
        });

        assert!(hits > 50, "{hits} of 400");
    }

    #[test]
    fn amounts() {
        assert_eq!([1, 2, 5].map(|n| Amount::Half.of(n)), [1, 1, 3]);
        assert_eq!(Amount::One.of(9), 1);
        assert_eq!(
            [3, 12, 40].map(|n| Amount::AtLeast { n: 10 }.of(n)),
            [3, 10, 20]
        );
        assert_eq!(
            [3, 9, 10, 41].map(|n| Amount::PassOver { n: 10, percent: 0 }.of(n)),
            [0, 0, 5, 21]
        );
    }
}
