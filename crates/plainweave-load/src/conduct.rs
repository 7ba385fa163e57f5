//! Carrying out runs on this machine: the workers, and those that watch what they count.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::clock::nanos;
use super::collect::{Collector, Ran};
use super::engine::{self, Protocol};
use super::interrupt::Interrupt;
use super::plan::Plan;
use super::series::Point;
use super::socket::Place;
use super::summary::Outcome;
use super::sweep::Runs;
use super::tally::Tally;
use super::watchers::Watchers;

/// What all runs of a program have in common.
pub(super) struct Conductor<P> {
    pub(super) protocol: Arc<P>,
    pub(super) addresses: Vec<Place>,
    pub(super) interrupt: Interrupt,
    pub(super) watchers: Watchers,
}

impl<P: Protocol> Runs for Conductor<P> {
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Outcome>> {
        let mut collector = Collector::new(plan.workers);
        let began = Cell::new(SystemTime::now());
        let mut watch = self.watchers.for_run(plan, &began);
        let mut gate = || {
            began.set(SystemTime::now());
            Ok(())
        };

        let mut collect = |piece| collector.take(&piece, &mut watch);
        let stop = &self.interrupt.stop;
        let ran = engine::run(
            plan,
            &self.protocol,
            &self.addresses,
            stop,
            &mut gate,
            &mut collect,
        );
        let tally = collector.finish(&mut watch);
        let seconds = watch.end();

        match ran {
            Err(_) if self.interrupt.is_interrupted() => Ok(None),
            Err(error) => Err(error),
            Ok(ran) => Ok(Some(outcome(
                plan,
                ran,
                tally,
                seconds,
                self.interrupt.is_interrupted(),
            ))),
        }
    }

    fn pause(&mut self, length: Duration) -> bool {
        self.interrupt.pause(length)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        self.watchers.finish()
    }
}

/// Puts together what a run came to.
pub(super) fn outcome(
    plan: &Plan,
    ran: Ran,
    tally: Tally,
    seconds: Vec<Point>,
    interrupted: bool,
) -> Outcome {
    let measured = Duration::from_nanos(if interrupted {
        nanos(ran.wall)
    } else {
        tally.last
    });

    let measured = measured.saturating_sub(plan.warm_up);
    let elapsed = match plan.duration {
        Some(duration) if plan.requests.is_none() && !interrupted => duration,
        duration => measured.min(duration.unwrap_or(Duration::MAX)),
    };

    let Ran {
        began,
        wall,
        cpu,
        driver,
    } = ran;
    Outcome {
        tally,
        seconds,
        began,
        elapsed,
        wall,
        cpu,
        driver,
        interrupted,
    }
}
