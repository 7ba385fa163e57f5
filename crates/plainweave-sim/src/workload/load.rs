//! A workload that has been chosen: a row of the table, with its size and its parameters.

use super::Workload;
use super::bimodal::{self, Bimodal};
use super::fib::Fib;
use super::micro::{self, Micro};
use super::mixer::{self, Mixer};
use super::open::Open;
use super::options::{self, Options};
use super::packets::{self, Delay, Packets};
use super::table::{Key, Kind, LOADS, Row};
use super::value::Value;
use crate::costs::{MILLI, NANO};
use crate::machine::Machine;
use crate::thesis;

/// How workers are divided among pools.
#[derive(Clone, Copy, Debug)]
enum Parts {
    /// They are not.
    One,
    /// This many have a pool for what is heavy.
    Side(usize),
    /// Each kind of fiber has a pool.
    Kinds,
    /// As evenly as they can be, into at most this many.
    Silos(usize),
}

/// A workload by name, size and parameters.
#[derive(Clone, Debug)]
pub struct Load {
    row: &'static Row,
    size: u64,
    /// The size is the row's own: nobody has asked for it.
    own_size: bool,
    /// Of its case.
    policies: &'static [&'static str],
    /// In the order of the row's parameters.
    values: Vec<f64>,
    percent: u64,
}

impl Load {
    /// Returns the workload of a name; `size` takes the place of its own.
    ///
    /// # Errors
    /// There is none of that name, or the size makes no sense: a message that says what is allowed.
    pub fn named(name: &str, size: Option<u64>) -> Result<Self, String> {
        let Some(row) = LOADS.iter().find(|row| row.name == name) else {
            let names: Vec<_> = LOADS.iter().map(|row| row.name).collect();
            return Err(format!(
                "no simulated workload is called '{name}'; there are: {}",
                names.join(", ")
            ));
        };
        let values = row.parameters.iter().map(|key| key.own()).collect();
        let size_of_row = row.size.own() as u64;
        let load = Self {
            row,
            size: size_of_row,
            own_size: true,
            policies: &[],
            values,
            percent: 80,
        };
        size.map_or(Ok(load.clone()), |size| load.sized(size))
    }

    /// Gives it a size in place of its own.
    ///
    /// # Errors
    /// The size makes no sense: a message that says what is allowed.
    pub(crate) fn sized(self, size: u64) -> Result<Self, String> {
        self.row.size.check("size", &Value::Number(size as f64))?;
        Ok(Self {
            size,
            own_size: false,
            ..self
        })
    }

    /// Gives a parameter a value in place of its own.
    ///
    /// # Errors
    /// The workload has no such parameter, or the value is not allowed: a message that says what
    /// is.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Result<Self, String> {
        let Row {
            name: workload,
            size,
            parameters,
            ..
        } = self.row;
        if name == size.name() {
            return Err(format!(
                "'{name}' is no parameter of the workload '{workload}', but its size"
            ));
        }
        let Some(at) = parameters.iter().position(|key| key.name() == name) else {
            let names: Vec<_> = parameters.iter().map(Key::name).collect();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(format!(
                "the workload '{workload}' has no parameter '{name}'; it has: {names}"
            ));
        };
        self.values[at] =
            parameters[at].check(&format!("the parameter '{name}'"), &value.into())?;
        Ok(self)
    }

    /// Makes it a published case: size and parameters as the thesis has them.
    ///
    /// # Errors
    /// The workload has no such case: a message that says which there are.
    pub fn case(mut self, name: &str) -> Result<Self, String> {
        let Some(case) = self.row.cases().find(|case| case.name == name) else {
            let workload = self.row.name;
            let names = self.row.cases().map(|case| case.name).collect::<Vec<_>>();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(format!(
                "the workload '{workload}' has no case '{name}'; it has: {names}"
            ));
        };
        self.policies = case.policies;
        for (name, value) in case.published() {
            self = match value.parse() {
                Ok(size) if name == self.row.size.name() => self.sized(size)?,
                _ => self.with(name, value)?,
            };
        }
        Ok(self)
    }

    /// Checks values that are allowed each, but not together.
    ///
    /// # Errors
    /// Some contradict each other: their names, and a message that says what is allowed.
    pub(crate) fn check(&self) -> Result<(), ([&'static str; 2], String)> {
        let (names, least, most, why) = match self.row.kind {
            Kind::Bimodal => (
                ["sleeps", "chain"],
                0,
                self.count("chain"),
                "the tasks of a chain ('chain')",
            ),
            Kind::Mixer => {
                let most = 99 - self.count("legs-share");
                (
                    ["mix-share", "legs-share"],
                    1,
                    most,
                    "so that legs ('legs-share'), mixers and sends have a share",
                )
            }
            _ => return Ok(()),
        };
        let name = names[0];
        let value = self.count(names[0]);
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err((
            names,
            format!("the parameter '{name}' is {value}: {least} to {most} are allowed, {why}"),
        ))
    }

    /// Returns which pools it divides the workers among.
    fn parts(&self) -> Parts {
        match self.row.kind {
            Kind::Bimodal if self.count("pools") == 1 => Parts::Side(self.count("side") as usize),
            Kind::Mixer if self.count("pools") == 1 => Parts::Kinds,
            Kind::Mixer if self.count("pools") == 2 => Parts::Silos(self.count("silos") as usize),
            _ => Parts::One,
        }
    }

    /// Returns how many workers each of its pools has, out of `workers`.
    ///
    /// # Errors
    /// There are too few: a message that says how many it needs.
    pub(crate) fn pools(&self, workers: usize) -> Result<Vec<usize>, String> {
        let least = self.least_workers();
        if workers < least {
            let name = self.row.name;
            let word = self.word("pools");
            return Err(format!(
                "workers is {workers}: '{name}' with pools={word} needs {least} or more"
            ));
        }
        Ok(match self.parts() {
            Parts::One => vec![workers],
            Parts::Side(side) => thesis::bimodal::staged(workers, side),
            Parts::Kinds => {
                thesis::mixer::staged(workers, self.count("legs-share"), self.count("mix-share"))
            }
            Parts::Silos(silos) => thesis::mixer::silos(workers, silos),
        })
    }

    /// Returns the fewest workers that its pools can have.
    pub(crate) fn least_workers(&self) -> usize {
        match self.parts() {
            Parts::One => 1,
            Parts::Side(side) => side + 1,
            Parts::Kinds => 3,
            Parts::Silos(_) => 2,
        }
    }

    /// Returns the word that a parameter is set to.
    fn word(&self, name: &str) -> String {
        let at = self.place(name);
        self.row.parameters[at]
            .drawn(self.values[at] as u64)
            .to_string()
    }

    /// Returns the policies that its case is run under unless others are named; none: any.
    pub(crate) fn policies(&self) -> &'static [&'static str] {
        self.policies
    }

    /// Makes requests from outside come at `percent` of what the workers can compute.
    #[must_use]
    pub fn at_rate(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    /// Returns whether requests come at a rate.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        matches!(self.row.kind, Kind::Open | Kind::Stuck)
    }

    /// Returns the throughput that was published for a policy, by numbers of workers.
    pub(crate) fn published(&self, policy: &str) -> &'static [(f64, f64)] {
        let is_base = self.row.kind == Kind::Packets
            && self.count("spawners") == 1
            && self.count("delay") == 0;
        let known = if is_base { packets::PUBLISHED } else { &[] };
        known
            .iter()
            .find(|(name, _)| *name == policy)
            .map_or(&[], |(_, points)| points)
    }

    /// Returns where a parameter stands in the row.
    fn place(&self, name: &str) -> usize {
        self.row
            .parameters
            .iter()
            .position(|key| key.name() == name)
            .expect("a parameter of the row")
    }

    fn value(&self, name: &str) -> f64 {
        self.values[self.place(name)]
    }

    fn count(&self, name: &str) -> u64 {
        self.value(name) as u64
    }

    fn bimodal(&self) -> bimodal::Parameters {
        bimodal::Parameters {
            packets: self.size,
            spawners: self.count("spawners"),
            chain: self.count("chain"),
            heavy: (self.value("heavy") * 1e4) as usize,
            sleeps: self.count("sleeps"),
            sleep: self.count("sleep-ms") * MILLI,
            suspends: self.count("wait") == 1,
            staged: matches!(self.parts(), Parts::Side(_)),
        }
    }

    fn options(&self) -> options::Parameters {
        let (depth, deep, deep_in) = (
            self.count("depth"),
            self.count("deep"),
            self.count("deep-in"),
        );
        options::Parameters {
            options: self.size,
            depth,
            deep,
            deep_in,
        }
    }

    fn mixer(&self, pools: mixer::Pools) -> mixer::Parameters {
        mixer::Parameters {
            mixers: self.size,
            legs: self.count("legs"),
            rounds: self.count("rounds"),
            frame: self.count("frame-ms") * MILLI,
            bytes: self.count("bytes"),
            late: self.count("late-ms") * MILLI,
            pools,
        }
    }

    fn delay(&self) -> Delay {
        let time = self.count("delay-ns") * NANO;
        [
            Delay::None,
            Delay::Spin(time),
            Delay::Sleep(time),
            Delay::Suspend(time),
        ][self.count("delay") as usize]
    }

    /// `pools`: how many [`Self::pools`] has named.
    pub(crate) fn build(&self, machine: &Machine, seed: u64, pools: usize) -> Box<dyn Workload> {
        let size = self.size;
        let percent = self.percent;
        let workers = machine.workers();
        let costs = &machine.costs;

        match self.row.kind {
            Kind::Packets => Box::new(Packets::new(
                size,
                self.count("spawners"),
                self.delay(),
                costs,
            )),
            Kind::Bimodal => Box::new(Bimodal::new(self.bimodal(), seed, costs)),
            Kind::Options => Box::new(Options::new(self.options(), seed, costs)),
            Kind::Fib => Box::new(Fib::new(size, costs)),
            Kind::Mixer => {
                let pools = match self.parts() {
                    Parts::Kinds => mixer::Pools::Kinds,
                    _ => mixer::Pools::Conferences(pools),
                };
                Box::new(Mixer::new(self.mixer(pools), costs.task))
            }
            Kind::Open => Box::new(Open::steady(size, percent, workers, seed)),
            Kind::Stuck => Box::new(Open::steady(size, percent, workers, seed).beside_stuck()),
            Kind::Burst => Box::new(Open::burst(size, seed)),
            Kind::Micro(case) => {
                let operations = if self.own_size {
                    size.max(micro::steady(workers))
                } else {
                    size
                };
                Box::new(Micro::new(case, operations, workers, seed))
            }
        }
    }
}
