//! The admin address of a server: small pages on a runtime of their own, so that they answer when
//! the main one is stuck or overloaded.
//!
//! Details are what clients named (paths, keys) and what code a stalled worker was in. Pages get
//! them to show only where this machine alone can ask: on a loopback address, by a request that
//! names it as such. A web page from elsewhere in a browser on this machine can have its own name
//! lead here (DNS rebinding), but not change what it is called in `Host`. Other addresses show them
//! if a flag says so.

use std::fmt::{self, Display, Write};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use plainweave::net;
use plainweave::{Metrics, Runtime, WorkerMetrics};
use plainweave_http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use plainweave_http::{HeaderValue, Limits, Method, Request, Response, Server, StatusCode};
use plainweave_serve::Latencies;

use crate::fibers::FiberPages;
use crate::listening::Listening;
use crate::sharing::Sharing;

/// For pages in progress when the server ends.
const LAST: Duration = Duration::from_millis(200);

/// A figure of a worker: its name, kind and help, and its value if that is known.
type WorkerFigure = (
    &'static str,
    &'static str,
    &'static str,
    fn(&WorkerMetrics) -> Option<f64>,
);

/// What is shown of each worker.
const WORKER_FIGURES: [WorkerFigure; 12] = [
    (
        "switches_total",
        "counter",
        "Times that the worker ran a fiber.",
        |of| Some(of.switches as f64),
    ),
    (
        "fibers_spawned_total",
        "counter",
        "Fibers spawned there.",
        |of| Some(of.spawned_fibers as f64),
    ),
    (
        "fibers_finished_total",
        "counter",
        "Fibers that have ended there.",
        |of| Some(of.finished_fibers as f64),
    ),
    ("idle_seconds_total", "counter", "Time asleep.", |of| {
        of.idle.map(|time| time.as_secs_f64())
    }),
    (
        "inbox_messages_total",
        "counter",
        "Fibers and wake-ups that other threads sent it.",
        |of| Some(of.inbox_messages as f64),
    ),
    (
        "steal_attempts_total",
        "counter",
        "Attempts to take fibers from another worker.",
        |of| Some(of.policy.steal_attempts as f64),
    ),
    (
        "steals_total",
        "counter",
        "Attempts that got fibers.",
        |of| Some(of.policy.steals as f64),
    ),
    (
        "fibers_stolen_total",
        "counter",
        "Fibers that these got.",
        |of| Some(of.policy.stolen as f64),
    ),
    (
        "helped_total",
        "counter",
        "Steals from a worker that had asked for help or fallen behind.",
        |of| Some(of.policy.helped as f64),
    ),
    (
        "spills_total",
        "counter",
        "Times that a full queue gave fibers to the shared one.",
        |of| Some(of.policy.spills as f64),
    ),
    (
        "insert_retries_total",
        "counter",
        "Further attempts to insert a fiber into its full structure.",
        |of| Some(of.policy.insert_retries as f64),
    ),
    (
        "longest_wait_seconds",
        "gauge",
        "The longest that a ready fiber has waited; only if the policy is observed.",
        |of| of.policy.longest_wait.map(|time| time.as_secs_f64()),
    ),
];

/// The media type of a page with scripts and styles of its own, which stand in it
/// with `nonce="{nonce}"`.
pub const HTML: &str = "text/html; charset=utf-8";
/// What stands in such a page for the value that its scripts and styles are known by.
const NONCE: &str = "{nonce}";
/// Why there are no details.
const WITHHELD: &str = "403 Forbidden\n\nThis shows what clients have named, and so it is for this machine alone: ask \
                        http://127.0.0.1 or http://localhost, or start the server with --admin-details.\n";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// Whether details may be shown.
    pub details: bool,
}

/// A page: its media type and its text, or why there is none.
pub type Page = Result<(&'static str, String), Refusal>;

/// Why there is no page.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// A status that says it all.
    Status(StatusCode),
    /// The server cannot serve, for this reason.
    Unavailable(&'static str),
    /// It is nothing but details, and they may not be shown.
    Details,
}

impl From<StatusCode> for Refusal {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}

/// A running admin server; it ends when dropped.
#[derive(Debug)]
pub struct Admin {
    runtime: Option<Runtime>,
    leave: Leave,
}

/// Has the pages' server accept no more.
struct Leave(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

impl Admin {
    /// Serves `fibers` and `page` on one worker, at a listener that others may have too. `details`:
    /// whether other machines may see them.
    pub fn start(
        (listener, sharing): (TcpListener, &Sharing),
        fibers: FiberPages,
        details: bool,
        page: impl Fn(Asked<'_>) -> Page + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let local = listener.local_addr()?.ip().to_canonical().is_loopback();
        let runtime = Runtime::builder()
            .workers(1)
            .thread_name("admin")
            .report_stalls(false)
            .build();
        let runtime = runtime.context("cannot start the runtime of the admin address")?;
        let limits = Limits {
            idle_timeout: Duration::from_secs(300),
            ..Limits::default()
        };

        let handler = move |request: &mut Request<'_>| {
            let here = local && names_this_machine(request.host());
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                let response = Response::plain(StatusCode::METHOD_NOT_ALLOWED);
                return protected(
                    response.with_header(ALLOW, HeaderValue::from_static("GET, HEAD")),
                    "",
                );
            }

            match fibers.answer(request.path(), request.query(), here) {
                Some(response) => protected(response, ""),
                None => answer(page(Asked {
                    path: request.path(),
                    details: details || here,
                })),
            }
        };

        let server = Arc::new(Server::new(handler).with_limits(limits));
        let listener = Listening::tcp(net::TcpListener::from_std(listener)?, sharing);
        let starting = server.clone();
        runtime.run(move || starting.start(listener))?;
        Ok(Self {
            runtime: Some(runtime),
            leave: Leave(Box::new(move || server.stop())),
        })
    }

    /// Leaves the address to the server that has taken over.
    pub fn leave(&self) {
        (self.leave.0)();
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(LAST);
        }
    }
}

fn answer(page: Page) -> Response {
    match page {
        Ok((HTML, text)) => {
            let nonce = nonce();
            let allowed = format!(
                "; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:"
            );
            let response = Response::ok(text.replace(NONCE, &nonce));
            protected(
                response.with_header(CONTENT_TYPE, HeaderValue::from_static(HTML)),
                &allowed,
            )
        }
        Ok((kind, text)) => protected(
            Response::ok(text).with_header(CONTENT_TYPE, HeaderValue::from_static(kind)),
            "",
        ),
        Err(Refusal::Status(status)) => protected(Response::plain(status), ""),
        Err(Refusal::Unavailable(why)) => protected(
            Response::text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            "",
        ),
        Err(Refusal::Details) => protected(Response::text(StatusCode::FORBIDDEN, WITHHELD), ""),
    }
}

/// Has browsers keep nothing of a response, take it for what it says it is, and let it load nothing
/// but what `allowed` names.
fn protected(response: Response, allowed: &str) -> Response {
    let policy = format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'{allowed}"
    );
    // Without one, a browser runs no script that it should not: there is none but the page's own.
    let policy =
        HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    response
        .with_header(CONTENT_SECURITY_POLICY, policy)
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
        .with_header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"))
}

/// Returns 128 bits that nobody can foresee: `std` seeds these keys by the system's random numbers.
fn nonce() -> String {
    let keys = RandomState::new();
    format!("{:016x}{:016x}", keys.hash_one(1u8), keys.hash_one(2u8))
}

/// Returns whether `Host` is an address or `localhost`, which no name service of others answers
/// for. Clients of HTTP 1.0 need not send one; browsers always do.
fn names_this_machine(host: Option<&str>) -> bool {
    let Some(host) = host else { return true };
    if let Some(rest) = host.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
    }

    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
}

/// Figures in Prometheus' text format.
#[derive(Debug, Default)]
pub struct Figures(String);

impl Figures {
    /// The media type of the text.
    pub const KIND: &str = "text/plain; version=0.0.4";

    /// A metric with all its samples: labels as in `status="2xx"`, or nothing.
    pub fn metric<'l, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (&'l str, V)>,
    ) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    /// A metric with one sample.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help, [("", value)]);
    }

    /// What all servers show of TLS: how many handshakes have been completed, how many of them took
    /// up an earlier session, how many have failed, and when the first certificate expires.
    pub fn handshakes(&mut self, counts: [u64; 3], expires: Option<SystemTime>) {
        let named = [
            ("handshakes", "TLS handshakes that have succeeded."),
            (
                "handshakes_resumed",
                "Those of them that took up an earlier session.",
            ),
            ("handshakes_failed", "TLS handshakes that have failed."),
        ];
        for ((name, help), count) in named.into_iter().zip(counts) {
            let name = format!("plainweave_tls_{name}_total");
            self.one(&name, "counter", help, count);
        }

        let since = expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let name = "plainweave_tls_expiry_seconds";
        let help = "When the first certificate expires, since 1970.";
        self.one(name, "gauge", help, since.unwrap_or_default().as_secs());
    }

    /// Another sample of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// A histogram of the metric that was begun last; `labels` as in `command="get"`, or nothing.
    pub fn histogram(&mut self, name: &str, labels: &str, latencies: &Latencies) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        for (seconds, count) in latencies.cumulative() {
            self.sample(&bucket, &format!("{labels}{comma}le=\"{seconds}\""), count);
        }

        let count = latencies.count();
        self.sample(&bucket, &format!("{labels}{comma}le=\"+Inf\""), count);
        self.sample(
            &format!("{name}_sum"),
            labels,
            latencies.total().as_secs_f64(),
        );
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// Inserts that found no room in a worker's structure, on all of these runtimes.
    pub fn inserts(&mut self, prefix: &str, metrics: &[Metrics]) {
        let sum = |of: fn(&Metrics) -> u64| metrics.iter().map(of).sum::<u64>();
        for (name, help, count) in [
            (
                "retries",
                "Further attempts to insert a fiber into a worker's full structure.",
                sum(|of| of.insert_retries),
            ),
            (
                "overflows",
                "Inserts that were to spin until there was room (full=spin), and ended without.",
                sum(|of| of.insert_overflows),
            ),
        ] {
            self.one(
                &format!("{prefix}_insert_{name}_total"),
                "counter",
                help,
                count,
            );
        }
    }

    /// What each worker of these runtimes has done. If there are several runtimes, a label numbers
    /// them.
    pub fn workers(&mut self, prefix: &str, metrics: &[Metrics]) {
        let number = |runtime: usize| {
            if metrics.len() > 1 {
                format!("runtime=\"{runtime}\",")
            } else {
                String::new()
            }
        };

        let all = || {
            metrics
                .iter()
                .enumerate()
                .flat_map(|(i, of)| of.workers.iter().map(move |worker| (i, worker)))
        };

        for (name, kind, help, value) in WORKER_FIGURES {
            let samples = all().filter_map(|(runtime, of)| {
                Some((
                    format!("{}worker=\"{}\"", number(runtime), of.worker),
                    value(of)?,
                ))
            });

            let samples: Vec<_> = samples.collect();
            if !samples.is_empty() {
                let samples = samples
                    .iter()
                    .map(|(labels, value)| (labels.as_str(), value));
                self.metric(&format!("{prefix}_worker_{name}"), kind, help, samples);
            }
        }
    }

    /// Returns the text, of the media type [`KIND`](Self::KIND).
    pub fn into_text(self) -> String {
        self.0
    }
}

/// User and system time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_others_may_give_are_told_apart() {
        for own in [
            "localhost",
            "LocalHost:9180",
            "127.0.0.1",
            "127.0.0.1:9180",
            "[::1]",
            "[::1]:9180",
        ] {
            assert!(names_this_machine(Some(own)), "{own}");
        }

        for other in [
            "example.org",
            "example.org:9180",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "[x]:1",
            "",
        ] {
            assert!(!names_this_machine(Some(other)), "{other}");
        }

        assert!(names_this_machine(None));
    }

    #[test]
    fn nonces_differ() {
        let nonces = [(); 3].map(|()| nonce());
        assert!(nonces.iter().all(|nonce| nonce.len() == 32));
        assert!(nonces[0] != nonces[1] && nonces[1] != nonces[2] && nonces[0] != nonces[2]);
    }
}
