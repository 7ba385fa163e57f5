//! Which item is asked for next: the next in turn, or one chosen by popularity.

use std::ops::RangeInclusive;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

/// How often each of the items 0..n is asked for.
#[derive(Clone, Debug)]
pub(super) enum Popularity {
    /// Equally often, in turn.
    InTurn { next: usize, items: usize },
    /// Item 0 is the most popular.
    Zipf(Zipf<f64>),
}

impl Popularity {
    /// Makes one of `items` (at least one). `zipf` is the exponent; `None` goes in turn, and starts
    /// at `first`.
    pub(super) fn new(items: usize, zipf: Option<f64>, first: usize) -> Self {
        let distribution = zipf.and_then(|s| Zipf::new(items as f64, s).ok());
        distribution.map_or(
            Popularity::InTurn {
                next: first % items,
                items,
            },
            Popularity::Zipf,
        )
    }

    /// Returns the number of the next item.
    #[inline]
    pub(super) fn pick(&mut self, random: &mut SmallRng) -> usize {
        match self {
            Popularity::InTurn { next, items } => {
                let chosen = *next;
                *next = if chosen + 1 == *items { 0 } else { chosen + 1 };
                chosen
            }
            Popularity::Zipf(distribution) => random.sample(*distribution) as usize - 1,
        }
    }
}

/// One worker's choice of items, with its source of random numbers.
#[derive(Debug)]
pub(super) struct Picker {
    pub(super) random: SmallRng,
    /// Of each server's items.
    popularity: Vec<Popularity>,
}

impl Picker {
    pub(super) fn new(seed: u64, popularity: Vec<Popularity>) -> Self {
        Self {
            random: SmallRng::seed_from_u64(seed),
            popularity,
        }
    }

    /// Returns the number of a server's next item.
    pub(super) fn pick(&mut self, server: usize) -> usize {
        self.popularity[server].pick(&mut self.random)
    }
}

/// Parses the exponent of a Zipf distribution.
pub(super) fn exponent(text: &str) -> Result<f64, String> {
    number_in(text, "an exponent", 0.0..=100.0, 0.9)
}

/// Parses a number within a range; otherwise says what to write, with an example.
pub(super) fn number_in(
    text: &str,
    what: &str,
    range: RangeInclusive<f64>,
    example: f64,
) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        format!(
            "write {what} from {} to {}, as in {example}",
            range.start(),
            range.end()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(mut popularity: Popularity, count: usize) -> Vec<usize> {
        let mut random = SmallRng::seed_from_u64(1);
        (0..count).map(|_| popularity.pick(&mut random)).collect()
    }

    #[test]
    fn exponents() {
        assert_eq!(exponent("0"), Ok(0.0));
        assert!(
            ["", "-1", "nan", "inf"]
                .iter()
                .all(|text| exponent(text).is_err())
        );
    }

    #[test]
    fn in_turn_visits_all() {
        assert_eq!(picks(Popularity::new(3, None, 1), 5), [1, 2, 0, 1, 2]);
        assert_eq!(picks(Popularity::new(1, None, 7), 2), [0, 0]);
    }

    #[test]
    fn zipf_follows_its_distribution() {
        // With exponent 1 over 10 items the first has 1 / H(10) = 34.1 % of the picks, the last a
        // tenth of that.
        let picked = picks(Popularity::new(10, Some(1.0), 0), 100_000);
        let share = |item| picked.iter().filter(|d| **d == item).count() as f64 / 100_000.0;
        assert!(
            (share(0) - 0.3414).abs() < 0.01 && (share(9) - 0.0341).abs() < 0.005,
            "{} {}",
            share(0),
            share(9)
        );
        let even = picks(Popularity::new(4, Some(0.0), 0), 40_000);
        let count = |item| even.iter().filter(|d| **d == item).count();

        assert!((0..4).all(|item| (9_500..10_500).contains(&count(item))));
    }
}
