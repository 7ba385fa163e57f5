//! Load generators on fibers: [`Load`] for a program or a test, with a [`Protocol`] of its own if
//! need be, and `plainweave load`.
//!
//! A worker is a runtime of its own with one thread, its share of the connections, its own
//! schedule, random source and figures (`engine`): nothing is shared while the load runs. A
//! connection is a fiber that takes the next request's time from the schedule (`schedule`), waits
//! for it, asks and reads the answer (`http`, `http2`, `cache`). `tally` counts, `collect` puts the
//! workers' parts together, `summary` computes figures, `verdict` judges them by `objective`s;
//! `report` prints. `sweep` makes several runs, and `steps` prints those. A run is made here
//! (`conduct`) or by agents on other hosts (`agents`, which speak with their `agent` by `wire`).

mod agent; // `plainweave load agent`: carries out the part of a load that a coordinator sends.
mod agents; // The coordinator's side.
mod cache; // memcached's text protocol, by classic or meta commands.
mod clock; // The clock of a load.
mod collect; // Putting a run together from its parts.
// Carrying out runs on this machine: the workers, and those that watch what they count.
mod conduct;
mod connect_to; // Connecting elsewhere than a URL says, as curl's flag of that name does.
mod data; // A file with a request a line, for data that differs by request.
// Distributions of sizes and gaps, in the notation of mutilate (J. Leverich, C. Kozyrakis, EuroSys
// 2014).
mod distribution;
mod engine; // What carries the load.
mod exit; // The exit codes.
mod files; // Files that a load is made from: lists, bodies, header fields, session logs.
mod flags; // The flags of `plainweave load`, as data.
mod group; // The streams of one connection: one of them makes it, the others join it.
mod hdr_log; // An interval log of HdrHistogram (format 1.3, histograms of version 2, compressed).
// HTTP/1.1: requests written out once and sent as they are, alone or in sessions, over TLS or
// without.
mod http;
#[cfg(feature = "http2")]
mod http2; // HTTP/2: each request is a stream of a connection that the streams of a `Group` share.
#[cfg(not(feature = "http2"))]
#[path = "http2_absent.rs"]
mod http2;
mod interrupt; // Signals that end the load: SIGINT and SIGTERM.
#[cfg(feature = "http2")]
mod link; // A connection over HTTP/2: the crate h2, and the two fibers that carry its bytes.
mod live; // What is shown while a run lasts, on standard error.
mod live_metrics; // The figures so far, for Prometheus, while the load runs: what `--admin` serves.
mod load; // A load in a program, or a test, of one's own.
mod objective; // Objectives as text.
mod own; // A protocol of one's own.
mod page; // The result as a page of HTML that needs nothing beside it.
mod plan; // How much load a run makes, and the part of it that falls to each worker.
mod popularity; // Which item is asked for next: the next in turn, or one chosen by popularity.
mod publish; // Where results go: standard output, and the files asked for.
mod ramp; // Rates that change while the load runs.
mod rates; // Rates as text: one, one that changes, several.
mod redirect; // Following a redirect (RFC 9110, 15.4).
mod reply; // Replies of memcached's text protocol, classic and meta, sans I/O.
mod report; // The result of a run: a table, a CSV, a JSON document.
mod request; // HTTP requests as bytes, by server.
mod response; // HTTP/1 answers, sans I/O.
mod results; // What `--json` writes, as a type.
mod schedule; // When requests start.
mod series; // The seconds of a run, one after the other, as figures.
mod session_log; // Session logs: what one client asks for, visit by visit.
mod sessions; // `plainweave load sessions`: draws session logs from distributions and a seed.
mod socket; // A connection of either family.
mod steps; // The result of several runs: a row each.
mod stream; // What the bytes of a connection go through: a socket, or TLS on it.
mod summary; // The figures of a run, by name, and what they say of the client itself.
mod sweep; // Several runs, one after the other.
mod tally; // What came of the requests: counts, a histogram of latencies, failures by kind.
mod tally_json; // What was counted, as JSON.
mod target; // The server under load.
mod text; // Figures as people read them.
#[cfg(feature = "tls")]
mod tls; // TLS for `load http`, by rustls: what is trusted, handshakes, and why they fail.
#[cfg(not(feature = "tls"))]
#[path = "tls_absent.rs"]
mod tls;
mod verdict; // Whether a run met its objectives.
mod watchers; // Everything that watches runs.
mod wire; // What a coordinator and its agents say to each other.

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;

use agents::Agents;
use conduct::Conductor;
use exit::Exit;
use files::Files;
pub use flags::Flags;
use flags::{Common, Line, What};
use interrupt::Interrupt;
pub use load::{Error, Load, Measured};
pub use own::{Answer, Failed, Protocol, Stream};
use plainweave_daemon::console::say;
use plan::Plan;
use publish::{Forms, publish};
use report::Report;
pub use results::{Figures, Results, Search, Series};
use steps::{Found, Steps};
use summary::Summary;
use sweep::{Course, Runs, Sweep};
use target::Target;
use verdict::Objectives;
use watchers::Watchers;

/// Runs the load and prints the result. The exit code tells whether objectives were met.
pub fn run(flags: &Flags) -> ExitCode {
    let files = Files::own();
    let done = match &flags.what {
        What::Http(own) if own.http2 => {
            drive(&own.common, http2::Http2::prepare(own, &files), &files)
        }
        What::Http(own) => drive(&own.common, http::Http::prepare(own, &files), &files),
        What::Cache(own) => drive(&own.common, cache::Cache::prepare(own, &files), &files),
        What::Sessions(own) => sessions::write(own).map(|line| {
            say(stdout(), &line);
            Exit::Met
        }),
        What::Agent(own) => {
            agent::check(own).unwrap_or_else(|error| wrong_usage(&error));
            agent::serve(own).map(|()| Exit::Met)
        }
    };

    let exit = done.unwrap_or_else(|error| {
        say(stderr(), &format!("plainweave: {error:#}"));
        Exit::Failed
    });

    ExitCode::from(exit.code())
}

/// Ends the program as clap does after wrong usage.
fn wrong_usage(error: &anyhow::Error) -> ! {
    Line::command()
        .error(ErrorKind::ValueValidation, format!("{error:#}"))
        .exit()
}

fn drive<P: engine::Protocol>(
    common: &Common,
    prepared: anyhow::Result<(Vec<Target>, P)>,
    files: &Files,
) -> anyhow::Result<Exit> {
    let (targets, protocol) = prepared.unwrap_or_else(|error| wrong_usage(&error));
    let plan = Plan::new(common, protocol.depth(), protocol.each(), targets.len());
    let mut plan = plan
        .unwrap_or_else(|error| wrong_usage(&error))
        .with_streams(protocol.streams());
    let name = targets
        .iter()
        .map(|target| target.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    publish::check(common)?;
    let watchers = Watchers::new(common)?;
    let (mut runs, addresses, interrupt): (Box<dyn Runs>, Vec<_>, _) = if common.agents.is_empty() {
        target::allow_descriptors(plan.connections, plan.workers)?;
        let addresses = targets
            .iter()
            .map(|target| target.probe(plan.timeout))
            .collect::<anyhow::Result<Vec<_>>>()?;
        target::enough_ports(plan.connections, &addresses)?;
        let texts = addresses.iter().map(ToString::to_string).collect();
        let interrupt = Interrupt::install()?;
        let protocol = Arc::new(protocol);

        (
            Box::new(Conductor {
                protocol,
                addresses,
                interrupt: interrupt.clone(),
                watchers,
            }),
            texts,
            interrupt,
        )
    } else {
        let part = plan.part(0, common.agents.len());
        part.unwrap_or_else(|error| wrong_usage(&error));
        let secret = wire::read_secret(common.agent_secret_file.as_deref())?;
        let interrupt = Interrupt::install()?;
        let engaged = Agents::engage(common, &secret, files, interrupt.clone(), watchers);
        let agents = match (engaged, interrupt.exit()) {
            (Err(_), Some(exit)) => return Ok(exit),
            (engaged, _) => engaged?,
        };

        plan.workers = agents.workers();
        let addresses = agents.addresses.iter().cloned().collect();
        (Box::new(agents), addresses, interrupt)
    };

    let objectives = Objectives::new(common);
    let target = Named {
        name: &name,
        addresses: &addresses,
    };

    let exit = match Course::new(common) {
        None => target.once(common, &plan, &objectives, &mut *runs)?,
        Some(course) => {
            let name = name.as_str();
            let pause = common.pause;
            let sweep = Sweep {
                name,
                plan: &plan,
                objectives: &objectives,
                pause,
                steps: Vec::new(),
            };

            target.steps(common, sweep, &course, &mut *runs)?
        }
    };

    runs.finish()?;
    Ok(interrupt.exit().unwrap_or(exit))
}

/// What is loaded.
struct Named<'a> {
    name: &'a str,
    addresses: &'a [String],
}

impl Named<'_> {
    /// Makes a single run.
    fn once(
        &self,
        common: &Common,
        plan: &Plan,
        held: &Objectives,
        runs: &mut dyn Runs,
    ) -> anyhow::Result<Exit> {
        let Some(outcome) = runs.run(plan)? else {
            return Ok(Exit::Missed);
        };
        let summary = Summary::new(plan, &outcome);
        let verdict = held.judge(self.name, &summary);
        let report = Report {
            name: self.name,
            addresses: self.addresses,
            summary,
            verdict: &verdict,
        };

        let html = page::run(&report.head(), &verdict, &summary);
        publish(
            common,
            &Forms {
                table: report.table(),
                csv: report.csv(),
                json: serde_json::to_value(report.results())?,
                html,
            },
        )?;
        tell(&verdict.notes());
        Ok(verdict.exit())
    }

    /// Makes several runs. Of a sweep the conditions of `--fail-if` decide: it may well go beyond
    /// what can be kept.
    fn steps(
        &self,
        common: &Common,
        mut sweep: Sweep<'_>,
        course: &Course,
        runs: &mut dyn Runs,
    ) -> anyhow::Result<Exit> {
        let rate = sweep.follow(course, runs)?;
        let found = common.search.as_ref().map(|conditions| Found {
            objective: conditions.to_string(),
            rate,
        });

        let name = self.name;
        let addresses = self.addresses;
        let steps = Steps {
            name,
            addresses,
            steps: &sweep.steps,
            search: found.as_ref(),
        };

        let notes = sweep.steps.iter().flat_map(|step| {
            let rate = step.plan.rate.unwrap_or(0.0);
            step.verdict
                .notes()
                .into_iter()
                .map(move |note| format!("at {rate} requests/s: {note}"))
        });

        let notes: Vec<_> = notes.collect();
        let html = page::steps(name, &notes, &steps);
        publish(
            common,
            &Forms {
                table: steps.table(),
                csv: steps.csv(),
                json: serde_json::to_value(steps.results())?,
                html,
            },
        )?;
        tell(&notes);
        let any = |exit: Exit| {
            sweep
                .steps
                .iter()
                .any(|step| step.verdict.steps_exit() == exit)
        };

        Ok(match found {
            Some(found) if found.rate.is_none() => Exit::Missed,
            Some(_) => Exit::Met,
            None if sweep.steps.iter().all(|step| step.outcome.tally.ok == 0)
                || any(Exit::Missed) =>
            {
                Exit::Missed
            }
            None if any(Exit::Invalid) => Exit::Invalid,
            None => Exit::Met,
        })
    }
}

/// Says on standard error what was not met.
fn tell(notes: &[String]) {
    for note in notes {
        say(stderr(), &format!("plainweave: {note}"));
    }
}
