//! The workloads. Each counts what it did and fails if it is not what it set out to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::ensure;

use super::shim::{Calls, Handle};
use crate::machine;
use crate::sample::Row;

/// How much to do.
pub(super) struct Size {
    pub(super) iterations: Option<usize>,
    pub(super) fibers: usize,
    /// Resident bytes of the process before anything ran: what earlier repetitions left warm counts as the fibers'.
    pub(super) baseline: f64,
}

/// A figure of one repetition.
pub(super) struct Figure {
    metric: &'static str,
    unit: &'static str,
    pub(super) value: f64,
}

impl Figure {
    pub(super) fn row(&self, case: &str, system: &str) -> Row {
        let (metric, unit) = (self.metric, self.unit);
        let (case, system) = (case.to_owned(), system.to_owned());
        Row { experiment: "micro", case, system, workers: 0, metric, unit, values: Vec::new() }
    }
}

/// A workload by name.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) run: fn(&Size, &Calls) -> anyhow::Result<Vec<Figure>>,
}

pub(super) const CASES: [Case; 5] = [
    Case {
        name: "resume-suspend",
        summary: "one thread that yields alone: out of it, through the scheduler, back into it",
        run: |size, calls| yields(size, calls, 1),
    },
    Case {
        name: "yield",
        summary: "two threads that yield to each other; ns a switch",
        run: |size, calls| yields(size, calls, 2),
    },
    Case { name: "yield-100", summary: "the same with 100 threads", run: |size, calls| yields(size, calls, 100) },
    Case { name: "spawn-join", summary: "spawn, run and join empty threads in batches of 1,000", run: spawn_join },
    Case {
        name: "parked-fibers",
        summary: "many threads parked at once: memory of each, mappings, time to park and to wake and join",
        run: parked_fibers,
    },
];

/// Runs `body` as the system's main thread and gives its outcome.
fn on_system<T: Send + 'static>(
    calls: &Calls,
    body: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (send, receive) = mpsc::channel();
    (calls.run)(Box::new(move || drop(send.send(body()))));
    receive.recv()?
}

fn ns_per_op(started: Instant, ops: usize) -> Figure {
    Figure { metric: "ns_per_op", unit: "ns", value: started.elapsed().as_nanos() as f64 / ops as f64 }
}

fn join_all(handles: impl IntoIterator<Item = Handle>) -> anyhow::Result<()> {
    handles.into_iter().try_for_each(Handle::join)
}

fn yields(size: &Size, calls: &Calls, threads: usize) -> anyhow::Result<Vec<Figure>> {
    let kind = calls.kind;
    let each = (size.iterations.unwrap_or(4_000_000 / kind.share()) / threads).max(1);
    on_system(calls, move || {
        let done = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let handles = (0..threads).map(|_| {
            let done = done.clone();
            kind.spawn(move || {
                for _ in 0..each {
                    kind.yield_now();
                }
                done.fetch_add(each as u64, Ordering::Relaxed);
            })
        });
        join_all(handles.collect::<Result<Vec<_>, _>>()?)?;
        let figure = ns_per_op(started, each * threads);
        ensure!(done.load(Ordering::Relaxed) == (each * threads) as u64, "a thread did not yield as often as told");
        Ok(vec![figure])
    })
}

fn spawn_join(size: &Size, calls: &Calls) -> anyhow::Result<Vec<Figure>> {
    const BATCH: usize = 1000;
    let kind = calls.kind;
    let total = size.iterations.unwrap_or(1_000_000 / kind.share());
    on_system(calls, move || {
        let ran = Arc::new(AtomicU64::new(0));
        let mut handles = Vec::with_capacity(BATCH);
        let started = Instant::now();
        for first in (0..total).step_by(BATCH) {
            for _ in first..total.min(first + BATCH) {
                handles.push(kind.spawn(|| ())?);
            }
            let joined = handles.len() as u64;
            join_all(handles.drain(..))?;
            ran.fetch_add(joined, Ordering::Relaxed);
        }
        let figure = ns_per_op(started, total);
        ensure!(ran.load(Ordering::Relaxed) == total as u64, "not all threads were joined");
        Ok(vec![figure])
    })
}

fn parked_fibers(size: &Size, calls: &Calls) -> anyhow::Result<Vec<Figure>> {
    let kind = calls.kind;
    let (n, baseline) = ((size.fibers / kind.share()).max(1), size.baseline);
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let figures = on_system(calls, move || {
        let parked = Arc::new(AtomicU64::new(0));
        let (mapped, started) = (machine::mappings(), Instant::now());
        let spawn = |_| {
            let parked = parked.clone();
            kind.spawn(move || {
                parked.fetch_add(1, Ordering::Relaxed);
                kind.park();
            })
        };
        let handles = (0..n).map(spawn).collect::<Result<Vec<_>, _>>()?;
        while parked.load(Ordering::Relaxed) < n as u64 {
            kind.yield_now();
        }
        let parking = started.elapsed().as_nanos() as f64 / n as f64;
        let memory = (machine::status_bytes("VmRSS") - baseline) / n as f64;
        let mappings = machine::mappings() - mapped;
        let started = Instant::now();
        handles.iter().for_each(Handle::unpark);
        join_all(handles)?;
        let waking = started.elapsed().as_nanos() as f64 / n as f64;
        Ok(vec![
            Figure { metric: "bytes_per_fiber", unit: "B", value: memory },
            Figure { metric: "new_mappings", unit: "count", value: mappings },
            Figure { metric: "ns_to_park", unit: "ns", value: parking },
            Figure { metric: "ns_to_wake_and_join", unit: "ns", value: waking },
        ])
    })?;
    let after = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    ensure!(limit == after, "vm.max_map_count has changed during the run");
    Ok(figures)
}
