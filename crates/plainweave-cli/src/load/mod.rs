//! `plainweave load`: load generators on fibers.
//!
//! A worker is a runtime of its own with one thread, its share of the connections, its own
//! schedule, random source and figures ([`engine`]): nothing is shared while the load runs. A
//! connection is a fiber that takes the next request's time from the schedule ([`schedule`]), waits
//! for it, asks and reads the answer ([`http`], [`http2`], [`cache`]). [`tally`] counts,
//! [`collect`] puts the workers' parts together, [`summary`] computes figures, [`verdict`] judges
//! them by [`objective`]s; [`report`] prints. [`sweep`] makes several runs, and [`steps`] prints
//! those. A run is made here ([`conduct`]) or by agents on other hosts ([`agents`], which speak
//! with their [`agent`] by [`wire`]).

mod agent;
mod agents;
mod cache;
mod chart;
mod collect;
mod conduct;
mod connect_to;
mod data;
mod distribution;
mod engine;
mod exit;
mod files;
mod flags;
mod group;
mod hdr_log;
mod http;
#[cfg(feature = "http2")]
mod http2;
#[cfg(not(feature = "http2"))]
#[path = "http2_absent.rs"]
mod http2;
mod interrupt;
#[cfg(feature = "http2")]
mod link;
mod live;
mod live_metrics;
mod objective;
mod page;
mod plan;
mod popularity;
mod publish;
mod ramp;
mod rates;
mod redirect;
mod reply;
mod report;
mod request;
mod response;
mod schedule;
mod series;
mod session_log;
mod sessions;
mod socket;
mod steps;
mod summary;
mod sweep;
mod tally;
mod tally_json;
mod target;
mod text;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_absent.rs"]
mod tls;
mod verdict;
mod watchers;
mod wire;

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::console::say;
use agents::Agents;
use conduct::Conductor;
use engine::Protocol;
use exit::Exit;
use files::Files;
pub(crate) use flags::Flags;
use flags::{Common, Line, What};
use interrupt::Interrupt;
use plan::Plan;
use publish::{Forms, publish};
use report::Report;
use steps::{Found, Steps};
use summary::Summary;
use sweep::{Course, Runs, Sweep};
use target::Target;
use verdict::Objectives;
use watchers::Watchers;

/// Runs the load and prints the result. The exit code tells whether objectives were met.
pub(crate) fn run(flags: &Flags) -> ExitCode {
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

fn drive<P: Protocol>(
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
            let (name, pause) = (name.as_str(), common.pause);
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
                json: report.json(),
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
        let (name, addresses) = (self.name, self.addresses);
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
                json: steps.json(),
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
