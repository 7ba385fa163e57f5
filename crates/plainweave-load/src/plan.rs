//! How much load a run makes, and the part of it that falls to each worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{bail, ensure};
use plainweave::Runtime;

use super::clock::{Nanos, nanos};
use super::flags::{Arrivals, Common};
use super::ramp::Ramp;
use super::rates::Rate;
use super::schedule::{Pace, Schedule};
use plainweave_daemon::engine::{Io, Setup};
use plainweave_daemon::hooks::Hooks;
use plainweave_daemon::mode::Mode;

/// The fibers of a worker share what counts for its load without locks, so they stay on its thread.
pub(super) const MODE: Mode = Mode::SHARED;

/// How much load, from where.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) connections: usize,
    pub(super) workers: usize,
    pub(super) pace: Pace,
    /// Of an open loop: the mean over the measurement.
    pub(super) rate: Option<f64>,
    /// What the ramp leads from or to.
    peak: Option<f64>,
    ramp: Option<Ramp>,
    arrivals: Arrivals,
    /// The rate of this step, if it is one of several.
    pub(super) step: Option<f64>,
    /// What the load needs is put on the servers first.
    pub(super) loads: bool,
    /// No starts after it, counted from the end of the warm-up.
    pub(super) duration: Option<Duration>,
    pub(super) requests: Option<u64>,
    /// Those of all hosts together.
    all_requests: Option<u64>,
    pub(super) warm_up: Duration,
    pub(super) timeout: Duration,
    pub(super) depth: usize,
    /// Requests in progress on a connection, each of a fiber of its own.
    pub(super) streams: usize,
    /// Requests of one start, on average: more than one in sessions.
    each: f64,
    /// Which server connections go to, one after the other.
    pub(super) turns: Vec<usize>,
    /// Which part of the load this is, and of how many.
    part: (usize, usize),
    /// Connections of the parts before it.
    connections_before: usize,
    pub(super) seed: u64,
    io: Option<Io>,
    policy: Option<String>,
}

impl Plan {
    /// Makes the plan for a protocol that sends this many requests together, and makes this many of
    /// one start.
    pub(super) fn new(
        given: &Common,
        depth: usize,
        each: f64,
        servers: usize,
    ) -> anyhow::Result<Self> {
        let requests = given.requests.map(|n| n.get());
        let duration = given
            .duration
            .or(requests.is_none().then_some(Duration::from_secs(10)));
        let connections = given.connections.get();
        let runtime = &given.runtime;
        let cpus = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = runtime.workers.map_or_else(cpus, NonZeroUsize::get);
        let lead = given.ramp.unwrap_or_default();
        let warm_up = given.warm_up.unwrap_or_default() + lead;
        let open = given.rate.is_some() || given.rates.is_some() || given.search.is_some();
        let closed = |flag: &str| format!("{flag} needs an open loop: add --rate");

        ensure!(
            open || given.arrivals == Arrivals::Constant,
            closed("--arrivals")
        );
        ensure!(open || lead.is_zero(), closed("--ramp"));
        if let Some(condition) = given
            .fail_if
            .iter()
            .find(|condition| !open && condition.needs_rate())
        {
            bail!(closed(&format!("--fail-if '{condition}'")));
        }
        let steps = given.rates.is_some() || given.search.is_some();
        let changes = given.rate.is_some_and(|rate| rate.from != rate.to);

        ensure!(
            !(steps && changes),
            "--search goes by steps: give --rate as one number"
        );
        ensure!(
            warm_up.is_zero() || duration.is_some(),
            "--warm-up with --requests alone: give --duration too"
        );
        let measured =
            nanos(warm_up)..duration.map_or(u64::MAX, |duration| nanos(warm_up + duration));

        // Steps have their own rates, which a lead-in precedes too.
        let lead_in = (!lead.is_zero()).then(|| Ramp::new(0.0, 0, nanos(lead)));
        let (pace, peak, rate, ramp) = match given.rate {
            None => (Pace::OnAnswer, None, None, lead_in),
            Some(Rate { from, to }) if from == to => (
                // A start of a session leads to several requests, and the rate is of requests.
                pace(given.arrivals, to / each)?,
                Some(to),
                Some(to),
                lead_in,
            ),
            // It is drawn at its highest rate, and stretched where it is lower.
            Some(Rate { from, to }) => {
                ensure!(
                    duration.is_some(),
                    "--rate {from}..{to} with --requests alone: give --duration too"
                );
                ensure!(
                    lead.is_zero(),
                    "--rate {from}..{to} is a ramp itself: leave out --ramp"
                );
                let ramp = Ramp::new(from / to, measured.start, measured.end);
                let mean = to * ramp.mean(measured.start, measured.end);
                (
                    pace(given.arrivals, to / each)?,
                    Some(to),
                    Some(mean),
                    Some(ramp),
                )
            }
        };

        Ok(Self {
            connections,
            // A worker without a connection would only wait.
            workers: workers.min(connections),
            pace,
            rate,
            peak,
            ramp,
            arrivals: given.arrivals,
            step: None,
            loads: true,
            duration,
            requests,
            all_requests: requests,
            warm_up,
            timeout: given.timeout,
            depth,
            streams: 1,
            each,
            turns: turns(given, connections, servers)?,
            part: (0, 1),
            connections_before: 0,
            seed: given.seed,
            io: runtime.io,
            policy: runtime.policy.clone(),
        })
    }

    /// Has each connection carry this many requests at a time.
    pub(super) fn with_streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    /// Returns how many requests can be in progress at a time.
    pub(super) fn most_under_way(&self) -> usize {
        self.connections * self.streams * self.depth
    }

    /// Returns the part of `total` that falls to one of the workers.
    pub(super) fn share(&self, total: u64, worker: usize) -> u64 {
        let worker = worker as u64;
        let workers = self.workers as u64;
        total / workers + u64::from(worker < total % workers)
    }

    /// Returns the number of a worker's first connection, among those of all.
    pub(super) fn first_connection(&self, worker: usize) -> usize {
        let before: usize = (0..worker)
            .map(|worker| self.share(self.connections as u64, worker) as usize)
            .sum();
        self.connections_before + before
    }

    /// Returns the part of the load that falls to one of several hosts.
    pub(super) fn part(&self, part: usize, parts: usize) -> anyhow::Result<Self> {
        ensure!(
            self.connections >= parts,
            "{parts} agents and {} connections: each agent needs one",
            self.connections
        );
        let share = |total: u64, part: usize| {
            let part = part as u64;
            let parts = parts as u64;
            total / parts + u64::from(part < total % parts)
        };

        let connections = share(self.connections as u64, part) as usize;
        let before: u64 = (0..part)
            .map(|part| share(self.connections as u64, part))
            .sum();
        Ok(Self {
            connections,
            workers: self.workers.min(connections),
            connections_before: before as usize,
            requests: self.requests.map(|requests| share(requests, part)),
            part: (part, parts),
            ..self.clone()
        })
    }

    /// Returns a worker's number among those of all hosts, and how many there are if each host has
    /// as many.
    pub(super) fn among_all(&self, worker: usize) -> (usize, usize) {
        let (part, parts) = self.part;
        // Not one host after the other: schedules are spread by this number, so that the hosts'
        // starts alternate.
        (part + parts * worker, parts * self.workers)
    }

    /// Returns the seed of what a worker draws.
    pub(super) fn worker_seed(&self, worker: usize) -> u64 {
        self.seed
            .wrapping_add(1 + worker as u64)
            // Apart from all workers' seeds of another host.
            .wrapping_add((self.part.0 as u64) << 40)
    }

    /// Returns the plan of another step: at another rate, on servers that have what the load needs.
    pub(super) fn at_rate(&self, rate: f64, loads: bool) -> anyhow::Result<Self> {
        Ok(Self {
            pace: pace(self.arrivals, rate / self.each)?,
            rate: Some(rate),
            peak: Some(rate),
            step: Some(rate),
            // Only the first step stores what the others ask for.
            loads,
            ..self.clone()
        })
    }

    /// Returns when the last request of all hosts is due; of random gaps, on average.
    pub(super) fn due_end(&self) -> Nanos {
        let end = self
            .duration
            .map_or(u64::MAX, |duration| nanos(self.warm_up + duration));
        let all = self
            .all_requests
            .zip(self.peak)
            .map_or(u64::MAX, |(requests, peak)| {
                // By the pace alone: whether answers came is what this is compared with.
                let steady = requests as f64 * self.each / peak * 1e9;
                self.ramp.map_or(steady, |ramp| ramp.stretch(steady)) as u64
            });
        end.min(all)
    }

    pub(super) fn schedule(&self, worker: usize) -> Schedule {
        let end = self
            .duration
            .map_or(u64::MAX, |duration| nanos(self.warm_up + duration));
        let count = self
            .requests
            .map_or(u64::MAX, |requests| self.share(requests, worker));
        let (number, all) = self.among_all(worker);
        let phase = number as f64 / all as f64;
        // Each worker draws its own gaps, or all would send at the same moments.
        let seed = self.seed ^ (number as u64) << 32;

        Schedule::new(self.pace.share(all), end, count, phase, seed).with_ramp(self.ramp)
    }

    pub(super) fn runtime(&self) -> anyhow::Result<Runtime> {
        let workers = Some(NonZeroUsize::MIN);
        let policy = self.policy.as_deref();
        Setup {
            name: "load",
            workers,
            io: self.io,
            policy,
            mode: MODE,
            hooks: Hooks::NONE,
            stalls: None,
            traced: false,
        }
        .start()
    }
}

/// Returns the servers in the order in which connections go to them: each as often as its weight
/// says, and spread out.
fn turns(given: &Common, connections: usize, servers: usize) -> anyhow::Result<Vec<usize>> {
    ensure!(
        connections >= servers,
        "{servers} servers and {connections} connections: each server needs one"
    );
    let weights = given
        .weights
        .as_ref()
        .map_or_else(|| vec![1; servers], |weights| weights.0.clone());
    ensure!(
        weights.len() == servers,
        "--weights has {} numbers for {servers} servers",
        weights.len()
    );
    let total: u32 = weights.iter().sum();

    // Always the server that is furthest behind its share.
    let mut given = vec![0; servers];
    Ok((1..=total)
        .map(|turn| {
            let behind = |server: &usize| {
                i64::from(weights[*server]) * i64::from(turn) - given[*server] * i64::from(total)
            };
            let next = (0..servers).rev().max_by_key(behind).unwrap_or(0);
            given[next] += 1;
            next
        })
        .collect())
}

fn pace(arrivals: Arrivals, rate: f64) -> anyhow::Result<Pace> {
    let gap = 1e9 / rate;
    Ok(match arrivals {
        Arrivals::Constant => Pace::Constant(gap),
        Arrivals::Poisson => Pace::Poisson(gap),
        Arrivals::Distribution(distribution) => Pace::distribution(distribution, gap)?,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        common: Common,
    }

    fn plan(args: &[&str], servers: usize) -> anyhow::Result<Plan> {
        Plan::new(
            &Cli::try_parse_from([&["load"], args].concat())?.common,
            1,
            1.0,
            servers,
        )
    }

    #[test]
    fn servers_have_turns_by_weight() {
        assert_eq!(plan(&[], 3).unwrap().turns, [0, 1, 2]);
        assert_eq!(plan(&["--weights", "3,1"], 2).unwrap().turns, [0, 0, 1, 0]);
        assert_eq!(
            plan(&["--weights", "1,4,1"], 3).unwrap().turns,
            [1, 0, 1, 1, 2, 1]
        );
        assert!(plan(&["--weights", "3,1"], 3).is_err());
        assert!(plan(&["-c", "2"], 3).is_err());
    }

    #[test]
    fn parts_make_the_whole() {
        let whole = plan(
            &[
                "-c",
                "7",
                "-n",
                "10",
                "--rate",
                "600",
                "-d",
                "1s",
                "--workers",
                "2",
            ],
            1,
        )
        .unwrap();
        let parts: Vec<_> = (0..3).map(|part| whole.part(part, 3).unwrap()).collect();
        let of = |get: fn(&Plan) -> usize| parts.iter().map(get).collect::<Vec<_>>();
        assert_eq!(of(|part| part.connections), [3, 2, 2]);
        assert_eq!(of(|part| part.requests.unwrap() as usize), [4, 3, 3]);
        assert_eq!(of(|part| part.first_connection(1)), [2, 4, 6]);
        assert!(
            parts.iter().all(|part| part.due_end() == whole.due_end()),
            "the rate is that of the whole"
        );
        assert_eq!(whole.due_end(), 16_666_666);
        let unbounded = plan(&["--rate", "600", "-d", "1s", "--workers", "2"], 1).unwrap();
        let mut starts = Vec::new();

        for (part, worker) in (0..3).flat_map(|part| [(part, 0), (part, 1)]) {
            let mut schedule = unbounded.part(part, 3).unwrap().schedule(worker);
            starts.extend(std::iter::from_fn(|| schedule.take(0)));
        }

        starts.sort_unstable();
        // Evenly spaced over all hosts and workers.
        assert!(
            starts
                .windows(2)
                .all(|pair| (1_666_000..1_667_500).contains(&(pair[1] - pair[0]))),
            "{starts:?}"
        );
        assert!(whole.part(0, 8).is_err());
    }

    #[test]
    fn workers_share_connections() {
        let plan = plan(&["-c", "7", "--workers", "3"], 1).unwrap();
        let firsts = [0, 1, 2].map(|worker| plan.first_connection(worker));
        assert_eq!((firsts, plan.share(7, 2)), ([0, 3, 5], 2));
    }
}
