//! Requests: which key, and how large its value is.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// How large keys and values are. Each key has its own size, always the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sizes {
    /// Key lengths by a generalised extreme value distribution, values by a generalised Pareto one
    /// (Atikoglu et al.: Workload analysis of a large-scale key-value store, 2012), as mutilate has
    /// them.
    Fb,
    /// Values of 16 B to 64 KiB, each power of two as likely as the next larger one is rarer.
    Wide,
    /// Values of 200 B.
    Fixed,
    /// Values of 100 B, and one in ten of 8,000 B.
    Bimodal,
}

/// A sequence of requests.
pub(super) struct Trace {
    random: SmallRng,
    zipf: Zipf<f64>,
    /// Key and value length, by rank.
    items: Vec<(Box<[u8]>, usize)>,
}

impl Trace {
    /// `exponent`: Zipf's.
    pub(super) fn new(keys: usize, sizes: Sizes, exponent: f64, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let items = (0..keys)
            .map(|number| item(number, sizes, &mut random))
            .collect();
        let zipf = Zipf::new(keys as f64, exponent).expect("there are keys");
        Self {
            random,
            zipf,
            items,
        }
    }

    /// Returns the next request: key and value length.
    pub(super) fn next(&mut self) -> (Box<[u8]>, usize) {
        let rank = self.zipf.sample(&mut self.random) as usize;
        self.items[rank.clamp(1, self.items.len()) - 1].clone()
    }
}

fn item(number: usize, sizes: Sizes, random: &mut SmallRng) -> (Box<[u8]>, usize) {
    let chance: f64 = random.random_range(1e-9..1.0);
    let (key_len, value_len) = match sizes {
        Sizes::Fb => {
            let other: f64 = random.random_range(1e-9..1.0);
            let key = 30.7984 + 8.20449 * ((-other.ln()).powf(-0.078_688) - 1.0) / 0.078_688;
            let value = 15.0 + 214.476 * (chance.powf(-0.348_238) - 1.0) / 0.348_238;
            (key as usize, value as usize)
        }
        Sizes::Wide => (20, (16.0 / chance.powf(0.8)) as usize),
        Sizes::Fixed => (20, 200),
        Sizes::Bimodal => (20, if chance < 0.1 { 8_000 } else { 100 }),
    };

    let mut key = format!("{number:x}-").into_bytes();
    key.resize(key_len.clamp(key.len(), 250), b'k');
    (key.into(), value_len.min(65_536))
}
