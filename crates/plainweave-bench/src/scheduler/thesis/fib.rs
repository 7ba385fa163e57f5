//! Fibonacci numbers by fibers: each call spawns and joins both of its children.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use plainweave_sim::thesis::{Parameter, fib};

use super::experiment::{Experiment, PLAIN};
use super::ledger::{Executed, shares};
use super::metrics::Figure;
use super::parameters::{Plan, Table};
use crate::scheduler::shim::Shim;

/// The options of `fib`.
#[derive(Debug)]
pub(crate) struct Fib;

impl Table for Fib {
    const NAME: &'static str = "fib";
    const PARAMETERS: &'static [Parameter] = &[fib::N];
}

/// As many threads as calls would be alive at once.
const MOST_ON_THREADS: u64 = 12;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: Fib::NAME,
    parameters: Fib::PARAMETERS,
    cases: fib::CASES,
    iterations: [6, 11],
    lacks: |plan, system| {
        (system == "threads" && plan.count("n") > MOST_ON_THREADS)
            .then_some("a thread for each call: --n at most 12")
    },
    ..PLAIN
};

// It spawns itself, so it must declare that it is `Send`.
#[allow(clippy::manual_async_fn)]
fn fib<S: Shim>(n: u64, calls: Arc<Executed>) -> impl Future<Output = u64> + Send + 'static {
    async move {
        calls.add(S::worker());
        if n < 2 {
            return n;
        }
        let first = S::spawn(fib::<S>(n - 1, calls.clone()));
        let second = S::spawn(fib::<S>(n - 2, calls));
        S::join(first).await + S::join(second).await
    }
}

/// Returns a Fibonacci number, and how many calls it takes.
fn known(n: u64) -> (u64, u64) {
    let (number, next) = (0..n).fold((0, 1), |(a, b), _| (b, a + b));
    (number, 2 * next - 1)
}

pub(super) async fn iterate<S: Shim>(plan: &Plan, workers: usize) -> anyhow::Result<Vec<Figure>> {
    let n = plan.count("n");
    let calls = Arc::new(Executed::new(workers));
    let began = Instant::now();
    let value = fib::<S>(n, calls.clone()).await;
    let time = began.elapsed();
    let executed = calls.by_worker();
    let made = executed.iter().sum::<u64>();

    ensure!(
        (value, made) == known(n),
        "fib({n}) came to {value} in {made} calls, not {:?}",
        known(n)
    );
    let seconds = time.as_secs_f64();
    let figures = [
        ("throughput", made as f64 / seconds),
        ("time_ms", seconds * 1e3),
    ];
    Ok([&figures[..], &shares(&executed)].concat())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_and_calls_are_known() {
        assert_eq!(
            (0..6).map(|n| super::known(n).0).collect::<Vec<_>>(),
            [0, 1, 1, 2, 3, 5]
        );
        assert_eq!(super::known(20), (6765, 21_891));
    }
}
