//! What the names in a CSV mean: whose a system is, and which way a metric is better.

use crate::harness::source::{Figure, Table};
use plainweave_report::Role;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
    /// It tells how a run went, or what another figure is made of.
    Neither,
}

impl Better {
    pub(super) fn words(self) -> &'static str {
        match self {
            Better::Less => "less is better",
            Better::More => "more is better",
            Better::Neither => "",
        }
    }

    /// Returns how many times better the first value is than the second: less than one if it is
    /// worse.
    pub(super) fn ratio(self, of: f64, to: f64) -> f64 {
        match self {
            _ if of == to => 1.0,
            Better::More => of / to,
            Better::Less | Better::Neither => to / of,
        }
    }
}

/// Parts of names that say it before the unit does.
const NEITHER: [&str; 18] = [
    "far_repetitions",
    "stolen",
    "steal",
    "spills",
    "helped",
    "inbox_messages",
    "insert_overflows",
    "offered",
    "executed_",
    "clock_",
    "times_woken",
    "lateness",
    "threads_max",
    "blocks_per_op",
    "migrations",
    "idle_share",
    "mappings",
    "good_share",
];
const MORE: [&str; 18] = [
    "per_s",
    "goodput",
    "hit_ratio",
    "held",
    "throughput",
    "jain",
    "knee",
    "answers_",
    "ops",
    "excellent_share",
    "items",
    "returned",
    "points_that_count",
    "during_to_before",
    "others_",
    "peak",
    "reached",
    "successes",
];
const LESS: [&str; 15] = [
    "error",
    "failed",
    "breach",
    "starved",
    "max_over_min",
    "_to_",
    "ratio_to",
    "poor_share",
    "shed_share",
    "rank",
    "backlog",
    "close_wait",
    "retries",
    "cpu",
    "descriptors",
];
const COSTS: [&str; 7] = ["ns", "us", "ms", "s", "B", "MB", "ms/s"];

/// Returns which way a metric is better; neither, if neither its name nor its unit says it.
pub(super) fn better(metric: &str, unit: &str) -> Better {
    let has = |parts: &[&str]| parts.iter().any(|part| metric.contains(part));
    let cost = COSTS.contains(&unit) || metric.starts_with("cpu");
    match () {
        () if has(&NEITHER) => Better::Neither,
        () if cost => Better::Less,
        () if has(&MORE) => Better::More,
        () if has(&LESS) => Better::Less,
        () => Better::Neither,
    }
}

/// The first words of systems that are not ours.
const PEERS: [&str; 20] = [
    "nginx",
    "memcached",
    "threads",
    "tokio",
    "go",
    "may",
    "libfibre",
    "cfa",
    "crossbeam",
    "st3",
    "rtrb",
    "std",
    "hyper",
    "may_minihttp",
    "warp",
    "wrk",
    "h2load",
    "locked",
    "all",
    "moka",
];
const BOUNDS: [&str; 3] = ["limit", "raw", "goal"];
/// Experiments that compare ways to do a thing, or parts of ours with each other.
const WITHOUT_OURS: [&str; 1] = ["files"];
/// In the names of what `compose` asks about: pools of several policies.
const PAIR: &str = " + ";

/// Returns whose a system is.
pub(super) fn role(experiment: &str, system: &str) -> Role {
    let first = system.split(' ').next().unwrap_or_default();
    // Policies have peers' names too; a mode follows them.
    let policy = ["/shared", "/own"].iter().any(|mode| system.contains(mode));
    match experiment {
        // All of them are policies, some of which have peers' names.
        "compose" => Role::Ours,
        _ if WITHOUT_OURS.contains(&experiment) => Role::Peer,
        _ if BOUNDS.contains(&first) => Role::Bound,
        _ if PEERS.contains(&first) && !policy => Role::Peer,
        _ => Role::Ours,
    }
}

/// Returns whether a system is what the experiment's own are to be compared with: a peer, or what
/// of ours it sets out to beat.
pub(super) fn is_rival(experiment: &str, system: &str) -> bool {
    match experiment {
        "compose" => !system.contains(PAIR),
        _ => role(experiment, system) == Role::Peer,
    }
}

/// A figure is a ratio to another one: it says what the others say already.
pub(super) fn is_ratio(figure: &Figure) -> bool {
    figure.unit == "1" && (figure.metric.starts_with("ratio_to") || figure.metric.contains("_to_"))
}

/// Returns the metrics of a table in its order, with their units.
pub(super) fn metrics(table: &Table) -> Vec<(String, String)> {
    let mut metrics: Vec<(String, String)> = Vec::new();
    for figure in &table.figures {
        if !metrics.iter().any(|(metric, _)| *metric == figure.metric) {
            metrics.push((figure.metric.clone(), figure.unit.clone()));
        }
    }
    metrics
}

/// Returns a metric's name in words: its unit is shown with each value.
pub(super) fn words(metric: &str) -> String {
    let parts: Vec<_> = metric
        .split('_')
        .filter(|part| !matches!(*part, "us" | "ns" | "ms" | "mb"))
        .collect();
    let text = parts
        .join(" ")
        .replace("cpu", "CPU")
        .replace(" per s", " per second");
    text.replace("per secondecond", "per second")
}

#[cfg(test)]
mod tests {
    use super::{Better, better, is_rival, role, words};
    use plainweave_report::Role;

    #[test]
    fn names_and_units_say_which_way_is_better() {
        for (metric, unit) in [
            ("p99_us", "us"),
            ("cpu_us_per_request", "us"),
            ("cpu_us_per_s", "us"),
            ("ratio_to_nginx", "1"),
            ("errors", "count"),
            ("memory_mb", "MB"),
            ("idle_cpu", "ms/s"),
            ("failed_share", "1"),
            ("p99_to_unloaded", "1"),
        ] {
            assert_eq!(better(metric, unit), Better::Less, "{metric}");
        }

        for (metric, unit) in [
            ("requests_per_s", "1/s"),
            ("peak_per_second", "1/s"),
            ("goodput_to_peak", "1"),
            ("hit_ratio", "1"),
            ("jain", "1"),
            ("ops", "count"),
            ("mib_per_s", "MiB/s"),
            ("answers_to_target", "1"),
            ("others_during", "1/cpu-s"),
        ] {
            assert_eq!(better(metric, unit), Better::More, "{metric}");
        }

        for (metric, unit) in [
            ("stolen_percent", "%"),
            ("client_lateness_p99_us", "us"),
            ("colour", "1"),
        ] {
            assert_eq!(better(metric, unit), Better::Neither, "{metric}");
        }

        assert_eq!(
            [
                Better::Less.ratio(2.0, 6.0),
                Better::More.ratio(2.0, 6.0),
                Better::Less.ratio(0.0, 0.0)
            ],
            [3.0, 2.0 / 6.0, 1.0]
        );
    }

    #[test]
    fn policies_with_the_names_of_peers_are_ours() {
        assert_eq!(role("fairness", "tokio anytime/own epoll"), Role::Ours);
        assert_eq!(role("micro", "tokio"), Role::Peer);
        assert_eq!(role("web", "nginx aio threads"), Role::Peer);
        assert_eq!(role("http", "plainweave threads"), Role::Ours);
        assert!(role("compose", "go") == Role::Ours && is_rival("compose", "go"));
        assert!(!is_rival("compose", "local-fifo/1 + global-fifo/1"));
        assert!(
            is_rival("web", "nginx")
                && !is_rival("web", "plainweave epoll")
                && !is_rival("web", "limit")
        );
        assert_eq!(role("echo", "raw epoll loop"), Role::Bound);
        assert_eq!(role("files", "sendfile"), Role::Peer);
    }

    #[test]
    fn a_metric_reads_as_words() {
        assert_eq!(words("cpu_us_per_request"), "CPU per request");
        assert_eq!(
            [words("requests_per_s"), words("peak_per_second")],
            ["requests per second", "peak per second"]
        );
    }
}
