//! The workloads of the OCaml schedulers' thesis: their parameters and their published cases.
//!
//! They are written here once, for the simulator and for the benchmarks on real workers alike. Each
//! program adds what only it has: the benchmarks a bound on what is under way, the simulator
//! smaller sizes where a run would take too long.

/// A parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// What it is called, on both command lines.
    pub name: &'static str,
    /// What is allowed.
    pub range: Range,
    /// By default on real workers: a value with which a run ends within minutes on two processors.
    /// Some are lists.
    pub value: &'static str,
    /// The published value.
    pub full: &'static str,
    /// What it means, for `--help`.
    pub help: &'static str,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Range {
    /// A whole number within bounds.
    Count(u64, u64),
    /// A number within bounds, perhaps with a fraction.
    Decimal(f64, f64),
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
}

impl Parameter {
    /// Makes one that is a whole number.
    #[must_use]
    pub const fn count(
        name: &'static str,
        value: &'static str,
        (least, most): (u64, u64),
        help: &'static str,
    ) -> Self {
        Self {
            name,
            range: Range::Count(least, most),
            value,
            full: value,
            help,
        }
    }

    /// Makes one that may have a fraction.
    #[must_use]
    pub const fn decimal(
        name: &'static str,
        value: &'static str,
        (least, most): (f64, f64),
        help: &'static str,
    ) -> Self {
        Self {
            name,
            range: Range::Decimal(least, most),
            value,
            full: value,
            help,
        }
    }

    /// Makes one that is one of these words; the first is the default.
    #[must_use]
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            range: Range::Word(words),
            value: words[0],
            full: words[0],
            help,
        }
    }

    /// Gives it the published value, where the default is smaller.
    #[must_use]
    pub const fn full(self, value: &'static str) -> Self {
        Self {
            full: value,
            ..self
        }
    }
}

/// A combination of values that has a name: a published one, or a control.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// How it differs from the defaults: `name=value`, with spaces between.
    pub settings: &'static str,
    /// How it differs from them in the published size, besides.
    pub full: &'static str,
    /// What it is, for `--list`.
    pub summary: &'static str,
    /// Policies that are measured unless others are named; none: those of the workload.
    pub policies: &'static [&'static str],
}

impl Case {
    /// Makes one.
    #[must_use]
    pub const fn new(name: &'static str, settings: &'static str, summary: &'static str) -> Self {
        Self {
            name,
            settings,
            full: "",
            summary,
            policies: &[],
        }
    }

    /// Gives it settings of its own for the published size.
    #[must_use]
    pub const fn full(self, settings: &'static str) -> Self {
        Self {
            full: settings,
            ..self
        }
    }

    /// Gives it policies of its own.
    #[must_use]
    pub const fn policies(self, policies: &'static [&'static str]) -> Self {
        Self { policies, ..self }
    }

    /// Returns what it sets a parameter to; in the published size if `full`.
    #[must_use]
    pub fn setting(&self, name: &str, full: bool) -> Option<&'static str> {
        let of = |settings| {
            pairs(settings)
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };

        full.then(|| of(self.full))
            .flatten()
            .or_else(|| of(self.settings))
    }

    /// Returns which parameters it sets in the published size, and to what.
    pub(crate) fn published(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        pairs(self.settings).chain(pairs(self.full))
    }
}

fn pairs(settings: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    settings
        .split_whitespace()
        .filter_map(|setting| setting.split_once('='))
}

const SPAWNERS: &str = "Fibers that spawn them";

/// Divides workers among a number of pools, as evenly as they can be.
#[must_use]
pub fn split(workers: usize, pools: usize) -> Vec<usize> {
    (0..pools)
        .map(|pool| workers / pools + usize::from(pool < workers % pools))
        .collect()
}

/// One spawner, or several, schedule handlers without a pause; each handler scans a packet.
pub mod packets {
    use super::{Case, Parameter, SPAWNERS};

    /// How many.
    pub const PACKETS: Parameter = Parameter::count(
        "packets",
        "50000",
        (1, 100_000_000),
        "Packets of an iteration",
    );
    /// How many fibers spawn.
    pub const SPAWNED_BY: Parameter = Parameter::count("spawners", "1", (1, 1000), SPAWNERS);
    /// What each handler does besides.
    pub const DELAY: Parameter = Parameter::word(
        "delay",
        &["none", "spin", "sleep", "suspend"],
        "Of each handler; sleep holds up its thread",
    );
    /// For how long.
    pub const DELAY_NS: Parameter = Parameter::count(
        "delay-ns",
        "500",
        (1, 1_000_000_000),
        "Nanoseconds of the delay",
    );

    const NEAR: &[&str] = &[
        "ot-fifo-base",
        "ot-fifo-base:victim=near:20",
        "ot-fifo-base:victim=near:15",
        "ot-fifo-base:victim=near:13",
        "ot-lifo-base",
        "ot-lifo-base:victim=near:20",
        "ot-lifo-base:victim=near:15",
        "ot-lifo-base:victim=near:13",
    ];
    const STEALS: &[&str] = &[
        "ot-fifo-base",
        "ot-fifo-base:victim=uniform",
        "ot-fifo-base:amount=one",
        "ot-fifo-base:amount=passover:10:5",
        "ot-lifo-base",
        "ot-lifo-base:victim=uniform",
    ];

    /// The published cases.
    pub const CASES: &[Case] = &[
        Case::new(
            "base",
            "",
            "one spawner, without a pause; it copies a random template, as in the text",
        ),
        Case::new(
            "code",
            "copy=handler",
            "the same, each handler copies the first template, as in the code",
        ),
        Case::new(
            "delay-spin",
            "delay=spin",
            "the same, each handler computes for 500 ns",
        ),
        Case::new(
            "delay-sleep",
            "delay=sleep packets=5000",
            "the same, each handler has its thread sleep for 500 ns",
        )
        .full("packets=50000"),
        Case::new("10m", "packets=200000", "one spawner, many packets").full("packets=10000000"),
        Case::new(
            "10m-text",
            "packets=40000",
            "the same, as many as the final text has: a fifth",
        )
        .full("packets=2000000"),
        Case::new("spawners", "spawners=4", "four spawners"),
        Case::new(
            "spawners-2",
            "spawners=2",
            "two spawners, as with few domains",
        ),
        Case::new(
            "nearest",
            "",
            "base, with victims among the nearest 20, 15 or 13 on a ring",
        )
        .policies(NEAR),
        Case::new(
            "steals",
            "",
            "base, with other victims and amounts: attempts to steal",
        )
        .policies(STEALS),
    ];
}

/// Packets pass through a chain of tasks; in a few packets the last tasks sleep.
pub mod bimodal {
    use super::{Case, Parameter, SPAWNERS};

    /// How many.
    pub const PACKETS: Parameter = Parameter::count(
        "packets",
        "10000",
        (1, 100_000_000),
        "Packets of an iteration",
    )
    .full("100000");
    /// How many fibers spawn them.
    pub const SPAWNED_BY: Parameter = Parameter::count("spawners", "10", (1, 1000), SPAWNERS);
    /// How many tasks a packet has.
    pub const CHAIN: Parameter = Parameter::count(
        "chain",
        "3",
        (1, 1000),
        "Tasks of a packet, one after the other",
    );
    /// How many are heavy.
    pub const HEAVY: Parameter =
        Parameter::decimal("heavy", "0.2", (0.0, 100.0), "Percentage of heavy packets");
    /// How many tasks of those sleep.
    pub const SLEEPS: Parameter = Parameter::count(
        "sleeps",
        "2",
        (0, 1000),
        "Tasks at the end of a heavy packet's chain that sleep",
    );
    /// For how long.
    pub const SLEEP_MS: Parameter =
        Parameter::count("sleep-ms", "20", (1, 10_000), "Milliseconds of a sleep");
    /// What a worker does meanwhile.
    pub const WAIT: Parameter = Parameter::word(
        "wait",
        &["block", "suspend"],
        "Whether a sleep holds up its thread",
    );
    /// Who runs the heavy packets.
    pub const POOLS: Parameter = Parameter::word(
        "pools",
        &["single", "staged"],
        "Whether heavy packets have a pool of their own",
    );
    /// How many workers that pool has.
    pub const SIDE: Parameter =
        Parameter::count("side", "1", (1, 1000), "Workers of that pool, out of all");

    /// Returns the workers of both pools if heavy packets have one, the second. There are more than
    /// `side` workers.
    #[must_use]
    pub fn staged(workers: usize, side: usize) -> Vec<usize> {
        vec![workers - side, side]
    }

    /// The published cases, and a control.
    pub const CASES: &[Case] = &[
        Case::new("base", "", "0.2 % heavy, as in the code"),
        Case::new("text", "heavy=0.1", "0.1 % heavy, as in the text"),
        Case::new(
            "staged",
            "pools=staged",
            "heavy packets go to a pool of one worker",
        ),
        Case::new(
            "suspend",
            "wait=suspend",
            "control: sleeps hold up no thread",
        ),
    ];
}

/// Conferences of an audio mixer.
pub mod mixer {
    use super::{Case, Parameter};

    /// How many.
    pub const MIXERS: Parameter =
        Parameter::count("mixers", "50,100,200", (1, 100_000), "Conferences")
            .full("400,600,800,1000,1200,1400");
    /// How many take part in each.
    pub const LEGS: Parameter = Parameter::count("legs", "2", (1, 1000), "Legs of each");
    /// How long they last.
    pub const ROUNDS: Parameter =
        Parameter::count("rounds", "21", (1, 1_000_000), "Frames of each leg").full("201");
    /// How often a leg sends.
    pub const FRAME_MS: Parameter = Parameter::count(
        "frame-ms",
        "20",
        (1, 10_000),
        "Milliseconds from frame to frame",
    );
    /// How much.
    pub const BYTES: Parameter = Parameter::count(
        "bytes",
        "1600",
        (2, 1_000_000),
        "Bytes of a frame, two a sample",
    );
    /// What is late.
    pub const LATE_MS: Parameter = Parameter::count(
        "late-ms",
        "10",
        (1, 10_000),
        "Milliseconds after which a send is a breach",
    );
    /// Which pools there are.
    pub const POOLS: Parameter = Parameter::word(
        "pools",
        &["single", "staged", "silos"],
        "One scheduler, one for each kind of task, or independent ones",
    );
    /// The first pool's part.
    pub const LEGS_SHARE: Parameter = Parameter::count(
        "legs-share",
        "20",
        (1, 98),
        "Percentage of the workers that legs have, staged",
    );
    /// The second pool's.
    pub const MIX_SHARE: Parameter = Parameter::count(
        "mix-share",
        "30",
        (1, 98),
        "Percentage of the workers that mixers have, staged; sends have the rest",
    );
    /// How many independent pools.
    pub const SILOS: Parameter = Parameter::count(
        "silos",
        "10",
        (1, 1000),
        "Silos, if there are as many workers",
    );

    /// Returns the workers of legs, mixers and sends if these have pools of their own. There are
    /// three workers or more.
    #[must_use]
    pub fn staged(workers: usize, legs_share: u64, mix_share: u64) -> Vec<usize> {
        let share =
            |percent: u64, most: usize| (workers * percent as usize).div_ceil(100).clamp(1, most);
        let legs = share(legs_share, workers - 2);
        let mix = share(mix_share, workers - legs - 1);
        vec![legs, mix, workers - legs - mix]
    }

    /// Returns the workers of independent pools, of which there are `silos`, or as many as workers.
    #[must_use]
    pub fn silos(workers: usize, silos: usize) -> Vec<usize> {
        super::split(workers, silos.min(workers))
    }

    /// The published cases.
    pub const CASES: &[Case] = &[
        Case::new("base", "", "one scheduler"),
        Case::new(
            "staged",
            "pools=staged",
            "legs, mixers and sends in pools of their own",
        ),
        Case::new(
            "silos",
            "pools=silos",
            "whole conferences in independent schedulers",
        ),
    ];
}

/// Option pricing by binomial trees.
pub mod options {
    use super::{Case, Parameter};

    /// How many.
    pub const OPTIONS: Parameter = Parameter::count(
        "options",
        "2000",
        (1, 100_000_000),
        "Options of an iteration",
    )
    .full("30000");
    /// How deep most are.
    pub const DEPTH: Parameter = Parameter::count("depth", "20", (1, 20_000), "Time steps of most");
    /// How deep the others are.
    pub const DEEP: Parameter =
        Parameter::count("deep", "5000", (1, 20_000), "Time steps of the deep ones");
    /// How many those are.
    pub const DEEP_IN: Parameter = Parameter::count(
        "deep-in",
        "200",
        (1, 1_000_000_000),
        "One option in this many is deep",
    );

    /// The published cases, and one whose price is known.
    pub const CASES: &[Case] = &[
        Case::new("base", "", "deep ones of 5,000 steps, as in the code"),
        Case::new(
            "text",
            "deep=2000",
            "deep ones of 2,000 steps, as in the text",
        ),
        Case::new(
            "known",
            "set=known",
            "a call at the money, whose price is known",
        ),
    ];
}

/// Fibonacci numbers by fibers.
pub mod fib {
    use super::{Case, Parameter};

    /// Which one.
    pub const N: Parameter = Parameter::count("n", "20", (1, 30), "Which Fibonacci number");

    /// The published case.
    pub const CASES: &[Case] = &[Case::new(
        "base",
        "",
        "fib(20): 21,891 calls, each a fiber but the first",
    )];
}
