//! The published figures of the workloads, and what each of them claims.
//!
//! They are those of the OCaml schedulers' thesis: medians on two EPYC 7702 with 5 to 115 domains,
//! read off its charts to within 5 %. Where a chart's number is not known, its source is "a chart".
//! What is published without an order stands for both. Values have the units of our rows.

use super::claims::{Finding, Line, Measure, Rows, left};
use crate::pages::meaning::Better;

/// A published value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    pub(super) line: Line,
    /// As our rows have it, and its unit.
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    /// With how many domains, or under which load.
    pub(super) place: &'static str,
    /// The value, unless only how lines compare can be read.
    pub(super) value: Option<f64>,
}

/// What a figure claims.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) text: &'static str,
    pub(super) judge: fn(&Rows<'_>) -> Vec<Finding>,
}

/// A figure, and the experiment of ours that repeats it.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    pub(super) title: &'static str,
    /// As our rows have it.
    pub(super) experiment: &'static str,
    pub(super) command: &'static str,
    /// Where the values are from.
    pub(super) source: &'static str,
    pub(super) figures: &'static [Published],
    pub(super) claims: &'static [Claim],
    /// The simulator's commands; none if it does not have the workload.
    pub(super) simulated: &'static [&'static str],
}

const fn line(name: &'static str, case: &'static str, policy: &'static str) -> Line {
    Line { name, case, policy }
}

const fn row(
    line: Line,
    metric: &'static str,
    unit: &'static str,
    place: &'static str,
    value: f64,
) -> Published {
    Published {
        line,
        metric,
        unit,
        place,
        value: Some(value),
    }
}

const fn rate(line: Line, place: &'static str, value: f64) -> Published {
    row(line, "throughput", "1/s", place, value * 1e6)
}

const fn p99(line: Line, place: &'static str, ms: f64) -> Published {
    row(line, "p99_us", "us", place, ms * 1e3)
}

/// Makes the row of a rate of which no value can be read, only how it compares.
const fn course(line: Line, place: &'static str) -> Published {
    Published {
        value: None,
        ..rate(line, place, 0.0)
    }
}

const fn claim(text: &'static str, judge: fn(&Rows<'_>) -> Vec<Finding>) -> Claim {
    Claim { text, judge }
}

const fn by(metric: &'static str, ahead: Better) -> Measure {
    Measure {
        metric,
        ahead,
        least: 1,
        most: usize::MAX,
    }
}

const RATE: Measure = by("throughput", Better::More);
const P99: Measure = by("p99_us", Better::Less);

const FIFO: Line = line("FIFO", "base", "ot-fifo-base");
const LIFO: Line = line("LIFO", "base", "ot-lifo-base");

/// Makes the simulator's command for thieves that never sleep; the time of a look is fitted to
/// `packets`.
macro_rules! spinning {
    ($arguments:literal) => {
        concat!(
            "plainweave sim ",
            $arguments,
            " --idle spin --cost look=700 --runs 3 --csv"
        )
    };
}

/// All of them, in the order of the page.
pub(super) const WORKLOADS: &[Workload] = &[
    PACKETS,
    DELAY_SPIN,
    DELAY_SLEEP,
    MANY_PACKETS,
    SPAWNERS,
    NEAREST,
    STEALS,
    CACHE_EFFECTS,
    BIMODAL,
    MIXER,
    OPTIONS,
    FIB,
    QUEUE,
];

/// The most domains that are few: those of LIFO's peak.
const FEW: usize = 20;
const PACKETS: Workload = Workload {
    title: "packets: base",
    experiment: "packets",
    command: "plainweave bench packets --cases base",
    source: "figure 7.1",
    figures: &[
        rate(FIFO, "5 domains", 0.33),
        rate(LIFO, "5 domains", 0.33),
        rate(FIFO, "80 domains, its peak", 1.43),
        rate(LIFO, "20 domains, its peak", 1.55),
        rate(FIFO, "115 domains", 1.10),
        rate(LIFO, "115 domains", 0.90),
        p99(FIFO, "5 domains", 1.0),
        p99(LIFO, "5 domains", 1.0),
        p99(FIFO, "above 40 domains", 0.05),
        p99(LIFO, "above 40 domains", 0.05),
        row(FIFO, "insert_retries", "count", "5 domains", 1e7),
        row(LIFO, "insert_retries", "count", "5 domains", 1e7),
        row(FIFO, "insert_retries", "count", "beyond 45 domains", 0.0),
        row(LIFO, "insert_retries", "count", "beyond 45 domains", 0.0),
    ],
    claims: &[
        claim("With few domains LIFO is above FIFO.", |rows| {
            rows.leads(RATE.up_to(FEW), LIFO, &[FIFO])
        }),
        claim("LIFO peaks at 20 domains.", |rows| {
            rows.peaks(RATE, LIFO, 20)
        }),
        claim("FIFO peaks at 80 domains.", |rows| {
            rows.peaks(RATE, FIFO, 80)
        }),
        claim("Beyond both peaks FIFO is above LIFO.", |rows| {
            rows.leads(RATE.from(81), FIFO, &[LIFO])
        }),
        // That p99 falls from one worker to two, and that a spawner which is faster than its
        // handlers finds a bounded structure full, is so under any policy: these are figures above,
        // and no claims.
    ],
    simulated: &[spinning!(
        "--policy ot-fifo-base --policy ot-lifo-base --workers 5,10,15,20,25,30,40,60,70,80,90,100,115"
    )],
};

const NO_FALL: &str = "With a delay in each handler the rate does not fall as domains are added.";
const DELAY_SPIN: Workload = Workload {
    title: "packets: delay-spin",
    experiment: "packets",
    command: "plainweave bench packets --cases delay-spin",
    source: "a chart",
    figures: &[
        course(FIFO.of("delay-spin"), "up to 110 domains"),
        course(LIFO.of("delay-spin"), "up to 110 domains"),
    ],
    claims: &[claim(NO_FALL, |rows| {
        rows.keeps(RATE, &[FIFO.of("delay-spin"), LIFO.of("delay-spin")])
    })],
    simulated: &[spinning!(
        "--case delay-spin --policy ot-fifo-base --policy ot-lifo-base --workers 5,20,110"
    )],
};

const DELAY_SLEEP: Workload = Workload {
    title: "packets: delay-sleep",
    command: "plainweave bench packets --cases delay-sleep",
    figures: &[
        course(FIFO.of("delay-sleep"), "up to 110 domains"),
        course(LIFO.of("delay-sleep"), "up to 110 domains"),
    ],
    claims: &[claim(NO_FALL, |rows| {
        rows.keeps(RATE, &[FIFO.of("delay-sleep"), LIFO.of("delay-sleep")])
    })],
    simulated: &[spinning!(
        "--case delay-sleep --policy ot-fifo-base --policy ot-lifo-base --workers 5,20,110"
    )],
    ..DELAY_SPIN
};

const MANY_PACKETS: Workload = Workload {
    title: "packets: 10m",
    experiment: "packets",
    command: "plainweave bench packets --cases 10m",
    source: "figure 7.4",
    figures: &[
        rate(FIFO.of("10m"), "beyond 30 domains", 0.20),
        rate(LIFO.of("10m"), "beyond 30 domains", 0.17),
    ],
    claims: &[
        claim("FIFO is above LIFO.", |rows| {
            rows.leads(RATE, FIFO.of("10m"), &[LIFO.of("10m")])
        }),
        claim("Beyond 30 domains the rate stays the same.", left),
    ],
    simulated: &[
        "plainweave sim --case 10m --policy ot-fifo-base --policy ot-lifo-base --workers 40 --idle spin --cost \
         look=700 --csv",
    ],
};

const SPAWNERS: Workload = Workload {
    title: "packets: spawners",
    experiment: "packets",
    command: "plainweave bench packets --cases spawners",
    source: "figure 7.6, the scale of which cannot be used",
    figures: &[
        course(FIFO.of("spawners"), "up to 50 domains"),
        course(LIFO.of("spawners"), "up to 50 domains"),
    ],
    claims: &[
        claim(
            "With four spawners the rate rises as domains are added.",
            |rows| rows.improves(RATE.up_to(50), &[FIFO.of("spawners"), LIFO.of("spawners")]),
        ),
        claim("It rises up to about 50 domains.", left),
    ],
    simulated: &[spinning!(
        "--case spawners --policy ot-fifo-base --policy ot-lifo-base --workers 5,20,50,80"
    )],
};

const ANY: [Line; 2] = [FIFO.of("nearest"), LIFO.of("nearest")];
const NEAR_20: [Line; 2] = [
    line("FIFO, nearest 20", "nearest", "ot-fifo-base:victim=near:20"),
    line("LIFO, nearest 20", "nearest", "ot-lifo-base:victim=near:20"),
];
const NEAR_13: [Line; 2] = [
    line("FIFO, nearest 13", "nearest", "ot-fifo-base:victim=near:13"),
    line("LIFO, nearest 13", "nearest", "ot-lifo-base:victim=near:13"),
];
const NEAREST: Workload = Workload {
    title: "packets: nearest",
    experiment: "packets",
    command: "plainweave bench packets --cases nearest",
    source: "a table of extensions",
    figures: &[
        rate(ANY[0], "20 domains", 1.16),
        rate(NEAR_20[0], "20 domains", 1.11),
        rate(NEAR_13[0], "20 domains", 1.35),
        rate(ANY[0], "110 domains", 0.80),
        rate(NEAR_20[0], "110 domains", 1.01),
        rate(NEAR_13[0], "110 domains", 1.05),
        rate(ANY[1], "110 domains", 0.89),
        rate(NEAR_20[1], "110 domains", 1.02),
        rate(NEAR_13[1], "110 domains", 0.84),
    ],
    claims: &[
        claim("FIFO gains by victims among the nearest 13.", |rows| {
            rows.leads(RATE.from(20), NEAR_13[0], &[ANY[0]])
        }),
        claim("FIFO gains by victims among the nearest 20.", |rows| {
            rows.leads(RATE.from(110), NEAR_20[0], &[ANY[0]])
        }),
        claim("LIFO gains by victims among the nearest 20.", |rows| {
            rows.leads(RATE.from(110), NEAR_20[1], &[ANY[1]])
        }),
    ],
    simulated: &[spinning!(
        "--case nearest --policy ot-fifo-base --policy ot-fifo-base:victim=only:20 --policy \
         ot-fifo-base:victim=only:13 --policy ot-lifo-base --policy ot-lifo-base:victim=only:20 --policy \
         ot-lifo-base:victim=only:13 --workers 20,110"
    )],
};

const ATTEMPTS: Measure = by("steal_attempts", Better::More);
const STEALS: Workload = Workload {
    title: "packets: steals",
    experiment: "packets",
    command: "plainweave bench packets --cases steals",
    source: "figures 7.2 and 7.3",
    figures: &[
        row(
            FIFO.of("steals"),
            "steal_attempts",
            "count",
            "115 domains",
            6.6e6,
        ),
        row(
            LIFO.of("steals"),
            "steal_attempts",
            "count",
            "115 domains",
            14e6,
        ),
    ],
    claims: &[
        claim(
            "LIFO's workers try to steal more often than FIFO's.",
            |rows| rows.leads(ATTEMPTS.from(2), LIFO.of("steals"), &[FIFO.of("steals")]),
        ),
        claim(
            "Stalled cycles per instruction rise from 0.27 with 5 domains to more than 2.5 beyond 80 under FIFO, and \
             lie between 1.0 and 1.6 under LIFO.",
            left,
        ),
    ],
    simulated: &[spinning!(
        "--case steals --policy ot-fifo-base --policy ot-lifo-base --workers 115"
    )],
};

const FIFO_1024: Line = line("FIFO", "base", "ot-fifo-base:capacity=1024");
const LIFO_1024: Line = line("LIFO", "base", "ot-lifo-base:capacity=1024");
const CACHE_EFFECTS: Workload = Workload {
    title: "cache-effects",
    experiment: "cache-effects",
    command: "plainweave bench cache-effects",
    source: "a chart",
    figures: &[
        rate(FIFO_1024, "110 domains", 1.56),
        rate(LIFO_1024, "110 domains", 2.09),
        course(FIFO_1024.of("sequential"), "control"),
        course(LIFO_1024.of("sequential"), "control"),
    ],
    claims: &[
        claim(
            "LIFO is above FIFO: it finds packets in the cache.",
            |rows| rows.leads(RATE, LIFO_1024, &[FIFO_1024]),
        ),
        claim(
            "Control: no difference if packets are read in sequence.",
            |rows| rows.equals(RATE, LIFO_1024.of("sequential"), FIFO_1024.of("sequential")),
        ),
    ],
    simulated: &[],
};

const BI_FIFO: Line = line("FIFO", "base", "ot-fifo");
const BI_LIFO: Line = line("LIFO", "base", "ot-lifo");
const SLOT: Line = line("FIFO with a slot", "base", "ot-slot");
const STOCHASTIC: Line = line("stochastic", "base", "ot-stochastic");
const STAGED: Line = line("staged", "staged", "ot-fifo");
const REVERSE: Line = line("reverse", "base", "ot-reverse");
const ALTERNATE: Line = line("alternate", "base", "ot-alternate");
const BIMODAL: Workload = Workload {
    title: "bimodal",
    experiment: "bimodal",
    command: "plainweave bench bimodal --cases base,staged",
    source: "a chart of FIFO and LIFO, and one of hybrids beside both",
    figures: &[
        p99(BI_FIFO, "115 domains", 33.0),
        p99(BI_LIFO, "115 domains", 43.0),
        p99(BI_FIFO, "115 domains, hybrids", 36.0),
        p99(BI_LIFO, "115 domains, hybrids", 39.0),
        p99(SLOT, "115 domains, hybrids", 39.0),
        p99(STOCHASTIC, "115 domains, hybrids", 39.0),
        p99(STAGED, "115 domains, hybrids", 30.0),
        p99(REVERSE, "115 domains, hybrids", 47.0),
        p99(ALTERNATE, "115 domains, hybrids", 62.0),
        rate(BI_FIFO, "115 domains, hybrids", 1.04),
        rate(BI_LIFO, "115 domains, hybrids", 1.11),
        rate(SLOT, "115 domains, hybrids", 1.07),
        rate(STOCHASTIC, "115 domains, hybrids", 0.99),
        rate(STAGED, "115 domains, hybrids", 0.93),
        rate(REVERSE, "115 domains, hybrids", 0.93),
        rate(ALTERNATE, "115 domains, hybrids", 0.84),
    ],
    claims: &[
        claim("FIFO's p99 is below LIFO's.", |rows| {
            rows.leads(P99, BI_FIFO, &[BI_LIFO])
        }),
        claim("Stages have the lowest p99.", |rows| {
            rows.leads(
                P99.from(2),
                STAGED,
                &[BI_FIFO, BI_LIFO, SLOT, STOCHASTIC, REVERSE, ALTERNATE],
            )
        }),
        claim("Of all orders, alternate has the lowest rate.", |rows| {
            let lowest = by("throughput", Better::Less);
            rows.leads(
                lowest,
                ALTERNATE,
                &[BI_FIFO, BI_LIFO, SLOT, STOCHASTIC, REVERSE],
            )
        }),
    ],
    simulated: &[
        spinning!(
            "--workload bimodal --policy ot-fifo --policy ot-lifo --policy ot-slot --policy ot-stochastic \
             --policy ot-reverse --policy ot-alternate --workers 115"
        ),
        spinning!(
            "--workload bimodal --case staged --param side=40 --policy ot-fifo --workers 115"
        ),
    ],
};

const MIX_FIFO: Line = line("FIFO", "base mixers=N", "ot-fifo");
const MIX_LIFO: Line = line("LIFO", "base mixers=N", "ot-lifo");
const MIX_STAGED: Line = line("staged", "staged mixers=N", "ot-fifo");
const BREACHES: Measure = by("breach_rate", Better::Less);

const fn breaches(line: Line, place: &'static str, value: f64) -> Published {
    row(line, "breach_rate", "1", place, value)
}

const MIXER: Workload = Workload {
    title: "mixer",
    experiment: "mixer",
    command: "plainweave bench mixer --cases base,staged",
    source: "a chart over the number of mixers; beside 1,400 stands the greatest number that we have",
    figures: &[
        breaches(MIX_FIFO.of("base mixers=800"), "800 mixers", 0.005),
        breaches(MIX_LIFO.of("base mixers=800"), "800 mixers", 0.0),
        breaches(MIX_STAGED.of("staged mixers=800"), "800 mixers", 0.0),
        breaches(MIX_FIFO, "1,400 mixers", 0.03),
        breaches(MIX_LIFO, "1,400 mixers", 0.01),
        breaches(MIX_STAGED, "1,400 mixers", 0.065),
    ],
    claims: &[
        claim(
            "At the greatest load LIFO is late less often than FIFO.",
            |rows| rows.leads(BREACHES, MIX_LIFO, &[MIX_FIFO]),
        ),
        claim("At the greatest load stages are late most often.", |rows| {
            rows.leads(
                by("breach_rate", Better::More).from(3),
                MIX_STAGED,
                &[MIX_FIFO, MIX_LIFO],
            )
        }),
    ],
    simulated: &[
        "plainweave sim --workload mixer --size 1400 --param rounds=21 --policy ot-fifo --policy ot-lifo --idle spin \
         --workers 3,5,10 --csv",
        "plainweave sim --workload mixer --case staged --size 1400 --param rounds=21 --policy ot-fifo --idle spin \
         --workers 3,5,10 --csv",
    ],
};

const OPTIONS: Workload = Workload {
    title: "options",
    experiment: "options",
    command: "plainweave bench options --cases base",
    source: "a chart",
    figures: &[
        p99(FIFO, "5 domains", 420.0),
        p99(LIFO, "5 domains", 9500.0),
        p99(FIFO, "115 domains", 180.0),
        p99(LIFO, "115 domains", 420.0),
    ],
    claims: &[
        claim("FIFO's p99 is below LIFO's.", |rows| {
            rows.leads(P99, FIFO, &[LIFO])
        }),
        claim("p99 falls as domains are added.", |rows| {
            rows.improves(P99, &[FIFO, LIFO])
        }),
    ],
    simulated: &[
        "plainweave sim --workload options --policy ot-fifo-base --policy ot-lifo-base --workers 5,115 --cost node=26 \
         --runs 3 --csv",
    ],
};

const TIME: Measure = by("time_ms", Better::Less);
const FIB: Workload = Workload {
    title: "fib",
    experiment: "fib",
    command: "plainweave bench fib",
    source: "a chart",
    figures: &[
        row(FIFO, "time_ms", "ms", "10 domains", 349.0),
        row(LIFO, "time_ms", "ms", "10 domains", 70.0),
    ],
    claims: &[claim("LIFO is faster than FIFO.", |rows| {
        rows.leads(TIME, LIFO, &[FIFO])
    })],
    simulated: &[spinning!(
        "--workload fib --policy ot-fifo-base --policy ot-lifo-base --workers 10"
    )],
};

const LOCKED: Line = line("locked", "thesis", "injector");
const LOCK_FREE: Line = line("lock-free", "thesis", "mpmc");
const SHARDED: Line = line("sharded", "thesis", "sharded-half");

/// Makes the row of a time for a million items.
const fn million(line: Line, ms: f64) -> Published {
    row(line, "ns_per_item", "ns", "120 threads", ms)
}

const QUEUE: Workload = Workload {
    title: "queues: thesis",
    experiment: "queues",
    command: "plainweave bench queues --cases thesis",
    source: "a chart of the time for a million items; here for one, and workers are threads",
    figures: &[
        million(LOCKED, 1013.0),
        million(LOCK_FREE, 78.0),
        million(SHARDED, 9.0),
    ],
    claims: &[
        claim("A locked queue is the slowest.", |rows| {
            rows.leads(
                by("ns_per_item", Better::More).from(2),
                LOCKED,
                &[LOCK_FREE, SHARDED],
            )
        }),
        claim(
            "With several shards a sharded queue is the fastest; with two threads it has one.",
            |rows| {
                rows.leads(
                    by("ns_per_item", Better::Less).from(4),
                    SHARDED,
                    &[LOCKED, LOCK_FREE],
                )
            },
        ),
    ],
    simulated: &[],
};
