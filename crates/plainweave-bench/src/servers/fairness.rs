//! What does a fair scheduler cost in a real server? Policies, modes and drivers under the traffic
//! of memcached and of a web site, one change at a time.
//!
//! The base is the first of each list of flags: the policy of Cforall's thesis, which asked the
//! question, on fibers that move at any time with storage of their own, on epoll. Each other row
//! changes one of these; `--full` takes all combinations. A connection has a fiber, so that the
//! policy schedules what a thread per connection would.
//!
//! With one worker the server has CPU 0 and `plainweave load` has CPU 1. A turn is three loads: a
//! closed loop, for throughput and CPU per request; requests at half the base's throughput, for
//! latency; and the same on a server whose policy is observed
//! ([`Observed`](plainweave::policy::Observed)), for how long ready fibers wait and how many go
//! before them. With two workers server and load share the CPUs, each with the time of one by
//! quota: then only CPU per request is reported, since the load's share decides the rest.

mod plan; // Which systems are measured.
mod transfer; // The case `transfer`: a leader that computes until all others have run.
mod waits; // What a server with `--waits` has written.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::harness::cgroup::NO_QUOTA;
use crate::harness::descriptors;
use crate::harness::experiment::{Cases, Common};
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use crate::harness::turns::{self, Values, value};
use crate::serving::catalog::Catalog;
use crate::serving::limit;
use crate::serving::site::Site;
use crate::serving::{Counted, Figures, Kind, Load, Server, What, Whose, one_cpu, seconds};
use plainweave_report::scatter::{self, Panel, Point};
use plan::{Choices, System};
use waits::Waits;

/// Policies, modes and drivers in both servers: what fairness costs.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    cases: Cases,

    #[command(flatten)]
    choices: Choices,

    /// Connections of the cache; the web server has a fifteenth of them
    #[arg(long, value_name = "N", default_value = "15360")]
    connections: NonZeroUsize,

    /// Part of the published files that the web site has: one in so many
    #[arg(long, value_name = "N", default_value = "100")]
    scale: NonZeroUsize,

    /// Length of each of a turn's loads
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// Rounds; in each, every system gets a turn at every case
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroUsize,

    /// Goes on with a run that was interrupted: what it has measured with the same flags is not
    /// measured again
    #[arg(long)]
    resume: bool,
}

const CASES: [&str; 3] = ["cache", "web", "transfer"];
/// The fixed rate, as a share of the base's throughput.
const LOAD: f64 = 0.5;
/// What a turn takes beside its loads.
const STARTS: Duration = Duration::from_secs(4);
/// Connections of a cache for one of a web server.
const LESS: usize = 15;

/// What a turn found: the others have no fibers, and two workers no figures but CPU time.
struct Turn {
    closed: Figures,
    open: Option<Figures>,
    waits: Option<Waits>,
}

/// All turns of a system at a case: values of [`METRICS`].
type Turns = HashMap<(&'static str, System), Vec<Values>>;

/// What stays the same.
struct Setting<'a> {
    flags: &'a Flags,
    site: Site,
    mix: Catalog,
    /// By case: requests a second of the open loop.
    rates: HashMap<&'static str, usize>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    flags.cases.check(CASES.into_iter())?;
    let systems = flags.choices.systems()?;
    if flags.common.list {
        report::say(&format!("cases: {}", CASES.join(", ")));
        systems.iter().for_each(|system| {
            report::say(&format!("{}, workers: {}", system.name(), system.workers))
        });
        return Ok(());
    }

    let wanted = |name: &str| flags.cases.has(name);
    let site = Site::new()?;
    let mix = Catalog::mix(&site, flags.scale.get())?;
    let mut bench = Setting {
        flags,
        site,
        mix,
        rates: HashMap::new(),
    };

    let out = flags.common.folder();
    let cases = ["cache", "web"]
        .into_iter()
        .filter(|case| wanted(case))
        .count();
    let transfers = if wanted("transfer") {
        flags.choices.policies.len()
    } else {
        0
    };

    let mut kept = begin(
        flags,
        &out,
        cases * systems.len() * flags.runs.get() + transfers,
    )?;
    let (mut turns, mut absent): (HashMap<_, _>, Vec<(String, String)>) = Default::default();
    let mut failures = Failures::begin()?;

    // Rounds are outermost: a machine that changes meanwhile changes for all systems.
    for round in 1..=flags.runs.get() {
        for (case, kind) in [("cache", Kind::Cache), ("web", Kind::Web)] {
            for system in systems.iter().filter(|_| wanted(case)) {
                let name = format!(
                    "{case}, {}, workers: {}",
                    system.described(kind),
                    system.workers
                );
                match bench.absence(kind, system) {
                    None => {
                        // Nothing more is measured of a system that has failed once: its rounds
                        // would not pair up.
                        let measured = turns
                            .entry((case, system.clone()))
                            .or_insert_with(|| Some(Vec::new()));
                        failures.again(measured, &name, || {
                            let measure =
                                || bench.turn(case, kind, system).map(|turn| turn.values());
                            let values = kept.take(&format!("round {round}, {name}"), measure)?;
                            // Of a resumed run, too, whose first turn was kept and is not measured
                            // again.
                            bench.keep_rate(case, &values);
                            Ok(values)
                        });
                    }
                    // Once: it is as absent in every other round.
                    Some(why) if round == 1 => absent.push((name, why.to_owned())),
                    Some(_) => {}
                }
            }
        }
    }

    let turns: Turns = turns
        .into_iter()
        .filter_map(|(of, measured)| Some((of, measured?)))
        .collect();
    let mut rows = rows(&turns, &systems);
    for policy in flags.choices.policies.iter().filter(|_| wanted("transfer")) {
        let mode = &flags.choices.modes[0];
        let runs = flags.runs.get();
        let name = format!("transfer, {policy}");
        let measure = || transfer::turn(policy, mode, runs, flags.seconds, bench.site.dir());
        let turn = failures.catch(&name, || {
            kept.take(&format!("{name}, {runs} runs"), measure)
        });

        rows.extend(
            turn.iter()
                .flat_map(|turn| transfer::rows(policy, mode, turn)),
        );
    }

    ensure!(!rows.is_empty(), "nothing could be measured");
    scatter::write(&panels(&rows, &systems), &out.join("fairness.svg"))?;
    failures.publish(
        Report {
            experiment: "fairness",
            parameters: bench.parameters(),
            rows,
            absent,
        },
        Some(&out),
        None,
    )
}

/// Begins with the turns, or goes on with those that there are.
fn begin(flags: &Flags, out: &Path, all: usize) -> anyhow::Result<turns::Turns> {
    let Flags {
        choices,
        connections,
        scale,
        seconds,
        ..
    } = flags;
    // The rates come from the base.
    let base = (
        choices.policies.first(),
        choices.modes.first(),
        choices.drivers.first(),
    );
    let same = format!("{connections} connections, scale {scale}, {seconds:?}, base {base:?}");
    let kept = turns::Turns::begin("fairness", out, &same, flags.resume, all)?;
    kept.estimate(*seconds * 3 + STARTS);

    Ok(kept)
}

/// A panel a server: CPU per request to the base's across, the greatest wait upwards.
fn panels(rows: &[Row], systems: &[System]) -> Vec<Panel> {
    let panel = |case: &str| Panel {
        title: format!("{case}, one worker"),
        across: "CPU per request, to the base (less is better)",
        up: "greatest wait of a ready fiber (less is better)",
        holds: Some(1.0),
        points: points(rows, systems, case),
    };
    ["cache", "web"].map(panel).into()
}

fn points(rows: &[Row], systems: &[System], case: &str) -> Vec<Point> {
    let base = &systems[0];
    let of = |name: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|r| r.case == case && r.system == name && r.workers == 1 && r.metric == metric)?;
        Some(row.spread())
    };

    let point = |system: &System| {
        let name = system.name();
        let marked = system == base;
        // A ratio to itself has no spread.
        let across = if marked {
            [1.0; 3]
        } else {
            of(&name, "cpu_to_base").map(|cost| [cost.q1, cost.median, cost.q3])?
        };

        let label = format!(
            "{}{}",
            system.change(base)?,
            if marked { " (base)" } else { "" }
        );
        Some(Point {
            label,
            marked,
            across,
            up_us: of(&name, "greatest_wait_us")?.median,
        })
    };

    systems
        .iter()
        .filter(|system| system.workers == 1)
        .filter_map(point)
        .collect()
}

impl Setting<'_> {
    fn connections(&self, kind: Kind) -> usize {
        let all = self.flags.connections.get();
        if kind == Kind::Cache {
            all
        } else {
            all.div_ceil(LESS)
        }
    }

    /// Returns why there is no such turn.
    fn absence(&self, kind: Kind, system: &System) -> Option<&'static str> {
        if !descriptors::at_least(self.connections(kind)) {
            return Some(descriptors::TOO_FEW);
        }
        // Asked before the first turn: hours later it would cost all that came before.
        if system.workers > 1 && one_cpu("probe").is_err() {
            return Some(NO_QUOTA);
        }
        if system.is_ours() {
            None
        } else {
            kind.absence(&system.name())
        }
    }

    fn turn(&mut self, case: &'static str, kind: Kind, system: &System) -> anyhow::Result<Turn> {
        let server = self.start(kind, system, None)?;
        let closed = self.load(kind, &server, None)?;
        // Two workers need two CPUs, and the load has one of them.
        if system.workers > 1 {
            return Ok(Turn {
                closed,
                open: None,
                waits: None,
            });
        }

        // The first turn of all is the base's: the rate is the same for all after it.
        self.keep_rate(case, &[("requests_per_s".to_owned(), closed.rate)]);
        let rate = self.rates[case];
        let open = Some(self.load(kind, &server, Some(rate))?);
        // Two servers at a time would share the CPU.
        drop(server);

        if !system.is_ours() {
            return Ok(Turn {
                closed,
                open,
                waits: None,
            });
        }

        let file = self.site.dir().join("waits.csv");
        // Another process: to observe waits makes everything slower, so figures and waits come from
        // two.
        let server = self.start(kind, system, Some(&file))?;
        let observed = self.load(kind, &server, Some(rate))?;
        let waits = Some(Waits::read(&file, observed.steady)?);

        Ok(Turn {
            closed,
            open,
            waits,
        })
    }

    /// Sets the rate of a case by its first turn, which is the base's.
    fn keep_rate(&mut self, case: &'static str, values: &[(String, f64)]) {
        if let Some(rate) = value(values, "requests_per_s") {
            self.rates.entry(case).or_insert((rate * LOAD) as usize);
        }
    }

    fn start(&self, kind: Kind, system: &System, waits: Option<&Path>) -> anyhow::Result<Server> {
        let mut arguments = system.arguments();
        match (system.whose(), kind) {
            (Whose::Ours(_), Kind::Web) => {
                // All files of the mix, or the cache of descriptors would be what is measured.
                arguments.extend(["--open-files", "4000"].map(str::to_owned))
            }
            (Whose::Limit, _) => arguments.push(format!("--bytes={}", self.what(kind).mean())),
            _ => {}
        }

        let mut added: Vec<String> = system.added().map(str::to_owned).into_iter().collect();
        if let Some(file) = waits {
            added.extend(["--waits".to_owned(), file.display().to_string()]);
        }
        let [added, arguments] =
            [&added, &arguments].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
        Server::start(
            kind,
            system.whose(),
            &self.site,
            system.workers,
            &added,
            &arguments,
        )
    }

    fn what(&self, kind: Kind) -> What<'_> {
        if kind == Kind::Web {
            What::Mix(&self.mix)
        } else {
            What::Updates
        }
    }

    fn load(&self, kind: Kind, server: &Server, rate: Option<usize>) -> anyhow::Result<Figures> {
        let load = Load {
            what: self.what(kind),
            connections: self.connections(kind),
            connect: false,
            rate,
            time: self.flags.seconds,
            counted: Counted::Steady,
        };
        load.run(server, &self.site)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let flags = self.flags;
        let rates: Vec<_> = self
            .rates
            .iter()
            .map(|(case, rate)| format!("{case} {rate}/s"))
            .collect();
        vec![
            (
                "two workers",
                "server and load share both CPUs, each with the time of one by quota (the peer too): CPU per request \
                 and its ratios are figures of the server; throughput and latency would be the load's, and are left out"
                    .to_owned(),
            ),
            (
                "cache",
                format!(
                    "{} connections, sizes of Facebook's keys and values, 3 % updates",
                    self.connections(Kind::Cache)
                ),
            ),
            ("web", format!("{} connections, {}", self.connections(Kind::Web), self.mix.describe())),
            ("requests at a fixed rate", format!("half of the base's throughput: {}", rates.join(", "))),
            ("systems", "ours with a fiber per connection: policy, mode, driver".to_owned()),
            (
                limit::EPOLL,
                "a raw epoll loop, nothing of ours in it: it sends the mean size each time, and stores nothing"
                    .to_owned(),
            ),
            ("waits", "on a server of its own, since observing takes time".to_owned()),
            ("rounds", format!("{}, loads of {:?}", flags.runs, flags.seconds)),
            ("placement", "one worker: the server on CPU 0, `plainweave load` on CPU 1".to_owned()),
        ]
    }
}

/// A figure's name, its unit, and where it is.
type Metric = (&'static str, &'static str, fn(&Turn) -> Option<f64>);

const METRICS: [Metric; 9] = [
    ("cpu_per_request", "us", |turn| Some(turn.closed.cpu_us)),
    ("requests_per_s", "1/s", |turn| {
        turn.open.is_some().then_some(turn.closed.rate)
    }),
    ("p99_us", "us", |turn| Some(turn.open?.p99)),
    ("p999_us", "us", |turn| Some(turn.open?.p999)),
    ("errors", "1", |turn| {
        Some(turn.closed.errors + turn.open.map_or(0.0, |open| open.errors))
    }),
    ("wait_us", "us", |turn| Some(turn.waits.as_ref()?.mean_us)),
    ("greatest_wait_us", "us", |turn| {
        Some(turn.waits.as_ref()?.greatest_us)
    }),
    ("rank_error", "1", |turn| {
        Some(turn.waits.as_ref()?.rank_error)
    }),
    ("greatest_rank_error", "1", |turn| {
        Some(turn.waits.as_ref()?.greatest_rank_error)
    }),
];

impl Turn {
    fn values(&self) -> Values {
        METRICS
            .iter()
            .filter_map(|(metric, _, of)| Some(((*metric).to_owned(), of(self)?)))
            .collect()
    }
}

fn rows(turns: &Turns, systems: &[System]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, kind) in [("cache", Kind::Cache), ("web", Kind::Web)] {
        for system in systems {
            let Some(own) = turns.get(&(case, system.clone())) else {
                continue;
            };
            let mut row = |metric, unit, values: Vec<f64>| {
                if !values.is_empty() {
                    let fairness = Origin::new("fairness").with_workers(system.workers);
                    rows.push(fairness.row(case, system.described(kind), metric, unit, values));
                }
            };

            for (metric, unit, _) in METRICS {
                row(
                    metric,
                    unit,
                    own.iter().filter_map(|turn| value(turn, metric)).collect(),
                );
            }

            let cpu = |turn: &Values| value(turn, "cpu_per_request").unwrap_or(f64::NAN);
            let ratios = |to: &[Values]| {
                own.iter()
                    .zip(to)
                    .map(|(own, to)| cpu(own) / cpu(to))
                    .collect()
            };

            // The base of as many workers is the first of them.
            let first = systems.iter().find(|other| other.workers == system.workers);
            let base = first
                .and_then(|base| turns.get(&(case, base.clone())))
                .filter(|_| first != Some(system));
            let other = |other: System| turns.get(&(case, other)).filter(|_| system.is_ours());
            let peer = other(System::peer(system.workers));
            let limit = other(System::LIMIT).filter(|_| system.workers == 1);

            row(
                "cpu_to_base",
                "1",
                base.map(|base| ratios(base)).unwrap_or_default(),
            );
            row(
                "cpu_to_peer",
                "1",
                peer.map(|peer| ratios(peer)).unwrap_or_default(),
            );
            row(
                "cpu_to_limit",
                "1",
                limit.map(|limit| ratios(limit)).unwrap_or_default(),
            );
        }
    }
    rows
}
