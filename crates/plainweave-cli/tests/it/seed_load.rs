//! The load that the project began with: 10,000 requests, 1,000 at a time, a connection each, and
//! none may fail. In the tests it is small; as a command, any number of times in a row:
//!
//!     PLAINWEAVE_SEED_LOAD=100 cargo test --release -p plainweave-cli --test it seed_load -- \
//!         --nocapture --test-threads 1

#![expect(clippy::print_stderr, reason = "says how far it is")]

#[path = "../../../plainweave-http/examples/hello.rs"]
#[allow(dead_code, reason = "its `main`")]
mod hello;

use crate::common::group;
use crate::common::skip;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use crate::common::{Running, child};
use plainweave_http::Listener;
use serde_json::Value;

/// Requests, how many at a time, and how often.
struct Size {
    requests: u32,
    clients: u32,
    times: u64,
    full: bool,
}

impl Size {
    /// Makes room for it, too.
    fn chosen() -> Self {
        let times = std::env::var("PLAINWEAVE_SEED_LOAD")
            .ok()
            .map(|times| times.parse().expect("a number of times"));
        let Some(times) = times else {
            return Self {
                requests: 1000,
                clients: 100,
                times: 3,
                full: false,
            };
        };

        // The server of each connection has a second descriptor on threads.
        group::raise_descriptors(5000).unwrap();
        child::extend(times * 60);
        Self {
            requests: 10_000,
            clients: 1_000,
            times,
            full: true,
        }
    }
}

/// Puts the load on an address.
fn load(name: &str, address: SocketAddr, path: &str) {
    let Size {
        requests,
        clients,
        times,
        full,
    } = Size::chosen();
    let (url, start) = (format!("http://{address}{path}"), Instant::now());
    let count = requests.to_string();
    let at_once = clients.to_string();

    for time in 1..=times {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        command.args([
            "load",
            "http",
            &url,
            "-n",
            &count,
            "-c",
            &at_once,
            "--no-keep-alive",
            "--json",
        ]);
        let output = child::output(command.env_remove("PLAINWEAVE_IO")).unwrap();
        let [out, error] =
            [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        assert_eq!(
            output.status.code(),
            Some(0),
            "{name}, run {time}: {out}{error}"
        );
        let report: Value =
            serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}{error}"));
        let done = ["ok", "errors"].map(|figure| report["figures"][figure].as_f64());

        assert_eq!(
            done,
            [Some(f64::from(requests)), Some(0.0)],
            "{name}, run {time}: {out}{error}"
        );
        if full {
            eprintln!(
                "{name}: run {time} of {times}, {requests} requests, no failure, {:.1?} so far",
                start.elapsed()
            );
        }
    }

    if full {
        ab(name, &url, &count, &at_once);
    }
}

/// The same by the client that everybody has, if it is installed.
fn ab(name: &str, url: &str, count: &str, at_once: &str) {
    let Ok(done) = Command::new("ab")
        .args(["-q", "-n", count, "-c", at_once, url])
        .output()
    else {
        return skip::skip(&format!("{name}: ab is not installed"));
    };

    let said = String::from_utf8_lossy(&done.stdout);
    let field = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };

    let counts = (field("Complete requests:"), field("Failed requests:"));
    assert_eq!(
        counts,
        (Some(count), Some("0")),
        "{name}: {said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn web() {
    for driver in ["epoll", "uring"] {
        let server = Running::start(&["--io", driver]);
        load(&format!("web, {driver}"), server.address, "/Cargo.toml");
        server.signal();
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn hello_on_fibers() {
    let runtime = plainweave::Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .build()
        .unwrap();
    let listener = plainweave::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = listener.try_clone().unwrap();
    let serving = runtime.spawn(move || hello::serve(listener));

    load("hello, fibers", address, "/");
    closing.close();
    serving.join().unwrap().unwrap();
}

#[test]
fn hello_on_threads() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = listener.try_clone().unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || hello::serve(listener));
        load("hello, threads", address, "/");
        Listener::close(&closing);
        serving.join().unwrap().unwrap();
    });
}
