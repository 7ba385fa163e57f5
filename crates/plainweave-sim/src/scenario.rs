//! Scenarios: what to run, as a file that can be kept and passed on.
//!
//! ```toml
//! policies = ["fifo", "ot-lifo-base"]
//! workers = [5, 20, 80]
//! workload = "open"
//! size = 20000
//! rate = 90
//! machine = "epyc"
//! idle = "sleep"
//! seed = 1
//! runs = 5
//!
//! [costs]
//! machine = 180
//! ```
//!
//! In place of `machine` there may be a table, which describes a machine of one's own; its fields
//! are those of
//! [`Shape`]:
//!
//! ```toml
//! [machine]
//! core = 2
//! group = 16
//! socket = 32
//! slow = 25
//! slowdown = 1.7
//! ```
//!
//! A `case` is a published combination of size and parameters; `size` and the table `[params]` go
//! before it. Every line is optional. What is wrong is refused with its line and what is allowed
//! there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::engine::Setup;
use crate::machine::{MAX_WORKERS, Machine, Shape};
use crate::policy::Choice;
use crate::workload::{Load, Value};

/// The most repetitions.
pub(crate) const MAX_RUNS: u64 = 1_000;
/// The highest rate, in percent.
pub(crate) const MAX_RATE: u64 = 1_000;

/// What to run, before anybody has looked whether it makes sense.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    /// If empty, those of the case, or else `fifo`.
    pub(crate) policies: Vec<Spanned<String>>,
    pub(crate) workers: Vec<Spanned<u64>>,
    pub(crate) workload: Spanned<String>,
    pub(crate) case: Option<Spanned<String>>,
    pub(crate) size: Option<Spanned<u64>>,
    pub(crate) rate: Option<Spanned<u64>>,
    pub(crate) machine: Spanned<Chosen>,
    pub(crate) idle: Spanned<String>,
    pub(crate) seed: u64,
    pub(crate) runs: Spanned<u64>,
    pub(crate) costs: BTreeMap<String, Spanned<f64>>,
    pub(crate) params: BTreeMap<String, Spanned<Value>>,
}

/// A machine: one that has a name, or the fields of another.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    Named(String),
    Described(BTreeMap<String, Spanned<f64>>),
}

impl<'de> Deserialize<'de> for Chosen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Chosen;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a machine's name, or a table of its fields")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Chosen, E> {
                Ok(Chosen::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Chosen, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.insert(name, value);
                }
                Ok(Chosen::Described(fields))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Described(fields) if fields.is_empty() => f.write_str("a machine of one cache"),
            Self::Described(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.get_ref()))
                    .collect();
                write!(f, "a machine of {}", fields.join(", "))
            }
        }
    }
}

/// Returns a value that stands nowhere in a file.
pub(crate) fn unwritten<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            workers: [1, 2, 4, 8, 16, 32, 64].map(unwritten).to_vec(),
            workload: unwritten("packets".to_owned()),
            case: None,
            size: None,
            rate: None,
            machine: unwritten(Chosen::Named("epyc".to_owned())),
            idle: unwritten("sleep".to_owned()),
            seed: 1,
            runs: unwritten(1),
            costs: BTreeMap::new(),
            params: BTreeMap::new(),
        }
    }
}

/// What makes no sense, and the bytes of the file where it stands.
#[derive(Debug)]
pub(crate) struct Refused {
    at: std::ops::Range<usize>,
    what: String,
}

impl Refused {
    /// Returns the message for flags.
    pub(crate) fn plain(self) -> String {
        self.what
    }

    /// Returns the message for a file: with the line.
    fn in_file(self, text: &str) -> String {
        let line = text[..self.at.start.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {}", self.what)
    }
}

fn refuse<T>(field: &Spanned<T>, what: String) -> Refused {
    Refused {
        at: field.span(),
        what,
    }
}

fn within(name: &str, field: &Spanned<u64>, range: RangeInclusive<u64>) -> Result<u64, Refused> {
    let value = *field.get_ref();
    let refused = || {
        refuse(
            field,
            format!(
                "{name} is {value}: {} to {} are allowed",
                range.start(),
                range.end()
            ),
        )
    };
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(refused())
    }
}

impl Scenario {
    /// Reads a file's text.
    ///
    /// # Errors
    /// It is not TOML or has an unknown key, or a value makes no sense: a message with the line.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        scenario.setups().map_err(|refused| refused.in_file(text))?;
        Ok(scenario)
    }

    /// Returns what to run: for each policy and number of workers its repetitions.
    pub(crate) fn setups(&self) -> Result<Vec<Vec<Setup>>, Refused> {
        let runs = within("runs", &self.runs, 1..=MAX_RUNS)?;
        let load = self.load()?;
        let mut machines = Vec::new();
        for workers in &self.workers {
            let machine = self.machine(workers)?;
            load.pools(machine.workers())
                .map_err(|message| refuse(workers, message))?;
            machines.push(machine);
        }
        // Names are looked at here as well, so that a refusal says the line. A run would only say
        // the name.
        for policy in &self.policies {
            Choice::parse(policy.get_ref()).map_err(|message| refuse(policy, message))?;
        }
        let policies: Vec<_> = match load.policies() {
            // What is given goes before what was published with the case.
            _ if !self.policies.is_empty() => self
                .policies
                .iter()
                .map(|policy| policy.get_ref().as_str())
                .collect(),
            [] => vec!["fifo"],
            policies => policies.to_vec(),
        };
        let setup = |policy: &str, machine: &Machine, run| Setup {
            policy: policy.to_owned(),
            machine: machine.clone(),
            load: load.clone(),
            // Repetitions differ by their seed alone.
            seed: self.seed.wrapping_add(run),
            record: false,
            limit: None,
        };
        let pairs = policies
            .iter()
            .flat_map(|policy| machines.iter().map(move |machine| (policy, machine)));
        Ok(pairs
            .map(|(policy, machine)| (0..runs).map(|run| setup(policy, machine, run)).collect())
            .collect())
    }

    fn load(&self) -> Result<Load, Refused> {
        let name = self.workload.get_ref();
        let mut load =
            Load::named(name, None).map_err(|message| refuse(&self.workload, message))?;
        if let Some(case) = &self.case {
            load = load
                .case(case.get_ref())
                .map_err(|message| refuse(case, message))?;
        }
        if let Some(size) = &self.size {
            load = load
                .sized(*size.get_ref())
                .map_err(|message| refuse(size, message))?;
        }
        for (name, value) in &self.params {
            load = load
                .with(name, value.get_ref().clone())
                .map_err(|message| refuse(value, message))?;
        }
        // Parameters may be refused for each other's sake: the message goes to the line of one that
        // the file has.
        load.check().map_err(|(names, message)| {
            let written = names.iter().find_map(|name| self.params.get(*name));
            written.map_or_else(
                || refuse(&self.workload, message.clone()),
                |value| refuse(value, message.clone()),
            )
        })?;
        match &self.rate {
            Some(rate) if !load.has_rate() => Err(refuse(
                rate,
                format!("a rate has no effect on the workload '{name}'"),
            )),
            Some(rate) => Ok(load.at_rate(within("rate", rate, 1..=MAX_RATE)?)),
            None => Ok(load),
        }
    }

    fn machine(&self, workers: &Spanned<u64>) -> Result<Machine, Refused> {
        let count = within("workers", workers, 1..=MAX_WORKERS as u64)?;
        let mut machine = match self.machine.get_ref() {
            Chosen::Named(name) => Machine::named(name, count as usize),
            Chosen::Described(fields) => {
                let values = fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), *value.get_ref()));
                let shape =
                    Shape::of(values).map_err(|(name, message)| refuse(&fields[name], message))?;
                Machine::described(&shape, count as usize)
            }
        }
        .map_err(|message| refuse(&self.machine, message))?;
        for (name, value) in &self.costs {
            machine
                .costs
                .set(name, *value.get_ref())
                .map_err(|message| refuse(value, message))?;
        }
        match self.idle.get_ref().as_str() {
            "sleep" => Ok(machine),
            "spin" => Ok(machine.without_sleep()),
            other => Err(refuse(
                &self.idle,
                format!("idle is '{other}': 'sleep' and 'spin' are allowed"),
            )),
        }
    }

    /// Returns workload, machine, and what differs from the usual, for the head of a table and for
    /// CSV.
    pub(crate) fn describe(&self) -> String {
        let case = self
            .case
            .as_ref()
            .map_or(String::new(), |case| format!(" ({})", case.get_ref()));
        let mut text = format!(
            "{}{case} on {}",
            self.workload.get_ref(),
            self.machine.get_ref()
        );
        if let Some(rate) = &self.rate {
            text += &format!(" at {} %", rate.get_ref());
        }
        if let Some(size) = &self.size {
            text += &format!(", size={}", size.get_ref());
        }
        for (name, value) in &self.params {
            text += &format!(", {name}={}", value.get_ref());
        }
        if self.idle.get_ref() == "spin" {
            text += ", thieves never sleep";
        }
        for (name, value) in &self.costs {
            text += &format!(", cost {name}={}", value.get_ref());
        }

        text
    }
}
