//! A search for a policy: which composition of the family `stealing` serves one scenario best.
//!
//! Best is the highest throughput on the largest of the scenario's machines, with two promises: it
//! is no lower than on any smaller machine, and p99.9 there is at most [`TAIL`] times that of the
//! reference, the scenario's policy. A policy that breaks a promise counts for less, the more it
//! breaks it, so that the search finds its way to those that keep both.
//!
//! **How.** Hill climbing: for each parameter in turn, in random order, each other value takes the
//! place of the present one, and the best stays; a pass that changes nothing ends the climb. The
//! first climb begins at the family's defaults, the following ones at random points. A candidate
//! runs on the largest machine first, and on no other once it cannot win any more; a run that takes
//! twice as long as the reference's is given up.
//!
//! The seed decides everything, so that a search can be repeated.

use std::collections::HashMap;

use crate::engine::{Setup, simulate};
use crate::figures::{Outcome, at, sorted};
use crate::policy::{Choice, Cx};

/// What p99.9 may be at most, as a multiple of the reference's.
pub(crate) const TAIL: f64 = 1.5;

/// What a run may take at most, as a multiple of the reference's time.
const SLOWDOWN: u64 = 2;

/// What is searched: parameters of the family `stealing`, each with its values. The first is the
/// family's own.
const SPACE: &[(&str, &[&str])] = &[
    (
        "order",
        &[
            "fifo",
            "lifo",
            "stochastic:50",
            "alternate:2",
            "reverse:128",
        ],
    ),
    ("slot", &["0", "3"]),
    ("slot-for", &["woken", "all"]),
    ("capacity", &["256", "16", "32", "64", "128", "512", "1024"]),
    ("poll", &["61", "7", "31", "127"]),
    (
        "victim",
        &[
            "uniform", "near:2", "near:4", "near:8", "near:13", "near:20", "group", "biased",
        ],
    ),
    (
        "amount",
        &[
            "half",
            "one",
            "atleast:2",
            "atleast:4",
            "atleast:8",
            "passover:2:5",
            "passover:4:5",
            "passover:10:5",
        ],
    ),
    (
        "full",
        &[
            "spill",
            "overflow",
            "overflow:5",
            "grow",
            "horizontal",
            "request",
            "sticky",
            "announce",
        ],
    ),
    ("spin", &["0", "20"]),
    (
        "publish",
        &["1", "2", "3", "4", "6", "8", "12", "16", "24", "32", "64"],
    ),
    ("shards", &["1", "3", "5", "16"]),
    ("shared", &["mpmc", "locked"]),
    ("yields", &["local", "shared"]),
];

/// A point of the space: for each parameter the place of its value.
type Place = [usize; SPACE.len()];

/// Returns the policy as text, without what the family has anyway.
fn text(place: &Place) -> String {
    let changed = SPACE.iter().zip(place).filter(|(_, at)| **at > 0);
    let settings: Vec<_> = changed
        .map(|((key, values), at)| format!("{key}={}", values[*at]))
        .collect();
    if settings.is_empty() {
        "fifo".to_owned()
    } else {
        format!("fifo:{}", settings.join(","))
    }
}

/// What a policy did on each of the machines, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The policy, as text.
    pub(crate) policy: String,
    /// Operations a second: medians of the repetitions.
    pub(crate) throughput: Vec<f64>,
    /// The tail: p99.9, in microseconds, likewise.
    pub(crate) tail: Vec<f64>,
}

impl Found {
    /// Returns the throughput on the last machine, the largest, to the highest on any.
    pub(crate) fn kept(&self) -> f64 {
        self.last()
            / self
                .throughput
                .iter()
                .copied()
                .fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Returns the tail on the last machine to that of another policy.
    pub(crate) fn tail_to(&self, other: &Self) -> f64 {
        self.tail[self.tail.len() - 1] / other.tail[other.tail.len() - 1].max(f64::MIN_POSITIVE)
    }

    /// Returns whether it keeps both promises.
    pub(crate) fn keeps_promises(&self, reference: &Self) -> bool {
        self.kept() >= 1.0 && self.tail_to(reference) <= TAIL
    }

    fn last(&self) -> f64 {
        self.throughput[self.throughput.len() - 1]
    }

    /// Returns what the search compares; without the smaller machines, what it can be at most.
    fn score(&self, reference: &Self) -> f64 {
        self.last() * self.kept().min(1.0).powi(4) * (TAIL / self.tail_to(reference)).min(1.0)
    }
}

/// What is known of a candidate's score.
#[derive(Clone, Copy, Debug)]
enum Score {
    Is(f64),
    /// It did not run on all machines, as it could not win.
    AtMost(f64),
    /// A run was given up, or a checker objected.
    None,
}

/// A search that is under way.
pub(crate) struct Search {
    /// For each machine the repetitions, with any policy.
    machines: Vec<Vec<Setup>>,
    reference: Found,
    /// What was tried.
    tried: HashMap<String, Score>,
    /// What was run on all machines.
    found: Vec<Found>,
    cx: Cx,
    candidates: usize,
}

impl Search {
    /// Runs the reference, the policy of `machines`; `candidates` policies are to be tried.
    ///
    /// # Errors
    /// A checker objects to the reference.
    pub(crate) fn new(
        machines: Vec<Vec<Setup>>,
        candidates: usize,
        seed: u64,
    ) -> Result<Self, String> {
        // All of them, before hours are spent: a value that the family no longer knows would be a
        // candidate that never wins.
        for (key, (_, values)) in SPACE.iter().enumerate() {
            for value in 0..values.len() {
                let policy = text(&with(Place::default(), key, value));
                Choice::parse(&policy)
                    .map_err(|message| format!("a fault of the search's table: {message}"))?;
            }
        }
        let policy = machines[0][0].policy.clone();
        let mut machines = machines;
        let mut throughput = Vec::new();
        let mut tail = Vec::new();
        for runs in &mut machines {
            let outcomes = runs.iter().map(simulate).collect::<Result<Vec<_>, _>>()?;
            throughput.push(median(&outcomes, Outcome::throughput));
            tail.push(median(&outcomes, tail_of));
            let slowest = outcomes
                .iter()
                .map(|outcome| outcome.nanos)
                .max()
                .unwrap_or(0);
            for setup in runs {
                // Of each machine by itself: runs on small ones take longer.
                setup.limit = Some(slowest.saturating_mul(SLOWDOWN));
            }
        }
        let reference = Found {
            policy,
            throughput,
            tail,
        };
        Ok(Self {
            machines,
            reference,
            tried: HashMap::new(),
            found: Vec::new(),
            cx: Cx::new(seed),
            candidates,
        })
    }

    /// Returns what the scenario's policy did.
    pub(crate) fn reference(&self) -> &Found {
        &self.reference
    }

    /// Tries the candidates; tells `progress` how many were tried, and of each that is the best so
    /// far. Returns those that were run on all machines, the best first.
    pub(crate) fn run(mut self, mut progress: impl FnMut(usize, Option<&Found>)) -> Vec<Found> {
        let mut start = Place::default();
        while self.tried.len() < self.candidates {
            let before = self.tried.len();
            self.climb(start, &mut progress);
            start = random(&mut self.cx);
            // A climb that has tried nothing new counts too: the space may be exhausted.
            self.candidates -= usize::from(self.tried.len() == before);
        }

        self.found.sort_by(|a, b| {
            b.score(&self.reference)
                .total_cmp(&a.score(&self.reference))
        });
        self.found
    }

    fn climb(&mut self, start: Place, progress: &mut impl FnMut(usize, Option<&Found>)) {
        let mut here = start;
        let mut best = self.beats(&here, 0.0, progress).unwrap_or(0.0);
        loop {
            let before = here;
            for key in self.shuffled(SPACE.len()) {
                for value in self.shuffled(SPACE[key].1.len()) {
                    let there = with(here, key, value);
                    if self.tried.len() >= self.candidates {
                        return;
                    }
                    if let Some(score) = self.beats(&there, best, progress) {
                        (here, best) = (there, score);
                    }
                }
            }

            if here == before {
                return;
            }
        }
    }

    /// Returns the score of a point, if it is above `least`.
    fn beats(
        &mut self,
        place: &Place,
        least: f64,
        progress: &mut impl FnMut(usize, Option<&Found>),
    ) -> Option<f64> {
        let policy = text(place);
        let known = self.tried.get(&policy).copied();
        // A bound that was enough once may not be any more, now that the best is another.
        let score = match known {
            Some(Score::AtMost(most)) if most > least => self.measure(&policy, least),
            Some(known) => known,
            None => self.measure(&policy, least),
        };

        if known.is_none() {
            progress(
                self.tried.len() + 1,
                self.found
                    .last()
                    .filter(|found| found.policy == policy && self.is_best(found)),
            );
        }

        self.tried.insert(policy, score);
        if let Score::Is(score) = score {
            Some(score).filter(|score| *score > least)
        } else {
            None
        }
    }

    fn is_best(&self, found: &Found) -> bool {
        let score = found.score(&self.reference);
        self.found
            .iter()
            .all(|other| other.policy == found.policy || score > other.score(&self.reference))
    }

    /// Runs a policy on the largest machine, and on the others as long as it could be above
    /// `least`.
    fn measure(&mut self, policy: &str, least: f64) -> Score {
        let mut found = Found {
            policy: policy.to_owned(),
            throughput: Vec::new(),
            tail: Vec::new(),
        };

        // The largest first: it decides, and most candidates need no other.
        for runs in self.machines.iter().rev() {
            let setups = runs.iter().map(|setup| Setup {
                policy: policy.to_owned(),
                ..setup.clone()
            });

            let Some(outcomes) = setups
                .map(|setup| simulate(&setup).ok())
                .collect::<Option<Vec<_>>>()
            else {
                return Score::None;
            };

            // The lists are in the order of the machines.
            found
                .throughput
                .insert(0, median(&outcomes, Outcome::throughput));
            found.tail.insert(0, median(&outcomes, tail_of));
            let most = found.score(&self.reference);
            if most <= least && found.throughput.len() < self.machines.len() {
                return Score::AtMost(most);
            }
        }

        let score = found.score(&self.reference);
        self.found.push(found);
        Score::Is(score)
    }

    fn shuffled(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..len).collect();
        for i in (1..len).rev() {
            order.swap(i, self.cx.below(i + 1));
        }
        order
    }
}

/// Gives one parameter another value, and others that do not go with it the family's own, as far as
/// that is needed.
fn with(mut place: Place, key: usize, value: usize) -> Place {
    place[key] = value;
    for other in (0..SPACE.len()).filter(|other| *other != key) {
        if Choice::parse(&text(&place)).is_ok() {
            break;
        }
        // One at a time, so that what can stay of the point stays.
        place[other] = 0;
    }
    place
}

/// Draws a point of the space, parameter by parameter.
fn random(cx: &mut Cx) -> Place {
    let keys = 0..SPACE.len();
    keys.fold(Place::default(), |place, key| {
        with(place, key, cx.below(SPACE[key].1.len()))
    })
}

fn tail_of(outcome: &Outcome) -> f64 {
    outcome.latency_at(0.999)
}

fn median(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    at(&sorted(outcomes.iter().map(of)), 0.5)
}
