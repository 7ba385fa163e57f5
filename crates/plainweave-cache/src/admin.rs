//! What the admin address (`plainweave_daemon::admin`) shows of a cache: a page in the browser and
//! its figures (`status`), `/metrics` for Prometheus, `/health`, and `/hotkeys`.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Instant;

use plainweave::net::TcpListener;
use plainweave_http::StatusCode;
use serde_json::Value;

use super::shared::Cache;
use super::status::{own, queues};
use super::store::Stats;
use super::tally::{KINDS, NAMES, Sums};
use super::watch::Escaped;
use plainweave_daemon::admin::{Asked, Figures, Page, Refusal};
use plainweave_daemon::architecture::Runtimes;
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::status::{self, Common};

/// Keys that are listed.
const HOT: usize = 100;
const PREFIX: &str = "plainweave_cache";

/// What the pages show.
pub(super) struct Shown {
    pub(super) cache: Arc<Cache>,
    pub(super) runtimes: Weak<Runtimes>,
    /// Handles of the listeners, whose queues are read.
    pub(super) listeners: Vec<TcpListener>,
    pub(super) stalls: Option<Arc<Stalls>>,
    pub(super) start: Instant,
}

impl Shown {
    /// Returns a page by its path.
    pub(super) fn page(&self, asked: Asked<'_>) -> Page {
        let cache = &self.cache;
        match asked.path {
            "/" => status::page(),
            "/status.json" => status::answer(&self.figures(asked.details)),
            "/metrics" => Ok((Figures::KIND, metrics(cache, &self.runtimes))),
            // So that nobody is sent here any more, unless another server has taken over.
            "/health" if cache.is_stopping() && cache.heir.get().is_none() => {
                Err(StatusCode::SERVICE_UNAVAILABLE.into())
            }
            "/health" => Ok(("text/plain", "ok\n".to_owned())),
            "/hotkeys" if asked.details => Ok(("text/plain", hot_keys(cache))),
            "/hotkeys" => Err(Refusal::Details),
            _ => Err(StatusCode::NOT_FOUND.into()),
        }
    }

    fn figures(&self, details: bool) -> Value {
        let common = Common {
            server: "plainweave cache",
            start: self.start,
            stopping: self.cache.is_stopping(),
            details,
            runtimes: &self.runtimes,
            listeners: &self.listeners,
            stalls: self.stalls.as_deref(),
            links: if details {
                &["/metrics", "/health", "/fibers", "/hotkeys"]
            } else {
                &["/metrics", "/health", "/fibers"]
            },
        };
        common.figures(own(&self.cache, details), queues(&self.cache))
    }
}

/// `share error key`, the greatest first.
fn hot_keys(cache: &Cache) -> String {
    let (keys, samples) = cache.hot.top(HOT);
    let mut text =
        format!("# {samples} samples; share of the commands, how much it may be too high, key\n");
    for hot in keys {
        let _ = writeln!(
            text,
            "{:.5} {:.5} {}",
            hot.share,
            hot.error,
            Escaped(&hot.key)
        );
    }

    text
}

/// Prometheus' text format.
fn metrics(cache: &Cache, runtimes: &Weak<Runtimes>) -> String {
    let mut figures = Figures::default();
    let sums = cache.scratch.sums();
    let stored = cache.store.stats();

    for (name, count) in NAMES.iter().zip(sums.counts) {
        figures.one(
            &format!("{PREFIX}_{name}_total"),
            "counter",
            "As in stats.",
            count,
        );
    }

    let name = format!("{PREFIX}_runtime_info");
    let labels = cache.settings.runtime.as_str();
    figures.metric(
        &name,
        "gauge",
        "What the runtime was started with.",
        [(labels, 1)],
    );

    if let Some(runtimes) = runtimes.upgrade() {
        let metrics = runtimes.metrics();
        figures.inserts(PREFIX, &metrics);
        figures.workers(PREFIX, &metrics);
    }

    let uptime = cache.clock.now().since(super::store::Time::START);
    for (name, help, value) in [
        (
            "connections",
            "Open connections.",
            cache.connections() as u64,
        ),
        (
            "connections_limit",
            "Connections that may be open: -c.",
            cache.settings.connections as u64,
        ),
        (
            "connections_served",
            "Connections being served; up to a worker each too many.",
            cache.scratch.in_use() as u64,
        ),
        (
            "connections_served_limit",
            "Connections that may be served at a time.",
            cache.settings.turns.min(cache.settings.connections) as u64,
        ),
        (
            "memory_limit_bytes",
            "Memory for items and index: -m.",
            cache.store.config().memory as u64,
        ),
        (
            "memory_used_bytes",
            "Of it, what is allocated.",
            stored.memory_used,
        ),
        (
            "memory_budget_used_bytes",
            "What is being received, and long answers.",
            cache.memory_budget.used() as u64,
        ),
        (
            "memory_budget_bytes",
            "How much that may be.",
            cache.memory_budget.max() as u64,
        ),
        (
            "unread_replies_pin_bytes",
            "Items' memory that unread replies hold.",
            cache.pinned.used() as u64,
        ),
        ("items_bytes", "Of that, what items take.", stored.bytes),
        ("items", "Items that are there.", stored.items),
        ("uptime_seconds", "Time since the start.", uptime.into()),
    ] {
        figures.one(&format!("{PREFIX}_{name}"), "gauge", help, value);
    }

    counters(cache, &stored, &mut figures);
    if let Some(tls) = &cache.tls {
        figures.handshakes(tls.handshakes(), tls.expires());
    }
    let (user, system) = super::stats::cpu_seconds();
    for (name, help, value) in [
        ("user", "CPU time in this program.", user),
        ("system", "CPU time in the kernel.", system),
    ] {
        figures.one(
            &format!("{PREFIX}_cpu_{name}_seconds_total"),
            "counter",
            help,
            value,
        );
    }

    latencies(&mut figures, &sums);
    figures.into_text()
}

/// What only grows: connections and items.
fn counters(cache: &Cache, stored: &Stats, figures: &mut Figures) {
    let clients = &cache.clients;
    let accepting = cache.connection_limit.counts();

    for (name, help, value) in [
        (
            "connections_opened",
            "Connections that were accepted.",
            clients.total.load(Relaxed),
        ),
        (
            "connections_rejected",
            "Connections that were refused.",
            clients.rejected.load(Relaxed),
        ),
        (
            "connections_shed",
            "Connections closed because there was memory to serve no more.",
            clients.shed.load(Relaxed),
        ),
        (
            "connections_cut",
            "Connections closed because they left long replies unread.",
            clients.cut.load(Relaxed),
        ),
        (
            "long_lines",
            "Lines that were longer than is allowed.",
            clients.long_lines.load(Relaxed),
        ),
        (
            "accept_pauses",
            "How often accepting has paused.",
            accepting.pauses,
        ),
        (
            "items_stored",
            "Values that were stored.",
            stored.total_items,
        ),
        (
            "evictions",
            "Items evicted for lack of memory.",
            stored.evictions,
        ),
        (
            "evicted_unfetched",
            "Of these, items that were never read.",
            stored.evicted_unfetched,
        ),
        (
            "reclaimed",
            "Items that went when they had expired.",
            stored.reclaimed,
        ),
        (
            "expired_unfetched",
            "Of these, items that were never read.",
            stored.expired_unfetched,
        ),
    ] {
        figures.one(&format!("{PREFIX}_{name}_total"), "counter", help, value);
    }
}

/// A histogram for each command that was timed.
fn latencies(figures: &mut Figures, sums: &Sums) {
    let name = format!("{PREFIX}_command_seconds");
    let help = "Time from the receipt of a batch to the sending of its replies.";
    figures.metric(&name, "histogram", help, std::iter::empty::<(&str, u64)>());
    for (kind, latency) in KINDS
        .iter()
        .zip(&sums.latency)
        .filter(|(_, latency)| latency.count() > 0)
    {
        figures.histogram(&name, &format!("command=\"{kind}\""), latency);
    }
}
