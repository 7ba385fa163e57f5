//! The fuzz target without a fuzzer: the corpus as it stands, and mutations of it by a fixed seed.
//!
//! `PLAINWEAVE_FUZZ=1000000` makes more of them.

use std::path::Path;

#[path = "../../fuzz/entry.rs"]
mod entry;

/// Mutations in a run of the tests.
const MUTATIONS: usize = 20_000;
/// Longest input.
const LONGEST: usize = 4096;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// xorshift64* (S. Vigna, 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % bound.max(1)
    }
}

/// Pieces that parsers take for something.
const PIECES: [&[u8]; 12] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b":",
    b" ",
    b"\0",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"HTTP/1.1",
    b"chunked",
    b"Transfer-Encoding: chunked\r\n",
    b"ffffffffffffffff",
];

/// Changes an input in one of the ways that fuzzers know.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let len = random.below(8).min(input.len() - at);
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.below(256) as u8,
        2 => drop(input.drain(at..at + len)),
        3 => input.truncate(at),
        4 => drop(input.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
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

/// A target: its name, its claims, and how many mutations of its corpus are one of the others'.
type Target = (&'static str, fn(&[u8]), usize);

const TARGETS: [Target; 6] = [
    ("request", entry::request, 1),
    ("chunked", entry::chunked, 1),
    ("response", entry::response, 1),
    ("proxy", entry::proxy, 1),
    ("http2", entry::http2, 1),
    // Most of them compute a signature.
    ("tls", entry::tls, 20),
];

#[test]
fn the_corpus_holds() {
    for (target, holds, _) in TARGETS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 8, "{target}: {} inputs", inputs.len());
        inputs.iter().for_each(|input| holds(input));
    }
}

/// The targets are as many as cargo-fuzz has.
#[test]
fn every_target_is_here() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut names = TARGETS.map(|(name, ..)| name);
    names.sort_unstable();
    let files: Vec<_> = files
        .iter()
        .map(|file| file.file_stem().unwrap().to_str().unwrap())
        .collect();

    assert_eq!(files, names);
}

#[test]
fn mutations_of_the_corpus_hold() {
    TARGETS.into_iter().for_each(mutations);
}

fn mutations((target, holds, cost): Target) {
    let count = std::env::var("PLAINWEAVE_FUZZ")
        .map_or(MUTATIONS, |count| count.parse().expect("a number"))
        / cost;
    let corpus = corpus(target);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);

    for n in 0..count {
        let mut input = corpus[n % corpus.len()].clone();
        for _ in 0..=random.below(6) {
            let other = random.below(corpus.len());
            mutate(&mut input, &corpus[other], &mut random);
        }

        if let Err(panic) = std::panic::catch_unwind(|| holds(&input)) {
            let shown: String = input
                .iter()
                .flat_map(|byte| std::ascii::escape_default(*byte))
                .map(char::from)
                .collect();
            panic!(
                "{target}: mutation {n} fails ({:?}): b\"{shown}\"",
                panic.downcast_ref::<String>()
            );
        }
    }
}
