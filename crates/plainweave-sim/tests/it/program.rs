//! `plainweave-sim` as a user runs it.

use std::process::{Command, Output};

use plainweave_sim::Trial;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plainweave-sim"))
        .args(args)
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_same_flags_print_the_same_bytes() {
    let flags = [
        "--policy",
        "fifo",
        "--policy",
        "ot-fifo-base",
        "--workers",
        "2,9",
        "--size",
        "600",
        "--csv",
    ];
    let first = sim(&flags);
    let second = sim(&flags);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), text(&second.stdout));
    let mut lines = text(&first.stdout).lines();
    let command = "# command: plainweave sim --policy fifo --policy ot-fifo-base --workers 2,9 --size 600 --csv";

    assert_eq!(lines.next(), Some(command));
    for head in ["# commit: ", "# profile: "] {
        let line = lines.next().expect("a line");
        assert!(line.starts_with(head) && line.len() > head.len(), "{line}");
    }

    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("# simulated: every figure; seeds from 1"))
    );
    assert_eq!(
        lines.next(),
        Some("experiment,case,system,workers,metric,unit,median,q1,q3,min,max,runs")
    );
    let row = lines.next().expect("a row");
    assert!(
        row.starts_with("sim,\"packets on epyc, size=600\",\"simulated fifo\",2,throughput,1/s,"),
        "{row}"
    );
}

/// The reference comes first, then what the search found, the best first; the same flags find the
/// same.
#[test]
fn a_search_repeats_and_ranks_what_it_found() {
    let flags = [
        "--search",
        "12",
        "--workers",
        "8,2",
        "--size",
        "300",
        "--policy",
        "lifo",
    ];
    let first = sim(&flags);
    let second = sim(&flags);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), text(&second.stdout));
    let mut lines = text(&first.stdout).lines();
    let head = lines.next().expect("a head");

    assert!(
        head.contains("12 policies tried")
            && head.contains("2, 8 workers")
            && head.contains("that of lifo"),
        "{head}"
    );
    let rows: Vec<Vec<_>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.iter().all(|row| row.len() == 6), "{rows:?}");
    assert_eq!((rows[0][3], rows[0][5]), ("1.00", "lifo"));

    for row in &rows {
        let [_, large, kept, tail] = [0, 1, 2, 3].map(|i| row[i].parse::<f64>().expect("a number"));
        assert_eq!(row[4] == "yes", kept >= 1.0 && tail <= 1.5, "{row:?}");
        assert!(large > 0.0);
    }

    assert!((2..=11).contains(&rows.len()), "{rows:?}");
    assert!(
        rows[1..].iter().all(|row| row[5].starts_with("fifo")),
        "{rows:?}"
    );
    let twice = sim(&["--search", "5", "--policy", "fifo", "--policy", "lifo"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(
        text(&twice.stderr).contains("name one with --policy"),
        "{}",
        text(&twice.stderr)
    );
    assert_eq!(sim(&["--search", "0"]).status.code(), Some(2));
    assert_eq!(sim(&["--search", "5", "--csv"]).status.code(), Some(2));
}

/// The first fiber runs once, and so does each of 600 handlers.
#[test]
fn real_time_goes_to_standard_error_alone() {
    let run = sim(&["--workers", "2", "--size", "600", "--csv"]);
    let error = text(&run.stderr);
    assert!(
        error.starts_with("plainweave sim: 601 simulated executions in ")
            && error.lines().count() == 1,
        "{error}"
    );
    assert!(
        !text(&run.stdout).contains("executions"),
        "{}",
        text(&run.stdout)
    );
    let checked = sim(&["--check", "3"]);

    assert!(
        text(&checked.stderr).contains(" million a second"),
        "{}",
        text(&checked.stderr)
    );
}

#[test]
fn help_answers_and_names_what_there_is() {
    let help = sim(&["--help"]);
    assert!(help.status.success());
    for word in [
        "--policy",
        "--workers",
        "--workload",
        "--param",
        "--case spawners-2",
        "--seed",
        "--csv",
        "packets",
        "sleep-ms",
        "late-ms",
        "epyc",
        "1 to 256",
    ] {
        assert!(text(&help.stdout).contains(word), "{word}");
    }
}

#[test]
fn the_table_says_that_it_is_simulated() {
    let table = sim(&["--workers", "3", "--size", "100"]);
    assert!(table.status.success() && text(&table.stdout).starts_with("Simulated: "));
}

#[test]
fn bad_values_are_refused_with_what_is_allowed() {
    let cases: [(&[&str], &str); 36] = [
        (&["--workers", "0"], "1..=256"),
        (&["--workers", "8,257"], "1..=256"),
        (&["--runs", "0"], "1..=1000"),
        (&["--size", "0"], "1 to 20000000"),
        (&["--cost", "group=x"], "not a number"),
        (
            &["--cost", "group=1e7"],
            "the cost 'group' is 10000000: 0 to 1000000 nanoseconds",
        ),
        (&["--check", "0"], "1..=10000000"),
        (
            &["--check", "1", "--policy", "fifo"],
            "'--check <N>' cannot be used with '--policy <POLICY>'",
        ),
        (&["--cost", "jitter=101"], "0 to 100 percent"),
        (&["--workload", "parcels"], "there are: packets"),
        (&["--machine", "toaster"], "there are: epyc, flat"),
        (&["--policy", "best"], "there are: fifo"),
        (&["--workload", "open", "--rate", "0"], "1..=1000"),
        (&["--rate", "90"], "no effect on the workload 'packets'"),
        (
            &["--timeline", "run.svg", "--timeline-us", "0"],
            "1..=1000000",
        ),
        (&["--timeline-us", "5"], "--timeline <FILE>"),
        (&["--param", "spawners"], "write it as NAME=VALUE"),
        (
            &["--param", "spawners=0"],
            "the parameter 'spawners' is 0: 1 to 1000 are allowed",
        ),
        (
            &["--param", "delay-ns=6e7"],
            "the parameter 'delay-ns' is 60000000: 1 to 50000000 are allowed",
        ),
        (
            &["--param", "chain=2"],
            "the workload 'packets' has no parameter 'chain'; it has: spawners, delay, delay-ns",
        ),
        (
            &["--workload", "bimodal", "--param", "chain=2.5"],
            "is 2.5: whole numbers from 1 to 1000 are allowed",
        ),
        (
            &["--workload", "bimodal", "--param", "sleeps=4"],
            "the parameter 'sleeps' is 4: 0 to 3 are allowed",
        ),
        (
            &["--workload", "bimodal", "--param", "wait=doze"],
            "'wait' is 'doze': block and suspend are allowed",
        ),
        (
            &["--workload", "bimodal", "--case", "silos"],
            "has no case 'silos'; it has: base, text, staged, suspend",
        ),
        (
            &["--workload", "bimodal", "--case", "staged"],
            "workers is 1: 'bimodal' with pools=staged needs 2 or more",
        ),
        (
            &["--workload", "mixer", "--case", "staged", "--workers", "2"],
            "pools=staged needs 3 or more",
        ),
        (
            &["--workload", "mixer", "--case", "silos", "--workers", "1"],
            "pools=silos needs 2 or more",
        ),
        (
            &["--workload", "mixer", "--param", "legs-share=80"],
            "the parameter 'mix-share' is 30: 1 to 19 are allowed",
        ),
        (
            &["--workload", "yield", "--case", "base"],
            "has no case 'base'; it has: none",
        ),
        (
            &["--workload", "bimodal", "--param", "chain=some"],
            "is 'some': numbers from 1 to 1000 are allowed",
        ),
        (
            &["--workload", "mixer", "--param", "frame-ms=0"],
            "'frame-ms' is 0: 1 to 10000 are allowed",
        ),
        (
            &["--workload", "mixer", "--param", "late-ms=1.5"],
            "is 1.5: whole numbers from 1 to 10000 are allowed",
        ),
        (
            &["--workload", "mixer", "--size", "100001"],
            "size is 100001: 1 to 100000 are allowed",
        ),
        (
            &["--workload", "options", "--param", "deep=20001"],
            "1 to 20000 are allowed",
        ),
        (
            &["--workload", "fib", "--size", "31"],
            "size is 31: 1 to 30 are allowed",
        ),
        (
            &["--workload", "fib", "--param", "n=3"],
            "'n' is no parameter of the workload 'fib', but its size",
        ),
    ];
    for (flags, allowed) in cases {
        let refused = sim(flags);
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {error}");
        assert!(
            error.contains(allowed) && refused.stdout.is_empty(),
            "{flags:?}: {error}"
        );
    }
}

#[test]
fn random_machines_are_checked() {
    let checked = sim(&["--check", "30", "--seed", "1000"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("30 random machines from seed 1000"));
}

/// In a process of its own each: the allocator ends it if memory is freed twice. Each of these runs
/// once ended while a worker waited for its turn in `queue/mpmc`, and was unwound with its ticket
/// in hand.
#[test]
fn a_run_ends_while_no_worker_is_inside_the_policy() {
    let request = [
        "--policy",
        "ot-fifo-request",
        "--workload",
        "locality",
        "--machine",
        "hybrid",
        "--workers",
        "6",
    ];
    let ended = sim(&[
        &request[..],
        &["--size", "243", "--idle", "spin", "--seed", "1013"],
    ]
    .concat());
    assert!(ended.status.success(), "{}", text(&ended.stderr));

    for (policy, workload) in [
        ("global-fifo", "churn"),
        ("global-fifo", "yield"),
        ("ot-fifo-sharded-5", "churn"),
    ] {
        let flags = [
            "--policy",
            policy,
            "--workload",
            workload,
            "--workers",
            "8",
            "--size",
            "300",
            "--runs",
            "6",
        ];
        for idle in ["sleep", "spin"] {
            let ended = sim(&[&flags[..], &["--idle", idle]].concat());
            assert!(
                ended.status.success(),
                "{policy}, {workload}, {idle}: {}",
                text(&ended.stderr)
            );
        }
    }
}

#[test]
fn a_check_ends_in_time() {
    let checked = sim(&["--check", "10000000", "--seconds", "1"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let alone = sim(&["--seconds", "1"]);
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stderr));
}

#[test]
fn the_command_of_a_trial_repeats_it() {
    for seed in 40..50 {
        let trial = Trial::random(seed);
        let outcome = trial.run().expect("nothing to object");
        let mut flags: Vec<_> = trial.command().split(' ').skip(2).collect();
        flags.push("--csv");
        let again = sim(&flags);
        assert!(
            again.status.success(),
            "{}: {}",
            trial.command(),
            text(&again.stderr)
        );

        let rows = text(&again.stdout)
            .lines()
            .filter(|line| !line.starts_with("# "))
            .skip(1);
        for ((metric, unit, value), row) in outcome.figures().iter().zip(rows) {
            assert!(
                row.contains(&format!(",{metric},{unit},{value},")),
                "{metric} is {value}: {row}"
            );
        }
    }
}

/// A file in the folder for tests, which goes with it.
struct File(std::path::PathBuf);

impl File {
    fn named(name: &str) -> Self {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{}-{name}", std::process::id()));
        Self(path)
    }

    fn with(name: &str, text: &str) -> Self {
        let file = Self::named(name);
        std::fs::write(&file.0, text).expect("a file for the test");
        file
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_scenario_is_read_and_flags_take_the_place_of_its_lines() {
    let file = File::with(
        "scenario.toml",
        "policies = [\"lifo\"]\nworkers = [3]\nworkload = \"open\"\nsize = 200\nrate = 50\n[costs]\ngroup = 40\n",
    );
    let run = sim(&[file.path(), "--workers", "2", "--csv"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let row =
        "\nsim,\"open on epyc at 50 %, size=200, cost group=40\",\"simulated lifo\",2,throughput,";
    assert!(text(&run.stdout).contains(row), "{}", text(&run.stdout));
}

#[test]
fn parameters_are_named_in_what_is_printed() {
    let scenario = "workload = \"bimodal\"\nsize = 100\n[params]\nheavy = 0.5\nchain = 2\nwait = \"suspend\"\n";
    let file = File::with("params.toml", scenario);
    let run = sim(&[file.path(), "--workers", "2", "--param", "chain=4", "--csv"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let row = "\nsim,\"bimodal on epyc, size=100, chain=4, heavy=0.5, wait=suspend\",\"simulated fifo\",2,throughput,";
    assert!(text(&run.stdout).contains(row), "{}", text(&run.stdout));
}

#[test]
fn a_case_sets_size_and_parameters_and_flags_go_before_it() {
    let file = File::with("case.toml", "case = \"delay-sleep\"\n");
    for args in [
        &[file.path(), "--size", "100"][..],
        &["--case", "delay-sleep", "--size", "100"],
    ] {
        let run = sim(&[args, &["--workers", "1", "--csv"]].concat());
        assert!(run.status.success(), "{}", text(&run.stderr));
        let row = "\nsim,\"packets (delay-sleep) on epyc, size=100\",\"simulated fifo\",1,throughput,1/s,";
        let rate = text(&run.stdout)
            .split(row)
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .expect("a row");

        // 100 sleeps of 80.5 us, one after the other.
        assert!(
            (10_000.0..12_000.0).contains(&rate.parse::<f64>().expect("a number")),
            "{rate}"
        );
    }
}

#[test]
fn a_case_has_policies_of_its_own_unless_others_are_named() {
    let systems = |args: &[&str]| {
        let run = sim(&[
            &["--case", "nearest", "--size", "50", "--workers", "2"],
            args,
        ]
        .concat());
        assert!(run.status.success(), "{}", text(&run.stderr));
        text(&run.stdout)
            .lines()
            .skip(2)
            .filter_map(|row| Some(row.split_whitespace().next()?.to_owned()))
            .collect()
    };

    let [own, named]: [Vec<String>; 2] = [systems(&[]), systems(&["--policy", "lifo"])];
    assert!(
        own.len() == 8 && own[1] == "ot-fifo-base:victim=near:20",
        "{own:?}"
    );
    assert_eq!(named, ["lifo"]);
}

/// The file is the one to which docs/simulator.md leads.
#[test]
fn a_scenario_describes_its_machine() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machine.toml");
    let csv = |flags: &[&str]| {
        let run = sim(&[&[file, "--csv", "--size", "400"], flags].concat());
        assert!(run.status.success(), "{}", text(&run.stderr));
        text(&run.stdout).to_owned()
    };

    let described = csv(&[]);
    let case = "\nsim,\"burst on a machine of core=2, group=8, slow=25, slowdown=1.5, socket=16, size=400\",\
         \"simulated fifo\",32,";
    assert!(described.contains(case), "{described}");
    assert!(csv(&["--machine", "flat"]).contains("\nsim,\"burst on flat, size=400\","));
}

/// A single worker that others may join does not keep to plain memory, so that its switches cost
/// more.
#[test]
fn a_worker_that_spares_may_join_pays_for_it() {
    let throughput = |spares: u8| {
        let file = File::with(
            &format!("spares-{spares}.toml"),
            &format!("[machine]\nspares = {spares}\n"),
        );
        let run = sim(&[
            file.path(),
            "--workload",
            "yield",
            "--workers",
            "1",
            "--size",
            "20000",
            "--csv",
        ]);
        let row = text(&run.stdout)
            .lines()
            .find(|line| line.contains(",throughput,"))
            .expect("a row")
            .to_owned();
        row.split(',')
            .nth_back(5)
            .expect("a median")
            .parse::<f64>()
            .expect("a number")
    };

    let alone = throughput(0);
    let joined = throughput(1);
    assert!(joined > 0.0 && joined < 0.9 * alone, "{joined} of {alone}");
}

#[test]
fn a_described_machine_is_the_named_one_of_the_same_shape() {
    for (name, fields) in [
        ("flat", ""),
        ("numa", "group = 8\nsocket = 8"),
        ("hybrid", "slow = 50\nslowdown = 2"),
    ] {
        let file = File::with(&format!("{name}.toml"), &format!("[machine]\n{fields}\n"));
        let figures = |flags: &[&str]| {
            let run = sim(&[flags, &["--workers", "20", "--size", "500", "--csv"]].concat());
            assert!(run.status.success(), "{}", text(&run.stderr));
            let rows: Vec<_> = text(&run.stdout)
                .lines()
                .map(|row| row.split("\"simulated").nth(1))
                .collect();
            rows.iter()
                .map(|row| row.unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };

        assert_eq!(
            figures(&[file.path()]),
            figures(&["--machine", name]),
            "{name}"
        );
    }
}

#[test]
fn the_mixer_prints_its_breaches() {
    let flags = [
        "--workload",
        "mixer",
        "--size",
        "4",
        "--param",
        "rounds=2",
        "--workers",
        "2",
    ];
    let table = sim(&flags);
    assert!(
        table.status.success() && text(&table.stdout).contains(" breach_rate "),
        "{}",
        text(&table.stderr)
    );
    let csv = sim(&[&flags[..], &["--csv"]].concat());

    assert!(
        text(&csv.stdout).contains(",2,breach_rate,1,0,"),
        "{}",
        text(&csv.stdout)
    );
}

#[test]
fn a_wrong_scenario_is_refused_with_its_line() {
    let cases = [
        (
            "seed = 1\nworkers = [2, 300]\n",
            "line 2: workers is 300: 1 to 256 are allowed",
        ),
        (
            "seed = 1\n\nmachine = \"toaster\"\n",
            "line 3: no simulated machine is called 'toaster'",
        ),
        (
            "seed = 1\n[machine]\ngroup = 0\n",
            "line 3: machine.group is 0: whole numbers from 1 to 256 are allowed",
        ),
        (
            "[machine]\ncore = 1.5\n",
            "line 2: machine.core is 1.5: whole numbers from 1 to 256 are allowed",
        ),
        (
            "[machine]\ncore = 2\ngroup = 5\n",
            "line 3: machine.group is 5: multiples of machine.core, 2, are allowed",
        ),
        (
            "[machine]\nsocket = 6\ngroup = 4\n",
            "line 2: machine.socket is 6: multiples of machine.group, 4, are",
        ),
        (
            "[machine]\nslow = 101\n",
            "line 2: machine.slow is 101: 0 to 100 are allowed",
        ),
        (
            "[machine]\nspares = 2\n",
            "line 2: machine.spares is 2: whole numbers from 0 to 1 are allowed",
        ),
        (
            "[machine]\nslowdown = 0.5\n",
            "line 2: machine.slowdown is 0.5: 1 to 100 are allowed",
        ),
        (
            "[machine]\ncores = 2\n",
            "line 2: a machine has no 'cores'; it has: core, group, socket, slow, slowdown, spares",
        ),
        ("[machine]\ncore = \"two\"\n", "line 2"),
        ("machine = 3\n", "line 1"),
        (
            "policies = [\n \"fifo\",\n \"best\"]\n",
            "line 3: no scheduling policy is called 'best'",
        ),
        (
            "idle = \"nap\"\n",
            "line 1: idle is 'nap': 'sleep' and 'spin' are allowed",
        ),
        (
            "runs = 1\nrate = 90\n",
            "line 2: a rate has no effect on the workload 'packets'",
        ),
        (
            "[costs]\ngroup = -1\n",
            "line 2: the cost 'group' is -1: 0 to 1000000 nanoseconds are allowed",
        ),
        (
            "seed = 1\ncase = \"texts\"\n",
            "line 2: the workload 'packets' has no case 'texts'; it has: base, delay-spin",
        ),
        (
            "[params]\nspawners = 1001\n",
            "line 2: the parameter 'spawners' is 1001: 1 to 1000 are allowed",
        ),
        (
            "workload = \"fib\"\nsize = 31\n",
            "line 2: size is 31: 1 to 30 are allowed",
        ),
        (
            "workload = \"open\"\n[params]\nheavy = 1\n",
            "line 3: the workload 'open' has no parameter 'heavy'",
        ),
        (
            "workload = \"bimodal\"\n[params]\nheavy = 100.5\n",
            "line 3: the parameter 'heavy' is 100.5: 0 to 100",
        ),
        (
            "workload = \"bimodal\"\n[params]\nchain = 1\n",
            "line 3: the parameter 'sleeps' is 2: 0 to 1 are allowed",
        ),
        (
            "workload = \"bimodal\"\n[params]\nwait = \"no\"\n",
            "line 3: the parameter 'wait' is 'no': block and suspend",
        ),
        ("[costs]\nsocks = 1\n", "line 2: no cost is called 'socks'"),
        ("seed = 1\nworkrs = [2]\n", "line 2"),
        ("seed = 1\nruns = \"many\"\n", "line 2"),
        ("seed = = 1\n", "line 1"),
    ];
    for (scenario, expected) in cases {
        let file = File::with("wrong.toml", scenario);
        let refused = sim(&[file.path()]);
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{scenario}: {error}");
        assert!(
            error.contains(expected) && error.contains("wrong.toml") && refused.stdout.is_empty(),
            "{error}"
        );
    }
}

#[test]
fn a_trace_shows_runs_and_steals_and_overwrites_nothing() {
    let file = File::named("trace.json");
    let flags = ["--workers", "4", "--size", "300", "--trace", file.path()];
    let run = sim(&flags);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let json = std::fs::read_to_string(&file.0).expect("the trace");
    let events: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();

    assert!(
        count("X") > 300 && count("s") > 0 && count("s") == count("f"),
        "{} events",
        events.len()
    );
    let again = sim(&flags);
    assert!(
        again.status.code() == Some(1) && text(&again.stderr).contains("cannot create"),
        "a file that was there"
    );
}

#[test]
fn a_plot_has_a_line_for_each_policy_and_the_published_points() {
    let file = File::named("plot.svg");
    let flags = [
        "--policy",
        "fifo",
        "--policy",
        "ot-fifo-base",
        "--workers",
        "2,4",
        "--size",
        "200",
        "--svg",
        file.path(),
    ];
    let run = sim(&flags);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let svg = std::fs::read_to_string(&file.0).expect("the plot");

    assert!(
        svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    let count = |what: &str| svg.matches(what).count();

    // Two policies in three panels, and what is published of one.
    assert!(
        count("Simulated: ") == 1 && count("<polyline ") == 7,
        "{svg}"
    );
    // The line's name, and a value for each of its points.
    assert_eq!(count("ot-fifo-base, published (measured)"), 4, "{svg}");
    for panel in [
        "simulated throughput",
        "simulated latency, median",
        "simulated latency, p99",
    ] {
        assert_eq!(count(panel), 1, "{panel}: {svg}");
    }

    // Four points of each panel, and the three published ones; each says its value.
    assert_eq!(count("<circle "), 15, "{svg}");
    assert!(svg.contains("<title>fifo, simulated: "), "{svg}");
}

#[test]
fn a_timeline_shows_the_beginning_of_a_run() {
    let draw = |name: &str, micros: &str| {
        let file = File::named(name);
        let flags = [
            "--workers",
            "4",
            "--size",
            "300",
            "--timeline",
            file.path(),
            "--timeline-us",
            micros,
        ];
        let run = sim(&flags);
        assert!(run.status.success(), "{}", text(&run.stderr));
        std::fs::read_to_string(&file.0).expect("the picture")
    };

    let short = draw("short.svg", "60");
    let long = draw("long.svg", "600");
    for (svg, micros) in [(&short, 60), (&long, 600)] {
        let title =
            format!("Simulated: fifo, packets on epyc, size=300, seed 1, the first {micros} us");
        assert!(
            svg.contains(&title) && svg.contains(">worker 3<") && !svg.contains(">worker 4<"),
            "{svg}"
        );
        assert!(
            svg.contains("simulated: worker ") && svg.contains("class='asleep'"),
            "steals and sleeps: {svg}"
        );
    }

    let count = |svg: &str| svg.matches("<rect ").count();
    assert!(
        count(&long) > 2 * count(&short) && count(&short) > 10,
        "{} and {}",
        count(&long),
        count(&short)
    );
}
