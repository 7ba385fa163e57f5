//! What the page in the browser shows of the cache besides what it shows of both servers
//! (`plainweave_daemon::status`).

use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};

use super::hotkeys::Hot;
use super::shared::Cache;
use super::tally::{Count, KINDS};
use plainweave_daemon::status::{counts, latency, queue, visible};

/// Keys that are listed.
const HOT: usize = 20;

/// Returns the server's own figures.
pub(super) fn own(cache: &Cache, details: bool) -> Value {
    let sums = cache.scratch.sums();
    let stored = cache.store.stats();
    let clients = &cache.clients;
    let sum = |parts: &[Count]| parts.iter().map(|part| sums.get(*part)).sum::<u64>();
    let outcomes = [
        ("hits", sum(&[Count::GetHits])),
        ("misses", sum(&[Count::GetMisses])),
        ("sets", sum(&[Count::CmdSet])),
        ("deletes", sum(&[Count::DeleteHits, Count::DeleteMisses])),
        (
            "counts",
            sum(&[
                Count::IncrHits,
                Count::IncrMisses,
                Count::DecrHits,
                Count::DecrMisses,
            ]),
        ),
        ("touches", sum(&[Count::TouchHits, Count::TouchMisses])),
    ];
    let problems = [
        ("items evicted for lack of memory", stored.evictions),
        (
            "of these, items that were never read",
            stored.evicted_unfetched,
        ),
        ("values refused: too large", sum(&[Count::StoreTooLarge])),
        ("values refused: no memory", sum(&[Count::StoreNoMemory])),
        (
            "connections refused: there were too many",
            clients.rejected.load(Relaxed),
        ),
        (
            "connections closed: memory to serve no more",
            clients.shed.load(Relaxed),
        ),
        (
            "connections closed: they read no answers",
            sum(&[Count::SlowReaders]),
        ),
        ("connections closed: idle", sum(&[Count::IdleKicks])),
        (
            "times that accepting paused",
            cache.connection_limit.counts().pauses,
        ),
    ];
    let latencies = KINDS
        .iter()
        .zip(&sums.latency)
        .filter(|(_, times)| times.count() > 0);

    json!({
        "requests": outcomes.iter().map(|(_, count)| count).sum::<u64>(),
        "bytes": sum(&[Count::BytesWritten]),
        "connections": {
            "now": cache.connections(),
            "max": cache.settings.connections,
            "accepted": clients.total.load(Relaxed),
        },
        "outcomes": counts(outcomes),
        "problems": counts(problems),
        "latency": latencies.map(|(kind, times)| latency(kind, times.parts())).collect::<Vec<_>>(),
        "memory": [
            queue("items and index", stored.memory_used, Some(cache.store.config().memory as u64)),
            queue("values in receipt, long answers", cache.memory_budget.used() as u64,
                Some(cache.memory_budget.max() as u64)),
        ],
        "items": stored.items,
        "hot": details.then(|| hot(cache)),
    })
}

/// Returns the server's own queues.
pub(super) fn queues(cache: &Cache) -> Vec<Value> {
    let max = Some(cache.settings.turns)
        .filter(|turns| *turns < usize::MAX)
        .map(|turns| turns as u64);
    vec![queue(
        "connections being served, or just served",
        cache.scratch.in_use() as u64,
        max,
    )]
}

fn hot(cache: &Cache) -> Value {
    let (keys, samples) = cache.hot.top(HOT);
    let key =
        |hot: &Hot| json!({ "key": visible(&hot.key), "share": hot.share, "error": hot.error });
    json!({ "samples": samples, "keys": keys.iter().map(key).collect::<Vec<_>>() })
}
