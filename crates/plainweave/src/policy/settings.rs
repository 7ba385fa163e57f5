//! Parameters as text: `param=value,...` onto the typed parameters of a policy.
//!
//! Each family of policies lists its parameters with what is valid; a bad name or value gets a
//! message that says so.

use std::ops::RangeInclusive;
use std::str::FromStr;

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
            return Err(format!(
                "policy '{policy}': '{pair}' is not a parameter: write NAME=VALUE; {}",
                valid::<S>()
            ));
        };
        let Some(known) = S::KEYS.iter().find(|known| known.name == key) else {
            return Err(format!(
                "policy '{policy}' has no parameter '{key}'; {}",
                valid::<S>()
            ));
        };
        if settings.set(key, value).is_none() {
            return Err(format!(
                "policy '{policy}': {key}={value} is out of range; valid: {}",
                known.values
            ));
        }
    }
    settings
        .check()
        .map_err(|wrong| format!("policy '{policy}': {wrong}"))
}

fn valid<S: Settings>() -> String {
    if S::KEYS.is_empty() {
        return "it has none".to_owned();
    }
    let keys = S::KEYS
        .iter()
        .map(|key| format!("{}={}", key.name, key.values));
    format!("it has: {}", keys.collect::<Vec<_>>().join(", "))
}

/// A number within a range.
pub(super) fn number<N: FromStr + PartialOrd>(text: &str, range: RangeInclusive<N>) -> Option<N> {
    text.parse().ok().filter(|n| range.contains(n))
}

/// One of some words.
pub(super) fn word<V: Copy>(text: &str, words: &[(&str, V)]) -> Option<V> {
    words
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
}

/// The number after a word and a colon.
pub(super) fn with<N: FromStr + PartialOrd>(
    text: &str,
    word: &str,
    range: RangeInclusive<N>,
) -> Option<N> {
    number(text.strip_prefix(word)?.strip_prefix(':')?, range)
}

/// A row of [`Settings::KEYS`].
pub(super) const fn key(name: &'static str, values: &'static str, what: &'static str) -> Key {
    Key { name, values, what }
}

/// No parameters.
impl Settings for () {
    const KEYS: &'static [Key] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }
}
