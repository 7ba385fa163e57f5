//! The table of workloads: names, sizes, parameters, and what is allowed.
//!
//! Parameters have the names that `plainweave bench thesis` gives them.

use super::micro::Case;
use super::value::Value;

/// A number that a workload can be given: its size, or one of its parameters.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What it is if a run says nothing else.
    pub(crate) own: f64,
    /// The least and the most that is allowed.
    pub(crate) range: (f64, f64),
    /// What random small machines draw it from.
    pub(crate) small: (u64, u64),
    whole: bool,
    /// If it is a choice: what there is. Values are places in this list.
    words: &'static [&'static str],
    pub(crate) what: &'static str,
}

impl Key {
    /// Checks a value for it, under the name that a message should give, and returns it as a number.
    ///
    /// # Errors
    /// It is not allowed: a message that says what is.
    pub(super) fn check(&self, name: &str, value: &Value) -> Result<f64, String> {
        let (least, most) = self.range;
        let value = match value {
            _ if !self.words.is_empty() => {
                let text = value.to_string();
                let place = self.words.iter().position(|word| *word == text);
                let refused = || format!("{name} is '{text}': {} are allowed", self.words.join(" and "));
                return place.map(|place| place as f64).ok_or_else(refused);
            }
            Value::Word(word) => return Err(format!("{name} is '{word}': numbers from {least} to {most} are allowed")),
            Value::Number(number) => *number,
        };
        let numbers = if self.whole { "whole numbers " } else { "" };
        match (least..=most).contains(&value) {
            true if !self.whole || value.fract() == 0.0 => Ok(value),
            true => Err(format!("{name} is {value}: {numbers}from {least} to {most} are allowed")),
            false => Err(format!("{name} is {value}: {least} to {most} are allowed")),
        }
    }
}

impl Key {
    /// Returns a value for it that was drawn from `small`.
    pub(crate) fn drawn(&self, number: u64) -> Value {
        let word = self.words.get(number as usize);
        word.map_or(Value::Number(number as f64), |word| Value::Word((*word).to_owned()))
    }

    /// Returns what is allowed and what it is by itself, for `--help`.
    pub(crate) fn allowed(&self) -> String {
        let (least, most) = self.range;
        match self.words {
            [] => format!("{least} to {most} [default: {}]", self.own),
            words => format!("{} [default: {}]", words.join(" or "), words[self.own as usize]),
        }
    }
}

const fn key(name: &'static str, own: f64, range: (f64, f64), small: (u64, u64), what: &'static str) -> Key {
    Key { name, own, range, small, whole: true, words: &[], what }
}

/// A choice. The first of two words is the default.
const fn choice(name: &'static str, words: &'static [&'static str; 2], what: &'static str) -> Key {
    Key { words, ..key(name, 0.0, (0.0, 1.0), (0, 1), what) }
}

/// A workload's size. Only `name` says what it counts.
const fn size(name: &'static str, own: f64) -> Key {
    key(name, own, (1.0, 20e6), (20, 419), "")
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
    Micro(Case),
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(super) kind: Kind,
    pub(crate) size: Key,
    pub(crate) parameters: &'static [Key],
    pub(crate) what: &'static str,
}

const fn row(name: &'static str, kind: Kind, size: Key, parameters: &'static [Key], what: &'static str) -> Row {
    Row { name, kind, size, parameters, what }
}

const fn micro(name: &'static str, case: Case, what: &'static str) -> Row {
    row(name, Kind::Micro(case), size("operations", 100_000.0), &[], what)
}

const SPAWNERS: &str = "fibers that spawn them";

/// The longest time for which a fiber may hold up its worker, in milliseconds. The checker's bound on a livelock is
/// longer.
const HOLD_UP: f64 = 50.0;

const DELAY: Key =
    key("delay-ns", 0.0, (0.0, HOLD_UP * 1e6), (0, 2_000), "nanoseconds for which each handler holds up its worker");

const BIMODAL: &[Key] = &[
    key("spawners", 10.0, (1.0, 1_000.0), (1, 10), SPAWNERS),
    key("chain", 3.0, (1.0, 1_000.0), (2, 5), "tasks of a packet, one after the other"),
    Key { whole: false, ..key("heavy", 0.2, (0.0, 100.0), (0, 5), "percentage of heavy packets") },
    key("sleeps", 2.0, (0.0, 1_000.0), (0, 2), "tasks at the end of a heavy packet's chain that sleep"),
    key("sleep-ms", 20.0, (1.0, HOLD_UP), (1, 2), "milliseconds of a sleep"),
    choice("wait", &["block", "suspend"], "whether a sleep holds up its worker"),
];

const MIXER: &[Key] = &[
    key("legs", 2.0, (1.0, 1_000.0), (1, 3), "legs of each"),
    key("rounds", 6.0, (1.0, 1e6), (1, 2), "frames of each leg"),
    key("frame-ms", 20.0, (1.0, 10_000.0), (1, 1), "milliseconds from frame to frame"),
    key("bytes", 1_600.0, (2.0, 1e6), (2, 2_000), "bytes of a frame, two a sample"),
    key("late-ms", 10.0, (1.0, 10_000.0), (1, 10), "milliseconds after which a send is a breach"),
];

const OPTIONS: &[Key] = &[
    key("depth", 20.0, (1.0, 20_000.0), (1, 40), "time steps of most"),
    key("deep", 5_000.0, (1.0, 20_000.0), (1, 300), "time steps of the deep ones"),
    key("deep-in", 200.0, (1.0, 1e9), (5, 200), "one option in this many is deep"),
];

/// The workloads that have a name.
pub(crate) const LOADS: &[Row] = &[
    row(
        "packets",
        Kind::Packets,
        size("packets", 50_000.0),
        &[key("spawners", 1.0, (1.0, 1_000.0), (1, 5), SPAWNERS), DELAY],
        "one fiber spawns handlers without a pause; each scans a packet (OCaml schedulers' thesis)",
    ),
    row(
        "packets-spawners",
        Kind::Packets,
        size("packets", 50_000.0),
        &[key("spawners", 4.0, (1.0, 1_000.0), (1, 5), SPAWNERS), DELAY],
        "the same by four fibers",
    ),
    row(
        "bimodal",
        Kind::Bimodal,
        size("packets", 100_000.0),
        BIMODAL,
        "packets pass through chains of tasks; in a few packets tasks sleep for long (same thesis)",
    ),
    row(
        "options",
        Kind::Options,
        size("options", 30_000.0),
        OPTIONS,
        "binomial trees, a task for each time step; latency counts from the beginning (same thesis)",
    ),
    row(
        "fib",
        Kind::Fib,
        key("n", 20.0, (1.0, 30.0), (1, 12), ""),
        &[],
        "calls spawn and join both of their children; throughput counts calls (same thesis)",
    ),
    row(
        "mixer",
        Kind::Mixer,
        key("mixers", 100.0, (1.0, 100_000.0), (1, 30), ""),
        MIXER,
        "conferences mix frames; their fibers wait by yielding; late sends are breaches (same thesis)",
    ),
    row(
        "open",
        Kind::Open,
        size("requests", 50_000.0),
        &[],
        "requests of 10 us from outside, at --rate percent of what the workers can compute",
    ),
    row("stuck", Kind::Stuck, size("requests", 20_000.0), &[], "the same beside a fiber that computes for 5 ms"),
    row("burst", Kind::Burst, size("requests", 5_000.0), &[], "requests of 10 us from outside, all at once"),
    micro("yield", Case::Yield, "100 fibers a worker yield (CFA thesis, as those below)"),
    micro("cycle", Case::Cycle, "rings of five fibers, 20 a worker, pass tokens on"),
    micro("churn", Case::Churn, "100 fibers a worker release and acquire random semaphores"),
    micro("locality", Case::Locality, "100 fibers a worker write to their data and take each other's places"),
    row(
        "transfer",
        Kind::Micro(Case::Transfer),
        size("rounds", 20.0),
        &[],
        "a leader waits, without yielding, until all others have run; ends early if some do not within 2 ms",
    ),
];
