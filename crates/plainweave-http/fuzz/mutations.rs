//! Mutations of a corpus by a fixed seed: a fuzz target's claims without a fuzzer, for the tests.
//!
//! `PLAINWEAVE_FUZZ=1000000` makes more of them.

use std::path::Path;

/// Mutations in a run of the tests.
const MUTATIONS: usize = 20_000;
/// Longest input.
const LONGEST: usize = 4096;

/// What is held against mutations.
#[derive(Clone, Copy)]
pub(crate) struct FuzzTarget {
    /// That of its folder in the corpus, and of cargo-fuzz's target.
    pub(crate) name: &'static str,
    pub(crate) holds: fn(&[u8]),
    /// How many mutations of another target take as long as one.
    pub(crate) cost: usize,
    /// What its parsers take for something.
    pub(crate) pieces: &'static [&'static [u8]],
}

/// Returns the inputs of a target, in order; `fuzz` is cargo-fuzz's folder.
fn corpus(fuzz: &Path, target: &str) -> Vec<Vec<u8>> {
    let files = sorted(&fuzz.join("corpus").join(target));
    let read = |name| std::fs::read(fuzz.join("corpus").join(target).join(name)).unwrap();
    files.into_iter().map(read).collect()
}

/// Returns the names of a folder's files.
fn sorted(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// xorshift64* (S. Vigna, 2016).
struct FuzzRandom(u64);

impl FuzzRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % bound.max(1)
    }
}

/// Changes an input in one of the ways that fuzzers know.
fn mutate(input: &mut Vec<u8>, other: &[u8], pieces: &[&[u8]], random: &mut FuzzRandom) {
    let at = random.below(input.len() + 1);
    let len = random.below(8).min(input.len() - at);
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.below(256) as u8,
        2 => drop(input.drain(at..at + len)),
        3 => input.truncate(at),
        4 => drop(input.splice(at..at, pieces[random.below(pieces.len())].iter().copied())),
        5 => {
            let again = input[at..at + len].to_vec();
            drop(input.splice(at..at, again));
        }
        _ => {
            let from = random.below(other.len());
            drop(input.splice(at.., other[from.min(other.len())..].iter().copied()));
        }
    }

    input.truncate(LONGEST);
}

/// Holds a target's claims against its corpus as it stands, and against mutations of it.
pub(crate) fn mutations(fuzz: &Path, target: &FuzzTarget) {
    let count = std::env::var("PLAINWEAVE_FUZZ")
        .map_or(MUTATIONS, |count| count.parse().expect("a number"))
        / target.cost;
    let corpus = corpus(fuzz, target.name);
    let mut random = FuzzRandom(0x9e37_79b9_7f4a_7c15);

    for n in 0..count {
        let mut input = corpus[n % corpus.len()].clone();
        for _ in 0..=random.below(6) {
            let other = random.below(corpus.len());
            mutate(&mut input, &corpus[other], target.pieces, &mut random);
        }

        if let Err(panic) = std::panic::catch_unwind(|| (target.holds)(&input)) {
            let shown: String = input
                .iter()
                .flat_map(|byte| std::ascii::escape_default(*byte))
                .map(char::from)
                .collect();
            panic!(
                "{}: mutation {n} fails ({:?}): b\"{shown}\"",
                target.name,
                panic.downcast_ref::<String>()
            );
        }
    }
}

/// Holds the claims of targets against their corpora as they stand.
pub(crate) fn assert_corpora(fuzz: &Path, targets: &[FuzzTarget]) {
    for target in targets {
        let inputs = corpus(fuzz, target.name);
        assert!(
            inputs.len() >= 8,
            "{}: {} inputs",
            target.name,
            inputs.len()
        );
        inputs.iter().for_each(|input| (target.holds)(input));
    }
}

/// The targets are those that cargo-fuzz has.
pub(crate) fn assert_complete(fuzz: &Path, targets: &[FuzzTarget]) {
    let files = sorted(&fuzz.join("fuzz_targets"));
    let names = targets.iter().map(|target| format!("{}.rs", target.name));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    assert_eq!(files, names);
}
