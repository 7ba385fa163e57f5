//! What an experiment is: its name, its parameters, what may not be combined.

use plainweave_sim::thesis::{Case, Parameter};

use super::parameters::Plan;

/// An experiment of the thesis.
pub(crate) struct Experiment {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) cases: &'static [Case],
    /// Policies of ours that are measured unless others are named.
    pub(super) policies: &'static [&'static str],
    /// Iterations of a repetition, and as published; then how many at the beginning are dropped,
    /// and as published.
    pub(super) iterations: [u32; 2],
    pub(super) dropped: [u32; 2],
    /// Fails if parameters do not go together: the message has an option and its range.
    pub(super) check: fn(&Plan) -> anyhow::Result<()>,
    /// Returns the workers of each pool of ours; none: it is to be a single runtime, which may be
    /// observed.
    pub(super) pools: fn(&Plan, usize) -> Vec<usize>,
    /// Returns the least number of workers.
    pub(super) least_workers: fn(&Plan) -> usize,
    /// Returns why a system other than ours cannot be measured.
    pub(super) lacks: fn(&Plan, &str) -> Option<&'static str>,
}

impl Experiment {
    /// Returns the policies of ours that a case is measured with unless others are named.
    pub(super) fn policies_of(&self, case: &Case) -> &'static [&'static str] {
        if case.policies.is_empty() {
            self.policies
        } else {
            case.policies
        }
    }
}

/// The rows of an experiment that leaves nothing to say.
pub(super) const PLAIN: Experiment = Experiment {
    name: "",
    parameters: &[],
    cases: &[],
    policies: &["fifo", "lifo", "ot-fifo-base", "ot-lifo-base"],
    iterations: [4, 11],
    dropped: [1, 1],
    check: |_| Ok(()),
    pools: |_, _| Vec::new(),
    least_workers: |_| 1,
    lacks: |_, _| None,
};

/// Why peers are not measured where the workload is spread over pools.
pub(super) const NO_POOLS: &str = "pools with schedulers of their own are Plainweave's alone";
