//! What is run in both ways, on real workers and on simulated ones, with the same sizes and
//! parameters.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::harness::report;
use crate::harness::source::{Figure, Table};
use plainweave_report::statistics::Spread;

/// Policies that everything is run with.
pub(super) const POLICIES: [&str; 4] = ["fifo", "lifo", "ot-fifo", "tokio"];
/// Numbers of workers.
pub(super) const WORKERS: [usize; 2] = [1, 2];
/// Threads of the CPU may move at any time in the simulator, so they do here.
const MODE: &str = "anytime/own";
/// The line of a machine that others may join.
pub(super) const SPARES: &str = "spares = 1";
/// Seeds of a simulated run.
const SEEDS: &str = "3";

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    /// What it is called here.
    pub(super) title: &'static str,
    name: &'static str,
    /// Whether it is one of the micro-benchmarks, which run for a time; the others have an
    /// experiment of their own.
    is_micro: bool,
    /// How many packets or options; for `fib` which number; operations of a simulated
    /// micro-benchmark.
    size: u64,
    /// What that is called in the experiment, if it is given one.
    sized: Option<&'static str>,
    parameters: &'static [(&'static str, &'static str)],
    /// Whether the simulator's model covers it: that has no caches for data.
    pub(super) covered: bool,
}

const fn micro(name: &'static str) -> Workload {
    Workload {
        title: name,
        name,
        is_micro: true,
        size: 400_000,
        sized: None,
        parameters: &[],
        covered: true,
    }
}

const fn thesis(
    name: &'static str,
    (sized, size): (Option<&'static str>, u64),
    parameters: &'static [(&'static str, &'static str)],
) -> Workload {
    Workload {
        title: name,
        name,
        is_micro: false,
        size,
        sized,
        parameters,
        covered: true,
    }
}

const PACKETS: (Option<&str>, u64) = (Some("packets"), 20_000);

const OPTIONS: &str = "options";

/// The trees of `options` are three lines each, and the handlers of `packets` compute for 5 us
/// each, beside which it matters little where their packets are. In `packets-bare`, the published
/// case, and `options-deep`, whose trees have 8,000 bytes, it matters.
pub(super) const WORKLOADS: [Workload; 10] = [
    micro("yield"),
    micro("cycle"),
    micro("churn"),
    micro("locality"),
    thesis(
        "packets",
        PACKETS,
        &[("delay", "spin"), ("delay-ns", "5000")],
    ),
    thesis("fib", (None, 20), &[]),
    thesis(
        OPTIONS,
        (Some(OPTIONS), 1_000),
        &[("deep", "20"), ("deep-in", "1")],
    ),
    thesis(
        "bimodal",
        (Some("packets"), 4_000),
        &[("heavy", "2"), ("sleep-ms", "2")],
    ),
    Workload {
        title: "packets-bare",
        covered: false,
        ..thesis("packets", PACKETS, &[])
    },
    Workload {
        title: "options-deep",
        covered: false,
        ..thesis(
            OPTIONS,
            (Some(OPTIONS), 30),
            &[("deep", "1000"), ("deep-in", "1")],
        )
    },
];

/// One measured figure, or a simulated one: operations a second.
#[derive(Clone, Debug)]
pub(super) struct Throughput {
    pub(super) workload: Workload,
    pub(super) policy: String,
    pub(super) workers: usize,
    pub(super) spread: Spread,
}

impl Throughput {
    /// Returns what tells it from others.
    pub(super) fn key(&self) -> (&'static str, &str, usize) {
        (self.workload.title, &self.policy, self.workers)
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Part of the sizes.
    pub(super) scale: f64,
    /// Rounds of everything.
    pub(super) rounds: usize,
    /// Seconds of a repetition of a micro-benchmark.
    pub(super) seconds: f64,
    /// Take what two workers do however far apart the CPUs are.
    pub(super) far: bool,
}

/// Runs workloads on real workers, each in a process of its own, and returns their throughput. In
/// each round everything gets a turn, so that what the machine does meanwhile meets all alike. The
/// benchmarks' own results land in `dir`.
pub(super) fn measured(
    which: &[Workload],
    policies: &[&str],
    workers: &[usize],
    length: Length,
    dir: &Path,
) -> anyhow::Result<Vec<Throughput>> {
    let mut all: Vec<(Throughput, Vec<f64>)> = Vec::new();
    for round in 1..=length.rounds {
        report::progress(&format!(
            "predict: measuring, round {round} of {}",
            length.rounds
        ));
        for figure in self::round(
            which,
            policies,
            workers,
            length,
            &dir.join(format!("round-{round}")),
        )? {
            // Of each round its median: what the machine did in one of them is then one value among
            // several.
            let median = figure.spread.median;
            match all
                .iter_mut()
                .find(|(known, _)| known.key() == figure.key())
            {
                Some((_, medians)) => medians.push(median),
                None => all.push((figure, vec![median])),
            }
        }
    }

    Ok(all
        .into_iter()
        .map(|(figure, medians)| Throughput {
            spread: Spread::of(&medians),
            ..figure
        })
        .collect())
}

fn round(
    which: &[Workload],
    policies: &[&str],
    workers: &[usize],
    length: Length,
    dir: &Path,
) -> anyhow::Result<Vec<Throughput>> {
    let list = |numbers: &[usize]| {
        numbers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };

    let run = |experiment: &str, arguments: &[String], dir: &Path| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(experiment).args([
            "--systems",
            "plainweave",
            "--modes",
            MODE,
            "--policy",
            &policies.join(","),
        ]);
        command
            .args(["--workers", &list(workers)])
            .args(arguments)
            .args(length.far.then_some("--far"));

        // What it says of its progress is for who waits here; its table is not.
        let status = command.arg("--out").arg(dir).stdout(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot start the benchmark {experiment}"))?;
        ensure!(
            status.success(),
            "the benchmark {experiment} has failed: {status}"
        );
        let path = dir.join(format!("{experiment}.csv"));
        Table::read(&path)?.with_context(|| format!("{} has no rows", path.display()))
    };

    let mut figures = Vec::new();
    let cases: Vec<_> = which
        .iter()
        .filter(|workload| workload.is_micro)
        .map(|workload| workload.name)
        .collect();
    if !cases.is_empty() {
        let mut arguments = vec![
            format!("--cases={}", cases.join(",")),
            format!("--seconds={}", length.seconds),
        ];
        // The rounds are made here.
        arguments.extend(["--runs=1", "--once"].map(str::to_owned));
        // As many as the simulator has.
        arguments.extend(cases.contains(&"cycle").then(|| "--rings=20".to_owned()));
        let table = run("micro", &arguments, dir)?;
        figures.extend(
            which
                .iter()
                .filter(|workload| workload.is_micro)
                .flat_map(|&workload| {
                    let of = move |case: &str| case.split(' ').next() == Some(workload.name);
                    throughputs(workload, &table, "ns_per_op", of, inverse)
                }),
        );
    }

    for &workload in which.iter().filter(|workload| !workload.is_micro) {
        let mut arguments = vec!["--cases=base".to_owned(), "--iterations=3".to_owned()];
        arguments.extend(
            workload
                .settings(length.scale)
                .map(|(name, value)| format!("--{name}={value}")),
        );
        let table = run(workload.name, &arguments, &dir.join(workload.title))?;
        figures.extend(throughputs(
            workload,
            &table,
            "throughput",
            |_| true,
            |spread| spread,
        ));
    }

    Ok(figures)
}

/// Runs a workload on simulated workers of a machine, and returns its throughput.
pub(super) fn simulated(
    workload: Workload,
    policies: &[&str],
    workers: &[usize],
    scale: f64,
    machine: &Path,
) -> anyhow::Result<Vec<Throughput>> {
    const PROGRAM: &str = "plainweave-sim";
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    ensure!(
        program.is_file(),
        "{} is not there; build it beside this program: cargo build --release -p {PROGRAM}",
        program.display()
    );
    let scenario =
        std::env::temp_dir().join(format!("plainweave-predict-{}.toml", std::process::id()));
    std::fs::write(&scenario, workload.scenario(machine)?)
        .with_context(|| format!("cannot write {}", scenario.display()))?;
    let mut command = Command::new(program);

    command
        .arg(&scenario)
        .args(["--csv", "--runs", SEEDS, "--workload", workload.name]);
    command.arg(format!("--size={}", workload.scaled(scale)));
    command.args(policies.iter().map(|policy| format!("--policy={policy}")));
    command.args(workers.iter().map(|workers| format!("--workers={workers}")));
    command.args(
        workload
            .parameters
            .iter()
            .map(|(name, value)| format!("--param={name}={value}")),
    );
    let output = command
        .output()
        .with_context(|| format!("cannot start {PROGRAM}"));

    // Before the result is looked at, so that it is gone whatever that is.
    let _ = std::fs::remove_file(scenario);
    let output = output?;

    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let table = Table::parse(PROGRAM.to_owned(), &String::from_utf8(output.stdout)?)?;
    let figures = throughputs(workload, &table, "throughput", |_| true, |spread| spread);
    let due = policies.len() * workers.len();
    let got = figures.len();

    ensure!(
        got == due,
        "{PROGRAM} has {got} figures of {}, not {due}",
        workload.name
    );

    Ok(figures)
}

impl Workload {
    pub(super) fn titled(title: &str) -> Self {
        *WORKLOADS
            .iter()
            .find(|workload| workload.title == title)
            .expect("a name in the table")
    }

    fn scaled(&self, scale: f64) -> u64 {
        if self.is_micro || self.sized.is_some() {
            ((self.size as f64 * scale) as u64).max(30)
        } else {
            self.size
        }
    }

    /// Returns the scenario to simulate it on: what is in `machine`, or that with a fixed number of
    /// workers.
    ///
    /// The micro-benchmarks measure runtimes as users get them, whose policies must expect spare
    /// workers. The thesis's workloads have as many threads as their peers, so that one worker is
    /// alone: its queue never spills, which in `fib` makes the difference between 9,000 fibers at a
    /// time and 3,000.
    fn scenario(&self, machine: &Path) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(machine)
            .with_context(|| format!("cannot read {}", machine.display()))?;
        Ok(if self.is_micro {
            text
        } else {
            text.replace(SPARES, "spares = 0")
        })
    }

    /// Returns what an experiment is given.
    fn settings(self, scale: f64) -> impl Iterator<Item = (&'static str, String)> {
        let size = self
            .sized
            .map(|name| (name, self.scaled(scale).to_string()));
        size.into_iter().chain(
            self.parameters
                .iter()
                .map(|&(name, value)| (name, value.to_owned())),
        )
    }
}

/// Returns the rows of a metric.
fn throughputs(
    workload: Workload,
    table: &Table,
    metric: &str,
    of: impl Fn(&str) -> bool,
    as_throughput: impl Fn(Spread) -> Spread,
) -> Vec<Throughput> {
    let rows = table
        .figures
        .iter()
        .filter(|figure| figure.metric == metric && of(&figure.case));
    // The second word of a system is its policy: `plainweave fifo anytime/own`, `simulated fifo`.
    let figure = |figure: &Figure| Throughput {
        workload,
        policy: figure
            .system
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .to_owned(),
        workers: figure.workers,
        spread: as_throughput(figure.spread),
    };
    rows.map(figure).collect()
}

/// Nanoseconds each to how many a second, and back.
fn inverse(
    Spread {
        median,
        q1,
        q3,
        min,
        max,
    }: Spread,
) -> Spread {
    Spread {
        median: 1e9 / median,
        q1: 1e9 / q3,
        q3: 1e9 / q1,
        min: 1e9 / max,
        max: 1e9 / min,
    }
}
