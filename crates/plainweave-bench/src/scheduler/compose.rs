//! Does composition pay? Packets beside a slow side task: two pools with two policies against
//! single policies.
//!
//! One packet in a thousand brings a job of the side task, which computes, or blocks its thread,
//! for a thousand times as long as a packet takes. On a single runtime jobs and packets share the
//! workers; with two pools each kind has its own. All systems have as many threads in all, none
//! adds spare ones, and fibers carry their urgency (jobs have a lower priority), for the policies
//! that heed it.
//!
//! A pre-round of one repetition each ranks the single policies: the best in throughput and the
//! best in p99 in turn, so that the strongest in either are among those that are kept. Then the
//! systems take turns, round by round. Each repetition is a process of its own (`workload`), which
//! checks that no packet and no job was lost and that each packet had its line ends where they
//! belong.

// Does composition pay? Two pools against each single policy, by medians and quartiles.
mod verdict;
// The workload: a burst of packets, some of which bring a slow job, on one pool or on two.
mod workload;

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum, value_parser};
use plainweave::policy::{Choice, PRESETS};

use crate::harness::child;
use crate::harness::experiment::Common;
use crate::harness::interrupt;
use crate::harness::mode::Mode;
use crate::harness::report::{self, Failures, Report};
use crate::harness::sample::{Origin, Row};
use crate::harness::turns::Turns;
use plainweave_report::scatter::{self, Panel, Point};
use workload::{Case, Size};
pub(crate) use workload::{ChildFlags, run_child};

/// Two pools with two policies beside single policies: packets, and a slow side task.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    common: Common,

    /// What the side task does while it is slow
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "compute,block"
    )]
    cases: Vec<Case>,

    #[command(flatten)]
    size: Size,

    /// Policy of the packets' pool
    #[arg(long, value_name = "POLICY", default_value = "local-fifo", value_parser = policy)]
    packet_policy: String,

    /// Policy of the side task's pool
    #[arg(long, value_name = "POLICY", default_value = "global-fifo", value_parser = policy)]
    side_policy: String,

    /// Workers of the packets' pool
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    packet_workers: u16,

    /// Workers of the side task's pool
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    side_workers: u16,

    /// Single policies of the pre-round; a parameter is added after a colon [default: all that have
    /// a name]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = policy)]
    policies: Vec<String>,

    /// Single policies that the pre-round keeps
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = value_parser!(u16).range(1..=100))]
    best: u16,

    /// Mode of all pools: never, before-start or anytime, a slash, and shared or own (thread-local
    /// storage)
    #[arg(long, value_name = "MODE", default_value = "before-start/shared")]
    mode: String,

    /// Rounds; in each, every system gets a turn at every case
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,

    /// Goes on with a run that was interrupted: what it has measured with the same flags is not
    /// measured again
    #[arg(long)]
    resume: bool,
}

/// Parses a policy, perhaps with a parameter.
fn policy(text: &str) -> Result<String, String> {
    Choice::parse(text).map(|_| text.to_owned())
}

/// How long a repetition may take.
const REPETITION_LIMIT: Duration = Duration::from_secs(60);
/// How a row names a single policy's runtime.
const ALL: &str = "all";

/// A metric's name, its unit.
const METRICS: [(&str, &str); 5] = [
    ("packets_per_s", "1/s"),
    ("p50_us", "us"),
    ("p99_us", "us"),
    ("p9999_us", "us"),
    ("side_per_s", "1/s"),
];

/// Pools to measure.
#[derive(Clone, Debug)]
struct System {
    name: String,
    /// `NAME:POLICY/WORKERS` of each.
    pools: Vec<String>,
}

impl System {
    fn single(policy: &str, workers: u16) -> Self {
        Self {
            name: policy.replace(',', ";"),
            pools: vec![format!("{ALL}:{policy}/{workers}")],
        }
    }

    fn pair(flags: &Flags) -> Self {
        let Flags {
            packet_policy,
            packet_workers,
            side_policy,
            side_workers,
            ..
        } = flags;
        let name = format!("{packet_policy}/{packet_workers} + {side_policy}/{side_workers}")
            // A comma would end the field of the CSV.
            .replace(',', ";");
        let pools = vec![
            format!("packets:{packet_policy}/{packet_workers}"),
            format!("side:{side_policy}/{side_workers}"),
        ];
        Self { name, pools }
    }

    /// Runs one repetition.
    fn repetition(&self, case: Case, flags: &Flags) -> anyhow::Result<Vec<f64>> {
        let Size {
            packets,
            in_flight,
            one_in,
            side_us,
            iterations,
        } = &flags.size;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["compose-child", case.name()])
            .args(&self.pools)
            .arg(format!("--mode={}", flags.mode));
        command
            .arg(format!("--packets={packets}"))
            .arg(format!("--in-flight={in_flight}"));
        command
            .arg(format!("--one-in={one_in}"))
            .arg(format!("--side-us={side_us}"));
        command.arg(format!("--iterations={iterations}"));
        let text = child::output(command, REPETITION_LIMIT)?;
        let values = child::values(&text)?;
        let value = |name| {
            values
                .iter()
                .find(|(metric, _)| *metric == name)
                .map_or(f64::NAN, |(_, value)| *value)
        };

        Ok(METRICS.iter().map(|(metric, _)| value(*metric)).collect())
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    // Also for --list, so that a wrong mode is found by trying the flags out.
    Mode::parse(&flags.mode)?;
    if flags.common.list {
        Case::value_variants()
            .iter()
            .for_each(|case| report::say(&format!("case: {}", case.name())));
        report::say(&format!("pools: {}", System::pair(flags).name));
        report::say(
            "single policies: the strongest of `plainweave policies`, which a round before the others finds",
        );
        return Ok(());
    }

    let one_in = flags.size.one_in;
    let packets = flags.size.packets;
    ensure!(
        one_in <= packets,
        "--one-in: from 1 to {packets}, the number of packets, not {one_in}"
    );
    let out = flags.common.folder();
    let mut turns = begin(flags, &out)?;
    let mut failures = Failures::begin()?;
    let mut absent = Vec::new();
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let pair = System::pair(flags);

    for &case in &flags.cases {
        // A case that cannot be ranked leaves the other one its turn.
        let ranked = failures.catch(case.name(), || rank(case, flags, &mut turns, &mut absent));
        let Some(singles) = ranked else { continue };
        let names: Vec<_> = singles.iter().map(|single| single.name.clone()).collect();

        // The pair competes with the best that single policies can do, not with a list chosen for
        // it.
        let systems: Vec<_> = std::iter::once(pair.clone()).chain(singles).collect();
        rows.extend(rounds(case, &systems, flags, &mut turns, &mut failures));
        notes.extend(verdict::lines(&rows, case.name(), &pair.name, &names));
    }

    scatter::write(
        &panels(&rows, &flags.cases, &pair.name),
        &out.join("compose.svg"),
    )?;
    let mut parameters = parameters(flags);
    parameters.extend(notes.into_iter().map(|note| ("verdict", note)));
    failures.publish(
        Report {
            experiment: "compose",
            parameters,
            rows,
            absent,
        },
        Some(&out),
        None,
    )
}

/// A panel a case: throughput across, p99 upwards.
fn panels(rows: &[Row], cases: &[Case], pair: &str) -> Vec<Panel> {
    let points = |case: Case| {
        let of = |metric: &'static str| {
            rows.iter()
                .filter(move |row| row.case == case.name() && row.metric == metric)
        };

        let point = |(rate, p99): (&Row, &Row)| {
            let across = rate.spread();
            let label = rate.system.clone();
            let across = [across.q1, across.median, across.q3];
            let up_us = p99.spread().median;
            Point {
                marked: label == pair,
                label,
                across,
                up_us,
            }
        };

        // Each system has both, in the same order.
        of("packets_per_s").zip(of("p99_us")).map(point).collect()
    };

    let panel = |&case: &Case| Panel {
        title: format!("side task: {}", case.name()),
        across: "packets per second (more is better)",
        up: "p99 of packets (less is better)",
        holds: None,
        points: points(case),
    };
    cases.iter().map(panel).collect()
}

fn threads(flags: &Flags) -> u16 {
    flags.packet_workers + flags.side_workers
}

fn parameters(flags: &Flags) -> Vec<(&'static str, String)> {
    let Size {
        packets,
        in_flight,
        one_in,
        side_us,
        iterations,
    } = &flags.size;
    vec![
        (
            "packets",
            format!("{packets} an iteration, at most {in_flight} under way"),
        ),
        (
            "side task",
            format!("a job for every {one_in} packets, of {side_us} us"),
        ),
        (
            "rounds",
            format!(
                "{}, each of {iterations} iterations in a process, after one that is dropped",
                flags.runs
            ),
        ),
        (
            "threads",
            format!("{} in each system, mode {}", threads(flags), flags.mode),
        ),
    ]
}

/// Returns the policies of the pre-round.
fn policies(flags: &Flags) -> Vec<String> {
    let named = || {
        PRESETS
            .iter()
            .map(|preset| preset.name.to_owned())
            .collect()
    };

    if flags.policies.is_empty() {
        named()
    } else {
        flags.policies.clone()
    }
}

/// Begins with the turns, or goes on with those that there are.
fn begin(flags: &Flags, out: &Path) -> anyhow::Result<Turns> {
    let Size {
        packets,
        one_in,
        side_us,
        iterations,
        ..
    } = &flags.size;
    // Policies for experiments alone spin without end, or do worse on purpose.
    let is_measured =
        |policy: &String| Choice::parse(policy).is_ok_and(|choice| choice.experiment().is_none());
    let singles = policies(flags)
        .iter()
        .filter(|policy| is_measured(policy))
        .count();
    let all =
        flags.cases.len() * (singles + flags.runs.get() * (1 + singles.min(flags.best.into())));
    // What a resumed run must have in common with the one that it goes on with.
    let same = format!("{:?}, mode {}", flags.size, flags.mode);
    let turns = Turns::begin("compose", out, &same, flags.resume, all)?;

    // A packet takes about two microseconds, and one iteration is dropped.
    let iteration = Duration::from_micros(2 * packets + packets / one_in * side_us);
    turns.estimate(iteration * (*iterations as u32 + 1));
    Ok(turns)
}

/// Returns a repetition's figures, in the order of [`METRICS`].
fn figures(
    turns: &mut Turns,
    place: &str,
    case: Case,
    system: &System,
    flags: &Flags,
) -> anyhow::Result<Vec<f64>> {
    let key = format!(
        "{}, {place}, {}, {}",
        case.name(),
        system.name,
        system.pools.join(" ")
    );
    let values = turns.take(&key, || {
        let figures = system.repetition(case, flags)?;
        Ok(METRICS
            .iter()
            .zip(figures)
            .map(|((name, _), value)| ((*name).to_owned(), value))
            .collect())
    })?;
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

/// Runs the pre-round and returns the best single policies.
fn rank(
    case: Case,
    flags: &Flags,
    turns: &mut Turns,
    absent: &mut Vec<(String, String)>,
) -> anyhow::Result<Vec<System>> {
    let mut measured = Vec::new();
    for policy in &policies(flags) {
        ensure!(interrupt::came().is_none(), "interrupted");
        let system = System::single(policy, threads(flags));
        let why = Choice::parse(policy)
            .map_err(anyhow::Error::msg)?
            .experiment();
        // It is named among what was not measured, with its reason, as any other.
        let figures = match why {
            Some(why) => Err(anyhow::Error::msg(why)),
            None => figures(turns, "pre-round", case, &system, flags),
        };

        match figures {
            Ok(figures) => measured.push((system, figures[0], figures[2])),
            Err(error) => absent.push((format!("{policy}, {}", case.name()), format!("{error:#}"))),
        }
    }

    ensure!(
        !measured.is_empty(),
        "{}: no single policy could be measured",
        case.name()
    );
    Ok(alternate(measured, usize::from(flags.best)))
}

/// Returns the best of the measured ones: the fastest, then the one with the least p99 of the rest,
/// and so on.
fn alternate(mut measured: Vec<(System, f64, f64)>, count: usize) -> Vec<System> {
    let mut best = Vec::new();
    while best.len() < count && !measured.is_empty() {
        let by_rate = best.len() % 2 == 0;
        let key = |(_, rate, p99): &(System, f64, f64)| if by_rate { -rate } else { *p99 };
        let place =
            (0..measured.len()).min_by(|a, b| key(&measured[*a]).total_cmp(&key(&measured[*b])));
        best.push(measured.remove(place.unwrap_or(0)).0);
    }
    best
}

/// Lets the systems take turns, except those that have failed.
fn rounds(
    case: Case,
    systems: &[System],
    flags: &Flags,
    kept: &mut Turns,
    failures: &mut Failures,
) -> Vec<Row> {
    let mut turns: Vec<Option<Vec<Vec<f64>>>> = vec![Some(Vec::new()); systems.len()];
    for round in 1..=flags.runs.get() {
        for (system, turns) in systems.iter().zip(&mut turns) {
            let what = format!("{} {}", case.name(), system.name);
            failures.again(turns, &what, || {
                figures(kept, &format!("round {round}"), case, system, flags)
            });
        }
    }

    let compose = Origin::new("compose").with_workers(threads(flags).into());

    let mut rows = Vec::new();
    for (place, (metric, unit)) in METRICS.into_iter().enumerate() {
        for (system, turns) in systems.iter().zip(&turns) {
            let values: Vec<_> = turns
                .iter()
                .flatten()
                .map(|figures| figures[place])
                .collect();
            if !values.is_empty() {
                rows.push(compose.row(case.name(), &system.name, metric, unit, values));
            }
        }
    }

    rows
}

#[cfg(test)]
mod tests {
    use super::{System, alternate};

    #[test]
    fn the_best_in_either_figure_are_kept() {
        let measured = [
            ("fast", 9.0, 50.0),
            ("prompt", 1.0, 1.0),
            ("slow", 2.0, 90.0),
            ("second", 8.0, 40.0),
        ];
        let measured = measured
            .map(|(name, rate, p99)| (System::single(name, 2), rate, p99))
            .to_vec();
        let names = |count| -> Vec<_> {
            alternate(measured.clone(), count)
                .into_iter()
                .map(|s| s.name)
                .collect()
        };

        assert_eq!(names(3), ["fast", "prompt", "second"]);
        assert_eq!(names(9), ["fast", "prompt", "second", "slow"]);
    }
}
