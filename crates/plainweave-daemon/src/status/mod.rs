//! The page in the browser at the admin address of both servers, and the figures that it asks for
//! once a second.
//!
//! The figures (`/status.json`) are counts since the start and values of now, not rates: the page
//! takes the difference between two answers. So the server keeps nothing for a page, any number of
//! them may be open, and one that was away for a while is right at once. `docs/status.md` lists the
//! fields.
//!
//! The page (`page.html`) is one file with its script and its style; both servers have the same
//! one. It shows what an answer has, and sets text as text: nothing in an answer is taken for HTML.

mod visible; // What clients have named, as text that a reader can see and a terminal does not obey.
mod workers; // How busy each worker is.

use std::sync::Weak;
use std::time::Instant;

use plainweave::Metrics;
use plainweave::net::TcpListener;
use serde_json::{Value, json};

use crate::admin::{HTML, Page};
use crate::architecture::Runtimes;
use crate::stalls::{Past, Stalls};
pub use visible::visible;

/// Returns the page.
pub fn page() -> Page {
    Ok((HTML, include_str!("page.html").to_owned()))
}

/// Returns the media type of the figures, and the figures.
pub fn answer(figures: &Value) -> Page {
    Ok(("application/json", figures.to_string()))
}

/// What both servers have.
#[derive(Debug)]
pub struct Common<'a> {
    /// The name of the server's subcommand.
    pub server: &'static str,
    /// When it started.
    pub start: Instant,
    /// Whether it has been asked to stop.
    pub stopping: bool,
    /// Whether details may be shown; see [`admin`](crate::admin).
    pub details: bool,
    /// The runtimes, as long as they are there.
    pub runtimes: &'a Weak<Runtimes>,
    /// What it listens on, for the length of their queues.
    pub listeners: &'a [TcpListener],
    /// The last stalls, if they are reported.
    pub stalls: Option<&'a Stalls>,
    /// Paths of other pages.
    pub links: &'a [&'a str],
}

impl Common<'_> {
    /// Returns the figures, with a server's own, and its queues behind those that both have.
    pub fn figures(&self, own: Value, queues: Vec<Value>) -> Value {
        let runtimes = self.runtimes.upgrade();
        let metrics = runtimes
            .as_ref()
            .map(|runtimes| runtimes.metrics())
            .unwrap_or_default();
        let sum = |of: fn(&Metrics) -> u64| metrics.iter().map(of).sum::<u64>();
        let mut all = self.waiting();
        all.push(queue("fibers", sum(|of| of.live_fibers), None));
        all.push(queue(
            "idle connections without a fiber",
            sum(|of| of.idle_connections),
            None,
        ));
        all.extend(queues);
        let mut figures = json!({
            "server": self.server,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": self.start.elapsed().as_secs_f64(),
            "state": if self.stopping { "stopping" } else { "serving" },
            "details": self.details,
            "links": self.links,
            "runtime": runtimes.as_ref().map(ToString::to_string),
            "cpu": crate::admin::cpu_seconds(),
            "workers": runtimes.as_ref().map(|runtimes| workers::workers(runtimes)).unwrap_or_default(),
            "queues": all,
            "stalls": {
                "count": sum(|of| of.stalls),
                "rescued": sum(|of| of.rescued),
                "spare_workers": sum(|of| of.spare_workers as u64),
                "reported": self.stalls.is_some(),
                "last": self.stalls.map(|stalls| self.past(stalls)).unwrap_or_default(),
            },
        });

        if let (Value::Object(figures), Value::Object(own)) = (&mut figures, own) {
            figures.extend(own);
        }
        figures
    }

    /// Returns how many connections wait in the kernel, by listener.
    fn waiting(&self) -> Vec<Value> {
        let waiting = self.listeners.iter().filter_map(|listener| {
            let address = listener.local_addr().ok()?;
            let queued = listener.queued().ok()?;
            Some(queue(
                &format!("to be accepted on {address}"),
                queued.into(),
                None,
            ))
        });
        waiting.collect()
    }

    /// Returns the last stalls, without what they were in where that is not to be shown.
    fn past(&self, stalls: &Stalls) -> Vec<Value> {
        let stall = |past: Past| {
            let fiber = past
                .fiber
                .filter(|_| self.details)
                .map(|(id, name)| match name {
                    Some(name) => format!("#{id} {}", visible(name.as_bytes())),
                    None => format!("#{id}"),
                });

            let calls = past
                .calls
                .iter()
                .filter(|_| self.details)
                .map(|call| visible(call.as_bytes()));
            json!({
                "age": past.at.elapsed().as_secs_f64(),
                "worker": past.worker,
                "held": past.held.as_secs_f64(),
                "starved": past.starved.as_secs_f64(),
                "fiber": fiber,
                "calls": calls.collect::<Vec<_>>(),
            })
        };
        stalls.past().into_iter().map(stall).collect()
    }
}

/// Returns a queue, or what else there is a number of: how many now, and at most if that is
/// bounded.
pub fn queue(name: &str, now: u64, max: Option<u64>) -> Value {
    json!({ "name": name, "now": now, "max": max })
}

/// Returns counts by name.
pub fn counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Value {
    counts
        .into_iter()
        .map(|(name, count)| json!([name, count]))
        .collect()
}

/// Returns a histogram since the start: how many took up to a number of seconds, and longer than
/// the one before.
pub fn latency(name: &str, buckets: impl Iterator<Item = (f64, u64)>) -> Value {
    let buckets: Vec<Value> = buckets.map(|(upto, count)| json!([upto, count])).collect();
    json!({ "name": name, "buckets": buckets })
}
