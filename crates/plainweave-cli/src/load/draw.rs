//! What is drawn at random: which item is next.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

/// Chooses among items 0..n.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// Each in its turn.
    InTurn { next: usize, items: usize },
    /// By popularity: item 0 is the most popular.
    Zipf(Zipf<f64>),
}

impl Choice {
    /// Among `items` (at least one). `zipf` is the exponent; `None` goes in turn, and starts at `first`.
    pub(super) fn new(items: usize, zipf: Option<f64>, first: usize) -> Self {
        let distribution = zipf.and_then(|s| Zipf::new(items as f64, s).ok());
        distribution.map_or(Choice::InTurn { next: first % items, items }, Choice::Zipf)
    }

    #[inline]
    pub(super) fn draw(&mut self, random: &mut SmallRng) -> usize {
        match self {
            Choice::InTurn { next, items } => {
                let chosen = *next;
                *next = if chosen + 1 == *items { 0 } else { chosen + 1 };
                chosen
            }
            Choice::Zipf(distribution) => random.sample(*distribution) as usize - 1,
        }
    }
}

/// One worker's state of what is drawn.
#[derive(Debug)]
pub(super) struct Draws {
    pub(super) random: SmallRng,
    pub(super) choice: Choice,
}

impl Draws {
    pub(super) fn new(seed: u64, choice: Choice) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), choice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(mut choice: Choice, count: usize) -> Vec<usize> {
        let mut random = SmallRng::seed_from_u64(1);
        (0..count).map(|_| choice.draw(&mut random)).collect()
    }

    #[test]
    fn in_turn_visits_all() {
        assert_eq!(draws(Choice::new(3, None, 1), 5), [1, 2, 0, 1, 2]);
        assert_eq!(draws(Choice::new(1, None, 7), 2), [0, 0]);
    }

    #[test]
    fn zipf_follows_its_distribution() {
        // With exponent 1 over 10 items the first has 1 / H(10) = 34.1 % of the draws, the last a tenth of that.
        let drawn = draws(Choice::new(10, Some(1.0), 0), 100_000);
        let share = |item| drawn.iter().filter(|d| **d == item).count() as f64 / 100_000.0;
        assert!((share(0) - 0.3414).abs() < 0.01 && (share(9) - 0.0341).abs() < 0.005, "{} {}", share(0), share(9));
        let even = draws(Choice::new(4, Some(0.0), 0), 40_000);
        let count = |item| even.iter().filter(|d| **d == item).count();
        assert!((0..4).all(|item| (9_500..10_500).contains(&count(item))));
    }
}
