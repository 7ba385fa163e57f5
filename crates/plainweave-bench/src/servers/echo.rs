//! Echo over loopback: what a fiber adds to a bare loop, in CPU of the server per request.
//!
//! Six servers run at once, each in a process of its own on CPU 0: plain loops on epoll and on
//! io_uring, and a fiber per connection on both, with the cheapest switch (before-start/shared) and as
//! the library and the web server do unasked (anytime/own). A closed-loop client on CPU 1 drives
//! them in turn, some thousand requests a turn, so that all see the same machine in the same
//! minute. The figure is CPU time of all threads of the server process (the kernel's io_uring
//! workers are among them), and above all its ratio to the plain loops' in the same round.

pub(crate) mod client; // The closed-loop client.
mod server; // The servers: the raw loop, and a fiber per connection.

use std::num::NonZeroUsize;
use std::process::Command;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::harness::experiment::Common;
use crate::harness::machine;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::Origin;
use crate::serving::process::Process;
use plainweave_report::statistics::ratios;
pub(crate) use server::serve;

/// CPU per request of an echo server on each driver, beside plain loops.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// Connections, each with one message under way
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZeroUsize,

    /// Bytes of a message, up to 4096
    #[arg(long, value_name = "N", default_value = "128")]
    size: NonZeroUsize,

    /// Rounds; in each, every server gets its turn
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Requests of a turn
    #[arg(long, value_name = "N", default_value = "60000")]
    iterations: NonZeroUsize,
}

/// One server, told by its parent which to be.
#[derive(Args, Debug)]
pub(crate) struct ServerFlags {
    pub(crate) kind: Kind,
}

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Raw,
    RawUring,
    Epoll,
    Uring,
    EpollAnytime,
    UringAnytime,
    /// The same once more: what lies between the two is noise.
    UringAnytimeAgain,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Raw,
        Kind::RawUring,
        Kind::Epoll,
        Kind::Uring,
        Kind::EpollAnytime,
        Kind::UringAnytime,
        Kind::UringAnytimeAgain,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Raw => "raw epoll loop",
            Kind::RawUring => "raw uring loop",
            Kind::Epoll => "plainweave epoll",
            Kind::Uring => "plainweave uring",
            Kind::EpollAnytime => "plainweave epoll anytime/own",
            Kind::UringAnytime => "plainweave uring anytime/own",
            Kind::UringAnytimeAgain => "plainweave uring anytime/own again",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Kind::Raw => "raw",
            Kind::RawUring => "raw-uring",
            Kind::Epoll => "epoll",
            Kind::Uring => "uring",
            Kind::EpollAnytime => "epoll-anytime",
            Kind::UringAnytime | Kind::UringAnytimeAgain => "uring-anytime",
        }
    }
}

/// A server in its process, and what loads it; ends with this value.
struct Server {
    kind: Kind,
    process: Process,
    client: client::Client,
}

impl Server {
    fn start(kind: Kind, flags: &Flags) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["echo-server", kind.argument()])
            .env_remove("PLAINWEAVE_IO");
        let process = Process::start(kind.name(), &command, None, 1, None)?;
        let (connections, size) = (flags.connections.get(), flags.size.get());

        Ok(Self {
            kind,
            client: client::Client::connect(process.address, connections, size)?,
            process,
        })
    }

    /// Runs one turn; returns the CPU time of the server in microseconds a request.
    fn turn(&mut self, requests: usize) -> anyhow::Result<f64> {
        let before = self.process.cpu_ns()?;
        let echoed = self.client.drive(requests)?;
        ensure!(
            echoed >= requests,
            "{} answered {echoed} of {requests} requests",
            self.kind.name()
        );
        Ok((self.process.cpu_ns()? - before) as f64 / echoed as f64 / 1000.0)
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if flags.common.list {
        Kind::ALL.iter().for_each(|kind| report::say(kind.name()));
        return Ok(());
    }

    let mut absent = Vec::new();
    let mut servers = Vec::new();
    for kind in Kind::ALL {
        match Server::start(kind, flags) {
            Ok(server) => servers.push(server),
            Err(_) if kind.argument().contains("uring") => absent.push((
                kind.name().to_owned(),
                "io_uring is not available here".to_owned(),
            )),
            Err(error) => return Err(error),
        }
    }

    let pinned = machine::pin_to(1);
    let mut failures = Failures::begin()?;
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); servers.len()];

    for round in 0..=flags.runs.get() {
        report::progress(&format!("echo: round {round} of {}", flags.runs));
        // From another one each round.
        for n in 0..servers.len() {
            let n = (n + round) % servers.len();
            let server = &mut servers[n];
            let cost = failures.catch(server.kind.name(), || server.turn(flags.iterations.get()));
            // The first round warms up.
            if round > 0 {
                costs[n].extend(cost);
            }
        }
    }

    let case = format!("{} x {} B", flags.connections, flags.size);
    let row = |system: &str, metric, unit, values| {
        Origin::new("echo").row(&case, system, metric, unit, values)
    };

    let named = || servers.iter().map(|s| s.kind.name()).zip(&costs);
    let mut rows: Vec<_> = named()
        .map(|(name, c)| row(name, "cpu_us_per_request", "us", c.clone()))
        .collect();
    for (raw, metric) in [
        (Kind::Raw, "ratio_to_raw"),
        (Kind::RawUring, "ratio_to_raw_uring"),
    ] {
        let Some((_, raw_costs)) = named().find(|(name, _)| *name == raw.name()) else {
            continue;
        };
        for (name, own) in named().filter(|(name, _)| *name != raw.name()) {
            rows.push(row(name, metric, "1", ratios(own, raw_costs)));
        }
    }

    let parameters = vec![
        (
            "rounds",
            format!(
                "{}, the servers in turn, {} requests a turn",
                flags.runs, flags.iterations
            ),
        ),
        (
            "placement",
            if pinned {
                "servers on CPU 0, client on CPU 1"
            } else {
                "not pinned"
            }
            .to_owned(),
        ),
        (
            "policy",
            "fifo, one worker, a fiber per connection".to_owned(),
        ),
    ];
    failures.publish(
        Report {
            experiment: "echo",
            parameters,
            rows,
            absent,
        },
        flags.common.out(),
        None,
    )
}
