//! The constants that no loop can measure: each is fitted to one figure of a scheduler.
//!
//! What such a figure takes grows in proportion to the constant. So two simulated runs, with little
//! of it and with what is missing, give the value with which the third takes as long as the real
//! one. The constants are fitted in order, as a later workload takes what the earlier constants
//! stand for too.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use super::constants::Constant;
use super::workloads::{self, SPARES, Throughput, Workload};
use crate::harness::machine;

/// A constant, and the figure that it is fitted to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    constant: &'static str,
    pub(super) workload: &'static str,
    pub(super) policy: &'static str,
    pub(super) workers: usize,
}

const fn fit(
    constant: &'static str,
    workload: &'static str,
    policy: &'static str,
    workers: usize,
) -> Fit {
    Fit {
        constant,
        workload,
        policy,
        workers,
    }
}

/// In order.
pub(super) const FITS: [Fit; 5] = [
    fit("switch", "yield", "fifo", 1),
    fit("park", "cycle", "fifo", 1),
    fit("task", "fib", "lifo", 1),
    fit("away", "churn", "fifo", 2),
    fit("fresh", "fib", "fifo", 1),
];
/// What each is before it is fitted, in nanoseconds: not 0, with which a worker may be faster than
/// what comes to it.
const FIRST: f64 = 10.0;
/// The most that is allowed, a millisecond.
const MOST: f64 = 1e6;
/// How often they are fitted: the later ones have changed what the earlier ones were fitted with.
const PASSES: usize = 2;

impl Fit {
    /// Returns whether a figure is the one that the constant was fitted to.
    pub(super) fn is_of(&self, figure: &Throughput) -> bool {
        figure.key() == (self.workload, self.policy, self.workers)
    }

    /// Says what it is fitted to.
    pub(super) fn figure(&self) -> String {
        let Self {
            workload,
            policy,
            workers,
            ..
        } = self;
        format!(
            "{workload} under {policy}, {workers} worker{}",
            if *workers == 1 { "" } else { "s" }
        )
    }

    /// Returns the constant's value with which the simulated figure is the measured one, as far as
    /// that can be.
    fn value(
        &self,
        constants: &[Constant],
        measured: &[Throughput],
        scale: f64,
        file: &Path,
    ) -> anyhow::Result<Constant> {
        let real = measured.iter().find(|figure| self.is_of(figure));
        let real = 1e9
            / real
                .with_context(|| format!("no figure of {}", self.figure()))?
                .spread
                .median;
        let takes = |value: f64| {
            let mut tried = constants.to_vec();
            put(&mut tried, Constant::new(self.constant, value, ""));
            write(file, &tried, "")?;
            let of = Workload::titled(self.workload);
            let figures = workloads::simulated(of, &[self.policy], &[self.workers], scale, file)?;
            anyhow::Ok(1e9 / figures[0].spread.median)
        };

        let least = takes(FIRST)?;
        let further = FIRST + (real - least).clamp(1.0, MOST / 2.0);
        let slope = (takes(further)? - least) / (further - FIRST);
        let value = (FIRST + (real - least) / slope).clamp(0.0, MOST);

        Ok(Constant::new(
            self.constant,
            value,
            format!("fitted to {}: {real:.0} ns each", self.figure()),
        ))
    }
}

/// Puts a constant in the place of the one of its name, or behind all others.
fn put(constants: &mut Vec<Constant>, constant: Constant) {
    match constants
        .iter_mut()
        .find(|known| known.name == constant.name)
    {
        Some(known) => *known = constant,
        None => constants.push(constant),
    }
}

/// Fits all of them to measured figures, and writes them and those that were measured alone.
pub(super) fn all(
    mut constants: Vec<Constant>,
    measured: &[Throughput],
    scale: f64,
    file: &Path,
) -> anyhow::Result<Vec<Constant>> {
    constants.extend(FITS.map(|fit| Constant::new(fit.constant, FIRST, "")));
    for fit in (0..PASSES).flat_map(|_| &FITS) {
        let constant = fit.value(&constants, measured, scale, file)?;
        put(&mut constants, constant);
    }

    // A spawner of packets creates their fibers too.
    let of = |name: &str| {
        constants
            .iter()
            .find(|known| known.name == name)
            .map_or(0.0, |known| known.value)
    };

    let task = of("task");
    let copy = of("create");
    put(
        &mut constants,
        Constant::new(
            "create",
            copy + task,
            format!("copying a packet of 2,000 bytes, {copy} ns, and task"),
        ),
    );
    let facts = machine::describe();
    let fact = |name: &str| {
        facts
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("unknown", |(_, value)| value.as_str())
    };

    let head = format!(
        "# What things cost on a machine, in nanoseconds, for `plainweave sim FILE`. Written by `plainweave bench\n\
         # predict` on {}, {}, at {}.\n",
        fact("CPU"),
        fact("date"),
        fact("commit")
    );
    write(file, &constants, &head)?;
    Ok(constants)
}

/// Writes constants as a scenario of the simulator.
fn write(file: &Path, constants: &[Constant], head: &str) -> anyhow::Result<()> {
    // Fibers move at any time, so others may join a worker that is alone.
    let mut text = format!("{head}workers = [1, 2]\n\n[machine]\n{SPARES}\n\n[costs]\n");
    for Constant {
        name,
        value,
        source,
    } in constants
    {
        let _ = writeln!(text, "{:<24} # {source}", format!("{name} = {value:.2}"));
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
