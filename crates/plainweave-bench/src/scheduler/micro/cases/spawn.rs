//! What it costs to start and end threads, and to keep many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;

use super::super::repetition::{Figure, Size};
use crate::harness::machine;
use crate::scheduler::shim::Shim;

/// Spawns, runs and joins empty threads, `batch` at a time.
pub(super) async fn spawn_join<S: Shim>(batch: usize, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let batch = if size.heavy { batch.min(100) } else { batch };
    let mut joins = Vec::with_capacity(batch);

    let mut joined = 0_u64;
    let started = Instant::now();
    // The clock is read every thousand or so.
    while !size.is_over(joined, started) {
        for _ in 0..1000_usize.div_ceil(batch) {
            let left = size.shape.iterations.map_or(u64::MAX, |n| n - joined);
            joins.extend((0..left.min(batch as u64)).map(|_| S::spawn(async {})));
            joined += joins.len() as u64;
            for join in joins.drain(..) {
                S::join(join).await;
            }
        }
    }

    let ns = started.elapsed().as_nanos() as f64;
    Ok(vec![
        Figure::new("ns_per_op", ns / joined as f64),
        Figure::new("ops", joined as f64),
    ])
}

/// Many threads that wait at once.
pub(super) async fn parked<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let n = if size.heavy {
        size.fibers.div_ceil(100)
    } else {
        size.fibers
    };

    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let parked = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    let (send, signals) = std::sync::mpsc::channel();
    let mapped = machine::mappings();
    let started = Instant::now();
    let mut joins = Vec::with_capacity(n);

    for _ in 0..n {
        let parked = parked.clone();
        let ended = ended.clone();
        let send = send.clone();
        joins.push(S::spawn(async move {
            let signal = Arc::new(S::signal());
            send.send(signal.clone()).expect("the main thread waits");
            parked.fetch_add(1, Ordering::Relaxed);
            S::wait(&signal).await;
            ended.fetch_add(1, Ordering::Relaxed);
        }));
    }

    while parked.load(Ordering::Relaxed) < n as u64 {
        S::yield_now().await;
    }
    let parking = started.elapsed().as_nanos() as f64 / n as f64;
    let memory = (machine::status_bytes("VmRSS") - size.baseline) / n as f64;
    let mappings = machine::mappings() - mapped;
    let started = Instant::now();

    for signal in signals.try_iter() {
        S::notify(&signal);
    }
    for join in joins {
        S::join(join).await;
    }
    let waking = started.elapsed().as_nanos() as f64 / n as f64;

    ensure!(
        ended.load(Ordering::Relaxed) == n as u64,
        "not all threads have ended"
    );
    let after = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    ensure!(
        limit == after,
        "vm.max_map_count has changed during the run"
    );
    Ok(vec![
        Figure::new("bytes_per_fiber", memory),
        Figure::new("new_mappings", mappings),
        Figure::new("ns_to_park", parking),
        Figure::new("ns_to_wake_and_join", waking),
    ])
}
