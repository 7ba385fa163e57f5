//! What a test says, and what it hears, against servers of the test's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plainweave::Runtime;
use plainweave::net::TcpListener;
use plainweave_http::{Request, Response, Server, StatusCode};
use plainweave_load::Load;

const SHORT: Duration = Duration::from_millis(400);

/// A server on a runtime of its own, until it is dropped.
struct Site {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Site {
    fn new(handler: fn(&mut Request<'_>) -> Response) -> Self {
        let runtime = Runtime::builder()
            .workers(1)
            .report_stalls(false)
            .build()
            .expect("a runtime");
        let address = runtime.run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            Arc::new(Server::new(handler))
                .start(listener)
                .expect("started");
            address
        });

        Self {
            runtime: Some(runtime),
            address,
        }
    }

    fn load(&self) -> Load {
        Load::http(format!("http://{}/", self.address))
            .connections(4)
            .duration(SHORT)
            .with("workers", 1)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(Duration::from_secs(1));
        }
    }
}

fn hello(_: &mut Request<'_>) -> Response {
    Response::ok("hello")
}

fn refused(_: &mut Request<'_>) -> Response {
    Response::plain(StatusCode::SERVICE_UNAVAILABLE)
}

#[test]
fn this_rate_this_objective() {
    let site = Site::new(hello);
    let measured = site
        .load()
        .rate(200)
        // However loaded the machine is that runs the test.
        .with("min-rate", "0.01")
        .require("p99<=20s,errors<=0")
        .run()
        .expect("carried out");
    measured.check().expect("met");
    assert!(measured.answers() > 0 && measured.failures() == 0);
    assert!(measured.latency(50.0) <= measured.latency(99.0) && measured.latency(50.0).is_some());
    assert!(measured.rate() > 0.0);
}

#[test]
fn what_is_missed_is_said() {
    let site = Site::new(hello);
    let measured = site.load().require("p50<=1us").run().expect("carried out");
    let error = measured.check().expect_err("impossible");
    assert!(error.missed()[0].contains("p50<=1us"), "{error}");
    assert!(!error.is_wrong());

    let site = Site::new(refused);
    let measured = site.load().run().expect("carried out");
    assert_eq!(measured.answers(), 0);
    let error = measured.check().expect_err("none succeeded");
    assert!(error.to_string().contains("503"), "{error}");
    // A condition on what is not there is not met either.
    let measured = site.load().require("p99<=20s").run().expect("carried out");
    assert!(measured.check().is_err() && measured.latency(99.0).is_none());
}

#[test]
fn what_is_wrong_is_said_before_anything_is_asked() {
    let load = || Load::http("http://127.0.0.1:9/");
    for (load, says) in [
        (load().with("no-such-flag", 1), "no-such-flag"),
        (load().with("rate", "fast"), "rate"),
        (load().require("p99<=soon"), "p99"),
        (load().with("rates", "1k,2k"), "several runs"),
        (load().with("json", ""), "program"),
        (Load::http("gopher://127.0.0.1/"), "gopher"),
    ] {
        let error = load.run().expect_err(says);
        assert!(error.is_wrong(), "{error}");
        assert!(error.to_string().contains(says), "{says}: {error}");
    }

    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let error = Load::http(format!("http://{address}/"))
        .run()
        .expect_err("nobody listens");
    assert!(!error.is_wrong() && error.missed().is_empty(), "{error}");
}

/// From a fiber it runs where blocking code belongs.
#[test]
fn on_a_fiber() {
    let site = Site::new(hello);
    let load = site.load();
    let runtime = Runtime::builder()
        .workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let measured = runtime.run(|| plainweave::blocking(|| load.run()));
    measured
        .expect("not cancelled")
        .expect("carried out")
        .check()
        .expect("met");
}

#[test]
fn results_are_what_the_program_writes() {
    let site = Site::new(hello);
    let results = site.load().run().unwrap().results();
    let ok = results.figures.get("ok").unwrap();
    assert!(results.valid || results.invalid_because.is_some());
    assert!(ok > 0.0 && results.figures.get("latency_p99_us").unwrap() > 0.0);

    let text = serde_json::to_string(&results).unwrap();
    // Counts have no decimal point.
    assert!(text.contains(&format!("\"ok\":{ok:.0},")), "{text}");
    let again: plainweave_load::Results = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (again.figures.get("ok"), again.addresses),
        (Some(ok), results.addresses)
    );
}
