//! The table of workloads: names, sizes, parameters, and what is allowed.
//!
//! Parameters and cases of the OCaml schedulers' thesis are those of `thesis`; sizes are the
//! published ones.

use super::micro;
use super::value::Value;
use crate::thesis::{Case, Parameter, Range, bimodal, fib, mixer, options, packets};

/// A number that a workload can be given, or a choice: its size, or one of its parameters.
#[derive(Debug)]
pub(crate) struct Key {
    parameter: Parameter,
    /// What it is if a run says nothing else, where that is not the published value.
    own: Option<f64>,
    /// The most that is allowed, where that is less than on real workers.
    most: Option<f64>,
    /// What random small machines draw it from.
    pub(crate) small: (u64, u64),
}

impl Key {
    pub(crate) fn name(&self) -> &'static str {
        self.parameter.name
    }

    /// Returns what it means.
    pub(crate) fn help(&self) -> &'static str {
        self.parameter.help
    }

    /// Returns what it is if a run says nothing else. Of a choice, that is the first.
    pub(crate) fn own(&self) -> f64 {
        let published = || match self.parameter.range {
            Range::Word(_) => 0.0,
            Range::Count(..) | Range::Decimal(..) => self
                .parameter
                .full
                .parse()
                .expect("a number in the table, unless the simulator has its own"),
        };
        self.own.unwrap_or_else(published)
    }

    /// If it is a choice: what there is. Values are places in this list.
    fn words(&self) -> &'static [&'static str] {
        if let Range::Word(words) = self.parameter.range {
            words
        } else {
            &[]
        }
    }

    /// Returns the least and the most that is allowed, and whether it is a whole number.
    fn range(&self) -> (f64, f64, bool) {
        let (least, most, whole) = match self.parameter.range {
            Range::Count(least, most) => (least as f64, most as f64, true),
            Range::Decimal(least, most) => (least, most, false),
            Range::Word(words) => (0.0, words.len() as f64 - 1.0, true),
        };
        (least, self.most.unwrap_or(most), whole)
    }

    /// Checks a value for it, under the name that a message should give, and returns it as a
    /// number.
    ///
    /// # Errors
    /// It is not allowed: a message that says what is.
    pub(super) fn check(&self, name: &str, value: &Value) -> Result<f64, String> {
        let (least, most, whole) = self.range();
        let value = match value {
            _ if !self.words().is_empty() => {
                let text = value.to_string();
                let place = self.words().iter().position(|word| *word == text);
                let refused = || {
                    format!(
                        "{name} is '{text}': {} are allowed",
                        listed(self.words(), "and")
                    )
                };
                return place.map(|place| place as f64).ok_or_else(refused);
            }
            Value::Word(word) => {
                return Err(format!(
                    "{name} is '{word}': numbers from {least} to {most} are allowed"
                ));
            }
            Value::Number(number) => *number,
        };
        let numbers = if whole { "whole numbers " } else { "" };
        match (least..=most).contains(&value) {
            true if !whole || value.fract() == 0.0 => Ok(value),
            true => Err(format!(
                "{name} is {value}: {numbers}from {least} to {most} are allowed"
            )),
            false => Err(format!("{name} is {value}: {least} to {most} are allowed")),
        }
    }

    /// Returns a value for it that was drawn from `small`.
    pub(crate) fn drawn(&self, number: u64) -> Value {
        let word = self.words().get(number as usize);
        word.map_or(Value::Number(number as f64), |word| {
            Value::Word((*word).to_owned())
        })
    }

    /// Returns what is allowed and what it is by itself, for `--help`.
    pub(crate) fn allowed(&self) -> String {
        let (least, most, _) = self.range();
        match self.words() {
            [] => format!("{least} to {most} [default: {}]", self.own()),
            words => format!("{} [default: {}]", listed(words, "or"), words[0]),
        }
    }

    const fn own_default(self, own: f64) -> Self {
        Self {
            own: Some(own),
            ..self
        }
    }

    const fn most(self, most: f64) -> Self {
        Self {
            most: Some(most),
            ..self
        }
    }
}

/// Lists words with a conjunction before the last.
fn listed(words: &[&str], conjunction: &str) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [others @ .., last] => format!("{} {conjunction} {last}", others.join(", ")),
    }
}

/// A parameter as the thesis has it.
const fn key(parameter: Parameter, small: (u64, u64)) -> Key {
    Key {
        parameter,
        own: None,
        most: None,
        small,
    }
}

/// The most operations of a run.
const MOST: f64 = 20e6;

/// A workload's size. Only its name says what it counts.
const fn size(name: &'static str, own: &'static str) -> Key {
    size_of(Parameter::count(name, own, (1, 20_000_000), ""))
}

/// The same, as the thesis has it.
const fn size_of(parameter: Parameter) -> Key {
    key(parameter, (20, 419)).most(MOST)
}

/// Which workload it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Packets,
    Bimodal,
    Options,
    Fib,
    Mixer,
    Open,
    Stuck,
    Burst,
    Micro(micro::Case),
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(super) kind: Kind,
    pub(crate) size: Key,
    pub(crate) parameters: &'static [Key],
    /// The published combinations; those that set a parameter which it does not have are left out.
    cases: &'static [Case],
    pub(crate) what: &'static str,
}

impl Row {
    /// Returns the published combinations that it can run.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &'static Case> {
        let has =
            |name| name == self.size.name() || self.parameters.iter().any(|key| key.name() == name);
        self.cases
            .iter()
            .filter(move |case| case.published().all(|(name, _)| has(name)))
    }
}

const fn row(
    name: &'static str,
    kind: Kind,
    size: Key,
    parameters: &'static [Key],
    what: &'static str,
) -> Row {
    Row {
        name,
        kind,
        size,
        parameters,
        cases: &[],
        what,
    }
}

impl Row {
    const fn cases_of(self, cases: &'static [Case]) -> Self {
        Self { cases, ..self }
    }
}

/// Its own size is the least: each fiber has some hundred operations ([`micro::steady`]).
const fn micro(name: &'static str, case: micro::Case, what: &'static str) -> Row {
    row(
        name,
        Kind::Micro(case),
        size("operations", "100000"),
        &[],
        what,
    )
}

/// The longest time for which a fiber may hold up its worker, in milliseconds. The checker's bound
/// on a livelock is longer.
const HOLD_UP: f64 = 50.0;

const PACKETS: &[Key] = &[
    key(packets::SPAWNED_BY, (1, 5)),
    key(packets::DELAY, (0, 3)),
    key(packets::DELAY_NS, (1, 2_000)).most(HOLD_UP * 1e6),
];

const BIMODAL: &[Key] = &[
    key(bimodal::SPAWNED_BY, (1, 10)),
    key(bimodal::CHAIN, (2, 5)),
    key(bimodal::HEAVY, (0, 5)),
    key(bimodal::SLEEPS, (0, 2)),
    key(bimodal::SLEEP_MS, (1, 2)).most(HOLD_UP),
    key(bimodal::WAIT, (0, 1)),
    key(bimodal::POOLS, (0, 1)),
    key(bimodal::SIDE, (1, 3)),
];

// All workers of a mixer are busy all the time, so a published run would take hours.
const MIXER: &[Key] = &[
    key(mixer::LEGS, (1, 3)),
    key(mixer::ROUNDS, (1, 2)).own_default(6.0),
    key(mixer::FRAME_MS, (1, 1)),
    key(mixer::BYTES, (2, 2_000)),
    key(mixer::LATE_MS, (1, 10)),
    key(mixer::POOLS, (0, 2)),
    key(mixer::LEGS_SHARE, (1, 40)),
    key(mixer::MIX_SHARE, (1, 40)),
    key(mixer::SILOS, (1, 4)),
];

const OPTIONS: &[Key] = &[
    key(options::DEPTH, (1, 40)),
    key(options::DEEP, (1, 300)),
    key(options::DEEP_IN, (5, 200)),
];

/// The workloads that have a name.
pub(crate) const LOADS: &[Row] = &[
    row(
        "packets",
        Kind::Packets,
        size_of(packets::PACKETS),
        PACKETS,
        "one fiber spawns handlers without a pause; each scans a packet (OCaml schedulers' thesis)",
    )
    .cases_of(packets::CASES),
    row(
        "bimodal",
        Kind::Bimodal,
        size_of(bimodal::PACKETS),
        BIMODAL,
        "packets pass through chains of tasks; in a few packets tasks sleep for long (same thesis)",
    )
    .cases_of(bimodal::CASES),
    row(
        "options",
        Kind::Options,
        size_of(options::OPTIONS),
        OPTIONS,
        "binomial trees, a task for each time step; latency counts from the beginning (same thesis)",
    )
    .cases_of(options::CASES),
    row(
        "fib",
        Kind::Fib,
        key(fib::N, (1, 12)),
        &[],
        "calls spawn and join both of their children; throughput counts calls (same thesis)",
    )
    .cases_of(fib::CASES),
    row(
        "mixer",
        Kind::Mixer,
        key(mixer::MIXERS, (1, 30)).own_default(100.0),
        MIXER,
        "conferences mix frames; their fibers wait by yielding; late sends are breaches (same thesis)",
    )
    .cases_of(mixer::CASES),
    row(
        "open",
        Kind::Open,
        size("requests", "50000"),
        &[],
        "requests of 10 us from outside, at --rate percent of what the workers can compute",
    ),
    row("stuck", Kind::Stuck, size("requests", "20000"), &[], "the same beside a fiber that computes for 5 ms"),
    row("burst", Kind::Burst, size("requests", "5000"), &[], "requests of 10 us from outside, all at once"),
    micro("yield", micro::Case::Yield, "100 fibers a worker yield (CFA thesis, as those below)"),
    micro("cycle", micro::Case::Cycle, "rings of five fibers, 20 a worker, pass tokens on"),
    micro("churn", micro::Case::Churn, "100 fibers a worker release and acquire random semaphores"),
    micro("locality", micro::Case::Locality, "100 fibers a worker write to their data and take each other's places"),
    row(
        "transfer",
        Kind::Micro(micro::Case::Transfer),
        size("rounds", "20"),
        &[],
        "a leader waits, without yielding, until all others have run; ends early if some do not within 2 ms",
    ),
];
