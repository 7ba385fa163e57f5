//! All experiments, and the one place that knows which code runs which.

use anyhow::Context;

use super::experiment::Experiment;
use super::metrics::Figure;
use super::parameters::Plan;
use super::room::Spread;
use super::{bimodal, cache_effects, creation, fib, mixer, options, overload, packets};
use crate::scheduler::shim::Shim;

const ALL: [&Experiment; 8] = [
    &packets::EXPERIMENT,
    &cache_effects::EXPERIMENT,
    &bimodal::EXPERIMENT,
    &mixer::EXPERIMENT,
    &options::EXPERIMENT,
    &fib::EXPERIMENT,
    &overload::EXPERIMENT,
    &creation::EXPERIMENT,
];

/// # Errors
/// There is no such experiment.
pub(super) fn named(name: &str) -> anyhow::Result<&'static Experiment> {
    let found = ALL.into_iter().find(|experiment| experiment.name == name);
    found.with_context(|| format!("no experiment is called '{name}'"))
}

/// Runs one iteration on a system's main thread.
///
/// # Errors
/// What it was to do is not what has been done.
pub(super) async fn run<S: Shim>(
    experiment: &Experiment,
    plan: Plan,
    workers: usize,
    pools: Vec<S::Pool>,
) -> anyhow::Result<Vec<Figure>> {
    let sizes = (experiment.pools)(&plan, workers);
    let spread = |pools| Spread::<S>::new(pools, &sizes);
    let (outcome, more) = match experiment.name {
        "packets" => (packets::iterate::<S>(&plan, workers).await?, Vec::new()),
        "cache-effects" => (
            cache_effects::iterate::<S>(&plan, workers).await?,
            Vec::new(),
        ),
        "bimodal" => (
            bimodal::iterate::<S>(&plan, workers, spread(pools)).await?,
            Vec::new(),
        ),
        "mixer" => mixer::iterate::<S>(&plan, workers, spread(pools)).await?,
        "options" => (options::iterate::<S>(&plan, workers).await?, Vec::new()),
        "fib" => return fib::iterate::<S>(&plan, workers).await,
        "overload-stages" => overload::iterate::<S>(&plan, workers, pools).await?,
        "creation" => creation::iterate::<S>(&plan, workers).await?,
        other => unreachable!("{other} is none of them"),
    };

    Ok([outcome.figures(), more].concat())
}
