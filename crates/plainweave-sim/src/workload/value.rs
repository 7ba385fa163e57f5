//! What a parameter of a workload is given.

use std::fmt;

use serde::Deserialize;

/// A number, or a word where the workload has a choice.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    /// Reads what a flag says: a number if it is one.
    fn from(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Word(text.to_owned()), Self::Number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}
