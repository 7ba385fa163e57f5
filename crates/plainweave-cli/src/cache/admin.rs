//! The admin address: `/metrics` for Prometheus, `/health`, and `/hotkeys`, over HTTP.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use plainweave_http::{Request, Response, Server};

use super::Cache;
use super::tally::{KINDS, NAMES};
use super::watch::Escaped;

/// Keys that are listed.
const HOT: usize = 100;
const BACK_OFF: Duration = Duration::from_millis(50);

/// A fiber. Serves until the listener is closed.
pub(super) fn serve(listener: &plainweave::net::TcpListener, cache: Arc<Cache>) {
    let stopping = cache.clone();
    let server = Arc::new(Server::new(move |request: &mut Request<'_>| answer(&cache, request)));
    while !stopping.is_stopping() {
        match listener.accept() {
            Ok((stream, _)) => first_step(server.clone(), stream),
            Err(_) if plainweave::time::sleep(BACK_OFF).is_err() => return,
            Err(_) => {}
        }
    }
    server.stop();
}

type Admin<H> = Arc<Server<H>>;

/// As `plainweave web`: a connection that is idle has no fiber, and the end of the runtime ends it.
fn first_step<H: plainweave_http::Handler>(server: Admin<H>, mut stream: plainweave::net::TcpStream) {
    if let Ok(state) = server.open(&mut stream) {
        let limit = server.limits().header_timeout;
        park(server, stream, state, limit);
    }
}

fn park<H: plainweave_http::Handler>(
    server: Admin<H>,
    stream: plainweave::net::TcpStream,
    mut state: plainweave_http::ConnState,
    limit: Duration,
) {
    plainweave::net::on_readable(stream, Some(limit), move |mut stream, outcome| {
        if outcome.is_ok()
            && let plainweave_http::Next::Park(limit) = server.serve_ready(&mut stream, &mut state)
        {
            park(server, stream, state, limit);
        }
    });
}

fn answer(cache: &Cache, request: &Request<'_>) -> Response {
    let head = request.head();
    if *head.method() != Method::GET && *head.method() != Method::HEAD {
        let response = Response::plain(StatusCode::METHOD_NOT_ALLOWED);
        return response.with_header(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    let (kind, text) = match head.path() {
        "/metrics" => ("text/plain; version=0.0.4", metrics(cache)),
        "/health" => ("text/plain", "ok\n".to_owned()),
        "/hotkeys" => ("text/plain", hot_keys(cache)),
        _ => return Response::plain(StatusCode::NOT_FOUND),
    };
    Response::ok(text).with_header(CONTENT_TYPE, HeaderValue::from_static(kind))
}

/// `share error key`, the greatest first.
fn hot_keys(cache: &Cache) -> String {
    let (keys, samples) = cache.hot.top(HOT);
    let mut text = format!("# {samples} samples; share of the commands, how much it may be too high, key\n");
    for hot in keys {
        let _ = writeln!(text, "{:.5} {:.5} {}", hot.share, hot.error, Escaped(&hot.key));
    }
    text
}

/// Prometheus' text format.
fn metrics(cache: &Cache) -> String {
    let mut page = Page(String::new());
    let (sums, stored, clients) = (cache.lanes.sums(), cache.store.stats(), &cache.clients);
    for (name, count) in NAMES.iter().zip(sums.counts) {
        page.one(&format!("plainweave_cache_{name}_total"), "counter", count as f64);
    }
    for (name, value) in [
        ("connections", clients.open() as f64),
        ("connections_limit", cache.settings.connections as f64),
        ("memory_limit_bytes", cache.store.config().memory as f64),
        ("memory_used_bytes", stored.memory_used as f64),
        ("items_bytes", stored.bytes as f64),
        ("items", stored.items as f64),
        ("uptime_seconds", f64::from(cache.clock.now().since(super::store::Time::START))),
    ] {
        page.one(&format!("plainweave_cache_{name}"), "gauge", value);
    }
    let (user, system) = super::stats::cpu_seconds();
    for (name, value) in [
        ("connections_opened", clients.total.load(Relaxed) as f64),
        ("connections_rejected", clients.rejected.load(Relaxed) as f64),
        ("accept_pauses", clients.pauses.load(Relaxed) as f64),
        ("items_stored", stored.total_items as f64),
        ("evictions", stored.evictions as f64),
        ("evicted_unfetched", stored.evicted_unfetched as f64),
        ("reclaimed", stored.reclaimed as f64),
        ("expired_unfetched", stored.expired_unfetched as f64),
        ("cpu_user_seconds", user),
        ("cpu_system_seconds", system),
    ] {
        page.one(&format!("plainweave_cache_{name}_total"), "counter", value);
    }
    let name = "plainweave_cache_command_seconds";
    page.head(name, "histogram");
    for (kind, latency) in KINDS.iter().zip(&sums.latency).filter(|(_, latency)| latency.count() > 0) {
        for (micros, count) in latency.powers() {
            page.line(&format!("{name}_bucket{{command=\"{kind}\",le=\"{}\"}}", micros / 1e6), count as f64);
        }
        page.line(&format!("{name}_bucket{{command=\"{kind}\",le=\"+Inf\"}}"), latency.count() as f64);
        page.line(&format!("{name}_sum{{command=\"{kind}\"}}"), latency.seconds());
        page.line(&format!("{name}_count{{command=\"{kind}\"}}"), latency.count() as f64);
    }
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, value: f64) {
        self.head(name, kind);
        self.line(name, value);
    }
}
