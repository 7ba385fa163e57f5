//! Option pricing: binomial trees, a task for each time step, which schedules the next.
//!
//! Most trees are shallow, one in some hundred is deep: what matters is when 99 of 100 have a
//! price. With the published parameters a shallow tree's price is exactly 0 (the call never pays),
//! which checks little; `set=known` prices a call at the money, which must come near the
//! Black-Scholes price.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use plainweave_sim::thesis::{Parameter, options};

use super::experiment::{Experiment, PLAIN};
use super::ledger::{Ledger, Outcome};
use super::parameters::{Plan, Table, in_flight};
use super::room::Room;
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// The options of `options`.
#[derive(Debug)]
pub(crate) struct Options;

impl Table for Options {
    const NAME: &'static str = "options";
    const PARAMETERS: &'static [Parameter] = &[
        options::OPTIONS,
        options::DEPTH,
        options::DEEP,
        options::DEEP_IN,
        Parameter::word(
            "set",
            &["published", "known"],
            "The call's parameters: as published, or at the money",
        ),
        in_flight("Options under way at most; 0: no bound, but 128 on threads, 10,000 on may"),
    ];
}

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Options::NAME,
    parameters: Options::PARAMETERS,
    cases: options::CASES,
    ..PLAIN
};

/// A European call.
#[derive(Clone, Copy)]
struct Call {
    spot: f64,
    strike: f64,
    sigma: f64,
    rate: f64,
    /// Black-Scholes.
    price: f64,
}

const PUBLISHED: Call = Call {
    spot: 100.0,
    strike: 110.0,
    sigma: 0.02,
    rate: 0.01,
    price: 4.450_130_377e-6,
};
const KNOWN: Call = Call {
    spot: 100.0,
    strike: 100.0,
    sigma: 0.2,
    rate: 0.05,
    price: 10.450_583_572,
};

/// A tree over one year, folded step by step from its leaves.
#[derive(Clone)]
pub(crate) struct Tree {
    values: Vec<f64>,
    /// Discounted probabilities of a step up and a step down.
    up: f64,
    down: f64,
}

impl Tree {
    /// Makes one of `depth` time steps for the published call.
    pub(crate) fn published(depth: u64) -> Self {
        Self::new(PUBLISHED, depth)
    }

    fn new(call: Call, depth: u64) -> Self {
        let step = 1.0 / depth as f64;
        let factor = (call.sigma * step.sqrt()).exp();
        let discount = (-call.rate * step).exp();
        let share = (1.0 / discount - 1.0 / factor) / (factor - 1.0 / factor);
        let leaf = |downs: u64| {
            (call.spot * factor.powi(depth as i32 - 2 * downs as i32) - call.strike).max(0.0)
        };

        Self {
            values: (0..=depth).map(leaf).collect(),
            up: discount * share,
            down: discount * (1.0 - share),
        }
    }

    /// Folds one time step. True: it was the last.
    pub(crate) fn fold(&mut self) -> bool {
        for i in 1..self.values.len() {
            self.values[i - 1] = self.up * self.values[i - 1] + self.down * self.values[i];
        }
        self.values.pop();
        self.values.len() <= 1
    }

    fn price(&self) -> f64 {
        self.values[0]
    }
}

/// Folds a tree without a scheduler, and checks the price: trees come near Black-Scholes by their
/// depth.
fn reference(call: Call, depth: u64) -> anyhow::Result<f64> {
    let mut tree = Tree::new(call, depth);
    while !tree.fold() {}
    let price = tree.price();
    let known = call.price;
    let tolerance = call.spot * call.sigma / depth as f64;
    ensure!(
        (price - known).abs() <= tolerance,
        "{depth} steps price to {price}, which is not {known}"
    );

    Ok(price)
}

/// What the options of an iteration share.
struct Shared<S: Shim> {
    call: Call,
    /// Steps and price of the shallow and the deep ones.
    trees: [(u64, f64); 2],
    began: Instant,
    room: Room<S>,
    ledger: Ledger,
}

/// A time step, which schedules the next.
// It spawns itself, so it must declare that it is `Send`.
#[allow(clippy::manual_async_fn)]
fn step<S: Shim>(
    mut tree: Tree,
    price: f64,
    shared: Arc<Shared<S>>,
) -> impl Future<Output = ()> + Send + 'static {
    async move {
        if !tree.fold() {
            drop(S::spawn(step::<S>(tree, price, shared)));
            return;
        }

        // The same operations in the same order come to the same bits.
        let right = tree.price().to_bits() == price.to_bits();
        shared.ledger.record(S::worker(), shared.began, right);
        shared.room.leave();
    }
}

/// An option's first task.
async fn begin<S: Shim>(deep: bool, shared: Arc<Shared<S>>) {
    let (depth, price) = shared.trees[usize::from(deep)];
    let tree = Tree::new(shared.call, depth);
    drop(S::spawn(step::<S>(tree, price, shared)));
}

pub(super) async fn iterate<S: Shim>(plan: &Plan, workers: usize) -> anyhow::Result<Outcome> {
    let call = if plan.word("set") == "known" {
        KNOWN
    } else {
        PUBLISHED
    };

    let tree = |depth: u64| anyhow::Ok((depth, reference(call, depth)?));
    let trees = [tree(plan.count("depth"))?, tree(plan.count("deep"))?];
    let room = Room::new(plan.count("in-flight"));
    let ledger = Ledger::new(workers);
    let shared = Arc::new(Shared::<S> {
        call,
        trees,
        began: Instant::now(),
        room,
        ledger,
    });

    let options = plan.count("options");
    let one_in = plan.count("deep-in");
    let mut random = Random::new(0);

    for _ in 0..options {
        shared.room.enter().await;
        let deep = random.below(one_in as usize) == 0;
        drop(S::spawn(begin(deep, shared.clone())));
    }

    shared.ledger.complete::<S>(options).await;
    shared.ledger.outcome(shared.began, options, "options")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_the_known_ones() {
        assert_eq!(reference(PUBLISHED, 20).unwrap(), 0.0);
        assert!((reference(PUBLISHED, 1000).unwrap() - 4.251_551_75e-6).abs() < 1e-12);
        assert!((reference(KNOWN, 20).unwrap() - 10.351_260_19).abs() < 1e-7);
        assert!((reference(KNOWN, 1000).unwrap() - 10.448_584_10).abs() < 1e-7);

        assert!(
            reference(
                Call {
                    price: 11.0,
                    ..KNOWN
                },
                1000
            )
            .is_err()
        );
    }
}
