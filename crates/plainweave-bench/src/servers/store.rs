//! The cache's store, without a server: what a call costs, how many items fit, and how often a get
//! finds something.
//!
//! The hit ratio is that of a cache in front of something slow: a get, and on a miss a set. Keys
//! follow a Zipf law; each key has a size of its own. Three caches see the same requests, 64 gets
//! in a row before the sets of those that missed: the store, memcached over a Unix socket with the
//! same `-m`, and a model of memcached's segmented LRU without memcached's slabs. The first half of
//! the requests warms up.

mod caches; // The caches that are compared, behind one small trait.
mod trace; // Requests: which key, and how large its value is.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use clap::Args;
use plainweave_cache::store::{Config, Store, Write};

use crate::harness::experiment::{Cases, Common};
use crate::harness::machine;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use caches::{Cache, Memcached, NOW, SegmentedLru};
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
const CASES: [(&str, &str); 8] = [
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
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        CASES
            .iter()
            .for_each(|(name, summary)| report::say(&format!("{name:<16} {summary}")));
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
                "zipf-fb" => hit_ratios(name, flags, Sizes::Fb)?,
                _ => hit_ratios(name, flags, Sizes::Wide)?,
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
    for mut cache in systems(flags)? {
        // As many at once as a client sends together, or memcached's socket would be what takes the
        // time.
        for first in (0..count).step_by(64) {
            let keys: Vec<_> = (first..first + 64)
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

fn systems(flags: &Flags) -> anyhow::Result<Vec<Box<dyn Cache>>> {
    let memory = flags.memory.get();
    Ok(vec![
        Box::new(Store::new(config(flags))),
        Box::new(Memcached::start(memory)?),
        Box::new(SegmentedLru::new(memory << 20)),
    ])
}

fn hit_ratios(case: &str, flags: &Flags, sizes: Sizes) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for seed in 0..flags.runs.get() {
        for (place, mut cache) in systems(flags)?.into_iter().enumerate() {
            report::progress(&format!("store: {case} on {}, seed {seed}", cache.name()));
            let ratio = hit_ratio(&mut *cache, flags, sizes, seed as u64)?;
            // The caches are made anew for each seed, in the same order.
            if rows.len() <= place {
                rows.push(STORE.row(case, cache.name(), "hit_ratio", "%", Vec::new()));
            }
            rows[place].values.push(ratio * 100.0);
        }
    }
    Ok(rows)
}

fn hit_ratio(cache: &mut dyn Cache, flags: &Flags, sizes: Sizes, seed: u64) -> anyhow::Result<f64> {
    let mut trace = Trace::new(flags.keys.get(), sizes, seed);
    let mut hits = 0;
    let mut asked = 0;
    for turn in (0..flags.requests.get()).step_by(64) {
        let batch: Vec<_> = (0..64).map(|_| trace.next()).collect();
        let keys: Vec<_> = batch.iter().map(|(key, _)| &**key).collect();
        let found = cache.get(&keys)?;
        // The first half warms up.
        if turn >= flags.requests.get() / 2 {
            hits += found.iter().filter(|&&found| found).count();
            asked += found.len();
        }

        // After all gets of the batch, as a client does that fills its cache from elsewhere.
        let missed = batch
            .iter()
            .zip(found)
            .filter(|(_, found)| !found)
            .map(|((key, len), _)| (&**key, *len));
        cache.set(&missed.collect::<Vec<_>>())?;
    }

    Ok(f64::from(u32::try_from(hits)?) / f64::from(u32::try_from(asked)?))
}
