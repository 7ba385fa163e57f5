//! The constants of `helping`, typed and as text, and its arithmetic of ages.

use super::settings::{Key, Settings, key, number, with};

/// How waits are averaged. Weights are of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Nanoseconds.
    Linear {
        /// How much the newest wait counts.
        weight: u64,
    },
    /// Their logarithms: a geometric mean, which one long wait moves less.
    Log2 {
        /// How much the newest wait counts.
        weight: u64,
    },
}

/// The constants of the algorithm.
#[derive(Clone, Debug, PartialEq)]
pub struct HelpingParams {
    /// Lanes for each worker, at least 1.
    pub lanes: usize,
    /// How many times older than the helper's own a lane must be to be helped, 1 to 1,000.
    pub factor: f64,
    /// How waits are averaged.
    pub average: Average,
    /// How many of 256 draws of a lane in another cache group make it the target.
    pub far: usize,
    /// How many pops it takes until the next lane of all comes first; 0: never, so there is no hard
    /// bound.
    pub every: u32,
}

impl Default for HelpingParams {
    /// The late published constants, but for `factor`: with 8 a fiber behind a busy worker whose
    /// neighbours yield waits five times as long (`docs/policies.md`).
    fn default() -> Self {
        Self {
            lanes: 2,
            factor: 2.0,
            average: Average::Log2 { weight: 12 },
            far: 3,
            every: 0,
        }
    }
}

impl Settings for HelpingParams {
    const KEYS: &'static [Key] = &[
        key("lanes", "1..64", "lanes for each worker"),
        key(
            "factor",
            "1..1000",
            "how many times older than the helper's own a lane must be to be helped; fractions are fine",
        ),
        key(
            "average",
            "linear:W|log2:W",
            "how waits are averaged; W, 1 to 16, is the newest one's weight of 16",
        ),
        key(
            "far",
            "0..256",
            "how many of 256 lanes drawn in another cache group are considered",
        ),
        key(
            "every",
            "0..65535",
            "pops until the next lane of all comes first: a hard bound; 0: never",
        ),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "lanes" => self.lanes = number(value, 1..=64)?,
            "factor" => self.factor = number(value, 1.0..=1000.0)?,
            "far" => self.far = number(value, 0..=256)?,
            "every" => self.every = number(value, 0..=65_535)?,
            _ => {
                let linear = with(value, "linear", 1..=16).map(|weight| Average::Linear { weight });
                self.average = linear.or_else(|| {
                    with(value, "log2", 1..=16).map(|weight| Average::Log2 { weight })
                })?;
            }
        }
        Some(())
    }
}

impl Average {
    /// Nanoseconds in the average's unit: themselves, or sixteenths of their binary logarithm.
    pub(super) fn scale(self, ns: u64) -> u64 {
        match self {
            Average::Linear { .. } => ns,
            Average::Log2 { .. } => {
                let log = (ns | 1).ilog2();
                let fraction = if log >= 4 {
                    ns >> (log - 4)
                } else {
                    ns << (4 - log)
                } & 15;
                u64::from(log) * 16 + fraction
            }
        }
    }

    pub(super) fn add(self, old: u64, ns: u64) -> u64 {
        let (Average::Linear { weight } | Average::Log2 { weight }) = self;
        (weight * self.scale(ns).min(u64::MAX >> 6) + (16 - weight) * old) / 16
    }

    /// The age that is `factor` times this one.
    pub(super) fn times(self, age: u64, factor: f64) -> u64 {
        match self {
            Average::Linear { .. } => (age as f64 * factor) as u64,
            Average::Log2 { .. } => age + (factor.log2() * 16.0) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_the_newest_by_its_weight() {
        let linear = Average::Linear { weight: 4 };
        assert_eq!(linear.add(1600, 0), 1200);
        assert_eq!(linear.add(0, 1600), 400);
        assert_eq!(linear.times(100, 1.5), 150);
        let log = Average::Log2 { weight: 16 };
        assert_eq!(
            [1, 2, 3, 16, 1024].map(|ns| log.add(0, ns)),
            [0, 16, 24, 64, 160]
        );
        assert!(log.add(0, u64::MAX) >= 63 * 16 && log.add(0, 0) == 0);
        assert_eq!(log.times(160, 8.0), 160 + 48);
    }
}
