//! `plainweave sim`: simulated runs as a table or as CSV.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use toml::Spanned;

use crate::commit::{commit, profile};
use crate::costs::MICRO;
use crate::engine::{Setup, simulate};
use crate::figures::{Outcome, at, sorted};
use crate::machine::{MACHINES, MAX_WORKERS};
use crate::plot::{self, Line, Point};
use crate::scenario::{Chosen, MAX_RATE, MAX_RUNS, Scenario, unwritten};
use crate::search::{Found, Search, TAIL};
use crate::thesis::Case;
use crate::timeline::Timeline;
use crate::trial::Trial;
use crate::workload::{Key, LOADS, Row, Value};
use plainweave_report::statistics::Spread;

/// Run scheduling policies on simulated machines; every figure that it prints is simulated
#[derive(Debug, Parser)]
#[command(name = "plainweave sim", bin_name = "plainweave sim", version, max_term_width = 100, after_help = tables())]
struct Flags {
    /// What to run, as a TOML file; flags take the place of its lines (docs/simulator.md has an
    /// example)
    #[arg(value_name = "SCENARIO", conflicts_with = "check")]
    scenario: Option<PathBuf>,

    /// Policies, each as NAME or NAME:param=value,...; given more than once, one row for each
    /// [default: those of the case, or fifo]
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,

    /// Numbers of workers from 1 to 256, separated by commas [default: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS as u64))]
    workers: Vec<u64>,

    /// What the fibers do [default: packets]
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,

    /// A published combination of size and parameters, as listed below: text; other flags go before
    /// it
    #[arg(long, value_name = "NAME")]
    case: Option<String>,

    /// How many packets, options or requests, in place of the workload's own number, 1 to
    /// 20,000,000; for fib which number, 1 to 30
    #[arg(long, value_name = "N")]
    size: Option<u64>,

    /// Changes a parameter of the workload, as listed below: heavy=0.1
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    param: Vec<(String, Value)>,

    /// How fast requests come in the workloads open and stuck, in percent of what the workers can
    /// compute, 1 to 1000 [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=MAX_RATE))]
    rate: Option<u64>,

    /// The machine; a scenario can describe another in its table [machine] [default: epyc]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,

    /// Changes a constant of the cost model, in nanoseconds or percent: group=30 (docs/simulator.md
    /// has them)
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    cost: Vec<(String, f64)>,

    /// What workers do without work: sleep as the runtime's do, or search without end as the
    /// published ones [default: sleep]
    #[arg(long, value_name = "HOW")]
    idle: Option<Idle>,

    /// Decides all draws: a run with the same flags and the same sources is the same run; any
    /// number below 2^64 [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Repetitions, with this seed and the following ones, 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_RUNS))]
    runs: Option<u64>,

    /// Print CSV
    #[arg(long)]
    csv: bool,

    /// Write what each worker did in the first run to a new file, as JSON in Chrome's trace format
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    trace: Option<PathBuf>,

    /// Write throughput, median latency and p99 against workers to a new file, as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    svg: Option<PathBuf>,

    /// Write the beginning of the first run to a new file, as SVG: which fiber each worker ran,
    /// sleeps, steals
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    timeline: Option<PathBuf>,

    /// With --timeline: how many microseconds it shows, 1 to 1,000,000 [default: 200]
    #[arg(long, value_name = "N", requires = "timeline", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeline_us: Option<u64>,

    /// Search for a policy: try N compositions of the family stealing, 1 to 100,000, and print
    /// those with the highest throughput on the largest machine. Their latency is compared with
    /// that of --policy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000),
          conflicts_with_all = ["check", "trace", "svg", "timeline", "csv"])]
    search: Option<u64>,

    /// Check N random small machines with random policies instead, from the seed on; 1 to
    /// 10,000,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000),
          conflicts_with_all = ["policy", "workers", "workload", "case", "size", "param", "rate", "machine", "cost",
                                "idle", "runs", "csv"])]
    check: Option<u64>,

    /// With --check: end after so long, however many machines are left, 1 to 86,400
    #[arg(long, value_name = "N", requires = "check", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Idle {
    Sleep,
    Spin,
}

fn parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.into()))
}

fn pair(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let value = value
        .parse()
        .map_err(|_| format!("'{value}' is not a number"))?;
    Ok((name.to_owned(), value))
}

fn tables() -> String {
    let row = |name: &str, what: &str| format!("  {name:18}{what}\n");
    let parameter = |key: &Key| format!("    {:16}{}, {}\n", key.name(), key.help(), key.allowed());
    let case = |case: &Case| format!("    --case {:13}{}\n", case.name, case.summary);
    let load = |load: &Row| {
        let parameters: String = load
            .parameters
            .iter()
            .map(parameter)
            .chain(load.cases().map(case))
            .collect();
        row(
            load.name,
            &format!("{}={}: {}", load.size.name(), load.size.own(), load.what),
        ) + &parameters
    };

    let loads: String = LOADS.iter().map(load).collect();
    let machines: String = MACHINES
        .iter()
        .map(|(name, what)| row(name, what))
        .collect();
    format!(
        "Workloads, with their sizes, and their parameters for --param:\n{loads}\nMachines:\n{machines}\n\
         Policies: see plainweave policies. Examples:\n  \
         plainweave sim --policy fifo --policy ot-fifo-base --workers 5,20,80,115\n  \
         plainweave sim --policy ot-lifo-base --idle spin --runs 5 --csv"
    )
}

/// Parses the arguments and carries out the runs.
///
/// The exit code is 0 if all was well, 1 if a checker objected or a file could not be written, 2
/// after wrong usage.
pub fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let wrong_usage = error.is::<Usage>();
            // Nothing can be done if standard error is gone.
            let _ = writeln!(io::stderr(), "plainweave sim: {error:#}");
            ExitCode::from(if wrong_usage { 2 } else { 1 })
        }
    }
}

/// An argument, or a line of a scenario, that makes no sense.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage(message: String) -> anyhow::Error {
    anyhow::Error::new(Usage(message))
}

/// How fast the simulator itself is. That is real time, so it goes to standard error alone: what is
/// written elsewhere repeats bit for bit.
struct Pace {
    begin: Instant,
    /// Fibers that were started or went on.
    executions: u64,
}

impl Pace {
    fn begin() -> Self {
        Self {
            begin: Instant::now(),
            executions: 0,
        }
    }

    fn report(&self) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let millions = self.executions as f64 / seconds.max(1e-9) / 1e6;
        let executions = self.executions;

        // Nothing can be done if standard error is gone.
        let _ = writeln!(
            io::stderr(),
            "plainweave sim: {executions} simulated executions in {seconds:.2} s of real time: {millions:.2} million a \
             second"
        );
    }
}

fn run(flags: &Flags, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(trials) = flags.check {
        return check(
            flags.seed.unwrap_or(1),
            trials,
            flags.seconds.map(Duration::from_secs),
            out,
        );
    }

    let scenario = scenario(flags)?;
    // All that can be wrong is found before the first run.
    let mut setups = scenario
        .setups()
        .map_err(|refused| usage(refused.plain()))?;
    let mut trace = flags.trace.as_deref().map(create).transpose()?;
    let mut timeline = flags.timeline.as_deref().map(create).transpose()?;
    // Only one run is drawn: others would not be readable beside it, and recording takes memory.
    if let Some(first) = setups.first_mut().and_then(|runs| runs.first_mut()) {
        first.record = trace.is_some() || timeline.is_some();
    }
    if let Some(candidates) = flags.search {
        return search(setups, candidates as usize, &scenario, out);
    }
    // Created before the runs: hours of them should not end in a path that cannot be written.
    let svg = flags.svg.as_deref().map(create).transpose()?;
    let mut lines = Vec::new();

    head(out, flags, &scenario)?;
    let mut pace = Pace::begin();
    for runs in &setups {
        let outcomes = runs.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?;
        pace.executions += outcomes.iter().map(|outcome| outcome.runs).sum::<u64>();
        if flags.csv {
            write_csv(out, &scenario, &runs[0], &outcomes)?;
        } else {
            write_row(out, &runs[0], &outcomes)?;
        }

        add_point(&mut lines, &runs[0], &outcomes);
        if let Some(record) = &outcomes[0].timeline {
            write_trace(record, &runs[0], trace.take())?;
            draw_timeline(
                record,
                &runs[0],
                &scenario,
                flags.timeline_us,
                timeline.take(),
            )?;
        }
    }

    pace.report();
    if let Some(mut file) = svg {
        file.write_all(plot::draw(&scenario.describe(), &lines).as_bytes())
            .and_then(|()| file.flush())
            .context("cannot write the plot")?;
    }

    Ok(())
}

fn write_trace(
    record: &Timeline,
    setup: &Setup,
    file: Option<BufWriter<fs::File>>,
) -> anyhow::Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    let title = format!("{} on {} workers", setup.policy, setup.machine.workers());
    record
        .write(&title, &mut file)
        .and_then(|()| file.flush())
        .context("cannot write the trace")?;

    if record.is_cut() {
        writeln!(
            io::stderr(),
            "plainweave sim: the trace ends before the run: it has a million events"
        )?;
    }

    Ok(())
}

fn draw_timeline(
    record: &Timeline,
    setup: &Setup,
    scenario: &Scenario,
    micros: Option<u64>,
    file: Option<BufWriter<fs::File>>,
) -> anyhow::Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    let title = format!(
        "{}, {}, seed {}",
        setup.policy,
        scenario.describe(),
        setup.seed
    );
    let length = micros.unwrap_or(TIMELINE) * MICRO;
    let drawn = record.draw(&title, setup.machine.workers(), length, &mut file);

    drawn
        .and_then(|()| file.flush())
        .context("cannot write the timeline")
}

/// Microseconds that a timeline shows.
const TIMELINE: u64 = 200;

/// Adds a machine's runs to the plot.
fn add_point(lines: &mut Vec<Line>, setup: &Setup, outcomes: &[Outcome]) {
    let spread = |of: fn(&Outcome) -> f64| Spread::of(&outcomes.iter().map(of).collect::<Vec<_>>());

    let point = Point {
        workers: setup.machine.workers() as f64,
        throughput: spread(Outcome::throughput),
        p50: spread(|outcome| outcome.latency_at(0.5)),
        p99: spread(|outcome| outcome.latency_at(0.99)),
    };

    match lines.iter_mut().find(|line| line.name == setup.policy) {
        Some(line) => line.points.push(point),
        None => {
            let published = setup.load.published(&setup.policy);
            lines.push(Line {
                name: setup.policy.clone(),
                points: vec![point],
                published,
            });
        }
    }
}

fn create(path: &Path) -> anyhow::Result<BufWriter<fs::File>> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    Ok(BufWriter::new(file.with_context(|| {
        format!("cannot create {}", path.display())
    })?))
}

/// Puts file and flags together.
fn scenario(flags: &Flags) -> anyhow::Result<Scenario> {
    fn replace<T: Clone>(place: &mut Spanned<T>, flag: &Option<T>) {
        if let Some(value) = flag {
            *place = unwritten(value.clone());
        }
    }
    let mut scenario = match &flags.scenario {
        None => Scenario::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Scenario::read(&text)
                .map_err(|message| usage(format!("{}: {message}", path.display())))?
        }
    };

    if !flags.policy.is_empty() {
        scenario.policies = flags.policy.iter().cloned().map(unwritten).collect();
    }
    if !flags.workers.is_empty() {
        scenario.workers = flags.workers.iter().copied().map(unwritten).collect();
    }
    replace(&mut scenario.workload, &flags.workload);
    replace(
        &mut scenario.machine,
        &flags.machine.clone().map(Chosen::Named),
    );
    replace(&mut scenario.runs, &flags.runs);
    let idle = flags
        .idle
        .map(|idle| if idle == Idle::Spin { "spin" } else { "sleep" }.to_owned());

    replace(&mut scenario.idle, &idle);
    scenario.case = flags.case.clone().map(unwritten).or(scenario.case);
    scenario.size = flags.size.map(unwritten).or(scenario.size);
    scenario.rate = flags.rate.map(unwritten).or(scenario.rate);
    scenario.seed = flags.seed.unwrap_or(scenario.seed);
    scenario.costs.extend(
        flags
            .cost
            .iter()
            .map(|(name, value)| (name.clone(), unwritten(*value))),
    );
    scenario.params.extend(
        flags
            .param
            .iter()
            .map(|(name, value)| (name.clone(), unwritten(value.clone()))),
    );

    Ok(scenario)
}

fn one(setup: &Setup) -> anyhow::Result<Outcome> {
    simulate(setup)
        .map_err(anyhow::Error::msg)
        .with_context(|| {
            format!(
                "{} with {} workers and seed {}: a checker objects",
                setup.policy,
                setup.machine.workers(),
                setup.seed
            )
        })
}

fn check(
    seed: u64,
    trials: u64,
    limit: Option<Duration>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut pace = Pace::begin();
    let mut done = 0;
    while done < trials && limit.is_none_or(|limit| pace.begin.elapsed() < limit) {
        match Trial::random(seed.wrapping_add(done)).run() {
            Ok(outcome) => pace.executions += outcome.runs,
            Err(message) => bail!("a checker objects: {message}"),
        }
        done += 1;
    }

    pace.report();
    writeln!(
        out,
        "{done} random machines from seed {seed}: nothing to object."
    )?;
    Ok(())
}

/// How many of the policies that it found a search prints.
const PRINTED: usize = 10;

fn search(
    mut machines: Vec<Vec<Setup>>,
    candidates: usize,
    scenario: &Scenario,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if machines
        .iter()
        .any(|runs| runs[0].policy != machines[0][0].policy)
    {
        return Err(usage(
            "a search compares with one policy: name one with --policy".to_owned(),
        ));
    }
    machines.sort_by_key(|runs| runs[0].machine.workers());
    let workers: Vec<_> = machines
        .iter()
        .map(|runs| runs[0].machine.workers().to_string())
        .collect();
    let search = Search::new(machines, candidates, scenario.seed).map_err(anyhow::Error::msg)?;
    let reference = search.reference().clone();
    let mut pace = Progress::begin();
    let found = search.run(|tried, best| pace.tell(tried, candidates, best));

    writeln!(
        out,
        "Simulated: {}, seeds from {}; {candidates} policies tried. Columns: M/s with {} workers; the last of these to \
         the highest; p99.9 there to that of {}; whether both promises are kept (at least 1; at most {TAIL}).",
        scenario.describe(),
        scenario.seed,
        workers.join(", "),
        reference.policy
    )?;
    for found in [&reference].into_iter().chain(found.iter().take(PRINTED)) {
        let rates: String = found
            .throughput
            .iter()
            .map(|rate| format!("{:>7.3}", rate / 1e6))
            .collect();
        let kept = found.kept();
        let tail = found.tail_to(&reference);
        let promises = if found.keeps_promises(&reference) {
            "yes"
        } else {
            "no"
        };

        writeln!(
            out,
            "{rates} {kept:>6.3} {tail:>6.2} {promises:>4}  {}",
            found.policy
        )?;
    }

    Ok(())
}

/// Tells on standard error how far a search is.
struct Progress {
    begin: Instant,
    told: Instant,
}

impl Progress {
    fn begin() -> Self {
        Self {
            begin: Instant::now(),
            told: Instant::now(),
        }
    }

    /// Tells each policy that is better than all before, and every ten seconds how much is left.
    fn tell(&mut self, tried: usize, of: usize, best: Option<&Found>) {
        if best.is_none() && self.told.elapsed() < Duration::from_secs(10) {
            return;
        }
        self.told = Instant::now();
        let left = self.begin.elapsed().as_secs_f64() * of.saturating_sub(tried) as f64
            / tried.max(1) as f64;
        let best = best.map_or_else(String::new, |found| {
            format!(": the best so far is {}", found.policy)
        });

        // Nothing can be done if standard error is gone.
        let _ = writeln!(
            io::stderr(),
            "plainweave sim: {tried} of {of} tried, about {left:.0} s left{best}"
        );
    }
}

fn head(out: &mut impl Write, flags: &Flags, scenario: &Scenario) -> anyhow::Result<()> {
    if flags.csv {
        writeln!(out, "# command: plainweave sim{}", arguments())?;
        writeln!(out, "# commit: {}", commit())?;
        writeln!(out, "# profile: {}", profile())?;
        writeln!(
            out,
            "# simulated: every figure; seeds from {}; times are simulated times",
            scenario.seed
        )?;
        writeln!(
            out,
            "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs"
        )?;
        return Ok(());
    }

    writeln!(
        out,
        "Simulated: {}, seeds from {}. Times are simulated times.",
        scenario.describe(),
        scenario.seed
    )?;
    writeln!(
        out,
        "{:>24} {:>7} {:>12} {:>10} {:>10} {:>11} {:>12} {:>12} {:>9}",
        "policy",
        "workers",
        "M/s",
        "p50 us",
        "p99 us",
        "p99.99 us",
        "retries",
        "attempts",
        "wait ns"
    )?;
    Ok(())
}

/// Returns the arguments of this program, each after a space and quoted for a shell where that is
/// needed.
fn arguments() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:=/+".contains(c);
    let quoted = |argument: String| match !argument.is_empty() && argument.chars().all(plain) {
        true => format!(" {argument}"),
        false => format!(" '{}'", argument.replace('\'', r"'\''").replace('\n', " ")),
    };

    std::env::args_os()
        .skip(1)
        .map(|argument| quoted(argument.to_string_lossy().into_owned()))
        .collect()
}

fn write_csv(
    out: &mut impl Write,
    scenario: &Scenario,
    setup: &Setup,
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    for (i, (metric, unit, _)) in outcomes[0].figures().into_iter().enumerate() {
        let values = sorted(outcomes.iter().map(|outcome| outcome.figures()[i].2));
        let [median, q1, q3, min, max] = [0.5, 0.25, 0.75, 0.0, 1.0].map(|part| at(&values, part));
        writeln!(
            out,
            "sim,\"{}\",\"simulated {}\",{},{metric},{unit},{median},{q1},{q3},{min},{max},{}",
            scenario.describe(),
            setup.policy,
            setup.machine.workers(),
            values.len()
        )?;
    }
    Ok(())
}

fn write_row(out: &mut impl Write, setup: &Setup, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let median = |metric: &str| {
        let of = |outcome: &Outcome| {
            outcome
                .figures()
                .iter()
                .find(|(name, ..)| *name == metric)
                .map_or(0.0, |f| f.2)
        };
        at(&sorted(outcomes.iter().map(of)), 0.5)
    };

    writeln!(
        out,
        "{:>24} {:>7} {:>12.3} {:>10.1} {:>10.1} {:>11.1} {:>12.0} {:>12.0} {:>9.0}",
        setup.policy,
        setup.machine.workers(),
        median("throughput") / 1e6,
        median("latency-p50"),
        median("latency-p99"),
        median("latency-p99.99"),
        median("insert-retries"),
        median("steal-attempts"),
        median("waited-for-lines")
    )?;
    for (metric, ..) in &outcomes[0].own {
        writeln!(out, "{:>24} {:>7} {metric} {}", "", "", median(metric))?;
    }
    Ok(())
}
