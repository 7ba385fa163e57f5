//! The cache's store, without a server: what a call costs, how many items fit, and how often a get
//! finds something.
//!
//! The hit ratio is that of a cache in front of something slow: a get, and on a miss a set. Keys
//! follow a Zipf law; each key has a size of its own. Three caches see the same requests, 64 gets
//! in a row before the sets of those that missed: the store, memcached over a Unix socket with the
//! same `-m`, and a model of memcached's segmented LRU without memcached's slabs. The first half of
//! the requests warms up.
//!
//! The cases of the *front* are about what stays: what is popular (`zipf-*`, without the fb and
//! wide ones), also after a scan of as many bytes as there are, and beside scans; or what was just
//! written (`burst-*`). Further systems there: the store with S3-FIFO's small queue as published,
//! and models of LRU and SIEVE.

mod caches; // The caches that are compared, behind one small trait.
mod trace; // Requests: which key, and how large its value is.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use plainweave_cache::store::{Config, Store, Write};

use crate::harness::experiment::{Cases, Common};
use crate::harness::machine;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use caches::{Cache, Memcached, NOW, OneList, PUBLISHED, SegmentedLru};
use trace::{Sizes, Trace};

/// The cache's store beside memcached: cost of a call, items held, hit ratio.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Megabytes of each cache
    #[arg(long, value_name = "MB", default_value = "64")]
    memory: NonZeroUsize,

    /// Requests of a trace, half of them to warm up
    #[arg(long, value_name = "N", default_value = "6000000")]
    requests: NonZeroUsize,

    /// Keys of a trace
    #[arg(long, value_name = "N", default_value = "1000000")]
    keys: NonZeroUsize,

    /// Repetitions of the measurements of time, and traces with seeds of their own
    #[arg(long, value_name = "N", default_value = "3")]
    runs: NonZeroUsize,
}

/// Case and summary.
const CASES: [(&str, &str); 23] = [
    ("get", "a get of one of 10,000 items of 200 B, copied out"),
    ("get-many", "the same of 300,000 items of 32 B"),
    (
        "set",
        "a set of one of 10,000 items of 200 B, over the old value",
    ),
    (
        "set-evicting",
        "a set of a new item of 200 B in a full store",
    ),
    (
        "held-20",
        "items with keys of 10 B and values of 20 B that stay",
    ),
    ("held-200", "the same with values of 200 B"),
    (
        "zipf-fb",
        "hit ratio, Zipf(0.99), keys and values of the fb distributions",
    ),
    (
        "zipf-wide",
        "hit ratio, Zipf(0.99), values of 16 B to 64 KiB",
    ),
    ("zipf-0.7-fixed", "front: hit ratio, Zipf(0.7), sizes fixed"),
    ("zipf-0.9-fixed", "front: hit ratio, Zipf(0.9), sizes fixed"),
    (
        "zipf-0.99-fixed",
        "front: hit ratio, Zipf(0.99), sizes fixed",
    ),
    ("zipf-1.1-fixed", "front: hit ratio, Zipf(1.1), sizes fixed"),
    ("zipf-0.7-mixed", "front: hit ratio, Zipf(0.7), sizes mixed"),
    ("zipf-0.9-mixed", "front: hit ratio, Zipf(0.9), sizes mixed"),
    (
        "zipf-0.99-mixed",
        "front: hit ratio, Zipf(0.99), sizes mixed",
    ),
    ("zipf-1.1-mixed", "front: hit ratio, Zipf(1.1), sizes mixed"),
    (
        "zipf-0.7-bimodal",
        "front: hit ratio, Zipf(0.7), sizes bimodal",
    ),
    (
        "zipf-0.9-bimodal",
        "front: hit ratio, Zipf(0.9), sizes bimodal",
    ),
    (
        "zipf-0.99-bimodal",
        "front: hit ratio, Zipf(0.99), sizes bimodal",
    ),
    (
        "zipf-1.1-bimodal",
        "front: hit ratio, Zipf(1.1), sizes bimodal",
    ),
    (
        "scan",
        "front: hit ratio of Zipf(0.9) before and after a scan, and with a third of scans",
    ),
    (
        "burst-200",
        "front: how much of new items of 200 B is there later, by their part of the memory",
    ),
    ("burst-9000", "front: the same of 9,000 B"),
];

/// Bursts, in percent of the memory, and what stands for each in the rows.
const BURSTS: [(usize, &str); 5] = [
    (5, "present_of_5"),
    (10, "present_of_10"),
    (20, "present_of_20"),
    (40, "present_of_40"),
    (60, "present_of_60"),
];
/// What an item takes beside its value, about.
const BESIDE: usize = 60;
/// As many at once as a client sends together.
const BATCH: usize = 64;

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        report::list(&CASES);
        return Ok(());
    }

    flags.cases.check(CASES.iter().map(|(name, _)| *name))?;
    let mut rows = Vec::new();
    let mut failures = Failures::begin()?;
    // memcached gets the other CPU: its time is not measured here, its answers are.
    let pinned = machine::pin_to(1);

    for (name, _) in CASES.iter().filter(|(name, _)| flags.cases.has(name)) {
        report::progress(&format!("store: {name}"));
        let measured = failures.catch(name, || {
            Ok(match *name {
                // Few items stay in the CPU's caches, many do not.
                "get" => vec![timed(name, flags, || gets(flags, 10_000, 200))],
                "get-many" => vec![timed(name, flags, || gets(flags, 300_000, 32))],
                "set" => vec![timed(name, flags, || sets(flags))],
                "set-evicting" => vec![timed(name, flags, || evicting_sets(flags))],
                "held-20" => held(name, flags, 20)?,
                "held-200" => held(name, flags, 200)?,
                "zipf-fb" => hit_ratios(name, flags, BESIDE_MEMCACHED, (Sizes::Fb, 0.99))?,
                "zipf-wide" => hit_ratios(name, flags, BESIDE_MEMCACHED, (Sizes::Wide, 0.99))?,
                "scan" => scan(name, flags)?,
                "burst-200" => burst(name, flags, 200)?,
                "burst-9000" => burst(name, flags, 9_000)?,
                cell => hit_ratios(name, flags, &FRONT, load(cell)?)?,
            })
        });
        rows.extend(measured.unwrap_or_default());
    }

    let parameters = vec![
        (
            "memory",
            format!("{} MB, items up to 1 MB, one shard", flags.memory),
        ),
        (
            "traces",
            format!(
                "{} requests, half of them to warm up, {} keys",
                flags.requests, flags.keys
            ),
        ),
        (
            "placement",
            if pinned {
                "store and clients on CPU 1, memcached on CPU 0"
            } else {
                "not pinned"
            }
            .to_owned(),
        ),
    ];
    let report = Report {
        experiment: "store",
        parameters,
        rows,
        absent: Vec::new(),
    };

    failures.publish(report, flags.common.out(), None)
}

fn config(flags: &Flags) -> Config {
    Config {
        memory: flags.memory.get() << 20,
        shards: 1,
        ..Config::default()
    }
}

const STORE: Origin = Origin::new("store");

fn timed(case: &str, flags: &Flags, mut measure: impl FnMut() -> f64) -> Row {
    STORE.row(
        case,
        "plainweave",
        "time",
        "ns",
        (0..flags.runs.get()).map(|_| measure()).collect(),
    )
}

/// Nanoseconds of one of `count` calls.
fn each(count: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..count).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Returns a fixed walk over `0..len` in no order: its step is a prime that divides no length in
/// use.
fn scattered(turn: usize, len: usize) -> usize {
    turn.wrapping_mul(7_368_787) % len
}

fn key(number: usize) -> String {
    format!("key-{number:010}")
}

fn gets(flags: &Flags, items: usize, len: usize) -> f64 {
    let store = Store::new(config(flags));
    let keys: Vec<_> = (0..items).map(key).collect();
    keys.iter()
        .for_each(|key| _ = store.write(&Write::new(key.as_bytes(), &vec![1; len]), NOW));
    let mut out = Vec::with_capacity(len);

    each(4_000_000, |turn| {
        // The same memory each time, as a connection's buffer is.
        out.clear();
        if let Some(item) = store.get(keys[scattered(turn, items)].as_bytes(), NOW) {
            item.append_to(&mut out);
        }
        black_box(&out);
    })
}

fn sets(flags: &Flags) -> f64 {
    let store = Store::new(config(flags));
    let keys: Vec<_> = (0..10_000).map(key).collect();
    let value = [1; 200];
    keys.iter()
        .for_each(|key| _ = store.write(&Write::new(key.as_bytes(), &value), NOW));

    each(4_000_000, |turn| {
        black_box(store.write(
            &Write::new(keys[scattered(turn, 10_000)].as_bytes(), &value),
            NOW,
        ));
    })
}

fn evicting_sets(flags: &Flags) -> f64 {
    let store = Store::new(config(flags));
    let value = [1; 200];
    let mut number = 0;
    let mut set = || {
        number += 1;
        black_box(store.write(&Write::new(key(number).as_bytes(), &value), NOW));
    };

    // From here on each set has to make room.
    while store.stats().evictions == 0 {
        (0..1000).for_each(|_| set());
    }
    each(2_000_000, |_| set())
}

fn held(case: &str, flags: &Flags, len: usize) -> anyhow::Result<Vec<Row>> {
    // Twice what fits if an item costs 40 bytes beside key and value.
    let count = flags.memory.get() * (2 << 20) / (10 + len + 40);
    let mut rows = Vec::new();
    for make in BESIDE_MEMCACHED {
        let mut cache = make(flags)?;
        // As many at once as a client sends together, or memcached's socket would be what takes the
        // time.
        for first in (0..count).step_by(BATCH) {
            let keys: Vec<_> = (first..first + BATCH)
                .map(|number| format!("{number:010}").into_bytes())
                .collect();
            let items: Vec<_> = keys.iter().map(|key| (&**key, len)).collect();
            cache.set(&items)?;
        }

        rows.push(STORE.row(
            case,
            cache.name(),
            "held",
            "items",
            vec![cache.items()? as f64],
        ));
    }

    Ok(rows)
}

/// Makes a cache.
type Make = fn(&Flags) -> anyhow::Result<Box<dyn Cache>>;

/// The caches of the front; the first three are those of the other cases.
const FRONT: [Make; 6] = [
    |flags| Ok(Box::new(Store::new(config(flags)))),
    |flags| Ok(Box::new(Memcached::start(flags.memory.get())?)),
    |flags| Ok(Box::new(SegmentedLru::new(flags.memory.get() << 20))),
    |flags| {
        Ok(Box::new(Store::new(Config {
            small_percent: PUBLISHED,
            ..config(flags)
        })))
    },
    |flags| Ok(Box::new(OneList::lru(flags.memory.get() << 20))),
    |flags| Ok(Box::new(OneList::sieve(flags.memory.get() << 20))),
];
const BESIDE_MEMCACHED: &[Make] = FRONT.split_at(3).0;

/// Reads a cell's sizes and exponent from its name.
fn load(cell: &str) -> anyhow::Result<(Sizes, f64)> {
    let mut words = cell.split('-').skip(1);
    let exponent = words.next().context("an exponent")?.parse()?;
    let sizes = match words.next() {
        Some("fixed") => Sizes::Fixed,
        Some("mixed") => Sizes::Fb,
        _ => Sizes::Bimodal,
    };
    Ok((sizes, exponent))
}

/// What a load asks for next: the keys, and the lengths of their values.
type Lookups = Vec<(Box<[u8]>, usize)>;

/// Asks for a batch, and writes what is not there. Returns how many were.
fn fetch(cache: &mut dyn Cache, batch: &Lookups) -> anyhow::Result<usize> {
    let keys: Vec<_> = batch.iter().map(|(key, _)| &**key).collect();
    let found = cache.get(&keys)?;
    let hits = found.iter().filter(|&&found| found).count();
    // After all gets of the batch, as a client does that fills its cache from elsewhere.
    let missed = batch.iter().zip(found).filter(|(_, found)| !found);
    let missed: Vec<_> = missed.map(|((key, len), _)| (&**key, *len)).collect();
    cache.set(&missed)?;
    Ok(hits)
}

/// Has a number of requests of a trace; the hit ratio.
fn requests(cache: &mut dyn Cache, trace: &mut Trace, count: usize) -> anyhow::Result<f64> {
    let mut hits = 0;
    for _ in 0..count.div_ceil(BATCH) {
        hits += fetch(cache, &(0..BATCH).map(|_| trace.next()).collect())?;
    }
    Ok(hits as f64 / (count.div_ceil(BATCH) * BATCH) as f64)
}

/// The next batch of keys that nobody asks for a second time.
fn new_keys(from: &mut usize, len: usize) -> Lookups {
    *from += BATCH;
    let numbers = *from - BATCH..*from;
    numbers
        .map(|number| (format!("new-{number:016}").into_bytes().into(), len))
        .collect()
}

/// Two fifths of a run's requests warm up.
fn warm(cache: &mut dyn Cache, flags: &Flags, seed: usize) -> anyhow::Result<Trace> {
    let mut trace = Trace::new(flags.keys.get(), Sizes::Fixed, 0.9, seed as u64);
    requests(cache, &mut trace, flags.requests.get() * 2 / 5)?;
    Ok(trace)
}

/// Adds a value to the row of a case, a system and a metric.
fn note(rows: &mut Vec<Row>, case: &str, system: &str, metric: &'static str, percent: f64) {
    let mine = |row: &&mut Row| row.system == system && row.metric == metric;
    match rows.iter_mut().find(mine) {
        Some(row) => row.values.push(percent),
        None => rows.push(STORE.row(case, system, metric, "%", vec![percent])),
    }
}

fn scan(case: &str, flags: &Flags) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in 0..flags.runs.get() {
        for make in FRONT {
            let cache = &mut *make(flags)?;
            let name = cache.name();
            report::progress(&format!("store: {case} on {name}, seed {seed}"));
            let mut trace = warm(cache, flags, seed)?;
            let part = flags.requests.get() / 20;
            let before = requests(cache, &mut trace, part)?;
            let mut scanned = 0;
            while scanned < (flags.memory.get() << 20) / (200 + BESIDE) {
                fetch(cache, &new_keys(&mut scanned, 200))?;
            }
            let after = requests(cache, &mut trace, part)?;

            let mut hits = 0;
            let mut asked = 0;
            for turn in 0..part * 4 / BATCH {
                // Every third batch.
                let batch = match turn % 3 {
                    0 => new_keys(&mut scanned, 200),
                    _ => (0..BATCH).map(|_| trace.next()).collect(),
                };
                let found = fetch(cache, &batch)?;
                if turn >= part * 2 / BATCH {
                    (hits, asked) = (hits + found, asked + BATCH);
                }
            }

            let beside = hits as f64 / asked.max(1) as f64;
            for (metric, ratio) in [
                ("before_scan", before),
                ("after_scan", after),
                ("beside_scans", beside),
            ] {
                note(&mut rows, case, name, metric, ratio * 100.0);
            }
        }
    }
    Ok(rows)
}

/// New items are written, and then each is read once, in the same order.
fn burst(case: &str, flags: &Flags, len: usize) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in 0..flags.runs.get() {
        for make in FRONT {
            for (percent, metric) in BURSTS {
                let cache = &mut *make(flags)?;
                let name = cache.name();
                report::progress(&format!(
                    "store: {case} of {percent} % on {name}, seed {seed}"
                ));
                warm(cache, flags, seed)?;
                let count = (flags.memory.get() << 20) * percent / 100 / (len + BESIDE);
                let mut written = 0;
                while written < count {
                    let batch = new_keys(&mut written, len);
                    let items: Vec<_> = batch.iter().map(|(key, len)| (&**key, *len)).collect();
                    cache.set(&items)?;
                }

                let mut read = 0;
                let mut present = 0;
                while read < written {
                    let batch = new_keys(&mut read, len);
                    let keys: Vec<_> = batch.iter().map(|(key, _)| &**key).collect();
                    present += cache.get(&keys)?.iter().filter(|&&found| found).count();
                }
                let present = present as f64 / written as f64;
                note(&mut rows, case, name, metric, present * 100.0);
            }
        }
    }
    Ok(rows)
}

fn hit_ratios(
    case: &str,
    flags: &Flags,
    systems: &[Make],
    load: (Sizes, f64),
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in 0..flags.runs.get() {
        for make in systems {
            let cache = &mut *make(flags)?;
            let name = cache.name();
            report::progress(&format!("store: {case} on {name}, seed {seed}"));
            let ratio = hit_ratio(cache, flags, load, seed as u64)?;
            note(&mut rows, case, name, "hit_ratio", ratio * 100.0);
        }
    }
    Ok(rows)
}

fn hit_ratio(
    cache: &mut dyn Cache,
    flags: &Flags,
    (sizes, exponent): (Sizes, f64),
    seed: u64,
) -> anyhow::Result<f64> {
    let mut trace = Trace::new(flags.keys.get(), sizes, exponent, seed);
    // The first half warms up.
    let half = flags.requests.get() / 2;
    requests(cache, &mut trace, half)?;
    requests(cache, &mut trace, half)
}
