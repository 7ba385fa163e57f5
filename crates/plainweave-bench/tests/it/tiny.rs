//! Every benchmark, tiny: does it do its work, and does its CSV have the columns and the figures?

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{installed, skip};

const COLUMNS: &str = "experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs";

pub(crate) fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plainweave-bench"))
        .args(args)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

fn folder_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A folder of its own under the build's, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = folder_of(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// Runs an experiment and gives the rows of its CSV.
pub(crate) fn rows(experiment: &str, args: &[&str]) -> Vec<Vec<String>> {
    rows_in(experiment, experiment, args)
}

fn rows_in(dir: &str, experiment: &str, args: &[&str]) -> Vec<Vec<String>> {
    let out = folder(dir);
    let (code, text) = run(&[&[experiment, "--out", out.to_str().unwrap()], args].concat());
    assert_eq!(code, Some(0), "{text}");
    let html = std::fs::read_to_string(out.join(format!("{experiment}.html"))).unwrap();
    assert!(html.contains("<svg") && html.contains("kernel"), "{html}");
    let csv = std::fs::read_to_string(out.join(format!("{experiment}.csv"))).unwrap();
    let mut lines = csv.lines().filter(|line| !line.starts_with("# "));

    assert_eq!(lines.next(), Some(COLUMNS));
    let rows: Vec<Vec<String>> = lines
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect();
    let pictures: HashSet<_> = rows.iter().map(|row| (&row[1], &row[4])).collect();
    assert_eq!(
        html.matches("<svg").count(),
        pictures.len(),
        "one of each case and metric"
    );

    rows
}

/// Each case on each system that is there, tiny. The cases check their work themselves, and fail if
/// it is wrong.
#[test]
fn micro() {
    let modes = "before-start/shared,anytime/shared";
    let args = [
        "--runs",
        "1",
        "--seconds",
        "0.02",
        "--fibers",
        "500",
        "--policy",
        "fifo,lifo-slot",
        "--modes",
        modes,
        "--far",
    ];
    // What a policy may starve is left out: it takes five seconds each.
    let cases = "yield,yield-1,cycle,cycle-1,churn,churn-2,locality,locality-share,spawn-join,spawn-join-1,ping-pong,\
                 select,select-1,broadcast,mutex,rwlock,parked-fibers,wake-sleeper,select-beside,idle,resume-suspend";
    let rows = rows("micro", &[&args[..], &["--cases", cases]].concat());
    let ours = ["plainweave", "plainweave lifo-slot anytime/shared"];

    for case in cases.split(',') {
        for workers in ["1", "2"] {
            let own = matches!(
                case,
                "wake-sleeper" | "select-beside" | "idle" | "resume-suspend"
            );
            let peers: &[&str] = match case {
                _ if own => &[],
                "parked-fibers" | "select" | "select-1" => &["threads", "tokio"],
                "broadcast" => &["tokio"],
                _ => &["threads", "tokio", "may"],
            };

            for system in ours.iter().chain(peers) {
                let found = rows
                    .iter()
                    .find(|r| r[1] == case && r[2] == *system && r[3] == workers);
                let row = found
                    .unwrap_or_else(|| panic!("no row of {case} on {system}, {workers} workers"));
                assert!(
                    row[6].parse::<f64>().unwrap().is_finite() && row[11] == "1",
                    "{row:?}"
                );
            }
        }
    }

    for metric in [
        "ns_per_op",
        "ops",
        "jain",
        "delay_p999_ns",
        "oldest_waiter_ns",
        "blocks_per_op",
        "bytes_per_fiber",
    ] {
        assert!(rows.iter().any(|r| r[4] == metric), "no {metric}");
    }

    check_migrations(&rows);
    check_counts(&rows);
    let blocks = rows
        .iter()
        .find(|r| r[1] == "churn" && r[4] == "blocks_per_op" && r[2] == ours[0] && r[3] == "1");
    assert_eq!(
        blocks.expect("a row")[6],
        "1.000",
        "a thread waits at each spot, so each acquire blocks"
    );
}

/// Checks what workers count: of ours there is all of it, and between two workers fibers are
/// stolen.
fn check_counts(rows: &[Vec<String>]) {
    let counts = [
        "steal_attempts",
        "fibers_per_steal",
        "helped",
        "spills",
        "insert_retries",
        "inbox_messages",
    ];
    for metric in counts.into_iter().chain(["steals", "idle_share"]) {
        let of_metric = rows.iter().filter(|r| r[4] == metric);
        let (ours, others): (Vec<_>, Vec<_>) =
            of_metric.partition(|r| r[2].starts_with("plainweave"));
        assert!(
            !ours.is_empty() && others.is_empty(),
            "{metric}: {others:?}"
        );
        assert!(
            ours.iter().all(|r| r[6].parse::<f64>().unwrap() >= 0.0),
            "{ours:?}"
        );
    }

    let steals = rows
        .iter()
        .filter(|r| r[4] == "steals" && r[3] == "2")
        .map(|r| r[6].parse::<f64>().unwrap());
    assert!(steals.sum::<f64>() > 0.0, "nothing was stolen");
}

/// Checks Locality's migrations: each system has them, some threads and data move between two
/// workers, and none where threads cannot.
fn check_migrations(rows: &[Vec<String>]) {
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"]
        .iter()
        .any(|path| Path::new(path).exists());
    for metric in ["thread_migrations_per_op", "data_migrations_per_op"] {
        let mut most = 0.0_f64;
        for case in ["locality", "locality-share"] {
            let of_case: Vec<_> = rows
                .iter()
                .filter(|r| r[1] == case && r[4] == metric)
                .collect();
            // Ours in four ways, one of them twice; threads, Tokio, may; Go's.
            assert_eq!(of_case.len(), 2 * if go { 9 } else { 8 }, "{of_case:?}");
            for row in of_case {
                let per_op: f64 = row[6].parse().unwrap();
                most = most.max(per_op);
                let ours = row[2].starts_with("plainweave");

                // A runtime of one worker may add spare ones, which fibers move to under `anytime`.
                let anytime = row[2].ends_with("anytime/shared");
                let stays = (row[3] == "1" && !anytime)
                    || (ours && !anytime && metric.starts_with("thread"));
                assert!(
                    (0.0..=1.0).contains(&per_op) && (!stays || per_op == 0.0),
                    "{row:?}"
                );
            }
        }
        assert!(most > 0.0, "no {metric} on two workers");
    }
}

/// Which peers measure the cases that not all of them have, and what the report says of the others.
#[test]
fn micro_says_what_peers_lack() {
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"]
        .iter()
        .any(|path| Path::new(path).exists());
    // By iterations: in a short time on a busy machine some do nothing.
    let args = [
        "--cases",
        "rwlock,select,select-1,broadcast",
        "--runs",
        "1",
        "--iterations",
        "20",
        "--far",
    ];
    let rows = rows_in(
        "micro-peers",
        "micro",
        &[&args[..], &["--systems", "threads,tokio,may,go"]].concat(),
    );
    let html = std::fs::read_to_string(folder_of("micro-peers").join("micro.html")).unwrap();

    for case in ["rwlock", "select", "select-1", "broadcast"] {
        for system in ["threads", "tokio", "may", "go"]
            .iter()
            .filter(|system| go || **system != "go")
        {
            let lacks = match case {
                "rwlock" => false,
                "broadcast" => *system != "tokio",
                _ => *system == "may",
            };

            let title = format!("{case} iterations=20");
            let has = rows
                .iter()
                .any(|row| row[1] == title && row[2] == *system && row[4] == "ops");
            assert_eq!(has, !lacks, "{case} on {system}");
            let said: Vec<_> = html
                .split("<p>")
                .filter(|line| line.starts_with(&format!("{system} {case}:")))
                .collect();
            assert_eq!(
                said.len(),
                usize::from(lacks),
                "{case} on {system}, once however many workers: {said:?}"
            );
        }
    }
}

/// Work that does not depend on time: each thread does it, or all together.
#[test]
fn micro_by_iterations() {
    let sizes = [
        "--threads=4",
        "--rings=2",
        "--spots=2",
        "--words=40",
        "--writes=3",
        "--share=on",
        "--iterations=25",
    ];
    let cases = "yield,cycle,churn,locality,mutex,rwlock,spawn-join,ping-pong,select,select-1,broadcast,resume-suspend";
    let args = [
        "--cases",
        cases,
        "--systems",
        "plainweave,threads,tokio",
        "--runs",
        "3",
        "--modes",
        "anytime/shared",
    ];
    let rows = rows_in(
        "micro-iterations",
        "micro",
        &[&args[..], &sizes, &["--workers", "2", "--far"]].concat(),
    );
    let threads = |title: &str| match title {
        "yield threads=4 iterations=25"
        | "mutex threads=4 iterations=25"
        | "rwlock threads=4 iterations=25" => 8.0,
        "cycle threads=4 rings=2 iterations=25" => 16.0,
        "churn threads=4 spots=2 iterations=25" => 8.0,
        "locality threads=4 spots=2 words=40 writes=3 share=on iterations=25" => 8.0,
        "spawn-join iterations=25" | "ping-pong iterations=25" | "resume-suspend iterations=25" => {
            1.0
        }
        "select iterations=25" | "select-1 iterations=25" | "broadcast iterations=25" => 1.0,
        other => panic!("no case has the title '{other}'"),
    };

    let ours = "plainweave fifo anytime/shared";
    for system in [ours, "threads", "tokio"] {
        let ops: Vec<_> = rows
            .iter()
            .filter(|row| row[2] == system && row[4] == "ops")
            .collect();
        // Only ours has resume-suspend; threads have no broadcast.
        let cases = match system {
            "threads" => 10,
            "tokio" => 11,
            _ => 12,
        };

        assert_eq!(ops.len(), cases, "{ops:?}");
        for row in ops {
            let spread: Vec<f64> = row[6..11]
                .iter()
                .map(|value| value.parse().unwrap())
                .collect();
            let [median, q1, q3, min, max] = spread[..] else {
                panic!("{row:?}")
            };
            assert!(
                min <= q1 && q1 <= median && median <= q3 && q3 <= max && row[11] == "3",
                "{row:?}"
            );
            let (threads, least) = (threads(&row[1]), 25.0 * threads(&row[1]));
            assert!(
                if threads == 1.0 {
                    max == least && min == least
                } else {
                    min >= least
                },
                "{row:?}"
            );
        }
    }

    let html = std::fs::read_to_string(folder_of("micro-iterations").join("micro.html")).unwrap();
    assert!(
        html.contains("--words=40") && html.contains("spots=2 words=40 writes=3 share=true"),
        "{html}"
    );
}

#[test]
fn wrong_sizes_of_micro_are_refused() {
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let (exit, text) = run(&[&["micro", "--systems", "plainweave"], args].concat());
        assert!(
            exit == Some(code) && parts.iter().all(|part| text.contains(part)),
            "{args:?}: {text}"
        );
    };

    for option in ["threads", "rings"] {
        for value in ["0", "10001", "-1", "many"] {
            refused(
                &[&format!("--{option}={value}")],
                2,
                &[&format!("--{option} <N>")],
            );
        }
        refused(&[&format!("--{option}=0")], 2, &["1..=10000"]);
    }

    for option in ["spots", "words", "writes"] {
        for value in ["0", "1000001"] {
            refused(
                &[&format!("--{option}={value}")],
                2,
                &[&format!("--{option} <N>"), "1..=1000000"],
            );
        }
    }

    refused(&["--share=perhaps"], 2, &["--share <on|off>", "on, off"]);
    for value in ["0", "NaN", "-1", "1e9"] {
        refused(
            &[&format!("--seconds={value}")],
            2,
            &["--seconds <S>", "0.001 to 3600"],
        );
    }

    refused(
        &["--iterations=0"],
        2,
        &["--iterations <N>", "1..=100000000"],
    );
    refused(
        &["--iterations=5", "--seconds=1"],
        2,
        &["--iterations", "--seconds", "cannot be used with"],
    );
    refused(
        &["--cases=churn", "--workers=1", "--spots=100"],
        1,
        &["--spots", "100 threads", "from 1 to 99"],
    );
    refused(
        &["--cases=churn-2", "--workers=2", "--threads=1"],
        1,
        &["--spots", "churn-2 with 2 workers has 2 threads"],
    );
    refused(
        &["--cases=transfer-park", "--workers=2", "--threads=1"],
        1,
        &["--threads", "at least 2"],
    );
    refused(
        &["--cases=cycle", "--threads=10000", "--rings=10000"],
        1,
        &["--rings", "at most 1000000"],
    );
    refused(
        &["--cases=locality", "--threads=1000", "--words=1000000"],
        1,
        &["--words", "from 1 to 134217"],
    );
    refused(
        &["--cases=yield", "--spots=3"],
        1,
        &["--spots", "churn, churn-2, locality, locality-share"],
    );
    refused(
        &["--cases=locality-share", "--share=off"],
        1,
        &["--share", "these do: locality"],
    );

    refused(
        &["--cases=idle", "--iterations=3"],
        1,
        &["--iterations", "these do: yield"],
    );
}

/// A policy and a mode in which threads behind the leader run, and one in which they cannot.
#[test]
fn transfer() {
    let args = [
        "--cases",
        "transfer-park",
        "--systems",
        "plainweave",
        "--workers",
        "2",
        "--seconds",
        "0.02",
    ];
    let modes = [
        "--modes",
        "anytime/shared",
        "--runs",
        "1",
        "--policy",
        "global-fifo",
    ];
    let rows = rows_in("transfer", "micro", &[&args[..], &modes].concat());
    let starved = rows.iter().find(|r| r[4] == "starved").expect("a row");
    assert_eq!(starved[6], "0.000", "one queue for all starves nobody");
    assert!(rows.iter().any(|r| r[4] == "us_per_transfer"));
}

/// Each child checks that every item came out once.
#[test]
fn queues() {
    let rows = rows("queues", &["--runs", "1", "--items", "5000", "--far"]);
    let (code, list) = run(&["queues", "--list"]);
    assert_eq!(code, Some(0));
    for case in list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        let of_case: Vec<_> = rows
            .iter()
            .filter(|r| r[1] == case && r[4] == "ns_per_item")
            .collect();
        let has = |prefix: &str| of_case.iter().any(|r| r[2].starts_with(prefix));
        assert!(has("plainweave") && has("crossbeam"), "{case}: {of_case:?}");
        assert!(
            of_case.iter().all(|r| r[6].parse::<f64>().unwrap() > 0.0),
            "{of_case:?}"
        );
    }
}

#[test]
fn echo() {
    let rows = rows(
        "echo",
        &["--runs", "2", "--iterations", "500", "--connections", "4"],
    );
    let systems: Vec<_> = rows
        .iter()
        .filter(|r| r[4] == "cpu_us_per_request")
        .map(|r| r[2].as_str())
        .collect();
    let ours = ["plainweave epoll", "plainweave epoll anytime/own"];
    assert_eq!(systems.first(), Some(&"raw epoll loop"));
    assert!(ours.iter().all(|ours| systems.contains(ours)));
    let has = |metric: &str| rows.iter().any(|r| r[4] == metric);
    let ring = systems.contains(&"plainweave uring");
    assert!(has("ratio_to_raw") && has("ratio_to_raw_uring") == ring);
}

/// A load that is over at once.
const STALL: [&str; 10] = [
    "--connections",
    "4",
    "--requests",
    "5",
    "--slow",
    "3",
    "--one-in",
    "4",
    "--runs",
    "1",
];

/// Checks that each system has each figure of the benchmark `stall`, greater than nothing, and that
/// its slow requests took their time.
fn check_stall(rows: &[Vec<String>], systems: &[&str]) {
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"]
        .iter()
        .any(|path| Path::new(path).exists());
    for system in systems
        .iter()
        .filter(|system| go || !system.starts_with("go"))
    {
        for metric in [
            "p99_to_unloaded",
            "p99_us",
            "p50_us",
            "max_us",
            "requests_per_s",
            "slow_p50_us",
        ] {
            let of_system: Vec<_> = rows
                .iter()
                .filter(|row| row[2] == *system && row[4] == metric)
                .collect();
            assert!(!of_system.is_empty(), "no {metric} of {system}: {rows:?}");
            let least = if metric == "slow_p50_us" {
                3000.0
            } else {
                f64::MIN_POSITIVE
            };

            assert!(
                of_system
                    .iter()
                    .all(|row| row[6].parse::<f64>().unwrap() >= least),
                "{of_system:?}"
            );
        }
    }
}

/// Clients look at the bytes that come.
#[test]
fn stall() {
    let rows = rows(
        "stall",
        &[&STALL[..], &["--rate", "2000", "--cases", "echo"]].concat(),
    );
    check_stall(
        &rows,
        &[
            "idle epoll before-start",
            "fibers epoll anytime",
            "threads",
            "tokio",
            "go",
        ],
    );
}

#[test]
fn stall_on_one_worker_by_sleeping() {
    let systems = [
        "idle epoll anytime",
        "fibers epoll anytime",
        "threads",
        "tokio",
        "go",
    ];
    let args = [
        "--rate",
        "2000",
        "--workers",
        "1",
        "--slow-by",
        "sleep",
        "--systems",
        &systems.join(","),
    ];
    let rows = rows_in("stall-sleep", "stall", &[&STALL[..], &args].concat());
    check_stall(&rows, &systems);
    assert!(rows.iter().all(|row| row[3] == "1"), "{rows:?}");
}

#[test]
fn stall_over_http() {
    let systems = ["plainweave-http", "tokio by hand", "go net/http"];
    for by in ["compute", "sleep"] {
        let args = [
            "--rate",
            "2000",
            "--workers",
            "1",
            "--slow-by",
            by,
            "--cases",
            "web",
        ];
        let rows = rows_in(
            &format!("stall-web-{by}"),
            "stall",
            &[&STALL[..], &args].concat(),
        );
        check_stall(&rows, &systems);
        assert!(
            rows.iter()
                .all(|row| row[1].starts_with("web ") && systems.contains(&&*row[2])),
            "{rows:?}"
        );
    }
}

#[test]
fn wrong_values_of_stall_are_refused() {
    for rate in ["0", "-1", "NaN", "2e6", "many"] {
        let (code, text) = run(&["stall", &format!("--rate={rate}")]);
        assert!(
            code == Some(2) && text.contains("0.1 to 1000000"),
            "{rate}: {text}"
        );
    }

    for workers in ["0", "65", "-1", "many"] {
        let (code, text) = run(&["stall", &format!("--workers={workers}")]);
        assert!(
            code == Some(2) && text.contains("--workers"),
            "{workers}: {text}"
        );
    }

    let (code, text) = run(&["stall", "--slow-by", "nonsense"]);
    assert!(
        code == Some(2) && text.contains("[possible values: compute, sleep]"),
        "{text}"
    );
    let (code, text) = run(&["stall", "--cases", "web", "--systems", "tokio"]);
    assert!(code == Some(1) && text.contains("--list"), "{text}");
}

#[test]
fn files() {
    let rows = rows(
        "files",
        &"--runs 1 --seconds 0.3 --files 20 --streams 4"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    for method in [
        "sendfile",
        "splice",
        "linked-splice",
        "linked-splice-bounded-capped",
        "linked-splice-unbounded-capped",
        "second-ring",
        "read-send",
    ] {
        let row = rows
            .iter()
            .find(|r| r[1] == "memory" && r[2] == method && r[4] == "mib_per_s");
        assert!(
            row.is_some_and(|row| row[6].parse::<f64>().unwrap() > 0.0),
            "{method}: {rows:?}"
        );
    }
}

/// Its servers are other programs: they are measured where they are.
#[test]
fn cache() {
    let args = ["--runs", "2", "--iterations", "500", "--connections", "20"];
    let rows = rows("cache", &args);
    if !PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench"))
        .with_file_name("plainweave")
        .exists()
    {
        return; // Built by `cargo test --workspace`; without it there is nothing to measure.
    }
    let of = |metric: &str| rows.iter().filter(|r| r[4] == metric).count();

    assert!(
        of("cpu_us_per_request") >= 8 && of("hit_ratio") >= 1 && of("items") >= 1,
        "{rows:?}"
    );
    assert!(of("ratio_to_3_percent") >= 4, "{rows:?}");
    for case in ["64", "512", "64x16", "15360"] {
        let of_case = rows.iter().filter(|r| r[1] == case);
        let systems: Vec<_> = of_case.map(|r| r[2].as_str()).collect();
        let ring = systems.contains(&"plainweave uring");
        assert!(systems.contains(&"limit"), "{systems:?}");
        assert_eq!(systems.contains(&"limit uring"), ring, "{systems:?}");
    }
    assert!(of("ratio_to_limit") >= 6, "{rows:?}");
    let peers = rows.iter().any(|r| r[2] == "memcached");
    // Without rights to a quota, or without memcached, the report says so instead.
    assert!(
        of("p99_us") == 0 || peers && of("p99_us") % 3 == 0,
        "{rows:?}"
    );
    let two = rows
        .iter()
        .filter(|r| r[1] == "1024-2" && r[3] == "2" && r[4] == "cpu_us_per_request")
        .count();

    assert!(
        two == of("ratio_to_1_worker") && (of("p99_us") == 0 || two >= 2),
        "{rows:?}"
    );
}

/// Each child checks that no packet and no job was lost, and each packet's line ends.
#[test]
fn compose() {
    let size = [
        "--packets",
        "2000",
        "--one-in",
        "100",
        "--side-us",
        "50",
        "--iterations",
        "2",
        "--runs",
        "2",
    ];
    let systems = [
        "--policies",
        "fifo,lifo,priority,ot-fifo-base",
        "--best",
        "2",
    ];
    let rows = rows("compose", &[&size[..], &systems[..]].concat());
    let pair = "local-fifo/1 + global-fifo/1";

    for case in ["compute", "block"] {
        let of_case: Vec<_> = rows
            .iter()
            .filter(|r| r[1] == case && r[4] == "packets_per_s")
            .collect();
        assert!(
            of_case.len() == 3 && of_case[0][2] == pair,
            "the pools and the two best: {of_case:?}"
        );
        for system in of_case.iter().map(|row| &row[2]) {
            let of = |metric: &str| {
                let row = rows
                    .iter()
                    .find(|r| r[1] == case && r[2] == *system && r[4] == metric);
                let row = row.unwrap_or_else(|| panic!("no {metric} of {case}, {system}"));
                assert!(row[3] == "2" && row[11] == "2", "{row:?}");
                row[6].parse::<f64>().unwrap()
            };

            assert!(of("packets_per_s") > 0.0 && of("side_per_s") > 0.0 && of("p50_us") > 0.0);
            assert!(of("p50_us") <= of("p99_us") && of("p99_us") <= of("p9999_us"));
        }
    }

    // What there is is not measured again, except for the turn whose line was cut.
    let kept = folder_of("compose").join("raw/compose-turns.csv");
    let turns = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, &turns[..turns.len() - 3]).unwrap();
    let out = folder_of("compose");
    let again = [
        &["compose"],
        &size[..],
        &systems[..],
        &["--resume", "--out", out.to_str().unwrap()],
    ]
    .concat();
    let (code, said) = run(&again);

    assert!(code == Some(0) && said.contains(", 1 to measure"), "{said}");
    let last = |text: &str| {
        text.lines()
            .last()
            .map(|line| line.split(',').next().map(str::to_owned))
    };

    let after = std::fs::read_to_string(&kept).unwrap();
    assert!(
        after.starts_with(
            turns
                .rsplit_once("\n")
                .unwrap()
                .0
                .rsplit_once("\n")
                .unwrap()
                .0
        ),
        "{after}"
    );
    assert_eq!(
        (after.lines().count(), last(&after)),
        (turns.lines().count(), last(&turns))
    );
    let (code, said) = run(&[&again[..], &["--mode", "never/shared"]].concat());
    assert!(
        code == Some(1) && said.contains("leave out --resume"),
        "{said}"
    );
    let html = std::fs::read_to_string(folder_of("compose").join("compose.html")).unwrap();

    for part in [
        "quartiles",
        "of 2 single policies",
        "the side task keeps",
        "ot-fifo-base, block: not measured",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

/// Each child checks that every fiber has ended, because of the deadline.
#[test]
fn storm() {
    let size = [
        "--fibers",
        "500",
        "--connections",
        "50",
        "--others",
        "8",
        "--settle",
        "1000",
        "--window",
        "300",
    ];
    let rows = rows("storm", &[&size[..], &["--runs", "1"]].concat());
    for case in ["sleep", "channel", "read-epoll", "read-uring"] {
        let of = |system: &str, metric: &str| {
            let row = rows
                .iter()
                .find(|r| r[1] == case && r[2] == system && r[4] == metric);
            row.map(|row| row[6].parse::<f64>().unwrap())
        };

        for system in ["fifo before-start/shared", "fifo anytime/own"] {
            let metrics = [
                "others_before",
                "others_during",
                "others_after",
                "worker_cpu_ms",
                "memory_waiting_mb",
            ];
            for metric in metrics
                .into_iter()
                .filter(|_| case != "read-uring" || of(system, "others_before").is_some())
            {
                let value = of(system, metric);
                // In so small a storm the watchdog of a worker without a processor may end them all
                // at once.
                let least = if metric == "others_during" {
                    0.0
                } else {
                    f64::MIN_POSITIVE
                };

                assert!(
                    value.is_some_and(|value| value >= least),
                    "{metric} of {case}, {system}: {value:?}"
                );
            }
        }

        assert_eq!(of("goal", "during_to_before"), Some(0.5), "{case}");
        assert_eq!(of("goal", "worker_cpu_ms"), Some(1000.0), "{case}");
    }
}

/// Runs one of the thesis's experiments, tiny, and checks what its rows have. Each child checks its
/// own work.
fn thesis(experiment: &str, args: &[&str]) -> Vec<Vec<String>> {
    let length = [
        "--iterations",
        "3",
        "--workers",
        "2",
        "--far",
        "--systems",
        "plainweave,tokio,threads,may",
    ];
    let rows = rows(experiment, &[&length[..], args].concat());
    let value = |row: &Vec<String>| row[6].parse::<f64>().unwrap();
    let throughputs: Vec<_> = rows.iter().filter(|row| row[4] == "throughput").collect();
    assert!(
        throughputs
            .iter()
            .all(|row| value(row) > 0.0 && row[11] == "2"),
        "two iterations count: {throughputs:?}"
    );

    for row in throughputs {
        let of = |metric: &str| {
            let found = rows.iter().find(|r| r[1..4] == row[1..4] && r[4] == metric);
            found.map(value)
        };

        let quantiles: Vec<_> = ["p50_us", "p99_us", "p999_us", "p9999_us"]
            .iter()
            .filter_map(|p| of(p))
            .collect();
        assert!(
            quantiles.is_sorted() && matches!(quantiles.len(), 0 | 4),
            "{row:?}: {quantiles:?}"
        );
        let jain = of("jain").unwrap();
        assert!(
            (0.499..=1.0).contains(&jain) && of("executed_least") <= of("executed_most"),
            "{row:?}: {jain}"
        );
        let ours = row[2].starts_with("plainweave");

        for metric in ["insert_retries", "steal_attempts", "steals"] {
            assert_eq!(of(metric).is_some(), ours, "{metric} of {row:?}");
        }
        assert!(
            of("clock_ppm").is_none_or(|ppm| ppm > 0.0 && of("clock_ns") > Some(0.0)),
            "{row:?}"
        );
    }

    rows
}

/// Checks that all of these systems have this metric of a case; how many there are of ours is
/// given.
#[track_caller]
fn has(rows: &[Vec<String>], case: &str, metric: &str, ours: usize, others: &[&str]) {
    let systems = rows
        .iter()
        .filter(|row| row[1] == case && row[4] == metric)
        .map(|row| row[2].as_str());
    let (own, peers): (Vec<_>, Vec<_>) =
        systems.partition(|system| system.starts_with("plainweave"));
    assert!(
        own.len() == ours && peers == others,
        "{metric} of {case}: {own:?}, {peers:?}"
    );
}

const PEERS: [&str; 3] = ["tokio", "threads", "may"];

#[test]
fn packets() {
    let rows = thesis(
        "packets",
        &[
            "--packets",
            "300",
            "--policy",
            "fifo,ot-fifo-base",
            "--modes",
            "anytime/own",
        ],
    );
    for case in [
        "base",
        "code",
        "delay-spin",
        "delay-sleep",
        "10m",
        "10m-text",
        "spawners",
        "spawners-2",
        "nearest",
        "steals",
    ] {
        has(
            &rows,
            &format!("{case} packets=300"),
            "throughput",
            2,
            &PEERS,
        );
        has(&rows, &format!("{case} packets=300"), "rank_error", 2, &[]);
    }

    let swept = [
        "--cases",
        "base",
        "--packets",
        "40,80",
        "--copy",
        "handler",
        "--delay",
        "suspend",
        "--in-flight",
        "8",
    ];
    let rows = rows_in(
        "packets-swept",
        "packets",
        &[
            &swept[..],
            &["--systems", "tokio", "--workers", "2", "--far"],
        ]
        .concat(),
    );
    for packets in ["40", "80"] {
        let case = format!("base packets={packets} copy=handler delay=suspend in-flight=8");
        has(&rows, &case, "p9999_us", 0, &["tokio"]);
    }
}

/// Those of a case's own policies that differ in their victims.
#[test]
fn packets_near_and_steals() {
    let args = [
        "--cases",
        "nearest,steals",
        "--packets",
        "200",
        "--systems",
        "plainweave",
        "--far",
    ];
    let rows = rows_in("packets-steals", "packets", &args);
    for (case, systems) in [("nearest packets=200", 16), ("steals packets=200", 12)] {
        has(&rows, case, "steal_attempts_per_task", systems, &[]);
    }
    let near = "plainweave ot-lifo-base:victim=near:13 before-start/shared";
    assert!(rows.iter().any(|row| row[2] == near), "{rows:?}");
}

#[test]
fn cache_effects() {
    let rows = thesis("cache-effects", &["--packets", "100"]);
    for case in ["base", "text", "sequential"] {
        has(&rows, &format!("{case} packets=100"), "p99_us", 4, &PEERS);
    }
}

#[test]
fn bimodal() {
    let size = [
        "--packets",
        "200",
        "--heavy",
        "5",
        "--sleep-ms",
        "2",
        "--policy",
        "fifo,ot-stochastic",
    ];
    let rows = thesis("bimodal", &size);
    let case = |name: &str| format!("{name} packets=200 heavy=5 sleep-ms=2");
    for name in ["base", "text", "suspend"] {
        has(&rows, &case(name), "p99_us", 2, &PEERS);
    }
    has(&rows, &case("staged"), "p99_us", 2, &[]);
    let slow = |row: &&Vec<String>| row[4] == "p9999_us" && row[6].parse::<f64>().unwrap() < 4000.0;

    assert_eq!(rows.iter().find(slow), None, "a heavy packet sleeps twice");
}

#[test]
fn mixer() {
    let size = [
        "--mixers",
        "2,4",
        "--rounds",
        "4",
        "--frame-ms",
        "3",
        "--policy",
        "fifo",
        "--workers",
        "2,3",
    ];
    let length = [
        "--iterations",
        "2",
        "--far",
        "--systems",
        "plainweave,tokio,threads,may",
    ];
    let rows = rows("mixer", &[&size[..], &length].concat());

    for mixers in [2, 4] {
        for (case, ours, peers) in [
            ("base", 2, &PEERS[..2]),
            ("staged", 1, &[]),
            ("silos", 2, &[]),
        ] {
            let case = format!("{case} mixers={mixers} rounds=4 frame-ms=3");
            let peers = [peers, peers].concat();
            has(&rows, &case, "breach_rate", ours, &peers);
            has(&rows, &case, "excellent_share", ours, &peers);
        }
    }

    let html = std::fs::read_to_string(folder_of("mixer").join("mixer.html")).unwrap();
    assert!(
        html.contains("this needs at least 3") && html.contains("are Plainweave's alone"),
        "{html}"
    );
}

#[test]
fn options() {
    let rows = thesis(
        "options",
        &[
            "--options",
            "60",
            "--deep",
            "100",
            "--deep-in",
            "10",
            "--policy",
            "ot-lifo-base",
        ],
    );
    for case in ["base", "text", "known"] {
        has(
            &rows,
            &format!("{case} options=60 deep=100 deep-in=10"),
            "p99_us",
            1,
            &PEERS,
        );
    }
}

#[test]
fn fib() {
    let rows = thesis("fib", &["--n", "8"]);
    has(&rows, "base n=8", "time_ms", 4, &PEERS);
    let executed = |row: &&Vec<String>| matches!(&*row[4], "executed_least" | "executed_most");
    assert!(
        rows.iter()
            .filter(executed)
            .all(|row| row[6].parse::<f64>().unwrap() <= 67.0),
        "fib(8) takes 67 calls"
    );
}

#[test]
fn creation() {
    let rows = thesis("creation", &["--tasks", "300"]);
    for metric in ["create_ns", "created_per_s", "drain_ms"] {
        has(&rows, "base tasks=300", metric, 9, &PEERS);
        has(&rows, "work tasks=300", metric, 9, &PEERS);
    }
}

#[test]
fn overload_stages() {
    let size = [
        "--load",
        "0.3,2",
        "--seconds",
        "0.1",
        "--work-us",
        "200",
        "--queue",
        "10",
        "--policy",
        "fifo",
    ];
    let rows = thesis("overload-stages", &size);
    let rest = "seconds=0.1 work-us=200 queue=10";

    for load in ["0.3", "2"] {
        for metric in [
            "shed_share",
            "backlog_p99",
            "backlog_spread",
            "offered_per_s",
        ] {
            has(
                &rows,
                &format!("stealing load={load} {rest}"),
                metric,
                1,
                &PEERS,
            );
            has(&rows, &format!("staged load={load} {rest}"), metric, 1, &[]);
        }
    }

    let shed = rows
        .iter()
        .filter(|row| row[1].contains("load=2") && row[4] == "shed_share");
    assert!(
        shed.clone().all(|row| row[6].parse::<f64>().unwrap() > 0.0),
        "at twice the capacity some are shed"
    );
}

/// One program that takes the experiment's name.
#[test]
fn the_thesis_on_go() {
    if !["/usr/local/go/bin/go", "/usr/bin/go"]
        .iter()
        .any(|path| Path::new(path).exists())
    {
        return skip::skip("the thesis's workloads on Go: Go is not installed");
    }
    for (experiment, size) in [
        ("packets", &["--packets=200"][..]),
        ("cache-effects", &["--packets=50"]),
        ("bimodal", &["--packets=100", "--heavy=5", "--sleep-ms=1"]),
        ("mixer", &["--mixers=2", "--rounds=3", "--frame-ms=2"]),
        ("options", &["--options=50", "--deep=100"]),
        ("fib", &["--n=8"]),
        ("creation", &["--tasks=200"]),
        (
            "overload-stages",
            &["--load=0.5", "--seconds=0.1", "--work-us=100"],
        ),
    ] {
        let common = [
            "--systems",
            "go",
            "--iterations",
            "2",
            "--workers",
            "2",
            "--far",
        ];
        let rows = rows_in(
            &format!("go-{experiment}"),
            experiment,
            &[&common[..], size].concat(),
        );
        let throughput =
            |row: &&Vec<String>| row[4] == "throughput" && row[6].parse::<f64>().unwrap() > 0.0;
        assert!(
            rows.iter().filter(throughput).count() >= 1,
            "{experiment}: {rows:?}"
        );
    }
}

#[test]
fn wrong_parameters_of_the_thesis_are_refused() {
    for (experiment, option, code, range) in [
        ("packets", "--packets=0", 2, "from 1 to 100000000"),
        ("packets", "--spawners=1001", 2, "from 1 to 1000"),
        (
            "packets",
            "--delay=nap",
            2,
            "one of none, spin, sleep, suspend",
        ),
        ("packets", "--workers=0", 2, "1..=1024"),
        ("packets", "--iterations=0", 2, "1..=50"),
        ("packets", "--dropped=6", 1, "from 0 to 5"),
        (
            "packets",
            "--cases=nonsense",
            1,
            "delay-spin, delay-sleep, 10m",
        ),
        (
            "packets",
            "--systems=nonsense",
            1,
            "plainweave, tokio, go, threads, may",
        ),
        ("packets", "--policy=nonsense", 1, "there are: fifo"),
        ("packets", "--modes=nonsense", 1, "anytime/own"),
        ("cache-effects", "--reads=0", 2, "from 1 to 100000"),
        (
            "bimodal",
            "--heavy=101",
            2,
            "from 0 to 100, perhaps with a fraction",
        ),
        (
            "bimodal",
            "--sleeps=4",
            1,
            "from 0 to 3, the tasks of --chain",
        ),
        ("mixer", "--mix-share=80", 1, "from 1 to 79"),
        ("mixer", "--bytes=1", 2, "from 2 to 1000000"),
        ("options", "--deep=20001", 2, "from 1 to 20000"),
        ("fib", "--n=31", 2, "from 1 to 30"),
        ("creation", "--tasks=-1", 2, "from 1 to 100000000"),
        ("overload-stages", "--load=0", 2, "from 0.01 to 10"),
        ("queues", "--threads=3", 2, "an even number from 2 to 1000"),
    ] {
        let (exit, text) = run(&[experiment, option]);
        let name = option.split('=').next().unwrap();
        assert!(
            exit == Some(code) && text.contains(range),
            "{experiment} {option}: {exit:?} {text}"
        );
        assert!(
            text.contains(name) || code == 1,
            "{experiment} {option}: {text}"
        );
    }

    let (exit, text) = run(&[
        "bimodal",
        "--cases=staged",
        "--workers=1",
        "--systems=plainweave",
    ]);
    assert!(
        exit == Some(1) && text.contains("--workers 1: this needs at least 2"),
        "{text}"
    );
    let (exit, text) = run(&["overload-stages", "--list"]);
    assert!(
        exit == Some(0) && text.contains("a pool for each stage"),
        "{text}"
    );
}

#[test]
fn wrong_sizes_of_compose_and_storm_are_refused() {
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let (exit, text) = run(args);
        assert!(
            exit == Some(code) && parts.iter().all(|part| text.contains(part)),
            "{args:?}: {text}"
        );
    };

    for (option, range) in [
        ("--packets=9", "10..=10000000"),
        ("--in-flight=0", "1..=1000000"),
        ("--one-in=0", "1..=1000000"),
        ("--side-us=1000001", "1..=1000000"),
        ("--iterations=0", "1..=1000"),
        ("--packet-workers=0", "1..=64"),
        ("--side-workers=65", "1..=64"),
        ("--best=0", "1..=100"),
        ("--packet-policy=nonsense", "there are: fifo"),
        ("--policies=fifo,nonsense", "there are: fifo"),
        ("--cases=nonsense", "compute, block"),
    ] {
        let name = option.split('=').next().unwrap();
        refused(&["compose", option], 2, &[name, range]);
    }

    refused(
        &["compose", "--packets=100", "--one-in=101"],
        1,
        &["--one-in", "from 1 to 100"],
    );
    refused(
        &["compose", "--mode=nonsense"],
        1,
        &["'nonsense'", "anytime/own"],
    );
    for (option, range) in [
        ("--fibers=0", "1..=1000000"),
        ("--connections=100001", "1..=100000"),
        ("--others=3", "4..=10000"),
        ("--settle=600001", "1..=600000"),
        ("--window=0", "1..=60000"),
        ("--policy=nonsense", "there are: fifo"),
        ("--cases=nonsense", "sleep, channel, read-epoll, read-uring"),
    ] {
        let name = option.split('=').next().unwrap();
        refused(&["storm", option], 2, &[name, range]);
    }

    refused(
        &["storm", "--modes=nonsense"],
        1,
        &["'nonsense'", "anytime/own"],
    );
}

#[test]
fn shapes() {
    let args = [
        "--runs",
        "1",
        "--seconds",
        "0.2",
        "--connections",
        "8,20",
        "--rate",
        "100",
    ];
    if !PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench"))
        .with_file_name("plainweave")
        .exists()
    {
        return; // Built by `cargo test --workspace`; without it there is nothing to measure.
    }
    let rows = rows("shapes", &args);

    let web = ["web 8", "web 20", "web connect", "web block"];
    let cache = ["cache 8", "cache 20", "cache block"];
    for case in web.into_iter().chain(cache) {
        for system in ["driver", "fibers", "acceptors", "event-loops", "pipeline"] {
            let of = |metric: &str| {
                let row = rows
                    .iter()
                    .find(|r| r[1] == case && r[2] == system && r[4] == metric);
                row.unwrap_or_else(|| panic!("no {metric} of {case}, {system}"))[6]
                    .parse::<f64>()
                    .unwrap()
            };

            for metric in [
                "cpu_per_request",
                "requests_per_s",
                "p50_us",
                "p99_us",
                "p999_us",
                "memory_mb",
            ] {
                assert!(of(metric) > 0.0, "{metric} of {case}, {system}");
            }

            assert!(of("errors") == 0.0, "{case}, {system}");
        }
    }

    let of = |case: &str, system: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|r| r[1] == case && r[2] == system && r[4] == metric);
        row.map(|row| row[6].parse::<f64>().unwrap())
    };

    for case in web
        .into_iter()
        .chain(cache)
        .filter(|case| !case.ends_with("block"))
    {
        assert!(of(case, "limit", "cpu_per_request") > Some(0.0), "{case}");
        assert!(
            of(case, "limit", "errors") == Some(0.0),
            "{case}: the raw loop's answers are right"
        );
        assert!(of(case, "driver", "cpu_to_limit") > Some(0.0), "{case}");
    }
    let slow = rows
        .iter()
        .filter(|r| r[1].ends_with("block") && matches!(r[2].as_str(), "nginx" | "limit"));
    assert_eq!(slow.count(), 0, "these have no handler that blocks");
}

#[test]
fn wrong_names_list_the_valid_ones() {
    for (given, known) in [
        ("--cases", "64, 1024, 10000, connect, block"),
        ("--systems", "event-loops, pipeline"),
    ] {
        let (code, text) = run(&["shapes", given, "nonsense"]);
        assert!(
            code == Some(1) && text.contains("'nonsense'") && text.contains(known),
            "{text}"
        );
    }

    let (code, text) = run(&["micro", "--cases", "nonsense"]);
    assert!(
        code == Some(1) && text.contains("'nonsense'") && text.contains("spawn-join"),
        "{text}"
    );
    let (code, text) = run(&["micro", "--systems", "nonsense"]);
    assert!(
        code == Some(1) && text.contains("plainweave, threads, tokio, may, go"),
        "{text}"
    );
    let (code, text) = run(&["micro", "--libfibre", "/nonsense"]);

    assert!(
        code == Some(1) && text.contains("--libfibre /nonsense"),
        "{text}"
    );
    let (code, text) = run(&["micro", "--libfibre", "/"]);

    assert!(
        code == Some(1) && text.contains("/libfibre.a is not there"),
        "{text}"
    );
    let (code, text) = run(&["micro", "--policy", "nonsense"]);
    assert!(code == Some(1) && text.contains("lifo-slot"), "{text}");
    let (code, text) = run(&["cache", "--cases", "nonsense"]);
    assert!(
        code == Some(1) && text.contains("'nonsense'") && text.contains("64x16"),
        "{text}"
    );
    let (code, text) = run(&["queues", "--cases", "nonsense"]);

    assert!(
        code == Some(1) && text.contains("'nonsense'") && text.contains("steal-lifo"),
        "{text}"
    );
    let (code, text) = run(&["micro", "--modes", "nonsense"]);
    assert!(code == Some(1) && text.contains("anytime/own"), "{text}");
    let (code, text) = run(&["micro", "--list"]);
    assert!(code == Some(0) && text.contains("parked-fibers"), "{text}");
}

/// A change at a time, in both servers, with both numbers of workers; the mode that `--mode`
/// refuses among them.
#[test]
fn fairness() {
    if !PathBuf::from(env!("CARGO_BIN_EXE_plainweave-bench"))
        .with_file_name("plainweave")
        .exists()
    {
        return; // Built by `cargo test --workspace`; without it there is nothing to measure.
    }
    let systems = [
        "--policies",
        "helping,fifo",
        "--modes",
        "anytime/own,anytime/shared",
        "--drivers",
        "epoll",
    ];
    let size = [
        "--connections",
        "30",
        "--scale",
        "1000",
        "--seconds",
        "0.5",
        "--runs",
        "1",
    ];
    let rows = rows("fairness", &[&systems[..], &size[..]].concat());
    let of = |case: &str, system: &str, workers: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|r| r[1] == case && r[2] == system && r[3] == workers && r[4] == metric);
        row.map(|row| row[6].parse::<f64>().unwrap())
    };

    for case in ["cache", "web"] {
        for system in [
            "helping anytime/own epoll",
            "helping anytime/shared epoll",
            "fifo anytime/own epoll",
        ] {
            let alone = |metric| {
                of(case, system, "1", metric)
                    .unwrap_or_else(|| panic!("no {metric}: {case}, {system}"))
            };

            for metric in [
                "cpu_per_request",
                "requests_per_s",
                "p99_us",
                "wait_us",
                "greatest_wait_us",
            ] {
                assert!(alone(metric) > 0.0, "{metric} of {case}, {system}");
            }

            assert_eq!(alone("errors"), 0.0, "{case}, {system}");
            assert!(alone("greatest_wait_us") >= alone("wait_us"));
            assert!(alone("greatest_rank_error") >= alone("rank_error"));
            assert_eq!(
                of(case, system, "1", "cpu_to_base").is_none(),
                system == "helping anytime/own epoll"
            );

            // Where there are quotas.
            if of(case, system, "2", "cpu_per_request").is_some() {
                assert_eq!(
                    of(case, system, "2", "p99_us"),
                    None,
                    "the load's share would decide it"
                );
            }
        }
    }

    for case in ["cache", "web"] {
        assert!(
            of(case, "limit", "1", "cpu_per_request") > Some(0.0),
            "{case}"
        );
        assert_eq!(
            of(case, "limit", "1", "errors"),
            Some(0.0),
            "{case}: the raw loop's answers are right"
        );
        assert!(
            of(case, "fifo anytime/own epoll", "1", "cpu_to_limit") > Some(0.0),
            "{case}"
        );
        assert_eq!(
            of(case, "limit", "2", "cpu_per_request"),
            None,
            "the raw loop has one worker"
        );
    }

    assert_eq!(
        of("transfer", "helping anytime/own", "2", "starved"),
        Some(0.0)
    );
    let transfer = |metric| {
        of("transfer", "helping anytime/own", "2", metric).unwrap_or_else(|| panic!("no {metric}"))
    };
    // All of a hundred fibers run meanwhile.
    assert!(transfer("us_per_transfer") > 0.1 && transfer("transfer_p99_us") > 0.1);
    assert!(transfer("greatest_wait_us") > 0.0 && transfer("rank_error") > 0.0);
}

#[test]
fn load() {
    let ours = Path::new(env!("CARGO_BIN_EXE_plainweave-bench"))
        .with_file_name("plainweave")
        .exists();
    if !ours {
        let (code, text) = run(&["load"]);
        assert!(
            code == Some(1) && text.contains("plainweave is not beside"),
            "{text}"
        );
        return skip::skip("bench load: the program plainweave is not built");
    }

    let rows = rows(
        "load",
        &["--runs", "1", "--seconds", "0.3", "--connections", "4"],
    );
    let value = |case: &str, system: &str, metric: &str| -> f64 {
        let row = rows
            .iter()
            .find(|row| row[1..3] == [case, system] && row[4] == metric);
        let row = row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {rows:?}"));
        row[6].parse().unwrap()
    };

    for metric in [
        "server_cpu_us_per_request",
        "client_cpu_us_per_request",
        "requests_per_second",
    ] {
        assert!(value("generators", "plainweave load epoll", metric) >= 0.0);
    }

    if installed("wrk") {
        assert!(value("generators", "wrk again", "server_cpu_to_wrk") > 0.0);
        assert!(value("generators", "plainweave load epoll", "server_cpu_to_wrk") > 0.0);
    } else {
        skip::skip("bench load beside wrk: wrk is not installed");
    }

    for case in ["oracle-http", "oracle-cache"] {
        // Nobody has an answer before the server has slept.
        assert!(value(case, "plainweave load epoll", "noted_p50_us") >= 9_990.0);
        assert!(value(case, "plainweave load epoll", "p50_to_noted") >= 0.99);
    }

    if installed("httperf") {
        // It tells half milliseconds.
        assert!(value("oracle-http", "httperf", "p50_to_noted") >= 0.9);
    } else {
        skip::skip("bench load beside httperf: httperf is not installed");
    }
}
