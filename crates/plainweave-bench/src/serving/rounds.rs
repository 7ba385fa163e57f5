//! Closed loops on several servers at once, in slices, round after round; answers are sampled while
//! the load runs.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;

use super::process::Process;
use super::slices;
use crate::harness::course::Course;

/// Between two samples: a few a second, next to nothing beside the load.
const SAMPLES: Duration = Duration::from_millis(100);
/// A case has failed that sees no answer in as long as this.
const IN_VAIN: Duration = Duration::from_secs(20);

/// What a server cost, a value a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    /// CPU time of the server in microseconds, a request.
    pub(crate) cpu: Vec<f64>,
    /// Requests a second.
    pub(crate) rate: Vec<f64>,
}

/// Rounds that count, behind one that warms up.
pub(crate) struct Rounds<'a> {
    /// Experiment and case, for the progress.
    pub(crate) name: &'a str,
    pub(crate) runs: usize,
    /// Load on a server in a round.
    pub(crate) turn: Duration,
}

impl Rounds<'_> {
    /// Loads the servers by one client each. `load` makes the command for a server that runs for
    /// some whole seconds, `requests` reads from its output how many requests it came to. `sample`
    /// is called now and then meanwhile, with the number of the call, and fails if an answer is
    /// wrong.
    pub(crate) fn run(
        &self,
        servers: &[&Process],
        load: impl Fn(&Process, Duration) -> Command,
        requests: impl Fn(&Output) -> anyhow::Result<f64>,
        mut sample: impl FnMut(usize) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Vec<Costs>> {
        // Clients take whole seconds: they are what the servers share.
        let count = servers.len() as u32;
        let seconds = |turn: Duration| Duration::from_secs_f64((turn * count).as_secs_f64().ceil());
        let mut costs = vec![Costs::default(); servers.len()];
        let mut round = 0;
        let mut turn = self.turn;
        let mut sampled = 0;
        let mut course = Course::new(self.runs + 1);

        while round <= self.runs {
            let all = seconds(turn);
            course.step(&format!(
                "{}, round {round} of {}, {count} systems",
                self.name, self.runs
            ));
            let before = servers
                .iter()
                .map(|server| server.cpu_ns())
                .collect::<Result<Vec<_>, _>>()?;
            let mut commands: Vec<_> = servers.iter().map(|server| load(server, all)).collect();

            let outputs = beside(
                || slices::run(&mut commands, all),
                &mut sample,
                &mut sampled,
            )?;
            let answered = outputs
                .iter()
                .map(&requests)
                .collect::<Result<Vec<_>, _>>()?;
            // On a machine that has other work a short slice may see no answer, which tells nothing
            // of the server.
            if answered.contains(&0.0) {
                ensure!(turn < IN_VAIN, "{}: no answer within {turn:?}", self.name);
                turn *= 2;
                continue;
            }

            for (n, server) in servers.iter().enumerate() {
                let cost = (server.cpu_ns()? - before[n]) as f64 / 1000.0 / answered[n];
                // The first round warms up.
                if round > 0 {
                    costs[n].cpu.push(cost);
                    costs[n]
                        .rate
                        .push(answered[n] * f64::from(count) / all.as_secs_f64());
                }
            }

            round += 1;
        }

        Ok(costs)
    }
}

/// Runs a load, and takes samples until it ends.
fn beside<T>(
    run: impl FnOnce() -> anyhow::Result<T>,
    sample: &mut (impl FnMut(usize) -> anyhow::Result<()> + Send),
    sampled: &mut usize,
) -> anyhow::Result<T> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| -> anyhow::Result<()> {
            while !ended.load(Ordering::Relaxed) {
                sample(*sampled)?;
                *sampled += 1;
                std::thread::sleep(SAMPLES);
            }
            Ok(())
        });

        let result = {
            let _end = SetOnDrop(&ended);
            run()
        };

        sampler
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        result
    })
}

/// Sets a flag when it is dropped: ends a thread that runs beside a measurement, also when that
/// panics.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
