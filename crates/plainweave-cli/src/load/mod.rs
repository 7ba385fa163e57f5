//! `plainweave load`: load generators on fibers.
//!
//! A worker is a runtime of its own with one thread, its share of the connections, its own schedule, random source and
//! figures ([`engine`]): nothing is shared while the load runs. A connection is a fiber that takes the next request's
//! time from the schedule ([`schedule`]), waits for it, asks and reads the answer ([`http`], [`cache`]). [`tally`]
//! counts; [`report`] prints.

mod cache;
mod distribution;
mod engine;
mod flags;
mod http;
mod plan;
mod popularity;
mod progress;
mod reply;
mod report;
mod response;
mod schedule;
mod tally;
mod target;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::arguments::Arguments;
use engine::Protocol;
pub(crate) use flags::Flags;
use flags::{Common, What};
use plan::Plan;
use report::Report;
use tally::Tally;
use target::Target;

/// Runs the load and prints the result.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    match &flags.what {
        What::Http(own) => {
            let (target, client) = http::Http::prepare(own).unwrap_or_else(|error| wrong_usage(&error));
            drive(&own.common, &[target], client)
        }
        What::Cache(own) => {
            let (targets, client) = cache::Cache::prepare(own).unwrap_or_else(|error| wrong_usage(&error));
            drive(&own.common, &targets, client)
        }
    }
}

/// Ends the program as clap does after wrong usage.
fn wrong_usage(error: &anyhow::Error) -> ! {
    Arguments::command().error(ErrorKind::ValueValidation, format!("{error:#}")).exit()
}

fn drive<P: Protocol>(common: &Common, targets: &[Target], protocol: P) -> anyhow::Result<()> {
    let plan = Plan::new(common, protocol.depth()).unwrap_or_else(|error| wrong_usage(&error));
    target::allow_descriptors(plan.connections, plan.workers)?;
    let addresses = targets.iter().map(|target| target.probe(plan.timeout)).collect::<anyhow::Result<Vec<_>>>()?;
    let name = targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The first ends the run early, with a report; a second ends the process.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("cannot catch signals")?;
        flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let outcome = engine::run(&plan, &Arc::new(protocol), &addresses, &stop)?;
    let report = Report::new(&name, &addresses, &plan, &outcome);
    report.publish(common)?;
    let Tally { ok, ref failures, .. } = outcome.tally;
    if ok == 0 {
        bail!("no request to {name} succeeded: {failures}");
    }
    let share = failures.total() as f64 / (ok + failures.total()) as f64;
    if share > common.max_errors {
        let most = common.max_errors * 100.0;
        bail!("{:.1} % of the requests failed, and --max-errors allows {most} %: {failures}", share * 100.0);
    }
    Ok(())
}
