//! `plainweave web` beside nginx: CPU per request, memory of idle connections, latency when CPU is
//! short.
//!
//! The servers run at once, each in processes of its own on CPU 0, and serve the same files;
//! clients on CPU 1 drive them in turn, those of closed loops in turns of 50 ms, so that all see
//! the same machine in the same second. nginx is Debian's, tuned and with its defaults
//! (`servers/nginx`), with one worker. Where all bodies have one length, up to 128 KiB, raw loops
//! on epoll and io_uring that send a fixed answer of that length show the limit of this machine. Ours is the
//! program `plainweave` that stands beside this one, with `--workers 1` and otherwise its defaults,
//! on each driver. The CPU figure is that of a cgroup, kernel threads included, or of the processes
//! where there is no such group.

mod bench; // What the cases share.
mod compression; // Compression on the fly.
mod disk; // Files that memory cannot hold.
mod idle; // Idle keep-alive connections: memory of each, and CPU while nothing happens.
mod log; // What the access log costs: each server beside itself without a log.
mod overload; // More than a server can bear.
mod proxy; // CPU per request of a proxy.
mod quota; // Latency when CPU is short.
mod requests; // Server CPU per request, closed loop; bodies are sampled while the load runs.
mod sites; // What sites and rules cost, and what a reload does to the tail.
mod slow; // Slow clients beside fast ones.
mod two_workers; // CPU per request with two workers beside that with one.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use crate::harness::descriptors;
use crate::harness::experiment::{Cases, Common};
use crate::serving::bench::{Case, chosen, list};
use crate::serving::catalog::Catalog;
use crate::serving::closed::Load;
use crate::serving::nginx;
use crate::serving::site::FIELDS;
use crate::serving::wrk;
use bench::{Bench, Sizes};

/// The static web server beside nginx.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    /// Rounds; in each, every system gets its turn
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Load on a system in a round; closed loops get it in slices of 50 ms
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = length)]
    seconds: Duration,

    /// Connections of idle-10000, overload and slow-10000, for a smaller machine
    #[arg(long, value_name = "N", default_value = "10000")]
    idle: NonZeroUsize,

    /// Connections of 1k-8000, for a smaller machine
    #[arg(long, value_name = "N", default_value = "8000")]
    many: NonZeroUsize,

    /// The mix has one in N of the published files
    #[arg(long, value_name = "N", default_value = "10")]
    mix_scale: NonZeroUsize,

    /// Files of 1 MiB of the case disk; a tenth of them fits its memory
    #[arg(long, value_name = "N", default_value = "400")]
    large: NonZeroUsize,
}

const CASES: [Case<Sizes>; 22] = [
    Case {
        name: "1k-64",
        summary: "server CPU per request, 1 KiB files, 64 connections, closed loop",
        run: |bench| requests::run(bench, "1k-64", &Load::kept(64, Catalog::small())),
    },
    Case {
        name: "1k-curl",
        summary: "the same, all requests with the head that curl sends (1k-64: in turn as curl, a browser and a proxy)",
        run: |bench| {
            requests::run(
                bench,
                "1k-curl",
                &Load {
                    heads: &FIELDS[..1],
                    ..Load::kept(64, Catalog::small())
                },
            )
        },
    },
    Case {
        name: "1k-browser",
        summary: "the same with a browser's head of 460 bytes",
        run: |bench| {
            requests::run(
                bench,
                "1k-browser",
                &Load {
                    heads: &FIELDS[1..2],
                    ..Load::kept(64, Catalog::small())
                },
            )
        },
    },
    Case {
        name: "1k-1024",
        summary: "1k-64 with 1,024 connections",
        run: |bench| requests::run(bench, "1k-1024", &Load::kept(1024, Catalog::small())),
    },
    Case {
        name: two_workers::CASE,
        summary: "the same with one worker and with two, each server with the time of one CPU",
        run: two_workers::run,
    },
    Case {
        name: "1k-8000",
        summary: "1k-1024 with 8,000",
        run: |bench| {
            if descriptors::at_least(bench.sizes.many) {
                return requests::run(
                    bench,
                    "1k-8000",
                    &Load::kept(bench.sizes.many, Catalog::small()),
                );
            }
            bench.findings.missing("1k-8000", descriptors::TOO_FEW);
            Ok(())
        },
    },
    Case {
        name: "1k-close",
        summary: "the same with a connection for each request, 64 at a time",
        run: |bench| {
            requests::run(
                bench,
                "1k-close",
                &Load {
                    close: true,
                    ..Load::kept(64, Catalog::small())
                },
            )
        },
    },
    Case {
        name: "100k",
        summary: "100 KiB files, 64 connections",
        run: |bench| {
            requests::run(
                bench,
                "100k",
                &Load::kept(64, Catalog::of(&bench.site, 20, 100 << 10)?),
            )
        },
    },
    Case {
        name: "1m",
        summary: "1 MiB files, 64 connections",
        run: |bench| {
            requests::run(
                bench,
                "1m",
                &Load::kept(64, Catalog::of(&bench.site, 4, 1 << 20)?),
            )
        },
    },
    Case {
        name: "mix",
        summary: "21,600 files of 100 B to 900 KiB as published, scaled, 64 connections",
        run: |bench| {
            requests::run(
                bench,
                "mix",
                &Load::kept(64, Catalog::mix(&bench.site, bench.sizes.mix_scale)?),
            )
        },
    },
    Case {
        name: "access-log",
        summary: "CPU per request with an access log, beside none",
        run: log::run,
    },
    Case {
        name: sites::CASE,
        summary: "CPU per request with ten sites, and then with rules, fields and a log",
        run: sites::run,
    },
    Case {
        name: sites::RELOADS,
        summary: "p99 and p99.9 of a steady load, alone and while the configuration is reloaded",
        run: sites::reloads,
    },
    Case {
        name: compression::KEPT,
        summary: "100 KiB of JSON, compressed; ours keeps what it has made",
        run: compression::kept,
    },
    Case {
        name: compression::STREAMED,
        summary: "the same of 4 MiB, which ours compresses for each answer, too",
        run: compression::streamed,
    },
    Case {
        name: proxy::SMALL,
        summary: "CPU per request of a proxy, beside nginx and HAProxy, 1 KiB, 64 connections",
        run: proxy::small,
    },
    Case {
        name: proxy::LARGE,
        summary: "the same of 100 KiB",
        run: proxy::large,
    },
    Case {
        name: "disk",
        summary: "p99 of cached files while others are read from a slow disk",
        run: disk::run,
    },
    Case {
        name: "idle-10000",
        summary: "memory of idle connections, CPU of idleness",
        run: idle::run,
    },
    Case {
        name: "quota-p99",
        summary: "p99 and p99.9 at a quarter of a core, at 30, 60 and 90 % of nginx's peak",
        run: quota::run,
    },
    Case {
        name: "overload",
        summary: "an eighth of a core, offered 1.5 and 2 times its peak",
        run: overload::run,
    },
    Case {
        name: "slow-10000",
        summary: "p99 beside clients that send or read next to nothing",
        run: slow::run,
    },
];

/// Reads a number of seconds, at least a tenth.
fn length(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|length| *length >= Duration::from_millis(100))
        .ok_or("at least 0.1".to_owned())
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        list(CASES.iter());
        return Ok(());
    }

    let cases = chosen(&CASES, &flags.cases)?;
    let sizes = Sizes {
        idle: flags.idle.get(),
        many: flags.many.get(),
        mix_scale: flags.mix_scale.get(),
        large: flags.large.get(),
    };

    let parameters = vec![
        (
            "rounds",
            format!(
                "{}, the systems in turn, {} s for each",
                flags.runs,
                flags.seconds.as_secs_f64()
            ),
        ),
        ("placement", "servers on CPU 0, client on CPU 1".to_owned()),
        ("nginx", nginx::version()),
        ("wrk", wrk::version()),
    ];

    Bench::new("web", flags.runs.get(), flags.seconds, sizes)?.publish(
        cases,
        parameters,
        &flags.common,
    )
}
