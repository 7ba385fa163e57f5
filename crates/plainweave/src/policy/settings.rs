//! Parameters as text: `param=value,...` onto the typed parameters of a policy.
//!
//! Each family of policies lists its parameters with what is valid; a bad name or value gets a message that says so.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::order::Ends;
use super::overflow::WhenFull;
use super::stealing::{StealingParams, Yields};
use super::victim::{Amount, Victim};
use super::{LocalParams, Place, SlotFor};

/// A parameter of a family of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What is valid.
    pub values: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// Parameters that can be set by text.
pub(super) trait Settings {
    /// All of them.
    const KEYS: &'static [Key];

    /// Sets one of [`KEYS`](Self::KEYS); `None`: not with that value.
    fn set(&mut self, key: &str, value: &str) -> Option<()>;

    /// What is wrong with the parameters together.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// Sets what `text` says. `policy` is named in the message if something is wrong.
pub(super) fn apply<S: Settings>(settings: &mut S, policy: &str, text: &str) -> Result<(), String> {
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!("policy '{policy}': '{pair}' is no parameter: write NAME=VALUE; {}", valid::<S>()));
        };
        let Some(known) = S::KEYS.iter().find(|known| known.name == key) else {
            return Err(format!("policy '{policy}' has no parameter '{key}'; {}", valid::<S>()));
        };
        if settings.set(key, value).is_none() {
            return Err(format!("policy '{policy}': {key}={value} is out of range; valid: {}", known.values));
        }
    }
    settings.check().map_err(|wrong| format!("policy '{policy}': {wrong}"))
}

fn valid<S: Settings>() -> String {
    if S::KEYS.is_empty() {
        return "it has none".to_owned();
    }
    let keys = S::KEYS.iter().map(|key| format!("{}={}", key.name, key.values));
    format!("it has: {}", keys.collect::<Vec<_>>().join(", "))
}

/// A number within a range.
pub(super) fn number<N: FromStr + PartialOrd>(text: &str, range: RangeInclusive<N>) -> Option<N> {
    text.parse().ok().filter(|n| range.contains(n))
}

/// One of some words.
pub(super) fn word<V: Copy>(text: &str, words: &[(&str, V)]) -> Option<V> {
    words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

const fn key(name: &'static str, values: &'static str, what: &'static str) -> Key {
    Key { name, values, what }
}

/// No parameters.
impl Settings for () {
    const KEYS: &'static [Key] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }
}

impl Settings for LocalParams {
    const KEYS: &'static [Key] = &[
        key("order", "fifo|lifo", "from which end a worker takes"),
        key("place", "own|deal", "where new tasks go: with who spawned them, or dealt by turns"),
        key("poll", "1..65535", "every so many pops what came from elsewhere goes first"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "order" => self.lifo = word(value, &[("fifo", false), ("lifo", true)])?,
            "place" => self.place = word(value, &[("own", Place::Own), ("deal", Place::Deal)])?,
            _ => self.poll = number(value, 1..=65_535)?,
        }
        Some(())
    }
}

impl Settings for StealingParams {
    const KEYS: &'static [Key] = &[
        key("order", "fifo|lifo|stochastic:P|alternate:N|reverse:N", "from which end a worker takes; P in percent"),
        key("slot", "0..1000000", "times in a row that what became ready last goes first; 0: no slot"),
        key("slot-for", "woken|all", "what goes there: what was woken, or new tasks too"),
        key("slot-steal", "yes|no", "whether thieves may empty it"),
        key("capacity", "1..32768", "tasks that a worker holds (with order=fifo rounded up to a power of two)"),
        key("poll", "1..65535", "every so many pops the shared queue goes first"),
        key("victim", "uniform|near:K|group|biased", "whom an idle worker robs"),
        key("amount", "half|one|atleast:N", "how much it takes"),
        key("full", "shed|grow|overflow|request|sticky|announce", "what to do without room"),
        key("spin", "0..1000000", "attempts to find room before that"),
        key("shards", "1..256", "shared queues"),
        key("yields", "local|shared", "where tasks that yield go"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "order" => self.ends = ends(value)?,
            "slot" => self.slot.in_a_row = number(value, 0..=1_000_000)?,
            "slot-for" => self.slot.takes = word(value, &[("woken", SlotFor::Woken), ("all", SlotFor::All)])?,
            "slot-steal" => self.slot.stealable = word(value, &[("yes", true), ("no", false)])?,
            "capacity" => self.capacity = number(value, 1..=32_768)?,
            "poll" => self.poll = number(value, 1..=65_535)?,
            "victim" => self.victim = victim(value)?,
            "amount" => self.amount = amount(value)?,
            "full" => self.full = full(value)?,
            "spin" => self.spin = number(value, 0..=1_000_000)?,
            "shards" => self.shards = number(value, 1..=256)?,
            _ => self.yields = word(value, &[("local", Yields::Local), ("shared", Yields::Shared)])?,
        }
        Some(())
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.slot.in_a_row > 0 && (self.ends != Ends::Fifo || self.full == WhenFull::Grow) {
            return Err("a slot goes with order=fifo and a bounded structure: set slot=0, or change order and full");
        }
        Ok(())
    }
}

/// The number after a word and a colon.
fn with<N: FromStr + PartialOrd>(text: &str, word: &str, range: RangeInclusive<N>) -> Option<N> {
    number(text.strip_prefix(word)?.strip_prefix(':')?, range)
}

fn ends(text: &str) -> Option<Ends> {
    word(text, &[("fifo", Ends::Fifo), ("lifo", Ends::Lifo)])
        .or_else(|| with(text, "stochastic", 0..=100).map(|percent| Ends::Stochastic { percent }))
        .or_else(|| with(text, "alternate", 1..=65_535).map(|n| Ends::Alternate { n }))
        .or_else(|| with(text, "reverse", 1..=65_535).map(|n| Ends::Reverse { n }))
}

fn victim(text: &str) -> Option<Victim> {
    let words = [("uniform", Victim::Uniform), ("group", Victim::Group), ("biased", Victim::Biased)];
    word(text, &words).or_else(|| with(text, "near", 1..=1024).map(|k| Victim::Nearest { k }))
}

fn amount(text: &str) -> Option<Amount> {
    let words = [("half", Amount::Half), ("one", Amount::One)];
    word(text, &words).or_else(|| with(text, "atleast", 1..=32_768).map(|n| Amount::AtLeast { n }))
}

fn full(text: &str) -> Option<WhenFull> {
    let words = [
        ("shed", WhenFull::Shed),
        ("grow", WhenFull::Grow),
        ("overflow", WhenFull::Overflow),
        ("request", WhenFull::Request { sticky: false }),
        ("sticky", WhenFull::Request { sticky: true }),
        ("announce", WhenFull::Announce),
    ];
    word(text, &words)
}
