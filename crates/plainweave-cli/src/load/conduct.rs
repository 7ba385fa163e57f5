//! Carrying out runs: the workers, what they count, and signals that end them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::collect::Collector;
use super::engine::{self, Protocol, Ran};
use super::exit::Exit;
use super::live::Live;
use super::plan::{Plan, nanos};
use super::summary::Outcome;
use super::sweep::Runs;
use super::tally::Tally;

/// How soon a signal ends a pause.
const TICK: Duration = Duration::from_millis(50);

/// What all runs of a program have in common.
pub(super) struct Conductor<P> {
    protocol: Arc<P>,
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    /// The signal that came, or 0.
    signal: Arc<AtomicUsize>,
}

impl<P: Protocol> Conductor<P> {
    /// Takes over SIGINT and SIGTERM: the first ends a run early, with a report; a second ends the process.
    pub(super) fn new(protocol: Arc<P>, addresses: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let (stop, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in [SIGINT, SIGTERM] {
            let caught = || "cannot catch signals";
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&stop)).with_context(caught)?;
            flag::register_usize(number, Arc::clone(&signal), number as usize).with_context(caught)?;
            flag::register(number, Arc::clone(&stop)).with_context(caught)?;
        }
        Ok(Self { protocol, addresses, stop, signal })
    }

    /// Returns the exit after a signal, if one came.
    pub(super) fn interrupted(&self) -> Option<Exit> {
        let signal = self.signal.load(Ordering::Relaxed) as u8;
        (signal != 0).then_some(Exit::Signal(signal))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted().is_some()
    }
}

impl<P: Protocol> Runs for Conductor<P> {
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Outcome>> {
        let mut collector = Collector::new(plan.workers);
        let mut watch = Live::new(plan);
        let mut collect = |piece| collector.take(&piece, &mut watch);
        let ran = engine::run(plan, &self.protocol, &self.addresses, &self.stop, &mut || Ok(()), &mut collect);
        let tally = collector.finish(&mut watch);
        drop(watch);
        match ran {
            Err(_) if self.is_interrupted() => Ok(None),
            Err(error) => Err(error),
            Ok(ran) => Ok(Some(outcome(plan, ran, tally, self.is_interrupted()))),
        }
    }

    fn pause(&mut self, length: Duration) -> bool {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.is_interrupted() {
            std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
        !self.is_interrupted()
    }
}

fn outcome(plan: &Plan, ran: Ran, tally: Tally, interrupted: bool) -> Outcome {
    let measured = Duration::from_nanos(if interrupted { nanos(ran.wall) } else { tally.last });
    let measured = measured.saturating_sub(plan.warm_up);
    let elapsed = match plan.duration {
        Some(duration) if plan.requests.is_none() && !interrupted => duration,
        duration => measured.min(duration.unwrap_or(Duration::MAX)),
    };
    let Ran { began, wall, cpu, driver } = ran;
    Outcome { tally, began, elapsed, wall, cpu, driver: driver.to_owned(), interrupted }
}
