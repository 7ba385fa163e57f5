//! Does the simulator predict what this machine does? The same policies and workloads, measured and
//! simulated.
//!
//! First what things cost here is measured (`constants`). Five constants that no loop can tell from
//! a scheduler are fitted, each to one figure (`fit`). All other figures the simulator has to
//! predict: `workloads` runs them in both ways, with the same sizes. The result keeps fitted and
//! predicted apart, and what the model does not cover; and the constants are a file that
//! `plainweave sim` takes.

mod constants; // What things cost on this machine.
mod fit; // The constants that no loop can measure: each is fitted to one figure of a scheduler.
// What is run in both ways, on real workers and on simulated ones, with the same sizes and
// parameters.
mod workloads;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use crate::harness::c2c;
use crate::harness::experiment::Common;
use crate::harness::report::{self, Report};
use crate::harness::sample::{Origin, Row};
use constants::{Constant, Effort};
use fit::FITS;
use plainweave_report::Role;
use plainweave_report::dots;
use plainweave_report::statistics::Spread;
use workloads::{Length, POLICIES, Throughput, WORKERS, WORKLOADS, Workload};

/// What the simulator predicts for this machine beside what is measured: constants, throughput of 1
/// and 2 workers.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Simulate with the constants of this file, as an earlier run has written it, in place of
    /// measuring them
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate_only")]
    costs: Option<PathBuf>,

    /// Write the constants of this machine, machine.toml, and predict nothing
    #[arg(long)]
    calibrate_only: bool,

    /// Rounds of measurements; in each, everything gets a turn
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Seconds a repetition of a micro-benchmark
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = clap::value_parser!(f64))]
    seconds: f64,

    /// Part of the sizes of the workloads that is run, 0.01 to 10
    #[arg(long, value_name = "N", default_value = "1", value_parser = scale)]
    scale: f64,

    /// Take what 2 workers do however far apart the CPUs are
    #[arg(long)]
    far: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|scale| (0.01..=10.0).contains(scale));
    value.ok_or_else(|| "a number from 0.01 to 10".to_owned())
}

/// Of all that was predicted: the deviation in percent that half of it does not exceed, and that
/// none of it does.
const GOALS: [(&str, f64); 2] = [("median_error", 20.0), ("worst_error", 50.0)];

/// The file of constants.
const COSTS: &str = "machine.toml";

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        WORKLOADS
            .iter()
            .for_each(|workload| report::say(workload.title));
        report::say(&format!(
            "policies: {}; workers: {WORKERS:?}",
            POLICIES.join(", ")
        ));
        return Ok(());
    }

    let out = flags.common.folder();
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let length = Length {
        scale: flags.scale,
        rounds: flags.runs.get(),
        seconds: flags.seconds,
        far: flags.far,
    };

    let file = out.join(COSTS);
    let parts = out.join("predict");
    if let Some(costs) = &flags.costs {
        ensure!(costs.is_file(), "--costs: {} is not there", costs.display());
    }
    // Before the workloads, on the same machine in the same state: it changes from day to day.
    let constants = match flags.costs {
        Some(_) => Vec::new(),
        None => {
            report::progress("predict: measuring what things cost");
            constants::measure(effort(flags.scale))?
        }
    };

    // Only what constants are fitted to is measured, in minutes instead of an hour.
    if flags.calibrate_only {
        let measured = fitted_to(length, &parts)?;
        let constants = fit::all(constants, &measured, flags.scale, &file)?;
        report::progress("");
        list(&constants);
        report::say(&format!("written: {}", file.display()));
        return Ok(());
    }

    let measured = workloads::measured(&WORKLOADS, &POLICIES, &WORKERS, length, &parts)?;
    let (constants, file) = match &flags.costs {
        Some(costs) => (Vec::new(), costs.clone()),
        None => (fit::all(constants, &measured, flags.scale, &file)?, file),
    };

    let mut simulated = Vec::new();
    let mut absent = Vec::new();
    for (workload, policy) in WORKLOADS
        .into_iter()
        .flat_map(|workload| POLICIES.map(|policy| (workload, policy)))
    {
        report::progress(&format!("predict: simulating {}", workload.title));
        match workloads::simulated(workload, &[policy], &WORKERS, flags.scale, &file) {
            Ok(figures) => simulated.extend(figures),
            // A checker of the simulator may object.
            Err(error) => absent.push((
                format!("simulated {} {policy}", workload.title),
                format!("{error:#}"),
            )),
        }
    }
    ensure!(
        !simulated.is_empty(),
        "nothing could be simulated: {}",
        absent[0].1
    );
    let pairs = pairs(&measured, &simulated)?;
    let rows = rows(&pairs);
    let mut parameters = vec![
        ("constants", file.display().to_string()),
        ("fitted", FITS.map(|fit| fit.figure()).join("; ")),
        (
            "not covered",
            "packets-bare, options-deep: where their data is decides them, and the model has no caches for data"
                .to_owned(),
        ),
        (
            "predicted",
            "all other figures; deviation: by how much the simulated one is above the measured one".to_owned(),
        ),
        ("near", format!("with 2 workers: core to core at most {} ns before and after", c2c::NEAR_NS)),
        ("goals", format!("{} % for the median, {} % for the worst", GOALS[0].1, GOALS[1].1)),
    ];

    parameters.extend(constants.iter().map(|c| {
        (
            "constant",
            format!("{} = {} ns: {}", c.name, c.value, c.source),
        )
    }));
    let report = Report {
        experiment: "predict",
        parameters,
        rows,
        absent,
    };

    report.publish_with(Some(&out), &picture(&pairs))?;
    summarise(&pairs);
    Ok(())
}

fn effort(scale: f64) -> Effort {
    let part = |of: f64| (of * scale.min(1.0)) as usize;
    Effort {
        slices: part(9.0).max(3),
        turns: part(1e6).max(1_000) as u32,
        packets: part(20_000.0).max(100),
        memory: part(67e6).max(1 << 20),
    }
}

/// Measures what the fitted constants are fitted to.
fn fitted_to(length: Length, parts: &Path) -> anyhow::Result<Vec<Throughput>> {
    let mut figures = Vec::new();
    for fit in &FITS {
        figures.extend(workloads::measured(
            &[Workload::titled(fit.workload)],
            &[fit.policy],
            &[fit.workers],
            length,
            parts,
        )?);
    }
    Ok(figures)
}

fn list(constants: &[Constant]) {
    for Constant {
        name,
        value,
        source,
    } in constants
    {
        report::say(&format!("{name:<10} {value:>10.2} ns  {source}"));
    }
}

/// A figure, measured and simulated.
struct Pair<'a> {
    measured: &'a Throughput,
    simulated: &'a Throughput,
    kind: Kind,
}

/// What the simulated figure claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Predicted,
    /// A constant was fitted to it.
    Fitted,
    /// The model does not have what decides it.
    NotCovered,
}

impl Kind {
    fn system(self) -> &'static str {
        match self {
            Kind::Predicted => "simulated",
            Kind::Fitted => "simulated (fitted)",
            Kind::NotCovered => "simulated (not covered)",
        }
    }
}

impl Pair<'_> {
    fn case(&self) -> String {
        format!("{} {}", self.measured.workload.title, self.measured.policy)
    }

    /// By how many percent the simulated figure is above the measured one.
    fn deviation(&self) -> f64 {
        100.0 * (self.simulated.spread.median / self.measured.spread.median - 1.0)
    }
}

fn pairs<'a>(
    measured: &'a [Throughput],
    simulated: &'a [Throughput],
) -> anyhow::Result<Vec<Pair<'a>>> {
    let pair = |simulated: &'a Throughput| {
        let found = measured
            .iter()
            .find(|measured| measured.key() == simulated.key());
        let measured = found.with_context(|| format!("{:?} was not measured", simulated.key()))?;
        // What was fitted says nothing of the model: it is counted nowhere.
        let kind = match simulated.workload.covered {
            _ if FITS.iter().any(|fit| fit.is_of(simulated)) => Kind::Fitted,
            true => Kind::Predicted,
            false => Kind::NotCovered,
        };

        Ok(Pair {
            measured,
            simulated,
            kind,
        })
    };
    simulated.iter().map(pair).collect()
}

fn predicted<'a>(pairs: &'a [Pair<'a>]) -> impl Iterator<Item = &'a Pair<'a>> {
    pairs.iter().filter(|pair| pair.kind == Kind::Predicted)
}

/// Returns the greatest deviation that the better half of the predictions has, and that of all.
fn errors(pairs: &[Pair<'_>]) -> [f64; 2] {
    // Too fast and too slow alike.
    let errors: Vec<_> = predicted(pairs)
        .map(|pair| pair.deviation().abs())
        .collect();
    let Spread { median, max, .. } = Spread::of(&errors);
    [median, max]
}

fn rows(pairs: &[Pair<'_>]) -> Vec<Row> {
    let row = |case: &str, system: &str, workers, metric, unit, values| {
        let predict = Origin::new("predict").with_workers(workers);
        predict.row(case, system, metric, unit, values)
    };

    let mut rows = Vec::new();
    for pair in pairs {
        let case = pair.case();
        let workers = pair.measured.workers;
        let system = pair.kind.system();
        let Spread {
            median,
            q1,
            q3,
            min,
            max,
        } = pair.measured.spread;
        rows.push(row(
            &case,
            "measured",
            workers,
            "throughput",
            "1/s",
            vec![min, q1, median, q3, max],
        ));
        rows.push(row(
            &case,
            system,
            workers,
            "throughput",
            "1/s",
            vec![pair.simulated.spread.median],
        ));
        rows.push(row(
            &case,
            system,
            workers,
            "deviation",
            "%",
            vec![pair.deviation()],
        ));
    }

    for ((metric, goal), error) in GOALS.into_iter().zip(errors(pairs)) {
        rows.push(row(
            "all predicted",
            "simulated",
            2,
            metric,
            "%",
            vec![error],
        ));
        rows.push(row("all predicted", "goal", 2, metric, "%", vec![goal]));
    }

    rows
}

/// Draws how many times the measured throughput the simulated one is: exact is 1.
fn picture(pairs: &[Pair<'_>]) -> String {
    let panel = |workload: &Workload| {
        let of = pairs
            .iter()
            // Workloads differ by orders of magnitude, so ratios are drawn.
            .filter(|pair| pair.measured.workload.title == workload.title);
        let row = |pair: &Pair<'_>| {
            let Spread {
                median,
                q1,
                q3,
                min,
                max,
            } = pair.measured.spread;
            let to = |measured: f64| pair.simulated.spread.median / measured;
            let spread = Spread {
                median: to(median),
                // The greatest measured throughput gives the least ratio.
                q1: to(q3),
                q3: to(q1),
                min: to(max),
                max: to(min),
            };

            let workers = pair.measured.workers;
            let name = format!(
                "{}, {workers} worker{}",
                pair.measured.policy,
                if workers == 1 { "" } else { "s" }
            );
            let (name, role) = match pair.kind {
                Kind::Fitted => (format!("{name} (fitted)"), Role::Peer),
                Kind::Predicted | Kind::NotCovered => (name, Role::Ours),
            };

            dots::Row { name, role, spread }
        };

        let beyond = if workload.covered {
            ""
        } else {
            ", not covered by the model"
        };

        let title = format!(
            "{}: simulated throughput to measured{beyond}",
            workload.title
        );
        dots::Panel {
            title,
            better: "1 is exact",
            unit: "1".to_owned(),
            rows: of.map(row).collect(),
        }
        .svg()
    };

    format!(
        "<div class='panels'>{}</div>",
        WORKLOADS.iter().map(panel).collect::<String>()
    )
}

fn summarise(pairs: &[Pair<'_>]) {
    report::say("\nThroughput in millions a second, measured and simulated:");
    for pair in pairs {
        let million = |figure: &Throughput| figure.spread.median / 1e6;
        let case = pair.case();
        let system = pair.kind.system().trim_start_matches("simulated");
        let measured = million(pair.measured);
        let simulated = million(pair.simulated);
        let workers = pair.measured.workers;
        let deviation = pair.deviation();

        report::say(&format!(
            "{case:<20} {workers} {measured:>10.4} {simulated:>10.4} {deviation:>+7.0} %{system}"
        ));
    }

    let [median, worst] = errors(pairs);
    let predicted = predicted(pairs).count();
    let [half, all] = [(GOALS[0].1, median), (GOALS[1].1, worst)].map(|(goal, error)| {
        let reached = if error <= goal {
            "reached"
        } else {
            "not reached"
        };
        format!("within {error:.0} % (goal {goal} %, {reached})")
    });

    report::say(&format!(
        "{predicted} figures predicted: half of them {half}, all {all}"
    ));
}
