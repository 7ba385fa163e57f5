//! The workloads of the OCaml schedulers' thesis, on the real runtime and on its peers.
//!
//! Each workload is written once over [`Shim`](crate::scheduler::shim::Shim) and checks in every iteration
//! what it was to do. Its parameters are a table (`parameters`), of which its options are made;
//! published combinations are cases. A repetition is a process of its own (`child`) of as many
//! iterations as published, the first of which are dropped: the rows' medians and quartiles are
//! over the others. What an observer sees comes from a repetition besides, which it slows. Each
//! repetition is a turn, kept as soon as it has ended, so that `--resume` goes on after an
//! interruption.

mod bimodal; // Bimodal: packets that pass through a chain of tasks, few of which sleep for long.
// Cache effects: each packet is copied, and then read by a chain of tasks, one scheduling the next.
mod cache_effects;
mod child; // A repetition, in a process of its own.
// Creation: how fast one fiber creates others, and how long it takes until these have ended.
mod creation;
mod experiment; // What an experiment is: its name, its parameters, what may not be combined.
mod fib; // Fibonacci numbers by fibers: each call spawns and joins both of its children.
pub(crate) mod ledger; // What was done, by worker: latencies, counts, and what of it was wrong.
mod metrics; // The figures and their units.
// An audio mixer: conferences whose legs send a frame every 20 ms, which their mixer adds up and
// sends back to each.
mod mixer;
// Option pricing: binomial trees, a task for each time step, which schedules the next.
pub(crate) mod options;
mod overload; // Stages through overload.
// Packets: a fiber for each, which searches a copy of a template for line ends.
pub(crate) mod packets;
mod parameters; // The parameters of an experiment as a table.
mod room; // Where fibers are, and how many.
mod systems; // The systems: how a repetition on each is started.
mod workloads; // All experiments, and the one place that knows which code runs which.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use plainweave_sim::thesis::Case;

use crate::harness::c2c;
use crate::harness::experiment::{Cases, Common};
use crate::harness::findings::Findings;
use crate::harness::interrupt;
use crate::harness::names;
use crate::harness::report::{self, Failures};
use crate::harness::sample::Origin;
use crate::harness::turns::Turns;
pub(crate) use bimodal::Bimodal;
pub(crate) use cache_effects::CacheEffects;
pub(crate) use child::{ChildFlags, run as run_child};
pub(crate) use creation::Creation;
use experiment::Experiment;
pub(crate) use fib::Fib;
pub(crate) use mixer::Mixer;
pub(crate) use options::Options as OptionPricing;
pub(crate) use overload::OverloadStages;
pub(crate) use packets::Packets;
use parameters::{Options, Plan, Table};
pub(crate) use systems::BOUNDS;
use systems::{Length, SYSTEMS, System};

/// What all of these experiments take.
#[derive(Args, Debug)]
pub(crate) struct Flags<T: Table> {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Systems to measure
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "plainweave,tokio,go,threads,may"
    )]
    systems: Vec<String>,

    /// Numbers of workers
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,

    /// Plainweave's scheduling policies, or `all` that have a name; a parameter is added after a
    /// colon [default: those of the case]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    policy: Vec<String>,

    /// Plainweave's modes: never, before-start or anytime, a slash, and shared or own (thread-local
    /// storage)
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "before-start/shared"
    )]
    modes: Vec<String>,

    /// Iterations of a repetition, in one process; the first are dropped (`--dropped`) [default: as
    /// many as end within minutes; as published with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    iterations: Option<u32>,

    /// Iterations that are dropped, fewer than there are [default: 1; 3 of mixer with --full]
    #[arg(long, value_name = "N")]
    dropped: Option<u32>,

    /// Take what 2 workers do however far apart the CPUs are
    #[arg(long)]
    far: bool,

    /// The published sizes
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    options: Options<T>,

    /// Goes on with a run that was interrupted: what it has measured with the same flags is not
    /// measured again
    #[arg(long)]
    resume: bool,
}

/// Runs the experiment that has these options.
pub(crate) fn run<T: Table>(flags: &Flags<T>) -> anyhow::Result<()> {
    let experiment = workloads::named(T::NAME)?;
    if flags.common.list {
        experiment
            .cases
            .iter()
            .for_each(|case| report::say(&format!("{:<12} {}", case.name, case.summary)));
        return Ok(());
    }

    let mut run = Run {
        experiment,
        flags,
        length: length(experiment, flags)?,
        findings: Findings::of(Origin::new(experiment.name)),
    };

    flags
        .cases
        .check(experiment.cases.iter().map(|case| case.name))?;
    names::check("system", &flags.systems, SYSTEMS.into_iter())?;
    let chosen = |case: &&Case| flags.cases.has(case.name);
    let cases: Vec<_> = experiment.cases.iter().filter(chosen).collect();
    let mut plans = Vec::new();

    for case in cases {
        for plan in flags.options.plans(case, flags.full)? {
            // All plans before the first run: a wrong parameter of the last should not cost the
            // others.
            (experiment.check)(&plan)?;
            plans.push((case, plan));
        }
    }

    // Built once: programs in other languages take a minute.
    let peers = run.peers();
    let mut failures = Failures::begin()?;
    let mut jobs = Vec::new();
    for (case, plan) in &plans {
        jobs.push((plan, [run.ours(case)?, peers.clone()].concat()));
    }

    // Ours have a second one, with an observer.
    let all: usize = jobs
        .iter()
        .flat_map(|(_, systems)| systems)
        .map(|system| 1 + usize::from(system.is_ours()))
        .sum();
    let out = flags.common.folder();
    let same = flags.same(run.length);
    let mut turns = Turns::begin(
        experiment.name,
        &out,
        &same,
        flags.resume,
        all * flags.workers.len(),
    )?;

    // Systems are innermost: those that are compared run within the same minutes.
    for (plan, systems) in &jobs {
        for workers in flags.workers.iter().map(|n| usize::from(*n)) {
            for system in systems {
                let what = format!("{}, {}, {workers} workers", system.name, plan.title);
                failures.catch(&what, || run.measure(&mut turns, plan, system, workers));
            }
        }
    }

    let Run {
        length, findings, ..
    } = run;
    // With nothing measured the first reason is likely that of all.
    let why = findings
        .absent()
        .first()
        .map_or(String::new(), |(what, why)| format!(": {what}: {why}"));
    ensure!(!findings.rows.is_empty(), "nothing could be measured{why}");
    let mut parameters = vec![
        (
            "iterations",
            format!(
                "{} in a process, {} of them dropped",
                length.iterations, length.dropped
            ),
        ),
        (
            "random numbers",
            "each has a seed; the same on all systems of this process's kind".to_owned(),
        ),
        (
            "scale",
            "measured on this machine; what needs more cores is left to the simulator".to_owned(),
        ),
        (
            "near",
            format!(
                "with 2 workers: core to core at most {} ns before and after",
                c2c::NEAR_NS
            ),
        ),
    ];
    parameters.extend(plans.iter().map(|(_, plan)| {
        (
            "case",
            format!("{}: {}", plan.title, plan.texts().join(" ")),
        )
    }));

    failures.publish(findings.report(parameters), Some(&out), None)
}

/// Returns how long a repetition is.
fn length<T: Table>(experiment: &Experiment, flags: &Flags<T>) -> anyhow::Result<Length> {
    let size = usize::from(flags.full);
    let iterations = flags.iterations.unwrap_or(experiment.iterations[size]);
    // One iteration has to be left.
    let most = iterations - 1;
    let dropped = flags.dropped.unwrap_or(experiment.dropped[size].min(most));
    ensure!(
        dropped <= most,
        "--dropped {dropped}: from 0 to {most}, so that of {iterations} iterations one is left"
    );

    Ok(Length {
        iterations,
        dropped,
        patience: Duration::from_secs(if flags.full { 3600 } else { 300 }),
    })
}

/// Returns whether an experiment's rows have a case under a policy by default, and whether there is
/// such a metric.
#[cfg(test)]
pub(crate) fn reports(experiment: &str, title: &str, policy: &str, metric: (&str, &str)) -> bool {
    let experiment = workloads::named(experiment).unwrap();
    let case = experiment
        .cases
        .iter()
        .find(|case| title.split(' ').next() == Some(case.name));
    case.is_some_and(|case| experiment.policies_of(case).contains(&policy))
        && metrics::METRICS.contains(&metric)
}

impl<T: Table> Flags<T> {
    /// Says what all turns of a run have in common.
    fn same(
        &self,
        Length {
            iterations,
            dropped,
            ..
        }: Length,
    ) -> String {
        let far = if self.far {
            "however far the CPUs are"
        } else {
            "CPUs near"
        };
        format!("{iterations} iterations, {dropped} dropped, {far}")
    }
}

/// A run of an experiment, and what has come of it so far.
struct Run<'a, T: Table> {
    experiment: &'static Experiment,
    flags: &'a Flags<T>,
    length: Length,
    findings: Findings,
}

impl<T: Table> Run<'_, T> {
    fn wants(&self, system: &str) -> bool {
        self.flags.systems.iter().any(|name| name == system)
    }

    fn peers(&mut self) -> Vec<System> {
        let mut peers = Vec::new();
        for kind in SYSTEMS.into_iter().filter(|kind| *kind != "plainweave") {
            match self.wants(kind).then(|| System::peer(kind)) {
                Some(Ok(system)) => peers.push(system),
                Some(Err(error)) => self.findings.missing(kind.to_owned(), format!("{error:#}")),
                None => {}
            }
        }
        peers
    }

    /// Returns Plainweave under all policies and modes that the case is measured with.
    fn ours(&mut self, case: &Case) -> anyhow::Result<Vec<System>> {
        if !self.wants("plainweave") {
            return Ok(Vec::new());
        }
        let given = &self.flags.policy;
        let named = self.experiment.policies_of(case);
        let policies: Vec<String> = if given.iter().any(|policy| policy == "all") {
            plainweave::policy::PRESETS
                .iter()
                .map(|preset| preset.name.to_owned())
                .collect()
        } else if given.is_empty() {
            named.iter().map(|&policy| policy.to_owned()).collect()
        } else {
            given.clone()
        };

        let mut systems = Vec::new();
        for (policy, mode) in policies
            .iter()
            .flat_map(|policy| self.flags.modes.iter().map(move |mode| (policy, mode)))
        {
            systems.push(System::ours(policy, mode)?);
        }
        Ok(systems)
    }

    /// Measures a plan on a system, and adds its rows.
    fn measure(
        &mut self,
        turns: &mut Turns,
        plan: &Plan,
        system: &System,
        workers: usize,
    ) -> anyhow::Result<()> {
        let what = format!("{}, {}", system.name, plan.title);
        let least = (self.experiment.least_workers)(plan);
        if workers < least {
            self.findings.missing(
                what,
                format!("--workers {workers}: this needs at least {least}"),
            );
            return Ok(());
        }

        if let Some(why) = (self.experiment.lacks)(plan, system.kind).filter(|_| !system.is_ours())
        {
            self.findings.missing(what, why.to_owned());
            return Ok(());
        }
        let turn = format!("{what}, {workers} workers, {}", plan.texts().join(" "));
        let repetition = || system.repetition(self.experiment, plan, workers, self.length, false);
        let near = || {
            let (mut figures, far) = c2c::near(workers, !self.flags.far, repetition)?;
            figures.extend((workers > 1).then_some(("far_repetitions", f64::from(u8::from(far)))));
            Ok(metrics::values(figures))
        };

        match turns.take(&turn, near) {
            Ok(figures) => self.add(plan, system, workers, metrics::figures(&figures)?)?,
            // A signal ends the peer too.
            Err(error) if system.is_ours() || interrupt::came().is_some() => return Err(error),
            Err(error) => {
                self.findings.missing(what, format!("{error:#}"));
                return Ok(());
            }
        }

        let alone = (self.experiment.pools)(plan, workers).is_empty();
        if system.is_ours() && alone {
            let length = Length {
                iterations: self.length.dropped + 1,
                ..self.length
            };

            let observed = || {
                system
                    .repetition(self.experiment, plan, workers, length, true)
                    .map(metrics::values)
            };

            let figures = turns.take(&format!("{turn}, observed"), observed)?;
            self.add(plan, system, workers, metrics::figures(&figures)?)?;
        }

        Ok(())
    }

    /// Adds figures to the rows of a plan on a system: one value an iteration.
    fn add(
        &mut self,
        plan: &Plan,
        system: &System,
        workers: usize,
        figures: Vec<metrics::Figure>,
    ) -> anyhow::Result<()> {
        let from = self.findings.rows.len();
        for (metric, unit) in metrics::METRICS {
            let values: Vec<_> = figures
                .iter()
                .filter(|(name, _)| *name == metric)
                .map(|(_, value)| *value)
                .collect();
            if !values.is_empty() {
                let origin = self.findings.origin().with_workers(workers);
                self.findings.rows.push(origin.row(
                    &plan.title,
                    &system.name,
                    metric,
                    unit,
                    values,
                ));
            }
        }

        ensure!(
            self.findings.rows.len() > from,
            "{} has reported no figures",
            system.name
        );
        Ok(())
    }
}
