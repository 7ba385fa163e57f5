//! The HTTP library and `plainweave web` beside their peers, in CPU time of the server per request.
//!
//! All servers of a case run at once, each in processes of its own on CPU 0 with one worker;
//! clients on CPU 1 load them in turn, those of closed loops in slices of 50 ms, so that all see
//! the same machine in the same second. What counts are ratios of the same round: to the peers, and
//! to the limits, raw loops on epoll and io_uring that send a fixed answer. Answers are checked before the load and
//! now and then while it runs.

mod bench; // What the cases share.
mod h2; // Files of 1 KiB over HTTP/2 without TLS (prior knowledge), 32 streams of a connection.
// What connections over TLS notice of a thousand handshakes at once, all of them full (ECDSA
// P-256).
mod handshakes;
mod hello; // A fixed answer over connections that are kept alive.
mod kind; // Which of this program's own servers runs in a child process.
mod seed; // A crowd that comes at once, a connection for each request.
mod servers; // The servers that are part of this program, each in a process of its own.
mod system; // The systems that send a fixed answer: the limit, ours, and the peers.
mod tls; // Files of 1 KiB over TLS 1.3, connections kept alive.
mod versions; // Versions of the peers and of the load generators, for the head of the results.
mod websocket; // An echo by WebSocket.
mod websocket_server; // Servers that send back the messages of WebSockets.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use crate::harness::experiment::{Cases, Common};
use crate::serving::bench::{Case, chosen, list};
use crate::serving::seconds;
use bench::{Bench, Sizes};
pub(crate) use servers::{Flags as ServerFlags, serve};

/// The HTTP library and web server: a fixed answer, TLS, handshakes, WebSocket, HTTP/2.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    cases: Cases,

    #[command(flatten)]
    size: Size,
}

/// A fixed answer through the HTTP library, beside its peers: the cases hello, hello-chunked and
/// seed of `http`.
#[derive(Args, Debug)]
pub(crate) struct HelloFlags {
    #[command(flatten)]
    size: Size,
}

/// How much is measured.
#[derive(Args, Debug)]
struct Size {
    #[command(flatten)]
    common: Common,

    /// Rounds; in each, every system gets its turn
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Load on a system in a round
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,

    /// Connections that are kept alive
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZeroUsize,

    /// Connections at a time of the case seed, and handshakes at once
    #[arg(long, value_name = "N", default_value = "1000")]
    crowd: NonZeroUsize,

    /// Requests of the case seed
    #[arg(long, value_name = "N", default_value = "10000")]
    requests: NonZeroUsize,

    /// Messages of a turn of the case websocket
    #[arg(long, value_name = "N", default_value = "60000")]
    messages: NonZeroUsize,
}

const CASES: [Case<Sizes>; 7] = [
    Case {
        name: "hello",
        summary: "CPU per request, a fixed answer of 13 bytes through the library, 64 connections kept alive",
        run: hello::run,
    },
    Case {
        name: "hello-chunked",
        summary: "the same answer in chunks, as if its length were not known",
        run: hello::run_chunked,
    },
    Case {
        name: "seed",
        summary: "the same answer, 10,000 requests, 1,000 at a time, a connection for each; failures",
        run: seed::run,
    },
    Case {
        name: "tls",
        summary: "CPU per request, files of 1 KiB over TLS 1.3, 64 connections",
        run: tls::run,
    },
    Case {
        name: "handshakes",
        summary: "p99 of 64 connections over TLS beside 1,000 full handshakes at once (ECDSA P-256)",
        run: handshakes::run,
    },
    Case {
        name: "websocket",
        summary: "CPU per message, echo of 64 bytes on 64 connections",
        run: websocket::run,
    },
    Case {
        name: "h2",
        summary: "CPU per request, files of 1 KiB over HTTP/2, 32 streams of a connection",
        run: h2::run,
    },
];

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let cases = chosen(&CASES, &flags.cases)?;
    measure("http", &flags.size, cases)
}

pub(crate) fn run_hello(flags: &HelloFlags) -> anyhow::Result<()> {
    let of_hello = |case: &&Case<Sizes>| ["hello", "hello-chunked", "seed"].contains(&case.name);
    measure("hello", &flags.size, CASES.iter().filter(of_hello))
}

fn measure<'a>(
    experiment: &'static str,
    size: &Size,
    cases: impl Iterator<Item = &'a Case<Sizes>>,
) -> anyhow::Result<()> {
    if size.common.list {
        list(cases);
        return Ok(());
    }

    let sizes = Sizes {
        connections: size.connections.get(),
        crowd: size.crowd.get(),
        requests: size.requests.get(),
        messages: size.messages.get(),
    };

    let mut parameters = vec![
        (
            "rounds",
            format!(
                "{}, the systems in turn, {} s for each",
                size.runs,
                size.seconds.as_secs_f64()
            ),
        ),
        (
            "connections",
            format!(
                "{} kept alive, or {} at a time",
                size.connections, size.crowd
            ),
        ),
        (
            "placement",
            "servers on CPU 0 with one worker each, client on CPU 1".to_owned(),
        ),
    ];
    parameters.extend(versions::all());

    Bench::new(experiment, size.runs.get(), size.seconds, sizes)?.publish(
        cases,
        parameters,
        &size.common,
    )
}
