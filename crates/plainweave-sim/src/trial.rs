//! Random small machines: whatever the policy, the checkers must find nothing.

use crate::engine::{Setup, simulate};
use crate::figures::Outcome;
use crate::machine::{MACHINES, Machine};
use crate::policy::{Cx, PRESETS};
use crate::workload::{Key, LOADS, Load};

/// A run on a small machine, and the command that repeats it.
#[derive(Clone, Debug)]
pub struct Trial {
    setup: Setup,
    command: String,
}

impl Trial {
    /// Draws machine, policy and workload by `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut cx = Cx::new(seed);
        let policy = PRESETS[cx.below(PRESETS.len())].name;
        let machine = MACHINES[cx.below(MACHINES.len())].0;
        let row = &LOADS[cx.below(LOADS.len())];
        let drawn_workers = 1 + cx.below(8);
        let mut draw =
            |key: &Key| key.small.0 + cx.below((key.small.1 - key.small.0 + 1) as usize) as u64;
        let size = draw(&row.size);
        let parameters: Vec<_> = row
            .parameters
            .iter()
            .map(|key| (key.name(), key.drawn(draw(key))))
            .collect();
        let mut load = Load::named(row.name, Some(size))
            .expect("a workload of the table, of a size that is allowed");

        for (name, value) in &parameters {
            load = load
                .with(name, value.clone())
                .expect("a parameter of the workload, of a value that is allowed");
        }

        let workers = drawn_workers.max(load.least_workers());
        let spins = cx.below(4) == 0;
        let idle = if spins { "spin" } else { "sleep" };
        let flags: String = parameters
            .iter()
            .map(|(name, value)| format!("--param {name}={value} "))
            .collect();
        let command = format!(
            "plainweave sim --policy {policy} --machine {machine} --workload {} --workers {workers} --size {size} \
             {flags}--idle {idle} --seed {seed}",
            row.name
        );
        let asleep = Machine::named(machine, workers)
            .expect("a machine of the table, of a size that is allowed");
        let machine = if spins {
            asleep.without_sleep()
        } else {
            asleep
        };

        Self {
            setup: Setup {
                policy: policy.to_owned(),
                machine,
                load,
                seed,
                record: false,
                limit: None,
            },
            command,
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// A checker has found something: what, and the command that repeats the run.
    pub fn run(&self) -> Result<Outcome, String> {
        self.run_by(simulate)
    }

    /// Carries it out by another function than [`simulate`].
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_by(
        &self,
        simulate: impl FnOnce(&Setup) -> Result<Outcome, String>,
    ) -> Result<Outcome, String> {
        simulate(&self.setup).map_err(|error| format!("{error}\nThe same again: {}", self.command))
    }

    /// Returns the command that repeats it.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }
}
