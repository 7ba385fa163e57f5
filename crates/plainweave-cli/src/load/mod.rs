//! `plainweave load`: load generators on fibers.
//!
//! A worker is a runtime of its own with one thread, its share of the connections, its own schedule, random source and
//! figures ([`engine`]): nothing is shared while the load runs. A connection is a fiber that takes the next request's
//! time from the schedule ([`schedule`]), waits for it, asks and reads the answer ([`http`], [`cache`]). [`tally`]
//! counts, [`collect`] puts the workers' parts together, [`summary`] computes figures, [`verdict`] judges them by
//! [`objective`]s; [`report`] prints. [`sweep`] makes several runs, and [`steps`] prints those.

mod cache;
mod collect;
mod conduct;
mod distribution;
mod engine;
mod exit;
mod flags;
mod http;
mod live;
mod objective;
mod plan;
mod popularity;
mod publish;
mod ramp;
mod rates;
mod reply;
mod report;
mod response;
mod schedule;
mod steps;
mod summary;
mod sweep;
mod tally;
mod target;
mod text;
mod verdict;

use std::io::stderr;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::Arguments;
use crate::console::say;
use conduct::Conductor;
use engine::Protocol;
use exit::Exit;
pub(crate) use flags::Flags;
use flags::{Common, What};
use plan::Plan;
use publish::{Forms, publish};
use report::Report;
use steps::{Found, Steps};
use summary::Summary;
use sweep::{Course, Runs, Sweep};
use target::Target;
use verdict::{Objectives, Verdict};

/// Runs the load and prints the result. The exit code tells whether objectives were met.
pub(crate) fn run(flags: &Flags) -> ExitCode {
    let done = match &flags.what {
        What::Http(own) => {
            let (target, client) = http::Http::prepare(own).unwrap_or_else(|error| wrong_usage(&error));
            drive(&own.common, &[target], client)
        }
        What::Cache(own) => {
            let (targets, client) = cache::Cache::prepare(own).unwrap_or_else(|error| wrong_usage(&error));
            drive(&own.common, &targets, client)
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
    Arguments::command().error(ErrorKind::ValueValidation, format!("{error:#}")).exit()
}

fn drive<P: Protocol>(common: &Common, targets: &[Target], protocol: P) -> anyhow::Result<Exit> {
    let plan = Plan::new(common, protocol.depth()).unwrap_or_else(|error| wrong_usage(&error));
    target::allow_descriptors(plan.connections, plan.workers)?;
    let addresses = targets.iter().map(|target| target.probe(plan.timeout)).collect::<anyhow::Result<Vec<_>>>()?;
    target::enough_ports(plan.connections, &addresses)?;
    let name = targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut conductor = Conductor::new(Arc::new(protocol), addresses.clone())?;
    let objectives = Objectives::new(common);
    let target = Named { name: &name, addresses: &addresses };
    let exit = match Course::new(common) {
        None => target.once(common, &plan, &objectives, &mut conductor)?,
        Some(course) => {
            let (name, pause) = (name.as_str(), common.pause);
            let sweep = Sweep { name, plan: &plan, objectives: &objectives, pause, steps: Vec::new() };
            target.steps(common, sweep, &course, &mut conductor)?
        }
    };
    Ok(conductor.interrupted().unwrap_or(exit))
}

/// What is loaded.
struct Named<'a> {
    name: &'a str,
    addresses: &'a [SocketAddr],
}

impl Named<'_> {
    /// Makes a single run.
    fn once(&self, common: &Common, plan: &Plan, held: &Objectives, runs: &mut dyn Runs) -> anyhow::Result<Exit> {
        let Some(outcome) = runs.run(plan)? else { return Ok(Exit::Missed) };
        let summary = Summary::new(plan, &outcome);
        let verdict = held.judge(self.name, &summary);
        let report = Report { name: self.name, addresses: self.addresses, summary, verdict: &verdict };
        publish(common, &Forms { table: report.table(), csv: report.csv(), json: report.json() })?;
        tell("", &verdict);
        Ok(verdict.exit())
    }

    /// Makes several runs. Of a sweep the conditions of `--fail-if` decide: it may well go beyond what can be kept.
    fn steps(
        &self,
        common: &Common,
        mut sweep: Sweep<'_>,
        course: &Course,
        runs: &mut dyn Runs,
    ) -> anyhow::Result<Exit> {
        let rate = sweep.follow(course, runs)?;
        let found = common.search.as_ref().map(|conditions| Found { objective: conditions.to_string(), rate });
        let (name, addresses) = (self.name, self.addresses);
        let steps = Steps { name, addresses, steps: &sweep.steps, search: found.as_ref() };
        publish(common, &Forms { table: steps.table(), csv: steps.csv(), json: steps.json() })?;
        for step in &sweep.steps {
            tell(&format!("at {} requests/s: ", step.plan.rate.unwrap_or(0.0)), &step.verdict);
        }
        let any = |exit: Exit| sweep.steps.iter().any(|step| step.verdict.steps_exit() == exit);
        Ok(match found {
            Some(found) if found.rate.is_none() => Exit::Missed,
            Some(_) => Exit::Met,
            None if sweep.steps.iter().all(|step| step.outcome.tally.ok == 0) || any(Exit::Missed) => Exit::Missed,
            None if any(Exit::Invalid) => Exit::Invalid,
            None => Exit::Met,
        })
    }
}

/// Says on standard error what was not met.
fn tell(at: &str, verdict: &Verdict) {
    for missed in &verdict.missed {
        say(stderr(), &format!("plainweave: {at}{missed}"));
    }
    if let (Some(reason), false) = (&verdict.invalid, verdict.unjudged.is_empty()) {
        say(stderr(), &format!("plainweave: {at}not judged: {}: {reason}", verdict.unjudged.join(", ")));
    }
}
