//! The admin address of a server: small pages on a runtime of their own, so that they answer when the main one is
//! stuck or overloaded.

use std::fmt::{Display, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use plainweave::net;
use plainweave::{Metrics, Runtime};
use plainweave_http::header::{ALLOW, CONTENT_TYPE};
use plainweave_http::{HeaderValue, Limits, Method, Request, Response, Server, StatusCode};

use crate::fibers::FiberPages;

/// Pause after an accept that failed for lack of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);
/// For pages in progress when the server ends.
const LAST: Duration = Duration::from_millis(200);

/// A page: its media type and its text, or a status when there is none.
pub(crate) type Page = Result<(&'static str, String), StatusCode>;

/// A running admin server; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    runtime: Option<Runtime>,
}

impl Admin {
    /// Serves `fibers` and `page`, which gets a path, on one worker.
    pub(crate) fn start(
        listener: TcpListener,
        fibers: FiberPages,
        page: impl Fn(&str) -> Page + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let runtime = Runtime::builder().workers(1).thread_name("admin").report_stalls(false).build();
        let runtime = runtime.context("cannot start the runtime of the admin address")?;
        let limits = Limits { idle_timeout: Duration::from_secs(300), ..Limits::default() };
        let server =
            Arc::new(Server::new(move |request: &mut Request<'_>| answer(&fibers, &page, request)).with_limits(limits));
        let listener = net::TcpListener::from_std(listener)?;
        runtime.spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _peer)) => {
                        let server = server.clone();
                        plainweave::spawn(move || server.serve(stream));
                    }
                    Err(_) if plainweave::time::sleep(BACK_OFF).is_err() => return,
                    Err(_) => {}
                }
            }
        });
        Ok(Self { runtime: Some(runtime) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(LAST);
        }
    }
}

fn answer(fibers: &FiberPages, page: &impl Fn(&str) -> Page, request: &Request<'_>) -> Response {
    if *request.method() != Method::GET && *request.method() != Method::HEAD {
        let response = Response::plain(StatusCode::METHOD_NOT_ALLOWED);
        return response.with_header(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if let Some(answer) = fibers.answer(request.path(), request.query()) {
        return answer;
    }
    match page(request.path()) {
        Ok((kind, text)) => Response::ok(text).with_header(CONTENT_TYPE, HeaderValue::from_static(kind)),
        Err(status) => Response::plain(status),
    }
}

/// Figures in Prometheus' text format.
#[derive(Debug, Default)]
pub(crate) struct Figures(String);

impl Figures {
    /// The media type of the text.
    pub(crate) const KIND: &str = "text/plain; version=0.0.4";

    /// A metric with all its samples: labels as in `status="2xx"`, or nothing.
    pub(crate) fn metric<'l, V: Display>(
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
    pub(crate) fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help, [("", value)]);
    }

    /// Another sample of the metric that was begun last.
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// Inserts that found no room in a worker's structure, on all of these runtimes.
    pub(crate) fn inserts(&mut self, prefix: &str, metrics: &[Metrics]) {
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
            self.one(&format!("{prefix}_insert_{name}_total"), "counter", help, count);
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// User and system time of this process, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
