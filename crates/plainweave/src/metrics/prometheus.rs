//! Metrics in Prometheus' text format.

use std::fmt::{Display, Write};

use super::{Metrics, WorkerMetrics};

/// A figure of a runtime: its name, its kind, what it is, and its value if that is known.
type Figure<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> Option<u64>,
);

const FIGURES: [Figure<Metrics>; 15] = [
    ("fibers", "gauge", "Fibers alive.", |of| {
        Some(of.live_fibers)
    }),
    (
        "idle_connections",
        "gauge",
        "Idle connections that wait without a fiber.",
        |of| Some(of.idle_connections),
    ),
    (
        "fibers_finished_total",
        "counter",
        "Fibers that have ended.",
        |of| Some(of.finished_fibers),
    ),
    (
        "fibers_refused_total",
        "counter",
        "Fibers that found no stack to start on.",
        |of| Some(of.refused_fibers),
    ),
    ("switches_total", "counter", "Switches to fibers.", |of| {
        Some(of.switches)
    }),
    (
        "sleeps_total",
        "counter",
        "Times that a worker went to sleep.",
        |of| Some(of.sleeps),
    ),
    ("sleeping_workers", "gauge", "Workers asleep.", |of| {
        Some(of.sleeping_workers as u64)
    }),
    (
        "spare_workers",
        "gauge",
        "Spare workers at work because others are held up.",
        |of| Some(of.spare_workers as u64),
    ),
    (
        "stalls_total",
        "counter",
        "Times that a worker was held up by a fiber.",
        |of| Some(of.stalls),
    ),
    (
        "rescued_total",
        "counter",
        "Fibers and idle connections taken from a worker that was held up.",
        |of| Some(of.rescued),
    ),
    ("stacks_in_use", "gauge", "Stacks of fibers in use.", |of| {
        Some(of.stacks_in_use as u64)
    }),
    (
        "stack_high_water_bytes",
        "gauge",
        "The deepest use of a stack that was seen.",
        |of| of.stack_high_water.map(|bytes| bytes as u64),
    ),
    (
        "storage_blocks",
        "gauge",
        "Blocks of fibers' thread-local storage, in the whole process.",
        |of| Some(of.storage_blocks as u64),
    ),
    (
        "blocking_threads",
        "gauge",
        "Threads that run blocking calls.",
        |of| Some(of.blocking_threads as u64),
    ),
    (
        "blocking_queue",
        "gauge",
        "Blocking calls that wait for a thread.",
        |of| Some(of.blocking_queue as u64),
    ),
];

const WORKER_FIGURES: [Figure<WorkerMetrics>; 6] = [
    (
        "worker_switches_total",
        "counter",
        "Switches to fibers, by worker.",
        |of| Some(of.switches),
    ),
    (
        "worker_fibers_finished_total",
        "counter",
        "Fibers that have ended there.",
        |of| Some(of.finished_fibers),
    ),
    (
        "worker_sleeps_total",
        "counter",
        "Times that the worker went to sleep.",
        |of| Some(of.sleeps),
    ),
    (
        "worker_messages_total",
        "counter",
        "Wake-ups and fibers that others sent it.",
        |of| Some(of.inbox_messages),
    ),
    (
        "worker_steals_total",
        "counter",
        "Steals by the worker.",
        |of| Some(of.policy.steals),
    ),
    (
        "worker_stolen_fibers_total",
        "counter",
        "Fibers that it stole.",
        |of| Some(of.policy.stolen),
    ),
];

impl Metrics {
    /// Returns the metrics in Prometheus' text format (version 0.0.4), for an endpoint that a
    /// monitor reads: one sample each, whose name begins with `plainweave_`, and one for each
    /// worker where `worker` is the label. A figure that is not known is left out.
    ///
    /// ```
    /// plainweave::run(|| {
    ///     let text = plainweave::metrics().expect("on a fiber").to_prometheus();
    ///     assert!(text.contains("\nplainweave_fibers 1\n"));
    /// });
    /// ```
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in FIGURES {
            if let Some(value) = value(self) {
                head(&mut text, name, kind, help);
                sample(&mut text, name, None, value);
            }
        }

        for (name, kind, help, value) in WORKER_FIGURES {
            head(&mut text, name, kind, help);
            for worker in &self.workers {
                value(worker)
                    .into_iter()
                    .for_each(|value| sample(&mut text, name, Some(worker.worker), value));
            }
        }

        let name = "worker_idle_seconds_total";
        head(&mut text, name, "counter", "How long the worker has slept.");
        for worker in &self.workers {
            let idle = worker.idle.into_iter();
            idle.for_each(|idle| sample(&mut text, name, Some(worker.worker), idle.as_secs_f64()));
        }

        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# HELP plainweave_{name} {help}\n# TYPE plainweave_{name} {kind}"
    );
}

fn sample(text: &mut String, name: &str, worker: Option<usize>, value: impl Display) {
    let _ = match worker {
        Some(worker) => writeln!(text, "plainweave_{name}{{worker=\"{worker}\"}} {value}"),
        None => writeln!(text, "plainweave_{name} {value}"),
    };
}
