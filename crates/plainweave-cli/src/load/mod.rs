//! `plainweave load`: load generators on fibers.
//!
//! A worker is a runtime of its own with one thread, its share of the connections, its own schedule, random source and
//! figures ([`engine`]): nothing is shared while the load runs. A connection is a fiber that takes the next request's
//! time from the schedule ([`schedule`]), waits for it, asks and reads the answer ([`http`], [`cache`]). [`tally`]
//! counts, [`collect`] puts the workers' parts together, [`summary`] computes figures, [`verdict`] judges them by
//! [`objective`]s; [`report`] prints.

mod cache;
mod collect;
mod conduct;
mod distribution;
mod engine;
mod flags;
mod http;
mod live;
mod objective;
mod plan;
mod popularity;
mod reply;
mod report;
mod response;
mod schedule;
mod summary;
mod tally;
mod target;
mod text;
mod verdict;

use std::io::stderr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::Arguments;
use crate::console::say;
use conduct::Conductor;
use engine::Protocol;
pub(crate) use flags::Flags;
use flags::{Common, What};
use plan::Plan;
use report::Report;
use summary::Summary;
use target::Target;
use verdict::{Exit, Objectives, Verdict};

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
    let conductor = Conductor::new(Arc::new(protocol), addresses)?;
    let Some(outcome) = conductor.carry_out(&plan)? else { return Ok(conductor.interrupted()) };
    let summary = Summary::new(&plan, &outcome);
    let verdict = objectives(common).judge(&name, &summary);
    Report { name: &name, addresses: conductor.addresses(), summary, verdict: &verdict }.publish(common)?;
    tell(&verdict);
    Ok(if outcome.interrupted { conductor.interrupted() } else { verdict.exit() })
}

fn objectives(common: &Common) -> Objectives {
    Objectives {
        fail_if: common.fail_if.clone(),
        max_errors: common.max_errors,
        min_rate: common.min_rate,
        max_lateness: common.max_lateness,
    }
}

/// Says on standard error what was not met.
fn tell(verdict: &Verdict) {
    for missed in &verdict.missed {
        say(stderr(), &format!("plainweave: {missed}"));
    }
    if let (Some(reason), false) = (&verdict.invalid, verdict.unjudged.is_empty()) {
        say(stderr(), &format!("plainweave: not judged: {}: {reason}", verdict.unjudged.join(", ")));
    }
}
