//! The parameters of the cases: what each has by default, which options change it, and within which
//! bounds.

use anyhow::ensure;
use clap::{ArgAction, Args, ValueEnum, value_parser};

/// Most threads at once, over all workers.
const MOST_THREADS: usize = 1_000_000;
/// Most words of all arrays together: 1 GiB.
const MOST_WORDS: usize = 1 << 27;

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// What a user may set. An option that none of the chosen cases has is refused.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Operations of each thread, in place of a time: a repetition ends when every thread has done
    /// as many, at most ten minutes. In transfer, spawn-join, ping-pong, select, broadcast and
    /// resume-suspend: in all. Not in parked-fibers, wake-sleeper, select-beside, idle
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..=100_000_000))]
    pub(super) iterations: Option<u64>,

    /// Threads a worker in yield, churn, locality, mutex and rwlock [default: 100; 1 in yield-1], a
    /// ring in cycle [default: 5], in all in transfer [default: 100]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    threads: Option<u32>,

    /// Rings a worker in cycle [default: 100; 1 in cycle-1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    rings: Option<u32>,

    /// Spots in all in churn and locality, fewer than threads [default: half as many as threads; 2
    /// in churn-2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    spots: Option<u32>,

    /// Words of each array in locality [default: 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    words: Option<u32>,

    /// Random words written in an operation of locality [default: 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    writes: Option<u32>,

    /// Whether in locality the thread that is woken gets its waker's array. locality-share is
    /// locality with `on`
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    share: Option<Switch>,
}

impl Options {
    /// The options that are set, with their values.
    fn given(&self) -> Vec<(&'static str, String)> {
        let number = |name, value: Option<u32>| value.map(|value| (name, value.to_string()));
        let share = self
            .share
            .map(|share| if share == Switch::On { "on" } else { "off" });
        [
            number("threads", self.threads),
            number("rings", self.rings),
            number("spots", self.spots),
            number("words", self.words),
            number("writes", self.writes),
            share.map(|share| ("share", share.to_owned())),
            self.iterations.map(|n| ("iterations", n.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns a case's name in the results: with the options that are set, if it has them.
    pub(super) fn title(&self, case: &str) -> String {
        let given = self.given().into_iter().filter(|(name, _)| has(case, name));
        given.fold(case.to_owned(), |title, (name, value)| {
            format!("{title} {name}={value}")
        })
    }

    /// # Errors
    /// An option is set that no chosen case has.
    pub(super) fn check(&self, chosen: &[&str], all: &[&str]) -> anyhow::Result<()> {
        for (name, _) in self.given() {
            let having: Vec<_> = all.iter().copied().filter(|case| has(case, name)).collect();
            let used = chosen.iter().any(|case| having.contains(case));
            ensure!(
                used,
                "--{name}: no chosen case has it; these do: {}",
                having.join(", ")
            );
        }
        Ok(())
    }
}

/// The parameters of a case, with numbers in all. 0 is what it does not have.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Shape {
    /// Of a ring, in Cycle.
    #[arg(long, default_value_t = 0)]
    pub(super) threads: usize,
    #[arg(long, default_value_t = 0)]
    pub(super) rings: usize,
    #[arg(long, default_value_t = 0)]
    pub(super) spots: usize,
    #[arg(long, default_value_t = 0)]
    pub(super) words: usize,
    #[arg(long, default_value_t = 0)]
    pub(super) writes: usize,
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub(super) share: bool,
    /// In place of a time.
    #[arg(long)]
    pub(super) iterations: Option<u64>,
}

impl Shape {
    /// Returns the default of a case.
    fn of(case: &str, workers: usize) -> Self {
        let none = Self::default();
        let threads = 100 * workers;
        match case {
            "yield" | "mutex" | "rwlock" => Self { threads, ..none },
            "yield-1" => Self {
                threads: workers,
                ..none
            },
            "cycle" => Self {
                threads: 5,
                rings: 100 * workers,
                ..none
            },
            "cycle-1" => Self {
                threads: 5,
                rings: workers,
                ..none
            },
            "churn" => Self {
                threads,
                spots: threads / 2,
                ..none
            },
            "churn-2" => Self {
                threads,
                spots: 2,
                ..none
            },
            "locality" | "locality-share" => Self {
                threads,
                spots: threads / 2,
                words: 2,
                writes: 2,
                share: case == "locality-share",
                ..none
            },
            "transfer-yield" | "transfer-park" => Self {
                threads: 100,
                ..none
            },
            _ => none,
        }
    }

    /// Returns a case's parameters.
    ///
    /// # Errors
    /// They do not go together.
    pub(super) fn new(case: &str, workers: usize, options: &Options) -> anyhow::Result<Self> {
        let mut shape = Self::of(case, workers);
        let set = |to: &mut usize, n: Option<u32>, times: usize| match n {
            Some(n) if *to > 0 => *to = n as usize * times,
            _ => (),
        };

        let in_all = shape.rings > 0 || case.starts_with("transfer");
        set(
            &mut shape.threads,
            options.threads,
            if in_all { 1 } else { workers },
        );
        set(&mut shape.rings, options.rings, workers);
        if case != "churn-2" && shape.spots > 0 {
            shape.spots = shape.threads / 2;
        }
        set(&mut shape.spots, options.spots, 1);
        set(&mut shape.words, options.words, 1);
        set(&mut shape.writes, options.writes, 1);
        if has(case, "share") {
            shape.share = options.share == Some(Switch::On);
        }
        shape.iterations = options.iterations.filter(|_| has(case, "iterations"));
        shape.check(case, workers)?;

        Ok(shape)
    }

    fn check(&self, case: &str, workers: usize) -> anyhow::Result<()> {
        let Self {
            threads,
            rings,
            spots,
            words,
            ..
        } = *self;
        let all = threads * rings.max(1);
        let here = format!(
            "{case} with {workers} worker{}",
            if workers == 1 { "" } else { "s" }
        );
        ensure!(
            all <= MOST_THREADS,
            "--threads, --rings: {here} would have {all} threads; at most {MOST_THREADS}"
        );

        if case.starts_with("transfer") || spots > 0 {
            ensure!(
                threads > 1,
                "--threads: {here} would have 1 thread in all; at least 2"
            );
        }

        // With a thread at each spot there must be one more, that wakes them.
        let most = threads.saturating_sub(1);
        ensure!(
            spots <= most,
            "--spots: {here} has {threads} threads, so from 1 to {most}, not {spots}"
        );
        let most = MOST_WORDS / threads.max(1);
        ensure!(
            words <= most,
            "--words: {here} has {threads} threads, so from 1 to {most}, not {words}"
        );

        Ok(())
    }

    /// Returns what a case has of them, as flags without their dashes.
    pub(super) fn flags(&self) -> Vec<String> {
        let Self {
            threads,
            rings,
            spots,
            words,
            writes,
            share,
            iterations,
        } = *self;
        let numbers = [
            ("threads", threads),
            ("rings", rings),
            ("spots", spots),
            ("words", words),
            ("writes", writes),
        ];
        let numbers = numbers
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| format!("{name}={n}"));
        let share = (words > 0).then(|| format!("share={share}"));

        numbers
            .chain(share)
            .chain(iterations.map(|n| format!("iterations={n}")))
            .collect()
    }
}

/// Returns whether a case has an option.
fn has(case: &str, option: &str) -> bool {
    let shape = Shape::of(case, 1);
    match option {
        "threads" => shape.threads > 0,
        "rings" => shape.rings > 0,
        "spots" => shape.spots > 0,
        "words" | "writes" => shape.words > 0,
        "share" => case == "locality",
        "iterations" => !matches!(
            case,
            "parked-fibers" | "wake-sleeper" | "select-beside" | "idle"
        ),
        other => unreachable!("no option is called {other}"),
    }
}

/// Parses `--seconds`.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|seconds| (0.001..=3600.0).contains(seconds));
    value.ok_or_else(|| "seconds from 0.001 to 3600".to_owned())
}
