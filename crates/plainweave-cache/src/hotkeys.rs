//! The keys asked for most, of a sample.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) with a fixed number of counters: a key
//! that has none takes over the least counter, whose count becomes the new key's possible error.
//! Every key with more than 1/[`COUNTERS`] of the sampled commands is certainly among them, and a
//! count is too high by its error at most, never too low. Once a minute all is halved, so the list
//! speaks of the last minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are followed.
const COUNTERS: usize = 256;
/// One command in this many is sampled, on average.
const SAMPLED: u32 = 64;
const HALVING: Duration = Duration::from_secs(60);

/// Chooses the commands that are looked at. The distances between them are random: at a fixed one,
/// clients that ask for the same keys in turn would show the same few of them always.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    left: u32,
    random: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            left: 1,
            random: 0x9e37_79b9,
        }
    }
}

impl Sampler {
    /// Counts a command; whether it is looked at.
    #[inline]
    pub(crate) fn takes(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        // Xorshift32 (Marsaglia, Journal of Statistical Software, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.left = 1 + self.random % (2 * SAMPLED - 1);

        true
    }
}

/// The counters, shared by all workers, which lose a sample rather than wait for each other.
#[derive(Debug)]
pub(crate) struct HotKeys(Mutex<Sketch>);

#[derive(Debug)]
struct Sketch {
    places: HashMap<Arc<[u8]>, usize, foldhash::fast::RandomState>,
    keys: Vec<Arc<[u8]>>,
    counts: Vec<u64>,
    errors: Vec<u64>,
    seen: u64,
    halved: Instant,
}

/// A key, with shares of the sampled commands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hot {
    pub(crate) key: Box<[u8]>,
    /// At most this share of the commands named it.
    pub(crate) share: f64,
    /// The share may be too high by this much.
    pub(crate) error: f64,
}

impl Default for HotKeys {
    fn default() -> Self {
        let counts = Vec::with_capacity(COUNTERS);
        let errors = Vec::with_capacity(COUNTERS);
        let places = HashMap::default();
        let keys = Vec::with_capacity(COUNTERS);
        let halved = Instant::now();

        Self(Mutex::new(Sketch {
            places,
            keys,
            counts,
            errors,
            seen: 0,
            halved,
        }))
    }
}

impl HotKeys {
    /// Counts the key of a sampled command. Never waits.
    pub(crate) fn note(&self, key: &[u8]) {
        if let Ok(mut sketch) = self.0.try_lock() {
            sketch.note(key);
        }
    }

    /// Returns the keys with the greatest counts, and the number of samples that they stand for.
    pub(crate) fn top(&self, most: usize) -> (Vec<Hot>, u64) {
        let sketch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = sketch.seen.max(1) as f64;
        let share = |count: u64| count as f64 / seen;
        let hot = sketch.places.iter().map(|(key, place)| Hot {
            key: Box::from(&**key),
            share: share(sketch.counts[*place]),
            error: share(sketch.errors[*place]),
        });

        let mut keys: Vec<Hot> = hot.collect();
        keys.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(most);
        (keys, sketch.seen)
    }
}

impl Sketch {
    fn note(&mut self, key: &[u8]) {
        self.seen += 1;
        if self.seen.is_multiple_of(4096) && self.halved.elapsed() > HALVING {
            self.halve();
        }
        if let Some(place) = self.places.get(key) {
            self.counts[*place] += 1;
            return;
        }

        if self.counts.len() < COUNTERS {
            let key = Arc::from(key);
            self.places.insert(Arc::clone(&key), self.counts.len());
            self.keys.push(key);
            self.counts.push(1);
            self.errors.push(0);
            return;
        }

        let least = (0..COUNTERS)
            .min_by_key(|place| self.counts[*place])
            .unwrap_or_default();
        self.places.remove(&self.keys[least]);
        self.keys[least] = Arc::from(key);
        self.places.insert(Arc::clone(&self.keys[least]), least);
        self.errors[least] = self.counts[least];
        self.counts[least] += 1;
    }

    fn halve(&mut self) {
        self.counts
            .iter_mut()
            .for_each(|count| *count = count.div_ceil(2));
        self.errors
            .iter_mut()
            .for_each(|error| *error = error.div_ceil(2));
        self.seen = self.seen.div_ceil(2);
        self.halved = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_key_is_found_and_its_count_is_within_its_error() {
        let hot = HotKeys::default();
        let mut state = 1u64;
        for n in 0..100_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = if n % 20 == 0 {
                "hot".to_owned()
            } else {
                format!("cold{}", state >> 40)
            };
            hot.note(key.as_bytes());
        }

        let (top, seen) = hot.top(1);
        assert_eq!((&*top[0].key, seen), (&b"hot"[..], 100_000));
        assert!(
            top[0].share >= 0.05 && top[0].share - top[0].error <= 0.05,
            "{top:?}"
        );
        assert!(hot.top(usize::MAX).0.len() <= COUNTERS);
    }

    #[test]
    fn samples_see_every_key_of_a_cycle() {
        let mut sampler = Sampler::default();
        let mut seen = [0u32; 64];
        let cycle = 64;
        for n in 0..SAMPLED as usize * 6400 {
            seen[n % cycle] += u32::from(sampler.takes());
        }

        assert!(
            seen.iter().all(|n| (50..200).contains(n)),
            "100 each: {seen:?}"
        );
    }

    #[test]
    fn halving_keeps_the_bounds() {
        let hot = HotKeys::default();
        (0..9).for_each(|_| hot.note(b"a"));
        hot.0.lock().unwrap().halve();
        let (top, seen) = hot.top(10);
        assert_eq!((top.len(), seen), (1, 5));
        assert_eq!((top[0].share, top[0].error), (1.0, 0.0));
    }
}
